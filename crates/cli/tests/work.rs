//! `dwell work` with a real server: the command's input, the meaning of its exit code, and its end.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::fs;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use common::{KilledOnDrop, Server, dwell, send_signal, serve_in_memory, until};
use dwell_client::Client;
use dwell_model::{AttemptLimit, QueueName};
use dwell_store::{Put, StateCounts};
use serde_json::{Value, json};

/// `dwell work ARGS` against a server.
struct Work(KilledOnDrop);

impl Work {
    fn start(server: &Server, args: &[&str]) -> Work {
        let mut command = dwell();
        command.env("DWELL_SERVER", server.url()).arg("work").args(args);
        // Variables that an outer worker may have set.
        command.env("DWELL_KEY", "outer").env("DWELL_HEADER_OUTER", "outer");
        Work(KilledOnDrop(
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(),
        ))
    }

    fn terminate(&self) {
        send_signal(self.0.0.id(), "TERM");
    }

    /// Its exit status, its summary, and its standard error.
    fn ended(mut self) -> (ExitStatus, Value, String) {
        until("the worker has ended", || self.0.0.try_wait().unwrap().is_some());
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.0.0.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.0.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let summary = stdout.lines().last().and_then(|line| serde_json::from_str(line).ok());
        (self.0.0.wait().unwrap(), summary.unwrap_or_default(), stderr)
    }

    fn stop(self) -> Value {
        self.terminate();
        let (status, summary, stderr) = self.ended();
        assert!(status.success(), "{status} {stderr}");
        summary
    }
}

fn put(server: &Server, args: &[&str]) -> String {
    let put = server.dwell(&[&["put", "q"][..], args].concat()).ok().json();
    put["id"].as_str().unwrap().to_owned()
}

fn is_gone(server: &Server, id: &str) -> bool {
    server.dwell(&["get", "q", id]).code == 3
}

/// The message, once it is dead.
fn dead(server: &Server, id: &str) -> Value {
    let get = || server.dwell(&["get", "q", id]).ok().json();
    until("the message is dead", || get()["state"] == "dead");
    get()
}

fn is_alive(pid: &str) -> bool {
    // A process that is dead and was not waited for yet has ended.
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The text of a file that another process writes, once it has a complete line.
fn line(path: &Path) -> String {
    let text = || fs::read_to_string(path).unwrap_or_default();
    until("the file has a line", || text().ends_with('\n'));
    text().trim().to_owned()
}

#[test]
fn an_exit_decides_what_becomes_of_the_message() {
    let server = serve_in_memory(&[]);
    // The body is the script.
    let done = put(&server, &["exit 0"]);
    let buried = put(&server, &["echo no such order >&2; exit 65"]);
    let failed = put(&server, &["echo nope >&2; exit 3", "--max-attempts", "1"]);
    let killed = put(&server, &["kill -9 $$", "--max-attempts", "1"]);
    let long =
        "for i in 1 2 3 4 5 6 7 8 9; do head -c 1000 /dev/zero | tr '\\0' x >&2; done; echo the end >&2";
    let long = put(&server, &[&format!("{long}; exit 1"), "--max-attempts", "1"]);
    let twice = put(&server, &["[ $DWELL_ATTEMPT = 2 ] || exit 7"]);
    let work = Work::start(&server, &["q", "--retry", "1ms", "--", "sh"]);

    let error = |id: &str| dead(&server, id)["last_error"].as_str().unwrap_or_default().to_owned();
    assert_eq!(error(&buried), "exit code 65: no such order");
    assert_eq!(error(&failed), "exit code 3: nope");
    assert!(error(&killed).starts_with("signal: 9"), "{}", error(&killed));
    let kept = error(&long);
    assert!(kept.starts_with("exit code 1: xxx") && kept.ends_with("xxxthe end"), "{kept}");
    assert!(kept.len() < 2_100, "{}", kept.len());
    until("what was done is gone", || is_gone(&server, &done) && is_gone(&server, &twice));

    let summary = work.stop();
    assert_eq!(summary, json!({"done": 2, "retried": 4, "buried": 1, "released": 0, "lost": 0}));
}

#[test]
fn a_command_gets_the_body_and_all_that_is_known_of_the_message() {
    let server = serve_in_memory(&[]);
    let folder = tempfile::tempdir().unwrap();
    let body = b"\x00\xff body\n";
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let args = ["put", "q", "-", "--key", "k ü", "--header", "x-shop: Köln", "--header"];
    let traceparent = format!("traceparent: {trace}");
    let put = server.dwell_with(&[&args[..], &[traceparent.as_str()]].concat(), body).ok().json();
    let id = put["id"].as_str().unwrap();
    let script = "cat > \"$1/body\"; env -0 > \"$1/env\"; echo for standard output";
    let folder_text = folder.path().to_str().unwrap();
    let work = Work::start(&server, &["q", "--", "sh", "-c", script, "sh", folder_text]);
    until("it is done", || is_gone(&server, id));
    work.stop();

    assert_eq!(fs::read(folder.path().join("body")).unwrap(), body);
    let env = fs::read_to_string(folder.path().join("env")).unwrap();
    let value = |name: &str| env.split('\0').find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    for (name, expected) in [
        ("DWELL_ID", id),
        ("DWELL_NUMBER", &put["number"].to_string()),
        ("DWELL_QUEUE", "q"),
        ("DWELL_ATTEMPT", "1"),
        ("DWELL_DUE", put["due"].as_str().unwrap()),
        ("DWELL_KEY", "k ü"),
        ("DWELL_HEADER_X_SHOP", "Köln"),
        ("TRACEPARENT", trace),
    ] {
        assert_eq!(value(name), Some(expected), "{name}");
    }
    assert!(value("DWELL_CREATED").is_some_and(|text| text.ends_with('Z')));
    assert_eq!(value("DWELL_HEADER_OUTER"), None, "it is about another message");
}

#[test]
fn a_command_need_not_read_its_input() {
    let server = serve_in_memory(&[]);
    let body = vec![b'x'; 1024 * 1024];
    let put = server.dwell_with(&["put", "q", "-", "--key", "k"], &body).ok().json();
    let work = Work::start(&server, &["q", "--", "true"]);
    until("it is done", || is_gone(&server, put["id"].as_str().unwrap()));
    assert_eq!(work.stop()["done"], 1);
}

#[test]
fn commands_run_beside_each_other_as_many_as_were_asked_for() {
    let server = serve_in_memory(&[]);
    let folder = tempfile::tempdir().unwrap();
    // Each waits for the other: a pipe that one opens to read and one to write.
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pipe = pipe.to_str().unwrap();
    let ids =
        [put(&server, &[&format!("echo hello > {pipe}")]), put(&server, &[&format!("read x < {pipe}")])];
    let work = Work::start(&server, &["q", "--concurrency", "2", "--", "sh"]);
    until("both are done", || ids.iter().all(|id| is_gone(&server, id)));
    assert_eq!(work.stop()["done"], 2);
}

#[test]
fn a_command_that_takes_too_long_is_killed_with_all_that_it_has_started() {
    let server = serve_in_memory(&[]);
    let folder = tempfile::tempdir().unwrap();
    let (own, its) = (folder.path().join("own"), folder.path().join("its"));
    let script = format!(
        "trap '' TERM; echo $$ > {}; sleep 1000 & echo $! > {}; wait; wait",
        own.display(),
        its.display()
    );
    let id = put(&server, &[&script, "--max-attempts", "1"]);
    let work = Work::start(&server, &["q", "--timeout", "2s", "--", "sh"]);
    let pids = [line(&own), line(&its)];
    let error = dead(&server, &id)["last_error"].as_str().unwrap().to_owned();
    assert_eq!(error, "the handler has not returned after 2s");
    until("both have ended", || !pids.iter().any(|pid| is_alive(pid)));
    assert_eq!(work.stop()["retried"], 1);
}

#[test]
fn a_signal_lets_running_commands_end() {
    let server = serve_in_memory(&[]);
    let folder = tempfile::tempdir().unwrap();
    let (started, pipe) = (folder.path().join("started"), folder.path().join("pipe"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let script = format!("echo yes > {}; read x < {}", started.display(), pipe.display());
    let first = put(&server, &[&script]);
    let work = Work::start(&server, &["q", "--", "sh"]);
    line(&started);
    work.terminate();
    // Its takes have ended: later messages stay in the queue.
    let waiting = || server.dwell(&["stats", "q"]).ok().json()["waiting"].clone();
    until("no take waits", || waiting() == 0);
    let second = put(&server, &["exit 0"]);
    fs::write(&pipe, "go\n").unwrap();
    let (status, summary, stderr) = work.ended();
    assert!(status.success(), "{status} {stderr}");
    assert_eq!(summary["done"], 1);
    assert!(is_gone(&server, &first));
    assert_eq!(server.dwell(&["get", "q", &second]).ok().json()["state"], "ready");
}

#[test]
fn a_command_that_does_not_end_in_time_gives_its_message_back() {
    let server = serve_in_memory(&[]);
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started");
    // One exits with 0 on SIGTERM, although its work is not done.
    let obedient = "trap 'exit 0' TERM; sleep 1000 & wait";
    for script in ["sleep 1000; exit 1", "trap '' TERM; sleep 1000; sleep 1000", obedient] {
        let _ = fs::remove_file(&started);
        let id = put(&server, &[&format!("echo $$ > {}; {script}", started.display())]);
        let work = Work::start(&server, &["q", "--drain", "1ms", "--", "sh"]);
        let pid = line(&started);
        assert_eq!(work.stop(), json!({"done": 0, "retried": 0, "buried": 0, "released": 1, "lost": 0}));
        let message = server.dwell(&["get", "q", &id]).ok().json();
        assert_eq!((&message["state"], &message["attempt"]), (&json!("ready"), &json!(0)), "{message}");
        until("the command has ended", || !is_alive(&pid));
        server.dwell(&["cancel", "q", &id]).ok();
    }
}

#[test]
fn what_a_command_has_started_ends_with_it() {
    let server = serve_in_memory(&[]);
    let folder = tempfile::tempdir().unwrap();
    let its = folder.path().join("its");
    // The shell ends at SIGTERM, and its child does not.
    let deaf = format!("trap '' TERM; echo \\$\\$ > {}; sleep 1000; sleep 1000", its.display());
    let id = put(&server, &[&format!("sh -c \"{deaf}\" & wait")]);
    let work = Work::start(&server, &["q", "--drain", "1ms", "--", "sh"]);
    let pid = line(&its);
    assert_eq!(work.stop()["released"], 1);
    until("what it has started has ended", || !is_alive(&pid));
    assert_eq!(server.dwell(&["get", "q", &id]).ok().json()["state"], "ready");
}

#[test]
fn what_cannot_run_is_refused_before_anything_is_taken() {
    let server = serve_in_memory(&[]);
    let id = put(&server, &["x"]);
    let none = server.dwell(&["work", "q", "--", "dwell-test-no-such-program"]);
    assert_eq!((none.code, none.failure().as_str()), (2, "usage"));
    let none = server.dwell(&["work", "q", "--", "/there/is/none"]);
    assert_eq!((none.code, none.failure().as_str()), (2, "usage"));
    let lease = server.dwell(&["work", "q", "--lease", "1ms", "--", "true"]);
    assert_eq!((lease.code, lease.failure().as_str()), (2, "invalid_lane"));
    let timeout = server.dwell(&["work", "q", "--timeout", "0s", "--", "true"]);
    assert_eq!((timeout.code, timeout.failure().as_str()), (2, "invalid_lane"));
    for args in [
        &["work", "q"][..],
        &["work", "q", "true"],
        &["work", "q", "--retry", "soon", "--", "true"],
        &["work", "q", "--concurrency", "0", "--", "true"],
        &["work", "q", "--strict", "--concurrency", "2", "--", "true"],
    ] {
        assert_eq!(server.dwell(args).code, 2, "{args:?}");
    }
    let message = server.dwell(&["get", "q", &id]).ok().json();
    assert_eq!((&message["state"], &message["attempt"]), (&json!("ready"), &json!(0)));
}

#[test]
fn a_program_that_cannot_be_started_spends_no_attempt() {
    let server = serve_in_memory(&[]);
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    // It exists, but is not executable yet.
    fs::write(&program, "#!/bin/sh\nexit 0\n").unwrap();
    let id = put(&server, &["x", "--max-attempts", "1"]);
    let work = Work::start(&server, &["q", "--", program.to_str().unwrap()]);
    let releases = || server.dwell(&["get", "q", &id]).ok().json()["counts"]["releases"].clone();
    until("it was given back", || releases().as_u64().is_some_and(|count| count > 0));
    let made = Command::new("chmod").args(["+x", program.to_str().unwrap()]).status();
    assert!(made.unwrap().success());
    until("it is done", || is_gone(&server, &id));
    assert_eq!(work.stop()["done"], 1);
}

/// 64 at a time: the message in their middle kills the worker each time it is handed out.
#[test]
fn one_message_of_a_thousand_that_kills_its_process_dies_alone() {
    const MESSAGES: usize = 1_000;
    const ATTEMPTS: u32 = 4;
    let server = serve_in_memory(&[]);
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let client = Client::builder(server.url()).build().unwrap();
    let queue: QueueName = "q".parse().unwrap();
    let put = |number: usize| {
        // The body is the script.
        let script = match number == MESSAGES / 2 {
            true => "kill -9 $PPID".to_owned(),
            false => format!("echo $DWELL_ATTEMPT >> {}", log.display()),
        };
        let max_attempts = Some(AttemptLimit::At(ATTEMPTS.try_into().unwrap()));
        Put { max_attempts, ..Put::new(queue.clone(), script.into_bytes()) }
    };
    let answers = client.blocking().put((0..MESSAGES).map(put).collect());
    assert!(answers.iter().all(Result::is_ok));
    let id = answers[MESSAGES / 2].as_ref().unwrap().id.to_string();

    let args = ["q", "--concurrency", "64", "--lease", "5s", "--retry", "1ms", "--", "sh"];
    let counts = || client.blocking().stats(queue.clone()).unwrap().counts;
    let is_over = || counts() == StateCounts { dead: 1, ..StateCounts::default() };
    let mut deaths = 0;
    while !is_over() {
        let mut work = Work::start(&server, &args);
        until("the worker has died, or all is done", || work.0.0.try_wait().unwrap().is_some() || is_over());
        if is_over() {
            work.0.kill();
            break;
        }
        assert_eq!(work.0.0.wait().unwrap().signal(), Some(9), "the message kills it");
        deaths += 1;
        assert!(deaths <= ATTEMPTS, "it is dead after {ATTEMPTS} attempts");
    }
    assert_eq!(deaths, ATTEMPTS);
    let killer = dead(&server, &id);
    assert_eq!(killer["dead_reason"], "attempts_spent", "{killer}");
    assert_eq!(killer["counts"]["lapses"], json!(ATTEMPTS), "{killer}");
    let attempts = fs::read_to_string(&log).unwrap();
    let attempts: Vec<u32> = attempts.lines().map(|attempt| attempt.parse().unwrap()).collect();
    assert!(attempts.len() >= MESSAGES - 1, "{}", attempts.len());
    assert!(attempts.iter().all(|attempt| *attempt <= 3), "others lose two attempts at most: {attempts:?}");
}
