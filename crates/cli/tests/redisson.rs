//! `dwell redisson`: the mover and the doctor on a real Redis.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use common::{KilledOnDrop, Ran, dwell, run, send_signal, serve_in_memory, until};
use dwell_testkit::free_port;
use dwell_testkit::redis::Server;
use serde_json::Value;

/// An element in Java's encoding; the id and the length are ASCII here.
fn element(id: &str, payload: &str) -> String {
    assert_eq!(id.len(), 8);
    format!("\u{8}{id}{}\0\0\0\0\0\0\0{payload}", char::from(payload.len() as u8))
}

/// Puts an element into both of Redisson's keys.
fn plant(server: &Server, packed: &str, score: &str) {
    server.command(&["ZADD", "redisson_delay_queue_timeout:{orders}", score, packed]);
    server.command(&["RPUSH", "redisson_delay_queue:{orders}", packed]);
}

fn redisson(server: &Server, args: &[&str]) -> Ran {
    let mut command = dwell();
    command.arg("redisson").args(args).args(["--redis", &server.url()]);
    run(command)
}

fn ready(server: &Server) -> String {
    format!("{:?}", server.command(&["LRANGE", "orders", "0", "-1"]))
}

const FAR: &str = "4102444800000";

#[test]
fn one_pass_moves_what_is_due() {
    let server = Server::start();
    plant(&server, &element("aaaaaaaa", "due"), "1000");
    plant(&server, &element("bbbbbbbb", "later"), FAR);
    plant(&server, "no element", "2000");
    let told = redisson(&server, &["move", "--queue", "orders", "--once"]).ok().json();
    assert_eq!((&told["event"], &told["queue"]), (&"moved".into(), &"orders".into()));
    assert_eq!((&told["moved"], &told["set_aside"]), (&1.into(), &1.into()));
    assert!(ready(&server).contains("due") && !ready(&server).contains("later"));
}

#[test]
fn a_standing_mover_moves_until_a_signal_comes() {
    let server = Server::start();
    let mut command = dwell();
    command.args(["redisson", "move", "--queue", "orders", "--sweep", "50ms", "--redis", &server.url()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = KilledOnDrop(command.spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["event"], "listening");
    plant(&server, &element("aaaaaaaa", "due"), "1000");
    let told = next();
    assert_eq!((&told["event"], &told["moved"]), (&"moved".into(), &1.into()));
    assert!(ready(&server).contains("due"));
    send_signal(child.0.id(), "TERM");
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn a_server_moves_beside_its_other_work() {
    let redis = Server::start();
    let server = serve_in_memory(&["--redisson", &redis.url(), "--redisson-queue", "orders"]);
    plant(&redis, &element("aaaaaaaa", "due"), "1000");
    until("it is moved", || ready(&redis).contains("due"));
    let (said, status) = server.stop_by("TERM");
    assert_eq!(said["event"], "stopped");
    assert!(status.success());
    let mut command = dwell();
    command.args(["serve", "--store", "memory", "--listen", "127.0.0.1:0", "--redisson-queue", "orders"]);
    let ran = run(command);
    assert_eq!((ran.code, ran.failure().as_str()), (6, "config_incomplete"), "{ran:?}");
}

#[test]
fn the_doctor_shows_its_plan_and_mends_when_told_to() {
    let server = Server::start();
    plant(&server, "no element", FAR);
    plant(&server, &element("aaaaaaaa", "overdue"), "1000");
    let looked = redisson(&server, &["doctor", "--queue", "orders"]);
    assert_eq!(looked.code, 1);
    let report = looked.json();
    assert_eq!((&report["queue"], &report["healthy"]), (&"orders".into(), &false.into()));
    let kinds: Vec<_> =
        report["findings"].as_array().unwrap().iter().map(|finding| &finding["kind"]).collect();
    assert_eq!(kinds, ["undecodable", "overdue", "nobody_listens"]);
    assert_eq!(report["plan"].as_array().unwrap().len(), 2);
    assert_eq!(report["scheduled"], 2);

    // There is no terminal for a confirmation, so nothing is done.
    let asked = redisson(&server, &["doctor", "--queue", "orders", "--fix"]);
    assert_eq!((asked.code, asked.failure().as_str()), (2, "usage"));
    assert_eq!(redisson(&server, &["doctor", "--queue", "orders"]).json()["scheduled"], 2);

    let mended = redisson(&server, &["doctor", "--queue", "orders", "--fix", "--yes"]).ok();
    let lines = mended.lines();
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[0]["plan"], report["plan"]);
    assert_eq!((&lines[1]["kind"], &lines[1]["fixed"]), (&"undecodable".into(), &1.into()));
    assert_eq!((&lines[2]["kind"], &lines[2]["fixed"]), (&"overdue".into(), &1.into()));
    assert_eq!(lines[3]["healthy"], true);
    assert!(ready(&server).contains("overdue"));
}

#[test]
fn people_read_words() {
    let server = Server::start();
    plant(&server, "no element", FAR);
    let looked = redisson(&server, &["doctor", "--queue", "orders", "--human"]);
    for part in ["1 undecodable: no layout reads them", "no element", "plan", "1. 1 undecodable: take out"] {
        assert!(looked.stdout.contains(part), "'{part}' is not in:\n{}", looked.stdout);
    }
    let empty = redisson(&server, &["doctor", "--queue", "other", "--human"]).ok();
    assert!(empty.stdout.contains("nothing is wrong"), "{}", empty.stdout);
    let moved = redisson(&server, &["move", "--queue", "orders", "--once", "--human"]).ok();
    assert!(moved.stdout.contains("orders  0 moved, 1 set aside"), "{}", moved.stdout);
}

#[test]
fn bad_input_is_told() {
    let server = Server::start();
    for (args, code, failure) in [
        (["doctor", "--queue", "a{b"].as_slice(), 2, "redisson_name"),
        (&["move", "--once", "--queue", "{}"], 2, "redisson_name"),
    ] {
        let ran = redisson(&server, args);
        assert_eq!((ran.code, ran.failure().as_str()), (code, failure), "{args:?}");
    }
    let mut command = dwell();
    command.args(["redisson", "doctor", "--queue", "orders", "--redis"]);
    command.arg(format!("redis://127.0.0.1:{}", free_port()));
    let ran = run(command);
    assert_eq!((ran.code, ran.failure().as_str()), (4, "unreachable"));
    let mut command = dwell();
    command.args(["redisson", "doctor", "--queue", "orders", "--redis", "http://x"]);
    assert_eq!(run(command).code, 2);
    server.command(&["SET", "orders", "mine"]);
    plant(&server, &element("aaaaaaaa", "due"), "1000");
    let ran = redisson(&server, &["move", "--queue", "orders", "--once"]);
    assert_eq!((ran.code, ran.failure().as_str()), (1, "redisson_wrong_type"));
}
