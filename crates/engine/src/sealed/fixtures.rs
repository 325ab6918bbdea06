//! Sealed files and sets of settlements that released versions wrote stay readable for ever.
//!
//! When a format is released, `DWELL_WRITE_FIXTURE=1 cargo test -p dwell-engine --lib -- --ignored
//! sealed::fixtures::write` writes `tests/fixtures/sealed/v<format>`; it never overwrites one. `expected.txt` is what
//! this test prints: it changes when messages get a new attribute, the data beside it never does.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dwell_model::{Number, Timestamp};

use super::{FORMAT_VERSION, FileId, FileKind};
use crate::disk::{Disk, MemoryDisk};
use crate::index_run::{self, IndexRun, IndexValue, TableRef, key_hash};
use crate::table::{self, DeletionBitmap};

const TABLE: FileId = FileId { directory: 77, shard: 3, kind: FileKind::Table, number: 12 };
const NUMBERS: FileId = FileId { kind: FileKind::Numbers, ..TABLE };
const KEYS: FileId = FileId { kind: FileKind::Keys, ..TABLE };
const SETTLED: &str = "settled";

fn fixture(format: u16) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sealed").join(format!("v{format}"))
}

fn dir() -> &'static Path {
    Path::new("/d")
}

fn write_all() -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.create_dir(dir()).unwrap();
    let entries = table::tests::of_all_kinds();
    let mut writer = table::TableWriter::create(&disk, dir(), TABLE).unwrap();
    for (entry, body) in &entries {
        writer.push(entry, body).unwrap();
    }
    writer.finish().unwrap();

    let mut writer = index_run::RunWriter::create(&disk, dir(), NUMBERS, 2_000).unwrap();
    for number in 1..=2_000 {
        writer.push(number * number, TableRef { file: 12, ordinal: number as u32 * 7 % 2_000 }).unwrap();
    }
    writer.finish().unwrap();

    let mut writer = index_run::RunWriter::create(&disk, dir(), KEYS, 0).unwrap();
    let hash =
        |key: &str| key_hash(TABLE.directory, &"orders".parse().unwrap(), &key.parse().unwrap(), false);
    let mut hashes: Vec<u64> = ["заказ 7", "a", "b", "c"].into_iter().map(hash).collect();
    hashes.sort_unstable();
    for hash in hashes {
        writer.push(hash, Number::new(5).unwrap()).unwrap();
        writer.push(hash, Number::MAX).unwrap();
    }
    writer.finish().unwrap();

    let mut settled = DeletionBitmap::none(30_000);
    settled.set_range(4_000..13_000);
    for ordinal in (20_480..24_576).step_by(2) {
        settled.set(ordinal);
    }
    settled.set(29_999);
    let mut bytes = Vec::new();
    settled.encode(TABLE.salt(), &mut bytes);
    disk.put_file(&dir().join(SETTLED), bytes);
    disk
}

/// Everything in the files, as text.
fn describe(disk: &MemoryDisk) -> String {
    let mut text = String::new();
    let file = Arc::new(table::Table::open(disk, dir(), TABLE).unwrap());
    file.verify(&mut |_| ()).unwrap();
    file.sections().iter().for_each(|section| writeln!(text, "{section:?}").unwrap());
    for read in file.scan(0..file.len()) {
        let (found, body) = read.unwrap();
        writeln!(text, "{} {:?} {:?}", found.ordinal, found.entry, String::from_utf8_lossy(&body)).unwrap();
    }
    writeln!(text, "expiries {:?}", file.expiries(None, Timestamp::MAX, 100).unwrap()).unwrap();
    describe_run::<TableRef>(&mut text, disk, NUMBERS);
    describe_run::<Number>(&mut text, disk, KEYS);
    let bytes = disk.read_file(&dir().join(SETTLED)).unwrap();
    let (settled, _) = DeletionBitmap::decode(&bytes, TABLE.salt()).unwrap();
    let live: Vec<_> =
        (0..settled.len()).step_by(1_000).map(|from| settled.live(from..from + 1_000)).collect();
    writeln!(text, "live by the thousand {live:?}").unwrap();
    text
}

fn describe_run<V: IndexValue>(text: &mut String, disk: &MemoryDisk, name: FileId) {
    let run = Arc::new(IndexRun::<V>::open(disk, dir(), name).unwrap());
    run.verify(&mut |_| ()).unwrap();
    writeln!(text, "{} with {} pairs", name.file_name(), run.len()).unwrap();
    for pair in run.iter().step_by(run.len().div_ceil(10) as usize) {
        let (key, value) = pair.unwrap();
        assert!(run.find(key).unwrap().contains(&value));
        writeln!(text, "{key} {value:?}").unwrap();
    }
}

#[test]
#[ignore = "writes a fixture; see the top of this file"]
fn write() {
    let to = fixture(FORMAT_VERSION);
    if std::env::var_os("DWELL_WRITE_FIXTURE").is_none() {
        return;
    }
    assert!(!to.exists(), "{} is there already; a released format does not change", to.display());
    fs::create_dir_all(&to).unwrap();
    let disk = write_all();
    for name in disk.list(dir()).unwrap() {
        fs::write(to.join(&name), disk.read_file(&dir().join(&name)).unwrap()).unwrap();
    }
    fs::write(to.join("expected.txt"), describe(&disk)).unwrap();
}

#[test]
fn every_format_that_was_released_is_read_as_it_was_meant() {
    for format in 1..=FORMAT_VERSION {
        let from = fixture(format);
        let disk = MemoryDisk::new();
        for entry in fs::read_dir(&from).unwrap() {
            let entry = entry.unwrap();
            disk.put_file(&dir().join(entry.file_name()), fs::read(entry.path()).unwrap());
        }
        let expected = fs::read_to_string(from.join("expected.txt")).unwrap();
        assert_eq!(describe(&disk), expected, "format {format}");
    }
}

#[test]
fn what_is_written_today_is_what_was_released() {
    let (ours, released) = (write_all(), fixture(FORMAT_VERSION));
    for name in ours.list(dir()).unwrap() {
        let bytes = ours.read_file(&dir().join(&name)).unwrap();
        assert_eq!(
            bytes,
            fs::read(released.join(&name)).unwrap(),
            "{name}: raise the version, or write it alike"
        );
    }
}
