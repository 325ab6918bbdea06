//! What was answered lasts, and what was handed out is never handed out again: if one call is several batches, if a
//! process that does not sync dies, if a backup is made of a damaged store, if no file can be opened.

use std::future::Future as _;
use std::io::ErrorKind;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use dwell_engine::disk::{Calls, Crash, Disk as _, Fault, MemoryDisk};
use dwell_engine::{Durability, Options};
use dwell_model::Number;
use dwell_store::{Action, Put, Settle, Store as _, Take};
use dwell_time::{Clock as _, ManualClock};

use crate::support::{Driven, dir, options, queue, segment, start};

/// More than one batch has bodies: the first sixteen are in a separate batch.
fn long_put() -> Vec<Put> {
    (0..20).map(|i| Put::new(queue("q"), vec![i; 1024 * 1024])).collect()
}

fn codes(answers: &[dwell_store::Result<dwell_store::PutAnswer>]) -> Vec<&'static str> {
    let code = |answer: &dwell_store::Result<dwell_store::PutAnswer>| match answer {
        Ok(_) => "ok",
        Err(error) => error.code(),
    };
    answers.iter().map(code).collect()
}

/// Whether everything that was put is there.
fn has_all(store: &mut Driven, answers: &[dwell_store::Result<dwell_store::PutAnswer>]) -> bool {
    let numbers = answers.iter().flatten().map(|answer| answer.number).collect();
    let engine = store.engine.clone();
    store.run(engine.locate(numbers)).into_iter().all(|found| found.unwrap().is_some())
}

/// Crash story: 1. A call puts 20 MiB, which are two batches. 2. The first finds no room, and waits for it. 3. The
/// second is refused, and with it the call is answered: sixteen messages are put. 4. The process dies, and none of them
/// is there.
#[test]
fn a_put_of_several_batches_waits_with_the_first_that_finds_no_room() {
    let mut store = Driven::new();
    store.put(Put::new(queue("q"), "safe")).unwrap();
    store.disk.fail(Fault { calls: Calls::Writes, after: 0, times: u64::MAX, error: ErrorKind::StorageFull });
    let engine = store.engine.clone();
    let mut put = pin!(engine.put(long_put()));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..3 {
        if let Poll::Ready(answers) = put.as_mut().poll(&mut context) {
            panic!("nothing of it is written: {:?}", codes(&answers));
        }
        store.driver.turn();
        store.clock.advance(200);
    }
    store.disk.heal();
    let answers = store.run(put);
    assert_eq!(codes(&answers), ["ok"; 20]);
    let (disk, clock) = store.kill();
    disk.power_on(Crash::Drop);
    assert!(has_all(&mut Driven::on(disk, clock), &answers));
}

/// The same if the sync of the first batch, or of the second, fails.
#[test]
fn a_put_of_several_batches_does_not_say_of_one_that_failed_that_it_was_put() {
    for fails in [0, 1] {
        let mut store = Driven::new();
        store.put(Put::new(queue("q"), "safe")).unwrap();
        let engine = store.engine.clone();
        let mut put = pin!(engine.put(long_put()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(put.as_mut().poll(&mut context).is_pending());
        // The first batch is long enough for a segment, so that the second begins another, which syncs two files.
        let after = if fails == 0 { 0 } else { 2 };
        store.disk.fail(Fault { calls: Calls::FileSyncs, after, times: 1, error: ErrorKind::Other });
        let answers = store.run(put);
        let expected = match fails {
            0 => [vec!["outcome_unknown"; 16], vec!["unavailable"; 4]].concat(),
            _ => [vec!["ok"; 16], vec!["outcome_unknown"; 4]].concat(),
        };
        assert_eq!(codes(&answers), expected);
        let (disk, clock) = store.kill();
        disk.power_on(Crash::Drop);
        assert!(has_all(&mut Driven::on(disk, clock), &answers));
    }
}

/// Crash story: 1. A store that does not sync is closed, and opened again. 2. It hands out number 2, and the power
/// fails before anything of this process was written. 3. The last batch that is found records that the store was
/// closed, and so number 2 is given to another message.
#[test]
fn a_number_that_was_answered_is_not_given_again_though_nothing_is_left_of_the_life_that_gave_it() {
    for durability in [Durability::Os, Durability::IntervalMs(60_000)] {
        let open = |disk: MemoryDisk, clock: ManualClock| {
            let options = Options { durability, ..options(&disk, &clock) };
            Driven::open(disk, clock, options).unwrap()
        };
        let mut store = open(MemoryDisk::new(), ManualClock::new(start()));
        store.put(Put::new(queue("q"), "kept")).unwrap();
        let (disk, clock) = store.close();
        let mut store = open(disk, clock);
        assert!(store.engine.report().was_closed);
        let lost = store.put(Put::new(queue("q"), "lost")).unwrap();
        let (disk, clock) = store.kill();
        disk.power_on(Crash::Drop);
        let mut store = open(disk, clock);
        assert_eq!(store.numbers().len(), 1);
        let next = store.put(Put::new(queue("q"), "next")).unwrap();
        assert!(next.number > lost.number, "{durability:?}: {} and {}", next.number, lost.number);
        assert_ne!(next.id, lost.id);
        assert!(!store.engine.report().was_closed, "the power failed");
    }
}

/// A store whose segments from 1 on stay for idempotency keys, although all messages are in tables.
fn with_old_segments(small: impl Fn(&MemoryDisk) -> Options) -> Driven {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let mut store = Driven::open(disk.clone(), clock, small(&disk)).unwrap();
    let far = |i: u64| Put::new(queue("far"), "body").after_ms(86_400_000 + i);
    store.put(far(0).idempotency_key("first".parse().unwrap())).unwrap();
    let mut i = 1;
    while store.disk.read_file(&segment(4)).is_none() || store.engine.counters().flushes < 5 {
        store.put(far(i)).unwrap();
        i += 1;
        assert!(i < 10_000);
    }
    assert!(store.disk.read_file(&segment(1)).is_some() && store.disk.read_file(&segment(2)).is_some());
    store
}

/// Crash story: 1. The header of an old segment rots, which is needed only for idempotency keys, and the store opens
/// without it. 2. A backup of the open store lacks that segment. 3. The backup is opened, and refused: a segment is
/// missing.
#[test]
fn a_backup_of_a_store_that_does_without_an_old_segment_can_be_opened() {
    let clock = ManualClock::new(start());
    let small = |disk: &MemoryDisk| Options {
        memory_limit: 16 * 1024,
        segment_bytes: 8 * 1024,
        ..options(disk, &clock)
    };
    let mut store = with_old_segments(small);
    let numbers = store.numbers();
    let (disk, clock) = store.close();
    disk.rot_at(&segment(2), 20);
    let mut store = Driven::open(disk.clone(), clock.clone(), small(&disk)).unwrap();
    assert!(store.engine.report().forgotten.iter().any(|cut| cut.file == segment(2)));
    let (engine, now) = (store.engine.clone(), store.clock.now());
    store.run(async move { engine.backup(Path::new("/backup"), now, false).await }).unwrap();
    let moved = MemoryDisk::new();
    for name in disk.list(Path::new("/backup")).unwrap() {
        moved.put_file(&dir().join(&name), disk.read_file(&Path::new("/backup").join(&name)).unwrap());
    }
    let mut restored = Driven::open(moved.clone(), clock.clone(), small(&moved)).unwrap();
    assert_eq!(restored.numbers(), numbers);
    let forgotten = &restored.engine.report().forgotten;
    assert!(forgotten.iter().any(|cut| cut.file == segment(2)), "it is reported: {forgotten:?}");
}

/// Crash story: 1. A checkpoint is written while a backup, or a server's clients, have as many files open as are
/// allowed. 2. The directory cannot be opened to be synced, once. 3. The store accepts nothing any more.
#[test]
fn no_file_that_cannot_be_opened_ends_the_store() {
    let small = |disk: &MemoryDisk, clock: &ManualClock| Options {
        memory_limit: 16 * 1024,
        segment_bytes: 8 * 1024,
        ..options(disk, clock)
    };
    let work = |store: &mut Driven| -> Vec<Number> {
        let mut numbers = Vec::new();
        while numbers.len() < 120 {
            let engine = store.engine.clone();
            let put = Put::new(queue("far"), vec![1; 200]).after_ms(86_400_000);
            match store.run_patiently(engine.put(vec![put])).pop().unwrap() {
                Ok(answer) => numbers.push(answer.number),
                // Memory is full before the checkpoint is retried.
                Err(error) if error.code() == "overloaded" => store.clock.advance(1_000),
                Err(error) => panic!("{error}"),
            }
        }
        numbers
    };
    let mut after = 0;
    loop {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
        let mut store = Driven::open(disk.clone(), clock.clone(), small(&disk, &clock)).unwrap();
        disk.run_out_of_files(after, 1);
        let numbers = work(&mut store);
        let was_met = !disk.has_faults(Calls::Opens);
        disk.heal();
        assert!(store.engine.counters().flushes > 0, "without file {after}");
        assert_eq!(store.numbers(), numbers, "without file {after}");
        let (disk, clock) = store.kill();
        disk.power_on(Crash::Drop);
        let mut store = Driven::open(disk.clone(), clock.clone(), small(&disk, &clock)).unwrap();
        assert_eq!(store.numbers(), numbers, "without file {after}");
        if !was_met {
            break;
        }
        after += 1;
    }
    assert!(after > 20, "{after} files are opened or made");
}

/// The first of the two syncs of the directory at a checkpoint may find no room, as on a copy-on-write file system:
/// nothing names the new files yet. After the second the disk may hold either manifest.
#[test]
fn a_directory_that_cannot_be_synced_for_want_of_room_ends_the_store_only_where_a_manifest_was_renamed() {
    let mut ended = Vec::new();
    for after in 0..12 {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
        let small = Options { memory_limit: 16 * 1024, ..options(&disk, &clock) };
        let mut store = Driven::open(disk.clone(), clock.clone(), small.clone()).unwrap();
        disk.fail(Fault { calls: Calls::DirSyncs, after, times: 1, error: ErrorKind::StorageFull });
        let mut numbers = Vec::new();
        while disk.has_faults(Calls::DirSyncs) {
            let engine = store.engine.clone();
            let put = Put::new(queue("far"), vec![1; 200]).after_ms(86_400_000);
            match store.run_patiently(engine.put(vec![put])).pop().unwrap() {
                Ok(answer) => numbers.push(answer.number),
                Err(error) if error.code() == "overloaded" => store.clock.advance(1_000),
                Err(error) => assert!(["unavailable", "outcome_unknown"].contains(&error.code()), "{error}"),
            }
        }
        ended.push(
            store
                .put(Put::new(queue("q"), "x").after_ms(1))
                .is_err_and(|error| error.code() == "unavailable"),
        );
        let (disk, clock) = store.kill();
        disk.power_on(Crash::Drop);
        let there = Driven::open(disk, clock, small).unwrap().numbers();
        assert!(numbers.iter().all(|number| there.contains(number)), "sync {after}");
    }
    assert!(ended.contains(&true) && !ended.windows(2).any(|two| two == [true, true]), "{ended:?}");
}

/// Crash story: 1. A flush on a full disk is killed, and leaves a large file that no manifest names. 2. The store
/// cannot be opened: the next manifest finds no room, and the file would be removed only after it.
#[test]
fn files_that_nothing_needs_make_room_for_an_opening() {
    let mut store = Driven::new();
    let answer = store.put(Put::new(queue("q"), "body")).unwrap();
    let (disk, clock) = store.close();
    disk.put_file(&dir().join("table-000-0000009999"), vec![1; 100_000]);
    disk.set_capacity(Some(disk.used()));
    let mut store = Driven::on(disk, clock);
    assert_eq!(store.numbers(), [answer.number]);
    store.put(Put::new(queue("q"), "more")).unwrap();
}

/// A message was handed to a take whose caller is gone, while the store closes.
#[test]
fn what_comes_back_while_the_store_closes_is_given_back() {
    let mut store = Driven::new();
    store.put(Put::new(queue("q"), "body")).unwrap();
    let engine = store.engine.clone();
    let mut take = Box::pin(engine.take(Take::from(queue("q"))));
    assert!(take.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    store.driver.turn();
    engine.close().unwrap();
    drop(take);
    assert!(!store.driver.turn(), "closed");
    let Driven { disk, clock, driver, .. } = store;
    drop(driver);
    let mut store = Driven::on(disk, clock);
    let taken = store.take(Take::from(queue("q"))).unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].message.standing.attempts, 0);
}

/// Space that was not reserved is not there when acks need it.
#[test]
fn where_a_file_system_can_set_nothing_aside_puts_are_refused_in_time() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    disk.set_nothing_aside();
    let options =
        Options { segment_bytes: 1024 * 1024, low_water_bytes: Some(16 * 1024), ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    store.disk.set_capacity(Some(store.disk.used() + 64 * 1024));
    let mut stored = 0;
    let error = loop {
        match store.put(Put::new(queue("q"), vec![1; 1_000])) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), "disk_full");
    assert!((30..64).contains(&stored), "{stored}");
    for _ in 0..stored {
        let taken = store.take(Take::from(queue("q"))).unwrap().remove(0);
        store.settle(Settle { receipt: taken.receipt, action: Action::Ack }).unwrap();
    }
}

/// Crash story: 1. A segment is begun while less space is left than it would reserve. 2. The file system reserves what
/// there is, and reports that it is full. 3. No other write finds any space, although the segment was to do without.
#[test]
fn a_segment_that_finds_less_room_than_it_would_set_aside_leaves_it_to_others() {
    let mut store = Driven::new();
    store.put(Put::new(queue("q"), "body")).unwrap();
    let (disk, clock) = store.close();
    let free = 48 * 1024;
    disk.set_capacity(Some(disk.used() + free));
    let options =
        Options { segment_bytes: 64 * 1024, low_water_bytes: Some(16 * 1024), ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    assert!(store.disk.free_space(dir()).unwrap() > free - 1024, "{}", store.disk.free_space(dir()).unwrap());
    for _ in 0..20 {
        store.put(Put::new(queue("q"), vec![1; 1_000])).unwrap();
    }
}

/// Crash story: 1. Space becomes scarce, and a flush begins: with a new segment, which reserves the space that was
/// meant for the flush. 2. The flush finds no space, and so does each after it. 3. Puts are refused for good, although
/// most of the disk's space is only reserved.
#[test]
fn where_room_is_scarce_a_flush_has_it_before_the_next_segment() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options {
        segment_bytes: 64 * 1024,
        low_water_bytes: None,
        memory_limit: 1024 * 1024,
        ..options(&disk, &clock)
    };
    let mut store = Driven::open(disk.clone(), clock, options).unwrap();
    disk.set_capacity(Some(disk.used() + 136 * 1024));
    let (mut stored, mut refused) = (0, 0);
    while refused < 50 {
        let engine = store.engine.clone();
        let put = Put::new(queue("far"), vec![1; 1_000]).after_ms(86_400_000);
        match store.run_patiently(engine.put(vec![put])).pop().unwrap() {
            Ok(_) => (stored, refused) = (stored + 1, 0),
            Err(error) => {
                assert_eq!(error.code(), "disk_full");
                refused += 1;
                store.clock.advance(200);
                for _ in 0..50 {
                    store.driver.turn();
                }
            }
        }
    }
    // Of 200 KiB a quarter of a segment is kept free, and as much is worth a flush.
    assert!(stored > 145, "{stored} of 200");
}
