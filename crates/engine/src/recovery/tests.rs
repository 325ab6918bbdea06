//! Journals that are cut, damaged, or of which segments are missing.

use std::collections::BTreeMap;
use std::future::Future;
use std::task::{Context as Polled, Poll, Waker};

use dwell_model::{Setting, SettingChange};
use dwell_store::{Put, Store as _, Target, When};
use dwell_time::Clock as _;

use super::segments::{MOST_MISSING, OpenedSegment};
use super::*;
use crate::checkpoint::Checkpoint;
use crate::disk::MemoryDisk;
use crate::journal::format::{BatchHeader, SegmentHeader, SegmentName};
use crate::report::Cut;
use crate::{Driver, Durability, Engine, Options};

/// Ignores everything.
struct NoReplay;

impl Replay for NoReplay {
    fn put(&mut self, _: PutRecord, _: BodyRef) -> Result<(), ReplayRefusal> {
        Ok(())
    }

    fn record(&mut self, _: Record) -> Result<(), ReplayRefusal> {
        Ok(())
    }

    fn old(&mut self, _: Number, _: Option<Standing>) -> Result<(), ReplayRefusal> {
        Ok(())
    }

    fn begins(&mut self, _: Timestamp) -> Result<(), ReplayRefusal> {
        Ok(())
    }

    fn time(&mut self, _: Timestamp) {}

    fn look_up(&mut self) -> Result<(), ReplayRefusal> {
        Ok(())
    }
}

fn run<T>(driver: &mut Driver, call: impl Future<Output = T>) -> T {
    let (mut call, mut polled) = (std::pin::pin!(call), Polled::from_waker(Waker::noop()));
    for _ in 0..64 {
        if let Poll::Ready(answer) = call.as_mut().poll(&mut polled) {
            return answer;
        }
        driver.turn();
    }
    panic!("the call waits");
}

fn small(disk: &MemoryDisk) -> Options {
    Options {
        disk: Arc::new(disk.clone()),
        segment_bytes: Options::MIN_SEGMENT_BYTES,
        seed: Some(7),
        ..Options::default()
    }
}

/// The number of records and the length of each batch in a segment.
fn batches_of(segment: &[u8]) -> Vec<(u64, u64)> {
    let (mut batches, mut at) = (Vec::new(), SegmentHeader::LEN);
    while segment[at..].starts_with(b"DWLB") {
        let int = |from: usize| u32::from_le_bytes(segment[at + from..][..4].try_into().unwrap());
        let len = BatchHeader::LEN + int(4) as usize;
        batches.push((u64::from(int(36)), len as u64));
        at += len;
    }
    batches
}

/// The start of a flush depends on the size of segments; the settings that a segment begins with do not count.
#[test]
fn a_segment_counts_for_what_it_holds_behind_the_settings_that_it_begins_with() {
    let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
    let (engine, mut driver) = Engine::open_driven(dir, small(&disk)).unwrap();
    let queue = || "q".parse().unwrap();
    let put = |driver: &mut Driver| {
        let put = vec![Put::new(queue(), vec![7; 1_000])];
        run(driver, engine.put(put)).pop().unwrap().unwrap()
    };
    put(&mut driver);
    for lease_ms in [70_000, 80_000] {
        let change = SettingChange::Set(Setting::LeaseMs(lease_ms));
        run(&mut driver, engine.configure(queue(), vec![change])).unwrap();
        for _ in 0..10 {
            put(&mut driver);
        }
    }
    let manifest = Manifest::read(&disk, dir).unwrap();
    let recovered = recover(&disk, dir, &manifest, &mut NoReplay).unwrap();
    let found: Vec<(u64, u64)> = recovered.kept.iter().map(|kept| (kept.records, kept.bytes)).collect();
    let (mut batches, mut held) = (Vec::new(), Vec::new());
    for kept in &recovered.kept {
        let of_segment = batches_of(&disk.read_file(&kept.segment.path).unwrap());
        // The first one did not begin with settings.
        let behind = &of_segment[usize::from(!held.is_empty())..];
        held.push(behind.iter().fold((0, 0), |sum, batch| (sum.0 + batch.0, sum.1 + batch.1)));
        batches.extend(of_segment);
    }
    assert!(held.len() > 3, "{held:?}");
    assert_eq!(found, held);
    let OpenReport { segments, batches: count, records, .. } = recovered.report;
    let all = batches.iter().map(|(records, _)| records).sum();
    assert_eq!((segments, count, records), (held.len() as u64, batches.len() as u64, all));
}

/// Counts records about messages that this journal has put, and about older ones; and idempotency keys of puts.
#[derive(Default)]
struct RecordCounts {
    of_ours: usize,
    of_older: usize,
    idempotency_keys: usize,
}

impl Replay for RecordCounts {
    fn put(&mut self, _: PutRecord, _: BodyRef) -> Result<(), ReplayRefusal> {
        Ok(())
    }

    fn record(&mut self, record: Record) -> Result<(), ReplayRefusal> {
        self.of_ours += usize::from(matches!(record, Record::Stands { .. } | Record::Gone { .. }));
        self.idempotency_keys += usize::from(matches!(record, Record::Answered { .. }));
        Ok(())
    }

    fn old(&mut self, _: Number, _: Option<Standing>) -> Result<(), ReplayRefusal> {
        self.of_older += 1;
        Ok(())
    }

    fn begins(&mut self, _: Timestamp) -> Result<(), ReplayRefusal> {
        Ok(())
    }

    fn time(&mut self, _: Timestamp) {}

    fn look_up(&mut self) -> Result<(), ReplayRefusal> {
        Ok(())
    }
}

/// A record about a message that no replayed segment has put contradicts the journal, and is refused. So a
/// message that an earlier segment has put must not be taken for an older one.
#[test]
fn what_the_first_of_several_segments_has_put_is_not_older_than_the_journal() {
    let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
    let (engine, mut driver) = Engine::open_driven(dir, small(&disk)).unwrap();
    let queue = || -> dwell_model::QueueName { "q".parse().unwrap() };
    let put = |driver: &mut Driver| {
        let put = Put::new(queue(), vec![7; 1_000]).after_ms(86_400_000);
        run(driver, engine.put(vec![put])).pop().unwrap().unwrap()
    };
    let first: Vec<_> = (0..2).map(|_| put(&mut driver).id).collect();
    for _ in 0..20 {
        put(&mut driver);
    }
    run(&mut driver, engine.cancel(queue(), vec![Target::Id(first[0])])).pop().unwrap().unwrap();
    run(&mut driver, engine.cancel(queue(), vec![Target::Id(first[1])])).pop().unwrap().unwrap();
    let manifest = Manifest::read(&disk, dir).unwrap();
    let mut counts = RecordCounts::default();
    let recovered = recover(&disk, dir, &manifest, &mut counts).unwrap();
    assert!(recovered.kept.len() > 1, "{:?}", recovered.report);
    assert_eq!((counts.of_ours, counts.of_older), (2, 0));
}

/// A record about a message in a table and one about a message of the replayed journal are counted apart: the
/// first is ignored if the message was deleted, and the second would contradict the journal.
#[test]
fn what_stands_and_what_is_gone_count_for_older_messages_apart_from_the_journal_s_own() {
    let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
    let options = Options { memory_limit: 16 * 1024, ..small(&disk) };
    let (engine, mut driver) = Engine::open_driven(dir, options).unwrap();
    let queue = || -> dwell_model::QueueName { "q".parse().unwrap() };
    let put = |driver: &mut Driver| {
        let put = Put::new(queue(), "body").after_ms(86_400_000);
        run(driver, engine.put(vec![put])).pop().unwrap().unwrap().id
    };
    // Flushed messages are placed a few per turn.
    let rest = |driver: &mut Driver| (0..1_000).for_each(|_| assert!(driver.turn()));
    let old: Vec<_> = (0..400).map(|_| put(&mut driver)).collect();
    rest(&mut driver);
    let before = engine.counters().flushes;
    assert!(before > 3);
    // Just after a checkpoint the next one is far away.
    for puts in 0.. {
        if engine.counters().flushes > before {
            break;
        }
        assert!(puts < 400, "no flush is begun");
        put(&mut driver);
        rest(&mut driver);
    }
    let flushes = engine.counters().flushes;
    let new: Vec<_> = (0..2).map(|_| put(&mut driver)).collect();
    for of in [&old, &new] {
        run(&mut driver, engine.cancel(queue(), vec![Target::Id(of[0])])).pop().unwrap().unwrap();
        let later = vec![(Target::Id(of[1]), When::AfterMs(1_000))];
        run(&mut driver, engine.reschedule(queue(), later)).pop().unwrap().unwrap();
    }
    assert_eq!(engine.counters().flushes, flushes);
    let manifest = Manifest::read(&disk, dir).unwrap();
    let mut counts = RecordCounts::default();
    recover(&disk, dir, &manifest, &mut counts).unwrap();
    assert_eq!((counts.of_ours, counts.of_older), (2, 2));
}

/// Damage in a segment that is needed for idempotency keys alone costs the keys of one batch. After the last
/// batch of a segment nothing is whole, and the report names all remaining bytes.
#[test]
fn damage_before_the_checkpoint_costs_the_batch_that_it_lies_in() {
    let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
    let options = Options { memory_limit: 16 * 1024, ..small(&disk) };
    let (engine, mut driver) = Engine::open_driven(dir, options).unwrap();
    for at in 0..420 {
        let put = Put::new("q".parse().unwrap(), vec![7; 200]).after_ms(86_400_000);
        let put = if at < 20 { put.idempotency_key(format!("t{at}").parse().unwrap()) } else { put };
        run(&mut driver, engine.put(vec![put])).pop().unwrap().unwrap();
    }
    let manifest = Manifest::read(&disk, dir).unwrap();
    assert!(manifest.checkpoint.start > 2);
    let idempotency_keys_of = |disk: &MemoryDisk| {
        let mut counts = RecordCounts::default();
        let report = recover(disk, dir, &manifest, &mut counts).unwrap().report;
        (counts.idempotency_keys, report.forgotten, report.batches, report.cuts)
    };
    let (idempotency_keys, none, batches, cuts) = idempotency_keys_of(&disk);
    assert_eq!((idempotency_keys, none, cuts), (20, Vec::new(), Vec::new()));
    let file = dir.join(SegmentName { directory: manifest.directory, shard: 0, segment: 1 }.file_name());
    let bytes = disk.read_file(&file).unwrap();
    let (all, mut offset) = (batches_of(&bytes), SegmentHeader::LEN as u64);
    assert!(all.len() > 5 && all.len() < 20, "{all:?}");
    for (records, len) in &all {
        // In the header of the batch, so that its end is not known, and in its records.
        for (at, reason) in
            [(9, "a batch's header fails its checksum"), (60, "a batch's records fail their checksum")]
        {
            let copy = disk.copied();
            let mut damaged = bytes.clone();
            damaged[offset as usize + at] ^= 1;
            copy.put_file(&file, damaged);
            let told = Cut { file: file.clone(), offset, bytes: *len, reason };
            let expected = (20 - *records as usize, vec![told], batches - 1, Vec::new());
            assert_eq!(idempotency_keys_of(&copy), expected, "byte {at} of the batch at {offset}");
        }
        offset += len;
    }
    // Sectors that cannot be read: the rest of the segment is unknown there.
    let copy = disk.copied();
    let second = SegmentHeader::LEN as u64 + all[0].1;
    copy.unreadable_at(&file, second, 1);
    let (idempotency_keys, forgotten, ..) = idempotency_keys_of(&copy);
    assert_eq!((forgotten.len(), &forgotten[0].file), (1, &file));
    assert!(
        forgotten[0].offset <= second && (20 - all.len()..20).contains(&idempotency_keys),
        "{idempotency_keys} {forgotten:?}"
    );
}

/// Crash story: 1. a bit of a segment that is needed for idempotency keys alone is damaged. 2. The search for
/// whole batches behind it meets a sector that cannot be read. 3. The directory is not opened, though nothing is
/// needed of that segment.
#[test]
fn damage_before_the_checkpoint_refuses_nothing_though_a_sector_behind_it_cannot_be_read() {
    let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
    let options = Options { memory_limit: 16 * 1024, segment_bytes: 4 << 20, ..small(&disk) };
    let (engine, mut driver) = Engine::open_driven(dir, options).unwrap();
    for at in 0..240 {
        let put = |body: Vec<u8>| Put::new("q".parse().unwrap(), body).after_ms(86_400_000);
        let put = match at {
            0..12 => put(vec![7; 300_000]).idempotency_key(format!("t{at}").parse().unwrap()),
            _ => put(vec![7; 30_000]),
        };
        run(&mut driver, engine.put(vec![put])).pop().unwrap().unwrap();
    }
    let manifest = Manifest::read(&disk, dir).unwrap();
    assert!(manifest.checkpoint.start > 1);
    let file = dir.join(SegmentName { directory: manifest.directory, shard: 0, segment: 1 }.file_name());
    let mut bytes = disk.read_file(&file).unwrap();
    let second = SegmentHeader::LEN as u64 + batches_of(&bytes)[0].1;
    bytes[second as usize + 60] ^= 1;
    disk.put_file(&file, bytes);
    disk.unreadable_at(&file, second + (2 << 20), 1);
    let mut counts = RecordCounts::default();
    let forgotten = recover(&disk, dir, &manifest, &mut counts).unwrap().report.forgotten;
    let forgotten: Vec<_> = forgotten.into_iter().map(|cut| (cut.file, cut.offset)).collect();
    assert_eq!((counts.idempotency_keys, forgotten), (1, vec![(file, second)]));
}

/// Whatever ends a journal and is not a batch is a torn tail, in its newest segment or in one that was being
/// created; zeros are preallocated room.
#[test]
fn what_follows_the_last_batch_is_cut_unless_it_is_zeros() {
    let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
    let (engine, mut driver) = Engine::open_driven(dir, small(&disk)).unwrap();
    for _ in 0..3 {
        run(&mut driver, engine.put(vec![Put::new("q".parse().unwrap(), "body")])).pop().unwrap().unwrap();
    }
    let manifest = Manifest::read(&disk, dir).unwrap();
    let path =
        |segment| dir.join(SegmentName { directory: manifest.directory, shard: 0, segment }.file_name());
    let mut newest = disk.read_file(&path(1)).unwrap();
    let end = batches_of(&newest).iter().fold(SegmentHeader::LEN as u64, |end, (_, len)| end + len);
    newest.truncate(end as usize);
    for tail in [vec![], vec![0; 500], vec![5; 70], [vec![0; 90], vec![5; 3], vec![0; 7]].concat()] {
        let len = tail.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
        for is_in_next in [false, true] {
            let copy = disk.copied();
            let whole = if is_in_next { newest.clone() } else { [newest.clone(), tail.clone()].concat() };
            copy.put_file(&path(1), whole);
            if is_in_next {
                copy.put_file(&path(2), tail.clone());
            }
            let recovered = recover(&copy, dir, &manifest, &mut NoReplay).unwrap();
            let OpenReport { cuts, batches, .. } = recovered.report;
            assert_eq!((batches, recovered.end, recovered.newest), (3, end, 1));
            let cuts: Vec<_> = cuts.into_iter().map(|cut| (cut.file, cut.offset, cut.bytes)).collect();
            let cut = if is_in_next { (path(2), 0, len) } else { (path(1), end, len) };
            assert_eq!(cuts, if len > 0 { vec![cut] } else { Vec::new() }, "{tail:?} {is_in_next}");
        }
    }
}

/// Each batch has the mark that was synced when it was written: nothing after that is proven.
#[test]
fn what_no_later_batch_says_was_synced_is_unproven() {
    let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
    let (engine, mut driver) = Engine::open_driven(dir, small(&disk)).unwrap();
    let manifest = Manifest::read(&disk, dir).unwrap();
    for count in 0..4 {
        let recovered = recover(&disk, dir, &manifest, &mut NoReplay).unwrap();
        let path = &recovered.kept[0].segment.path;
        let batches = batches_of(&disk.read_file(path).unwrap());
        assert_eq!((batches.len(), recovered.sequence), (count, count as u64));
        let (from, sequence) = match count {
            // Not even that the segment was begun.
            0 | 1 => (0, 1),
            _ => (recovered.end - batches[count - 1].1, count as u64),
        };
        let incarnation = manifest.incarnation;
        assert_eq!(recovered.unproven, Some(UnsyncedTail { from, sequence, incarnation }), "{count} batches");
        run(&mut driver, engine.put(vec![Put::new("q".parse().unwrap(), "body")])).pop().unwrap().unwrap();
    }
}

/// Where a power failure may lose answered calls, callers may have seen numbers that were not recorded: they are
/// not reused. A store that was closed has recorded all.
#[test]
fn numbers_are_skipped_where_some_may_have_been_given_that_were_lost() {
    for (durability, skips) in [(Durability::Always, false), (Durability::Os, true)] {
        let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
        let options = Options { durability, ..small(&disk) };
        let (engine, mut driver) = Engine::open_driven(dir, options).unwrap();
        run(&mut driver, engine.put(vec![Put::new("q".parse().unwrap(), "body")])).pop().unwrap().unwrap();
        let manifest = Manifest::read(&disk, dir).unwrap();
        let next_number =
            |disk: &MemoryDisk| recover(disk, dir, &manifest, &mut NoReplay).unwrap().preamble.next_number;
        assert_eq!(next_number(&disk), 2 + if skips { 1 << 32 } else { 0 }, "{durability:?}");
        engine.close().unwrap();
        while driver.turn() {}
        assert_eq!(next_number(&disk), 2, "{durability:?}, closed");
    }
}

/// A segment that is needed for its idempotency keys alone may be missing. Each of them is reported once.
#[test]
fn segments_before_the_checkpoint_that_are_missing_are_told_once_each() {
    let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
    disk.create_dir(dir).unwrap();
    let named = |segment| SegmentName { directory: 7, shard: 0, segment };
    let opened = |segment| {
        let (name, path) = (named(segment), dir.join(named(segment).file_name()));
        let header = SegmentHeader {
            name,
            incarnation: 1,
            first: segment,
            oldest: 1,
            next_number: 1,
            made: Timestamp::MIN,
            synced_answers: true,
        };
        (segment, OpenedSegment { file: disk.create(&path).unwrap(), path, name, header: Ok(header), len: 0 })
    };
    let checkpoint = Checkpoint { start: 6, ..Checkpoint::default() };
    let made = Timestamp::MIN;
    let manifest = Manifest { incarnation: 1, directory: 7, made, newest: 6, next_number: 1, checkpoint };
    let cut =
        |segment, reason| Cut { file: dir.join(named(segment).file_name()), offset: 0, bytes: 0, reason };
    let mut forgotten = vec![cut(3, "it cannot be opened")];
    let mut segments = BTreeMap::from([opened(2), opened(6)]);
    assert!(check_presence(dir, &manifest, &mut segments, &mut forgotten).unwrap().is_none());
    let missing = "the segment is missing";
    let told = [(3, "it cannot be opened"), (1, missing), (4, missing), (5, missing)];
    assert_eq!(forgotten, told.map(|(segment, reason)| cut(segment, reason)));
    // Of very many missing segments the first are listed.
    let manifest = Manifest {
        newest: 2_000_000,
        checkpoint: Checkpoint { start: 2_000_000, ..Checkpoint::default() },
        ..manifest
    };
    let (mut segments, mut forgotten) = (BTreeMap::from([opened(2_000_000)]), Vec::new());
    check_presence(dir, &manifest, &mut segments, &mut forgotten).unwrap();
    assert_eq!(forgotten.len() as u64, MOST_MISSING);
}

/// The position of a segment with an unreadable header decides its meaning: before the checkpoint's start it is
/// forgotten, from there on it is damage, and after the newest segment it is one that was being created.
#[test]
fn a_segment_without_a_header_is_forgotten_or_damage_or_was_being_made() {
    let (disk, dir, bad) = (MemoryDisk::new(), Path::new("/data"), "its header is bad");
    disk.create_dir(dir).unwrap();
    let named = |segment| SegmentName { directory: 7, shard: 0, segment };
    let path = |segment| dir.join(named(segment).file_name());
    let judged = |start: u64, newest: u64, is_bad: &[u64]| {
        let segments = (1..=newest).map(|segment| {
            let header = SegmentHeader {
                name: named(segment),
                incarnation: 1,
                first: segment,
                oldest: 1,
                next_number: 1,
                made: Timestamp::MIN,
                synced_answers: true,
            };
            let header = if is_bad.contains(&segment) { Err(bad) } else { Ok(header) };
            let (name, path) = (named(segment), path(segment));
            (segment, OpenedSegment { file: disk.create(&path).unwrap(), path, name, header, len: 9 })
        });
        let mut segments: BTreeMap<u64, OpenedSegment> = segments.collect();
        let checkpoint = Checkpoint { start, ..Checkpoint::default() };
        let made = Timestamp::MIN;
        let manifest =
            Manifest { incarnation: 1, directory: 7, made, newest: start, next_number: 1, checkpoint };
        let mut forgotten = drop_forgotten(&manifest, &mut segments);
        let torn = check_presence(dir, &manifest, &mut segments, &mut forgotten);
        let forgotten: Vec<PathBuf> = forgotten.into_iter().map(|cut| cut.file).collect();
        torn.map(|torn| (forgotten, torn.map(|torn| torn.name.segment)))
    };
    assert_eq!(judged(4, 6, &[]).unwrap(), (Vec::new(), None));
    assert_eq!(judged(4, 6, &[1, 3]).unwrap(), (vec![path(1), path(3)], None));
    assert_eq!(judged(4, 6, &[6]).unwrap(), (Vec::new(), Some(6)), "it was being made");
    assert_eq!(judged(4, 6, &[2, 6]).unwrap(), (vec![path(2)], Some(6)));
    for damaged in [4, 5] {
        let error = judged(4, 6, &[damaged]).unwrap_err();
        let OpenError::Damaged { file, offset, reason } = error else { panic!("{error}") };
        assert_eq!((file, offset, reason), (path(damaged), 0, bad.to_owned()), "the manifest needs it");
    }
    // Two are never created at once.
    assert!(matches!(judged(4, 6, &[5, 6]), Err(OpenError::Damaged { file, .. }) if file == path(5)));
}

/// Where the journal is missing, the manifest alone decides which numbers a repair may give.
#[test]
fn the_manifest_says_which_numbers_were_given_before_its_segment() {
    let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
    let options = Options { memory_limit: 16 * 1024, ..small(&disk) };
    let (engine, mut driver) = Engine::open_driven(dir, options).unwrap();
    for _ in 0..400 {
        let put = vec![Put::new("q".parse().unwrap(), "body").after_ms(86_400_000)];
        run(&mut driver, engine.put(put)).pop().unwrap().unwrap();
    }
    assert!(engine.counters().flushes > 3);
    let manifest = Manifest::read(&disk, dir).unwrap();
    let start = manifest.checkpoint.start;
    let name = SegmentName { directory: manifest.directory, shard: 0, segment: start };
    let bytes = disk.read_file(&dir.join(name.file_name())).unwrap();
    let header = SegmentHeader::decode(bytes.first_chunk().unwrap(), name).unwrap();
    assert!(header.next_number > 100, "{header:?}");
    assert_eq!((manifest.next_number, manifest.newest), (header.next_number, start));
}

/// A missing journal is refused at its first missing segment, however long it was according to the manifest.
#[test]
fn a_long_journal_that_is_gone_is_missed_at_once() {
    const LONG: u64 = 1 << 40;
    for (start, newest, file) in
        [(LONG, LONG, "journal"), (LONG - 2, LONG, "journal"), (0, LONG, "journal"), (LONG, 9, "MANIFEST")]
    {
        let (disk, dir) = (MemoryDisk::new(), Path::new("/data"));
        disk.create_dir(dir).unwrap();
        let checkpoint = Checkpoint { start, ..Checkpoint::default() };
        let (directory, made) = (7, Timestamp::MIN);
        let manifest = Manifest { incarnation: 3, directory, made, newest, next_number: 1, checkpoint };
        manifest.write(&disk, dir).unwrap();
        let (done, answer) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let now = dwell_time::ManualClock::new(Timestamp::MIN).now();
            let measured = crate::offline::stats(&disk, dir, now).map(drop);
            let options = Options { disk: Arc::new(disk.clone()), ..Options::default() };
            let opened = Engine::open_driven(dir, options).map(drop);
            let checked = crate::offline::check(&disk, dir).unwrap();
            assert!(!checked.is_sound() && checked.messages.is_none(), "{checked:?}");
            let _ = done.send([measured.unwrap_err(), opened.unwrap_err()]);
        });
        let answer = answer.recv_timeout(std::time::Duration::from_secs(60));
        for error in answer.expect("it ends, and there is a fault") {
            let OpenError::Damaged { file: found, .. } = &error else { panic!("{error}") };
            assert!(found.starts_with(dir) && found.to_str().unwrap().contains(file), "{error}");
        }
    }
}

#[test]
fn the_table_holds_for_every_combination() {
    const K: u64 = 10;
    for what in [BatchEvidence::WholeBatch, BatchEvidence::Zeros, BatchEvidence::Other] {
        for next_first in [None, Some(K), Some(K + 1), Some(K + 5)] {
            for mark in [0, K - 1, K, K + 5] {
                let row = match (what, next_first, mark >= K) {
                    (_, Some(K), _) => Verdict::NextSegment,
                    (BatchEvidence::WholeBatch, _, _) => Verdict::Replay,
                    (_, _, true) | (_, Some(_), _) => Verdict::Refuse,
                    (BatchEvidence::Zeros, None, false) => Verdict::End,
                    (BatchEvidence::Other, None, false) => Verdict::TornEnd,
                };
                assert_eq!(judge(K, what, next_first, mark), row, "{what:?} {next_first:?} {mark}");
            }
        }
    }
}
