//! Fairness: clients that always have another command in flight delay another client's take by a bounded number of
//! turns each, whatever they send and however fast the store answers; the same holds for a queue with many clients and
//! a backlog, and another queue's messages.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dwell_engine::{Engine, Options};
use dwell_model::{Limits, Wake};
use dwell_server::{BeanstalkdConfig, Server, ServerConfig};
use dwell_store::{MemoryStore, Store};
use dwell_time::{Clock as _, SystemClock};
use tokio::sync::oneshot;

use crate::counting::Counting;

const PATIENCE: Duration = Duration::from_secs(60);

/// The maximum number of the other client's calls to the store between a command's arrival and its own call: the 16
/// turns of a connection, and those of the next time if the command came a moment too late.
const BOUND: u64 = 2 * 16;

/// Over HTTP, hyper yields after 16 pipelined requests; the runtime polls sockets again at the latest after 61 task
/// polls.
const BOUND_OF_HTTP: u64 = 2 * 16 * 61;

/// The number of takes of the other client.
const TAKES: usize = 40;

/// The number of clients of a busy queue, and of due messages that wait there when the other client begins.
const BUSY: usize = 32;
const BACKLOG: u64 = 5_000;

struct Running {
    http: SocketAddr,
    beanstalkd: SocketAddr,
    stop: oneshot::Sender<()>,
    server: thread::JoinHandle<()>,
}

/// A server with a single thread, so that a task that does not yield blocks all others.
fn start(store: Arc<dyn Store>) -> Running {
    let (stop, stopped) = oneshot::channel();
    let (tell, told) = std::sync::mpsc::channel();
    let server = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut config = ServerConfig::default();
            config.http.listen = "127.0.0.1:0".parse().unwrap();
            let mut beanstalkd = BeanstalkdConfig::default();
            beanstalkd.listen = "127.0.0.1:0".parse().unwrap();
            config.beanstalkd = Some(beanstalkd);
            let server = Server::bind(store, config).await.unwrap();
            tell.send((server.http_addr(), server.beanstalkd_addr().unwrap())).unwrap();
            server
                .run(async {
                    let _ = stopped.await;
                })
                .await;
        });
    });
    let (http, beanstalkd) = told.recv_timeout(PATIENCE).unwrap();
    Running { http, beanstalkd, stop, server }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends `commands` repeatedly, and reads what comes back, until `stop` is set.
fn flood(address: SocketAddr, commands: &[u8], stop: &Arc<AtomicBool>) -> Vec<thread::JoinHandle<()>> {
    let mut stream = connect(address);
    let mut reader = stream.try_clone().unwrap();
    let commands = commands.repeat((64 * 1024 / commands.len()).max(1));
    let stopped = Arc::clone(stop);
    let writer = thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) && stream.write_all(&commands).is_ok() {}
        let _ = stream.shutdown(std::net::Shutdown::Both);
    });
    let reader = thread::spawn(move || {
        let mut bytes = [0; 64 * 1024];
        while reader.read(&mut bytes).is_ok_and(|read| read > 0) {}
    });
    vec![writer, reader]
}

/// The maximum number of other calls before a take, over beanstalkd's protocol.
fn most_before_a_take(store: &Counting, address: SocketAddr) -> u64 {
    let mut stream = connect(address);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = |expected: &str| {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.starts_with(expected), "{line} instead of {expected}");
    };
    stream.write_all(b"watch other\r\nignore default\r\n").unwrap();
    line("WATCHING 2");
    line("WATCHING 1");
    let mut most = 0;
    for _ in 0..TAKES {
        stream.write_all(b"reserve-with-timeout 0\r\n").unwrap();
        // The command has arrived. From here on the order of calls is the server's choice, and not the scheduler's of
        // this thread; it may have been taken already.
        let arrived = store.calls();
        line("TIMED_OUT");
        most = most.max(store.calls_before_take("other").saturating_sub(arrived));
    }
    most
}

/// Runs a flood concurrently with another client's takes, and checks that the flood lasts.
fn play(commands: &[u8], over_http: bool) {
    let store =
        Arc::new(Counting::new(Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())))));
    let running = start(Arc::clone(&store) as Arc<dyn Store>);
    let stop = Arc::new(AtomicBool::new(false));
    let address = if over_http { running.http } else { running.beanstalkd };
    let flooding = flood(address, commands, &stop);
    let clock = SystemClock::new();
    let mut sleeper = clock.sleeper();
    let deadline_ms = clock.now().mono_ms + PATIENCE.as_millis() as u64;
    while store.calls() < 1_000 {
        let now_ms = clock.now().mono_ms;
        assert!(now_ms < deadline_ms && !flooding[0].is_finished(), "the flood has not begun, or has ended");
        sleeper.sleep(Wake { wall: None, mono_ms: Some(now_ms + 1) });
    }
    let before = store.calls();
    let most = most_before_a_take(&store, running.beanstalkd);
    let in_all = store.calls() - before;
    println!("{TAKES} takes, {in_all} calls of the flood meanwhile, at most {most} before one of them");
    assert!(!flooding[0].is_finished() && in_all > TAKES as u64, "the flood has gone on: {in_all}");
    stop.store(true, Ordering::Relaxed);
    for thread in flooding {
        thread.join().unwrap();
    }
    running.stop.send(()).unwrap();
    running.server.join().unwrap();
    let bound = if over_http { BOUND_OF_HTTP } else { BOUND };
    assert!(most <= bound, "{most} calls of the flood before another's take, and {bound} may be");
}

/// The maximum number of other calls that arrived before a take, and that were answered before it, since its message
/// was put: by a client with its own queue.
fn most_before_a_delivery(store: &Counting, address: SocketAddr) -> (u64, u64) {
    let mut stream = connect(address);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = |expected: &str| {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line.strip_prefix(expected).unwrap_or_else(|| panic!("{line} instead of {expected}")).to_owned()
    };
    stream.write_all(b"use other\r\nwatch other\r\nignore default\r\n").unwrap();
    ["USING", "WATCHING 2", "WATCHING 1"].into_iter().for_each(|expected| drop(line(expected)));
    let (mut most_calls, mut most_answers) = (0, 0);
    for _ in 0..TAKES {
        stream.write_all(b"put 0 0 60 1\r\nx\r\nreserve-with-timeout 60\r\n").unwrap();
        let (calls, answers) = (store.calls(), store.answers());
        line("INSERTED");
        let job = line("RESERVED ");
        line("x");
        most_calls = most_calls.max(store.calls_before_take("other").saturating_sub(calls));
        most_answers = most_answers.max(store.answers_before_take("other").saturating_sub(answers));
        let number = job.split(' ').next().unwrap();
        stream.write_all(format!("delete {number}\r\n").as_bytes()).unwrap();
        line("DELETED");
    }
    (most_calls, most_answers)
}

/// Lets many clients put into a queue with a backlog and take from it endlessly, while one is served from another.
fn serve_beside_a_busy_queue(store: Arc<dyn Store>) {
    let store = Arc::new(Counting::new(store));
    let running = start(Arc::clone(&store) as Arc<dyn Store>);
    let stop = Arc::new(AtomicBool::new(false));
    fill(running.beanstalkd);
    let flooding: Vec<_> = (0..BUSY)
        .flat_map(|_| flood(running.beanstalkd, b"put 0 0 60 1\r\nx\r\nreserve-with-timeout 0\r\n", &stop))
        .collect();
    let (before, clock) = (store.answers(), SystemClock::new());
    let mut sleeper = clock.sleeper();
    let deadline_ms = clock.now().mono_ms + PATIENCE.as_millis() as u64;
    while store.answers() < before + BUSY as u64 {
        let now_ms = clock.now().mono_ms;
        assert!(now_ms < deadline_ms, "the busy queue is not busy");
        sleeper.sleep(Wake { wall: None, mono_ms: Some(now_ms + 1) });
    }
    let before = store.answers();
    let (calls, answers) = most_before_a_delivery(&store, running.beanstalkd);
    let in_all = store.answers() - before;
    println!("{TAKES} deliveries, {in_all} answers; at most {calls} calls and {answers} answers before one");
    assert!(in_all > 3 * TAKES as u64, "the busy queue was busy all the time: {in_all}");
    stop.store(true, Ordering::Relaxed);
    flooding.into_iter().for_each(|thread| thread.join().unwrap());
    running.stop.send(()).unwrap();
    running.server.join().unwrap();
    let bound = (BUSY as u64 + 1) * BOUND;
    assert!(calls <= bound && answers <= bound, "{calls} calls and {answers} answers, and {bound} may be");
}

/// Puts the backlog.
fn fill(address: SocketAddr) {
    let mut stream = connect(address);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    for _ in 0..BACKLOG / 100 {
        stream.write_all(&b"put 0 0 60 1\r\nx\r\n".repeat(100)).unwrap();
        for _ in 0..100 {
            line.clear();
            reader.read_line(&mut line).unwrap();
            assert!(line.starts_with("INSERTED "), "{line}");
        }
    }
}

#[test]
fn a_busy_queue_lets_another_have_its_turn_in_memory() {
    serve_beside_a_busy_queue(Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new()))));
}

#[test]
fn a_busy_queue_lets_another_have_its_turn_on_the_engine() {
    let dir = tempfile::tempdir().unwrap();
    serve_beside_a_busy_queue(Arc::new(Engine::open(dir.path(), Options::default()).unwrap()));
}

#[test]
fn a_flood_of_puts_and_deletes_lets_others_have_their_turn() {
    play(b"put 0 3600 60 1\r\nx\r\ndelete 1\r\n", false);
}

#[test]
fn a_flood_of_looks_lets_others_have_their_turn() {
    play(b"peek 1\r\npeek-ready\r\n", false);
}

#[test]
fn a_flood_of_reserves_lets_others_have_their_turn() {
    play(b"reserve-with-timeout 0\r\npeek 1\r\n", false);
}

#[test]
fn a_flood_over_http_lets_others_have_their_turn() {
    play(b"GET /v1/numbers/1 HTTP/1.1\r\nHost: localhost\r\n\r\n", true);
}
