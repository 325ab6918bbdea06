//! Flushes: messages are moved from memory to tables, and the journal before is no longer needed.
//!
//! A flush ([`Flush`]) is a checkpoint of one moment, at which a new segment of the journal is begun. Every
//! message that has changed since the last checkpoint is [captured](dwell_store::core::Core::begin_snapshot) as it was
//! at that moment, a few between one turn and the next. A [`FlushJob`] then writes the captured messages into tables,
//! makes runs to find them by, and replaces the manifest with a new one: the [executor](crate::executor) runs it, while
//! the shard goes on. After that the place of its copy is set in each captured message, a few at a time.
//!
//! # Ground rules
//! 1. The manifest is the state at the beginning of a segment, exactly: what happens later is in the journal from there
//!    on, and nowhere else. So it does not matter how long the job takes, or whether it ever completes.
//! 2. Nothing of the old state is removed before the manifest that replaces it is durable: not a file, not a run, not a
//!    segment.
//! 3. New files are searched for messages only when every message in them has the place of its copy: until then each of
//!    them is resident, or gone.
//!
//! Crash story, for rule 2: 1. The job renames the manifest and removes a table whose messages were captured anew.
//! 2. The power fails, and the old manifest is back. 3. It names a file that is gone, and with it the only copy of
//! messages that were put in a segment before its start. Had the file been removed after the directory was synced, the
//! new manifest would be there.
//!
//! # Layout
//! - this file: when to begin, the order of the phases, and whether puts have to wait
//! - `memory_budget`: the memory budget
//! - `job`: writing files, runs and manifest
//! - `partition`: which messages share a file
//! - `compaction_source`: which messages are moved out of older files
//! - `run_merge`: merging index runs in the background; `run_compaction`: the work of a merge; `run_compactor`: when to
//!   begin one, `retry_backoff`: the delay after a failure
//! - `unnamed_files`: files that nothing names yet
//! - `progress`: the progress of a job, for puts that wait for it

mod compaction_source;
mod job;
pub(crate) mod memory_budget;
mod partition;
mod progress;
mod retry_backoff;
mod run_compaction;
mod run_compactor;
mod run_merge;
mod unnamed_files;

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dwell_model::{Now, Number, Timestamp};
use dwell_store::core::{CopyAt, CopyOutcome, Snapshot};

use crate::background_failures::{BackgroundFailures, BackgroundWork};
use crate::checkpoint::TableState;
use crate::cold::{ColdSet, ColdTable};
use crate::disk::DiskFile;
use crate::executor::{Class, Dropped, Handle, spawn};
use crate::index_run::TableRef;
use crate::journal::segment::BodyRef;
use crate::journal::writer::{Unflushed, WriteError};
use crate::manifest::Manifest;
use crate::sealed::FileId;
use crate::shard::step::Step;
use crate::table::{DeletionBitmap, SectionState, Table};

use self::progress::{FlushProgress, WHOLE};
use self::run_compactor::{ReplacedRuns, RunCompactor};
use self::run_merge::{GoneOf, MergeContext};

pub(crate) use job::{CheckpointMoment, FlushContext, FlushError, FlushJob, FlushTask, FlushedState};
pub(crate) use memory_budget::MemoryBudget;

/// The delay before a failed flush is retried, in ms.
const RETRY_MS: u64 = 1_000;
/// The number of messages that are looked at per step to be captured, or to have the places of their copies set: one or
/// two milliseconds. With fewer, more is put during the capture than there is room for while it is written.
const AT_A_TIME: usize = 8 * 1024;
/// The same if turns are driven by a test, so that much happens in between.
const AT_A_TIME_DRIVEN: usize = 16;
/// The part of the room for changes during a flush that is available at once, in thousandths; the rest becomes
/// available as the flush progresses.
const AT_ONCE: u32 = 250;
/// The number of slots that are looked at for messages to evict after a turn.
const LOOKED_AT: usize = 4 * 1024;
/// The same per message that was made resident in the turn, if that is more.
const LOOKED_AT_FOR_ONE: usize = 4;

enum FlushPhase {
    Idle,
    Snapshotting(Box<CheckpointMoment>),
    Writing {
        handle: Handle<Result<FlushedState, FlushError>>,
        /// When starting a thread for it is retried, if that failed, on the monotonic clock.
        again_ms: Option<u64>,
        progress: Arc<FlushProgress>,
        /// The number of resident messages that it writes.
        captured: usize,
    },
    /// The new manifest is durable; `placed` messages have the places of their copies.
    Placing {
        written: Box<FlushedState>,
        placed: usize,
        /// The number of them that are still resident.
        captured: usize,
    },
}

/// Whether messages may be put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutGate {
    Open,
    /// Not now; as soon as the flush in progress is further.
    Held,
    /// Not now, and it is not known when.
    Shut,
}

/// The part of the room for messages that a caller may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoomShare {
    All,
    /// So that others need not wait for it.
    Half,
}

/// What the shard has to do after a step of the flush.
#[derive(Debug)]
pub(crate) enum FlushStepped {
    /// Nothing.
    Quiet,
    /// The journal's start has moved.
    Checkpointed,
    /// The disk holds one manifest or the other: nothing more may be accepted.
    Failed(std::io::Error),
}

/// The flushes of a shard, and the merging of its runs.
pub(crate) struct Flush {
    pub(crate) budget: MemoryBudget,
    context: FlushContext,
    /// The durable manifest.
    manifest: Manifest,
    phase: FlushPhase,
    numbers: RunCompactor<TableRef>,
    keys: RunCompactor<Number>,
    /// Runs that have been merged. They are removed when a manifest is durable that was begun after that.
    merged: Vec<PathBuf>,
    /// Bytes written to tables.
    pub(crate) table_bytes: u64,
    /// The maximum number of times the body of an unchanged message has been written.
    pub(crate) body_writes: u64,
    /// The number of settled entries after the last flush.
    waste: u64,
    /// The number of messages when it was captured.
    captured_of: u64,
    /// Whether the last one removed files.
    has_freed: bool,
    /// How often in a row the disk had no room for a flush. Each time half as much is moved, so that the available room
    /// frees more.
    squeezed: u32,
    /// The number of entries of tables that are not settled, according to the manifest.
    in_use: u64,
    /// The last check whether messages in coarse files are due soon.
    looked_near: Cell<Option<Timestamp>>,
    /// The next flush may not begin before this, on the monotonic clock.
    not_before_ms: u64,
    /// Whether the last one has failed.
    has_failed: bool,
}

impl Flush {
    pub(crate) fn new(budget: MemoryBudget, context: FlushContext, manifest: Manifest) -> Flush {
        Flush {
            in_use: in_use(&manifest),
            budget,
            context,
            manifest,
            phase: FlushPhase::Idle,
            numbers: RunCompactor::new(BackgroundWork::MergeNumbers),
            keys: RunCompactor::new(BackgroundWork::MergeKeys),
            merged: Vec::new(),
            table_bytes: 0,
            body_writes: 0,
            waste: 0,
            captured_of: 0,
            has_freed: false,
            squeezed: 0,
            looked_near: Cell::new(None),
            not_before_ms: 0,
            has_failed: false,
        }
    }

    /// The number of messages that are looked at between one turn and the next.
    fn at_a_time(&self) -> usize {
        if self.context.executor.has_threads() { AT_A_TIME } else { AT_A_TIME_DRIVEN }
    }

    /// The segment at whose beginning the state was that of the manifest.
    pub(crate) fn start(&self) -> u64 {
        self.manifest.checkpoint.start
    }

    /// Whether the manifest names files.
    pub(crate) fn has_files(&self) -> bool {
        !self.manifest.checkpoint.files.is_empty()
    }

    /// The durable manifest.
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Opens a file that the manifest names.
    pub(crate) fn open(&self, name: FileId) -> io::Result<(PathBuf, Arc<dyn DiskFile>)> {
        let path = self.context.dir.join(name.file_name());
        let file = self.context.disk.open(&path)?;
        Ok((path, file))
    }

    /// The number of unreadable runs that were rebuilt.
    pub(crate) fn rebuilt(&self) -> u64 {
        self.context.rebuilt.load(Ordering::Relaxed)
    }

    /// Failures of flushes and merges that are being retried.
    pub(crate) fn background_failures(&self) -> &Arc<BackgroundFailures> {
        &self.context.background_failures
    }

    /// Whether the manifest names files that are not searched yet.
    pub(crate) fn is_placing(&self) -> bool {
        matches!(self.phase, FlushPhase::Placing { .. })
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase, FlushPhase::Idle)
    }

    /// Whether a flush should begin. If the disk is almost full, `scarce` is the number of bytes of the journal that
    /// are worth one.
    pub(crate) fn is_due(&self, step: &Step, journal: Unflushed, scarce: Option<u64>, now: Now) -> bool {
        if !self.is_idle() || now.mono_ms < self.not_before_ms {
            return false;
        }
        pinned(step) >= self.budget.changed(step.core())
            || journal.segments >= self.budget.journal.segments
            || journal.records >= self.budget.journal.records
            || self.has_waste(step)
            || self.is_near(step)
            || scarce.is_some_and(|worth| journal.bytes >= worth.max(1) || self.has_any_waste(step))
    }

    /// Whether files have more than twice as many entries as are in use, and the last flush removed some, or there is
    /// more waste since.
    fn has_any_waste(&self, step: &Step) -> bool {
        let (core, cold) = (step.core(), step.cold());
        let in_use = core.cold_len() + core.len() as u64;
        cold.entries() > 2 * in_use && (self.has_freed || cold.entries() - in_use > self.waste)
    }

    /// Whether files have more than twice as many entries as are in use, and more than after the last flush.
    fn has_waste(&self, step: &Step) -> bool {
        let (core, cold) = (step.core(), step.cold());
        let spare = self.context.spare(cold);
        let in_use = core.cold_len() + core.len() as u64;
        cold.entries() > (2 * in_use).saturating_add(spare)
            && (cold.entries() - in_use) > self.waste.saturating_add(spare / 2)
    }

    /// Whether many messages in coarse files are due soon. Checked from time to time.
    fn is_near(&self, step: &Step) -> bool {
        let now = step.core().seen();
        let looked = self.looked_near.get();
        if step.cold().split_from().is_none() || looked.is_some_and(|looked| was_lately(looked, now)) {
            return false;
        }
        self.looked_near.set(Some(now));
        let (least, most) = (self.context.least, self.context.moved as u64);
        compaction_source::near_end(step.cold(), &self.context.unreadable(), now, least, most).is_some()
    }

    /// Whether tables are being written, and turns have nothing to do for it now.
    pub(crate) fn is_writing(&self) -> bool {
        matches!(&self.phase, FlushPhase::Writing { again_ms: None, .. })
    }

    /// The part of the room for messages that may be filled now, of [`WHOLE`].
    fn share(&self, part: RoomShare) -> u32 {
        match &self.phase {
            // A caller that leaves room to others leaves them what they may fill at once when the writing begins.
            FlushPhase::Snapshotting(_) if part == RoomShare::Half => AT_ONCE,
            FlushPhase::Writing { progress, .. } => AT_ONCE + progress.done() * (WHOLE - AT_ONCE) / WHOLE,
            // No message is evicted before all of them have the places of their copies.
            FlushPhase::Idle | FlushPhase::Snapshotting(_) | FlushPhase::Placing { .. } => WHOLE,
        }
    }

    /// Whether messages may be put now: as many as can be captured by the next flush, and while one is in progress as
    /// many as it has written. So puts go on at its pace, and none waits for all of it. `part` is how much of that room
    /// the caller may fill.
    pub(crate) fn gate(&self, step: &Step, now: Now, part: RoomShare) -> PutGate {
        let core = step.core();
        let most = self.budget.resident(core);
        let captured = match &self.phase {
            FlushPhase::Idle | FlushPhase::Snapshotting(_) => core.snapshot_len(),
            FlushPhase::Writing { captured, .. } | FlushPhase::Placing { captured, .. } => *captured,
        };
        let room = most.saturating_sub(captured);
        let may_change = (room as u128 * u128::from(self.share(part)) / u128::from(WHOLE)) as usize;
        let may_change = if part == RoomShare::Half { may_change / 2 } else { may_change };
        if pinned(step) < may_change.max(1) {
            return PutGate::Open;
        }
        let stands_still = self.is_idle() && now.mono_ms < self.not_before_ms;
        if stands_still { PutGate::Shut } else { PutGate::Held }
    }

    /// Whether twice as many messages wait in memory to be written as may be resident, and writing them fails. Puts are
    /// held long before; but messages that are taken out of files and retried, or given back, wait there too, and in
    /// the end all would.
    pub(crate) fn is_full(&self, step: &Step) -> bool {
        self.has_failed && self.is_tight(step)
    }

    /// Whether twice as many messages wait in memory to be written as may be resident, even if writing them does not
    /// fail.
    pub(crate) fn is_tight(&self, step: &Step) -> bool {
        pinned(step) >= self.budget.resident(step.core()).saturating_mul(2)
    }

    /// Whether the shard may sleep until the job in progress is further, if the gate for `part` is not open before: it
    /// is then woken.
    pub(crate) fn waits_for_job(&self, step: &Step, now: Now, part: RoomShare) -> bool {
        let FlushPhase::Writing { progress, .. } = &self.phase else { return false };
        let seen = progress.done();
        let waits = self.gate(step, now, part) == PutGate::Held;
        if waits {
            progress.notify_beyond(seen);
        }
        waits
    }

    /// When the shard has to continue without a command.
    pub(crate) fn next_wake(&self, step: &Step) -> Option<u64> {
        if step.core().has_unfreed() {
            return Some(0);
        }
        match &self.phase {
            FlushPhase::Idle if self.numbers.is_over() || self.keys.is_over() => Some(0),
            FlushPhase::Idle if pinned(step) >= self.budget.changed(step.core()) => Some(self.not_before_ms),
            _ => self.next_step(),
        }
    }

    /// When a flush in progress continues, if that is done by turns.
    pub(crate) fn next_step(&self) -> Option<u64> {
        match &self.phase {
            FlushPhase::Idle => None,
            FlushPhase::Writing { handle, .. } if handle.is_over() => Some(0),
            FlushPhase::Writing { again_ms, .. } => *again_ms,
            FlushPhase::Snapshotting(_) | FlushPhase::Placing { .. } => Some(0),
        }
    }

    /// Delays the next flush, which could not begin.
    pub(crate) fn put_off(&mut self, now: Now) {
        self.not_before_ms = now.mono_ms.saturating_add(RETRY_MS);
    }

    /// Begins to capture everything that has changed. Segment `start` has just been begun, and has only settings so
    /// far.
    pub(crate) fn begin(&mut self, step: &mut Step, start: u64, next_number: u64) {
        let (core, cold) = step.both();
        cold.take_promoted();
        core.begin_snapshot();
        self.captured_of = core.cold_len() + core.len() as u64;
        let manifest = Manifest {
            newest: self.manifest.newest.max(start),
            next_number: self.manifest.next_number.max(next_number),
            ..self.manifest.clone()
        };
        let (seen, numbering, files) = (core.seen(), core.numbering().collect(), cold.states());
        let drops = cold.queues().filter(|queue| core.drops_expired(queue)).cloned().collect();
        self.phase = FlushPhase::Snapshotting(Box::new(CheckpointMoment {
            manifest,
            start,
            seen,
            numbering,
            files,
            drops,
        }));
    }

    /// Captures some more; when all is captured, the job begins.
    fn snapshot(&mut self, mut moment: Box<CheckpointMoment>, step: &mut Step, now: Now) {
        let (core, cold) = step.both();
        let Some(Snapshot { changed, names, clean }) = core.snapshot_some(self.at_a_time()) else {
            self.phase = FlushPhase::Snapshotting(moment);
            return;
        };
        for CopyAt { file, ordinal } in clean {
            // It was resident or cold at that moment, and so not settled.
            if let Some((settled, _)) = moment.files.get_mut(&file.get()) {
                settled.clear(ordinal);
            }
        }
        let captured = changed.len();
        let merged = self.merged.len();
        let progress = FlushProgress::new(self.context.executor.notifier());
        let mut context = self.context.clone();
        context.moved = context.moved.checked_shr(self.squeezed).unwrap_or(0).max(1);
        // A rebuild of index runs uses the files that were there when it was begun: nothing is moved out of them
        // meanwhile.
        let moves = !self.numbers.heals() && !self.keys.heals();
        let job = FlushJob::new(context, *moment, (changed, names), merged, cold, moves, progress);
        let progress = Arc::clone(&job.progress);
        let (handle, submitted) = spawn(&self.context.executor, Class::Flush, FlushTask::new(job));
        let again_ms = self.started(submitted, now);
        self.phase = FlushPhase::Writing { handle, again_ms, progress, captured };
    }

    /// When to retry starting a thread, if that has failed.
    fn started(&self, started: io::Result<()>, now: Now) -> Option<u64> {
        let error = started.err()?;
        self.context.background_failures.note(
            BackgroundWork::Flush,
            format!("no thread can be started: {error}"),
            now.wall,
        );
        Some(now.mono_ms.saturating_add(RETRY_MS))
    }

    /// Does one step.
    pub(crate) fn step(&mut self, step: &mut Step, now: Now) -> FlushStepped {
        match std::mem::replace(&mut self.phase, FlushPhase::Idle) {
            FlushPhase::Idle => {
                self.merge(step, now);
                FlushStepped::Quiet
            }
            FlushPhase::Snapshotting(moment) => {
                self.snapshot(moment, step, now);
                FlushStepped::Quiet
            }
            FlushPhase::Writing { mut handle, mut again_ms, progress, captured } => {
                if again_ms.is_some_and(|again_ms| now.mono_ms >= again_ms) {
                    again_ms = self.started(handle.start(), now);
                }
                let outcome = match handle.try_take() {
                    Ok(None) => {
                        self.phase = FlushPhase::Writing { handle, again_ms, progress, captured };
                        return FlushStepped::Quiet;
                    }
                    Ok(Some(outcome)) => outcome,
                    Err(Dropped) => Err(FlushError::Fatal(io::Error::other("the store closes"))),
                };
                self.written(outcome, captured, step, now)
            }
            FlushPhase::Placing { written, placed, captured } => {
                self.place(written, placed, captured, step);
                if self.is_idle() {
                    // The next flush may begin at once, and so merges go on while messages are put.
                    self.merge(step, now);
                }
                FlushStepped::Quiet
            }
        }
    }

    fn written(
        &mut self,
        outcome: Result<FlushedState, FlushError>,
        captured: usize,
        step: &mut Step,
        now: Now,
    ) -> FlushStepped {
        match outcome {
            Ok(written) => {
                self.manifest = written.manifest.clone();
                self.in_use = in_use(&self.manifest);
                self.table_bytes += written.files.iter().map(|new| new.file.size()).sum::<u64>();
                let most = written.files.iter().map(|new| u64::from(new.file.writes())).max();
                self.body_writes = self.body_writes.max(most.unwrap_or_default());
                self.has_freed = !written.gone_files.is_empty();
                self.squeezed = self.squeezed.saturating_sub(1);
                self.has_failed = false;
                self.context.background_failures.end(BackgroundWork::Flush);
                self.phase = FlushPhase::Placing { written: Box::new(written), placed: 0, captured };
                FlushStepped::Checkpointed
            }
            Err(FlushError::Again { error }) => {
                self.context.background_failures.note(BackgroundWork::Flush, error.to_string(), now.wall);
                self.has_failed = true;
                if let WriteError::Full(_) = WriteError::from(error) {
                    self.squeezed += 1;
                }
                step.core_mut().undo_snapshot();
                self.put_off(now);
                FlushStepped::Quiet
            }
            Err(FlushError::Fatal(error)) => FlushStepped::Failed(error),
        }
    }

    /// Sets the places of their copies in messages; when all have one, the new files replace the old ones.
    fn place(&mut self, mut written: Box<FlushedState>, from: usize, captured: usize, step: &mut Step) {
        let to = (from + self.at_a_time()).min(written.copies.len());
        for copy in written.copies[from..to].iter().filter(|copy| copy.moved.is_none()) {
            let file = &written.files[copy.file];
            let body = BodyRef { segment: Arc::clone(&file.segment), at: copy.body.at, len: copy.body.len };
            let at = CopyAt { file: file.number, ordinal: copy.ordinal };
            // If the message is gone or has changed, the entry stays out: it is not cold.
            match step.core_mut().placed(copy.number, body, at) {
                CopyOutcome::Clean | CopyOutcome::Changed | CopyOutcome::Gone => {}
            }
        }
        if to < written.copies.len() {
            self.phase = FlushPhase::Placing { written, placed: to, captured };
            return;
        }
        let (core, cold) = step.both();
        let mut outs: Vec<DeletionBitmap> = written.files.iter().map(|new| all_out(&new.file)).collect();
        let mut overs: Vec<Vec<u32>> = vec![Vec::new(); outs.len()];
        let mut expired = Vec::new();
        for copy in &written.copies {
            let Some(old) = copy.moved else { continue };
            let file = &written.files[copy.file];
            // A file that is not given up still has other messages.
            if !cold.files()[&old.file.get()].is_cold(old.ordinal) {
                let body =
                    BodyRef { segment: Arc::clone(&file.segment), at: copy.body.at, len: copy.body.len };
                core.placed(copy.number, body, CopyAt { file: file.number, ordinal: copy.ordinal });
                continue;
            }
            let was_over = cold.take_out(old);
            let section = &file.file.sections()[file.file.section_of(copy.ordinal)];
            let is_dead = section.state == SectionState::Dead;
            if is_dead && !cold.was_dead(old) {
                let at = written.expired.binary_search_by_key(&copy.number, |(number, _)| *number);
                let ready_until = cold.files()[&old.file.get()].ready_until;
                expired
                    .extend(at.map(|at| (&section.queue, copy.number, written.expired[at].1, ready_until)));
            }
            match (was_over, is_dead) {
                // It has expired since it was written.
                (true, false) => overs[copy.file].push(copy.ordinal),
                (false, true) if !cold.was_dead(old) => {
                    // It had expired then, and its expiry was not processed yet.
                    core.died_cold(&section.queue, 1);
                    outs[copy.file].clear(copy.ordinal);
                }
                _ => drop(outs[copy.file].clear(copy.ordinal)),
            }
        }
        core.moved_to_dead(expired);
        let promoted = cold.take_promoted();
        for (new, (out, over)) in written.files.drain(..).zip(outs.into_iter().zip(overs)) {
            let mut file = ColdTable::new(new.file, new.segment, out, promoted, core.seen());
            over.into_iter().for_each(|ordinal| file.be_over(ordinal));
            cold.add(file);
        }
        for number in &written.gone_files {
            if let Some(file) = cold.remove(*number) {
                self.context.deleter.remove_held(file.file.path().to_owned(), file);
            }
        }
        let runs = cold.numbers().iter().map(|run| run.path().to_owned());
        let runs: Vec<_> = runs.chain(cold.keys().iter().map(|run| run.path().to_owned())).collect();
        cold.set_runs(std::mem::take(&mut written.numbers), std::mem::take(&mut written.keys));
        let kept = |path: &std::path::PathBuf| {
            cold.numbers().iter().any(|run| run.path() == path)
                || cold.keys().iter().any(|run| run.path() == path)
        };
        for path in runs.into_iter().filter(|path| !kept(path)) {
            self.context.deleter.remove(path);
        }
        for path in self.merged.drain(..written.merged) {
            self.context.deleter.remove(path);
        }
        cold.set_split(&written.split);
        // The capture did not know what has been settled since.
        self.waste = cold.entries().saturating_sub(self.captured_of);
        if written.parted >= self.context.least {
            // There may be more.
            self.looked_near.set(None);
        }
        let cold = cold.memory() + core.late_deaths_memory();
        self.count_files(cold as u64);
    }

    /// Updates the memory of the structures that find messages in files, with that of merges in progress.
    fn count_files(&mut self, cold: u64) {
        self.budget.set_files(cold + self.numbers.memory() + self.keys.memory());
        self.context.go_by(&self.budget);
    }

    /// Continues merging index runs, or begins to.
    fn merge(&mut self, step: &mut Step, now: Now) {
        let files = &self.manifest.checkpoint.files;
        let (_, cold) = step.both();
        let gone = || files.iter().map(|file| gone_of(file, cold)).collect();
        let known = MergeContext { numbers: cold.numbers(), in_use: self.in_use };
        let merged = self.numbers.go_on(cold.numbers(), &self.context, &known, gone, now);
        if let Some(ReplacedRuns { old, new }) = merged {
            let is_done = cold.replace_numbers(&old, &new);
            self.replaced(is_done, old.iter().map(|run| run.path()), new.iter().map(|run| run.path()));
        }
        let files = &self.manifest.checkpoint.files;
        let gone = || files.iter().map(|file| gone_of(file, cold)).collect();
        let known = MergeContext { numbers: cold.numbers(), in_use: self.in_use };
        let merged = self.keys.go_on(cold.keys(), &self.context, &known, gone, now);
        if let Some(ReplacedRuns { old, new }) = merged {
            let is_done = cold.replace_keys(&old, &new);
            self.replaced(is_done, old.iter().map(|run| run.path()), new.iter().map(|run| run.path()));
        }
    }

    /// Records whether runs have been replaced. The files of the old ones are removed once the manifest no longer names
    /// them.
    fn replaced<'a>(
        &mut self,
        is_done: bool,
        old: impl Iterator<Item = &'a Path>,
        new: impl Iterator<Item = &'a Path>,
    ) {
        if is_done {
            self.merged.extend(old.map(Path::to_owned));
        } else {
            new.for_each(|path| self.context.deleter.remove(path.to_owned()));
        }
    }

    /// Frees purged messages, and then evicts clean ones, if too many are resident.
    pub(crate) fn evict(&self, step: &mut Step) {
        if step.core().has_unfreed() {
            return step.core_mut().free_purged(self.at_a_time());
        }
        // Some messages have copies in files that are not searched yet.
        if let FlushPhase::Placing { .. } = self.phase {
            return;
        }
        let (core, cold) = step.both();
        let keep = self.budget.resident(core);
        if core.len() > keep && core.len() > core.changed_len() {
            // At more if more messages came, so that they leave as fast.
            let most = LOOKED_AT.max(LOOKED_AT_FOR_ONE * cold.handed_over());
            core.evict(keep, most, cold);
        }
    }
}

/// Whether the last check for messages in coarse files that are due soon is recent enough; after a step back of the
/// clock it is not.
fn was_lately(looked: Timestamp, now: Timestamp) -> bool {
    now >= looked && now.ms_since(looked) < compaction_source::AHEAD_MS / 16
}

/// The number of messages that cannot be evicted before they are captured. Leased ones cannot be evicted even then:
/// they have a separate limit.
fn pinned(step: &Step) -> usize {
    step.core().changed_len().saturating_sub(step.core().leased_len())
}

/// The number of entries of tables that are not settled.
fn in_use(manifest: &Manifest) -> u64 {
    let live = |settled: &DeletionBitmap| u64::from(settled.live(0..settled.len()));
    manifest.checkpoint.files.iter().map(|file| live(&file.settled)).sum()
}

/// The bits of a file in which no message is cold.
fn all_out(file: &Table) -> DeletionBitmap {
    let mut out = DeletionBitmap::none(file.len());
    out.set_range(0..file.len());
    out
}

/// What merges of index runs need to know of a file.
fn gone_of(state: &TableState, cold: &ColdSet) -> (u32, GoneOf) {
    (state.number, GoneOf { settled: state.settled.clone(), dead: cold.dead_of(state.number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Calls, Disk, Fault, MemoryDisk};
    use crate::executor::{Executor, Task};
    use crate::index_run::{IndexRun, IndexValue, NumberSet, RunWriter};

    fn run<V: IndexValue>(context: &FlushContext, pairs: impl Iterator<Item = (u64, V)>) -> Arc<IndexRun<V>> {
        let name = context.new_name(V::KIND).unwrap();
        let mut writer = RunWriter::create(&*context.disk, &context.dir, name, 0).unwrap();
        pairs.for_each(|(key, value)| writer.push(key, value).unwrap());
        Arc::new(writer.finish().unwrap())
    }

    fn flush() -> (MemoryDisk, Arc<Executor>, Flush) {
        let disk = MemoryDisk::new();
        disk.create_dir(Path::new("/d")).unwrap();
        let budget = MemoryBudget::of(32 << 20, 8 << 20);
        let manifest = Manifest {
            incarnation: 1,
            directory: 7,
            made: Timestamp::MIN,
            newest: 1,
            next_number: 1,
            checkpoint: Default::default(),
        };
        let executor = Executor::without_threads();
        let context =
            FlushContext::new(Arc::new(disk.clone()), "/d".into(), 7, &budget, 1, Arc::clone(&executor));
        (disk, executor, Flush::new(budget, context, manifest))
    }

    #[test]
    fn what_comes_near_is_looked_for_now_and_then() {
        let (looked, while_ms) = (Timestamp::MIN.saturating_after(1_000), compaction_source::AHEAD_MS / 16);
        let looks_after = |ms: u64| !was_lately(looked, Timestamp::MIN.saturating_after(ms));
        assert_eq!(
            [999, 1_000, while_ms + 999, while_ms + 1_000].map(looks_after),
            [true, false, false, true]
        );
    }

    struct Endless;

    impl Task for Endless {
        type Output = Result<FlushedState, FlushError>;

        fn slice(&mut self, _: usize) -> Option<Self::Output> {
            None
        }

        fn panicked(self) -> Self::Output {
            Err(FlushError::Again { error: io::ErrorKind::Other.into() })
        }
    }

    #[test]
    fn puts_fill_as_much_of_the_room_as_the_flush_is_far() {
        let (_, executor, mut flush) = flush();
        let shares = |flush: &Flush| [RoomShare::All, RoomShare::Half].map(|part| flush.share(part));
        assert_eq!(shares(&flush), [WHOLE, WHOLE]);
        flush.phase = FlushPhase::Snapshotting(Box::new(CheckpointMoment {
            manifest: flush.manifest.clone(),
            start: 1,
            seen: Timestamp::MIN,
            numbering: Vec::new(),
            files: Default::default(),
            drops: Default::default(),
        }));
        assert_eq!(shares(&flush), [WHOLE, AT_ONCE], "half leaves what all may have when the writing begins");
        let progress = Arc::new(FlushProgress::new(None));
        let (handle, _) = spawn(&executor, Class::Flush, Endless);
        flush.phase =
            FlushPhase::Writing { handle, again_ms: None, progress: Arc::clone(&progress), captured: 10 };
        assert_eq!(shares(&flush), [AT_ONCE, AT_ONCE]);
        progress.set(WHOLE / 2);
        assert_eq!(shares(&flush), [AT_ONCE + (WHOLE - AT_ONCE) / 2; 2]);
        progress.set(WHOLE);
        assert_eq!(shares(&flush), [WHOLE, WHOLE]);
    }

    struct Runs {
        numbers: Vec<Arc<IndexRun<TableRef>>>,
        keys: Vec<Arc<IndexRun<Number>>>,
    }

    impl Runs {
        /// Four runs of either kind of about one size, and a long one of numbers.
        fn new(context: &FlushContext) -> Runs {
            let homes =
                |from: u64| (0..1_000).map(move |at| (from + at * 50, TableRef { file: 1, ordinal: 1 }));
            let mut numbers: Vec<_> = (1..=4).map(|from| run(context, homes(from))).collect();
            numbers.push(run(context, (0..9_000).map(|at| (at + 100_000, TableRef { file: 1, ordinal: 1 }))));
            let of_key = |from: u64| (0..500).map(move |at| (from + at * 7, Number::new(at + 1).unwrap()));
            Runs { numbers, keys: (1..=4).map(|from| run(context, of_key(from))).collect() }
        }

        /// Each merge in progress does a slice; then its outcome is processed, or another is begun.
        fn go_on(&self, executor: &Executor, flush: &mut Flush, mono_ms: u64) {
            executor.step_each();
            let (context, now) = (flush.context.clone(), Now { wall: Timestamp::MIN, mono_ms });
            let known = MergeContext { numbers: &self.numbers, in_use: 100_000 };
            let gone = Default::default;
            drop(flush.numbers.go_on(&self.numbers, &context, &known, gone, now));
            drop(flush.keys.go_on(&self.keys, &context, &known, gone, now));
        }
    }

    #[test]
    fn merges_count_for_memory_while_they_last() {
        let (_, executor, mut flush) = flush();
        flush.count_files(1_000_000);
        assert_eq!(flush.budget.told().files, 1_000_000);
        Runs::new(&flush.context).go_on(&executor, &mut flush, 0);
        let (numbers, keys) = (flush.numbers.memory(), flush.keys.memory());
        // Sixteen bits for each of 4,000 sparse numbers and of 2,000 keys, and the set of the messages in tables.
        let sparse = |from: u64| NumberSet::most_memory(1_000, (2 * from, 2 * (from + 49_950) + 1));
        let living = (1..=4).map(sparse).sum::<u64>() + NumberSet::most_memory(9_000, (200_000, 217_999));
        assert_eq!((numbers, keys), (4_000 * 2, 2_000 * 2 + living));
        flush.count_files(1_000_000);
        assert_eq!(flush.budget.told().files, 1_000_000 + numbers + keys);
    }

    /// Crash story: 1. Tables cannot be written, and that is retried each second. 2. No merge is begun meanwhile,
    /// and there are more and more runs to be searched.
    #[test]
    fn merges_are_begun_though_no_table_can_be_written() {
        let (_, executor, mut flush) = flush();
        flush.put_off(Now { wall: Timestamp::MIN, mono_ms: 0 });
        Runs::new(&flush.context).go_on(&executor, &mut flush, 0);
        assert!(flush.numbers.is_under_way() && flush.keys.is_under_way());
    }

    /// Crash story: 1. A merge of one kind of index runs fails each time. 2. Each time the writing of tables is delayed
    /// by a second, and puts are refused; and no run of the other kind is merged.
    #[test]
    fn a_merge_that_fails_rests_alone() {
        let (disk, executor, mut flush) = flush();
        let runs = Runs::new(&flush.context);
        runs.go_on(&executor, &mut flush, 0);
        // The next read is one of an index run of numbers.
        disk.fail(Fault { calls: Calls::Reads, after: 0, times: 1, error: io::ErrorKind::OutOfMemory });
        runs.go_on(&executor, &mut flush, 0);
        assert!(!disk.has_faults(Calls::Reads) && !flush.numbers.is_under_way() && flush.keys.is_under_way());
        assert_eq!(flush.not_before_ms, 0, "nothing else is put off");
        let background_failures = flush.background_failures().now();
        assert_eq!(
            background_failures.iter().map(|trouble| trouble.work).collect::<Vec<_>>(),
            [BackgroundWork::MergeNumbers]
        );
        for _ in 0..1_000 {
            runs.go_on(&executor, &mut flush, 999);
        }
        assert!(!flush.numbers.is_under_way(), "it rests");
        runs.go_on(&executor, &mut flush, 1_000);
        assert!(flush.numbers.is_under_way(), "it is tried again");
        while flush.numbers.is_under_way() {
            runs.go_on(&executor, &mut flush, 1_000);
        }
        assert_eq!(flush.background_failures().now(), []);
    }
}
