//! The cost of a call in reads and in memory is bounded, however many files, messages and leases a queue has.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dwell_engine::disk::MemoryDisk;
use dwell_engine::{Counters, Options};
use dwell_model::{Pause, Setting, SettingChange, StateKind};
use dwell_store::{Action, Error, Put, Settle, Store, Take, Target, When};
use dwell_time::ManualClock;

use crate::blocked_creation::{Door, DoorDisk};
use crate::support::{Driven, options, queue, start};

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Memory for about a hundred messages.
const LIMIT: u64 = 64 * 1024;

fn small(disk: &MemoryDisk, clock: &ManualClock) -> Options {
    Options { memory_limit: LIMIT, segment_bytes: 64 * 1024, ..options(disk, clock) }
}

fn open() -> Driven {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = small(&disk, &clock);
    Driven::open(disk, clock, options).unwrap()
}

fn again(store: Driven) -> Driven {
    let (disk, clock) = store.close();
    let options = small(&disk, &clock);
    Driven::open(disk, clock, options).unwrap()
}

fn reads(store: &Driven) -> u64 {
    store.engine.counters().disk.reads
}

/// Puts this number of messages into a queue, due a day and more from now.
fn put_far(store: &mut Driven, name: &str, count: u64) {
    for number in 0..count {
        store.put(Put::new(queue(name), format!("{number:0100}")).after_ms(DAY_MS + number)).unwrap();
    }
}

/// Crash story: a key was used again and again, and the messages that had it are dead. 1. Each of them had a pair with
/// the key in a run. 2. A put of the key looked at each, with one or two reads for each dead message, in one turn.
#[test]
fn dead_messages_that_had_a_key_cost_its_next_owner_nothing() {
    let mut store = open();
    for number in 0..300 {
        let body = format!("{number:0600}");
        store.put(Put::new(queue("q"), body).key("key".parse().unwrap())).unwrap();
        let taken = store.take(Take::from(queue("q"))).unwrap().pop().unwrap();
        let action = Action::Bury { reason: Some("no".into()), priority: None };
        store.settle(Settle { receipt: taken.receipt, action }).unwrap();
    }
    put_far(&mut store, "far", 1_000);
    let mut store = again(store);
    let engine = store.engine.clone();
    let before = reads(&store);
    let target = Target::Key("key".parse().unwrap());
    let found = store.run(engine.get(queue("q"), vec![target.clone()], false)).pop().unwrap();
    assert_eq!(found.unwrap_err().code(), "message_not_found");
    let spent = reads(&store) - before;
    // In runs that were not merged with the oldest one the messages that died since are live: they are looked up
    // together.
    assert!(spent <= 16, "{spent} reads for a key that 300 dead messages had");
    let put = store.put(Put::new(queue("q"), "next").key("key".parse().unwrap())).unwrap();
    let found = store.run(engine.get(queue("q"), vec![target.clone()], false)).pop().unwrap().unwrap();
    assert_eq!(found.id, put.id);
    // One of them that is revived has the key again.
    store.run(engine.cancel(queue("q"), vec![Target::Id(put.id)])).pop().unwrap().unwrap();
    let which = dwell_store::Selection::Oldest(1);
    let revived = store.run(engine.revive(queue("q"), which, When::AfterMs(DAY_MS))).unwrap();
    assert_eq!(revived.done, 1);
    put_far(&mut store, "far", 1_000);
    let mut store = again(store);
    let engine = store.engine.clone();
    let found = store.run(engine.get(queue("q"), vec![target], false)).pop().unwrap().unwrap();
    assert_eq!(found.body, format!("{:0600}", 0));
}

#[test]
fn stats_of_a_queue_in_many_files_read_next_to_nothing() {
    let mut store = open();
    put_far(&mut store, "q", 3_000);
    let mut store = again(store);
    store.advance(0);
    let engine = store.engine.clone();
    let files = store.engine.counters().tables;
    assert!(files > 20, "{files} files");
    let before = reads(&store);
    let stats = store.run(engine.stats(queue("q"))).unwrap();
    assert_eq!((stats.counts.scheduled, stats.next_due), (3_000, Some(start().saturating_after(DAY_MS))));
    assert!(reads(&store) - before <= 3, "{} reads for {files} files", reads(&store) - before);
}

/// In each file some messages are ready and some are not: their number is read once, and not again by each call.
#[test]
fn stats_that_are_asked_for_again_and_again_do_not_read_again() {
    let mut store = open();
    for number in 0..3_000_u64 {
        let after_ms = 1 + number * 7_919 % (2 * HOUR_MS);
        store.put(Put::new(queue("q"), format!("{number:0100}")).after_ms(after_ms)).unwrap();
    }
    store.advance(HOUR_MS);
    let mut store = again(store);
    store.advance(0);
    let engine = store.engine.clone();
    let files = store.engine.counters().tables;
    assert!(files > 20, "{files} files");
    let due = |number: u64| 1 + number * 7_919 % (2 * HOUR_MS);
    let ready = |now: u64| (0..3_000).filter(|number| due(*number) <= now).count();
    let mut now = HOUR_MS;
    let first = store.run(engine.stats(queue("q"))).unwrap();
    assert_eq!(first.counts.ready, ready(now) as u64);
    let before = reads(&store);
    for _ in 0..100 {
        store.clock.advance(10);
        now += 10;
        let stats = store.run(engine.stats(queue("q"))).unwrap();
        assert_eq!(stats.counts.ready, ready(now) as u64);
        let next = (0..3_000).map(due).filter(|due| *due > now).min();
        assert_eq!(stats.next_due, next.map(|due| start().saturating_after(due)));
    }
    let spent = reads(&store) - before;
    assert!(spent <= 100, "{spent} reads for 100 calls and {files} files");
}

/// Polls calls that are all sent before any of them is answered.
fn all<T>(store: &mut Driven, calls: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut calls: Vec<Pin<Box<_>>> = calls.into_iter().map(Box::pin).collect();
    let mut context = Context::from_waker(Waker::noop());
    let mut answers: Vec<Option<T>> = calls.iter().map(|_| None).collect();
    for _ in 0..1_000 {
        for (call, answer) in calls.iter_mut().zip(&mut answers).filter(|(_, answer)| answer.is_none()) {
            if let Poll::Ready(ready) = call.as_mut().poll(&mut context) {
                *answer = Some(ready);
            }
        }
        if answers.iter().all(Option::is_some) {
            return answers.into_iter().flatten().collect();
        }
        store.driver.turn();
    }
    panic!("a call waits");
}

/// Crash story: forty callers list a queue each at once. 1. One turn answered all of them, and made twenty thousand
/// messages resident. 2. The number of evictions per turn is bounded: they stayed.
#[test]
fn what_many_calls_of_one_turn_read_does_not_stay_in_memory() {
    let mut store = open();
    for number in 0..40 {
        put_far(&mut store, &format!("q{number}"), 500);
    }
    let mut store = again(store);
    let engine = store.engine.clone();
    let lists = (0..40).map(|number| {
        let name = queue(&format!("q{number}"));
        engine.list(name, StateKind::Scheduled, None, 500)
    });
    let pages = all(&mut store, lists.collect());
    assert!(pages.into_iter().all(|page| page.unwrap().messages.len() == 500));
    // Those of the last call or two: nothing is evicted while the places of copies are set.
    let Counters { resident, .. } = store.engine.counters();
    assert!(resident <= 2 * 500 + LIMIT / 224, "{resident} messages");
}

/// Crash story: messages in files are rescheduled faster than they are written. 1. Each is resident from then on, until
/// it is written. 2. Puts had to wait for that, and reschedules had not.
#[test]
fn messages_that_are_rescheduled_wait_for_memory_as_puts_do() {
    let mut store = open();
    put_far(&mut store, "q", 5_000);
    let mut store = again(store);
    let engine = store.engine.clone();
    let mut cursor = None;
    let mut ids = Vec::new();
    loop {
        let page = store.run(engine.list(queue("q"), StateKind::Scheduled, cursor, 100)).unwrap();
        ids.extend(page.messages.iter().map(|message| message.id));
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(ids.len(), 5_000);
    let when = When::At(start().saturating_after(30 * DAY_MS));
    for some in ids.chunks(50) {
        let moves = some.iter().map(|id| (Target::Id(*id), when)).collect();
        let moved = store.run_patiently(engine.reschedule(queue("q"), moves));
        assert!(moved.iter().all(Result::is_ok), "{moved:?}");
        let Counters { resident, resident_bytes, .. } = engine.counters();
        assert!(resident_bytes <= LIMIT, "{resident} messages in {resident_bytes} bytes");
    }
    assert_eq!(store.run(engine.stats(queue("q"))).unwrap().counts.scheduled, 5_000);
}

/// A store with 3,000 messages in `q` that are due, most of them in tables, and one message in `other` that is in
/// memory. Nothing can be written to tables any more, and retries have filled memory. The error with which a take of
/// `q` is refused is returned too.
fn crammed() -> (DoorDisk, Driven, Error) {
    let (disk, clock) = (DoorDisk::new(MemoryDisk::new()), ManualClock::new(start()));
    let opened = || Options { disk: Arc::new(disk.clone()), ..small(&MemoryDisk::new(), &clock) };
    let mut store = Driven::open(MemoryDisk::new(), clock.clone(), opened()).unwrap();
    put_far(&mut store, "q", 3_000);
    store.engine.close().unwrap();
    drop(store);
    clock.advance(2 * DAY_MS);
    let mut store = Driven::open(MemoryDisk::new(), clock.clone(), opened()).unwrap();
    disk.set(Door::Barred);
    store.put(Put::new(queue("other"), "in memory")).unwrap();
    for _ in 0..300 {
        let taken = match store.take(Take::from(queue("q")).max(10)) {
            Ok(taken) => taken,
            Err(refused) => return (disk, store, refused),
        };
        for delivery in taken {
            let action = Action::Retry { after_ms: Some(30 * DAY_MS), error: None, priority: None };
            store.settle(Settle { receipt: delivery.receipt, action }).unwrap();
        }
        store.clock.advance(100);
    }
    panic!("all of the backlog came into memory");
}

/// Crash story: tables cannot be written, and consumers take messages out of older ones and retry them. 1. Each is
/// resident until it is written again. 2. In the end the whole backlog was in memory.
#[test]
fn where_nothing_can_be_written_retries_do_not_bring_the_backlog_into_memory() {
    let (disk, mut store, refused) = crammed();
    let Counters { resident_bytes, resident, .. } = store.engine.counters();
    assert!(resident_bytes <= 3 * LIMIT, "{resident} messages in {resident_bytes} bytes");
    assert_eq!((refused.code(), refused.is_retryable()), ("overloaded", true));
    disk.set(Door::Open);
    let mut left = 0;
    for _ in 0..3_000 {
        store.advance(1_000);
        match store.take(Take::from(queue("q")).max(10)) {
            Ok(taken) if taken.is_empty() => break,
            Ok(taken) => {
                for delivery in taken {
                    left += 1;
                    store.settle(Settle { receipt: delivery.receipt, action: Action::Ack }).unwrap();
                }
            }
            Err(error) => assert_eq!(error.code(), "overloaded"),
        }
    }
    let engine = store.engine.clone();
    let stats = store.run(engine.stats(queue("q"))).unwrap();
    assert_eq!((stats.counts.ready, stats.counts.scheduled + left), (0, 3_000));
}

#[test]
fn a_take_over_several_queues_passes_over_those_whose_next_message_has_no_room_in_memory() {
    let (_disk, mut store, _) = crammed();
    let before = store.engine.counters().memory_full;
    let taken = store.take(Take::from_all([queue("q"), queue("other")]).max(10)).unwrap();
    let bodies: Vec<&[u8]> = taken.iter().map(|delivery| delivery.message.body.as_ref()).collect();
    assert_eq!(bodies, [b"in memory"]);
    assert_eq!(store.engine.counters().memory_full, before + 1);
    let refused = store.take(Take::from_all([queue("q"), queue("other")]).max(10)).unwrap_err();
    assert_eq!(refused.code(), "overloaded", "nothing else is due");
}

/// Crash story: 1. A take waits on two queues, of which one has its next message in a file. 2. Both get something to
/// hand out at once. 3. The one in the file was looked at first, had no room in memory, and the take was refused.
#[test]
fn a_take_that_waits_passes_over_queues_whose_next_message_has_no_room_in_memory() {
    let (_disk, mut store, _) = crammed();
    let engine = store.engine.clone();
    let end = store.now().saturating_after(1_000);
    for name in ["q", "other"] {
        let pause = vec![SettingChange::Set(Setting::Pause(Pause::Until(end)))];
        store.run(engine.configure(queue(name), pause)).unwrap();
    }
    let take = Take::from_all([queue("q"), queue("other")]).max(10).wait_ms(5_000);
    let mut call = pin!(engine.take(take));
    let mut context = Context::from_waker(Waker::noop());
    assert!(call.as_mut().poll(&mut context).is_pending());
    store.driver.turn();
    assert!(call.as_mut().poll(&mut context).is_pending());
    store.clock.advance(1_000);
    store.driver.turn();
    let Poll::Ready(taken) = call.as_mut().poll(&mut context) else { panic!("both are due") };
    let taken = taken.unwrap();
    let bodies: Vec<&[u8]> = taken.iter().map(|delivery| delivery.message.body.as_ref()).collect();
    assert_eq!(bodies, [b"in memory"]);
}

/// Crash story: of each file one message is leased for long, and all others are gone. 1. A checkpoint keeps the file of
/// a leased message, since it has its body. 2. So all files stayed, whole.
#[test]
fn a_few_leased_messages_do_not_keep_all_files() {
    let mut store = open();
    for number in 0..2_000_u64 {
        let put = Put::new(queue("q"), vec![7; 2_000]).after_ms(HOUR_MS + number);
        store.put(put).unwrap();
    }
    store.advance(2 * HOUR_MS);
    let (mut held, mut seen) = (Vec::new(), 0);
    while seen < 2_000 {
        for delivery in store.take(Take::from(queue("q")).max(20).lease_ms(30 * DAY_MS)).unwrap() {
            seen += 1;
            if seen % 100 == 0 {
                held.push(delivery.receipt);
            } else {
                store.settle(Settle { receipt: delivery.receipt, action: Action::Ack }).unwrap();
            }
        }
        store.advance(1);
    }
    // Others come and go, so that messages are written from time to time.
    for _ in 0..20 {
        put_far(&mut store, "far", 100);
        let engine = store.engine.clone();
        store.run(engine.purge(queue("far"))).unwrap();
        (0..200).for_each(|_| store.advance(1));
    }
    let (used, live) = (store.disk.used(), 20 * 2_100);
    assert!(used <= 2 * live + 6 * 64 * 1024 + 150_000, "{used} bytes for {live}");
    let mut store = again(store);
    for receipt in held {
        store.settle(Settle { receipt, action: Action::Ack }).unwrap();
    }
}

/// Crash story: bodies are so large that few messages make a file. 1. Files of few messages counted as small, however
/// long they are, and many of them were rewritten together. 2. The resulting files had few messages too.
#[test]
fn files_of_few_large_messages_are_not_small() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let opened = Options { memory_limit: 1 << 20, segment_bytes: 256 * 1024, ..small(&disk, &clock) };
    let mut store = Driven::open(disk, clock, opened).unwrap();
    let (count, len) = (1_000_u64, 150_000);
    for number in 0..count {
        let put = Put::new(queue("q"), vec![7; len]).after_ms(DAY_MS + number);
        store.put(put).unwrap();
    }
    (0..100).for_each(|_| store.advance(1));
    let Counters { table_bytes, body_writes, tables, .. } = store.engine.counters();
    assert!(tables > 32, "{tables} files");
    assert_eq!(body_writes, 2, "to the journal, and to a file");
    let bytes = count * len as u64;
    assert!(table_bytes <= bytes + bytes / 10, "{table_bytes} bytes were written of {bytes}");
}

/// Crash story: messages with large bodies are cancelled. 1. The settled part of files was counted in messages, and a
/// generation of them may stay. 2. That is the same number as for small ones, and a thousand times the bytes.
#[test]
fn the_room_of_a_few_large_messages_comes_back() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let opened = Options { memory_limit: 4 << 20, ..small(&disk, &clock) };
    let mut store = Driven::open(disk, clock, opened).unwrap();
    let mut ids = Vec::new();
    for number in 0..1_000_u64 {
        let put = Put::new(queue("q"), vec![7; 50_000]).after_ms(DAY_MS + number);
        ids.push(store.put(put).unwrap().id);
    }
    let engine = store.engine.clone();
    for some in ids.chunks(50) {
        let targets = some.iter().map(|id| Target::Id(*id)).collect();
        assert!(store.run(engine.cancel(queue("q"), targets)).iter().all(Result::is_ok));
    }
    (0..2_000).for_each(|_| store.advance(1));
    let used = store.disk.used();
    assert!(used <= 3 * (4 << 20), "{used} bytes are used, and nothing is there: {:?}", engine.counters());
}

/// A body is written to the journal, to the file to which its message is flushed, and to another when most of that file
/// is gone.
#[test]
fn a_body_that_is_moved_has_been_written_once_more() {
    let mut store = open();
    let mut ids = Vec::new();
    for number in 0..2_000_u64 {
        let put = Put::new(queue("q"), format!("{number:0100}")).after_ms(DAY_MS + number);
        ids.push(store.put(put).unwrap().id);
    }
    (0..100).for_each(|_| store.advance(1));
    let written = store.engine.counters().body_writes;
    let engine = store.engine.clone();
    let gone: Vec<Target> =
        (0..2_000).filter(|at| at % 5 != 0).map(|at: usize| Target::Id(ids[at])).collect();
    for some in gone.chunks(50) {
        assert!(store.run(engine.cancel(queue("q"), some.to_vec())).iter().all(Result::is_ok));
    }
    (0..2_000).for_each(|_| store.advance(1));
    assert_eq!((written, engine.counters().body_writes), (2, 3), "{:?}", engine.counters());
}
