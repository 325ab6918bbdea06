//! The server's memory for requests beyond what it counts: bodies that are small as text and large as values, and
//! streams that pause after large lines.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use common::crowd::{connect, most_resident_kib, resident_kib};
use common::{Server, dwell, serve_in_memory, until};

/// The maximum length of JSON.
const TEXT: usize = 16 << 20;

/// `begin`, then `item` repeatedly, then `end`, in all a little less than [`TEXT`].
fn text(begin: &str, item: impl Fn(usize) -> String, end: &str) -> String {
    let mut text = begin.to_owned();
    let mut at = 0;
    loop {
        let item = item(at);
        if text.len() + item.len() + end.len() > TEXT {
            break;
        }
        text.push_str(&item);
        at += 1;
    }
    text.truncate(text.trim_end_matches(',').len());
    text + end
}

/// Sends a whole request, and reads its answer.
fn send(server: &Server, method: &str, target: &str, body: &str) -> String {
    let mut stream = connect(server.address());
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n",
        server.address(),
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A body of 16 MiB takes two to three times that while it is read, and no more, whatever its content.
#[test]
fn no_json_is_much_larger_in_memory_than_as_text() {
    const ALLOWED_KIB: u64 = 4 * (TEXT as u64 >> 10);
    let zeros = text("[", |_| "0,".to_owned(), "]");
    let ids = text("{\"ids\":[", |_| "\"\",".to_owned(), "]}");
    let levels = text("{\"levels\":[", |_| "\"\",".to_owned(), "]}");
    let headers = |begin: &str, end: &str| text(begin, |at| format!("\"{at:x}\":\"\","), end);
    let put = headers("[{\"queue\":\"q\",\"body\":\"\",\"headers\":{", "}}]");
    for (method, target, body, code) in [
        ("POST", "/v1/messages:batch", &zeros, "batch_too_large"),
        ("POST", "/v1/settle", &zeros, "batch_too_large"),
        ("POST", "/v1/queues/q/messages:get", &zeros, "batch_too_large"),
        ("POST", "/v1/queues/q/dead/discard", &ids, "batch_too_large"),
        ("POST", "/v1/queues/q/dead/revive", &ids, "batch_too_large"),
        ("PATCH", "/v1/queues/q/settings", &levels, "invalid_setting"),
        ("POST", "/v1/messages:batch", &put, "headers_too_large"),
    ] {
        let server = serve_in_memory(&[]);
        let before_kib = resident_kib(server.pid());
        let answer = send(&server, method, target, body);
        assert!(answer.contains(&format!("\"code\":\"{code}\"")), "{target}: {answer:.500}");
        let more_kib = most_resident_kib(server.pid()).saturating_sub(before_kib);
        println!("{target}: {} KiB as text, {more_kib} KiB in memory", body.len() >> 10);
        assert!(more_kib <= ALLOWED_KIB, "{target}: {more_kib} KiB for {} KiB of text", body.len() >> 10);
    }
}

/// Streams that have sent a large line, and now and then send a small one.
#[test]
fn what_a_line_was_read_into_is_free_when_it_is_done() {
    const STREAMS: usize = 64;
    const LINE: usize = 1 << 20;
    const ALLOWED_KIB: u64 = 24 << 10;
    let mut command = dwell();
    command.args(["serve", "--store", "memory", "--listen", "127.0.0.1:0"]);
    // None of them ends by itself during the measurement.
    command.env("DWELL_HTTP_BODY_TIMEOUT", "1h");
    let server = Server::spawn(command);
    let chunk = |stream: &mut TcpStream, text: &str| {
        stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).unwrap();
    };
    let line = format!("{{\"body\":\"1\"{}}}\n{{\"bo", " ".repeat(LINE));
    let open = || {
        let mut stream = connect(server.address());
        let head = format!(
            "POST /v1/queues/q/messages:batch HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-ndjson\r\n\
             Transfer-Encoding: chunked\r\n\r\n",
            server.address()
        );
        stream.write_all(head.as_bytes()).unwrap();
        chunk(&mut stream, &line);
        let mut answer = Vec::new();
        while !answer.windows(12).any(|some| some == b"\"status\":201") {
            let mut some = [0; 4096];
            let len = stream.read(&mut some).unwrap();
            assert!(len > 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&some[..len]);
        }
        stream
    };
    // The process keeps some memory after the first of them.
    drop((open(), open()));
    let before_kib = resident_kib(server.pid());
    let mut streams: Vec<TcpStream> = (0..STREAMS).map(|_| open()).collect();
    // The allocator returns memory gradually.
    until("what the lines were read into is given back", || {
        resident_kib(server.pid()).saturating_sub(before_kib) <= ALLOWED_KIB
    });
    // They go on where they were.
    for stream in &mut streams {
        chunk(stream, "dy\":\"2\"}\n");
    }
    for stream in &mut streams {
        let mut some = [0; 4096];
        let len = stream.read(&mut some).unwrap();
        assert!(String::from_utf8_lossy(&some[..len]).contains("\"status\":201"));
    }
}
