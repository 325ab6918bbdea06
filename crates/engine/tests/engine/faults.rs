//! Disks that break and run full.

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
        assert!(error.is_retryable());
        // The disk is well again, but what it holds is not known.
        let engine = store.engine.clone();
        assert_eq!(store.put(Put::new(queue("q"), "refused")).unwrap_err().code(), "unavailable");
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
    // All but those that began a new segment, which the old one stood in for.
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
                // Room could not be set aside or given back: no reason not to open.
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
