//! Messages that can not be read: nobody gets wrong bytes, and nobody else waits for them.

use std::io::ErrorKind;
use std::num::NonZeroU32;
use std::path::PathBuf;

use dwell_engine::Options;
use dwell_engine::disk::{Calls, Disk as _, Fault, MemoryDisk};
use dwell_model::{AttemptLimit, StateKind};
use dwell_store::{Action, Put, Settle, Store, Take, Target};
use dwell_time::ManualClock;

use crate::support::{Driven, dir, options, queue, start};

/// Over the default backoff of a first attempt.
const BACKOFF_MS: u64 = 3_600_000;

/// Where these bytes lie.
fn find(disk: &MemoryDisk, bytes: &[u8]) -> (PathBuf, u64) {
    let paths = disk.list(dir()).unwrap().into_iter().map(|name| dir().join(name));
    let mut found = paths.filter_map(|path| {
        let file = disk.read_file(&path)?;
        let at = file.windows(bytes.len()).position(|window| window == bytes)?;
        Some((path, at as u64))
    });
    found.next_back().expect("they are in a file")
}

fn rot(disk: &MemoryDisk, bytes: &[u8]) {
    let (path, at) = find(disk, bytes);
    disk.rot_at(&path, at);
}

#[test]
fn a_body_that_can_not_be_read_is_an_attempt_and_holds_nobody_up() {
    let mut store = Driven::new();
    let engine = store.engine.clone();
    let damaged = store.put(Put::new(queue("q"), "the first body")).unwrap();
    store.put(Put::new(queue("q"), "the second body")).unwrap();
    rot(&store.disk, b"the first body");
    // It is the next to go out, each time.
    let taken = store.take(Take::from(queue("q")).max(10)).unwrap();
    assert_eq!(taken.iter().map(|taken| &taken.message.body[..]).collect::<Vec<_>>(), [b"the second body"]);
    store.settle(Settle { receipt: taken[0].receipt.clone(), action: Action::Ack }).unwrap();
    let get = || engine.get(queue("q"), vec![Target::Id(damaged.id)]);
    assert_eq!(store.run(get()).pop().unwrap().unwrap_err().code(), "unavailable");
    let counts = store.run(engine.stats(queue("q"))).unwrap().counts;
    assert_eq!((counts.scheduled, counts.leased), (1, 0), "it waits for its next attempt");
    store.advance(BACKOFF_MS);
    let refused = store.take(Take::from(queue("q")).max(1)).unwrap_err();
    assert_eq!(refused.code(), "unavailable");
    assert!(refused.to_string().contains("fails its checksum"), "{refused}");
    store.disk.heal_rot(|_| true);
    let message = store.run(get()).pop().unwrap().unwrap();
    assert_eq!(message.standing.attempts, 2);
    assert!(message.standing.last_error.unwrap().contains("can not be read"));
    store.advance(BACKOFF_MS);
    let taken = store.take(Take::from(queue("q")).max(10)).unwrap();
    assert!(taken.iter().any(|taken| taken.message.body == "the first body"));
}

#[test]
fn a_message_that_can_never_be_read_is_dead_when_its_attempts_are_spent() {
    let mut store = Driven::new();
    let engine = store.engine.clone();
    let twice = AttemptLimit::At(NonZeroU32::new(2).unwrap());
    store.put(Put { max_attempts: Some(twice), ..Put::new(queue("q"), "the only body") }).unwrap();
    rot(&store.disk, b"the only body");
    for _ in 0..2 {
        assert_eq!(store.take(Take::from(queue("q"))).unwrap_err().code(), "unavailable");
        // What could not be read is told to the shard, and seen to in the next turn.
        store.advance(0);
        store.advance(BACKOFF_MS);
    }
    assert_eq!(store.take(Take::from(queue("q"))).unwrap().len(), 0);
    assert_eq!(store.run(engine.stats(queue("q"))).unwrap().counts.dead, 1);
    store.disk.heal_rot(|_| true);
    let dead = store.run(engine.list(queue("q"), StateKind::Dead, None, 10)).unwrap().messages.remove(0);
    assert!(dead.standing.last_error.unwrap().contains("can not be read"));
}

#[test]
fn a_read_that_fails_once_costs_an_attempt_and_no_more() {
    let mut store = Driven::new();
    let put = store.put(Put::new(queue("q"), "a body")).unwrap();
    store.disk.fail(Fault { calls: Calls::Reads, after: 0, times: 1, error: ErrorKind::Other });
    let engine = store.engine.clone();
    let refused = store.run(engine.take_id(queue("q"), put.id, Some(60_000), false)).unwrap_err();
    assert_eq!(refused.code(), "unavailable");
    let taken = store.run(engine.take_id(queue("q"), put.id, Some(60_000), false)).unwrap();
    assert_eq!((taken.message.standing.attempt(), &taken.message.body[..]), (2, &b"a body"[..]));
}

/// About sixty messages.
fn tiny() -> Driven {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options { memory_limit: 16 * 1024, ..options(&disk, &clock) };
    Driven::open(disk, clock, options).unwrap()
}

#[test]
fn a_damaged_body_is_taken_along_and_keeps_no_other_message_in_memory() {
    let mut store = tiny();
    let engine = store.engine.clone();
    let damaged = store.put(Put::new(queue("far"), "a body like no other").after_ms(86_400_000)).unwrap();
    rot(&store.disk, b"a body like no other");
    for i in 0..1_000 {
        store.put(Put::new(queue("far"), format!("body {i}")).after_ms(86_400_000)).unwrap();
    }
    let counters = engine.counters();
    assert!(counters.checkpoints > 10 && counters.resident < 100, "{counters:?}");
    let before = engine.counters().segments;
    assert!(before < 10, "the journal is let go: {before}");
    // It is damaged for good, and still says so; everything else is whole.
    store.disk.heal_rot(|_| true);
    let found = store.run(engine.get(queue("far"), vec![Target::Id(damaged.id)])).pop().unwrap();
    assert_eq!(found.unwrap_err().code(), "unavailable");
    let mut seen = 0;
    store.advance(86_400_000);
    loop {
        let Ok(taken) = store.take(Take::from(queue("far")).max(100)) else { continue };
        if taken.is_empty() {
            break;
        }
        seen += taken.len();
    }
    assert_eq!(seen, 1_000);
}

#[test]
fn a_queue_that_can_not_be_read_holds_up_no_other() {
    let mut store = tiny();
    for i in 0..300 {
        store.put(Put::new(queue("bad"), format!("body {i}")).after_ms(1_000)).unwrap();
    }
    let files: Vec<String> = store.disk.list(dir()).unwrap();
    for name in files.into_iter().filter(|name| name.starts_with("due-")) {
        let path = dir().join(name);
        let len = store.disk.read_file(&path).unwrap().len() as u64;
        (0..len).for_each(|at| store.disk.rot_at(&path, at));
    }
    store.put(Put::new(queue("good"), "a good body")).unwrap();
    store.advance(2_000);
    let both = || Take::from_all([queue("bad"), queue("good")]);
    let taken = store.take(both()).unwrap();
    assert_eq!(taken[0].message.body, "a good body");
    assert_eq!(store.take(both()).unwrap_err().code(), "unavailable");
    store.disk.heal_rot(|_| true);
    assert!(!store.take(both()).unwrap().is_empty());
}
