//! The content of a directory: by kind of file, by table, by queue.

use std::collections::BTreeMap;
use std::path::Path;

use dwell_model::{Now, QueueName, Timestamp};
use dwell_store::QueueStats;

use super::loaded::{LoadedDirectory, UnrecordedLog};
use super::open_file_limit::with_few;
use super::{enter, size_of};
use crate::OpenError;
use crate::check;
use crate::disk::Disk;
use crate::journal::format::SegmentName;
use crate::sealed::{FileId, FileKind};

/// The totals of a kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KindStats {
    /// The number of files.
    pub files: u64,
    /// Their size in bytes, including preallocated room of segments.
    pub bytes: u64,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStats {
    /// Its name.
    pub file: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its number of messages.
    pub entries: u32,
    /// The number of messages that are not settled.
    pub live: u32,
    /// The earliest due of any message, settled or not.
    pub earliest: Timestamp,
    /// The latest due of any message, settled or not.
    pub latest: Timestamp,
}

/// The messages of a queue in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QueueTables {
    /// The number of tables that it is in.
    pub files: u64,
    /// Messages that are not settled.
    pub live: u64,
    /// Settled messages, whose room is freed when their files are removed.
    pub settled: u64,
    /// Bytes of all bodies, settled or not.
    pub body_bytes: u64,
}

/// The content of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryStats {
    /// How often it was opened.
    pub incarnation: u32,
    /// When it was created.
    pub made: Timestamp,
    /// Whether it was closed cleanly.
    pub was_closed: bool,
    /// The number of messages.
    pub messages: u64,
    /// The number of messages that lie in tables alone.
    pub cold: u64,
    /// The segment from which the journal is replayed; everything before is in tables. 0 if there are none.
    pub start: u64,
    /// Manifest, segments, tables, runs of numbers and of keys, and other files.
    pub kinds: [(&'static str, KindStats); 6],
    /// The tables, in the order in which they were written.
    pub tables: Vec<TableStats>,
    /// The current state of each queue, and its messages in tables.
    pub queues: Vec<(QueueStats, QueueTables)>,
}

/// Measures a directory as an opening at `now` would find it; changes nothing. Reads the journal and the indexes of
/// sealed files.
///
/// # Errors
/// [`OpenError`], as an opening would.
pub fn stats(disk: &(impl Disk + Clone), dir: &Path, now: Now) -> Result<DirectoryStats, OpenError> {
    with_few(disk, |few| measured(few.disk(), dir, now))
}

fn measured(disk: &dyn Disk, dir: &Path, now: Now) -> Result<DirectoryStats, OpenError> {
    let (_lock, names) = enter(disk, dir)?;
    let mut stored = LoadedDirectory::read(disk, dir)?;
    let (messages, was_closed) = (stored.messages(), stored.report.was_closed);
    let files = files_by_queue(&stored);
    let tables = tables(&stored);
    stored.open(now);
    let (core, cold) = stored.step.both();
    let cold_len = core.cold_len();
    let mut queues = Vec::new();
    let mut after: Option<QueueName> = None;
    loop {
        let page = core.queues(after.as_ref(), 1_000, now, &mut UnrecordedLog(cold));
        if core.gave_up() {
            continue;
        }
        if let Some(error) = page.iter().find_map(|stats| stats.unread.as_ref()) {
            return Err(OpenError::damaged(dir, 0, error.to_string()));
        }
        let Some(last) = page.last() else { break };
        after = Some(last.name.clone());
        queues.extend(page.into_iter().map(|stats| {
            let files = files.get(&stats.name).copied().unwrap_or_default();
            (stats, files)
        }));
    }
    let manifest = &stored.manifest;
    Ok(DirectoryStats {
        incarnation: manifest.incarnation,
        made: manifest.made,
        was_closed,
        messages,
        cold: cold_len,
        start: manifest.checkpoint.start,
        kinds: kinds(disk, dir, &names),
        tables,
        queues,
    })
}

/// Measures the files in a directory, open or not: manifest, segments, tables, runs of numbers and of keys, and
/// other files.
///
/// # Errors
/// [`OpenError`] if it cannot be listed.
pub fn sizes(disk: &dyn Disk, dir: &Path) -> Result<[(&'static str, KindStats); 6], OpenError> {
    let names = disk.list(dir).map_err(|error| OpenError::io(dir, error))?;
    Ok(kinds(disk, dir, &names))
}

fn kinds(disk: &dyn Disk, dir: &Path, names: &[String]) -> [(&'static str, KindStats); 6] {
    let words = ["manifest", "journal", "tables", "numbers", "keys", "other"];
    let mut kinds = words.map(|word| (word, KindStats::default()));
    for name in names {
        let kind = match FileId::parse(name) {
            Some((FileKind::Table, ..)) => 2,
            Some((FileKind::Numbers, ..)) => 3,
            Some((FileKind::Keys, ..)) => 4,
            None if name == crate::manifest::FILE => 0,
            None if SegmentName::parse(name).is_some() => 1,
            None => 5,
        };
        kinds[kind].1.files += 1;
        kinds[kind].1.bytes += size_of(disk, &dir.join(name)).unwrap_or(0);
    }
    kinds
}

fn tables(stored: &LoadedDirectory) -> Vec<TableStats> {
    let settled = stored.manifest.checkpoint.files.iter().map(|file| (file.number, &file.settled));
    let settled: BTreeMap<_, _> = settled.collect();
    let rows = stored.step.cold().files().iter().map(|(number, file)| {
        let (earliest, latest) = file.file.due_range();
        let settled = settled[number];
        TableStats {
            file: file.file.name().file_name(),
            bytes: file.file.size(),
            entries: file.file.len(),
            live: settled.live(0..settled.len()),
            earliest,
            latest,
        }
    });
    rows.collect()
}

fn files_by_queue(stored: &LoadedDirectory) -> BTreeMap<QueueName, QueueTables> {
    let files = stored.step.cold().files().values().map(|file| (&*file.file, &file.out));
    let counted = check::stats(files).into_iter().map(|(queue, stats)| {
        let check::TableQueueStats { scheduled, ready, dead, settled, body_bytes, files, .. } = stats;
        (queue, QueueTables { files, live: scheduled + ready + dead, settled, body_bytes })
    });
    counted.collect()
}
