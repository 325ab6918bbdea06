//! Sets of sealed files, valid and with one flaw.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::disk::MemoryDisk;
use crate::index_run;
use crate::table::tests::{dir, many, of_all_kinds};
use crate::table::{Entry, TableWriter};

const DIRECTORY: u64 = 77;

fn name(kind: FileKind, number: u32) -> FileId {
    FileId { directory: DIRECTORY, shard: 3, kind, number }
}

/// A shard's files, as a manifest would list them.
struct Shard {
    disk: MemoryDisk,
    files: Vec<(u32, Arc<Table>, DeletionBitmap)>,
    numbers: Vec<(u64, TableRef)>,
    keys: Vec<(u64, Number)>,
}

impl Shard {
    /// Two tables with different messages, and the index runs that find them.
    fn new() -> Shard {
        let disk = MemoryDisk::new();
        disk.create_dir(dir()).unwrap();
        let mut shard = Shard { disk, files: Vec::new(), numbers: Vec::new(), keys: Vec::new() };
        let mut others = many();
        others.retain(|(entry, _)| entry.number.get() > 20);
        for (entry, _) in others.iter_mut().step_by(5) {
            entry.key = Some(format!("key {}", entry.number).parse().unwrap());
        }
        for (number, entries) in [(1, of_all_kinds()), (4, others)] {
            let mut writer = TableWriter::create(&shard.disk, dir(), name(FileKind::Table, number)).unwrap();
            for (entry, body) in &entries {
                let ordinal = writer.push(entry, body).unwrap();
                shard.numbers.push((entry.number.get(), TableRef { file: number, ordinal }));
                shard.keys.extend(hash(entry).map(|hash| (hash, entry.number)));
            }
            let file = writer.finish().unwrap();
            let settled = DeletionBitmap::none(file.len());
            shard.files.push((number, Arc::new(file), settled));
        }
        // A reference that was valid once, and is obsolete.
        shard.keys.push((5, Number::new(5).unwrap()));
        shard
    }

    /// Writes the index runs, with the pairs of an older one as well, and checks.
    fn check(&self, portion: usize) -> FileReport {
        let old: Vec<_> = (1..4_000).map(|number| (number, TableRef { file: 99, ordinal: 7 })).collect();
        write(&self.disk, name(FileKind::Numbers, 7), &self.numbers);
        write(&self.disk, name(FileKind::Numbers, 3), &old);
        let (newer, older) = self.keys.split_at(self.keys.len() / 2);
        write(&self.disk, name(FileKind::Keys, 7), newer);
        write(&self.disk, name(FileKind::Keys, 3), older);
        self.read(portion)
    }

    fn read(&self, portion: usize) -> FileReport {
        let mut bytes = 0;
        let report = check_in_portions(&self.disk, dir(), &self.named(), portion, &mut |read| bytes += read);
        assert!(bytes >= report.bytes - 64 * report.files, "{bytes} of {} bytes reported", report.bytes);
        report
    }

    fn named(&self) -> NamedFiles<'_> {
        let due = self.files.iter().map(|(number, _, settled)| (*number, settled)).collect();
        NamedFiles { directory: DIRECTORY, shard: 3, due, numbers: vec![7, 3], keys: vec![7, 3] }
    }

    fn path(&self, kind: FileKind, number: u32) -> std::path::PathBuf {
        dir().join(name(kind, number).file_name())
    }
}

fn hash(entry: &Entry) -> Option<u64> {
    index_run::key_hash_of(DIRECTORY, entry)
}

fn write<V: IndexValue>(disk: &MemoryDisk, name: FileId, pairs: &[(u64, V)]) {
    let mut pairs = pairs.to_vec();
    pairs.sort_unstable();
    let mut writer = index_run::RunWriter::create(disk, dir(), name, pairs.len() as u64).unwrap();
    pairs.iter().for_each(|(key, value)| writer.push(*key, *value).unwrap());
    writer.finish().unwrap();
}

fn texts(report: &FileReport) -> Vec<String> {
    report.flaws.named.iter().map(FileFlaw::to_string).collect()
}

#[test]
fn what_is_whole_is_sound_whatever_the_portions() {
    let shard = Shard::new();
    for portion in [1, 100, 1_000_000] {
        let report = shard.check(portion);
        assert!(report.is_sound(), "{:?}", texts(&report));
        assert_eq!((report.files, report.entries, report.live), (6, 2_991, 2_991));
        assert!(!report.numbers_unchecked && !report.keys_unchecked);
    }
}

#[test]
fn a_message_that_is_not_found_is_named_unless_it_is_settled() {
    let mut shard = Shard::new();
    let lost = shard.numbers.iter().position(|(number, _)| *number == 500).unwrap();
    let (number, home) = shard.numbers.remove(lost);
    let report = shard.check(700);
    let text = format!(
        "table-003-0000000004: message {number}, entry {}, is not found by its number: ",
        home.ordinal
    );
    assert_eq!(texts(&report), [text + "the runs say table 99, entry 7"]);
    let (_, _, settled) = shard.files.last_mut().unwrap();
    settled.set(home.ordinal);
    assert!(shard.check(700).is_sound());

    let mut shard = Shard::new();
    shard.numbers[20].1.ordinal += 1;
    assert!(matches!(shard.check(700).flaws.named[..], [FileFlaw::NotFoundByNumber { .. }]));

    let mut shard = Shard::new();
    let (_, number) = shard.keys.remove(3);
    let report = shard.check(700);
    assert!(
        matches!(report.flaws.named[..], [FileFlaw::NotFoundByKey { number: lost, .. }] if lost == number)
    );
}

#[test]
fn damage_is_named_and_the_rest_is_checked() {
    let shard = Shard::new();
    assert!(shard.check(1_000).is_sound());
    let damage = |kind, number, at: usize| {
        let path = shard.path(kind, number);
        let mut bytes = shard.disk.read_file(&path).unwrap();
        bytes[at] ^= 1;
        shard.disk.put_file(&path, bytes);
    };
    damage(FileKind::Table, 4, 50_000);
    let report = shard.read(1_000);
    assert_eq!((report.files, report.flaws.in_all), (5, 1));
    assert!(texts(&report)[0].contains("table-003-0000000004 is damaged at byte"), "{:?}", texts(&report));
    damage(FileKind::Table, 4, 50_000);
    damage(FileKind::Numbers, 7, 100);
    let report = shard.read(1_000);
    assert_eq!((report.files, report.flaws.in_all), (5, 1));
    assert!(report.numbers_unchecked && !report.keys_unchecked);
    shard.disk.remove(&shard.path(FileKind::Keys, 3)).unwrap();
    let report = shard.read(1_000);
    assert_eq!((report.files, report.flaws.in_all), (4, 2));
    assert!(report.numbers_unchecked && report.keys_unchecked);
}

#[test]
fn a_set_of_another_file_is_named() {
    let mut shard = Shard::new();
    shard.files[0].2 = DeletionBitmap::none(5);
    let report = shard.check(1_000);
    assert_eq!(texts(&report), ["table-003-0000000001 has 11 entries, and the manifest speaks of 5"]);
}

#[test]
fn flaws_are_counted_beyond_those_that_are_named() {
    let mut shard = Shard::new();
    shard.numbers.clear();
    let report = shard.check(1_000);
    assert_eq!((report.flaws.named.len(), report.flaws.in_all), (Flaws::MOST, 2_991));
}

#[test]
fn files_that_nothing_names_are_found_in_a_listing() {
    let shard = Shard::new();
    shard.check(1_000);
    shard.disk.put_file(&shard.path(FileKind::Table, 8), Vec::new());
    shard.disk.put_file(Path::new("/d/MANIFEST"), Vec::new());
    let names = shard.disk.list(dir()).unwrap();
    assert_eq!(unnamed(&names, &shard.named()), ["table-003-0000000008"]);
}

#[test]
fn stats_count_what_is_live_in_each_queue() {
    let mut shard = Shard::new();
    let (_, file, settled) = &mut shard.files[0];
    let dead = file.sections().last().unwrap().range();
    settled.set_range(dead.start - 2..dead.end);
    let stats = stats(shard.files.iter().map(|(_, file, settled)| (&**file, settled)));
    let queue = &stats[&"q".parse().unwrap()];
    assert_eq!((queue.ready, queue.scheduled, queue.dead, queue.settled), (1, 6 + 2_980, 0, 3));
    assert_eq!((queue.files, stats.len()), (2, 2));
}
