//! Backups: of a directory in use, at any moment of a flush, and of one that is not open.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use dwell_engine::disk::{Calls, Disk, Fault, MemoryDisk, RealDisk};
use dwell_engine::offline::{self, check};
use dwell_engine::{BackupError, Engine, OpenError, Options};
use dwell_model::{Message, MessageId, StateKind};
use dwell_store::{Action, Put, Settle, Store as _, Take};
use dwell_time::{Clock, ManualClock, SystemClock};
use pollster::block_on;

use crate::support::{Driven, TempDir, dir, options, queue, segment, start};

/// With `waits`, a turn closes the store while a backup waits for its moment; otherwise one turn receives both.
#[test]
fn a_backup_that_is_asked_for_before_a_close_hears_that_the_store_is_closed() {
    for waits in [false, true] {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
        let options = Options { memory_limit: 256 * 1024, ..options(&disk, &clock) };
        let mut store = Driven::open(disk, clock, options).unwrap();
        let mut at = 0;
        // A snapshot waits while a flush sets the places of copies in messages. Some turns later that is over.
        while waits && store.engine.counters().flushes == 0 {
            at += 1;
            assert!(at < 1_000);
            let put = Put::new(queue("q"), "x").after_ms(3_600_000);
            let (engine, mut context) = (store.engine.clone(), Context::from_waker(Waker::noop()));
            let mut call = pin!(engine.put(vec![put]));
            while call.as_mut().poll(&mut context).is_pending() && store.engine.counters().flushes == 0 {
                store.driver.turn();
            }
        }
        let (engine, now) = (store.engine.clone(), store.clock.now());
        let mut backup = pin!(engine.backup(Path::new("/backup"), now, false));
        let mut context = Context::from_waker(Waker::noop());
        assert!(backup.as_mut().poll(&mut context).is_pending());
        if waits {
            store.driver.turn();
            assert!(backup.as_mut().poll(&mut context).is_pending(), "it was taken in, and waits");
        }
        store.engine.close().unwrap();
        assert!(!store.driver.turn());
        match backup.as_mut().poll(&mut context) {
            Poll::Ready(made) => assert_eq!(made.unwrap_err().code(), "closed", "{waits}"),
            Poll::Pending => panic!("nobody will answer it"),
        }
    }
}

/// Crash story: 1. A backup is opened for the first time by a process that is short of open files, or on a medium that
/// fails to read just then. 2. The marker of a backup could not be read, and so it counted as none: its ids and numbers
/// were those of the original.
#[test]
fn a_backup_whose_marker_cannot_be_read_is_not_opened_as_if_it_were_none() {
    let mut store = small();
    store.put(Put::new(queue("q"), "x")).unwrap();
    backup(&mut store, Path::new("/backup")).unwrap();
    let moved = MemoryDisk::new();
    for name in store.disk.list(Path::new("/backup")).unwrap() {
        moved.put_file(&dir().join(&name), store.disk.read_file(&Path::new("/backup").join(&name)).unwrap());
    }
    let open = |disk: &MemoryDisk| Engine::open_driven(dir(), options(disk, &store.clock));
    let unreadable = moved.copied();
    unreadable.unreadable_at(&dir().join("BACKUP"), 0, 1);
    assert_eq!(open(&unreadable).map(drop).unwrap_err().code(), "io");
    for after in 0..20 {
        let disk = moved.copied();
        disk.run_out_of_files(after, 1);
        let restored = open(&disk).map(|(engine, _)| engine.report().restored);
        assert!(!matches!(restored, Ok(None)), "without file {after}: {restored:?}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_the_one_that_a_failed_backup_names() {
    let mut store = small();
    store.put(Put::new(queue("q"), "x")).unwrap();
    store.disk.unreadable_at(&segment(1), 0, 1);
    match backup(&mut store, Path::new("/backup")).unwrap_err() {
        BackupError::Directory(OpenError::Io { file, .. }) => assert_eq!(file, segment(1)),
        error => panic!("{error}"),
    }
}

/// A store with so little memory that it flushes messages all the time.
fn small() -> Driven {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let memory_limit = Options::MIN_MEMORY_LIMIT;
    let options = Options { segment_bytes: 4096, memory_limit, ..options(&disk, &clock) };
    Driven::open(disk, clock, options).unwrap()
}

fn backup(store: &mut Driven, to: &Path) -> Result<dwell_engine::BackupReport, BackupError> {
    let (engine, now) = (store.engine.clone(), store.clock.now());
    store.run(async move { engine.backup(to, now, false).await })
}

/// Opens the contents of a directory of a disk, on a separate disk.
fn restore(disk: &MemoryDisk, from: &Path, clock: &ManualClock) -> Driven {
    let moved = MemoryDisk::new();
    for name in disk.list(from).unwrap() {
        moved.put_file(&dir().join(&name), disk.read_file(&from.join(&name)).unwrap());
    }
    Driven::on(moved, clock.clone())
}

fn comparable(mut message: Message) -> Message {
    if let dwell_model::State::Leased(lease) = &mut message.standing.state {
        lease.deadline_mono_ms = 0;
    }
    message
}

#[test]
fn a_backup_at_any_moment_is_sound_and_holds_what_was_there() {
    let mut store = small();
    let (mut flushes, mut backups) = (BTreeSet::new(), 0);
    for i in 0..90_u64 {
        let name = queue(["a", "b"][i as usize % 2]);
        let mut put = Put::new(name, vec![i as u8; 90]).after_ms(i * 37 % 3_000);
        if i % 3 == 0 {
            put = put.key(format!("key {i}").parse().unwrap());
        }
        store.put(put).unwrap();
        if i % 5 == 4 {
            store.clock.advance(150);
            for taken in store.take(Take::from_all([queue("a"), queue("b")]).max(2)).unwrap() {
                if i % 2 == 0 {
                    store.settle(Settle { receipt: taken.receipt, action: Action::Ack }).unwrap();
                }
            }
        }
        let to = PathBuf::from(format!("/backup-{i}"));
        let report = backup(&mut store, &to).unwrap();
        assert!(report.copied > 0 && report.linked == 0);
        let there: Vec<Message> = store.dump().into_iter().map(comparable).collect();
        let checked = check(&store.disk, &to).unwrap();
        assert!(checked.is_sound(), "{i}: {checked:?}");
        let mut restored = restore(&store.disk, &to, &store.clock);
        assert_eq!(restored.engine.report().restored, Some(store.now()), "{i}");
        let found: Vec<Message> = restored.dump().into_iter().map(comparable).collect();
        assert_eq!(found, there, "{i}");
        flushes.insert(store.engine.counters().flushes);
        backups += 1;
    }
    assert!(flushes.len() > 5 && backups == 90, "{flushes:?}");
}

#[test]
fn a_backup_gives_no_id_number_or_token_that_the_other_gives_and_says_once_what_it_is() {
    let mut store = small();
    store.put(Put::new(queue("q"), "before")).unwrap();
    backup(&mut store, Path::new("/backup")).unwrap();
    let disk = store.disk.copied();
    let mut store = store.reopen();
    let theirs = store.put(Put::new(queue("q"), "after, in the original")).unwrap();
    let mut seen = BTreeSet::new();
    for _ in 0..2 {
        let mut restored = restore(&disk, Path::new("/backup"), &store.clock);
        let ours = restored.put(Put::new(queue("q"), "after, in the backup")).unwrap();
        assert!(ours.id.incarnation() > theirs.id.incarnation() + 1_000);
        assert!(ours.number.get() > theirs.number.get() + 1_000_000);
        seen.insert(ours.id);
        let reopened = restored.reopen();
        assert_eq!(reopened.engine.report().restored, None, "said once");
        assert!(reopened.disk.list(dir()).unwrap().iter().all(|name| name != "BACKUP"));
    }
}

#[test]
fn a_backup_goes_into_an_empty_directory_alone_and_a_failed_one_is_no_backup() {
    let mut store = small();
    store.put(Put::new(queue("q"), "x")).unwrap();
    store.disk.put_file(Path::new("/taken/file"), vec![1]);
    assert_eq!(backup(&mut store, Path::new("/taken")).unwrap_err().code(), "not_empty");
    assert_eq!(backup(&mut store, dir()).unwrap_err().code(), "not_empty");
    for after in 0..8 {
        let to = PathBuf::from(format!("/failed-{after}"));
        let fault = Fault { calls: Calls::Writes, after, times: 1, error: std::io::ErrorKind::StorageFull };
        // The engine has nothing to write meanwhile.
        store.driver.turn();
        store.disk.fail(fault);
        let made = backup(&mut store, &to);
        store.disk.heal();
        match made {
            Err(error) => {
                assert_eq!(error.code(), "disk_full");
                assert!(store.disk.read_file(&to.join("MANIFEST")).is_none());
            }
            Ok(_) => assert!(check(&store.disk, &to).unwrap().is_sound()),
        }
    }
    store.put(Put::new(queue("q"), "goes on")).unwrap();
}

#[test]
fn a_directory_that_nobody_has_open_is_backed_up_alike() {
    let mut store = small();
    for i in 0..60_u64 {
        store.put(Put::new(queue("q"), vec![i as u8; 90]).after_ms(i * 100)).unwrap();
    }
    let to = Path::new("/backup");
    let (disk, now) = (store.disk.clone(), store.clock.now());
    let locked = offline::backup(&disk, dir(), &disk, to, now, 3, false).unwrap_err();
    assert_eq!(locked.code(), "locked");
    let there = store.dump();
    let (disk, clock) = store.close();
    offline::backup(&disk, dir(), &disk, to, now, 3, false).unwrap();
    assert!(check(&disk, to).unwrap().is_sound());
    assert_eq!(restore(&disk, to, &clock).dump(), there);
}

/// Everything that was put and answered before a backup began, and is not settled, is in it, although others put, take
/// and ack meanwhile and flushes go on.
#[test]
fn under_load_a_backup_holds_all_that_was_answered_before() {
    let home = TempDir::new("backup");
    let (data, to) = (home.path().join("data"), home.path().join("backup"));
    let options = Options { segment_bytes: 64 * 1024, memory_limit: 256 * 1024, ..Options::default() };
    let engine = Engine::open(&data, options.clone()).unwrap();
    let store = engine.blocking();
    let puts = |from: u64, count: u64| -> Vec<Put> {
        let put = |i| Put::new(queue("kept"), vec![i as u8; 100]).after_ms(3_600_000 + i * 7);
        (from..from + count).map(put).collect()
    };
    let mut kept: BTreeSet<MessageId> = BTreeSet::new();
    for round in 0..10 {
        kept.extend(store.put(puts(round * 500, 500)).into_iter().map(|put| put.unwrap().id));
    }
    let (done, mut answered) = (AtomicBool::new(false), Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            let store = engine.blocking();
            // Bounded, so that a failure ends it.
            for round in 0..2_000_u64 {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                for put in store.put(puts(10_000 + round * 50, 50)) {
                    put.unwrap();
                }
                store.put_one(Put::new(queue("passing"), "x")).unwrap();
                for taken in store.take(Take::from(queue("passing")).max(10)).unwrap() {
                    let settle = Settle { receipt: taken.receipt, action: Action::Ack };
                    store.settle_one(settle).unwrap();
                }
            }
        });
        for round in 0..3_u64 {
            let to = to.join(round.to_string());
            let now = SystemClock::new().now();
            let made = block_on(engine.backup(&to, now, round == 1)).unwrap();
            assert_eq!(made.linked == 0, round == 1, "{made:?}");
            answered.push(kept.clone());
            // At another moment of the flushes.
            let more = store.put(puts(200_000 + round * 1_000, 700)).into_iter();
            kept.extend(more.map(|put| put.unwrap().id));
        }
        done.store(true, Ordering::Relaxed);
    });
    engine.close().unwrap();
    for (round, kept) in answered.iter().enumerate() {
        let to = to.join(round.to_string());
        assert!(check(&RealDisk, &to).unwrap().is_sound());
        let restored = Engine::open(&to, options.clone()).unwrap();
        assert!(restored.report().restored.is_some());
        let store = restored.blocking();
        let mut found: BTreeSet<MessageId> = BTreeSet::new();
        let mut cursor = None;
        loop {
            let page = store.list(queue("kept"), StateKind::Scheduled, cursor, 5_000).unwrap();
            found.extend(page.messages.iter().map(|message| message.id));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert!(kept.is_subset(&found), "{} of {} are there", kept.intersection(&found).count(), kept.len());
        restored.close().unwrap();
    }
    let copied: Vec<String> = RealDisk.list(&data).unwrap();
    assert!(copied.iter().any(|name| name.starts_with("table-")), "{copied:?}");
}
