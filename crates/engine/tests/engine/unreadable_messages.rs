//! Messages that cannot be read: no caller gets wrong bytes, and no other message waits for them.

use std::io::ErrorKind;
use std::num::NonZeroU32;
use std::path::PathBuf;

use dwell_engine::Options;
use dwell_engine::disk::{Calls, Disk as _, Fault, MemoryDisk};
use dwell_model::{AttemptLimit, StateKind};
use dwell_store::{Action, LeaseTerms, Put, Settle, Store, Take, Target};
use dwell_time::ManualClock;

use crate::support::{Driven, dir, options, queue, start};

/// Longer than the default backoff of a first attempt.
const BACKOFF_MS: u64 = 3_600_000;

/// The place of these bytes.
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
fn a_body_that_cannot_be_read_is_an_attempt_and_holds_nobody_up() {
    let mut store = Driven::new();
    let engine = store.engine.clone();
    let damaged = store.put(Put::new(queue("q"), "the first body")).unwrap();
    store.put(Put::new(queue("q"), "the second body")).unwrap();
    rot(&store.disk, b"the first body");
    // It is the next message each time.
    let taken = store.take(Take::from(queue("q")).max(10)).unwrap();
    assert_eq!(taken.iter().map(|taken| &taken.message.body[..]).collect::<Vec<_>>(), [b"the second body"]);
    store.settle(Settle { receipt: taken[0].receipt.clone(), action: Action::Ack }).unwrap();
    let get = || engine.get(queue("q"), vec![Target::Id(damaged.id)], false);
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
    assert!(message.standing.last_error.unwrap().contains("cannot be read"));
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
        // An unreadable body is reported to the shard, and handled in the next turn.
        store.advance(0);
        store.advance(BACKOFF_MS);
    }
    assert_eq!(store.take(Take::from(queue("q"))).unwrap().len(), 0);
    assert_eq!(store.run(engine.stats(queue("q"))).unwrap().counts.dead, 1);
    store.disk.heal_rot(|_| true);
    let dead = store.run(engine.list(queue("q"), StateKind::Dead, None, 10)).unwrap().messages.remove(0);
    assert!(dead.standing.last_error.unwrap().contains("cannot be read"));
}

#[test]
fn a_read_that_fails_once_costs_an_attempt_and_no_more() {
    let mut store = Driven::new();
    let put = store.put(Put::new(queue("q"), "a body")).unwrap();
    store.disk.fail(Fault { calls: Calls::Reads, after: 0, times: 1, error: ErrorKind::Other });
    let engine = store.engine.clone();
    let refused = store.run(engine.take_id(queue("q"), put.id, LeaseTerms::of_ms(60_000))).unwrap_err();
    assert_eq!(refused.code(), "unavailable");
    let taken = store.run(engine.take_id(queue("q"), put.id, LeaseTerms::of_ms(60_000))).unwrap();
    assert_eq!((taken.message.standing.attempt(), &taken.message.body[..]), (2, &b"a body"[..]));
}

fn unreadable(disk: &MemoryDisk, bytes: &[u8]) {
    let (path, at) = find(disk, bytes);
    disk.unreadable_at(&path, at, 1);
}

fn body_of(i: usize) -> String {
    format!("body {i:03} of a few that lie side by side")
}

#[test]
fn a_place_that_cannot_be_read_fails_the_body_that_lies_there_and_none_beside_it() {
    let mut store = Driven::new();
    let engine = store.engine.clone();
    let once = AttemptLimit::At(NonZeroU32::new(1).unwrap());
    let puts = (0..20).map(|i| Put { max_attempts: Some(once), ..Put::new(queue("q"), body_of(i)) });
    let puts: Vec<_> = store.run(engine.put(puts.collect())).into_iter().map(Result::unwrap).collect();
    unreadable(&store.disk, body_of(7).as_bytes());
    let ids = puts.iter().map(|put| Target::Id(put.id)).collect();
    let got = store.run(engine.get(queue("q"), ids, false));
    assert!(got.iter().enumerate().all(|(i, got)| got.is_ok() == (i != 7)), "{got:?}");
    let taken = store.take(Take::from(queue("q")).max(20)).unwrap();
    assert_eq!(taken.len(), 19);
    store.advance(0);
    let counts = store.run(engine.stats(queue("q"))).unwrap().counts;
    assert_eq!((counts.leased, counts.dead), (19, 1));
}

#[test]
fn a_page_of_a_list_shows_what_can_be_read_and_names_the_rest() {
    let mut store = Driven::new();
    let engine = store.engine.clone();
    let puts = store.run(engine.put((0..20).map(|i| Put::new(queue("q"), body_of(i))).collect()));
    let puts: Vec<_> = puts.into_iter().map(Result::unwrap).collect();
    unreadable(&store.disk, body_of(7).as_bytes());
    let page = store.run(engine.list(queue("q"), StateKind::Ready, None, 100)).unwrap();
    assert_eq!(page.messages.len(), 19);
    assert_eq!(
        page.unread.iter().map(|(id, error)| (*id, error.code())).collect::<Vec<_>>(),
        [(puts[7].id, "unavailable")]
    );
}

#[test]
fn a_process_that_may_open_no_more_files_spends_no_attempts() {
    spends_no_attempts(|disk| disk.run_out_of_files(0, u64::MAX));
}

#[test]
fn a_process_without_memory_to_read_with_spends_no_attempts() {
    let error = ErrorKind::OutOfMemory;
    spends_no_attempts(|disk| disk.fail(Fault { calls: Calls::Reads, after: 0, times: u64::MAX, error }));
}

/// Reads fail for lack of a resource of which the process is `short`, for messages that have one attempt each.
fn spends_no_attempts(short: impl FnOnce(&MemoryDisk)) {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options { open_files: 4, segment_bytes: 4 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    let engine = store.engine.clone();
    let once = AttemptLimit::At(NonZeroU32::new(1).unwrap());
    for i in 0..40 {
        let body = body_of(i).repeat(20);
        store.put(Put { max_attempts: Some(once), ..Put::new(queue("q"), body) }).unwrap();
    }
    short(&store.disk);
    let mut taken = 0;
    for _ in 0..100 {
        match store.take(Take::from(queue("q")).max(40)) {
            Ok(deliveries) => taken += deliveries.len(),
            Err(error) => assert!(error.code() == "unavailable" && error.is_retryable(), "{error}"),
        }
        store.advance(0);
        let counts = store.run(engine.stats(queue("q"))).unwrap().counts;
        assert_eq!((counts.dead, counts.scheduled), (0, 0), "nothing is lost, and nothing has to wait");
    }
    assert!(taken < 40, "not all of their files are open");
    store.disk.heal();
    let rest = store.take(Take::from(queue("q")).max(40)).unwrap();
    assert_eq!(taken + rest.len(), 40);
    assert!(rest.iter().all(|taken| taken.message.standing.attempt() == 1));
}

/// A store that keeps about sixty messages in memory.
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
    assert!(counters.flushes > 10 && counters.resident < 100, "{counters:?}");
    let before = engine.counters().segments;
    assert!(before < 10, "the journal is let go: {before}");
    // It is damaged for good, and is still reported as damaged; everything else is intact.
    store.disk.heal_rot(|_| true);
    let found = store.run(engine.get(queue("far"), vec![Target::Id(damaged.id)], false)).pop().unwrap();
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
fn a_queue_that_cannot_be_read_holds_up_no_other() {
    let mut store = tiny();
    for i in 0..300 {
        store.put(Put::new(queue("bad"), format!("body {i}")).after_ms(1_000)).unwrap();
    }
    let files: Vec<String> = store.disk.list(dir()).unwrap();
    for name in files.into_iter().filter(|name| name.starts_with("table-")) {
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

/// Puts it, a second later each time that it is refused; returns how often it was.
fn put_again(store: &mut Driven, put: &Put) -> u64 {
    let mut refused = 0;
    while let Err(error) = store.put(put.clone()) {
        refused += 1;
        assert!(error.code() == "overloaded" && refused < 10, "{error}");
        store.advance(1_000);
    }
    refused
}

#[test]
fn a_sector_that_cannot_be_read_is_taken_along_and_keeps_no_other_message_in_memory() {
    let mut store = tiny();
    let engine = store.engine.clone();
    let far = |body: &str| Put::new(queue("far"), body.to_owned()).after_ms(86_400_000);
    let bad = store.put(far("a body like no other")).unwrap();
    unreadable(&store.disk, b"a body like no other");
    let refused: u64 = (0..1_000).map(|i| put_again(&mut store, &far(&format!("body {i}")))).sum();
    assert!(refused <= 3, "{refused} were refused: the medium was tried three times, a second apart");
    let counters = engine.counters();
    assert!(counters.flushes > 10 && counters.resident < 100, "{counters:?}");
    assert!(counters.segments < 10, "the journal is let go: {}", counters.segments);
    assert_eq!(counters.damaged, 1, "it is counted");
    let found = store.run(engine.get(queue("far"), vec![Target::Id(bad.id)], false)).pop().unwrap();
    assert_eq!(found.unwrap_err().code(), "unavailable");
    store.advance(86_400_000);
    let mut seen = 0;
    for _ in 0..1_000 {
        let Ok(taken) = store.take(Take::from(queue("far")).max(100)) else { continue };
        if taken.is_empty() {
            break;
        }
        seen += taken.len();
    }
    assert_eq!(seen, 1_000);
}

#[test]
fn a_sector_that_can_be_read_again_in_time_has_lost_nothing() {
    let mut store = tiny();
    let engine = store.engine.clone();
    let far = |body: &str| Put::new(queue("far"), body.to_owned()).after_ms(86_400_000);
    let slow = store.put(far("a body like no other")).unwrap();
    unreadable(&store.disk, b"a body like no other");
    let refused = (0..60).any(|i| store.put(far(&format!("body {i}"))).is_err());
    assert!(refused, "a flush has found that it cannot be read");
    store.disk.heal_rot(|_| true);
    for i in 0..200 {
        put_again(&mut store, &far(&format!("body {i}")));
    }
    assert_eq!(engine.counters().damaged, 0);
    let found = store.run(engine.get(queue("far"), vec![Target::Id(slow.id)], false)).pop().unwrap();
    assert_eq!(found.unwrap().body, "a body like no other");
}
