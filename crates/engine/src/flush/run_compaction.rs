//! The part of a merge that needs only the disk: several index runs become one, or several if it is too long.
//!
//! # Rebuilding unreadable runs
//! An unreadable block of a run hides where some messages are, or which have a key: a hidden key must not be given to
//! another message, so nothing may be left out because of it. But everything in an index run is also in tables. A merge
//! that repairs damage skips bad blocks, and notes the ranges of hidden keys; then it reads the tables, and adds all
//! messages there that have such keys to runs beside the merged one. Only if each of these files can be read do the new
//! runs replace the old ones.
//!
//! 1. It uses the manifest that was durable when the merge was begun. What is written into tables since is found by
//!    newer index runs.
//! 2. But a message that is moved from one file into another gets its number into a newer index run, and not its key.
//!    So nothing is moved while this is in progress, and a file that was removed meanwhile had no message left.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::job::FlushContext;
use super::run_merge::{DeletionBitmaps, Living, Mergeable};
use super::unnamed_files::UnnamedFiles;
use crate::checkpoint::file_name;
use crate::executor::Task;
use crate::index_run::{self, IndexRun, RunMerge, SplitWriter, TableRef, UnreadableKeys};
use crate::sealed::{FileKind, ReadError};
use crate::table::{Table, TableEntry};

/// The minimum number of hidden messages that are collected before they are written.
const GATHERED: usize = 4 * 1024;

/// What is merged, and how.
pub(super) struct CompactionOrder<V: Mergeable> {
    pub(super) inputs: Vec<Arc<IndexRun<V>>>,
    /// The number of pairs that the filter of a new run is sized for.
    pub(super) filter_for: u64,
    /// Runs from which the messages in tables are to be determined first, if that is needed.
    pub(super) unread: Vec<Arc<IndexRun<TableRef>>>,
    pub(super) gone: DeletionBitmaps,
    /// Whether unreadable parts are rebuilt.
    pub(super) heals: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct RunCompaction<V: Mergeable> {
    context: FlushContext,
    made: UnnamedFiles,
    merge: RunMerge<V>,
    parts: Option<SplitWriter<V>>,
    gone: DeletionBitmaps,
    /// The messages in tables, as far as they are known.
    living: Option<Living>,
    /// The index runs from which the others are determined.
    unread: Option<RunMerge<TableRef>>,
    heals: bool,
    rebuild: Option<Rebuild<V>>,
}

/// The scan of tables for what runs hide.
#[derive(Debug)]
struct Rebuild<V> {
    lost: UnreadableKeys,
    /// Files that are still to be read, and the current one, up to an ordinal.
    files: Vec<u32>,
    open: Option<(Table, u32)>,
    found: Vec<(u64, V)>,
    /// Runs of what was found.
    written: Vec<Arc<IndexRun<V>>>,
    merged: Vec<Arc<IndexRun<V>>>,
}

impl<V: Mergeable> RunCompaction<V> {
    pub(super) fn new(context: &FlushContext, order: CompactionOrder<V>) -> RunCompaction<V> {
        let CompactionOrder { inputs, filter_for, unread, gone, heals } = order;
        let iter = |run: &Arc<IndexRun<V>>| if heals { run.iter_readable() } else { run.iter() };
        let unread =
            (!unread.is_empty()).then(|| index_run::merge(unread.iter().map(IndexRun::iter).collect()));
        let (disk, dir) = (Arc::clone(&context.disk), context.dir.clone());
        RunCompaction {
            made: UnnamedFiles::new(context.clone()),
            merge: index_run::merge(inputs.iter().map(iter).collect()),
            parts: Some(SplitWriter::new(disk, dir, context.run_bytes, filter_for)),
            gone,
            living: unread.is_some().then(Living::default),
            unread,
            heals,
            rebuild: None,
            context: context.clone(),
        }
    }

    /// Does a part of the work: looks at up to `most` pairs. When it is done, returns all index runs that replace those
    /// that were merged.
    pub(super) fn advance(&mut self, most: usize) -> io::Result<Option<Vec<Arc<IndexRun<V>>>>> {
        let mut left = most;
        while left > 0 {
            left = left.saturating_sub(1);
            if let Some(rebuild) = &mut self.rebuild {
                left = left.saturating_sub(AN_ENTRY * rebuild.read_on(&self.context, &self.gone)?);
                if rebuild.found.len() >= GATHERED.max(self.context.moved) || rebuild.is_at_end() {
                    rebuild.write(&self.context, &mut self.made)?;
                }
                if rebuild.is_at_end() {
                    let Rebuild { mut written, merged, .. } = self.rebuild.take().expect("it was just there");
                    written.extend(merged);
                    return Ok(Some(self.end(written)));
                }
            } else if let (Some(unread), Some(living)) = (&mut self.unread, &mut self.living) {
                match unread.next().transpose()? {
                    Some(home) if home.value.is_of_use(home.key, &self.gone, None) => {
                        let TableRef { file, ordinal } = home.value;
                        let is_dead = self.gone[&file].dead.iter().any(|dead| dead.contains(&ordinal));
                        living.add(home.key, is_dead);
                    }
                    Some(_) => {}
                    None => self.unread = None,
                }
            } else if let Some(merged) = self.merge.next().transpose()? {
                let parts = self.parts.as_mut().expect("they are written until they are whole");
                if merged.value.is_of_use(merged.key, &self.gone, self.living.as_ref()) {
                    parts.push(merged.key, merged.value, || self.made.new_name(V::KIND))?;
                }
            } else {
                let merged = self.parts.take().expect("they are whole once").finish()?;
                let lost = self.merge.lost();
                if lost.is_empty() {
                    return Ok(Some(self.end(merged)));
                }
                assert!(self.heals, "nothing is passed over unless it is rebuilt");
                let files = self.gone.keys().rev().copied().collect();
                let (open, found, written) = (None, Vec::new(), Vec::new());
                self.rebuild = Some(Rebuild { lost, files, open, found, written, merged });
            }
        }
        Ok(None)
    }

    fn end(&mut self, runs: Vec<Arc<IndexRun<V>>>) -> Vec<Arc<IndexRun<V>>> {
        self.made.keep();
        runs
    }
}

impl<V: Mergeable> Task for RunCompaction<V> {
    type Output = io::Result<Vec<Arc<IndexRun<V>>>>;

    fn slice(&mut self, most: usize) -> Option<Self::Output> {
        self.advance(most).transpose()
    }

    fn panicked(self) -> Self::Output {
        Err(io::Error::other("the merging of runs has panicked"))
    }
}

/// The cost of an entry of a table, in pairs of a run.
const AN_ENTRY: usize = 4;

impl<V: Mergeable> Rebuild<V> {
    fn is_at_end(&self) -> bool {
        self.open.is_none() && self.files.is_empty()
    }

    /// Reads a piece of a file; returns the number of its entries.
    fn read_on(&mut self, context: &FlushContext, gone: &DeletionBitmaps) -> io::Result<usize> {
        let Some((file, from)) = self.open.take() else {
            self.open_next(context)?;
            return Ok(0);
        };
        let settled = &gone[&file.name().number].settled;
        let Some(next) = settled.next_live(from).filter(|next| *next < file.len()) else { return Ok(0) };
        let to = file.piece_end(next);
        let mut entries = Vec::new();
        file.read(next..to, &mut entries)?;
        for TableEntry { ordinal, entry, .. } in entries.iter().filter(|one| !settled.has(one.ordinal)) {
            let home = TableRef { file: file.name().number, ordinal: *ordinal };
            let pair = V::pair_of(entry, home, context.directory);
            self.found.extend(pair.filter(|(key, _)| self.lost.has(*key)));
        }
        self.open = Some((file, to));
        Ok(entries.len())
    }

    /// Opens the next file that may have any of the hidden pairs.
    fn open_next(&mut self, context: &FlushContext) -> io::Result<()> {
        let Some(number) = self.files.pop() else { return Ok(()) };
        match Table::open(&*context.disk, &context.dir, file_name(context.directory, FileKind::Table, number))
        {
            Ok(file) => {
                let keys = V::keys_of(&file);
                self.open = keys.is_none_or(|keys| self.lost.has_any(keys)).then_some((file, 0));
                Ok(())
            }
            Err(ReadError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes what was collected.
    fn write(&mut self, context: &FlushContext, made: &mut UnnamedFiles) -> io::Result<()> {
        let mut found = std::mem::take(&mut self.found);
        found.sort_unstable();
        found.dedup_by(|one, other| one.0 == other.0 && (V::IS_UNIQUE || one.1 == other.1));
        let (disk, dir) = (Arc::clone(&context.disk), context.dir.clone());
        let mut parts = SplitWriter::new(disk, dir, context.run_bytes, found.len() as u64);
        for (key, value) in found {
            parts.push(key, value, || made.new_name(V::KIND))?;
        }
        self.written.extend(parts.finish()?);
        Ok(())
    }
}

/// The range of the numbers of a file's messages.
pub(super) fn numbers_of(file: &Table) -> RangeInclusive<u64> {
    let (lowest, highest) = file.number_range();
    lowest.get()..=highest.get()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dwell_model::Number;

    use super::*;
    use crate::disk::{Disk as _, MemoryDisk};
    use crate::executor::Executor;
    use crate::flush::memory_budget::MemoryBudget;
    use crate::flush::run_merge::GoneOf;
    use crate::table::DeletionBitmap;

    /// The pairs of the index runs that are written for what was found.
    fn written<V: Mergeable>(found: Vec<(u64, V)>) -> Vec<(u64, V)> {
        let disk = MemoryDisk::new();
        disk.create_dir(Path::new("/d")).unwrap();
        let (budget, executor) = (MemoryBudget::of(32 << 20, 8 << 20), Executor::without_threads());
        let context = FlushContext::new(Arc::new(disk), "/d".into(), 7, &budget, 1, executor);
        let mut made = UnnamedFiles::new(context.clone());
        let mut rebuild = Rebuild {
            lost: UnreadableKeys::default(),
            files: Vec::new(),
            open: None,
            found,
            written: Vec::new(),
            merged: Vec::new(),
        };
        rebuild.write(&context, &mut made).unwrap();
        made.keep();
        let pairs = rebuild.written.iter().flat_map(|run| run.iter());
        pairs.map(Result::unwrap).collect()
    }

    /// Crash story: 1. A slice of a merge panics: the file that it has begun stays, and the next merge begins another.
    #[test]
    fn where_it_panics_the_file_goes_that_it_has_begun() {
        let (disk, dir) = (MemoryDisk::new(), Path::new("/d"));
        disk.create_dir(dir).unwrap();
        let (budget, executor) = (MemoryBudget::of(32 << 20, 8 << 20), Executor::without_threads());
        let context =
            FlushContext::new(Arc::new(disk.clone()), dir.into(), 7, &budget, 1, Arc::clone(&executor));
        let name = context.new_name(FileKind::Numbers).unwrap();
        let mut writer = index_run::RunWriter::create(&disk, dir, name, 0).unwrap();
        (0..4).for_each(|key| writer.push(key, TableRef { file: 9, ordinal: 0 }).unwrap());
        let inputs = vec![Arc::new(writer.finish().unwrap())];
        let gone = [(9, GoneOf { settled: DeletionBitmap::none(4), dead: Vec::new() })].into();
        let order = CompactionOrder { inputs, filter_for: 0, unread: Vec::new(), gone, heals: false };
        let mut merge = RunCompaction::new(&context, order);
        assert!(merge.slice(1).is_none());
        assert_eq!(disk.list(dir).unwrap().len(), 2);
        assert!(merge.panicked().is_err());
        executor.close();
        assert_eq!(disk.list(dir).unwrap(), [name.file_name()]);
    }

    /// Runs of numbers have each key once, and runs of keys each pair.
    #[test]
    fn what_was_found_twice_is_written_once() {
        let home = |ordinal| TableRef { file: 1, ordinal };
        assert_eq!(written(vec![(5, home(2)), (4, home(9)), (5, home(1))]), [(4, home(9)), (5, home(1))]);
        let number = |number| Number::new(number).unwrap();
        let keys = vec![(5, number(2)), (5, number(1)), (4, number(3)), (5, number(2))];
        assert_eq!(written(keys), [(4, number(3)), (5, number(1)), (5, number(2))]);
    }
}
