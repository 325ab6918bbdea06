//! Thousands of connections to one server: raises limits on open files, and measures the memory.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use dwell_testkit::process::memory_bytes;

use super::{PATIENCE, Server};

/// Raises a process's limit on open files for this many connections, if the system allows it; returns the limit.
pub(crate) fn raise_limit(pid: u32, connections: usize) -> usize {
    let wanted = format!("--nofile={}:", 2 * connections);
    // Without `prlimit`, or without the right to raise it, there are fewer connections.
    let _ = Command::new("prlimit").args(["--pid", &pid.to_string(), &wanted]).output();
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    line.split_whitespace().nth(3).unwrap().parse().unwrap()
}

/// The present resident memory of a process.
pub(crate) fn resident_kib(pid: u32) -> u64 {
    memory_bytes(pid, "VmRSS").unwrap() / 1024
}

/// Its peak.
pub(crate) fn most_resident_kib(pid: u32) -> u64 {
    memory_bytes(pid, "VmHWM").unwrap() / 1024
}

pub(crate) fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The server's number of waiting takes, over all queues.
pub(crate) fn waiting(server: &Server) -> usize {
    let mut stream = connect(server.address());
    let head = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address());
    stream.write_all(head.as_bytes()).unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let waiting = page.lines().filter(|line| line.starts_with("dwell_waiting_takes{"));
    waiting.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
}
