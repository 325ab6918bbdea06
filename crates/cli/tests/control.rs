//! The control socket of a server that cannot open any more files.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;

use common::{PATIENCE, serve};
use dwell_model::Wake;
use dwell_time::{Clock as _, SystemClock};

/// How long to observe it.
const LOOK_MS: u64 = 1_000;

/// The lowest number that none of its files has: with that as its limit, it cannot open one more.
fn lowest_free(pid: u32) -> u32 {
    let open: Vec<u32> = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .map(|file| file.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    (0..).find(|number| !open.contains(number)).unwrap()
}

fn limit(pid: u32, files: &str) {
    let set = format!("--nofile={files}:");
    assert!(Command::new("prlimit").args(["--pid", &pid.to_string(), &set]).status().unwrap().success());
}

/// The CPU time of a process in milliseconds.
fn cpu_ms(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // proc_pid_stat(5): utime and stime are the 14th and 15th, in ticks of 10 ms.
    let behind_name = stat.rsplit(')').next().unwrap();
    behind_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap() * 10).sum()
}

#[test]
fn a_caller_that_cannot_be_let_in_costs_next_to_nothing_and_is_answered_later() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let server = serve(&data);
    server.dwell(&["put", "q", "x"]).ok();
    let pid = server.pid();
    limit(pid, &lowest_free(pid).to_string());
    let mut caller = UnixStream::connect(data.join("CONTROL")).unwrap();
    caller.write_all(b"nonsense\n").unwrap();

    let before_ms = cpu_ms(pid);
    let clock = SystemClock::new();
    let until_ms = clock.now().mono_ms + LOOK_MS;
    clock.sleeper().sleep(Wake { wall: None, mono_ms: Some(until_ms) });
    let used_ms = cpu_ms(pid) - before_ms;
    assert!(used_ms < LOOK_MS / 4, "{used_ms} ms of processors in {LOOK_MS} ms");

    limit(pid, "1024");
    caller.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = String::new();
    BufReader::new(caller).read_line(&mut answer).unwrap();
    assert!(answer.contains("malformed_request"), "{answer}");
}
