//! Tests of runs on a disk in memory: what is found, with how many calls, and the effects of damage.

use std::path::Path;
use std::sync::Arc;

use dwell_model::Number;

use super::*;
use crate::disk::{Calls, CountedDisk, Disk, Fault, MemoryDisk};
use crate::sealed::{FileId, FileKind, ReadError, Result};

const NUMBERS: FileId = FileId { directory: 77, shard: 3, kind: FileKind::Numbers, number: 12 };
const KEYS: FileId = FileId { kind: FileKind::Keys, ..NUMBERS };

fn dir() -> &'static Path {
    Path::new("/d")
}

fn disk() -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.create_dir(dir()).unwrap();
    disk
}

fn write<V: IndexValue>(
    disk: &dyn Disk,
    name: FileId,
    filter_for: u64,
    pairs: &[(u64, V)],
) -> Arc<IndexRun<V>> {
    let mut writer = RunWriter::create(disk, dir(), name, filter_for).unwrap();
    pairs.iter().for_each(|(key, value)| writer.push(*key, *value).unwrap());
    Arc::new(writer.finish().unwrap())
}

fn home(key: u64) -> TableRef {
    TableRef { file: (key % 7) as u32, ordinal: (key.wrapping_mul(0x9e37_79b9) >> 7) as u32 % 1_000_000 }
}

/// Every third number.
fn homes(count: u64) -> Vec<(u64, TableRef)> {
    (1..=count).map(|number| (number * 3, home(number * 3))).collect()
}

fn number(number: u64) -> Number {
    Number::new(number).unwrap()
}

#[test]
fn a_number_is_found_with_one_read_and_most_others_with_none() {
    let disk = CountedDisk::new(Arc::new(disk()));
    let pairs = homes(100_000);
    let written = write(&disk, NUMBERS, 100_000, &pairs);
    let before = disk.counts().reads;
    let run: IndexRun<TableRef> = IndexRun::open(&disk, dir(), NUMBERS).unwrap();
    assert_eq!(disk.counts().reads - before, 2, "header, and end with index");
    assert_eq!((run.len(), run.key_range()), (100_000, Some((3, 300_000))));
    assert_eq!((run.memory(), run.size()), (written.memory(), written.size()));
    assert!(run.size() < 100_000 * 8, "{} bytes on the disk", run.size());
    assert!(run.memory() < 100_000 * 14 / 8 + 4_096, "{} bytes in memory", run.memory());
    assert_eq!(run.find(u64::MAX).unwrap(), Vec::new());
    assert_eq!(disk.counts().reads - before, 2, "no filter is read for what lies beyond all keys");
    assert!(run.may_hold(3).unwrap());
    assert_eq!(disk.counts().reads - before, 3, "the filter, with the first key that may be there");
    let before = disk.counts().reads;
    for (key, home) in pairs.iter().step_by(101) {
        assert_eq!(run.home(number(*key)).unwrap(), Some(*home));
    }
    assert_eq!(disk.counts().reads - before, pairs.iter().step_by(101).len() as u64);
    let before = disk.counts().reads;
    for key in (1..300_100).step_by(3) {
        assert_eq!(run.home(number(key)).unwrap(), None);
    }
    assert!(disk.counts().reads - before < 100_000 / 50, "the filter lets too many pass");
    run.verify(&mut |_| ()).unwrap();
    let before = disk.counts();
    let read: Vec<_> = Arc::new(run).iter().collect::<Result<_>>().unwrap();
    assert_eq!(read, pairs);
    assert!(disk.counts().reads - before.reads < written.size() / 25_000 + 2, "large reads");
}

#[test]
fn a_run_that_was_just_written_has_its_filter_at_hand() {
    let disk = CountedDisk::new(Arc::new(disk()));
    let run = write(&disk, NUMBERS, 1_000, &homes(1_000));
    let before = disk.counts().reads;
    assert_eq!(run.home(number(3)).unwrap(), Some(home(3)));
    assert_eq!(disk.counts().reads - before, 1, "a block");
}

#[test]
fn without_a_filter_and_without_pairs_too() {
    let disk = disk();
    let run = write(&disk, NUMBERS, 0, &homes(5_000));
    assert!(run.may_hold(4).unwrap() && run.home(number(4)).unwrap().is_none());
    assert_eq!(run.home(number(6)).unwrap(), Some(home(6)));
    assert!(run.memory() < 1_024);
    for filter_for in [0, 10] {
        write::<TableRef>(&disk, NUMBERS, filter_for, &[]);
        let empty: Arc<IndexRun<TableRef>> = Arc::new(IndexRun::open(&disk, dir(), NUMBERS).unwrap());
        empty.verify(&mut |_| ()).unwrap();
        assert_eq!((empty.len(), empty.key_range(), empty.iter().count()), (0, None, 0));
        assert!(empty.find(0).unwrap().is_empty());
    }
}

#[test]
fn what_is_wanted_is_found_and_blocks_that_have_none_of_it_are_not_read() {
    let disk = CountedDisk::new(Arc::new(disk()));
    let pairs = homes(50_000);
    let run = write(&disk, NUMBERS, 0, &pairs);
    let blocks = run.index.blocks();
    assert!(blocks > 40, "{blocks}");
    let block = |at: usize| run.index.first(at);
    let between = |from: usize, to: usize| (block(from)..block(to)).collect::<Vec<u64>>();
    for (wanted, most_reads) in [
        (vec![], 0),
        (vec![1, 2, 200_000], 1),
        (vec![block(0)], 1),
        (vec![block(7) - 3, block(7), block(20) + 3], 3),
        (vec![pairs[49_999].0], 1),
        (between(5, 9), 1),
        (between(0, blocks - 1), run.size() / 25_000 + 1),
    ] {
        let mut set = NumberSet::default();
        wanted.iter().for_each(|number| set.add(*number));
        let (mut found, before) = (Vec::new(), disk.counts().reads);
        run.find_all(&set, |home| found.push(home)).unwrap();
        let right = pairs.iter().filter(|(key, _)| set.has(*key)).map(|(_, home)| *home);
        assert_eq!(found, right.collect::<Vec<_>>());
        let reads = disk.counts().reads - before;
        assert!(reads <= most_reads, "{reads} reads for {} numbers", wanted.len());
    }
}

#[test]
fn all_values_of_a_key_are_found_however_many() {
    let disk = CountedDisk::new(Arc::new(disk()));
    let mut pairs = Vec::new();
    for (key, values) in [(0, 3), (u64::MAX / 2, 2_000), (u64::MAX / 2 + 1, 100_000), (u64::MAX, 2)] {
        pairs.extend((1..=values).map(|value| (key, number(value * 5))));
    }
    let run = write(&disk, KEYS, pairs.len() as u64, &pairs);
    run.verify(&mut |_| ()).unwrap();
    for key in [0, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX] {
        let right: Vec<Number> = pairs.iter().filter(|pair| pair.0 == key).map(|pair| pair.1).collect();
        let before = disk.counts().reads;
        assert_eq!(run.find(key).unwrap(), right);
        let most = if right.len() > 10_000 { 10 } else { 1 };
        assert!(disk.counts().reads - before <= most, "{key}");
    }
    assert!(run.find(1).unwrap().is_empty());
}

#[test]
fn a_merge_keeps_the_newest_home_and_every_number_of_a_key() {
    let disk = disk();
    let old = write(&disk, NUMBERS, 0, &homes(2_000));
    let moved: Vec<_> = (1..=500).map(|key| (key * 4, TableRef { file: 99, ordinal: key as u32 })).collect();
    let new = write(&disk, FileId { number: 13, ..NUMBERS }, 0, &moved);
    let merged: Vec<MergedPair<TableRef>> =
        merge(vec![new.iter(), old.iter()]).collect::<Result<_>>().unwrap();
    let mut right: std::collections::BTreeMap<u64, (TableRef, usize)> =
        homes(2_000).into_iter().map(|(key, home)| (key, (home, 1))).collect();
    right.extend(moved.iter().map(|(key, home)| (*key, (*home, 0))));
    assert!(merged.iter().map(|merged| (merged.key, (merged.value, merged.run))).eq(right));

    let pairs = |factor: u64| (1..1_000).map(|key| (key / 3, number(key * factor))).collect::<Vec<_>>();
    let one = write(&disk, KEYS, 0, &pairs(1));
    let two = write(&disk, FileId { number: 13, ..KEYS }, 0, &pairs(2));
    let merged =
        merge(vec![one.iter(), two.iter()]).map(|merged| merged.map(|merged| (merged.key, merged.value)));
    let right: std::collections::BTreeSet<_> = pairs(1).into_iter().chain(pairs(2)).collect();
    assert!(merged.collect::<Result<Vec<_>>>().unwrap().into_iter().eq(right));
}

/// The answers of a run to all queries; `None` for an error.
fn answers(run: &Arc<IndexRun<TableRef>>) -> Vec<Option<String>> {
    let all = run.iter().collect::<Result<Vec<_>>>();
    let mut answers =
        vec![Some(format!("{} {:?}", run.len(), run.key_range())), all.ok().map(|all| format!("{all:?}"))];
    for key in (0..700).chain([u64::MAX]) {
        answers.push(run.find(key).ok().map(|found| format!("{found:?}")));
    }
    answers
}

#[test]
fn a_flipped_byte_is_refused_or_changes_nothing_and_a_cut_is_refused() {
    let disk = disk();
    let whole = answers(&write(&disk, NUMBERS, 200, &homes(200)));
    assert!(whole.iter().all(Option::is_some));
    let path = dir().join(NUMBERS.file_name());
    let bytes = disk.read_file(&path).unwrap();
    for byte in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[byte] ^= 1 << (byte % 8);
        disk.put_file(&path, damaged);
        if let Ok(run) = IndexRun::open(&disk, dir(), NUMBERS) {
            let run = Arc::new(run);
            crate::table::transcript::assert_no_lies(&answers(&run), &whole, &byte);
            let refusal = run.verify(&mut |_| ()).unwrap_err();
            assert!(matches!(refusal, ReadError::Damaged { .. }), "byte {byte}: {refusal}");
        }
        disk.put_file(&path, bytes[..byte].to_vec());
        let refusal = IndexRun::<TableRef>::open(&disk, dir(), NUMBERS).unwrap_err();
        assert!(matches!(refusal, ReadError::Damaged { .. }), "length {byte}: {refusal}");
    }
}

#[test]
fn a_damaged_filter_costs_reads_and_is_told_and_nothing_else_needs_it() {
    let disk = CountedDisk::new(Arc::new(disk()));
    let pairs = homes(1_000);
    write(&disk, NUMBERS, 1_000, &pairs);
    let run: IndexRun<TableRef> = IndexRun::open(&disk, dir(), NUMBERS).unwrap();
    let at = u64::from(run.index.end) + 5;
    disk.open(run.path()).unwrap().write_at(&[0x5a], at).unwrap();
    let run: Arc<IndexRun<TableRef>> = Arc::new(IndexRun::open(&disk, dir(), NUMBERS).unwrap());
    assert_eq!(run.damage(), None, "nobody has looked yet");
    assert_eq!(run.home(number(3)).unwrap(), Some(home(3)));
    let damage = run.damage().unwrap();
    assert!(damage.contains(&NUMBERS.file_name()) && damage.contains("a filter fails"), "{damage}");
    let before = disk.counts().reads;
    for key in 4..104_u64 {
        let right = key.is_multiple_of(3).then(|| home(key));
        assert_eq!(run.home(number(key)).unwrap(), right);
    }
    assert_eq!(disk.counts().reads - before, 100, "a block each, and the filter is not read again");
    let refusal = run.verify(&mut |_| ()).unwrap_err();
    assert!(matches!(refusal, ReadError::Damaged { .. }), "{refusal}");
    assert_eq!(run.iter().collect::<Result<Vec<_>>>().unwrap(), pairs);
}

#[test]
fn what_is_read_past_damage_says_what_it_left_out() {
    let disk = disk();
    let pairs = homes(10_000);
    write(&disk, NUMBERS, 0, &pairs);
    let run: Arc<IndexRun<TableRef>> = Arc::new(IndexRun::open(&disk, dir(), NUMBERS).unwrap());
    let blocks = run.index.blocks();
    assert!(blocks > 8, "{blocks}");
    let bad = [0, 3, 4, blocks - 1];
    bad.iter().for_each(|block| disk.rot_at(run.path(), u64::from(run.index.place(*block).start) + 9));
    let mut merged = merge(vec![run.iter_readable()]);
    let read: Vec<u64> = merged.by_ref().map(|merged| merged.unwrap().key).collect();
    let lost = merged.lost();
    let is_bad = |key: u64| bad.iter().any(|block| run.index.holding(key).contains(block));
    assert!(read.iter().copied().eq(pairs.iter().map(|pair| pair.0).filter(|key| !is_bad(*key))));
    for (key, _) in &pairs {
        let is_first_behind =
            bad.iter().any(|block| block + 1 < blocks && run.index.first(block + 1) == *key);
        assert_eq!(lost.has(*key), is_bad(*key) || is_first_behind, "{key}");
    }
    assert!(!lost.has(2) && !lost.has(30_001));
    let damage = run.damage().unwrap();
    assert!(damage.contains("byte 32") && damage.contains(&NUMBERS.file_name()), "{damage}");
}

#[test]
fn a_place_that_cannot_be_read_just_now_is_not_taken_for_a_bad_one() {
    let disk = disk();
    write(&disk, NUMBERS, 0, &homes(100));
    let run: Arc<IndexRun<TableRef>> = Arc::new(IndexRun::open(&disk, dir(), NUMBERS).unwrap());
    let fail = |error| disk.fail(Fault { calls: Calls::Reads, after: 0, times: 1, error });
    fail(std::io::ErrorKind::OutOfMemory);
    assert!(run.iter_readable().any(|read| read.is_err()));
    assert_eq!(run.damage(), None);
    // EIO.
    disk.fail(Fault { calls: Calls::Reads, after: 0, times: 2, error: std::io::ErrorKind::Other });
    assert!(run.iter_readable().all(|read| read.is_ok()));
    assert!(run.damage().is_some());
}

#[test]
fn a_bad_place_that_cannot_be_read_by_itself_just_now_is_not_passed_over() {
    let disk = disk();
    write(&disk, NUMBERS, 0, &homes(20_000));
    let run: Arc<IndexRun<TableRef>> = Arc::new(IndexRun::open(&disk, dir(), NUMBERS).unwrap());
    disk.rot_at(run.path(), u64::from(run.index.place(0).start) + 9);
    // The first read has several blocks, of which one is damaged; the second read fails.
    let error = std::io::ErrorKind::OutOfMemory;
    disk.fail(Fault { calls: Calls::Reads, after: 1, times: 1, error });
    assert!(run.iter_readable().next().unwrap().is_err());
    assert!(!disk.has_faults(Calls::Reads));
    let read = run.iter_readable().inspect(|read| assert!(read.is_ok(), "{read:?}")).count();
    assert!(read > 0 && read < 20_000, "{read} pairs beside the bad block");
}

#[test]
fn a_filter_that_cannot_be_read_just_now_is_read_the_next_time() {
    let memory = disk();
    let disk = CountedDisk::new(Arc::new(memory.clone()));
    write(&disk, NUMBERS, 20_000, &homes(20_000));
    let run: IndexRun<TableRef> = IndexRun::open(&disk, dir(), NUMBERS).unwrap();
    let error = std::io::ErrorKind::OutOfMemory;
    memory.fail(Fault { calls: Calls::Reads, after: 0, times: 1, error });
    assert!(run.home(number(4)).is_err());
    let before = disk.counts().reads;
    for key in (4..60_000).step_by(3) {
        assert_eq!(run.home(number(key)).unwrap(), None);
    }
    let reads = disk.counts().reads - before;
    assert!(reads < 20_000 / 50, "{reads} reads for numbers that are not there");
}

#[test]
fn what_is_longer_than_a_run_may_be_is_several() {
    let disk: Arc<dyn Disk> = Arc::new(disk());
    for most in [256, 4 * 1024, 10_000, 1 << 30] {
        let mut names = (1..).map(|number| FileId { number, ..NUMBERS });
        let mut parts = SplitWriter::new(Arc::clone(&disk), dir().to_owned(), most, 100);
        let pairs = homes(5_000);
        for (key, home) in &pairs {
            parts.push(*key, *home, || Ok(names.next().unwrap())).unwrap();
        }
        let runs = parts.finish().unwrap();
        assert_eq!(runs.len() > 2, most < 1 << 30, "{most}");
        let read: Vec<_> = runs.iter().flat_map(|run| run.iter()).collect::<Result<_>>().unwrap();
        assert_eq!(read, pairs);
        for (run, is_last) in runs.iter().zip((1..=runs.len()).map(|at| at == runs.len())) {
            let bytes = run.block_bytes();
            assert!(bytes < most + 100 && (is_last || bytes >= most), "{bytes} for {most}");
            assert!(run.has_filter());
            run.verify(&mut |_| ()).unwrap();
        }
    }
    let none = SplitWriter::<TableRef>::new(disk, dir().to_owned(), 4_096, 100).finish().unwrap();
    assert!(none.is_empty());
}

#[test]
fn a_merge_stops_at_damage() {
    let disk = disk();
    write(&disk, NUMBERS, 0, &homes(10_000));
    let path = dir().join(NUMBERS.file_name());
    let mut bytes = disk.read_file(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    disk.put_file(&path, bytes);
    let run: Arc<IndexRun<TableRef>> = Arc::new(IndexRun::open(&disk, dir(), NUMBERS).unwrap());
    let mut merged = merge(vec![run.iter()]);
    assert!(merged.by_ref().any(|merged| merged.is_err()));
    assert!(merged.next().is_none());
}

#[test]
#[should_panic(expected = "out of order")]
fn a_number_has_one_home_in_a_run() {
    let disk = disk();
    let mut writer = RunWriter::create(&disk, dir(), NUMBERS, 0).unwrap();
    writer.push(3, home(3)).unwrap();
    let _ = writer.push(3, home(4));
}
