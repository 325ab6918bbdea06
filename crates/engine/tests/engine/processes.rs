//! Real processes that use a directory one after the other, and die.
//!
//! A test runs this binary again for one ignored test, which gets its parameters from the environment.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use dwell_engine::{Engine, Options};
use dwell_model::{AttemptLimit, DeathReason, State, StateKind};
use dwell_store::{Put, Take};

use crate::support::{TempDir, queue};

fn small() -> Options {
    Options { segment_bytes: 64 * 1024, ..Options::default() }
}

/// This binary, running one test on a directory.
fn process(test: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("processes::{test}"), "--ignored", "--nocapture"])
        .env("DWELL_TEST_DIR", dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "run by a_second_process_is_kept_out_until_the_first_is_killed"]
fn hold() {
    let Some(dir) = std::env::var_os("DWELL_TEST_DIR") else { return };
    let engine = Engine::open(Path::new(&dir), small()).unwrap();
    engine.blocking().put_one(Put::new(queue("q"), "held")).unwrap();
    println!("\nheld");
    // Until the parent kills this process or closes its end.
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn a_second_process_is_kept_out_until_the_first_is_killed() {
    let dir = TempDir::new("hold");
    let mut holder = process("hold", dir.path());
    let output = BufReader::new(holder.stdout.take().unwrap());
    // Ends with the holder's output, so that a holder that fails does not hang this test.
    assert!(output.lines().map_while(Result::ok).any(|line| line == "held"));
    assert_eq!(Engine::open(dir.path(), small()).map(drop).unwrap_err().code(), "locked");
    holder.kill().unwrap();
    holder.wait().unwrap();
    let engine = Engine::open(dir.path(), small()).unwrap();
    assert_eq!(engine.blocking().stats(queue("q")).unwrap().counts.ready, 1);
}

#[test]
#[ignore = "run by a_message_that_kills_its_process_each_time_is_dead_after_its_attempts"]
fn handle() {
    let Some(dir) = std::env::var_os("DWELL_TEST_DIR") else { return };
    let engine = Engine::open(Path::new(&dir), small()).unwrap();
    match engine.blocking().take(Take::from(queue("q")).session()).unwrap().pop() {
        Some(taken) if taken.message.body == "poison" => std::process::abort(),
        Some(_) | None => {}
    }
}

#[test]
fn a_message_that_kills_its_process_each_time_is_dead_after_its_attempts() {
    let dir = TempDir::new("poison");
    let engine = Engine::open(dir.path(), small()).unwrap();
    let mut put = Put::new(queue("q"), "poison");
    put.max_attempts = Some(AttemptLimit::At(3.try_into().unwrap()));
    engine.blocking().put_one(put).unwrap();
    engine.close().unwrap();
    let mut killed = 0;
    while !process("handle", dir.path()).wait().unwrap().success() {
        killed += 1;
        assert!(killed <= 3, "it has three attempts");
    }
    assert_eq!(killed, 3);
    let engine = Engine::open(dir.path(), small()).unwrap();
    let page = engine.blocking().list(queue("q"), StateKind::Dead, None, 10).unwrap();
    let State::Dead(death) = page.messages[0].standing.state else { panic!("it is dead") };
    assert_eq!(death.reason, DeathReason::AttemptsSpent);
    assert_eq!(page.messages[0].standing.counts.takes, 3);
}
