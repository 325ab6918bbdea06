//! Checking sealed files: every checksum, and the references between files.
//!
//! Nothing is changed, and a check does not stop at the first flaw: the [`FileReport`] lists all, up to a bound.
//!
//! What is checked beyond each file by itself:
//! 1. A table has as many entries as its set of settlements.
//! 2. Each live entry is found by its number: the newest index run of numbers that has the number refers to this very
//!    entry.
//! 3. Each live entry that has a key, and was not dead when it was written, is found by it: some run of keys has its
//!    hash and number.
//!
//! For 2 and 3 live entries are gathered in portions that fit in memory, sorted, and each portion is compared with
//! the index runs, which are read through: so the check takes a bounded amount of memory, and reads sequentially.
//!
//! # Layout
//! - this file: the report, and the loop over all files
//! - `portion`: comparison of live entries with runs
//! - `stats`: the content of a directory's tables, by queue

mod portion;
mod stats;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use dwell_model::Number;

use self::portion::Portions;
use crate::disk::Disk;
use crate::index_run::{IndexRun, IndexValue, TableRef, key_hash_of};
use crate::sealed::{FileId, FileKind, ReadError};
use crate::table::{DeletionBitmap, Table};

pub(crate) use stats::{TableQueueStats, stats};

/// The sealed files of a shard, as its manifest names them.
#[derive(Clone, Debug)]
pub(crate) struct NamedFiles<'a> {
    pub(crate) directory: u64,
    pub(crate) shard: u16,
    /// Numbers of tables, with their settled entries.
    pub(crate) due: Vec<(u32, &'a DeletionBitmap)>,
    /// Numbers of index runs of numbers, newest first.
    pub(crate) numbers: Vec<u32>,
    /// Numbers of index runs of keys, newest first.
    pub(crate) keys: Vec<u32>,
}

/// A flaw in sealed files.
#[derive(Debug)]
pub(crate) enum FileFlaw {
    /// A file cannot be read, or not all of it.
    Unreadable(ReadError),
    /// A table and its set of settlements differ in their number of entries.
    Miscounted { file: FileId, settled: u32, entries: u32 },
    /// A message is not found by its number: runs have another place, or none.
    NotFoundByNumber { file: FileId, ordinal: u32, number: Number, found: Option<TableRef> },
    /// A message is not found by its key.
    NotFoundByKey { file: FileId, ordinal: u32, number: Number },
}

impl fmt::Display for FileFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileFlaw::Unreadable(error) => error.fmt(f),
            FileFlaw::Miscounted { file, settled, entries } => {
                let file = file.file_name();
                write!(f, "{file} has {entries} entries, and the manifest speaks of {settled}")
            }
            FileFlaw::NotFoundByNumber { file, ordinal, number, found } => {
                let file = file.file_name();
                write!(f, "{file}: message {number}, entry {ordinal}, is not found by its number: ")?;
                match found {
                    Some(TableRef { file, ordinal }) => {
                        write!(f, "the runs say table {file}, entry {ordinal}")
                    }
                    None => f.write_str("the runs do not know it"),
                }
            }
            FileFlaw::NotFoundByKey { file, ordinal, number } => {
                let file = file.file_name();
                write!(f, "{file}: message {number}, entry {ordinal}, is not found by its key")
            }
        }
    }
}

/// The result of a check.
#[derive(Debug, Default)]
pub(crate) struct FileReport {
    /// Files that were read whole, with valid checksums.
    pub(crate) files: u64,
    /// The total size of these files in bytes.
    pub(crate) bytes: u64,
    /// Entries of tables.
    pub(crate) entries: u64,
    /// Entries of tables that are not settled.
    pub(crate) live: u64,
    /// Pairs of index runs.
    pub(crate) pairs: u64,
    /// The flaws.
    pub(crate) flaws: Flaws,
    /// Whether live entries were not looked up by their numbers, because a run cannot be read.
    pub(crate) numbers_unchecked: bool,
    /// The same for keys.
    pub(crate) keys_unchecked: bool,
}

/// The flaws that were found.
#[derive(Debug, Default)]
pub(crate) struct Flaws {
    /// The first [`Flaws::MOST`] of them.
    pub(crate) named: Vec<FileFlaw>,
    /// The number of all flaws.
    pub(crate) in_all: u64,
}

impl Flaws {
    /// The maximum number of flaws that are listed.
    pub(crate) const MOST: usize = 1_000;

    fn note(&mut self, flaw: FileFlaw) {
        self.in_all += 1;
        if self.named.len() < Flaws::MOST {
            self.named.push(flaw);
        }
    }

    fn add(&mut self, others: Flaws) {
        let room = Flaws::MOST - self.named.len();
        self.named.extend(others.named.into_iter().take(room));
        self.in_all += others.in_all;
    }

    /// Records the error of a read as a flaw; `None` then.
    fn read<T>(&mut self, read: Result<T, ReadError>) -> Option<T> {
        read.map_err(|error| self.note(FileFlaw::Unreadable(error))).ok()
    }
}

impl FileReport {
    /// Whether there are no flaws.
    #[cfg(test)]
    pub(crate) fn is_sound(&self) -> bool {
        self.flaws.in_all == 0
    }
}

/// Checks all sealed files that `named` names in `dir`. `progress` receives the number of bytes read since its last
/// call; the sum is the length of all named files, plus each run once more for each portion of live entries.
pub(crate) fn check(
    disk: &dyn Disk,
    dir: &Path,
    named: &NamedFiles<'_>,
    progress: &mut dyn FnMut(u64),
) -> FileReport {
    check_in_portions(disk, dir, named, portion::MOST, progress)
}

/// The same check, with at most `portion` entries in a portion.
fn check_in_portions(
    disk: &dyn Disk,
    dir: &Path,
    named: &NamedFiles<'_>,
    portion: usize,
    progress: &mut dyn FnMut(u64),
) -> FileReport {
    let mut report = FileReport::default();
    let name = |kind, number| FileId { directory: named.directory, shard: named.shard, kind, number };
    let numbers = runs::<TableRef>(disk, dir, &named.numbers, name, &mut report, progress);
    let keys = runs::<Number>(disk, dir, &named.keys, name, &mut report, progress);
    (report.numbers_unchecked, report.keys_unchecked) = (numbers.is_none(), keys.is_none());
    let mut portions = Portions::new(portion, name(FileKind::Table, 0), numbers, keys);
    for (number, settled) in &named.due {
        let name = name(FileKind::Table, *number);
        let Some(file) = report.flaws.read(Table::open(disk, dir, name)) else { continue };
        report.entries += u64::from(file.len());
        if settled.len() != file.len() {
            report.flaws.note(FileFlaw::Miscounted {
                file: name,
                settled: settled.len(),
                entries: file.len(),
            });
            report.flaws.read(file.verify(progress));
            continue;
        }
        let verified = file.verify_each(progress, &mut |found| {
            if settled.has(found.ordinal) {
                return;
            }
            report.live += 1;
            let entry = &found.entry;
            let home = TableRef { file: *number, ordinal: found.ordinal };
            // Runs that were written before the dead were found by key lack the keys of the dead.
            let hash = entry.live_key().and_then(|_| key_hash_of(named.directory, entry));
            portions.add(home, entry.number, hash);
        });
        if report.flaws.read(verified).is_some() {
            report.files += 1;
            report.bytes += file.size();
        }
        progress(std::mem::take(&mut portions.read));
    }
    portions.compare();
    progress(portions.read);
    report.flaws.add(portions.flaws);
    report
}

/// Opens and verifies runs; `None` if one of them cannot be read.
fn runs<V: IndexValue>(
    disk: &dyn Disk,
    dir: &Path,
    numbers: &[u32],
    name: impl Fn(FileKind, u32) -> FileId,
    report: &mut FileReport,
    progress: &mut dyn FnMut(u64),
) -> Option<Vec<Arc<IndexRun<V>>>> {
    let mut runs = Vec::new();
    for number in numbers {
        let run = IndexRun::<V>::open(disk, dir, name(V::KIND, *number));
        let verified = run.and_then(|run| run.verify(progress).map(|()| run));
        if let Some(run) = report.flaws.read(verified) {
            report.files += 1;
            report.bytes += run.size();
            report.pairs += run.len();
            runs.push(Arc::new(run));
        }
    }
    (runs.len() == numbers.len()).then_some(runs)
}

/// Names of sealed files in a listing that `named` does not name: leftovers of a flush that did not complete. They
/// are removed when the directory is opened.
pub(crate) fn unnamed<'a>(names: &'a [String], named: &NamedFiles<'_>) -> Vec<&'a str> {
    let due = named.due.iter().map(|(number, _)| (FileKind::Table, *number));
    let numbers = named.numbers.iter().map(|number| (FileKind::Numbers, *number));
    let keys = named.keys.iter().map(|number| (FileKind::Keys, *number));
    let known: BTreeSet<(FileKind, u32)> = due.chain(numbers).chain(keys).collect();
    let is_unnamed = |name: &&String| {
        let parsed = FileId::parse(name).filter(|(_, shard, _)| *shard == named.shard);
        parsed.is_some_and(|(kind, _, number)| !known.contains(&(kind, number)))
    };
    names.iter().filter(is_unnamed).map(String::as_str).collect()
}
