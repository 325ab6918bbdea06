//! A message whose handler kills its process each time is dead after `max_attempts`, tested with real processes.

#![cfg(feature = "engine")]
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use dwell::engine::{Engine, Options};
use dwell::{AttemptLimit, DeathReason, Put, Setting, SettingChange, State, StateKind, Take, Target};

const DIR: &str = "DWELL_POISON_DIR";
const ATTEMPTS: u32 = 4;

#[test]
#[ignore = "run as a process of its own by the test below"]
fn a_handler_that_kills_its_process() {
    let engine = Engine::open(std::env::var_os(DIR).unwrap(), Options::default()).unwrap();
    // The lease lasts an hour: the next process gets the message only because the lease is bound to this one.
    let take = Take::from("poison".parse().unwrap()).wait_ms(20_000).lease_ms(3_600_000).session();
    let deliveries = engine.blocking().take(take).unwrap();
    println!("\nattempt {}", deliveries[0].message.standing.attempt());
    std::process::abort();
}

struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // The process may have ended already; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the handler's process until it dies, and returns what it printed.
fn run_handler(dir: &Path) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_handler_that_kills_its_process", "--ignored", "--nocapture"]);
    command.env(DIR, dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = KilledOnDrop(command.spawn().unwrap());
    let mut stdout = child.0.stdout.take().unwrap();
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).unwrap();
        let _ = sender.send(text);
    });
    let printed = receiver.recv_timeout(Duration::from_secs(60)).expect("the process ends");
    assert!(!child.0.wait().unwrap().success(), "it aborted");
    printed
}

#[test]
fn a_message_that_kills_its_process_is_dead_after_max_attempts() {
    let dir = tempfile::tempdir().unwrap();
    let queue: dwell::QueueName = "poison".parse().unwrap();
    let engine = Engine::open(dir.path(), Options::default()).unwrap();
    let limit = SettingChange::Set(Setting::MaxAttempts(AttemptLimit::At(ATTEMPTS.try_into().unwrap())));
    engine.blocking().configure(queue.clone(), vec![limit]).unwrap();
    let put = engine.blocking().put_one(Put::new(queue.clone(), "boom")).unwrap();
    engine.close().unwrap();

    for attempt in 1..=ATTEMPTS {
        let printed = run_handler(dir.path());
        assert!(printed.contains(&format!("\nattempt {attempt}\n")), "{printed}");
    }

    let engine = Engine::open(dir.path(), Options::default()).unwrap();
    let store = engine.blocking();
    assert!(store.take(Take::from(queue.clone())).unwrap().is_empty());
    let message = store.get(queue.clone(), vec![Target::Id(put.id)], false).remove(0).unwrap();
    let State::Dead(death) = message.standing.state else { panic!("{message:?}") };
    assert_eq!(death.reason, DeathReason::AttemptsSpent);
    assert_eq!((message.standing.counts.takes, message.standing.counts.lapses), (ATTEMPTS, ATTEMPTS));
    assert_eq!(store.list(queue, StateKind::Dead, None, 10).unwrap().messages.len(), 1);
    engine.close().unwrap();
}
