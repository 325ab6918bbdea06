//! The part of a flush that needs only the disk: tables, runs, and the manifest that names them.
//!
//! It also moves messages from older files into new ones, see [`compaction_source`](super::compaction_source): they are
//! written again with what was captured, into the files of their time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dwell_model::{Death, DeathReason, Message, Number, QueueName, State, Timestamp};
use dwell_store::core::{CopyAt, QueueNames, SnapshotEntry};

use super::compaction_source::{self, CompactionSource};
use super::memory_budget::{FilterBudget, MemoryBudget};
use super::partition::partition;
use super::progress::FlushProgress;
use super::run_merge::{numbers_room, room};
use super::unnamed_files::UnnamedFiles;
use crate::Options;
use crate::background_failures::BackgroundFailures;
use crate::checkpoint::{Checkpoint, LeasedMessage, TableState, file_name};
use crate::cold::ColdSet;
use crate::disk::{Disk, failure};
use crate::executor::{Executor, Task};
use crate::file_deleter::FileDeleter;
use crate::index_run::{IndexRun, IndexValue, SplitWriter, TableRef, key_hash_of};
use crate::journal::segment::{BodyRef, Segment, WantedBody};
use crate::manifest::Manifest;
use crate::sealed::{self, FileId, FileKind};
use crate::table::{BodyPlace, DeletionBitmap, Entry, SectionState, Table, TableWriter};

/// The length from which a table takes no more entries, in bytes.
const TARGET_TABLE_BYTES: u64 = 256 * 1024 * 1024;
/// The number of messages after which the progress of the job is reported.
const PROGRESS_EVERY: usize = 512;
/// The minimum number of settled messages that may stay in files, however large they are.
const MIN_SPARE: u64 = 8;
/// The number of messages that are touched before they are needed.
const LOOKAHEAD: usize = 32;

/// What flushes and merges share: where they write to, and their bounds.
#[derive(Clone, Debug)]
pub(crate) struct FlushContext {
    pub(crate) disk: Arc<dyn Disk>,
    /// Removes files that are no longer needed.
    pub(crate) deleter: FileDeleter,
    pub(crate) dir: PathBuf,
    pub(crate) directory: u64,
    /// Fewer messages than this share a file with others.
    pub(crate) least: usize,
    /// The maximum number of messages that are moved out of older files at a time.
    pub(crate) moved: usize,
    /// The maximum bytes of bodies in memory at a time, or one body.
    body_bytes: usize,
    /// The maximum bytes of files that settled messages may occupy, beyond as many as are in use.
    spare_bytes: u64,
    /// The memory for filters of index runs.
    pub(crate) filters: FilterBudget,
    /// The length from which an index run takes no more pairs, in bytes.
    pub(crate) run_bytes: u64,
    /// Runs flushes and merges.
    pub(crate) executor: Arc<Executor>,
    /// Records failures.
    pub(crate) background_failures: Arc<BackgroundFailures>,
    /// The number of unreadable runs that were rebuilt.
    pub(crate) rebuilt: Arc<AtomicU64>,
    /// The number of the next sealed file.
    next_file: Arc<AtomicU32>,
    /// The number of bodies that failed their checksums when they were to be copied.
    pub(crate) damaged: Arc<AtomicU64>,
    /// Files that messages were to be moved out of, and that could not be read: to retry them each time would leave no
    /// room for others.
    unreadable: Arc<Mutex<BTreeSet<u32>>>,
}

impl FlushContext {
    /// A desk with `directory` and `next_file` from the manifest.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        directory: u64,
        budget: &MemoryBudget,
        next_file: u32,
        executor: Arc<Executor>,
    ) -> FlushContext {
        let next_file = Arc::new(AtomicU32::new(next_file));
        let (least, moved, body_bytes, spare_bytes, filters) = (0, 0, 0, 0, budget.filters());
        let deleter = FileDeleter::new(Arc::clone(&disk), Arc::clone(&executor));
        let (damaged, Options { run_bytes, .. }) = (Arc::default(), Options::default());
        let (background_failures, rebuilt) = (Arc::default(), Arc::default());
        let mut context = FlushContext {
            disk,
            deleter,
            dir,
            directory,
            least,
            moved,
            body_bytes,
            spare_bytes,
            filters,
            run_bytes,
            executor,
            background_failures,
            rebuilt,
            next_file,
            damaged,
            unreadable: Arc::default(),
        };
        context.go_by(budget);
        context
    }

    /// Applies the current memory budget.
    pub(crate) fn go_by(&mut self, budget: &MemoryBudget) {
        // The approximate number of messages that are flushed at a time.
        let generation = budget.generation();
        (self.least, self.moved) = ((generation / 8).max(2), (generation / 2).max(2));
        self.body_bytes = budget.bodies();
        self.spare_bytes = budget.spare_bytes();
    }

    /// The number of settled messages that may stay in files, beyond as many as are in use: those of a generation, or
    /// fewer if they are large.
    pub(super) fn spare(&self, cold: &ColdSet) -> u64 {
        let each = cold.bytes().checked_div(cold.entries()).unwrap_or_default().max(1);
        (self.spare_bytes / each).clamp(MIN_SPARE, MIN_SPARE.max(2 * self.moved as u64))
    }

    /// Files that nothing is moved out of, because they cannot be read.
    pub(super) fn unreadable(&self) -> BTreeSet<u32> {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The name of the next file.
    pub(crate) fn new_name(&self, kind: FileKind) -> io::Result<FileId> {
        let next = |number: u32| number.checked_add(1);
        let number = self.next_file.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let number = number.map_err(|_| io::Error::other("the numbers of files are used up"))?;
        Ok(file_name(self.directory, kind, number))
    }
}

/// Why a job ended without a new manifest.
#[derive(Debug)]
pub(crate) enum FlushError {
    /// The old manifest holds. The job may be retried.
    Again { error: io::Error },
    /// The disk holds one manifest or the other.
    Fatal(io::Error),
}

impl From<io::Error> for FlushError {
    fn from(error: io::Error) -> FlushError {
        FlushError::Again { error }
    }
}

/// The state at the moment of the capture.
#[derive(Debug)]
pub(crate) struct CheckpointMoment {
    /// The manifest, except for its checkpoint, which is older.
    pub(crate) manifest: Manifest,
    pub(crate) start: u64,
    pub(crate) seen: Timestamp,
    pub(crate) numbering: Vec<(u32, u64)>,
    /// For each file its settled entries, and the instant by which it was ripe.
    pub(crate) files: BTreeMap<u32, (DeletionBitmap, Timestamp)>,
    /// Queues that drop expired messages.
    pub(crate) drops: BTreeSet<QueueName>,
}

/// A file that was written.
#[derive(Debug)]
pub(crate) struct NewFile {
    pub(crate) number: NonZeroU32,
    pub(crate) file: Arc<Table>,
    pub(crate) segment: Arc<Segment>,
}

/// The place of a message's copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopiedMessage {
    pub(crate) number: Number,
    /// The index of the file.
    pub(crate) file: usize,
    pub(crate) ordinal: u32,
    pub(crate) body: BodyPlace,
    /// The copy that this one replaces, if the message was not captured, but moved out of an older file.
    pub(crate) moved: Option<CopyAt>,
}

/// What a job has made durable.
#[derive(Debug)]
pub(crate) struct FlushedState {
    pub(crate) manifest: Manifest,
    pub(crate) files: Vec<NewFile>,
    pub(crate) copies: Vec<CopiedMessage>,
    /// The moved messages that are dead by expiry, by number, with the instants at which they expired.
    pub(crate) expired: Vec<(Number, Timestamp)>,
    /// All index runs from now on, newest first.
    pub(crate) numbers: Vec<Arc<IndexRun<TableRef>>>,
    pub(crate) keys: Vec<Arc<IndexRun<Number>>>,
    /// Coarse files out of which everything due by the given instant was moved.
    pub(crate) split: Vec<(u32, Timestamp)>,
    /// The number of messages that were moved out of coarse files.
    pub(crate) parted: usize,
    /// The number of the merged index runs that the new manifest no longer names.
    pub(crate) merged: usize,
    /// Files that the manifest no longer names.
    pub(crate) gone_files: Vec<u32>,
}

/// The next stage of the work.
#[derive(Debug)]
enum FlushStage {
    Sources,
    Files,
    Runs,
    Manifest,
    Done,
}

/// See the module.
pub(crate) struct FlushJob {
    context: FlushContext,
    manifest: Manifest,
    made: UnnamedFiles,
    stage: FlushStage,
    /// Files out of which messages are moved.
    sources: Vec<CompactionSource>,
    /// Queues that drop expired messages.
    drops: BTreeSet<QueueName>,
    /// The number of messages that may still be moved.
    may_move: usize,
    parted: usize,
    merged: usize,
    split: Vec<(u32, Timestamp)>,
    /// How often the bodies have been written that are moved out of these files.
    writes: BTreeMap<u32, u32>,
    /// What was captured and is to be copied, followed by what is moved.
    to_copy: Vec<SnapshotEntry<BodyRef>>,
    /// Their queues, and for each the number of names that sort before its own.
    names: QueueNames,
    ranks: Vec<u32>,
    /// The indexes in `to_copy` of the messages of each part, the next part at the end.
    parts: Vec<Vec<u32>>,
    /// Leased messages that have a copy, and those that get one now.
    held: Vec<LeasedMessage>,
    to_be_held: BTreeMap<Number, dwell_model::Standing>,
    old_files: Vec<TableState>,
    gone_files: Vec<u32>,
    files: Vec<NewFile>,
    new_settled: Vec<DeletionBitmap>,
    copies: Vec<CopiedMessage>,
    expired: Vec<(Number, Timestamp)>,
    /// The moved messages that are dead by expiry in their new file.
    dying: BTreeSet<Number>,
    /// Key hashes of what is copied.
    key_hashes: Vec<(u64, Number)>,
    numbers: Vec<Arc<IndexRun<TableRef>>>,
    keys: Vec<Arc<IndexRun<Number>>>,
    pub(crate) progress: Arc<FlushProgress>,
}

impl FlushJob {
    pub(crate) fn new(
        context: FlushContext,
        moment: CheckpointMoment,
        (mut to_copy, names): (Vec<SnapshotEntry<BodyRef>>, QueueNames),
        merged: usize,
        cold: &ColdSet,
        moves: bool,
        progress: FlushProgress,
    ) -> FlushJob {
        let CheckpointMoment { manifest, start, seen, numbering, files, drops } = moment;
        let (mut held, mut to_be_held) = (Vec::new(), BTreeMap::new());
        let mut left_by_held =
            compaction_source::left_by_held(&files, &to_copy, &context.unreadable(), context.moved);
        to_copy.retain_mut(|one| {
            if let (State::Leased(_), Some(copy)) = (one.state(), one.copy)
                && left_by_held.remove(&copy)
            {
                one.copy = None;
            }
            match (one.state(), one.copy) {
                (State::Leased(_), Some(copy)) => {
                    held.push(LeasedMessage { copy, number: one.number, standing: one.standing() });
                    return false;
                }
                (State::Leased(_), None) => {
                    to_be_held.insert(one.number, one.standing());
                    // The standing in the copy is not used while the message is held.
                    one.make_ready();
                }
                (_, Some(_)) => one.copy = None,
                (_, None) => {}
            }
            true
        });
        let needed: BTreeSet<u32> = held.iter().map(|held| held.copy.file.get()).collect();
        let is_gone = |number: &u32, settled: &DeletionBitmap| settled.is_full() && !needed.contains(number);
        let gone_files = files.iter().filter(|(number, (settled, _))| is_gone(number, settled));
        let mut gone_files: Vec<u32> = gone_files.map(|(number, _)| *number).collect();
        let sources =
            if moves { compaction_source::choose(cold, &files, &needed, seen, &context) } else { Vec::new() };
        let given_up = sources.iter().filter(|source| source.until.is_none());
        gone_files.extend(given_up.map(|source| source.file.name().number));
        let old_files = files
            .into_iter()
            .filter(|(number, _)| !gone_files.contains(number))
            .map(|(number, (settled, ready_until))| TableState { number, ready_until, settled });
        let mut manifest = manifest;
        manifest.checkpoint = Checkpoint { start, seen, numbering, ..Checkpoint::default() };
        let may_move = context.moved;
        FlushJob {
            manifest,
            made: UnnamedFiles::new(context.clone()),
            stage: FlushStage::Sources,
            sources,
            drops,
            may_move,
            parted: 0,
            merged,
            split: Vec::new(),
            writes: BTreeMap::new(),
            to_copy,
            names,
            ranks: Vec::new(),
            parts: Vec::new(),
            held,
            to_be_held,
            old_files: old_files.collect(),
            gone_files,
            files: Vec::new(),
            new_settled: Vec::new(),
            copies: Vec::new(),
            expired: Vec::new(),
            dying: BTreeSet::new(),
            key_hashes: Vec::new(),
            numbers: cold.numbers().to_vec(),
            keys: cold.keys().to_vec(),
            progress: Arc::new(progress),
            context,
        }
    }

    /// Whether the disk may hold the new manifest, although the result was not reported yet.
    pub(crate) fn is_decided(&self) -> bool {
        matches!(self.stage, FlushStage::Manifest | FlushStage::Done)
    }

    /// Does a part of the work; true when it is done. After an error what was written is unusable, and is removed with
    /// the job.
    pub(crate) fn advance(&mut self) -> Result<bool, FlushError> {
        match self.stage {
            FlushStage::Sources => match self.sources.pop() {
                Some(source) => self.move_out(source),
                None => {
                    self.ranks = ranks(self.names.all());
                    self.parts = partition(&self.to_copy, self.manifest.checkpoint.seen, self.context.least);
                    self.parts.reverse();
                    self.stage = FlushStage::Files;
                }
            },
            FlushStage::Files => match self.parts.pop() {
                Some(part) => {
                    let mut to_copy = std::mem::take(&mut self.to_copy);
                    let written = self.write_part(&mut to_copy, &part);
                    self.to_copy = to_copy;
                    written?;
                }
                None => {
                    self.to_copy = Vec::new();
                    self.stage = FlushStage::Runs;
                }
            },
            FlushStage::Runs => {
                self.write_runs()?;
                self.stage = FlushStage::Manifest;
            }
            FlushStage::Manifest => {
                self.write_manifest()?;
                self.stage = FlushStage::Done;
            }
            FlushStage::Done => return Ok(true),
        }
        Ok(false)
    }

    /// Reports progress: of `part` thousandths of the work, the share of `total` messages that was copied.
    fn tell(&self, part: u64, total: usize) {
        let progress = part * self.copies.len() as u64 / total.max(1) as u64;
        self.progress.set(u32::try_from(progress).unwrap_or(u32::MAX));
    }

    /// What is durable now.
    ///
    /// # Panics
    /// If some work is left.
    pub(crate) fn finish(self) -> FlushedState {
        assert!(matches!(self.stage, FlushStage::Done), "everything is written");
        FlushedState {
            manifest: self.manifest,
            files: self.files,
            copies: self.copies,
            expired: self.expired,
            numbers: self.numbers,
            keys: self.keys,
            split: self.split,
            parted: self.parted,
            merged: self.merged,
            gone_files: self.gone_files,
        }
    }

    /// Moves messages out of a file, or leaves the file as it is: an unreadable file keeps nothing else in memory.
    fn move_out(&mut self, source: CompactionSource) {
        let before = self.to_copy.len();
        self.writes.insert(source.file.name().number, source.file.writes());
        let Err(error) = self.read_out(&source) else { return };
        if error.is_of_the_place() {
            let mut unreadable = self.context.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
            unreadable.insert(source.file.name().number);
        }
        self.to_copy.truncate(before);
        if source.until.is_none() {
            let state = source.state();
            self.gone_files.retain(|number| *number != state.number);
            self.old_files.push(state);
            self.old_files.sort_unstable_by_key(|file| file.number);
        }
    }

    /// Reads the messages that are moved out of a file, to be copied with what was captured.
    fn read_out(&mut self, source: &CompactionSource) -> sealed::Result<()> {
        let number = source.file.name().number;
        let file = NonZeroU32::new(number).expect("files are counted from 1");
        let (mut found, mut moved) = (Vec::new(), Vec::new());
        let mut is_whole = true;
        for range in source.ranges()? {
            let mut next = source.settled.next_live(range.start).filter(|next| *next < range.end);
            while let Some(ordinal) = next {
                // A file that is given up is moved whole.
                if source.until.is_some() && moved.len() >= self.may_move {
                    is_whole = false;
                    break;
                }
                found.clear();
                let end = source.file.block_end(ordinal).min(range.end);
                source.file.read(ordinal..end, &mut found)?;
                for one in found.drain(..).filter(|one| !source.settled.has(one.ordinal)) {
                    moved.push(one.ordinal);
                    let (captured, dies) = source.captured(one, file, &self.drops, &mut self.names);
                    if dies {
                        self.dying.insert(captured.number);
                    }
                    self.to_copy.push(captured);
                }
                next = source.settled.next_live(end).filter(|next| *next < range.end);
            }
        }
        self.may_move = self.may_move.saturating_sub(moved.len());
        let Some(until) = source.until else { return Ok(()) };
        self.parted += moved.len();
        if is_whole {
            self.split.push((number, until));
        }
        let state = self.old_files.iter_mut().find(|state| state.number == number);
        let state = state.expect("a file that is not given up stays");
        for ordinal in moved {
            state.settled.set(ordinal);
        }
        Ok(())
    }

    fn write_part(&mut self, to_copy: &mut [SnapshotEntry<BodyRef>], part: &[u32]) -> io::Result<()> {
        let order = in_order(to_copy, part, &self.ranks);
        let (mut rest, mut bodies) = (order.as_slice(), Vec::new());
        while !rest.is_empty() {
            let name = self.made.new_name(FileKind::Table)?;
            let mut writer = TableWriter::create(&*self.context.disk, &self.context.dir, name)?;
            let (first, mut held) = (self.copies.len(), Vec::new());
            while writer.bytes() < TARGET_TABLE_BYTES && !rest.is_empty() {
                let mut wanted = Vec::new();
                let (some, later) = rest.split_at(self.take_up(to_copy, rest, &mut wanted));
                rest = later;
                // A damaged body is copied as damaged, so that the damage stays detectable and the other messages can
                // leave the file.
                let damaged = BodyRef::gather(&wanted, &mut bodies)?;
                drop(wanted);
                self.context.damaged.fetch_add(damaged.len() as u64, Ordering::Relaxed);
                let mut next = 0;
                for (index, at) in some.iter().enumerate() {
                    if index.is_multiple_of(LOOKAHEAD) {
                        touch(to_copy, &some[index..some.len().min(index + LOOKAHEAD)]);
                    }
                    let one = &mut to_copy[*at as usize];
                    let (moved, len) = (one.copy, one.body.len);
                    let entry = entry(one.take(&self.names));
                    if let Some(from) = moved {
                        writer.note_writes(self.writes[&from.file.get()] + 1);
                    }
                    let start = next;
                    next += len as usize;
                    let bytes = &bodies[start..next];
                    let ordinal = if damaged.contains(&index) {
                        writer.push_damaged(&entry, bytes)?
                    } else {
                        writer.push(&entry, bytes)?
                    };
                    let number = entry.number;
                    if let (State::Dead(Death { reason: DeathReason::Expired, at }), Some(_)) =
                        (entry.standing.state, moved)
                    {
                        self.expired.push((number, at));
                    }
                    // A moved message is in a run already, unless its hash has changed.
                    if let Some(hash) = key_hash_of(self.context.directory, &entry)
                        && (moved.is_none() || self.dying.contains(&number))
                    {
                        self.key_hashes.push((hash, number));
                    }
                    if !self.to_be_held.is_empty() && self.to_be_held.contains_key(&number) {
                        held.push((ordinal, number));
                    }
                    let body = BodyPlace { at: 0, len };
                    self.copies.push(CopiedMessage { number, file: self.files.len(), ordinal, body, moved });
                    if self.copies.len().is_multiple_of(PROGRESS_EVERY) {
                        self.tell(800, to_copy.len());
                    }
                }
            }
            let (file, places) = writer.finish_with_bodies()?;
            for (copy, place) in self.copies[first..].iter_mut().zip(places) {
                copy.body = place;
            }
            self.take_in(name.number, Arc::new(file), held);
        }
        Ok(())
    }

    /// The first of these messages whose bodies may be in memory together, at least one; returns their number.
    fn take_up<'a>(
        &self,
        to_copy: &'a [SnapshotEntry<BodyRef>],
        rest: &[u32],
        wanted: &mut Vec<WantedBody<'a>>,
    ) -> usize {
        let mut bytes = 0;
        for near in rest.chunks(LOOKAHEAD) {
            touch(to_copy, near);
            for at in near {
                if bytes >= self.context.body_bytes {
                    return wanted.len();
                }
                let one = &to_copy[*at as usize];
                bytes += one.body.len as usize;
                wanted.push(one.body.wanted(one.number));
            }
        }
        wanted.len()
    }

    fn take_in(&mut self, number: u32, file: Arc<Table>, held: Vec<(u32, Number)>) {
        let number = NonZeroU32::new(number).expect("files are counted from 1");
        let mut settled = DeletionBitmap::none(file.len());
        for (ordinal, message) in held {
            settled.set(ordinal);
            let standing = self.to_be_held.remove(&message).expect("it was looked up a moment ago");
            self.held.push(LeasedMessage {
                copy: CopyAt { file: number, ordinal },
                number: message,
                standing,
            });
        }
        let segment = Arc::new(Segment::of_table(&file));
        self.files.push(NewFile { number, file, segment });
        self.new_settled.push(settled);
    }

    fn write_runs(&mut self) -> io::Result<()> {
        // Copies are reported to messages in this order too, which is that of the messages in memory.
        self.copies.sort_unstable_by_key(|copy| copy.number);
        self.expired.sort_unstable();
        let range = self.copies.first().zip(self.copies.last());
        let range = range.map(|(first, last)| (first.number.get(), last.number.get()));
        let total = self.copies.len() as u64;
        let filter_for = numbers_room(total, range, &self.numbers, self.context.filters);
        let mut numbers = self.parts(filter_for);
        for copy in &self.copies {
            let home = TableRef { file: self.files[copy.file].number.get(), ordinal: copy.ordinal };
            numbers.push(copy.number.get(), home, || self.made.new_name(FileKind::Numbers))?;
        }
        self.numbers.splice(0..0, numbers.finish()?);
        let mut hashes = std::mem::take(&mut self.key_hashes);
        hashes.sort_unstable();
        let all = self.keys.iter().map(|run| run.len()).sum();
        let mut keys = self.parts(room::<Number>(hashes.len() as u64, all, self.context.filters.keys));
        for (hash, number) in hashes {
            keys.push(hash, number, || self.made.new_name(FileKind::Keys))?;
        }
        self.keys.splice(0..0, keys.finish()?);
        Ok(())
    }

    /// Runs to be written, with filters sized for `filter_for` pairs in all.
    fn parts<V: IndexValue>(&self, filter_for: u64) -> SplitWriter<V> {
        // A pair takes three bytes at least, and what is longer than an index run is divided.
        let filter_for = filter_for.min(self.context.run_bytes / 3);
        SplitWriter::new(
            Arc::clone(&self.context.disk),
            self.context.dir.clone(),
            self.context.run_bytes,
            filter_for,
        )
    }

    fn write_manifest(&mut self) -> Result<(), FlushError> {
        // Files of which everything was moved into finer files may be empty now.
        let held: BTreeSet<u32> = self.held.iter().map(|held| held.copy.file.get()).collect();
        let (gone, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.old_files)
            .into_iter()
            .partition(|file| file.settled.is_full() && !held.contains(&file.number));
        self.gone_files.extend(gone.iter().map(|file| file.number));
        self.old_files = left;
        let new = self.files.iter().zip(std::mem::take(&mut self.new_settled));
        let new = new.map(|(file, settled)| TableState {
            number: file.number.get(),
            ready_until: Timestamp::MIN,
            settled,
        });
        let checkpoint = &mut self.manifest.checkpoint;
        checkpoint.files = std::mem::take(&mut self.old_files).into_iter().chain(new).collect();
        checkpoint.numbers = self.numbers.iter().map(|run| run.name().number).collect();
        checkpoint.keys = self.keys.iter().map(|run| run.name().number).collect();
        checkpoint.held = std::mem::take(&mut self.held);
        checkpoint.next_file = self.context.next_file.load(Ordering::Relaxed);
        let (disk, dir) = (Arc::clone(&self.context.disk), self.context.dir.clone());
        // The files' names have to be durable before the manifest's is.
        match disk.sync_dir(&dir) {
            // Nothing names them yet: they are removed, and others are written.
            Err(error) if failure::is_full(&error) || failure::has_no_file_left(&error) => Err(error)?,
            Err(error) => {
                self.made.keep();
                return Err(FlushError::Fatal(error));
            }
            Ok(()) => {}
        }
        self.manifest.write_new(&*disk, &dir)?;
        // From here on it is not known whether the manifest names them.
        self.made.keep();
        Manifest::replace(&*disk, &dir).map_err(FlushError::Fatal)
    }
}

/// A job as a task of the executor.
pub(crate) struct FlushTask(Option<Box<FlushJob>>);

impl FlushTask {
    pub(crate) fn new(job: FlushJob) -> FlushTask {
        FlushTask(Some(Box::new(job)))
    }
}

impl Task for FlushTask {
    type Output = Result<FlushedState, FlushError>;

    fn slice(&mut self, _: usize) -> Option<Result<FlushedState, FlushError>> {
        match self.0.as_mut()?.advance() {
            Ok(false) => None,
            Ok(true) => self.0.take().map(|job| Ok(job.finish())),
            Err(error) => Some(Err(error)),
        }
    }

    /// A panic is a failure like any other, unless it is not known which manifest the disk holds.
    fn panicked(self) -> Result<FlushedState, FlushError> {
        let error = io::Error::other("the writing of tables has panicked");
        match self.0 {
            Some(job) if !job.is_decided() => Err(FlushError::Again { error }),
            // A job that was taken out to be finished is done: the new manifest is there.
            Some(_) | None => Err(FlushError::Fatal(error)),
        }
    }
}

/// The entry of a message in a table.
fn entry((message, ready_since): (Message<()>, Timestamp)) -> Entry {
    let Message { id, number, queue, key, headers, created, lease_ms, max_attempts, standing, .. } = message;
    Entry { id, number, queue, created, key, headers, lease_ms, max_attempts, standing, ready_since }
}

/// Messages are in memory in the order in which they came, and are written in another. The next ones are touched
/// together, so that their cache misses overlap.
fn touch(to_copy: &[SnapshotEntry<BodyRef>], near: &[u32]) {
    let mut seen = 0;
    for at in near {
        let one = &to_copy[*at as usize];
        seen ^= one.number.get() ^ u64::from(one.body.len) ^ u64::from(one.priority);
    }
    std::hint::black_box(seen);
}

/// For each name the number of names that sort before it.
fn ranks(names: &[QueueName]) -> Vec<u32> {
    let mut by_name: Vec<usize> = (0..names.len()).collect();
    by_name.sort_unstable_by_key(|at| &names[*at]);
    let mut ranks = vec![0; names.len()];
    by_name.into_iter().zip(0..).for_each(|(at, rank)| ranks[at] = rank);
    ranks
}

/// The messages of a part in the order of a file.
fn in_order(to_copy: &[SnapshotEntry<BodyRef>], part: &[u32], ranks: &[u32]) -> Vec<u32> {
    // Most differ in their sections and instants, which are one number here: it is compared without a branch. Ids are
    // as long, and only compared if these are equal.
    let keys = part.iter().map(|at| {
        let one = &to_copy[*at as usize];
        let rank = ranks[one.queue as usize];
        (order_key(rank, SectionState::of(one.state(), one.number), one.priority, one.due), *at)
    });
    let mut keys: Vec<(u128, u32)> = keys.collect();
    keys.sort_unstable_by_key(|(key, _)| *key);
    for equal in keys.chunk_by_mut(|(one, _), (other, _)| one == other).filter(|equal| equal.len() > 1) {
        equal.sort_unstable_by_key(|(_, at)| to_copy[*at as usize].id);
    }
    keys.into_iter().map(|(_, at)| at).collect()
}

/// A number that rises with (queue, state, priority, due).
fn order_key(rank: u32, state: SectionState, priority: u32, due: Timestamp) -> u128 {
    const { assert!(Timestamp::MIN.as_ms() == 0 && Timestamp::MAX.as_ms() < 1 << 48) };
    u128::from(rank) << 88
        | (state as u128) << 80
        | u128::from(priority) << 48
        | u128::from(due.as_ms().unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::MemoryDisk;

    #[test]
    fn the_number_of_an_order_rises_as_the_order_does() {
        let (states, due) =
            ([SectionState::Ready, SectionState::Scheduled, SectionState::Dead], Timestamp::from_ms);
        let dues = [Timestamp::MIN, due(1).unwrap(), due(1 << 40).unwrap(), Timestamp::MAX];
        let mut orders = Vec::new();
        for rank in [0, 1, u32::MAX] {
            for state in states {
                for priority in [0, 1, 1 << 31, u32::MAX] {
                    orders.extend(dues.map(|due| (rank, state, priority, due)));
                }
            }
        }
        assert!(orders.is_sorted());
        let keys =
            orders.iter().map(|(rank, state, priority, due)| order_key(*rank, *state, *priority, *due));
        assert!(keys.collect::<Vec<_>>().is_sorted_by(|one, other| one < other));
    }

    fn job(disk: &MemoryDisk) -> FlushJob {
        let dir = PathBuf::from("/d");
        disk.create_dir(&dir).unwrap();
        let manifest = Manifest {
            incarnation: 1,
            directory: 7,
            made: Timestamp::MIN,
            newest: 1,
            next_number: 1,
            checkpoint: Checkpoint::default(),
        };
        let files = BTreeMap::new();
        let (seen, drops) = (Timestamp::MIN, BTreeSet::new());
        let moment = CheckpointMoment { manifest, start: 1, seen, numbering: Vec::new(), files, drops };
        let (budget, executor) = (MemoryBudget::of(32 << 20, 8 << 20), Executor::without_threads());
        let context = FlushContext::new(Arc::new(disk.clone()), dir, 7, &budget, 1, executor);
        let cold = ColdSet::new(7, 1, (1, usize::MAX), 1);
        let captured = (Vec::new(), QueueNames::default());
        FlushJob::new(context, moment, captured, 0, &cold, true, FlushProgress::new(None))
    }

    #[test]
    fn its_progress_is_the_part_that_was_copied() {
        let mut job = job(&MemoryDisk::new());
        let copied = |number| CopiedMessage {
            number: Number::new(number).unwrap(),
            file: 0,
            ordinal: 0,
            body: BodyPlace { at: 0, len: 0 },
            moved: None,
        };
        for (copies, total, expected) in [(0, 0, 0), (0, 8, 0), (2, 8, 200), (5, 8, 500), (8, 8, 800)] {
            job.copies = (1..=copies).map(copied).collect();
            job.tell(800, total);
            assert_eq!(job.progress.done(), expected, "{copies} of {total}");
        }
    }

    #[test]
    fn what_it_has_begun_goes_with_it_unless_the_manifest_may_name_it() {
        let disk = MemoryDisk::new();
        let names = || disk.list(Path::new("/d")).unwrap();
        let mut ended = job(&disk);
        for kind in [FileKind::Table, FileKind::Keys] {
            let name = ended.made.new_name(kind).unwrap();
            disk.create(&Path::new("/d").join(name.file_name())).unwrap();
        }
        assert_eq!(names().len(), 2);
        drop(ended);
        assert_eq!(names(), Vec::<String>::new());
        let mut done = job(&disk);
        let name = done.made.new_name(FileKind::Table).unwrap();
        disk.create(&Path::new("/d").join(name.file_name())).unwrap();
        assert!(!done.is_decided());
        while !done.advance().unwrap() {}
        assert!(done.is_decided());
        drop(done);
        assert_eq!(names(), ["MANIFEST".to_owned(), name.file_name()]);
    }

    /// Crash story: 1. The job renames the manifest, and panics. 2. That counts as a failure that changes nothing: the
    /// messages are flushed again on the old manifest, whose files are gone.
    #[test]
    fn a_panic_ends_the_store_as_soon_as_the_manifest_may_have_changed() {
        // Sources, files and runs are written; then the manifest, then nothing is left.
        let outcomes = (0..=5).map(|slices| {
            let mut task = FlushTask::new(job(&MemoryDisk::new()));
            let ended = (0..slices).filter(|_| task.slice(1).is_some()).count();
            (ended, matches!(task.panicked(), Err(FlushError::Fatal(_))))
        });
        let again = (0, false);
        let fatal = (0, true);
        assert_eq!(outcomes.collect::<Vec<_>>(), [again, again, again, fatal, fatal, (1, true)]);
    }

    /// Crash story: 1. The job renames the manifest. 2. The store is closed, and the job is given up. 3. It removes
    /// what it has written, and the manifest names files that are gone.
    #[test]
    fn what_the_manifest_names_stays_though_the_store_closes() {
        let disk = MemoryDisk::new();
        let mut job = job(&disk);
        let name = job.made.new_name(FileKind::Table).unwrap();
        disk.create(&Path::new("/d").join(name.file_name())).unwrap();
        let mut task = FlushTask::new(job);
        while task.0.as_ref().is_some_and(|job| !matches!(job.stage, FlushStage::Done)) {
            assert!(task.slice(1).is_none());
        }
        drop(task);
        assert_eq!(disk.list(Path::new("/d")).unwrap(), ["MANIFEST".to_owned(), name.file_name()]);
    }
}
