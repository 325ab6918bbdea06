//! The journal, cut and flipped at every byte: what is recovered, what is cut, what is refused.

use std::path::Path;

use crate::support::{Driven, dir, options, queue, segment, start};
use dwell_engine::disk::{Crash, Disk, MemoryDisk};
use dwell_engine::{Driver, Engine, OpenError, Options};
use dwell_model::{Number, Pause, Setting, SettingChange, SettingName};
use dwell_store::{Action, Put, Settle, Store, Take};
use dwell_time::ManualClock;

/// The ends of the batches of a small journal, and the messages that are there then.
struct Journal {
    disk: MemoryDisk,
    /// (end in the segment, numbers there)
    ends: Vec<(usize, Vec<Number>)>,
}

/// A journal of one segment, a batch per command; the process was killed after the last one.
fn journal() -> Journal {
    let mut store = Driven::new();
    let mut ends = Vec::new();
    // Before the first batch: all that was written so far except the manifest.
    let manifest = store.disk.read_file(&dir().join("MANIFEST")).unwrap().len();
    let header = store.engine.counters().disk.written_bytes as usize - manifest;
    let end = |store: &Driven| end_of_batches(&store.disk.read_file(&segment(1)).unwrap(), header);
    ends.push((end(&store), Vec::new()));
    let engine = store.engine.clone();
    for i in 0..6 {
        let body = format!("body {i} ").repeat(1 + i * 3);
        store.put(Put::new(queue("q"), body).after_ms(i as u64 * 1_000)).unwrap();
        ends.push((end(&store), store.numbers()));
    }
    let change = SettingChange::Set(Setting::LeaseMs(77_777));
    store.run(engine.configure(queue("q"), vec![change])).unwrap();
    ends.push((end(&store), store.numbers()));
    let taken = store.take(Take::from(queue("q"))).unwrap().remove(0);
    ends.push((end(&store), store.numbers()));
    store.settle(Settle { receipt: taken.receipt, action: Action::Ack }).unwrap();
    ends.push((end(&store), store.numbers()));
    store.put(Put::new(queue("other"), "last")).unwrap();
    ends.push((end(&store), store.numbers()));
    drop(engine);
    let (disk, _) = store.kill();
    disk.power_on(Crash::Drop);
    Journal { disk, ends }
}

/// The ends of the batches that begin at `at`: each is a header of 48 bytes followed by as many bytes as the header
/// gives.
fn end_of_batches(segment: &[u8], mut at: usize) -> usize {
    while segment[at..].starts_with(b"DWLB") {
        let len = u32::from_le_bytes(segment[at + 4..at + 8].try_into().unwrap());
        at += 48 + len as usize;
    }
    at
}

/// The disk of a journal with the bytes of its segment changed.
fn changed(journal: &Journal, change: impl FnOnce(&mut Vec<u8>)) -> MemoryDisk {
    let disk = journal.disk.copied();
    let mut bytes = disk.read_file(&segment(1)).unwrap();
    assert!(bytes.len() <= 32 * 1024);
    change(&mut bytes);
    disk.put_file(&segment(1), bytes);
    disk
}

fn open(disk: &MemoryDisk) -> Result<(Engine, Driver), OpenError> {
    Engine::open_driven(dir(), options(disk, &ManualClock::new(start())))
}

fn reopened(disk: MemoryDisk) -> Driven {
    Driven::on(disk, ManualClock::new(start()))
}

#[test]
fn a_journal_cut_at_any_byte_recovers_the_whole_batches_before_the_cut() {
    let journal = journal();
    let written = journal.ends.last().unwrap().0;
    for cut in 0..=written {
        let disk = changed(&journal, |bytes| bytes.truncate(cut));
        let mut store = reopened(disk);
        let before = journal.ends.iter().rev().find(|(end, _)| *end <= cut);
        let numbers = before.map_or(Vec::new(), |(_, numbers)| numbers.clone());
        assert_eq!(store.numbers(), numbers, "cut at {cut}");
        let whole = before.map_or(0, |(end, _)| *end);
        let rest = &journal.disk.read_file(&segment(1)).unwrap()[whole..cut];
        let rest = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
        let cuts: u64 = store.engine.report().cuts.iter().map(|cut| cut.bytes).sum();
        assert_eq!(cuts, rest, "cut at {cut}");
    }
}

#[test]
fn a_byte_flipped_below_the_synced_mark_is_refused_and_above_it_cut() {
    let journal = journal();
    // The last batch records that the one before it was synced; no record says so of the last.
    let mark = journal.ends[journal.ends.len() - 2].0;
    let written = journal.ends.last().unwrap().0;
    for at in 0..written {
        for flip in [0x01, 0x80] {
            let disk = changed(&journal, |bytes| bytes[at] ^= flip);
            if at < mark {
                let before = disk.changes();
                match open(&disk).map(drop).unwrap_err() {
                    OpenError::Damaged { file, offset, reason } => {
                        assert_eq!(file, segment(1));
                        let batch = journal.ends.iter().map(|(end, _)| *end).rfind(|end| *end <= at);
                        assert_eq!(offset, batch.unwrap_or(0) as u64, "byte {at}: {reason}");
                        assert!(!reason.is_empty());
                    }
                    other => panic!("byte {at}: {other}"),
                }
                assert_eq!(disk.changes(), before, "a refusal changes nothing");
            } else {
                let mut store = reopened(disk);
                let report = store.engine.report().clone();
                assert_eq!(report.cuts.len(), 1, "byte {at}");
                assert_eq!(report.cuts[0].offset, mark as u64);
                assert_eq!(report.cuts[0].bytes, (written - mark) as u64);
                assert_eq!(store.numbers(), journal.ends[journal.ends.len() - 2].1);
            }
        }
    }
}

#[test]
fn after_a_proper_close_every_byte_is_below_the_mark_but_the_last_batch() {
    let mut store = Driven::new();
    let answer = store.put(Put::new(queue("q"), "body")).unwrap();
    let (disk, _) = store.close();
    let len = disk.read_file(&segment(1)).unwrap().len();
    for at in 0..len {
        let copy = disk.copied();
        let mut bytes = disk.read_file(&segment(1)).unwrap();
        bytes[at] ^= 1;
        copy.put_file(&segment(1), bytes);
        match open(&copy).map(drop) {
            Err(error) => assert_eq!(error.code(), "damaged"),
            Ok(()) => {
                assert!(at > len - 64, "byte {at} of {len}");
                assert_eq!(reopened(copy).numbers(), [answer.number]);
            }
        }
    }
}

#[test]
fn a_tail_that_was_cut_is_not_reported_again_and_never_comes_back() {
    let journal = journal();
    let written = journal.ends.last().unwrap().0;
    let disk = changed(&journal, |bytes| bytes[written - 1] ^= 1);
    let store = reopened(disk);
    assert_eq!(store.engine.report().cuts.len(), 1);
    let mut store = store.reopen();
    assert!(store.engine.report().cuts.is_empty());
    assert!(store.engine.report().was_closed);
    let numbers = store.numbers();
    // The tail is in the first segment again, as if cutting it had not lasted.
    let (disk, _) = store.close();
    let mut bytes = journal.disk.read_file(&segment(1)).unwrap();
    bytes.truncate(written);
    disk.put_file(&segment(1), bytes);
    let mut store = reopened(disk);
    assert!(store.engine.report().cuts.is_empty());
    assert_eq!(store.numbers(), numbers);
}

#[test]
fn a_segment_that_should_be_there_and_is_not_is_damage() {
    let mut store = Driven::new();
    store.put(Put::new(queue("q"), "a")).unwrap();
    let mut store = store.reopen();
    store.put(Put::new(queue("q"), "b")).unwrap();
    let mut store = store.reopen();
    store.put(Put::new(queue("q"), "c")).unwrap();
    let (disk, _) = store.close();
    let names = disk.list(dir()).unwrap();
    let segments: Vec<&String> = names.iter().filter(|name| name.starts_with("journal-")).collect();
    assert_eq!(segments.len(), 3);
    for missing in segments {
        let copy = disk.copied();
        copy.remove(&dir().join(missing)).unwrap();
        let opened = open(&copy).map(drop);
        if missing.ends_with('3') {
            // The last one: nothing records that it was there. Its name was durable before anything in it was answered,
            // so it can only have been removed by hand.
            assert!(opened.is_ok());
        } else {
            assert_eq!(opened.unwrap_err().code(), "damaged", "{missing}");
        }
    }
    let copy = disk.copied();
    copy.remove(Path::new("/data/MANIFEST")).unwrap();
    assert_eq!(open(&copy).map(drop).unwrap_err().code(), "damaged");
}

#[test]
fn a_segment_of_another_directory_or_another_number_never_replays() {
    let journal = journal();
    let foreign = {
        let disk = MemoryDisk::new();
        let clock = ManualClock::new(start());
        let options = dwell_engine::Options { seed: Some(8), ..options(&disk, &clock) };
        let mut store = Driven::open(disk, clock, options).unwrap();
        store.put(Put::new(queue("q"), "foreign")).unwrap();
        store.put(Put::new(queue("q"), "foreign")).unwrap();
        store.disk.read_file(&segment(1)).unwrap()
    };
    // In the place of ours: nothing in it is ours, so it is a torn beginning of a segment.
    let disk = changed(&journal, |bytes| *bytes = foreign.clone());
    let mut store = reopened(disk);
    assert!(store.numbers().is_empty());
    assert_eq!(store.engine.report().cuts.len(), 1);
    // Our own bytes under another number.
    let disk = journal.disk.copied();
    disk.put_file(&segment(2), disk.read_file(&segment(1)).unwrap());
    let mut store = reopened(disk);
    assert_eq!(store.numbers(), journal.ends.last().unwrap().1);
}

#[test]
fn damage_where_nothing_but_idempotency_keys_is_needed_forgets_those_that_it_hits_and_refuses_nothing() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = |disk: &MemoryDisk| Options {
        memory_limit: 16 * 1024,
        segment_bytes: 8 * 1024,
        ..options(disk, &ManualClock::new(start()))
    };
    let mut store = Driven::open(disk.clone(), clock.clone(), options(&disk)).unwrap();
    let idempotency_key = |i: usize| {
        Put::new(queue("far"), format!("body {i}"))
            .after_ms(86_400_000)
            .idempotency_key(format!("t{i}").parse().unwrap())
    };
    let count = 120;
    let answers: Vec<Number> = (0..count).map(|i| store.put(idempotency_key(i)).unwrap().number).collect();
    for _ in 0..200 {
        store.put(Put::new(queue("far"), "more").after_ms(86_400_000)).unwrap();
    }
    assert!(store.engine.counters().flushes > 3);
    let numbers = store.numbers();
    let (disk, clock) = store.kill();
    disk.power_on(Crash::Drop);
    let written = disk.read_file(&segment(1)).unwrap().iter().rposition(|byte| *byte != 0).unwrap();
    assert!(disk.read_file(&segment(2)).is_some() && written > 1_000, "{written}");
    let mut answered = Vec::new();
    for (round, at) in (0..written as u64).step_by(37).enumerate() {
        let copy = disk.copied();
        let is_bad = round % 2 == 1;
        if is_bad {
            copy.unreadable_at(&segment(1), at, 1)
        } else {
            copy.rot_at(&segment(1), at)
        }
        let opened = Driven::open(copy.clone(), clock.clone(), options(&copy));
        if is_bad && at < 72 {
            assert!(opened.is_err(), "whether it is a segment at all is not known");
            continue;
        }
        let mut store = opened.unwrap();
        let forgotten = store.engine.report().forgotten.clone();
        assert_eq!(forgotten.len(), 1, "byte {at}");
        assert!(forgotten[0].file == segment(1) && forgotten[0].offset <= at, "byte {at}: {forgotten:?}");
        assert_eq!(store.numbers(), numbers, "byte {at}");
        let again: Vec<bool> =
            (0..count).map(|i| store.put(idempotency_key(i)).unwrap().number == answers[i]).collect();
        answered.push(again.iter().filter(|known| **known).count());
    }
    // One batch of one put, or the rest of the segment, or all of it if its header is damaged.
    assert_eq!(answered.iter().max(), Some(&(count - 1)), "{answered:?}");
}

/// Segments kept only for idempotency idempotency keys: each that is missing, or has a damaged header, is reported.
#[test]
fn each_segment_that_is_missing_where_nothing_but_idempotency_keys_is_needed_is_told_of_once() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let (memory_limit, segment_bytes) = (16 * 1024, 8 * 1024);
    let small = |disk: &MemoryDisk| Options { memory_limit, segment_bytes, ..options(disk, &clock) };
    let mut store = Driven::open(disk.clone(), clock.clone(), small(&disk)).unwrap();
    for i in 0..600 {
        let far = Put::new(queue("far"), "body").after_ms(86_400_000);
        store.put(far.idempotency_key(format!("t{i}").parse().unwrap())).unwrap();
    }
    assert!(store.engine.counters().flushes > 5);
    let numbers = store.numbers();
    let (disk, _) = store.kill();
    disk.power_on(Crash::Keep);
    let gone = [segment(1), segment(3), segment(4)];
    gone.iter().for_each(|path| disk.remove(path).unwrap());
    disk.rot_at(&segment(2), 20);
    let mut store = Driven::open(disk.clone(), clock.clone(), small(&disk)).unwrap();
    let mut told = store.engine.report().forgotten.clone();
    told.sort_by_key(|cut| cut.file.clone());
    let files: Vec<_> =
        told.iter().map(|cut| (cut.file.clone(), cut.reason == "the segment is missing")).collect();
    let expected = [1, 2, 3, 4].map(|number| (segment(number), number != 2));
    assert_eq!(files, expected);
    assert_eq!(store.numbers(), numbers);
}

/// What ends a setting in a segment that is needed only for idempotency keys.
#[derive(Clone, Copy, Debug)]
enum End {
    Reset,
    Deleted,
    /// In a separate segment, whose header is damaged.
    ResetInTheNextSegment,
}

/// Crash story: 1. A queue is paused and resumed in a segment that stays for an idempotency key alone. 2. A bit rots
/// where the pause was reset. 3. The store is opened: no queue is paused. But the new segment begins with the settings
/// of all segments, the damaged one included. 4. It is opened once more, and the queue is paused for good.
#[test]
fn damage_where_nothing_but_idempotency_keys_is_needed_brings_back_no_setting() {
    for end in [End::Reset, End::Deleted, End::ResetInTheNextSegment] {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
        let (memory_limit, segment_bytes) = (16 * 1024, 8 * 1024);
        let small = |disk: &MemoryDisk| Options { memory_limit, segment_bytes, ..options(disk, &clock) };
        let mut store = Driven::open(disk.clone(), clock.clone(), small(&disk)).unwrap();
        let engine = store.engine.clone();
        let far = || Put::new(queue("far"), "body").after_ms(86_400_000);
        store.put(far().idempotency_key("t".parse().unwrap())).unwrap();
        let pause = SettingChange::Set(Setting::Pause(Pause::Indefinite));
        store.run(engine.configure(queue("q"), vec![pause])).unwrap();
        if let End::ResetInTheNextSegment = end {
            while store.disk.read_file(&segment(2)).is_none() {
                store.put(far()).unwrap();
            }
            store.put(far().idempotency_key("t2".parse().unwrap())).unwrap();
        }
        let at = end_of_batches(&store.disk.read_file(&segment(1)).unwrap(), 72);
        match end {
            End::Deleted => drop(store.run(engine.delete_queue(queue("q"))).unwrap()),
            End::Reset | End::ResetInTheNextSegment => {
                let reset = SettingChange::Reset(SettingName::Pause);
                store.run(engine.configure(queue("q"), vec![reset])).unwrap();
            }
        }
        let before = store.engine.counters().flushes;
        for _ in 0..300 {
            store.put(far()).unwrap();
        }
        assert!(store.engine.counters().flushes > before + 1);
        drop(engine);
        let (disk, _) = store.kill();
        disk.power_on(Crash::Keep);
        match end {
            End::Reset | End::Deleted => disk.rot_at(&segment(1), at as u64 + 50),
            End::ResetInTheNextSegment => disk.rot_at(&segment(2), 20),
        }
        let mut store = Driven::open(disk.clone(), clock.clone(), small(&disk)).unwrap();
        for opening in 1..=2 {
            assert!(!store.engine.report().forgotten.is_empty(), "{end:?}, opening {opening}");
            let engine = store.engine.clone();
            store.put(Put::new(queue("q"), "now")).unwrap();
            let own = store.run(engine.stats(queue("q"))).unwrap().own;
            assert_eq!(own.iter().count(), 0, "{end:?}, opening {opening}");
            assert_eq!(store.take(Take::from(queue("q"))).unwrap().len(), 1, "{end:?}, opening {opening}");
            drop(engine);
            let (disk, clock) = store.close();
            store = Driven::open(disk.clone(), clock, small(&disk)).unwrap();
        }
    }
}

/// A store with many messages in tables alone, and behind them a journal that acks some; if `deletes`, a queue is
/// created and deleted before each ack. Returns the number of reads of the next opening.
fn reads_of_an_opening(deletes: bool) -> u64 {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let small = Options { memory_limit: 16 * 1024, segment_bytes: 64 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, small).unwrap();
    for i in 0..2_000 {
        store.put(Put::new(queue("work"), format!("body {i}")).after_ms(i)).unwrap();
    }
    assert!(store.engine.counters().cold > 1_500);
    let (disk, clock) = store.close();
    clock.advance(10_000);
    let large = Options { segment_bytes: 64 << 20, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, large.clone()).unwrap();
    let engine = store.engine.clone();
    for i in 0..1_000 {
        if deletes {
            let short_lived = queue(&format!("short-lived-{i}"));
            store.put(Put::new(short_lived.clone(), "x")).unwrap();
            assert_eq!(store.run(engine.delete_queue(short_lived)), Ok(1));
        }
        let taken = store.take(Take::from(queue("work"))).unwrap().remove(0);
        store.settle(Settle { receipt: taken.receipt, action: Action::Ack }).unwrap();
    }
    assert_eq!(store.engine.counters().flushes, 0);
    drop(engine);
    let (disk, clock) = store.kill();
    disk.power_on(Crash::Keep);
    let mut store = Driven::open(disk, clock, large).unwrap();
    let reads = store.engine.counters().disk.reads;
    assert_eq!(store.numbers().len(), 1_000);
    reads
}

#[test]
fn queues_that_come_and_go_cost_an_opening_no_look_at_all_that_is_pending() {
    let (without, with) = (reads_of_an_opening(false), reads_of_an_opening(true));
    assert!(with <= without + 10, "{with} reads with 1,000 deletes, {without} without");
}
