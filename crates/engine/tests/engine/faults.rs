//! Disks that fail and become full.

use std::io::ErrorKind;

use dwell_engine::disk::{Calls, Crash, Fault, MemoryDisk};
use dwell_engine::{OpenError, Options};
use dwell_store::{Action, Error, Put, Settle, Store, Take};
use dwell_time::ManualClock;

use crate::support::{Driven, options, queue, start};

fn fail(disk: &MemoryDisk, calls: Calls, after: u64, error: ErrorKind) {
    disk.fail(Fault { calls, after, times: 1, error });
}

#[test]
fn a_failed_sync_or_write_is_never_repeated_and_only_reopening_helps() {
    for calls in [Calls::Syncs, Calls::Writes] {
        let mut store = Driven::new();
        let first = store.put(Put::new(queue("q"), "safe")).unwrap();
        fail(&store.disk, calls, 0, ErrorKind::Other);
        let error = store.put(Put::new(queue("q"), "unknown")).unwrap_err();
        assert_eq!(error.code(), "outcome_unknown");
        assert!(!error.is_retryable() && error.needs_reopen());
        // The disk works again, but what it holds is not known.
        let engine = store.engine.clone();
        let refused = store.put(Put::new(queue("q"), "refused")).unwrap_err();
        assert!(refused.code() == "unavailable" && refused.needs_reopen(), "{refused}");
        assert_eq!(store.take(Take::from(queue("q")).wait_ms(10)).unwrap_err().code(), "unavailable");
        assert_eq!(store.run(engine.stats(queue("q"))).unwrap_err().code(), "unavailable");
        assert_eq!(store.run(engine.purge(queue("q"))).unwrap_err().code(), "unavailable");
        drop(engine);
        let (disk, clock) = store.kill();
        disk.power_on(Crash::Drop);
        let mut store = Driven::on(disk, clock);
        assert!(store.numbers().contains(&first.number));
        store.put(Put::new(queue("q"), "served again")).unwrap();
    }
}

#[test]
fn a_take_that_waits_hears_of_a_failed_disk() {
    let mut store = Driven::new();
    let engine = store.engine.clone();
    let mut take = std::pin::pin!(engine.take(Take::from(queue("q")).wait_ms(60_000)));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(take.as_mut().poll(&mut context).is_pending());
    store.driver.turn();
    fail(&store.disk, Calls::Syncs, 0, ErrorKind::Other);
    store.put(Put::new(queue("other"), "x")).unwrap_err();
    assert_eq!(store.run(take).unwrap_err().code(), "unavailable");
}

#[test]
fn a_take_whose_leases_could_not_be_written_says_that_it_does_not_know() {
    let mut store = Driven::new();
    store.put(Put::new(queue("q"), "body")).unwrap();
    fail(&store.disk, Calls::Writes, 0, ErrorKind::Other);
    assert_eq!(store.take(Take::from(queue("q"))).unwrap_err().code(), "outcome_unknown");
}

#[test]
fn a_write_that_finds_no_room_loses_nothing_and_goes_on_when_there_is_some() {
    let fill = |store: &mut Driven| {
        for i in 0..60 {
            let engine = store.engine.clone();
            let answers = store.run_patiently(engine.put(vec![Put::new(queue("q"), vec![i; 1_500])]));
            assert!(answers[0].is_ok());
        }
    };
    let bodies =
        |store: &mut Driven| -> Vec<_> { store.dump().into_iter().map(|message| message.body).collect() };
    let mut clean = Driven::new();
    let opening = clean.engine.counters().disk.writes;
    fill(&mut clean);
    let writes = clean.engine.counters().disk.writes - opening;
    assert!(clean.engine.counters().segments > 2 && clean.now() == start());
    let expected = bodies(&mut clean);
    let mut waits = 0;
    for after in 0..writes {
        let mut store = Driven::new();
        fail(&store.disk, Calls::Writes, after, ErrorKind::StorageFull);
        fill(&mut store);
        waits += u64::from(store.now() > start());
        assert_eq!(bodies(&mut store), expected, "no room at write {after}");
        let mut store = store.reopen();
        assert_eq!(bodies(&mut store), expected, "no room at write {after}");
    }
    // All but those that began a new segment, for which the old one was used further.
    assert!((50..writes).contains(&waits), "{waits} of {writes}");
}

#[test]
fn with_little_room_puts_are_refused_and_all_else_goes_on() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options { low_water_bytes: Some(16 * 1024), ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    store.disk.set_capacity(Some(store.disk.used()));
    let mut stored = 0;
    let error = loop {
        match store.put(Put::new(queue("q"), vec![1; 1_000])) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!((8..32).contains(&stored), "{stored}");
    assert_eq!(error.code(), "disk_full");
    assert!(error.is_retryable());
    for _ in 0..stored {
        let taken = store.take(Take::from(queue("q"))).unwrap().remove(0);
        assert_eq!(store.put(Put::new(queue("q"), "x")).unwrap_err().code(), "disk_full");
        store.settle(Settle { receipt: taken.receipt, action: Action::Ack }).unwrap();
    }
    assert!(store.dump().is_empty());
    store.disk.set_capacity(None);
    store.put(Put::new(queue("q"), "room again")).unwrap();
}

#[test]
fn a_full_disk_has_room_again_when_its_messages_are_gone() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    disk.set_capacity(Some(100 * 1024));
    let options = Options { low_water_bytes: Some(8 * 1024), ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    let put = || Put::new(queue("q"), vec![b'x'; 1_000]);
    let mut accepted = 0;
    while store.put(put()).is_ok() {
        accepted += 1;
        assert!(accepted < 100, "100 KiB hold no 100 of 1,000 bytes");
    }
    let segments = store.engine.counters().segments;
    assert!(segments < 4, "so few segments that nothing but the want of room lets one go, not {segments}");
    for taken in store.take(Take::from(queue("q")).max(100)).unwrap() {
        store.settle(Settle { receipt: taken.receipt, action: Action::Ack }).unwrap();
        accepted -= 1;
    }
    assert_eq!(accepted, 0);
    store.put(put()).unwrap();
}

#[test]
fn while_a_batch_waits_for_room_puts_are_refused_and_a_close_does_not_hang() {
    let mut store = Driven::new();
    store.put(Put::new(queue("q"), "safe")).unwrap();
    store.disk.fail(Fault { calls: Calls::Writes, after: 0, times: u64::MAX, error: ErrorKind::StorageFull });
    let engine = store.engine.clone();
    let mut stuck = std::pin::pin!(engine.put(vec![Put::new(queue("q"), "stuck")]));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(stuck.as_mut().poll(&mut context).is_pending());
    store.driver.turn();
    assert!(stuck.as_mut().poll(&mut context).is_pending(), "it waits for room");
    assert_eq!(store.put(Put::new(queue("q"), "x")).unwrap_err().code(), "disk_full");
    store.engine.close().unwrap();
    assert!(!store.driver.turn());
    let answer = store.run(stuck).pop().unwrap();
    assert_eq!(answer.unwrap_err().code(), "outcome_unknown");
    assert_eq!(store.put(Put::new(queue("q"), "x")), Err(Error::Closed));
}

#[test]
fn a_disk_that_fails_while_opening_is_an_error_and_changes_no_message() {
    let mut store = Driven::new();
    let answer = store.put(Put::new(queue("q"), "body")).unwrap();
    let (disk, clock) = store.close();
    let opens = {
        let copy = disk.copied();
        drop(Driven::on(copy.clone(), clock.clone()));
        copy.changes()
    };
    assert!(opens >= 6, "{opens}");
    for error in [ErrorKind::Other, ErrorKind::StorageFull, ErrorKind::PermissionDenied] {
        for after in 0..opens {
            let copy = disk.copied();
            fail(&copy, Calls::Changes, after, error);
            match Driven::open(copy.clone(), clock.clone(), options(&copy, &clock)) {
                // Space could not be reserved or released: no reason not to open.
                Ok(_) => assert!(error == ErrorKind::StorageFull || after + 2 >= opens, "{after} of {opens}"),
                Err(OpenError::DiskFull { .. }) => assert_eq!(error, ErrorKind::StorageFull),
                Err(OpenError::Unwritable { .. }) => assert_eq!(error, ErrorKind::PermissionDenied),
                Err(OpenError::Io { .. }) => assert_eq!(error, ErrorKind::Other),
                Err(other) => panic!("{other}"),
            }
            copy.power_on(Crash::Drop);
            let mut store = Driven::on(copy, clock.clone());
            assert_eq!(store.numbers(), [answer.number]);
        }
    }
}

/// A put that may be repeated.
fn repeatable(body: &'static str) -> Put {
    Put::new(queue("q"), body).idempotency_key(body.parse().unwrap())
}

#[test]
fn what_a_failed_sync_left_in_memory_is_answered_only_when_it_is_on_the_disk() {
    let mut store = Driven::new();
    store.put(Put::new(queue("q"), "safe")).unwrap();
    store.disk.lose_syncs(0, 1, None);
    assert_eq!(store.put(repeatable("unknown")).unwrap_err().code(), "outcome_unknown");
    let (disk, clock) = store.kill();
    // The process ends, and the machine keeps what it has in memory.
    disk.power_on(Crash::Keep);
    let mut store = Driven::on(disk, clock);
    let answer = store.put(repeatable("unknown")).unwrap();
    assert_eq!(store.dump().len(), 2);
    store.disk.evict();
    assert!(store.dump().iter().any(|message| message.number == answer.number && message.body == "unknown"));
    let (disk, clock) = store.kill();
    disk.power_on(Crash::Drop);
    let mut store = Driven::on(disk, clock);
    assert!(store.numbers().contains(&answer.number), "it was answered");
}

#[test]
fn whichever_sync_fails_and_leaves_its_pages_clean_nothing_answered_is_lost() {
    let puts = ["a", "b", "c", "d", "e", "f"];
    let mut begun = 0;
    for (after, seed) in (0..20).flat_map(|after| (0..6).map(move |seed| (after, seed))) {
        let kept = (seed > 0).then_some(seed);
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
        disk.lose_syncs(after, 1, kept);
        let mut answered = Vec::new();
        // So short that it begins several.
        let options = Options { segment_bytes: 4 * 1024, ..options(&disk, &clock) };
        let open = || Driven::open(disk.clone(), clock.clone(), options.clone());
        for life in 0.. {
            assert!(life < 4, "sync {after}, seed {seed}: it does not open");
            let Ok(mut store) = open() else {
                disk.power_on(Crash::Keep);
                continue;
            };
            let engine = store.engine.clone();
            answered = puts.iter().filter_map(|body| store.put(repeatable(body)).ok()).collect();
            // The second of them begins the next segment.
            let filling = || (0..6).map(|_| Put::new(queue("filling"), vec![1; 1_000])).collect();
            let filled: Vec<_> = (0..2).flat_map(|_| store.run(engine.put(filling()))).collect();
            drop(engine);
            drop(store.kill());
            disk.power_on(Crash::Keep);
            let refused = filled.iter().find_map(|put| put.as_ref().err());
            if answered.len() == puts.len() && refused.is_none() {
                break;
            }
            // Had the sync been that of a batch, its outcome would be unknown.
            begun += u64::from(
                answered.len() == puts.len() && refused.is_some_and(|error| error.code() == "unavailable"),
            );
        }
        // A process that writes only what an opening writes.
        disk.heal();
        drop(open().unwrap().kill());
        disk.power_on(Crash::Drop);
        let mut store = open().unwrap();
        let numbers = store.numbers();
        for answer in answered {
            assert!(numbers.contains(&answer.number), "sync {after}, seed {seed}: {}", answer.number);
        }
    }
    assert_eq!(begun, 6, "with each seed one of them was the sync of a new segment");
}

#[test]
fn where_no_file_can_be_made_the_journal_grows_and_what_reaches_its_limit_is_refused() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options { body_reach: 256 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options.clone()).unwrap();
    let fault = Fault { calls: Calls::Creates, after: 0, times: u64::MAX, error: ErrorKind::StorageFull };
    store.disk.fail(fault);
    let mut answers = Vec::new();
    let error = loop {
        match store.put(Put::new(queue("q"), vec![7; 20_000])) {
            Ok(answer) => answers.push(answer),
            Err(error) => break error,
        }
        assert!(answers.len() < 100, "256 KiB hold no 100 of 20,000 bytes");
    };
    assert_eq!(error.code(), "disk_full");
    assert!(error.is_retryable() && answers.len() > 10, "{error}, {} answered", answers.len());
    assert!(store.put(Put::new(queue("q"), "short")).is_ok(), "what has room is taken");
    // All other calls continue, also beyond the limit.
    for round in 0..3 {
        let engine = store.engine.clone();
        let taken = store.take(Take::from(queue("q")).max(100)).unwrap();
        assert_eq!(taken.len(), answers.len() + 1, "round {round}");
        let bury = |receipt| Settle {
            receipt,
            action: Action::Bury { reason: Some("x".repeat(1_000).into()), priority: None },
        };
        let settles = taken.into_iter().map(|taken| bury(taken.receipt)).collect();
        assert!(store.run(engine.settle(settles)).iter().all(Result::is_ok));
        store.run(engine.revive(queue("q"), dwell_store::Selection::All, dwell_store::When::Now)).unwrap();
    }
    store.disk.heal();
    store.put(Put::new(queue("q"), vec![7; 20_000])).unwrap();
    let (disk, clock) = store.close();
    let mut store = Driven::open(disk, clock, options).unwrap();
    assert_eq!(store.numbers().len(), answers.len() + 2);
}

#[test]
fn settings_as_long_as_a_segment_begin_none_each_turn() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options { segment_bytes: 4 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options.clone()).unwrap();
    let engine = store.engine.clone();
    let levels = dwell_model::Setting::Levels((1..=30).map(|level| level * 1_000_000_007).collect());
    for name in 0..60 {
        let change = dwell_model::SettingChange::Set(levels.clone());
        store.run(engine.configure(queue(&format!("queue-{name}")), vec![change])).unwrap();
    }
    store.put(Put::new(queue("q"), "begins the next")).unwrap();
    let before = engine.counters();
    for _ in 0..50 {
        store.put(Put::new(queue("q"), "x")).unwrap();
        store.run(engine.stats(queue("q"))).unwrap();
    }
    let after = engine.counters();
    assert!(
        after.segments - before.segments <= 1,
        "{} segments for 50 puts",
        after.segments - before.segments
    );
    let written = after.disk.written_bytes - before.disk.written_bytes;
    assert!(written < 60_000, "{written} bytes");
    drop(engine);
    let (disk, clock) = store.close();
    let mut store = Driven::open(disk, clock, options).unwrap();
    assert_eq!(store.numbers().len(), 51);
}

/// Drops a call of another caller when it is woken.
#[derive(Default)]
struct Drops(std::sync::Mutex<Option<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl std::task::Wake for Drops {
    fn wake(self: std::sync::Arc<Self>) {
        let call = self.0.lock().unwrap().take();
        drop(call);
    }
}

#[test]
fn what_nobody_received_in_the_turn_that_closes_goes_back_without_an_attempt() {
    let mut store = Driven::new();
    let engine = store.engine.clone();
    let put = store.put(Put::new(queue("q"), "body")).unwrap();
    // The take is answered and its caller is gone by then: it is dropped when the put before it is answered.
    let drops = std::sync::Arc::new(Drops::default());
    let waker = std::task::Waker::from(std::sync::Arc::clone(&drops));
    let mut other = Box::pin({
        let engine = engine.clone();
        async move { engine.put(vec![Put::new(queue("other"), "body")]).await }
    });
    assert!(other.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    let mut take = Box::pin({
        let engine = engine.clone();
        async move { drop(engine.take(Take::from(queue("q")).lease_ms(60_000)).await) }
    });
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(take.as_mut().poll(&mut context).is_pending());
    *drops.0.lock().unwrap() = Some(take);
    let closing = engine.close();
    assert!(!store.driver.turn(), "{closing:?}");
    assert!(drops.0.lock().unwrap().is_none(), "it was dropped meanwhile");
    assert!(store.run(other)[0].is_ok());
    drop(engine);
    let (disk, clock) = (store.disk, store.clock);
    drop((store.engine, store.driver));
    let mut store = Driven::on(disk, clock);
    assert!(store.engine.report().was_closed);
    let taken = store.take(Take::from(queue("q"))).unwrap().remove(0);
    assert_eq!((taken.message.number, taken.message.standing.attempt()), (put.number, 1));
}

#[test]
fn on_a_full_disk_the_room_behind_a_torn_tail_is_enough_to_open() {
    let mut store = Driven::new();
    let put = store.put(Put::new(queue("q"), "body")).unwrap();
    let (disk, clock) = store.kill();
    disk.power_on(Crash::Keep);
    disk.set_capacity(Some(disk.used()));
    let mut store = Driven::on(disk, clock);
    assert_eq!(store.numbers(), [put.number]);
}

#[test]
fn a_half_made_segment_that_cannot_be_removed_yet_is_removed_before_anything_is_written() {
    for (removes, syncs) in [(3, 0), (0, 2), (2, 2)] {
        let mut store = Driven::new();
        let mut stored = Vec::new();
        // As on file systems that copy on write: without space, nothing can be removed either.
        let full = |calls, after, times| Fault { calls, after, times, error: ErrorKind::StorageFull };
        for i in 0..40 {
            if i == 18 {
                // The write that begins the next segment, and then its removal.
                store.disk.fail(full(Calls::Writes, 4, 1));
                store.disk.fail(full(Calls::Removes, 0, removes));
                store.disk.fail(full(Calls::DirSyncs, 0, syncs));
            }
            let engine = store.engine.clone();
            let answer = store.run_patiently(engine.put(vec![Put::new(queue("q"), vec![i; 1_500])]));
            stored.push(answer.into_iter().next().unwrap().unwrap().number);
        }
        let (disk, clock) = store.kill();
        disk.power_on(Crash::Drop);
        let mut store = Driven::on(disk, clock);
        assert_eq!(store.numbers(), stored, "{removes} {syncs}");
    }
}

/// A file system with delayed allocation reports a full disk at the sync, not at the write.
#[test]
fn where_the_sync_of_a_new_segment_finds_no_room_the_old_one_stands_in_for_it() {
    let small =
        |disk: &MemoryDisk, clock: &ManualClock| Options { segment_bytes: 8 * 1024, ..options(disk, clock) };
    let (puts, mut begun) = (30, 0);
    for (after, times) in (0..60).flat_map(|after| [1, 3].map(|times| (after, times))) {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
        let opened = small(&disk, &clock);
        let mut store = Driven::open(disk, clock, opened.clone()).unwrap();
        store.disk.fail(Fault { calls: Calls::FileSyncs, after, times, error: ErrorKind::StorageFull });
        let (mut answered, mut refusals) = (Vec::new(), Vec::new());
        let mut met = None;
        for i in 0..puts {
            let segments = store.engine.counters().segments;
            match store.put(Put::new(queue("q"), vec![i; 1_500])) {
                Ok(answer) => answered.push(answer.number),
                Err(refusal) => refusals.push(refusal.code()),
            }
            let is_met = !store.disk.has_faults(Calls::FileSyncs);
            if is_met && met.is_none() {
                met = Some((refusals.is_empty(), store.engine.counters().segments > segments));
            }
        }
        let what = format!("{times} syncs after {after}: {met:?}, {refusals:?}");
        match met {
            // The segment is begun when the next batch comes, or the one after it.
            Some((true, _)) => {
                begun += 1;
                assert!(refusals.is_empty() && answered.len() == usize::from(puts), "{what}");
                assert!(store.engine.counters().segments > 3, "{what}");
                assert_eq!(store.numbers(), answered, "{what}");
            }
            // What a batch's sync has left on the disk is not known: see `a_failed_sync_or_write_is_never_repeated`.
            _ if !refusals.is_empty() => {
                assert_eq!(refusals.remove(0), "outcome_unknown", "{what}");
                assert!(refusals.iter().all(|code| *code == "unavailable"), "{what}");
            }
            _ => assert!(after + times > 34, "{what}: there were as many syncs"),
        }
        let (disk, clock) = store.kill();
        disk.heal();
        disk.power_on(Crash::Drop);
        let mut store = Driven::open(disk, clock, opened).unwrap();
        let numbers = store.numbers();
        assert!(answered.iter().all(|answered| numbers.contains(answered)), "{what}");
    }
    assert!(begun >= 4, "{begun}");
}

#[test]
fn no_call_has_so_many_items_that_its_batch_would_be_too_long() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let opened = |batch| Options {
        limits: dwell_model::Limits { batch, ..dwell_model::Limits::default() },
        ..options(&disk, &clock)
    };
    let open = |batch| Driven::open(disk.clone(), clock.clone(), opened(batch));
    let Err(refused) = open(Options::MAX_CALL_ITEMS + 1) else { panic!("it opens") };
    assert!(matches!(refused, OpenError::InvalidOption { option: "limits.batch", .. }), "{refused}");
    drop(open(Options::MAX_CALL_ITEMS).unwrap().close());
    // Below it, a call with more is refused before anything is written, and the store goes on.
    let mut store = open(100).unwrap();
    let engine = store.engine.clone();
    for _ in 0..150 {
        store.put(Put::new(queue("q"), "body")).unwrap();
    }
    let taken: Vec<_> = (0..2).flat_map(|_| store.take(Take::from(queue("q")).max(100)).unwrap()).collect();
    let bury = |taken: &dwell_store::Delivery| Settle {
        receipt: taken.receipt.clone(),
        action: Action::Bury { reason: Some("x".repeat(1_000).into()), priority: None },
    };
    let written = engine.counters().disk.written_bytes;
    let answers = store.run(engine.settle(taken.iter().map(bury).collect()));
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap_err().code() == "batch_too_large"));
    assert_eq!(engine.counters().disk.written_bytes, written);
    for some in taken.chunks(100) {
        assert!(store.run(engine.settle(some.iter().map(bury).collect())).iter().all(Result::is_ok));
    }
}

/// No call reaches the limit unless it is made small: see the test above.
#[test]
fn a_batch_that_is_longer_than_one_can_be_is_refused_and_nothing_panics() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let small = Options { body_reach: 96 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, small).unwrap();
    let engine = store.engine.clone();
    for _ in 0..150 {
        store.put(Put::new(queue("q"), "body")).unwrap();
    }
    let taken = store.take(Take::from(queue("q")).max(150)).unwrap();
    let bury = || Action::Bury { reason: Some("x".repeat(1_000).into()), priority: None };
    let settles = taken.into_iter().map(|taken| Settle { receipt: taken.receipt, action: bury() }).collect();
    let answers = store.run(engine.settle(settles));
    assert!(answers.iter().all(|answer| matches!(answer, Err(Error::OutcomeUnknown { .. }))), "{answers:?}");
    drop(engine);
    let (disk, clock) = store.kill();
    disk.power_on(Crash::Drop);
    assert_eq!(Driven::on(disk, clock).numbers().len(), 150);
}

/// Crash story: 1. The number of open files is bounded, and others are used more than the segment being written: it is
/// closed. 2. It cannot be opened again just then. 3. The write that needed it counts as failed, and the store accepts
/// nothing more.
#[test]
fn the_segment_that_is_written_needs_no_opening() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let opened = Options {
        memory_limit: 16 * 1024,
        open_files: Options::MIN_OPEN_FILES,
        segment_bytes: 1 << 20,
        ..options(&disk, &clock)
    };
    let mut store = Driven::open(disk, clock, opened).unwrap();
    let mut ids = Vec::new();
    for i in 0..600 {
        ids.push(
            store.put(Put::new(queue("q"), format!("{i}")).after_ms(86_400_000 * (1 + i % 200))).unwrap().id,
        );
    }
    store.driver.turn();
    assert!(store.engine.counters().tables > 6, "{:?}", store.engine.counters());
    let engine = store.engine.clone();
    for id in ids {
        store.run(engine.get(queue("q"), vec![dwell_store::Target::Id(id)], false)).pop().unwrap().unwrap();
    }
    store.disk.fail(Fault { calls: Calls::Opens, after: 0, times: u64::MAX, error: ErrorKind::Other });
    store.put(Put::new(queue("q"), "written")).unwrap();
}

fn tables(disk: &MemoryDisk) -> Vec<String> {
    let names = dwell_engine::disk::Disk::list(disk, crate::support::dir()).unwrap();
    names.into_iter().filter(|name| name.starts_with("table-")).collect()
}

/// Crash story: 1. A flush has rewritten what is left of some tables, and these are to be removed. 2. The disk is
/// full just then, and an ack waits for room. 3. Nothing else is done while it waits: the files stay, and with them the
/// full disk.
#[test]
fn the_files_that_a_flush_has_made_needless_go_while_a_batch_waits_for_room() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let small = Options { memory_limit: 256 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, small).unwrap();
    let engine = store.engine.clone();
    let far = |i: u64| Put::new(queue("q"), vec![7; 50]).after_ms(86_400_000 + i);
    let ids: Vec<_> = (0..2_000).map(|i| store.put(far(i)).unwrap().id).collect();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let (mut flushes, mut was_freed) = (engine.counters().flushes, false);
    // What is left of each file is rewritten when most of it is gone.
    for (i, id) in ids.into_iter().enumerate().filter(|(i, _)| i % 10 > 0) {
        let mut cancel = std::pin::pin!(engine.cancel(queue("q"), vec![dwell_store::Target::Id(id)]));
        while cancel.as_mut().poll(&mut context).is_pending() {
            store.driver.turn();
            if std::mem::replace(&mut flushes, engine.counters().flushes) == flushes {
                continue;
            }
            let before = tables(&store.disk);
            let full =
                Fault { calls: Calls::Writes, after: 0, times: u64::MAX, error: ErrorKind::StorageFull };
            store.disk.fail(full);
            let change = dwell_model::SettingChange::Set(dwell_model::Setting::LeaseMs(1_000 + i as u64));
            let mut stuck = std::pin::pin!(engine.configure(queue("q"), vec![change]));
            assert!(stuck.as_mut().poll(&mut context).is_pending());
            for _ in 0..20 {
                store.advance(100);
            }
            assert!(stuck.as_mut().poll(&mut context).is_pending(), "it waits for room");
            let after = tables(&store.disk);
            was_freed |= before.iter().any(|name| !after.contains(name));
            store.disk.heal();
            store.run_patiently(stuck).unwrap();
            flushes = engine.counters().flushes;
        }
    }
    assert!(was_freed, "{flushes} flushes, and no file went while a batch waited");
}

fn long_setting() -> dwell_model::SettingChange {
    dwell_model::SettingChange::Set(dwell_model::Setting::Levels(
        (1..=30).map(|level| level * 1_000_000_007).collect(),
    ))
}

/// Crash story: 1. Queues have more settings than the low-water mark has bytes, and the disk has little room. 2.
/// Flushes then begin early, after a smaller number of bytes of the journal. 3. Each begins a segment whose settings
/// alone reach that number, and so the next is due when it is over, although nothing is left to be flushed.
#[test]
fn settings_alone_are_worth_no_flush_however_little_room_there_is() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let opened = Options {
        memory_limit: 4 << 20,
        segment_bytes: 64 * 1024,
        low_water_bytes: None,
        ..options(&disk, &clock)
    };
    let mut store = Driven::open(disk, clock, opened.clone()).unwrap();
    let engine = store.engine.clone();
    for name in 0..300 {
        store.run(engine.configure(queue(&format!("queue-{name}")), vec![long_setting()])).unwrap();
    }
    for _ in 0..2 {
        for reopened in [false, true] {
            if reopened {
                let (disk, clock) = store.close();
                store = Driven::open(disk, clock, opened.clone()).unwrap();
            }
            let engine = store.engine.clone();
            store.disk.set_capacity(Some(store.disk.used() + 40 * 1024));
            // The free space is checked.
            drop(store.put(Put::new(queue("q"), vec![7; 1_000]).after_ms(86_400_000)));
            for _ in 0..100 {
                store.run(engine.queues(None, 1)).unwrap();
            }
            let before = engine.counters().flushes;
            for _ in 0..400 {
                store.run(engine.queues(None, 1)).unwrap();
            }
            let more = engine.counters().flushes - before;
            assert!(more <= 1, "{more} flushes, and nothing is put");
            store.disk.set_capacity(None);
        }
    }
}

/// Crash story: 1. A put is refused for lack of space, and each segment that can be removed is worth a new one. 2.
/// There is space again, and nothing is put: that was never noticed.
#[test]
fn room_that_came_back_is_noticed_though_nothing_is_put() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let opened = Options { low_water_bytes: Some(16 * 1024), ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, opened).unwrap();
    let engine = store.engine.clone();
    let put = || Put::new(queue("q"), vec![7; 1_000]);
    while store.disk.read_file(&crate::support::segment(2)).is_none() {
        store.put(put()).unwrap();
    }
    store.disk.set_capacity(Some(store.disk.used()));
    let refused = (0..100).find_map(|_| store.put(put()).err()).unwrap();
    assert_eq!(refused.code(), "disk_full");
    store.disk.set_capacity(None);
    store.run(engine.stats(queue("q"))).unwrap();
    // Now the first segment can be removed, which alone is worth no new one.
    let taken = store.take(Take::from(queue("q")).max(100)).unwrap();
    let acks =
        taken.into_iter().map(|taken| Settle { receipt: taken.receipt, action: Action::Ack }).collect();
    assert!(store.run(engine.settle(acks)).iter().all(Result::is_ok));
    drop(store.run(engine.stats(queue("q"))));
    drop(store.run(engine.stats(queue("q"))));
    assert!(store.disk.read_file(&crate::support::segment(3)).is_none());
}
