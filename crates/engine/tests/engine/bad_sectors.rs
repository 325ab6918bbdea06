//! Directories with a sector that cannot be read: what a repair saves of the rest.

use std::path::Path;
use std::sync::Arc;

use dwell_engine::Options;
use dwell_engine::disk::{CountedDisk, Crash, Disk, MemoryDisk};
use dwell_engine::offline::{Filter, RepairReport, dump, repair};
use dwell_store::Put;
use dwell_time::{Clock, ManualClock};

use crate::support::{Driven, dir, options, queue, segment, start};

/// The number of messages that are put before the last one.
const PUTS: usize = 100;

/// A body that is longer than a sector, so that a sector can be within it, and identifies its message.
fn body(i: usize) -> String {
    format!("body {i:03} ").repeat(200)
}

/// A segment in which each message has a separate batch.
fn journal() -> Driven {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options { segment_bytes: 1 << 20, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    for i in 0..=PUTS {
        store.put(Put::new(queue("q"), body(i))).unwrap();
    }
    store
}

/// The offset of the body in the segment.
fn place(disk: &MemoryDisk, i: usize) -> u64 {
    let (bytes, body) = (disk.read_file(&segment(1)).unwrap(), body(i));
    bytes.windows(body.len()).position(|window| window == body.as_bytes()).unwrap() as u64
}

/// The report of a repair, and the messages in its output.
fn repaired(disk: &(impl Disk + Clone), clock: &ManualClock) -> (RepairReport, Vec<usize>) {
    let (new, new_dir) = (MemoryDisk::new(), Path::new("/new"));
    let to: Arc<dyn Disk> = Arc::new(new.clone());
    let report = repair(disk, dir(), &to, new_dir, clock.now(), 9).unwrap();
    assert!(report.check.is_sound(), "{:?}", report.check);
    let mut saved = Vec::new();
    dump(&new, new_dir, clock.now(), &Filter::default(), &mut |message| {
        let i = std::str::from_utf8(&message.body[5..8]).unwrap().parse().unwrap();
        assert_eq!(message.body, body(i).as_bytes());
        saved.push(i);
        true
    })
    .unwrap();
    saved.sort_unstable();
    (report, saved)
}

#[test]
fn a_sector_of_the_journal_that_cannot_be_read_costs_what_lies_in_it_alone() {
    let (disk, clock) = journal().close();
    let at = place(&disk, 50);
    // In a body; in the header of a batch, after the end of a body; in the header of the segment.
    for (bad, lost) in [(at + 1_000, &[50][..]), (at - 30, &[49, 50]), (0, &[0])] {
        let disk = disk.copied();
        disk.unreadable_at(&segment(1), bad, 1);
        let opened = Driven::open(disk.clone(), clock.clone(), options(&disk, &clock));
        assert_eq!(opened.map(drop).unwrap_err().code(), "io");
        let (report, saved) = repaired(&disk, &clock);
        let missing: Vec<usize> = (0..=PUTS).filter(|i| !saved.contains(i)).collect();
        assert!(missing.iter().all(|i| lost.contains(i)), "byte {bad}: {missing:?} are lost: {report:?}");
        assert!(!report.lost.is_empty() && report.cuts.is_empty(), "{report:?}");
        for lost in &report.lost {
            let (from, to) = lost.range.unwrap();
            assert!(lost.file == segment(1) && to - from < 4_096, "byte {bad}: {lost:?}");
        }
    }
}

/// A torn batch can be read as far as it was written: an unreadable one may have been answered.
#[test]
fn a_last_batch_that_cannot_be_read_is_said_to_be_lost_and_not_to_be_torn() {
    let (disk, clock) = journal().kill();
    disk.power_on(Crash::Keep);
    disk.unreadable_at(&segment(1), place(&disk, PUTS) - 30, 1);
    let (report, saved) = repaired(&disk, &clock);
    assert!(saved.len() >= PUTS - 1 && !saved.contains(&PUTS), "{saved:?}");
    assert!(report.cuts.is_empty(), "{:?}", report.cuts);
    assert!(report.lost.iter().any(|lost| lost.reason == "it cannot be read"), "{:?}", report.lost);
}

#[test]
fn a_sector_of_a_table_that_cannot_be_read_costs_what_lies_in_it_alone() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let opened = Options { memory_limit: 64 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, opened).unwrap();
    const COUNT: usize = 400;
    for i in 0..COUNT {
        store.put(Put::new(queue("q"), body(i)).after_ms(86_400_000)).unwrap();
    }
    let (disk, clock) = store.close();
    let names = disk.list(dir()).unwrap().into_iter().filter(|name| name.starts_with("table-"));
    let files = names.map(|name| dir().join(&name)).map(|path| (disk.read_file(&path).unwrap(), path));
    let (bytes, due) = files.max_by_key(|(bytes, _)| bytes.len()).unwrap();
    let found = bytes.windows(5).enumerate().filter(|(_, window)| *window == b"body ");
    let bodies = found.map(|(at, _)| at as u64).collect::<Vec<_>>();
    assert!(bodies.len() > 20 * 200, "{}: several blocks, and many bodies of 200 words each", bodies.len());
    let middle = bodies[bodies.len() / 2 / 200 * 200] + 700;
    // The last sector has the index, and may have the end of the last body.
    for (bad, least) in [(bytes.len() as u64 - 10, 0), (middle, 1)] {
        let disk = disk.copied();
        disk.unreadable_at(&due, bad, 1);
        let counted = CountedDisk::new(Arc::new(disk));
        let (report, saved) = repaired(&counted, &clock);
        let lost = COUNT - saved.len();
        assert!((least..=1).contains(&lost), "byte {bad}: {:?}", report.lost);
        let in_all = report.lost.iter().filter_map(|lost| lost.messages).sum::<u64>();
        assert_eq!(in_all, lost as u64, "byte {bad}: {:?}", report.lost);
        assert!(counted.counts().reads < 10_000, "byte {bad}: {:?}", counted.counts());
    }
}

/// The run of numbers has the messages that a table has lost, so that they are searched for in the journal.
#[test]
fn a_bad_block_of_a_run_hides_no_message_of_another_block_that_the_journal_has() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let opened = Options { memory_limit: 16 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, opened).unwrap();
    for i in 0..6_000 {
        let put = Put::new(queue("q"), format!("body {i}")).after_ms(86_400_000);
        store.put(put.idempotency_key(format!("t{i}").parse().unwrap())).unwrap();
    }
    store.rest();
    let (disk, clock) = store.close();
    let named = |kind: &str| {
        let names = disk.list(dir()).unwrap().into_iter().filter(|name| name.starts_with(kind));
        names.map(|name| dir().join(name)).collect::<Vec<_>>()
    };
    for table in named("table-") {
        disk.put_file(&table, Vec::new());
    }
    let sizes = named("numbers-").into_iter().map(|run| (disk.read_file(&run).unwrap().len(), run));
    let (size, longest) = sizes.max().unwrap();
    // A block has some 4 KiB, a number three bytes at least.
    assert!(size > 2 * 4_096, "{size}");
    for bad in [false, true] {
        let disk = disk.copied();
        match bad {
            true => disk.unreadable_at(&longest, 60, 1),
            false => disk.rot_at(&longest, 60),
        }
        let new: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let report = repair(&disk, dir(), &new, Path::new("/new"), clock.now(), 9).unwrap();
        let lost: u64 = report.lost.iter().filter_map(|lost| lost.messages).sum();
        assert!(report.found < lost && report.found + 1_400 > lost, "{} of {lost}", report.found);
        assert!(report.check.is_sound() && report.messages + lost == 6_000 + report.found, "{report:?}");
    }
}
