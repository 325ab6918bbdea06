//! Messages that expire while they are in tables alone: many at one instant, and with unreadable parts.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use dwell_engine::disk::{Calls, Crash, Disk as _, Fault, MemoryDisk, Sizes};
use dwell_engine::{Engine, Options};
use dwell_model::{Cursor, Key, OnExpiry, Setting, SettingChange, StateKind};
use dwell_store::{Error, Put, Selection, Store, Take, Target, When};
use dwell_time::ManualClock;

use crate::support::{Driven, dir, options, queue, start};

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
const MANY: u64 = 5_000;
/// A number of expiries per turn that is smaller than the number that expire at once.
const FEW: usize = 100;

/// A store that keeps about sixty messages in memory and looks at `expired_per_turn` expiries a turn.
fn small(disk: MemoryDisk, clock: ManualClock, expired_per_turn: usize) -> Driven {
    let options = Options { memory_limit: 16 * 1024, expired_per_turn, ..options(&disk, &clock) };
    Driven::open(disk, clock, options).unwrap()
}

fn fresh(expired_per_turn: usize) -> Driven {
    small(MemoryDisk::new(), ManualClock::new(start()), expired_per_turn)
}

/// The same store, opened again.
fn reopened(store: Driven, expired_per_turn: usize) -> Driven {
    let (disk, clock) = store.close();
    small(disk, clock, expired_per_turn)
}

/// Puts messages that are due in an hour and expire an hour later, a few in a call.
fn put_expiring(store: &mut Driven, name: &str, count: u64) {
    let expires = start().after(2 * HOUR_MS).unwrap();
    let puts: Vec<Put> = (0..count)
        .map(|i| Put { expires: Some(expires), ..Put::new(queue(name), format!("{i}")).after_ms(HOUR_MS) })
        .collect();
    put_all(store, puts);
}

/// Puts messages that are due in two hours.
fn put_lasting(store: &mut Driven, name: &str, count: u64) {
    let puts = (0..count).map(|i| Put::new(queue(name), format!("lasts {i}")).after_ms(2 * HOUR_MS));
    put_all(store, puts.collect());
}

fn put_all(store: &mut Driven, mut puts: Vec<Put>) {
    let engine = store.engine.clone();
    while !puts.is_empty() {
        let some = puts.split_off(puts.len().saturating_sub(40));
        let call = engine.put(some);
        store.run_patiently(call).into_iter().for_each(|put| assert!(put.is_ok(), "{put:?}"));
    }
}

fn counts(store: &mut Driven, name: &str) -> (u64, u64) {
    let engine = store.engine.clone();
    let counts = store.run(engine.stats(queue(name))).unwrap().counts;
    (counts.scheduled + counts.ready, counts.dead)
}

fn poll<F: Future + ?Sized>(call: Pin<&mut F>) -> Option<F::Output> {
    match call.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

/// Records its name when it is woken.
struct Woken {
    name: &'static str,
    order: Arc<Mutex<Vec<&'static str>>>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.order.lock().unwrap().push(self.name);
    }
}

/// The number of messages in a state, by the pages of a list.
fn listed(store: &mut Driven, name: &str, state: StateKind, page: usize) -> usize {
    let (engine, mut after, mut count): (_, Option<Cursor>, _) = (store.engine.clone(), None, 0);
    loop {
        let found = store.run(engine.list(queue(name), state, after, page)).unwrap();
        count += found.messages.len();
        after = found.next;
        if after.is_none() {
            return count;
        }
    }
}

/// Crash story: 1. Many messages expire in a queue that drops expired messages, which takes many turns. 2. Stats, lists
/// and purges of all other queues waited for the last of them.
#[test]
fn what_one_queue_drops_holds_up_no_calls_of_others() {
    let mut store = fresh(Options::default().expired_per_turn);
    let engine = store.engine.clone();
    let drops = vec![SettingChange::Set(Setting::OnExpiry(OnExpiry::Drop))];
    store.run(engine.configure(queue("drops"), drops)).unwrap();
    // Alternately, so that they are in the same files.
    for _ in 0..20 {
        put_expiring(&mut store, "drops", MANY / 20);
        put_expiring(&mut store, "other", 5);
        put_lasting(&mut store, "other", 5);
    }
    store.rest();
    store.clock.advance(2 * HOUR_MS);
    let order: Arc<Mutex<Vec<&str>>> = Arc::default();
    let waker = |name| Waker::from(Arc::new(Woken { name, order: Arc::clone(&order) }));
    let mut dropped = pin!(engine.stats(queue("drops")));
    let mut stats = pin!(engine.stats(queue("other")));
    let mut list = pin!(engine.list(queue("other"), StateKind::Dead, None, 1_000));
    let mut purge = pin!(engine.purge(queue("other")));
    assert!(dropped.as_mut().poll(&mut Context::from_waker(&waker("dropped"))).is_pending());
    assert!(stats.as_mut().poll(&mut Context::from_waker(&waker("stats"))).is_pending());
    assert!(list.as_mut().poll(&mut Context::from_waker(&waker("list"))).is_pending());
    assert!(purge.as_mut().poll(&mut Context::from_waker(&waker("purge"))).is_pending());
    store.driver.turn();
    assert_eq!(*order.lock().unwrap(), ["stats", "list", "purge", "dropped"]);
    let counts = poll(stats).expect("it was woken").unwrap().counts;
    assert_eq!((counts.scheduled + counts.ready, counts.dead), (100, 100));
    assert_eq!(poll(list).expect("it was woken").unwrap().messages.len(), 100);
    assert_eq!(poll(purge).expect("it was woken"), Ok(100));
    let dropped = poll(dropped).expect("it was woken").unwrap();
    let left = dropped.counts.scheduled + dropped.counts.ready + dropped.counts.dead;
    assert!(left == 0 && !dropped.own.is_empty(), "its setting keeps the queue: {dropped:?}");
}

#[test]
fn a_purge_as_the_first_call_leaves_all_that_has_expired() {
    for expired_per_turn in [FEW, Options::default().expired_per_turn] {
        let mut store = fresh(expired_per_turn);
        put_expiring(&mut store, "q", MANY);
        store.clock.advance(2 * HOUR_MS);
        let engine = store.engine.clone();
        assert_eq!(store.run(engine.purge(queue("q"))), Ok(0));
        assert_eq!(counts(&mut store, "q"), (0, MANY));
        assert_eq!(listed(&mut store, "q", StateKind::Dead, 500), MANY as usize);
    }
}

#[test]
fn a_purge_after_an_opening_leaves_what_has_expired_and_nothing_else() {
    let (over, pending) = (20_000, 10);
    let mut store = fresh(1_000);
    put_expiring(&mut store, "q", over);
    put_lasting(&mut store, "q", pending);
    let (disk, clock) = store.close();
    clock.advance(2 * HOUR_MS);
    let mut store = small(disk, clock, 1_000);
    let engine = store.engine.clone();
    assert_eq!(store.run(engine.purge(queue("q"))), Ok(pending));
    assert_eq!(counts(&mut store, "q"), (0, over));
    // The same holds after a restart.
    let mut store = reopened(store, 1_000);
    assert_eq!(counts(&mut store, "q"), (0, over));
}

#[test]
fn a_purge_is_replayed_as_it_was() {
    let mut store = fresh(FEW);
    put_expiring(&mut store, "q", 600);
    put_lasting(&mut store, "q", 600);
    store.clock.advance(2 * HOUR_MS);
    let engine = store.engine.clone();
    assert_eq!(store.run(engine.purge(queue("q"))), Ok(600));
    let (disk, clock) = store.kill();
    disk.power_on(Crash::Keep);
    let mut store = small(disk, clock, 16 * 1024);
    assert_eq!(counts(&mut store, "q"), (0, 600));
}

#[test]
fn a_discard_of_all_as_the_first_call_takes_all_that_has_expired() {
    for which in [Selection::All, Selection::Oldest(u64::MAX)] {
        let mut store = fresh(FEW);
        put_expiring(&mut store, "q", MANY);
        put_lasting(&mut store, "q", 10);
        store.clock.advance(2 * HOUR_MS);
        let engine = store.engine.clone();
        assert_eq!(store.run(engine.discard(queue("q"), which)).unwrap().done, MANY);
        assert_eq!(counts(&mut store, "q"), (10, 0));
    }
}

#[test]
fn a_delete_as_the_first_call_takes_all_that_has_expired_and_nothing_of_other_queues() {
    for reopens in [false, true] {
        let mut store = fresh(FEW);
        for name in ["q", "other"] {
            put_expiring(&mut store, name, MANY);
            put_lasting(&mut store, name, 10);
        }
        assert!(store.engine.counters().cold > 2 * MANY - 200, "{:?}", store.engine.counters());
        store.clock.advance(2 * HOUR_MS - 1);
        if reopens {
            store = reopened(store, FEW);
        }
        store.clock.advance(1);
        let engine = store.engine.clone();
        assert_eq!(store.run(engine.delete_queue(queue("q"))), Ok(MANY + 10));
        assert_eq!(store.run(engine.stats(queue("q"))).unwrap_err().code(), "unknown_queue");
        drop(engine);
        assert_eq!(counts(&mut store, "other"), (10, MANY));
        let (disk, clock) = store.kill();
        disk.power_on(Crash::Drop);
        let mut store = small(disk, clock, FEW);
        // A new queue of that name brings none of them back.
        store.put(Put::new(queue("q"), "anew").after_ms(DAY_MS)).unwrap();
        assert_eq!((counts(&mut store, "q"), counts(&mut store, "other")), ((1, 0), (10, MANY)));
        let mut store = reopened(store, FEW);
        assert_eq!((counts(&mut store, "q"), counts(&mut store, "other")), ((1, 0), (10, MANY)));
        assert_eq!(listed(&mut store, "other", StateKind::Dead, 500), MANY as usize);
    }
}

#[test]
fn a_revive_as_the_first_call_brings_back_all_that_has_expired() {
    let many = 8_000;
    for which in [Selection::All, Selection::Oldest(many)] {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
        let options = Options { memory_limit: 1024 * 1024, bulk_per_call: 400, ..options(&disk, &clock) };
        let mut store = Driven::open(disk, clock, options).unwrap();
        put_expiring(&mut store, "q", many);
        assert!(store.engine.counters().cold > 5_000, "{:?}", store.engine.counters());
        store.clock.advance(2 * HOUR_MS);
        let engine = store.engine.clone();
        let mut call = pin!(engine.revive(queue("q"), which, When::AfterMs(DAY_MS)));
        let mut turns = 0;
        let revived = loop {
            if let Some(answer) = poll(call.as_mut()) {
                break answer.unwrap().done;
            }
            store.driver.turn();
            turns += 1;
            assert!(turns < 20_000, "it comes to an end");
        };
        assert_eq!(revived, many);
        assert_eq!(counts(&mut store, "q"), (many, 0));
    }
}

#[test]
fn a_list_says_that_more_follows_behind_what_has_expired() {
    let mut store = fresh(FEW);
    put_expiring(&mut store, "q", MANY);
    put_lasting(&mut store, "q", 300);
    store.clock.advance(2 * HOUR_MS - 1);
    let mut store = reopened(store, FEW);
    store.clock.advance(1);
    assert_eq!(listed(&mut store, "q", StateKind::Ready, 100), 300);
    let engine = store.engine.clone();
    put_lasting(&mut store, "r", 3);
    assert!(store.run(engine.peek(queue("r"), StateKind::Scheduled)).unwrap().is_some());
}

#[test]
fn a_peek_finds_what_is_scheduled_behind_what_has_expired() {
    let mut store = fresh(FEW);
    let over = start().after(2 * HOUR_MS).unwrap();
    // They are due a millisecond before they expire.
    let early =
        |i| Put { expires: Some(over), ..Put::new(queue("q"), format!("{i}")).after_ms(2 * HOUR_MS - 1) };
    put_all(&mut store, (0..MANY).map(early).collect());
    put_all(
        &mut store,
        (0..10).map(|i| Put::new(queue("q"), format!("lasts {i}")).after_ms(3 * HOUR_MS)).collect(),
    );
    store.clock.advance(2 * HOUR_MS);
    let engine = store.engine.clone();
    let found = store.run(engine.peek(queue("q"), StateKind::Scheduled)).unwrap();
    assert!(found.is_some_and(|found| found.body.starts_with(b"lasts")));
    let oldest = store.run(engine.peek(queue("q"), StateKind::Dead)).unwrap();
    assert!(oldest.is_some());
}

#[test]
fn stats_count_what_has_expired_and_it_takes_no_room() {
    let mut store = fresh(FEW);
    let engine = store.engine.clone();
    put_expiring(&mut store, "q", MANY);
    let limit = vec![SettingChange::Set(Setting::MaxPending(MANY))];
    store.run(engine.configure(queue("q"), limit)).unwrap();
    let full = store.put(Put::new(queue("q"), "one more")).unwrap_err();
    assert!(matches!(full, Error::QueueFull { .. }), "{full}");
    store.clock.advance(2 * HOUR_MS);
    store.put(Put::new(queue("q"), "one more").after_ms(DAY_MS)).unwrap();
    assert_eq!(counts(&mut store, "q"), (1, MANY));
}

#[test]
fn a_clock_that_steps_back_brings_nothing_to_life_that_had_expired() {
    for reopens in [false, true] {
        let mut store = fresh(FEW);
        put_expiring(&mut store, "q", MANY);
        put_lasting(&mut store, "q", 5);
        store.clock.advance(2 * HOUR_MS);
        // Any call records the latest time.
        let engine = store.engine.clone();
        store.run(engine.stats(queue("none"))).unwrap_err();
        if reopens {
            store = reopened(store, FEW);
        }
        store.clock.step_wall(start().after(HOUR_MS + 1).unwrap());
        assert_eq!(counts(&mut store, "q"), (5, MANY));
        let taken = store.take(Take::from(queue("q")).max(1_000)).unwrap();
        assert!(taken.iter().all(|taken| taken.message.body.starts_with(b"lasts")));
        let mut store = reopened(store, FEW);
        let (_, dead) = counts(&mut store, "q");
        assert_eq!(dead, MANY, "nor does an opening");
        // What was put after the step expires by the present clock.
        let expires = start().after(HOUR_MS + 60_000).unwrap();
        let late = Put { expires: Some(expires), ..Put::new(queue("late"), "late") };
        store.put(late).unwrap();
        put_lasting(&mut store, "far", 500);
        assert_eq!(counts(&mut store, "late"), (1, 0));
        store.clock.advance(60_000);
        assert_eq!(counts(&mut store, "late"), (0, 1));
    }
}

#[test]
fn what_has_died_by_its_expiry_leaves_memory() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    const LIMIT: u64 = 64 * 1024;
    let options = Options { memory_limit: LIMIT, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    put_expiring(&mut store, "q", 2_000);
    store.advance(2 * HOUR_MS);
    assert_eq!(counts(&mut store, "q"), (0, 2_000));
    for _ in 0..300 {
        store.advance(1_000);
        let engine = store.engine.clone();
        store.run(engine.stats(queue("none"))).unwrap_err();
    }
    let counters = store.engine.counters();
    assert!(counters.resident <= LIMIT / 224, "{counters:?}");
    assert_eq!(counters.resident + counters.cold, 2_000);
    // Nor do those stay in memory that were there when they died, round after round.
    for round in 1..=8 {
        let expires = store.now().after(HOUR_MS).unwrap();
        let puts = (0..150).map(|i| Put {
            expires: Some(expires),
            ..Put::new(queue("q"), format!("{i}")).after_ms(HOUR_MS / 2)
        });
        put_all(&mut store, puts.collect());
        store.advance(HOUR_MS);
        assert_eq!(counts(&mut store, "q"), (0, 2_000 + round * 150));
        for _ in 0..50 {
            store.advance(1_000);
            let engine = store.engine.clone();
            store.run(engine.stats(queue("none"))).unwrap_err();
        }
        let counters = store.engine.counters();
        assert!(counters.resident <= LIMIT / 224, "round {round}: {counters:?}");
    }
    // Those that expired while they were in memory have left it too, in a queue that no call names.
    put_lasting(&mut store, "far", 2_000);
    let counters = store.engine.counters();
    assert!(counters.resident <= LIMIT / 224, "{counters:?}");
}

/// A take over many times what memory holds: no expired message becomes resident, and the batches stay small.
#[test]
fn a_take_over_many_that_have_expired_hands_out_the_first_that_lives() {
    let mut store = fresh(64);
    put_expiring(&mut store, "q", 20_000);
    put_lasting(&mut store, "q", 3);
    let (disk, clock) = store.close();
    clock.advance(2 * HOUR_MS);
    let mut store = small(disk, clock, 64);
    let (batches, written) = (store.engine.counters().batches, store.engine.counters().disk.written_bytes);
    let engine = store.engine.clone();
    store.put(Put::new(queue("other"), "here")).unwrap();
    let mut first = pin!(engine.take(Take::from(queue("q")).max(10)));
    let mut other = pin!(engine.take(Take::from(queue("other"))));
    assert!(poll(first.as_mut()).is_none() && poll(other.as_mut()).is_none());
    store.driver.turn();
    assert_eq!(poll(other.as_mut()).expect("it waits for no other").unwrap().len(), 1);
    let taken = store.run(first).unwrap();
    assert_eq!(taken.len(), 3);
    let counters = store.engine.counters();
    assert!(counters.resident < 600, "{counters:?}");
    let (batches, written) = (counters.batches - batches, counters.disk.written_bytes - written);
    assert!(written < 200 * 1024, "{written} bytes in {batches} batches");
    assert_eq!(counts(&mut store, "q"), (0, 20_000));
}

#[test]
fn a_take_that_waits_is_answered_from_behind_what_has_expired() {
    let mut store = fresh(64);
    put_expiring(&mut store, "q", MANY);
    put_lasting(&mut store, "q", 1);
    store.clock.advance(2 * HOUR_MS - 1);
    let mut store = reopened(store, 64);
    store.clock.advance(1);
    let engine = store.engine.clone();
    let taken = store.run(engine.take(Take::from(queue("q")).wait_ms(60_000))).unwrap();
    assert_eq!(taken.len(), 1);
}

#[test]
fn a_kill_in_the_middle_changes_nothing() {
    let mut store = fresh(64);
    put_expiring(&mut store, "q", MANY);
    put_lasting(&mut store, "q", 7);
    store.clock.advance(2 * HOUR_MS);
    for _ in 0..5 {
        let engine = store.engine.clone();
        store.run(engine.take(Take::from(queue("none")))).unwrap();
        let (disk, clock) = store.kill();
        disk.power_on(Crash::Keep);
        store = small(disk, clock, 64);
    }
    let engine = store.engine.clone();
    assert_eq!(store.run(engine.purge(queue("q"))), Ok(7));
    assert_eq!(counts(&mut store, "q"), (0, MANY));
}

/// Dead messages that stay, many more than a turn looks at, hide nothing that expires after them.
#[test]
fn what_expires_is_found_behind_many_that_have_died_long_ago() {
    let mut store = fresh(16);
    put_expiring(&mut store, "q", 3_000);
    store.advance(2 * HOUR_MS);
    assert_eq!(counts(&mut store, "q"), (0, 3_000));
    let expires = start().after(4 * HOUR_MS).unwrap();
    let puts = (0..10)
        .map(|i| Put { expires: Some(expires), ..Put::new(queue("q"), format!("{i}")).after_ms(HOUR_MS) });
    put_all(&mut store, puts.collect());
    put_lasting(&mut store, "far", 500);
    let mut store = reopened(store, 16);
    store.advance(3 * HOUR_MS);
    let engine = store.engine.clone();
    assert_eq!(store.run(engine.purge(queue("q"))), Ok(0));
    assert_eq!(counts(&mut store, "q"), (0, 3_010));
}

#[test]
fn what_has_expired_is_found_by_its_id_and_its_key_is_free() {
    let mut store = fresh(FEW);
    let key = || Some(Key::new("the key").unwrap());
    let expires = start().after(2 * HOUR_MS).unwrap();
    let put = Put { expires: Some(expires), key: key(), ..Put::new(queue("q"), "old").after_ms(HOUR_MS) };
    let old = store.put(put).unwrap();
    put_lasting(&mut store, "far", 500);
    store.advance(2 * HOUR_MS);
    assert_eq!(counts(&mut store, "q"), (0, 1));
    let engine = store.engine.clone();
    let by_id = store.run(engine.get(queue("q"), vec![Target::Id(old.id)], false)).pop().unwrap().unwrap();
    assert_eq!(by_id.standing.state.kind(), StateKind::Dead);
    assert_eq!(by_id.standing.expires, Some(expires));
    store.put(Put { key: key(), ..Put::new(queue("q"), "new").after_ms(DAY_MS) }).unwrap();
    let refused = store.run(engine.revive(queue("q"), Selection::Ids(vec![old.id]), When::AfterMs(DAY_MS)));
    assert_eq!(refused.unwrap().refused_in_all, 1);
    let mut store = reopened(store, FEW);
    assert_eq!(counts(&mut store, "q"), (1, 1));
}

/// The number of expiring messages per queue.
const COUNT: u64 = 60;
const KEY: &str = "a key like no other";

/// A store that keeps about sixty messages in memory. In `q` and in `other` some expire after two hours, one of those
/// in `q` has a key; they are in tables alone.
fn filled() -> Driven {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options { memory_limit: 16 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    for name in ["q", "other"] {
        for i in 0..COUNT {
            let expires = start().after(2 * HOUR_MS).unwrap();
            let put = Put { expires: Some(expires), ..Put::new(queue(name), format!("{name} {i}")) };
            let key = (name == "q" && i == 7).then(|| Key::new(KEY).unwrap());
            store.put(Put { key, ..put.after_ms(HOUR_MS) }).unwrap();
        }
        for i in 0..300 {
            store.put(Put::new(queue("far"), format!("far {i}")).after_ms(30 * DAY_MS)).unwrap();
        }
    }
    let counters = store.engine.counters();
    assert!(counters.resident < 100 && counters.cold > 2 * COUNT, "{counters:?}");
    store
}

/// The table that has the message with the key.
fn keyed(disk: &MemoryDisk) -> PathBuf {
    let names = disk.list(dir()).unwrap().into_iter().filter(|name| name.starts_with("table-"));
    let mut found = names.filter_map(|name| {
        let path = dir().join(name);
        let bytes = disk.read_file(&path)?;
        let has_key = bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes());
        has_key.then_some(path)
    });
    found.next().expect("the message was flushed")
}

/// The place of its chunk of expiries: behind checksum and length it begins with the first expiry, a varint.
fn chunk(disk: &MemoryDisk) -> (PathBuf, u64) {
    let path = keyed(disk);
    let (mut left, mut varint) = (start().after(2 * HOUR_MS).unwrap().as_ms(), Vec::new());
    while left >= 0x80 {
        varint.push(left as u8 | 0x80);
        left >>= 7;
    }
    varint.push(left as u8);
    let bytes = disk.read_file(&path).unwrap();
    let at = bytes.windows(varint.len()).position(|window| window == varint);
    (path, at.expect("some of it expires") as u64)
}

/// The error codes of all calls that sweep `q`.
fn sweeps(store: &mut Driven) -> Vec<&'static str> {
    let engine = store.engine.clone();
    let mut said = vec![store.run(engine.purge(queue("q"))).map(drop)];
    for which in [Selection::All, Selection::Oldest(1)] {
        said.push(store.run(engine.revive(queue("q"), which.clone(), When::AfterMs(DAY_MS))).map(drop));
        said.push(store.run(engine.discard(queue("q"), which)).map(drop));
    }
    said.into_iter().map(|said| said.map_or_else(|refusal| refusal.code(), |()| "done")).collect()
}

#[test]
fn a_rotten_place_keeps_nothing_else_from_expiring_and_is_not_read_by_each_call() {
    let mut store = filled();
    let (path, at) = chunk(&store.disk);
    store.disk.rot_at(&path, at);
    store.advance(2 * HOUR_MS);
    assert_eq!(counts(&mut store, "other"), (0, COUNT));
    let (pending, dead) = counts(&mut store, "q");
    assert!(pending > 0 && pending + dead == COUNT, "{pending} {dead}");
    let call = |store: &mut Driven| {
        let engine = store.engine.clone();
        store.run(engine.stats(queue("none"))).unwrap_err();
        store.engine.counters().disk.reads
    };
    // The expired messages are flushed again meanwhile.
    (0..200).for_each(|_| _ = call(&mut store));
    let before = call(&mut store);
    (0..50).for_each(|_| _ = call(&mut store));
    assert_eq!(call(&mut store), before);
    for _ in 0..600 {
        store.advance(1_000);
        call(&mut store);
    }
    // After 1, 2, 4, … seconds, and then each minute.
    let tried = call(&mut store) - before;
    assert!((8..=20).contains(&tried), "{tried} reads");
}

#[test]
fn a_queue_is_swept_again_as_soon_as_all_of_it_can_be_read() {
    let mut store = filled();
    let engine = store.engine.clone();
    let (path, at) = chunk(&store.disk);
    store.disk.rot_at(&path, at);
    store.advance(2 * HOUR_MS);
    let before = counts(&mut store, "q");
    assert_eq!(sweeps(&mut store), ["unavailable"; 5]);
    assert_eq!(counts(&mut store, "q"), before);
    let refused = store.run(engine.purge(queue("q"))).unwrap_err();
    assert!(refused.to_string().contains("have expired that cannot be read"), "{refused}");
    assert!(refused.to_string().contains("checksum"), "{refused}");
    assert_eq!(store.run(engine.purge(queue("far"))), Ok(600), "what does not expire lies in other files");
    assert_eq!(store.run(engine.purge(queue("other"))), Ok(0));
    store.disk.heal_rot(|_| true);
    let swept = store.run(engine.discard(queue("q"), Selection::All)).unwrap();
    assert_eq!((swept.done, swept.refused_in_all), (COUNT, 0));
}

#[test]
fn what_can_be_read_again_expires_though_nobody_asks_for_it() {
    let mut store = filled();
    let (path, at) = chunk(&store.disk);
    store.disk.rot_at(&path, at);
    store.advance(2 * HOUR_MS);
    assert_ne!(counts(&mut store, "q"), (0, COUNT));
    store.disk.heal_rot(|_| true);
    store.advance(1_000);
    assert_eq!(counts(&mut store, "q"), (0, COUNT));
}

/// Crash story: 1. Messages have expired, and the journal says what time it was. 2. The power fails, and the clock steps
/// back. 3. While the store is opened, the expiries of a table cannot be read; the place can be read soon after. 4. A list
/// showed the messages as ready, since they had not expired by the present clock.
#[test]
fn what_had_expired_before_a_step_back_stays_dead_though_its_expiry_could_not_be_read_at_the_step() {
    type Look = fn(&mut Driven);
    let get = |store: &mut Driven, target: Target, dead: bool| {
        let engine = store.engine.clone();
        store.run(engine.get(queue("q"), vec![target], dead)).pop().unwrap()
    };
    let key = || Target::Key(Key::new(KEY).unwrap());
    let looks: [(&str, Look); 4] = [
        ("nothing", |_| {}),
        ("list", |store| {
            for state in [StateKind::Scheduled, StateKind::Ready] {
                assert_eq!(listed(store, "q", state, 7), 0, "{state}");
            }
        }),
        ("peek", |store| {
            let engine = store.engine.clone();
            assert_eq!(store.run(engine.peek(queue("q"), StateKind::Ready)).unwrap(), None);
        }),
        ("take", |store| assert!(store.take(Take::from(queue("q")).max(1_000)).unwrap().is_empty())),
    ];
    for (name, look) in looks {
        for reopens in [false, true] {
            let mut store = filled();
            let keyed = get(&mut store, key(), false).unwrap();
            let (path, at) = chunk(&store.disk);
            // They have been due, and have expired, when the clock steps back to before either.
            if reopens {
                store.advance(2 * HOUR_MS);
                assert_eq!(counts(&mut store, "q"), (0, COUNT));
                let (disk, clock) = store.kill();
                disk.power_on(Crash::Keep);
                clock.step_wall(start().after(HOUR_MS / 2).unwrap());
                disk.rot_at(&path, at);
                store = small(disk, clock, 16 * 1024);
            } else {
                store.disk.rot_at(&path, at);
                store.clock.advance(2 * HOUR_MS);
                // Any call records the latest time.
                let engine = store.engine.clone();
                store.run(engine.stats(queue("none"))).unwrap_err();
                store.clock.step_wall(start().after(HOUR_MS / 2).unwrap());
                store.run(engine.stats(queue("none"))).unwrap_err();
            }
            store.disk.heal_rot(|_| true);
            look(&mut store);
            for found in [get(&mut store, Target::Id(keyed.id), false), get(&mut store, key(), true)] {
                let found = found.unwrap();
                assert_eq!(found.id, keyed.id);
                assert_eq!(found.standing.state.kind(), StateKind::Dead, "{name}, {reopens}");
            }
            assert_eq!(listed(&mut store, "q", StateKind::Ready, 7), 0, "{name}, {reopens}");
            assert_eq!(listed(&mut store, "q", StateKind::Scheduled, 7), 0, "{name}, {reopens}");
            store.advance(1_000);
            assert_eq!(counts(&mut store, "q"), (0, COUNT), "{name}, {reopens}");
            assert_eq!(listed(&mut store, "q", StateKind::Dead, 7), COUNT as usize, "{name}, {reopens}");
            let deaths = store.run({
                let engine = store.engine.clone();
                async move { engine.deaths().await }
            });
            let of_q = deaths.unwrap().into_iter().find(|counted| counted.queue == Some(queue("q")));
            if !reopens {
                assert_eq!(of_q.unwrap().deaths.expiry, COUNT, "{name}: each is counted once");
            }
            // And an opening later comes to the same result.
            let (disk, clock) = store.kill();
            disk.power_on(Crash::Keep);
            let mut store = small(disk, clock, 16 * 1024);
            assert_eq!(counts(&mut store, "q"), (0, COUNT), "{name}, {reopens}");
        }
    }
}

#[test]
fn a_queue_that_cannot_be_swept_can_be_deleted() {
    let mut store = filled();
    let engine = store.engine.clone();
    let (path, at) = chunk(&store.disk);
    store.disk.rot_at(&path, at);
    store.advance(2 * HOUR_MS);
    assert_eq!(store.run(engine.purge(queue("q"))).unwrap_err().code(), "unavailable");
    assert_eq!(store.run(engine.delete_queue(queue("q"))), Ok(COUNT));
    assert_eq!(store.run(engine.purge(queue("q"))), Ok(0));
}

/// Damage to each byte of a file in turn, or nearly: blocks, expiries, and what is in memory while the file is open.
#[test]
fn wherever_a_file_is_rotten_all_expire_or_the_queue_is_not_swept() {
    let mut refused = 0;
    let (path, at, len) = {
        let store = filled();
        let (path, at) = chunk(&store.disk);
        let len = store.disk.read_file(&path).unwrap().len() as u64;
        (path, at, len)
    };
    let offsets = (0..len).step_by(1 + len as usize / 40).chain((at - 8..at + 40).step_by(4));
    for offset in offsets {
        let mut store = filled();
        store.disk.rot_at(&path, offset);
        store.advance(2 * HOUR_MS);
        let (pending, dead) = counts(&mut store, "q");
        assert_eq!((pending + dead, counts(&mut store, "other")), (COUNT, (0, COUNT)), "byte {offset}");
        let all_expired = pending == 0;
        let engine = store.engine.clone();
        let purged = store.run(engine.purge(queue("q")));
        assert_eq!(purged.is_ok(), all_expired, "byte {offset}: {purged:?}");
        refused += u64::from(!all_expired);
        store.disk.heal_rot(|_| true);
        assert_eq!(store.run(engine.purge(queue("q"))), Ok(0), "byte {offset}");
        assert_eq!(counts(&mut store, "q"), (0, COUNT), "byte {offset}");
    }
    assert!(refused > 5, "{refused}");
}

/// Its messages are dead, whether they can be read or not.
#[test]
fn a_rotten_block_is_no_reason_to_live() {
    let mut store = filled();
    let path = keyed(&store.disk);
    let bytes = store.disk.read_file(&path).unwrap();
    let at = bytes.windows(KEY.len()).position(|window| window == KEY.as_bytes()).unwrap();
    store.disk.rot_at(&path, at as u64);
    store.advance(2 * HOUR_MS);
    assert_eq!(counts(&mut store, "q"), (0, COUNT));
    let engine = store.engine.clone();
    assert_eq!(store.run(engine.purge(queue("q"))), Ok(0));
    assert_eq!(store.run(engine.discard(queue("q"), Selection::All)).unwrap().done, COUNT);
}

/// Crash story: 1. A block has messages that expire in a queue that drops them, and it cannot be read: they die. 2. The
/// store is opened again, and the block can be read. 3. They were dropped then: nothing said that they had died.
#[test]
fn what_could_not_be_dropped_stays_dead_after_an_opening() {
    for (purges, flushes, is_killed) in
        [(false, false, true), (true, false, true), (false, true, true), (false, false, false)]
    {
        let at = format!("{purges} {flushes} {is_killed}");
        let mut store = filled();
        let engine = store.engine.clone();
        let drops = vec![SettingChange::Set(Setting::OnExpiry(OnExpiry::Drop))];
        store.run(engine.configure(queue("q"), drops)).unwrap();
        let path = keyed(&store.disk);
        let bytes = store.disk.read_file(&path).unwrap();
        let key_at = bytes.windows(KEY.len()).position(|window| window == KEY.as_bytes()).unwrap();
        store.disk.rot_at(&path, key_at as u64);
        store.advance(2 * HOUR_MS);
        let (pending, dead) = counts(&mut store, "q");
        assert!(pending == 0 && dead > 0, "{at}: {pending}, {dead}");
        store.disk.heal_rot(|_| true);
        // What expires later is dropped.
        let expires = Some(store.now().after(HOUR_MS).unwrap());
        store.put(Put { expires, ..Put::new(queue("q"), "later") }).unwrap();
        if purges {
            assert_eq!(store.run(engine.purge(queue("q"))), Ok(1), "{at}");
        }
        if flushes {
            let before = engine.counters().flushes;
            put_lasting(&mut store, "other", 400);
            assert!(engine.counters().flushes > before + 2, "{at}");
        }
        drop(engine);
        for _ in 0..2 {
            let (disk, clock) = if is_killed { store.kill() } else { store.close() };
            disk.power_on(Crash::Keep);
            store = small(disk, clock, FEW);
            assert_eq!(counts(&mut store, "q"), (u64::from(!purges), dead), "{at}");
            assert_eq!(listed(&mut store, "q", StateKind::Dead, 7) as u64, dead, "{at}");
        }
        store.advance(HOUR_MS);
        assert_eq!(counts(&mut store, "q"), (0, dead), "{at}");
    }
}

/// A caller's request.
type Ask = fn(Engine) -> Pin<Box<dyn Future<Output = Result<usize, Error>>>>;

const ASKS: [(&str, Ask); 4] = [
    ("take", |engine| {
        Box::pin(async move { engine.take(Take::from(queue("q"))).await.map(|taken| taken.len()) })
    }),
    ("waiting take", |engine| {
        let take = Take::from_all([queue("q"), queue("other")]).wait_ms(60_000);
        Box::pin(async move { engine.take(take).await.map(|taken| taken.len()) })
    }),
    ("peek", |engine| {
        Box::pin(async move {
            engine.peek(queue("q"), StateKind::Ready).await.map(|found| usize::from(found.is_some()))
        })
    }),
    ("list", |engine| {
        Box::pin(async move {
            engine.list(queue("q"), StateKind::Ready, None, 10).await.map(|page| page.messages.len())
        })
    }),
];

/// Crash story: a million messages expire at one instant. 1. Sixteen reads fail, since the process has too many files
/// open, and all that has expired is set aside. 2. Reads work again, and a caller takes. 3. The take makes each message
/// resident, and each is recorded to be dead: all in one turn.
#[test]
fn who_asks_after_reads_that_failed_lets_few_expire_in_a_turn() {
    for (what, ask) in ASKS {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
        let small = Options { memory_limit: 16 * 1024, lapsed_per_slice: 50, ..options(&disk, &clock) };
        let mut store = Driven::open(disk, clock, small).unwrap();
        put_expiring(&mut store, "q", MANY);
        put_lasting(&mut store, "q", 1);
        put_lasting(&mut store, "other", 200);
        assert!(store.engine.counters().tables >= 20, "{:?}", store.engine.counters());
        store.clock.advance(2 * HOUR_MS);
        store.disk.fail(Fault { calls: Calls::Reads, after: 0, times: 16, error: ErrorKind::Other });
        let engine = store.engine.clone();
        store.run(engine.stats(queue("none"))).unwrap_err();
        assert!(!store.disk.has_faults(Calls::Reads), "{what}: all was set aside");
        let before = store.engine.write_sizes();
        let mut asked = ask(engine.clone());
        let mut found = None;
        for _ in 0..2_000 {
            match poll(asked.as_mut()) {
                Some(Ok(count)) => {
                    found = Some(count);
                    break;
                }
                Some(Err(refusal)) => {
                    assert_eq!(refusal.code(), "overloaded", "{what}: {refusal}");
                    store.clock.advance(10);
                    asked = ask(engine.clone());
                }
                None => drop(store.driver.turn()),
            }
            let counters = store.engine.counters();
            assert!(counters.resident < 600, "{what}: {counters:?}");
        }
        assert_eq!(found, Some(1), "{what}: the one that lasts");
        let written = store.engine.write_sizes();
        let largest = (0..Sizes::BUCKETS).rfind(|at| written.counts[*at] > before.counts[*at]);
        assert!(largest.and_then(Sizes::bound) <= Some(64 * 1024), "{what}: bucket {largest:?}");
        store.clock.advance(2_000);
        assert_eq!(counts(&mut store, "q").1, MANY, "{what}: and all die");
    }
}

/// Crash story: 1. Thousands have expired in a queue that drops expired messages. 2. Before they are processed, another
/// queue changes its setting for expired messages, and all files are promoted. 3. What has expired by a file's ripeness
/// dies: the thousands are dead, for good.
#[test]
fn what_a_queue_drops_is_gone_though_another_changes_what_becomes_of_its_own() {
    let mut store = fresh(FEW);
    let engine = store.engine.clone();
    let on_expiry = |what| vec![SettingChange::Set(Setting::OnExpiry(what))];
    store.run(engine.configure(queue("other"), on_expiry(OnExpiry::Drop))).unwrap();
    put_expiring(&mut store, "other", 2_000);
    store.put(Put::new(queue("q"), "m")).unwrap();
    store.clock.advance(2 * HOUR_MS);
    store.run(engine.configure(queue("q"), on_expiry(OnExpiry::Drop))).unwrap();
    assert_eq!(counts(&mut store, "other"), (0, 0));
    drop(engine);
    let mut store = reopened(store, FEW);
    assert_eq!(counts(&mut store, "other"), (0, 0));
}

/// Crash story: 1. Dead messages go into tables, and a run has the keys that they had. 2. Runs of keys are merged,
/// and the pairs of the dead are left out. 3. Support searches for an order by its number, and no dead message had it.
#[test]
fn dead_messages_are_found_by_key_when_runs_were_merged() {
    const BATCHES: u64 = 60;
    let mut store = fresh(FEW);
    let key = |batch: u64, i: u64| Key::new(&format!("order-{batch}-{i}")).unwrap();
    let engine = store.engine.clone();
    for batch in 0..BATCHES {
        let expires = store.now().after(1_000).unwrap();
        let put =
            |i| Put { expires: Some(expires), ..Put::new(queue("q"), format!("{i}")).key(key(batch, i)) };
        put_all(&mut store, (0..40).map(put).collect());
        store.clock.advance(1_000);
        // They die in memory, and are written as dead.
        assert_eq!(counts(&mut store, "q"), (0, 40 * (batch + 1)));
        put_lasting(&mut store, "other", 40);
    }
    let (flushes, runs) = (engine.counters().flushes, engine.counters().runs);
    assert!(flushes > 20 && runs < flushes, "{runs} runs of either kind are left of {flushes} flushes");
    let mut store = reopened(store, FEW);
    let engine = store.engine.clone();
    for batch in 0..BATCHES {
        let wanted = key(batch, batch % 40);
        let got = store.run(engine.get(queue("q"), vec![Target::Key(wanted.clone())], true)).remove(0);
        assert_eq!(got.map(|message| message.key), Ok(Some(wanted)));
    }
}
