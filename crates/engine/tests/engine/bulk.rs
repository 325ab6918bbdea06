//! Revives and discards of many: slice by slice, within memory, and cut short by everything that may happen.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dwell_engine::disk::{Calls, Crash, Disk as _, Fault, MemoryDisk};
use dwell_engine::{Counters, Options};
use dwell_model::{MessageId, StateKind};
use dwell_store::{
    Action, BulkOutcome, Put, Result, Selection, Settle, StateCounts, Store, Take, Target, When,
};
use dwell_time::ManualClock;

use crate::blocked_creation::{Door, DoorDisk};
use crate::support::{Driven, dir, options, queue, start};

/// About a hundred messages.
const LIMIT: u64 = 64 * 1024;
const HOUR_MS: u64 = 3_600_000;

/// Buries this number of messages of queue `q`.
fn bury(store: &mut Driven, count: usize) {
    let engine = store.engine.clone();
    for _ in 0..count / 20 {
        let puts = (0..20).map(|_| Put::new(queue("q"), "x")).collect();
        assert!(store.run_patiently(engine.put(puts)).iter().all(Result::is_ok));
        let taken = store.run(engine.take(Take::from(queue("q")).max(20))).unwrap();
        assert_eq!(taken.len(), 20);
        let action = Action::Bury { reason: None, priority: None };
        let settles = taken.into_iter().map(|one| Settle { receipt: one.receipt, action: action.clone() });
        assert!(store.run(engine.settle(settles.collect())).iter().all(Result::is_ok));
    }
}

fn counts(store: &mut Driven) -> StateCounts {
    let engine = store.engine.clone();
    store.run(engine.stats(queue("q"))).unwrap().counts
}

type Reviving = Pin<Box<dyn Future<Output = Result<BulkOutcome>>>>;

fn revive(store: &Driven) -> Reviving {
    let engine = store.engine.clone();
    Box::pin(async move { engine.revive(queue("q"), Selection::All, When::AfterMs(60_000)).await })
}

fn answer<T>(future: &mut Pin<Box<dyn Future<Output = T>>>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

fn turns(store: &mut Driven, count: u64) {
    for _ in 0..count {
        store.driver.turn();
    }
}

#[test]
fn memory_is_bounded_and_others_are_served_while_all_are_revived() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options {
        memory_limit: LIMIT,
        segment_bytes: 64 * 1024,
        bulk_per_call: 10,
        ..options(&disk, &clock)
    };
    let mut store = Driven::open(disk, clock, options).unwrap();
    bury(&mut store, 2_000);
    let mut reviving = revive(&store);
    let (mut turns, mut flushes) = (0, store.engine.counters().flushes);
    let swept = loop {
        if let Some(answer) = answer(&mut reviving) {
            break answer.unwrap();
        }
        // Other calls are answered in the turn of the next slice.
        let engine = store.engine.clone();
        let mut stats = pin!(engine.stats(queue("q")));
        let mut context = Context::from_waker(Waker::noop());
        assert!(stats.as_mut().poll(&mut context).is_pending());
        store.driver.turn();
        let Poll::Ready(stats) = stats.as_mut().poll(&mut context) else { panic!("it waits for the sweep") };
        let StateCounts { scheduled, dead, .. } = stats.unwrap().counts;
        assert_eq!(scheduled + dead, 2_000, "each is one or the other");
        let Counters { resident, resident_bytes, .. } = store.engine.counters();
        assert!(resident_bytes <= LIMIT && resident <= LIMIT / 224, "{resident} in {resident_bytes} bytes");
        turns += 1;
        assert!(turns < 100_000, "it comes to an end");
    };
    assert_eq!(swept, BulkOutcome { done: 2_000, ..BulkOutcome::default() });
    flushes = store.engine.counters().flushes - flushes;
    assert!(turns >= 200 && flushes > 5, "{turns} turns, {flushes} checkpoints");
}

#[test]
fn a_crash_after_any_slice_leaves_a_part_of_it() {
    for slices in 0..12 {
        let mut store = Driven::new();
        bury(&mut store, 20);
        let mut reviving = revive(&store);
        assert!(answer(&mut reviving).is_none());
        turns(&mut store, slices);
        drop(reviving);
        let (disk, clock) = store.kill();
        disk.power_on(Crash::Drop);
        let mut store = Driven::on(disk, clock);
        let StateCounts { scheduled, dead, .. } = counts(&mut store);
        // Two a slice.
        assert_eq!((scheduled, dead), ((2 * slices).min(20), 20 - (2 * slices).min(20)));
        let mut reviving = revive(&store);
        assert_eq!(store.run(&mut reviving).unwrap().done, dead);
        assert_eq!(counts(&mut store).scheduled, 20);
    }
}

#[test]
fn who_closes_the_store_ends_it_and_the_next_call_goes_on() {
    let mut store = Driven::new();
    bury(&mut store, 20);
    let mut reviving = revive(&store);
    assert!(answer(&mut reviving).is_none());
    turns(&mut store, 3);
    let (disk, clock) = store.close();
    let said = answer(&mut reviving).unwrap().unwrap_err();
    assert_eq!(said.code(), "outcome_unknown");
    assert!(said.to_string().contains("6 of 20 dead messages were revived"), "{said}");
    let mut store = Driven::on(disk, clock);
    let mut reviving = revive(&store);
    assert_eq!(store.run(&mut reviving).unwrap().done, 14);
}

#[test]
fn a_disk_that_fails_in_the_middle_leaves_nobody_without_an_answer() {
    let mut store = Driven::new();
    bury(&mut store, 20);
    let mut reviving = revive(&store);
    assert!(answer(&mut reviving).is_none());
    store.driver.turn();
    store.disk.fail(Fault { calls: Calls::Syncs, after: 1, times: 1, error: io::ErrorKind::Other });
    turns(&mut store, 4);
    assert_eq!(answer(&mut reviving).unwrap().unwrap_err().code(), "outcome_unknown");
}

#[test]
fn where_nothing_can_be_flushed_it_ends_until_it_can() {
    let clock = ManualClock::new(start());
    let door = DoorDisk::new(MemoryDisk::new());
    let options = Options {
        memory_limit: LIMIT,
        segment_bytes: 64 * 1024,
        disk: Arc::new(door.clone()),
        ..options(&MemoryDisk::new(), &clock)
    };
    let mut store = Driven::open(MemoryDisk::new(), clock, options).unwrap();
    bury(&mut store, 1_000);
    // Until a flush has just been done, and there is room for some.
    let (engine, before) = (store.engine.clone(), store.engine.counters().flushes);
    while engine.counters().flushes == before {
        store.run_patiently(engine.put(vec![Put::new(queue("far"), "x").after_ms(86_400_000)]));
    }
    turns(&mut store, 500);
    door.set(Door::Barred);
    let mut reviving = revive(&store);
    let mut refused = None;
    for _ in 0..10_000 {
        store.driver.turn();
        refused = answer(&mut reviving);
        if refused.is_some() {
            break;
        }
    }
    let said = refused.unwrap().unwrap_err();
    assert_eq!((said.code(), said.is_retryable()), ("outcome_unknown", true));
    let StateCounts { scheduled, dead, .. } = counts(&mut store);
    assert!(said.to_string().contains(&format!("{scheduled} of 1000 dead messages")), "{said}");
    assert!(scheduled > 0 && dead > 0, "{scheduled} and {dead}");
    door.set(Door::Open);
    store.advance(1_000);
    let mut reviving = revive(&store);
    let mut left = None;
    while left.is_none() {
        store.driver.turn();
        left = answer(&mut reviving);
    }
    assert_eq!(left.unwrap().unwrap().done, dead);
}

fn tables(store: &Driven) -> BTreeSet<String> {
    store.disk.list(dir()).unwrap().into_iter().filter(|name| name.starts_with("table-")).collect()
}

/// Crash story: 1. A revive of all is in progress. 2. Other messages expire in their files. 3. Most of these files is
/// cancelled, and what is left is moved into other files, as dead messages. 4. Some that the revive includes are
/// discarded. 5. It brought those back that had expired since, in their place.
#[test]
fn what_expires_during_a_revive_and_is_moved_stays_dead() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options { memory_limit: LIMIT, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    bury(&mut store, 800);
    let engine = store.engine.clone();
    let page = store.run(engine.list(queue("q"), StateKind::Dead, None, 1_000)).unwrap();
    let mut buried: Vec<MessageId> = page.messages.iter().map(|message| message.id).collect();
    buried.sort_unstable();
    // Before that the buried ones leave memory.
    let mut cancelled = Vec::new();
    for _ in 0..100 {
        let put = |i: i64| {
            let mut put = Put::new(queue("q"), "x").after_ms(HOUR_MS);
            put.expires = (i == 0).then(|| start().after(2 * HOUR_MS).unwrap());
            put
        };
        let answers = store.run_patiently(engine.put((0..20).map(put).collect()));
        let ids = answers.into_iter().map(|answer| answer.unwrap().id);
        cancelled.extend(ids.skip(1).map(Target::Id));
    }
    let before = tables(&store);
    let mut reviving: Reviving = {
        let engine = store.engine.clone();
        Box::pin(async move { engine.revive(queue("q"), Selection::All, When::AfterMs(10 * HOUR_MS)).await })
    };
    assert!(answer(&mut reviving).is_none());
    turns(&mut store, 1);
    store.clock.advance(2 * HOUR_MS);
    for some in cancelled.chunks(950) {
        let answers = store.run(engine.cancel(queue("q"), some.to_vec()));
        assert!(answers.iter().all(Result::is_ok));
    }
    let gone = |store: &Driven| before.difference(&tables(store)).count();
    for _ in 0..390 {
        if gone(&store) >= 5 {
            break;
        }
        turns(&mut store, 1);
        // The revive does a slice a turn, and should not come to its end.
        while store.driver.step(0) {}
    }
    assert!(gone(&store) >= 5, "{} of {} files are given up", gone(&store), before.len());
    assert!(answer(&mut reviving).is_none());
    let discarded = store.run(engine.discard(queue("q"), Selection::Ids(buried.split_off(750)))).unwrap();
    assert_eq!(discarded.done, 50);
    let mut asked = 0;
    let revived = loop {
        match answer(&mut reviving) {
            Some(answer) => break answer.unwrap().done,
            None => turns(&mut store, 1),
        }
        asked += 1;
        assert!(asked < 100_000, "it comes to an end");
    };
    assert_eq!((revived, counts(&mut store).dead), (750, 100));
}
