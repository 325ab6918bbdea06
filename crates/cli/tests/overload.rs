//! A server with ten thousand idle connections and two thousand waiting takes: its memory and the latency of others
//! stay within the limits below.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails by panicking")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
#[cfg(unix)]
use std::process::Command;

use dwell_time::{Clock, SystemClock};

use common::crowd::{connect, raise_limit, resident_kib, waiting};
use common::{Server, dwell, run, serve_in_memory, until};

const IDLE: usize = 10_000;
const WAITING: usize = 2_000;

/// The memory of all those connections: 16 KiB for each idle one, 48 KiB for each that waits.
const MOST_KIB: u64 = IDLE as u64 * 16 + WAITING as u64 * 48;

/// The maximum duration of a put and its take, as a multiple of that without them, and in milliseconds: the former may
/// be almost zero.
const TIMES_AS_LONG: u64 = 10;
const LONGEST_MS: u64 = 250;

/// Puts and reserves over one connection: the median duration in milliseconds.
fn median_ms(address: &str) -> u64 {
    let clock = SystemClock::new();
    let mut stream = connect(address);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let line = |reader: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line
    };
    stream.write_all(b"use busy\r\nwatch busy\r\nignore default\r\n").unwrap();
    assert_eq!(
        (line(&mut reader).as_str(), line(&mut reader).as_str()),
        ("USING busy\r\n", "WATCHING 2\r\n")
    );
    assert_eq!(line(&mut reader), "WATCHING 1\r\n");
    let mut took: Vec<u64> = (0..101)
        .map(|_| {
            let began = clock.now().mono_ms;
            stream.write_all(b"put 0 0 60 1\r\nx\r\nreserve-with-timeout 10\r\n").unwrap();
            assert!(line(&mut reader).starts_with("INSERTED "));
            let reserved = line(&mut reader);
            let number = reserved.strip_prefix("RESERVED ").unwrap().split(' ').next().unwrap().to_owned();
            line(&mut reader);
            let took = clock.now().mono_ms - began;
            stream.write_all(format!("delete {number}\r\n").as_bytes()).unwrap();
            assert_eq!(line(&mut reader), "DELETED\r\n");
            took
        })
        .collect();
    took.sort_unstable();
    took[50]
}

#[test]
fn idle_connections_and_waiting_takes_cost_little_and_delay_nobody() {
    let server = serve_in_memory(&["--beanstalkd", "127.0.0.1:0"]);
    let beanstalkd = server.serving["beanstalkd"].as_str().unwrap().to_owned();
    let files =
        raise_limit(std::process::id(), IDLE + WAITING).min(raise_limit(server.pid(), IDLE + WAITING));
    // If the limit on files is lower, there are fewer of each in proportion.
    let share = |count: usize| count * (files - 500).min(IDLE + WAITING) / (IDLE + WAITING);
    let (idle, waits) = (share(IDLE), share(WAITING));

    let alone_ms = median_ms(&beanstalkd);
    let before_kib = resident_kib(server.pid());
    let mut held = Vec::with_capacity(idle + waits);
    for at in 0..idle {
        held.push(connect(if at % 2 == 0 { server.address() } else { &beanstalkd }));
    }
    for at in 0..waits {
        let queue = format!("nothing-{}", at % 50);
        let mut stream;
        if at % 2 == 0 {
            stream = connect(server.address());
            let host = server.address();
            let head = format!("POST /v1/queues/{queue}/take?wait=60s HTTP/1.1\r\nHost: {host}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
        } else {
            stream = connect(&beanstalkd);
            stream.write_all(format!("watch {queue}\r\nreserve\r\n").as_bytes()).unwrap();
        }
        held.push(stream);
    }
    // One over beanstalkd's protocol waits on its own tube and on `default`, and counts in both.
    until("all of them wait", || waiting(&server) >= waits + waits / 2);

    let crowded_ms = median_ms(&beanstalkd);
    let more_kib = resident_kib(server.pid()).saturating_sub(before_kib);
    println!(
        "{idle} idle and {waits} waiting: {more_kib} KiB more; a put and its take {crowded_ms} ms, alone {alone_ms} ms"
    );
    assert!(more_kib <= MOST_KIB, "{more_kib} KiB for {idle} idle connections and {waits} waiting takes");
    let most_ms = (TIMES_AS_LONG * alone_ms).max(LONGEST_MS);
    assert!(crowded_ms <= most_ms, "{crowded_ms} ms, and {alone_ms} ms alone");

    // The first that waits on a queue is handed what is put there.
    server_put(&server, "nothing-0");
    let mut answer = [0; 12];
    held[idle].read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

fn server_put(server: &Server, queue: &str) {
    let mut stream = connect(server.address());
    let host = server.address();
    let head =
        format!("POST /v1/queues/{queue}/messages HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\n\r\nx");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 201");
}

/// A server at its limit on files, with as many clients that keep an idle connection open.
#[cfg(unix)]
const FILES: usize = 1_100;

#[cfg(unix)]
#[test]
fn idle_connections_leave_the_store_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -n {FILES} && exec \"$0\" \"$@\""));
    command.arg(dwell().get_program()).args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--beanstalkd",
        "127.0.0.1:0",
    ]);
    // Each job begins a segment, and some of them a flush.
    command.args(["--segment", "64KiB", "--memory-limit", "16MiB", "--data"]).arg(folder.path());
    let server = Server::spawn(command);
    let beanstalkd = server.serving["beanstalkd"].as_str().unwrap().to_owned();
    // No lower than the other test's, which shares the process.
    raise_limit(std::process::id(), IDLE + WAITING);
    let mut stream = connect(&beanstalkd);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let idle: Vec<TcpStream> =
        (0..FILES).map(|at| connect(if at % 2 == 0 { &beanstalkd } else { server.address() })).collect();
    // One too many is closed, after a refusal unless many are refused at that time.
    let mut told = String::new();
    idle[FILES - 2].try_clone().unwrap().read_to_string(&mut told).unwrap();
    assert!(told.is_empty() || told == "OUT_OF_MEMORY\r\n", "{told}");
    let put = [b"put 0 0 60 60000\r\n", &[b'x'; 60_000][..], b"\r\n"].concat();
    for _ in 0..400 {
        stream.write_all(&put).unwrap();
        let mut answer = String::new();
        reader.read_line(&mut answer).unwrap();
        assert!(answer.starts_with("INSERTED "), "{answer}");
    }
    drop(idle);
    // The server was started by a shell, which is not `dwell`.
    let mut stats = dwell();
    stats.env("DWELL_SERVER", server.url()).args(["stats", "default"]);
    let counts = run(stats).ok().json();
    assert_eq!(counts["counts"]["ready"], 400, "{counts}");
}
