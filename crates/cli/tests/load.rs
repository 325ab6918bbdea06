//! `put --from`: nothing lost and nothing twice, whichever process is killed.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use common::{KilledOnDrop, Ran, Running, Server, dwell, serve, serve_in_memory, serve_with, until};
use dwell_client::Client;
use dwell_model::StateKind;
use dwell_store::{Action, Settle, Take};
use serde_json::{Value, json};
use tempfile::TempDir;

const QUEUES: usize = 6;

struct LoadFiles {
    dir: TempDir,
    file: PathBuf,
    answers: PathBuf,
}

impl LoadFiles {
    /// A folder with a file of this many lines: some keyed, some binary, all due in about a year.
    fn with_lines(lines: usize) -> LoadFiles {
        let mut text = String::new();
        for number in 1..=lines {
            let queue = number % QUEUES;
            let due = "2999-01-01T00:00:00Z";
            let filler = "ü".repeat(number * 37 % 400);
            match number % 3 {
                0 => writeln!(
                    text,
                    r#"{{"queue":"q{queue}","body":"{number} {filler}","due":"{due}","key":"k{number}"}}"#
                ),
                1 => writeln!(text, r#"{{"queue":"q{queue}","body":"{number} {filler}","due":"{due}"}}"#),
                _ => writeln!(
                    text,
                    r#"{{"queue":"q{queue}","body_base64":"{}","due":"{due}"}}"#,
                    base64(number)
                ),
            }
            .unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        let (file, answers) = (dir.path().join("messages.jsonl"), dir.path().join("answers.jsonl"));
        fs::write(&file, text).unwrap();
        LoadFiles { dir, file, answers }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn put(&self, server: &Server, more: &[&str]) -> Running {
        let mut command = dwell();
        command.env("DWELL_SERVER", server.url()).args(["put", "--from"]).arg(&self.file).args(more);
        Running::start(command, b"")
    }

    fn answers_arg(&self) -> &str {
        self.answers.to_str().unwrap()
    }

    fn told(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.answers).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Four bytes that are not UTF-8, with the number in them: `ff` and 24 bits, in base64.
fn base64(number: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = (0xff_u64 << 24 | number as u64) << 16;
    let text: String = (0..6).map(|at| char::from(ALPHABET[(bits >> (42 - 6 * at)) as usize & 63])).collect();
    text + "=="
}

/// The number in a body.
fn number(body: &[u8]) -> usize {
    match body {
        [0xff, high, middle, low] => usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low),
        text => std::str::from_utf8(text).unwrap().split(' ').next().unwrap().parse().unwrap(),
    }
}

/// All scheduled messages: by number, their ids.
fn stored(server: &Server) -> BTreeMap<usize, Vec<String>> {
    let client = Client::new(server.url()).unwrap().blocking();
    let mut stored: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for queue in 0..QUEUES {
        let mut cursor = None;
        loop {
            let page = client.list(format!("q{queue}").parse().unwrap(), StateKind::Scheduled, cursor, 1000);
            let page = page.unwrap();
            for message in page.messages {
                stored.entry(number(&message.body)).or_default().push(message.id.to_string());
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
    }
    stored
}

/// The number of scheduled messages, in all queues.
fn count(server: &Server) -> u64 {
    let queues = Client::new(server.url()).unwrap().blocking().queues(None, 1_000).unwrap();
    queues.iter().map(|queue| queue.counts.scheduled).sum()
}

/// Each line is in the answers once, in order, and stored once under the id that they have for it.
fn assert_all_once(place: &LoadFiles, server: &Server, lines: usize) {
    let stored = stored(server);
    let told = place.told();
    assert_eq!((told.len(), stored.len()), (lines, lines));
    for (at, answer) in told.iter().enumerate() {
        assert_eq!((&answer["line"], &answer["outcome"]), (&json!(at + 1), &json!("created")));
        assert_eq!(stored[&(at + 1)], [answer["id"].as_str().unwrap()], "line {}", at + 1);
    }
}

/// The lines arrive in parts. A part is in progress when the server is killed, and the next one arrives while it is
/// down, so that each kill hits a run that is not over.
#[test]
fn the_server_is_killed_under_it() {
    let (parts, lines_a_part) = (4, 6_000);
    let lines = parts * lines_a_part;
    let place = LoadFiles::with_lines(lines);
    let mut server = serve(&place.data());
    let address = server.address().to_owned();

    let (feed, fed) = channel();
    let mut command = dwell();
    command.env("DWELL_SERVER", server.url()).args(["put", "--from", "-", "--answers", place.answers_arg()]);
    let put = Running::fed(command, fed);
    let text = fs::read_to_string(&place.file).unwrap();
    let text: Vec<&str> = text.split_inclusive('\n').collect();
    let mut batches = text.chunks(lines_a_part).map(|part| part.concat().into_bytes());

    feed.send(batches.next().unwrap()).unwrap();
    for part in batches {
        let before = count(&server);
        until("more lines are stored", || count(&server) > before);
        server.kill();
        feed.send(part).unwrap();
        server = serve_with(&place.data(), &["--listen", &address]);
    }
    drop(feed);
    let ran = put.finish().ok();
    assert_eq!(ran.json(), json!({"put": lines, "refused": 0, "skipped": 0}));
    assert_all_once(&place, &server, lines);
}

/// Killed twice before it has all of its input, and so before it is done.
#[test]
fn it_is_killed_and_run_again() {
    let lines = 12_000;
    let place = LoadFiles::with_lines(lines);
    let server = serve(&place.data());
    let text = fs::read_to_string(&place.file).unwrap();
    for share in [2, 4] {
        let (feed, fed) = channel();
        let mut command = dwell();
        command.env("DWELL_SERVER", server.url()).args([
            "put",
            "--from",
            "-",
            "--answers",
            place.answers_arg(),
        ]);
        let put = Running::fed(command, fed);
        feed.send(text.as_bytes()[..text.len() * share / 5].to_vec()).unwrap();
        let before = count(&server);
        until("more lines are stored", || count(&server) > before);
        put.kill();
    }
    let told_before = fs::read_to_string(&place.answers).unwrap().matches('\n').count();
    assert!(told_before < lines);
    let summary = place.put(&server, &["--answers", place.answers_arg()]).finish().ok().json();
    assert_eq!(summary, json!({"put": lines - told_before, "refused": 0, "skipped": told_before}));
    assert_all_once(&place, &server, lines);
    // Nothing is left to do then.
    let summary = place.put(&server, &["--answers", place.answers_arg()]).finish().ok().json();
    assert_eq!(summary, json!({"put": 0, "refused": 0, "skipped": lines}));
}

#[test]
fn without_an_answers_file_the_idempotency_keys_alone_keep_it_from_putting_twice() {
    let place = LoadFiles::with_lines(3_000);
    let server = serve_in_memory(&[]);
    for _ in 0..2 {
        let summary = place.put(&server, &["--in-flight", "2"]).finish().ok().json();
        assert_eq!(summary, json!({"put": 3_000, "refused": 0, "skipped": 0}));
        assert_eq!(count(&server), 3_000);
    }
    // Of a file that has grown, only the new lines are put.
    let grown =
        fs::read_to_string(&place.file).unwrap() + "{\"queue\":\"new\",\"body\":\"x\",\"delay\":\"1h\"}\n";
    fs::write(&place.file, grown).unwrap();
    place.put(&server, &[]).finish().ok();
    assert_eq!(count(&server), 3_001);
    // A run with another name puts everything again, except for keys that are taken.
    let ran = place.put(&server, &["--run", "second"]).finish();
    assert_eq!((ran.code, ran.json()), (1, json!({"put": 2_001, "refused": 1_000, "skipped": 0})));
    assert_eq!(count(&server), 5_002);
}

#[test]
fn a_queue_gets_its_lines_in_the_files_order() {
    let server = serve_in_memory(&[]);
    let due = "2999-01-01T00:00:00Z";
    let text: String = (0..5_000)
        .map(|n| format!("{{\"queue\":\"q{}\",\"body\":\"{n}\",\"due\":\"{due}\"}}\n", n % 3))
        .collect();
    server.dwell_with(&["put", "--from", "-", "--in-flight", "3"], text.as_bytes()).ok();
    for queue in ["q0", "q1", "q2"] {
        let listed = server.dwell(&["list", queue, "--all"]).ok().lines();
        let bodies: Vec<u64> =
            listed.iter().map(|message| message["body"].as_str().unwrap().parse().unwrap()).collect();
        assert!(bodies.is_sorted() && bodies.len() > 1_600, "{queue}: {}", bodies.len());
    }
}

#[test]
fn refused_lines_are_told_and_stop_nothing() {
    let place = LoadFiles::with_lines(1);
    let rejects = place.dir.path().join("rejects.jsonl");
    let text = "{\"body\":\"goes to the default\"}\n\
        no json\n\
        \n\
        {\"queue\":\"q0\",\"body\":\"x\",\"boddy\":\"y\"}\n\
        {\"queue\":\"a b\",\"body\":\"x\"}\n\
        {\"queue\":\"q0\"}\n\
        {\"queue\":\"q0\",\"body\":\"x\",\"delay\":\"-5s\"}\n\
        {\"queue\":\"q0\",\"body\":\"x\",\"delay\":\"5s\",\"due\":\"2999-01-01T00:00:00Z\"}\n\
        {\"queue\":\"q0\",\"body\":\"x\",\"due\":\"10000-01-01T00:00:00Z\"}\n\
        {\"queue\":\"q0\",\"body_base64\":\"!\"}\n\
        {\"queue\":\"q0\",\"body\":\"last, without an end\"}";
    fs::write(&place.file, text).unwrap();
    let server = serve_in_memory(&[]);
    let args = ["default", "--rejects", rejects.to_str().unwrap(), "--answers", place.answers_arg()];
    let ran = place.put(&server, &args).finish();
    assert_eq!((ran.code, ran.json()), (1, json!({"put": 2, "refused": 8, "skipped": 0})), "{ran:?}");
    assert_eq!(ran.stderr, "");

    let told: Vec<Value> = fs::read_to_string(&rejects)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let codes: Vec<(u64, &str)> =
        told.iter().map(|line| (line["line"].as_u64().unwrap(), line["code"].as_str().unwrap())).collect();
    let expected = [
        (2, "malformed_json"),
        (4, "unknown_field"),
        (5, "invalid_queue_name"),
        (6, "missing_field"),
        (7, "negative_delay"),
        (8, "conflicting_fields"),
        (9, "due_out_of_range"),
        (10, "invalid_field"),
    ];
    assert_eq!(codes, expected);
    let lines: Vec<Value> = place.told().iter().map(|answer| answer["line"].clone()).collect();
    assert_eq!(lines, [1, 2, 4, 5, 6, 7, 8, 9, 10, 11]);

    // Without a file for them, they are reported on standard error.
    let ran = place.put(&server, &["default"]).finish();
    assert_eq!(ran.stderr.lines().count(), 8, "{ran:?}");
}

#[test]
fn a_full_queue_is_waited_for() {
    let server = serve_in_memory(&[]);
    server.dwell(&["configure", "q", "--max-pending", "10"]).ok();
    let text: String = (0..40).map(|n| format!("{{\"queue\":\"q\",\"body\":\"{n}\"}}\n")).collect();
    let mut command = dwell();
    command.env("DWELL_SERVER", server.url()).args(["put", "--from", "-"]);
    let put = Running::start(command, text.as_bytes());
    let client = Client::new(server.url()).unwrap().blocking();
    let take = Take::from("q".parse().unwrap()).max(10).wait_ms(60_000);
    let mut seen = BTreeSet::new();
    while seen.len() < 40 {
        let deliveries = client.take(take.clone()).unwrap();
        assert!(!deliveries.is_empty(), "only {seen:?} came");
        for delivery in deliveries {
            assert!(seen.insert(delivery.message.body.clone()), "{delivery:?} came twice");
            client.settle_one(Settle { receipt: delivery.receipt, action: Action::Ack }).unwrap();
        }
    }
    assert_eq!(put.finish().ok().json()["put"], 40);
}

#[test]
fn a_queue_that_stays_full_ends_the_run_with_the_way_on() {
    let server = serve_in_memory(&[]);
    server.dwell(&["configure", "q", "--max-pending", "1"]).ok();
    let text = b"{\"body\":\"1\"}\n{\"body\":\"2\"}\n{\"body\":\"3\"}\n";
    let ran = server.dwell_with(&["put", "--from", "-", "q", "--retry-for", "100ms"], text);
    assert_eq!((ran.code, ran.failure().as_str()), (1, "queue_full"));
    assert!(ran.stderr.contains("all lines before 2 are done with"), "{}", ran.stderr);
}

#[test]
fn files_that_are_not_there_or_something_else() {
    let place = LoadFiles::with_lines(10);
    let server = serve_in_memory(&[]);
    let refused = |ran: Ran| (ran.code, ran.failure());
    let missing = server.dwell(&["put", "--from", "/nonexistent/file"]);
    assert_eq!(refused(missing), (1, "input".to_owned()));
    let unwritable = place.put(&server, &["--answers", "/nonexistent/answers"]).finish();
    assert_eq!(refused(unwritable), (1, "answers".to_owned()));
    let unwritable = place.put(&server, &["--rejects", "/nonexistent/rejects"]).finish();
    assert_eq!(refused(unwritable), (1, "rejects".to_owned()));

    let letter = place.dir.path().join("letter");
    fs::write(&letter, "dear\n").unwrap();
    assert_foreign(&place, &server, &letter);
    // The answers of another file, and of another run of this one.
    place.put(&server, &["--run", "other", "--answers", place.answers_arg()]).finish().ok();
    assert_foreign(&place, &server, &place.answers);
}

fn assert_foreign(place: &LoadFiles, server: &Server, answers: &Path) {
    let before = fs::read(answers).unwrap();
    let stored = count(server);
    let ran = place.put(server, &["--answers", answers.to_str().unwrap()]).finish();
    assert_eq!((ran.code, ran.failure().as_str()), (2, "foreign_answers"));
    assert_eq!(fs::read(answers).unwrap(), before, "it is left as it is");
    assert_eq!(count(server), stored);
}

/// No server answers: it reports that at once, retries, and reports when it goes on.
#[test]
fn a_server_that_is_not_there_is_told_of_at_once() {
    let place = LoadFiles::with_lines(20);
    // A free port, which the server gets later.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = dwell();
    command.env("DWELL_SERVER", format!("http://127.0.0.1:{port}")).args(["put", "--from"]).arg(&place.file);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = KilledOnDrop(command.spawn().unwrap());
    let (sender, said) = channel();
    let stderr = BufReader::new(run.0.stderr.take().unwrap());
    thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let next = || {
        let line = said.recv_timeout(Duration::from_secs(20)).expect("it says so at once");
        serde_json::from_str::<Value>(&line).expect(&line)
    };
    let waits = next();
    assert_eq!((&waits["event"], &waits["code"]), (&json!("waiting"), &json!("unreachable")), "{waits}");
    assert_eq!(waits["retry_for"], "2m");
    assert!(waits["detail"].as_str().unwrap().contains(&format!("127.0.0.1:{port}")), "{waits}");

    let mut command = dwell();
    command.args(["serve", "--store", "memory", "--listen", &format!("127.0.0.1:{port}")]);
    let server = Server::spawn(command);
    // It may call the server while its store is being opened.
    let resumed = std::iter::repeat_with(next).find(|told| told["code"] != "unavailable").unwrap();
    assert_eq!(resumed, json!({"event": "resumed"}));
    let status = run.0.wait().unwrap();
    assert!(status.success() && said.recv().is_err(), "{status:?}");
    assert_eq!(count(&server), 20);
}
