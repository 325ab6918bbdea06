//! `dwell serve`: its output, its end, and why it does not start.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use common::{PATIENCE, Ran, Server, dwell, run, serve, serve_in_memory, serve_with, until};
use serde_json::json;

/// A `dwell serve` that must not start.
fn refused(dir: &Path, args: &[&str]) -> Ran {
    let mut command = dwell();
    command.args(["serve", "--data"]).arg(dir).args(args);
    if !args.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    run(command)
}

fn assert_cannot_start(ran: &Ran, code: &str) {
    assert_eq!((ran.code, ran.failure().as_str()), (6, code), "{ran:?}");
    assert_eq!(ran.stdout, "");
}

#[test]
fn beanstalkds_port_that_is_taken_is_named_with_the_way_out() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let ran = refused(dir.path(), &["--beanstalkd", &address]);
    assert_cannot_start(&ran, "address_in_use");
    assert!(ran.stderr.contains(&address) && ran.stderr.contains("--beanstalkd off"), "{ran:?}");
}

#[test]
fn beanstalkds_protocol_is_spoken_where_it_was_asked_for() {
    let server = serve_in_memory(&["--beanstalkd", "127.0.0.1:0"]);
    let mut stream = TcpStream::connect(server.serving["beanstalkd"].as_str().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"use t\r\nput 0 0 9 1\r\nx\r\nquit\r\n").unwrap();
    let mut replies = String::new();
    stream.read_to_string(&mut replies).unwrap();
    assert_eq!(replies, "USING t\r\nINSERTED 1\r\n");
}

/// Crash story: 1. `dwell serve 2>&1 | tee log`, and Ctrl-C ends both. 2. The log's line about the stop cannot be written.
/// 3. The server panics instead of stopping: session leases end as if it had been killed.
#[test]
fn a_log_that_nothing_reads_does_not_keep_it_from_stopping() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = dwell();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(dir.path()).stderr(Stdio::piped());
    let mut server = Server::spawn(command);
    drop(server.stderr());
    server.dwell(&["put", "q", "x"]).ok();
    server.dwell(&["purge", "q", "--yes"]).ok();
    let (said, status) = server.stop_by("TERM");
    assert_eq!((said["event"].as_str(), status.code()), (Some("stopped"), Some(0)), "{said}");
}

#[test]
fn says_where_it_serves_and_what_was_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    assert_eq!(server.serving["store"], "engine");
    assert_eq!(server.serving["durability"], "always");
    assert_eq!(server.serving["recovered"]["messages"], 0);
    server.dwell(&["put", "q", "x", "--delay", "1h"]).ok();
    server.dwell(&["put", "q", "y"]).ok();
    let held = server.dwell(&["take", "q", "--lease", "1h"]).ok().json();
    server.kill();

    let server = serve(dir.path());
    let recovered = &server.serving["recovered"];
    assert_eq!((&recovered["messages"], &recovered["was_closed"]), (&json!(2), &json!(false)));
    server.dwell(&["ack", held["receipt"].as_str().unwrap()]).ok();
    let (stopped, status) = server.stop_by("TERM");
    assert_eq!(stopped, json!({"event": "stopped", "signal": "SIGTERM", "cut_off": 0}));
    assert!(status.success());

    let server = serve(dir.path());
    let recovered = &server.serving["recovered"];
    assert_eq!((&recovered["messages"], &recovered["was_closed"]), (&json!(1), &json!(true)));
    assert_eq!(server.dwell(&["list", "q"]).ok().json()["body"], "x");
}

#[test]
fn a_signal_answers_waiting_takes_with_nothing() {
    let server = serve_in_memory(&[]);
    let url = server.url().to_owned();
    let waiting = std::thread::spawn(move || {
        let mut command = dwell();
        command.args(["--server", &url, "take", "q", "--wait", "50s"]);
        run(command)
    });
    // The take waits once the queue counts it.
    until("the take waits", || server.dwell(&["stats", "q"]).code == 0);
    let (stopped, status) = server.stop_by("INT");
    assert_eq!((&stopped["signal"], &stopped["cut_off"]), (&json!("SIGINT"), &json!(0)));
    assert!(status.success());
    let ran = waiting.join().unwrap();
    assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{ran:?}");
}

/// A connection with a request in progress whose body does not arrive.
fn stuck_request(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let head = format!("POST /v1/queues/q/messages HTTP/1.1\r\nHost: {}\r\n", server.address());
    stream
        .write_all(format!("{head}Content-Length: 100\r\nExpect: 100-continue\r\n\r\n").as_bytes())
        .unwrap();
    // The server asks for the body: from here on the request is in progress.
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100");
    stream
}

#[test]
fn what_does_not_end_in_time_is_cut_off() {
    let server = serve_in_memory(&["--drain", "100ms"]);
    let _stuck = stuck_request(&server);
    let (stopped, status) = server.stop_by("TERM");
    assert_eq!(stopped["cut_off"], 1);
    assert!(status.success());
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let server = serve_in_memory(&["--drain", "1h"]);
    let _stuck = stuck_request(&server);
    server.signal("TERM");
    until("it accepts nothing new", || TcpStream::connect(server.address()).is_err());
    server.signal("INT");
    let (said, status) = server.end();
    assert_eq!((said.len(), status.code()), (0, Some(130)));
}

#[test]
fn a_port_that_is_taken() {
    let server = serve_in_memory(&[]);
    let dir = tempfile::tempdir().unwrap();
    let mut command = dwell();
    command.args(["serve", "--listen", server.address(), "--data"]).arg(dir.path());
    let ran = run(command);
    assert_cannot_start(&ran, "address_in_use");
    assert!(ran.stderr.contains(server.address()), "{}", ran.stderr);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "the directory is left as it is");
    server.dwell(&["queues"]).ok();
}

#[test]
fn a_second_process_on_the_same_directory() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    server.dwell(&["put", "q", "x"]).ok();
    let ran = refused(dir.path(), &[]);
    assert_cannot_start(&ran, "locked");
    assert_eq!(server.dwell(&["take", "q", "--ack"]).ok().json()["body"], "x", "the first one serves on");
    server.stop_by("TERM");
    serve(dir.path());
}

#[test]
fn a_directory_of_something_else() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("letter.txt"), "dear").unwrap();
    assert_cannot_start(&refused(dir.path(), &[]), "foreign_directory");
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["letter.txt"], "nothing was added");

    let file = dir.path().join("letter.txt");
    assert_cannot_start(&refused(&file, &[]), "not_a_directory");
    assert_eq!(fs::read(&file).unwrap(), b"dear");
}

#[test]
fn a_directory_that_cannot_be_written() {
    // Root may write anywhere except in a kernel's file system; others not there either.
    let ran = refused(Path::new("/sys/dwell"), &[]);
    assert_cannot_start(&ran, "unwritable");
    assert!(ran.stderr.contains("/sys/dwell"), "{}", ran.stderr);
}

#[test]
fn a_directory_of_a_later_version() {
    let dir = tempfile::tempdir().unwrap();
    serve(dir.path()).stop_by("TERM");
    // The format's version and its checksum, as placed in docs/format.md.
    let manifest = dir.path().join("MANIFEST");
    let mut bytes = fs::read(&manifest).unwrap();
    bytes[8..10].copy_from_slice(&(dwell_engine::FORMAT_VERSION + 1).to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..60]);
    bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&manifest, &bytes).unwrap();
    assert_cannot_start(&refused(dir.path(), &[]), "newer_format");
    assert_eq!(fs::read(&manifest).unwrap(), bytes, "it is left as it is");
}

#[test]
fn a_journal_that_is_damaged_below_what_was_synced() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    for body in ["one", "two", "three"] {
        server.dwell(&["put", "q", body]).ok();
    }
    server.stop_by("TERM");
    let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let journal = names.filter(|path| path.to_string_lossy().contains("journal-")).min().unwrap();
    let mut bytes = fs::read(&journal).unwrap();
    let one = bytes.windows(3).position(|window| window == b"one").unwrap();
    bytes[one] ^= 1;
    fs::write(&journal, &bytes).unwrap();

    let ran = refused(dir.path(), &[]);
    assert_cannot_start(&ran, "damaged");
    assert!(ran.stderr.contains(journal.to_str().unwrap()), "{}", ran.stderr);
    assert_eq!(fs::read(&journal).unwrap(), bytes, "it is left as it is");
}

#[test]
fn options_that_make_no_sense() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = ["--listen", "192.0.2.1:0"];
    assert_cannot_start(&refused(dir.path(), &elsewhere), "listener_exposed");
    let elsewhere = ["--listen", "192.0.2.1:0", "--insecure-http"];
    assert_cannot_start(&refused(dir.path(), &elsewhere), "address_not_ours");
}

#[test]
fn durability_is_what_was_asked_for() {
    for durability in ["os", "interval:50ms"] {
        let dir = tempfile::tempdir().unwrap();
        let args = ["--listen", "127.0.0.1:0", "--durability", durability];
        let server = serve_with(dir.path(), &args);
        assert_eq!(server.serving["durability"], durability);
        server.dwell(&["put", "q", "x"]).ok();
        server.kill();
        let server = serve_with(dir.path(), &args);
        assert_eq!(
            server.dwell(&["take", "q"]).ok().json()["body"],
            "x",
            "the process's death loses nothing"
        );
    }
}
