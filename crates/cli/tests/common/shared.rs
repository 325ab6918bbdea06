//! Two servers over one store: raw requests, takes that wait, and instants of printed messages.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use dwell_model::Timestamp;
use serde_json::Value;

use super::{PATIENCE, Running, Server, dwell, until};

/// The status of a GET, and its whole answer.
pub(crate) fn get(server: &Server, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address());
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

/// Starts a take that waits on a server, and returns when the server counts it.
pub(crate) fn waiting_take(server: &Server, queue: &str) -> Running {
    let mut command = dwell();
    command.env("DWELL_SERVER", server.url()).args(["take", queue, "--wait", "60s"]);
    let take = Running::start(command, b"");
    let line = format!("dwell_waiting_takes{{queue=\"{queue}\"}} 1");
    until("the take waits", || get(server, "/metrics").1.contains(&line));
    take
}

/// The instant in a field of a printed message.
pub(crate) fn instant(message: &Value, field: &str) -> Timestamp {
    message[field].as_str().unwrap_or_else(|| panic!("{field}: {message}")).parse().unwrap()
}
