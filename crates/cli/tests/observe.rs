//! A server's log and its metrics.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::Value;

use common::{PATIENCE, Server, dwell, serve};

/// The server's answer, with its head.
fn ask(server: &Server, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address());
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The body of the answer to a GET.
fn get(server: &Server, path: &str) -> String {
    let answer = ask(server, "GET", path);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn the_engine_s_metrics_are_shown_and_described() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    server.dwell(&["put", "q", "x"]).ok();
    let page = get(&server, "/metrics");
    let value = |name: &str| -> f64 {
        let line = page.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(value("dwell_engine_syncs_total") >= 1.0, "{page}");
    assert!(value("dwell_engine_sync_seconds_sum") > 0.0);
    assert_eq!(value("dwell_engine_sync_seconds_count"), value("dwell_engine_syncs_total"));
    assert!(value("dwell_engine_write_bytes_sum") > 0.0);
    assert!(value("dwell_engine_segments") >= 1.0);
    // The page's own call may be counted after or before.
    assert!(value("dwell_engine_batch_commands_sum") >= 1.0);
    assert!(value("dwell_engine_batch_commands_count") <= value("dwell_engine_batch_commands_sum"));
    assert_eq!(value("dwell_engine_messages_resident"), 1.0, "{page}");
    assert_eq!(value("dwell_engine_messages_cold"), 0.0, "{page}");
    let journal: u64 = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("journal-"))
        .map(|entry| entry.metadata().unwrap().len())
        .sum();
    assert_eq!(value("dwell_engine_journal_bytes"), journal as f64);
    assert_eq!(value("dwell_engine_table_bytes"), 0.0);

    let named = |text: &'static str, page: &str, from: &str| -> BTreeSet<String> {
        let lines = page.lines().filter_map(|line| line.strip_prefix(from));
        let names = lines.filter_map(|rest| rest.split([' ', '`']).next().map(str::to_owned));
        names.filter(|name| name.starts_with(text)).collect()
    };
    let document = include_str!("../../../docs/metrics.md");
    assert_eq!(named("dwell_engine_", &page, "# TYPE "), named("dwell_engine_", document, "| `"));
    server.stop_by("TERM");
}

/// Everything that a server has logged.
fn log_of(args: &[&str], use_it: impl FnOnce(&Server)) -> String {
    let mut command = dwell();
    command.args(["serve", "--store", "memory", "--listen", "127.0.0.1:0"]);
    command.args(["--beanstalkd", "127.0.0.1:0"]);
    command.args(args).stderr(Stdio::piped());
    let mut server = Server::spawn(command);
    let mut stderr = server.stderr();
    use_it(&server);
    server.stop_by("TERM");
    let mut log = String::new();
    stderr.read_to_string(&mut log).unwrap();
    log
}

#[test]
fn a_log_has_a_line_for_each_request_at_debug_and_none_of_its_secrets() {
    let mut receipt = String::new();
    let log = log_of(&["--log", "debug", "--log-format", "json"], |server| {
        server.dwell(&["put", "q", "a-secret-body", "--key", "a-secret-key"]).ok();
        receipt = server.dwell(&["take", "q"]).ok().json()["receipt"].as_str().unwrap().to_owned();
        for status in ["200", "410"] {
            let answer = ask(server, "POST", &format!("/v1/receipts/{receipt}/ack"));
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        }
    });
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let requests: Vec<&Value> = lines.iter().filter(|line| line["target"] == "dwell::http").collect();
    let acks: Vec<_> = requests.iter().filter(|line| line["path"] == "/v1/receipts/…/ack").collect();
    assert_eq!(acks.len(), 2, "{log}");
    assert_eq!((&acks[0]["status"], &acks[0]["method"]), (&200.into(), &"POST".into()));
    assert_eq!((&acks[1]["status"], &acks[1]["code"]), (&410.into(), &"lease_lost".into()));
    for secret in ["a-secret-body", "a-secret-key", receipt.as_str()] {
        assert!(!log.contains(secret), "{secret} in {log}");
    }
}

#[test]
fn a_log_says_who_has_managed_which_queue() {
    let log = log_of(&["--log-format", "json"], |server| {
        for _ in 0..3 {
            server
                .dwell(&["put", "q", "a-secret-body", "--key", "a-secret-key", "--on-conflict", "replace"])
                .ok();
        }
        let answer = ask(server, "POST", "/v1/queues/q/pause");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(server.dwell(&["configure", "q", "--partitions", "2"]).failure(), "setting_fixed");
        server.dwell(&["purge", "q", "--yes"]).ok();
        server.dwell(&["resume", "q"]).ok();
        ask(server, "GET", "/v1/queues/q");
    });
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let managed: Vec<&Value> = lines.iter().filter(|line| line["target"] == "dwell::managed").collect();
    let told: Vec<_> = managed
        .iter()
        .map(|line| (&line["what"], &line["queue"], &line["messages"], &line["code"]))
        .collect();
    let (none, text) = (&Value::Null, |text: &str| Value::from(text));
    let [pause, configure, purge, resume, q, fixed] =
        ["pause", "configure", "purge", "resume", "q", "setting_fixed"].map(text);
    let one = Value::from(1);
    let expected = [
        (&pause, &q, none, none),
        (&configure, &q, none, &fixed),
        (&purge, &q, &one, none),
        (&resume, &q, none, none),
    ];
    assert_eq!(told, expected, "{log}");
    assert!(managed.iter().all(|line| line["level"] == "INFO" || line["level"] == "info"), "{log}");
    assert!(!log.contains("a-secret"), "{log}");
}

#[test]
fn a_log_tells_of_beanstalkd_s_commands_at_debug_and_not_of_their_jobs() {
    let mut peer = String::new();
    let log = log_of(&["--log", "debug", "--log-format", "json"], |server| {
        let address = server.serving["beanstalkd"].as_str().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        peer = stream.local_addr().unwrap().to_string();
        stream.write_all(b"use orders\r\nreserve-job 77\r\nput 0 0 60 13\r\na-secret-body\r\nno-verb a-secret\r\nquit\r\n").unwrap();
        let mut replies = String::new();
        stream.read_to_string(&mut replies).unwrap();
        assert_eq!(replies, "USING orders\r\nNOT_FOUND\r\nINSERTED 1\r\nUNKNOWN_COMMAND\r\n");
    });
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ours: Vec<&Value> = lines.iter().filter(|line| line["target"] == "dwell::beanstalkd").collect();
    let told: Vec<(&Value, &Value)> = ours.iter().map(|line| (&line["verb"], &line["code"])).collect();
    let (none, text) = (&Value::Null, |text: &str| Value::from(text));
    let verbs = ["use", "reserve-job", "put"].map(text);
    let expected = [
        (&verbs[0], none),
        (&verbs[1], none),
        (&verbs[2], none),
        (none, &text("unknown_command")),
        (&text("quit"), none),
    ];
    assert_eq!(told, expected, "{log}");
    assert!(ours.iter().all(|line| line["peer"] == peer.as_str()), "{log}");
    assert_eq!((&ours[2]["tube"], &ours[2]["commands"]), (&"orders".into(), &1.into()));
    assert!(!log.contains("a-secret"), "{log}");
}

#[test]
fn at_info_no_request_is_logged() {
    let log = log_of(&[], |server| {
        for _ in 0..5 {
            server.dwell(&["put", "q", "x"]).ok();
        }
    });
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("stopping"), "{log}");
    assert_eq!(log_of(&["--log", "off"], |_| {}), "");
}
