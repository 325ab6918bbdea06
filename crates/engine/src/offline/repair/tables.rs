//! Tables without settled and damaged entries, and rebuilt runs for them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::num::NonZeroU32;
use std::path::Path;

use bytes::Bytes;
use dwell_model::{Number, Timestamp};
use dwell_store::core::CopyAt;

use super::old_manifest::OldDirectory;
use super::{NewDirectory, RepairReport};
use crate::OpenError;
use crate::checkpoint::{Checkpoint, LeasedMessage, TableState, file_name};
use crate::disk::Disk;
use crate::index_run::{self, TableRef, key_hash_of};
use crate::sealed::{FileId, FileKind};
use crate::table::{DeletionBitmap, Entry, Salvaged, SortKey, TableWriter, salvage};

/// The minimum number of pairs in a run, except for the last one.
const PAIRS: usize = 4 * 1024 * 1024;

/// What was saved.
pub(super) struct SavedTables {
    pub(super) checkpoint: Checkpoint,
    /// The highest number of any message.
    pub(super) highest: u64,
    /// The highest incarnation of any message.
    pub(super) incarnation: u32,
    /// For each old file with lost messages, the entries that are not lost: settled, or saved. Empty without the
    /// manifest.
    pub(super) unlost: BTreeMap<u32, DeletionBitmap>,
}

impl SavedTables {
    /// Rewrites every table.
    pub(super) fn save(
        disk: &dyn Disk,
        dir: &Path,
        origin: &OldDirectory,
        names: &[String],
        target: &NewDirectory,
        report: &mut RepairReport,
    ) -> Result<SavedTables, OpenError> {
        let mut saving = TableSaver::new(target);
        let old = match &origin.manifest {
            Some(manifest) => {
                let checkpoint = &manifest.checkpoint;
                saving.numbering = checkpoint.numbering.iter().copied().collect();
                let mut held: BTreeMap<u32, BTreeMap<u32, &LeasedMessage>> = BTreeMap::new();
                for one in &checkpoint.held {
                    held.entry(one.copy.file.get()).or_default().insert(one.copy.ordinal, one);
                }
                // A file that is named twice exists once.
                let mut named = BTreeSet::new();
                let files = checkpoint.files.iter().filter(|file| named.insert(file.number));
                let files = files.map(|file| OldTable {
                    number: file.number,
                    ready_until: file.ready_until,
                    settled: Some(&file.settled),
                    held: held.remove(&file.number).unwrap_or_default(),
                });
                files.collect()
            }
            None => {
                let numbers = names.iter().filter_map(|name| FileId::parse(name));
                let due = numbers.filter(|(kind, shard, _)| *kind == FileKind::Table && *shard == 0);
                let old = |(_, _, number)| OldTable {
                    number,
                    ready_until: Timestamp::MIN,
                    settled: None,
                    held: BTreeMap::new(),
                };
                due.map(old).collect::<Vec<_>>()
            }
        };
        // Without the sets of settlements the newest copy of a message counts.
        let mut newest: HashMap<Number, u32> = HashMap::new();
        for one in old.iter().filter(|one| one.settled.is_none()) {
            let name = file_name(origin.directory, FileKind::Table, one.number);
            let _ = salvage(disk, dir, name, &mut |saved| {
                if let Salvaged::Message { entry, .. } = saved {
                    let file = newest.entry(entry.number).or_insert(one.number);
                    *file = (*file).max(one.number);
                }
            });
        }
        for one in &old {
            let name = file_name(origin.directory, FileKind::Table, one.number);
            let is_newest = |number: Number| {
                one.settled.is_some() || newest.get(&number).is_none_or(|newest| *newest == one.number)
            };
            saving.save(disk, dir, name, one, &is_newest, report)?;
        }
        saving.finish()
    }
}

/// A file as the old manifest names it, or as it is found.
struct OldTable<'a> {
    number: u32,
    ready_until: Timestamp,
    /// `None` if it is not known.
    settled: Option<&'a DeletionBitmap>,
    /// Messages that were leased, by their ordinals; they count as settled.
    held: BTreeMap<u32, &'a LeasedMessage>,
}

impl OldTable<'_> {
    /// Whether an entry is to be saved.
    fn wants(&self, ordinal: u32) -> bool {
        self.settled.is_none_or(|settled| ordinal >= settled.len() || !settled.has(ordinal))
            || self.held.contains_key(&ordinal)
    }

    /// Entries that are not to be saved, if this is known.
    fn unwanted(&self) -> Option<DeletionBitmap> {
        let mut unwanted = self.settled?.clone();
        for ordinal in self.held.keys() {
            unwanted.clear(*ordinal);
        }
        Some(unwanted)
    }

    /// The number of entries in a range that are to be saved.
    fn wanted(&self, from: u32, to: u32) -> Option<u64> {
        let settled = self.settled?;
        let to = to.min(settled.len());
        let live = if from < to { settled.live(from..to) } else { 0 };
        Some(u64::from(live) + self.held.range(from..to.max(from)).count() as u64)
    }
}

struct TableSaver<'a> {
    target: &'a NewDirectory,
    next_file: u32,
    files: Vec<TableState>,
    held: Vec<LeasedMessage>,
    numbering: BTreeMap<u32, u64>,
    homes: Vec<(u64, TableRef)>,
    hashes: Vec<(u64, Number)>,
    numbers: Vec<u32>,
    keys: Vec<u32>,
    highest: u64,
    incarnation: u32,
    unlost: BTreeMap<u32, DeletionBitmap>,
}

/// A file that is being written.
struct OpenTable {
    number: u32,
    writer: TableWriter,
    last: SortKey,
    /// Ordinals of messages that were leased.
    held: Vec<u32>,
}

impl<'a> TableSaver<'a> {
    fn new(target: &'a NewDirectory) -> TableSaver<'a> {
        TableSaver {
            target,
            next_file: 1,
            files: Vec::new(),
            held: Vec::new(),
            numbering: BTreeMap::new(),
            homes: Vec::new(),
            hashes: Vec::new(),
            numbers: Vec::new(),
            keys: Vec::new(),
            highest: 0,
            incarnation: 0,
            unlost: BTreeMap::new(),
        }
    }

    fn failed(&self, error: io::Error) -> OpenError {
        OpenError::io(&self.target.dir, error)
    }

    fn save(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        name: FileId,
        old: &OldTable<'_>,
        is_newest: &dyn Fn(Number) -> bool,
        report: &mut RepairReport,
    ) -> Result<(), OpenError> {
        let path = dir.join(name.file_name());
        let mut open: Option<OpenTable> = None;
        let mut failed = None;
        let mut unlost = old.unwanted();
        // The next ordinal; ranges in which the number of lost entries is not known.
        let (mut next, mut unknown) = (0, false);
        let saved = salvage(disk, dir, name, &mut |saved| {
            if failed.is_some() {
                return;
            }
            match saved {
                Salvaged::Message { ordinal, entry, body } => {
                    count_lost(old, &mut next, ordinal, &mut unknown, report);
                    if old.wants(ordinal) && is_newest(entry.number) {
                        let was_saved = self.push(&mut open, old, ordinal, &entry, &body);
                        failed = was_saved.err();
                        report.entries += 1;
                        if let Some(unlost) = unlost.as_mut().filter(|unlost| ordinal < unlost.len()) {
                            unlost.set(ordinal);
                        }
                    }
                }
                Salvaged::Bodiless { ordinal, entry, len } => {
                    count_lost(old, &mut next, ordinal, &mut unknown, report);
                    if old.wants(ordinal) {
                        let Entry { number, .. } = entry;
                        let reason = format!("the body of message {number}, {len} bytes, is damaged");
                        report.lose(&path, None, Some(1), reason);
                    }
                }
                Salvaged::Lost { from, to, entries } => {
                    let messages = entries.and_then(|entries| old.wanted(next, next + entries));
                    match entries {
                        Some(entries) => next += entries,
                        None => unknown = true,
                    }
                    report.lose(&path, Some((from, to)), messages, "no message can be read here");
                }
            }
        });
        if let Some(error) = failed {
            return Err(self.failed(error));
        }
        match saved {
            Ok(()) => {
                let end = old.settled.map_or(next, DeletionBitmap::len);
                let end = end.max(next);
                count_lost(old, &mut next, end, &mut unknown, report);
                if let Some(last) = report.lost.last_mut()
                    && last.file == path
                    && last.messages == Some(0)
                {
                    last.reason = "what finds its messages cannot be read".to_owned();
                }
            }
            Err(error) => report.lose(&path, None, old.wanted(0, u32::MAX), error.to_string()),
        }
        self.unlost.extend(unlost.filter(|unlost| !unlost.is_full()).map(|unlost| (old.number, unlost)));
        match open {
            Some(open) => self.close(open, old),
            None => Ok(()),
        }
    }

    fn push(
        &mut self,
        open: &mut Option<OpenTable>,
        old: &OldTable<'_>,
        ordinal: u32,
        entry: &Entry,
        body: &Bytes,
    ) -> io::Result<()> {
        let key = entry.sort_key();
        // Whole blocks that are out of order are not from one file; they are saved all the same.
        if let Some(done) = open.take_if(|open| open.last >= key) {
            self.close(done, old).map_err(|error| io::Error::other(error.to_string()))?;
        }
        let open = match open {
            Some(open) => open,
            None => {
                let number = self.next_number()?;
                let name = file_name(self.target.directory, FileKind::Table, number);
                let writer = TableWriter::create(&*self.target.disk, &self.target.dir, name)?;
                open.insert(OpenTable { number, writer, last: key.clone(), held: Vec::new() })
            }
        };
        let at = open.writer.push(entry, body)?;
        open.last = key;
        let home = TableRef { file: open.number, ordinal: at };
        if let Some(held) = old.held.get(&ordinal) {
            let file = NonZeroU32::new(open.number).expect("files are counted from 1");
            let copy = CopyAt { file, ordinal: at };
            self.held.push(LeasedMessage { copy, number: held.number, standing: held.standing.clone() });
            open.held.push(at);
        }
        let number = entry.number;
        self.homes.push((number.get(), home));
        if let Some(hash) = key_hash_of(self.target.directory, entry) {
            self.hashes.push((hash, number));
        }
        self.highest = self.highest.max(number.get());
        self.incarnation = self.incarnation.max(entry.id.incarnation());
        if let Some(start) = number.get().checked_sub(entry.id.counter()) {
            self.numbering.entry(entry.id.incarnation()).or_insert(start);
        }
        if self.homes.len() >= PAIRS {
            self.write_runs()?;
        }
        Ok(())
    }

    fn next_number(&mut self) -> io::Result<u32> {
        let number = self.next_file;
        let next = number.checked_add(1);
        self.next_file = next.ok_or_else(|| io::Error::other("the numbers of files are used up"))?;
        Ok(number)
    }

    fn close(&mut self, open: OpenTable, old: &OldTable<'_>) -> Result<(), OpenError> {
        let OpenTable { number, writer, held, .. } = open;
        let file = writer.finish().map_err(|error| self.failed(error))?;
        let mut settled = DeletionBitmap::none(file.len());
        for ordinal in held {
            settled.set(ordinal);
        }
        self.files.push(TableState { number, ready_until: old.ready_until, settled });
        Ok(())
    }

    fn write_runs(&mut self) -> io::Result<()> {
        let mut homes = std::mem::take(&mut self.homes);
        homes.sort_unstable();
        homes.dedup_by_key(|(number, _)| *number);
        if !homes.is_empty() {
            let number = self.next_number()?;
            let name = file_name(self.target.directory, FileKind::Numbers, number);
            let mut writer = index_run::RunWriter::create(&*self.target.disk, &self.target.dir, name, 0)?;
            for (number, home) in homes {
                writer.push(number, home)?;
            }
            writer.finish()?;
            self.numbers.insert(0, number);
        }
        let mut hashes = std::mem::take(&mut self.hashes);
        hashes.sort_unstable();
        hashes.dedup();
        if !hashes.is_empty() {
            let number = self.next_number()?;
            let name = file_name(self.target.directory, FileKind::Keys, number);
            let count = hashes.len() as u64;
            let mut writer = index_run::RunWriter::create(&*self.target.disk, &self.target.dir, name, count)?;
            for (hash, number) in hashes {
                writer.push(hash, number)?;
            }
            writer.finish()?;
            self.keys.insert(0, number);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<SavedTables, OpenError> {
        self.write_runs().map_err(|error| OpenError::io(&self.target.dir, error))?;
        let numbers: BTreeSet<u32> = self.files.iter().map(|file| file.number).collect();
        assert_eq!(numbers.len(), self.files.len(), "no two files have one number");
        let checkpoint = Checkpoint {
            next_file: self.next_file,
            numbering: self.numbering.into_iter().collect(),
            files: self.files,
            numbers: self.numbers,
            keys: self.keys,
            held: self.held,
            ..Checkpoint::default()
        };
        let TableSaver { highest, incarnation, unlost, .. } = self;
        Ok(SavedTables { checkpoint, highest, incarnation, unlost })
    }
}

/// The entry of ordinal `found` follows a part that could not be read: counts the messages of that.
fn count_lost(old: &OldTable<'_>, next: &mut u32, found: u32, unknown: &mut bool, report: &mut RepairReport) {
    if std::mem::take(unknown)
        && let Some(last) = report.lost.last_mut()
    {
        last.messages = old.wanted(*next, found);
    }
    *next = found + 1;
}
