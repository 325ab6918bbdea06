//! A shard: one queue of commands, one journal, one thread.
//!
//! # Layout
//! - `command`: the commands of a shard, and how its answers are sent
//! - `step`: the deterministic part, commands to records
//! - this file: a turn, which is a batch of commands, written and synced before it is answered
//! - `body_prefetch`: prefetch of bodies
//! - `command_queue`: commands that wait; `loop_state`: a shard with its commands and its clock
//! - `driver`: runs the turns, and sleeps between them; `event_loop`: where callers run turns inline
//!
//! # Ground rules
//! 1. No answer is sent before the batch that it may depend on is written, and synced if required. All commands of a
//!    turn are in one batch, and all earlier batches are safe: so it is enough to hold a turn's answers until its own
//!    batch is safe.
//! 2. A failed sync is never repeated: the kernel may have dropped what it could not write, and report success the
//!    second time. The shard answers `OutcomeUnknown`, and accepts nothing after that.
//! 3. A write that found no room has changed nothing that counts: its batch is kept and written again.

pub(crate) mod body_prefetch;
pub(crate) mod command;
pub(crate) mod command_queue;
pub(crate) mod driver;
pub(crate) mod event_loop;
pub(crate) mod loop_state;
pub(crate) mod step;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dwell_model::{Now, Wake};
use dwell_store::Error;

use self::command::{BatchOutcome, Command, HeldAnswer, Reply, stopped};
use self::step::{Step, Stepped};
use crate::Durability;
use crate::background_failures::BackgroundFailures;
use crate::backup::{BackupFiles, PinnedFile};
use crate::checkpoint::file_name;
use crate::disk::SizeTally;
use crate::flush::{self, Flush, PutGate, RoomShare};
use crate::journal::batch::Batch;
use crate::journal::writer::{JournalStart, JournalWriter, WriteError};
use crate::options::LowWater;
use crate::sealed::FileKind;

/// The delay in ms before a batch that found no room is retried.
const RETRY_MS: u64 = 100;

/// Lazy free: the number of purged messages that each call frees. More are freed after each turn.
const FREED_PER_CALL: usize = 256;
/// The same where turns are driven, so that much can happen in between.
pub(crate) const FREED_PER_CALL_DRIVEN: usize = 2;

/// How long a put waits for a flush before it is refused, in ms.
const MAX_HOLD_MS: u64 = 3_000;
/// The maximum delay in ms before expired messages in tables are handled without a call.
const EXPIRY_CHECK_MS: u64 = 10_000;
/// How long a sweep leaves half of the room for messages to puts, in ms.
const SWEEP_YIELD_MS: u64 = 500;

/// The counters of a shard, readable by all threads.
#[derive(Debug, Default)]
pub(crate) struct ShardCounters {
    pub(crate) wakeups: AtomicU64,
    pub(crate) commands: AtomicU64,
    /// The number of commands in each batch.
    pub(crate) batch_commands: SizeTally,
    pub(crate) batches: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) segments: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) tables: AtomicU64,
    pub(crate) resident: AtomicU64,
    pub(crate) cold: AtomicU64,
    pub(crate) resident_bytes: AtomicU64,
    pub(crate) file_bytes: AtomicU64,
    pub(crate) idempotency_keys: AtomicU64,
    pub(crate) table_bytes: AtomicU64,
    pub(crate) body_writes: AtomicU64,
    pub(crate) runs: AtomicU64,
    pub(crate) held: AtomicU64,
    /// The number of bodies that failed their checksums when they were to be copied, counted by the copying.
    pub(crate) damaged: Arc<AtomicU64>,
    pub(crate) runs_damaged: AtomicU64,
    pub(crate) memory_full: AtomicU64,
    pub(crate) runs_rebuilt: AtomicU64,
    pub(crate) unread: AtomicU64,
}

/// A shard between two turns.
pub(crate) struct Shard {
    step: Step,
    batch: Batch,
    writer: JournalWriter,
    flush: Flush,
    durability: Durability,
    low_water: LowWater,
    /// Set where the next flush may find no room: the number of journal bytes that make one worthwhile.
    scarce: Option<u64>,
    /// The number of bytes that may be written before the free room is checked again; 0 while there is too little.
    unchecked: u64,
    /// Whether puts are refused for lack of room.
    is_short: bool,
    /// When the oldest unsynced batch was written, on the monotonic clock.
    unsynced_since: Option<u64>,
    /// A batch that found no room, and the answers that depend on it.
    stalled: Option<StalledBatch>,
    /// The callers that wait for a snapshot.
    snapshots: Vec<Reply<dwell_store::Result<BackupFiles>>>,
    /// Commands that wait for a flush, the oldest first, and since when: puts and revives.
    held: VecDeque<(Command, u64)>,
    /// Commands that wait until expired leases of their queues are handled, or until all expired cold messages are,
    /// the oldest first: a slice of these each turn.
    behind: VecDeque<Command>,
    /// Bulk revives and discards under way, the oldest first: one slice each turn.
    bulk_operations: VecDeque<Command>,
    /// The wait of the first of them for a flush, if it waits.
    bulk_wait: Option<BulkWait>,
    /// Whether `held` can be retried at once: its wait is over, or ends by further turns.
    held_go_on: bool,
    /// The same for the first sweep.
    bulk_goes_on: bool,
    /// Why no more commands are accepted.
    failed: Option<Box<str>>,
    is_closed: bool,
    counters: Arc<ShardCounters>,
}

struct StalledBatch {
    effects: Vec<HeldAnswer>,
    closes: bool,
    again_at_ms: u64,
    reason: Box<str>,
}

/// Since when the first sweep has waited for a flush, on the monotonic clock, and for which part of the room.
struct BulkWait {
    since: u64,
    part: RoomShare,
}

/// The free bytes, how many of them puts must leave, and the bytes of the journal that are to be flushed.
struct DiskRoom {
    room: u64,
    keep: u64,
    journal: u64,
}

impl BulkWait {
    /// The current wait; `before` has its beginning.
    fn at(before: Option<&BulkWait>, now: Now) -> BulkWait {
        let since = before.map_or(now.mono_ms, |before| before.since);
        let yields = now.mono_ms < since.saturating_add(SWEEP_YIELD_MS);
        BulkWait { since, part: if yields { RoomShare::Half } else { RoomShare::All } }
    }

    /// When the wait changes its part or ends.
    fn again_ms(&self) -> u64 {
        self.since.saturating_add(if self.part == RoomShare::Half { SWEEP_YIELD_MS } else { MAX_HOLD_MS })
    }
}

impl Shard {
    pub(crate) fn new(
        step: Step,
        batch: Batch,
        writer: JournalWriter,
        flush: Flush,
        durability: Durability,
        low_water: LowWater,
        counters: Arc<ShardCounters>,
    ) -> Shard {
        Shard {
            step,
            batch,
            writer,
            flush,
            durability,
            low_water,
            scarce: None,
            unchecked: 0,
            is_short: false,
            unsynced_since: None,
            stalled: None,
            snapshots: Vec::new(),
            held: VecDeque::new(),
            behind: VecDeque::new(),
            bulk_operations: VecDeque::new(),
            bulk_wait: None,
            held_go_on: false,
            bulk_goes_on: false,
            failed: None,
            is_closed: false,
            counters,
        }
    }

    /// Background work that fails and is retried.
    pub(crate) fn background_failures(&self) -> &Arc<BackgroundFailures> {
        self.flush.background_failures()
    }

    /// Whether it was closed: no more turns are to be run.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether it waits for room on the disk: a turn at once would find no more of it.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    /// Whether commands wait for progress that only turns make: the next one should follow at once.
    pub(crate) fn wants_turns(&self) -> bool {
        let core = self.step.core();
        let waits = self.held_go_on || !self.behind.is_empty() || core.is_behind() || core.is_unserved();
        waits && self.failed.is_none() && self.stalled.is_none()
    }

    /// Whether a bulk revive or discard can go on.
    pub(crate) fn has_bulk_work(&self) -> bool {
        !self.bulk_operations.is_empty()
            && self.failed.is_none()
            && self.stalled.is_none()
            && (self.bulk_wait.is_none() || self.bulk_goes_on)
    }

    /// Removes commands that wait for a flush, or for their next slice, and will not be done.
    pub(crate) fn take_held(&mut self) -> impl Iterator<Item = Command> {
        let held = self.held.drain(..).map(|(command, _)| command);
        let snapshots = self.snapshots.drain(..).map(Command::Snapshot);
        held.chain(self.behind.drain(..)).chain(self.bulk_operations.drain(..)).chain(snapshots)
    }

    /// The shard is gone: waiting takes end without an answer.
    pub(crate) fn let_waiting_go(&mut self) {
        self.step.let_waiting_go();
    }

    /// When the next turn is due if no command comes.
    pub(crate) fn next_wake(&self) -> Wake {
        if self.failed.is_some() || self.is_closed {
            return Wake::default();
        }
        if let Some(stalled) = &self.stalled {
            let mut wake = Wake { wall: None, mono_ms: Some(stalled.again_at_ms) };
            self.flush.next_step().into_iter().for_each(|mono_ms| wake.by_mono(mono_ms));
            return wake;
        }
        let mut wake = self.step.core().next_wake();
        if let Some((_, since)) = self.held.front() {
            wake.by_mono(if self.held_go_on { 0 } else { since.saturating_add(MAX_HOLD_MS) });
        }
        if self.has_bulk_work() || !self.behind.is_empty() {
            wake.by_mono(0);
        } else if let Some(waits) = &self.bulk_wait {
            wake.by_mono(waits.again_ms());
        }
        if self.step.core().is_behind() {
            wake.by_mono(0);
        } else if let Some(expires) =
            self.step.cold().next_expiry().filter(|_| self.step.core().cold_len() > 0)
        {
            // Where nothing is cold nothing is to be handled, though the files would list expired entries for ever.
            wake.by_wall(expires.saturating_after(EXPIRY_CHECK_MS));
        }
        if let Some(end) = self.step.core().next_retention() {
            // Not at once, since many may expire one after the other.
            wake.by_wall(end.saturating_after(EXPIRY_CHECK_MS));
        }
        if let Some(mono_ms) = self.flush.next_wake(&self.step) {
            wake.by_mono(mono_ms);
        }
        if let (Durability::IntervalMs(interval), Some(since)) = (self.durability, self.unsynced_since) {
            wake.by_mono(since.saturating_add(interval));
        }
        wake
    }

    /// Takes commands from the inbox, as many as belong into one batch, and answers them. The rest is for the next
    /// turn, which is due at once.
    pub(crate) fn turn(&mut self, command_queue: &mut VecDeque<Command>, now: Now) {
        if let Some(reason) = &self.failed {
            let error = stopped(reason);
            for command in command_queue.drain(..) {
                self.is_closed |= matches!(command, Command::Close(_));
                command.refuse(&error);
            }
            return;
        }
        if self.stalled.is_some() && !self.retry_stalled(command_queue, now) {
            if self.stalled.is_some() && !self.flush.is_idle() {
                // The files that the flush makes obsolete may be the room that is needed.
                self.go_on_flushing(command_queue, now);
            }
            return;
        }
        if !command_queue.is_empty() || self.next_wake().is_reached(now) {
            self.take_in(command_queue, now);
        }
        if self.failed.is_none() && self.stalled.is_none() && !self.is_closed {
            self.flush(command_queue, now);
        }
        self.look_after_held(now);
    }

    /// Schedules the next turn for when held commands may go on.
    fn look_after_held(&mut self, now: Now) {
        let waits_for_job = |part| self.flush.waits_for_job(&self.step, now, part);
        self.held_go_on = !self.held.is_empty() && !waits_for_job(RoomShare::All);
        self.bulk_goes_on = self.bulk_wait.as_ref().is_some_and(|waits| !waits_for_job(waits.part));
    }

    /// Whether a turn would do nothing but its commands: no segment is begun, and no message is captured or gets a
    /// new place.
    pub(crate) fn is_at_ease(&self, now: Now) -> bool {
        self.failed.is_none()
            && self.stalled.is_none()
            && !self.is_closed
            && !self.is_short
            && self.held.is_empty()
            && self.behind.is_empty()
            && self.bulk_operations.is_empty()
            && !self.step.core().is_behind()
            && (self.flush.is_idle() || self.flush.is_writing())
            && !self.flush.is_due(&self.step, self.writer.unflushed(), self.scarce, now)
            && !self.writer.is_to_roll_over(&self.batch, now.wall, false)
    }

    /// A turn of a shard that [is at ease](Shard::is_at_ease).
    pub(crate) fn short_turn(&mut self, command_queue: &mut VecDeque<Command>, now: Now) {
        self.take_in(command_queue, now);
        if self.failed.is_none() {
            self.flush.evict(&mut self.step);
            self.count();
        }
        // The caller's command may be one of the held ones, and no other turn is run for it.
        self.look_after_held(now);
    }

    /// From now on a thread runs the turns.
    pub(crate) fn use_thread(&mut self) {
        self.step.core_mut().set_freed_per_call(FREED_PER_CALL);
    }

    /// Continues a flush, or begins one if it is due, and evicts messages that have a copy in a file.
    fn flush(&mut self, command_queue: &mut VecDeque<Command>, now: Now) {
        if self.flush.is_due(&self.step, self.writer.unflushed(), self.scarce, now) {
            match self.writer.rotate(&mut self.batch, now.wall, self.scarce.is_none()) {
                Ok(start) => {
                    let next_number = self.batch.preamble.next_number;
                    // From here on no segment is removed that the next checkpoint needs.
                    self.writer.set_checkpoint(JournalStart { segment: self.flush.start(), has_files: true });
                    self.flush.begin(&mut self.step, start, next_number);
                }
                Err(WriteError::Full(_)) => self.flush.put_off(now),
                Err(WriteError::Failed(error)) => {
                    self.fail(&error, Vec::new());
                    return self.turn(command_queue, now);
                }
            }
        } else {
            self.go_on_flushing(command_queue, now);
            if self.failed.is_some() {
                return;
            }
        }
        self.flush.evict(&mut self.step);
        self.count();
        if !self.snapshots.is_empty() && !self.flush.is_placing() {
            self.snapshot();
        }
    }

    /// Continues a flush by one slice. A batch may be waiting for room meanwhile.
    fn go_on_flushing(&mut self, command_queue: &mut VecDeque<Command>, now: Now) {
        match self.flush.step(&mut self.step, now) {
            flush::FlushStepped::Quiet => {}
            flush::FlushStepped::Checkpointed => drop(self.counters.flushes.fetch_add(1, Ordering::Relaxed)),
            flush::FlushStepped::Failed(error) => {
                let effects = self.stalled.take().map(|stalled| stalled.effects).unwrap_or_default();
                self.fail(&error, effects);
                return self.turn(command_queue, now);
            }
        }
        let (segment, is_idle) = (self.flush.start(), self.flush.is_idle());
        let has_files = !is_idle || self.flush.has_files();
        self.writer.set_checkpoint(JournalStart { segment, has_files });
    }

    /// Answers the callers that wait for a snapshot: everything answered before is in it.
    fn snapshot(&mut self) {
        if let Err(error) = self.sync() {
            return self.fail(&error, Vec::new());
        }
        for reply in std::mem::take(&mut self.snapshots) {
            let snapshot =
                self.pinned().map_err(|error| Error::Unavailable { reason: error.to_string().into() });
            // The caller may be gone.
            let _ = command::send(reply, snapshot);
        }
    }

    /// Opens everything that the durable manifest needs.
    fn pinned(&self) -> std::io::Result<BackupFiles> {
        let (cold, mut manifest) = (self.step.cold(), self.flush.manifest().clone());
        let mut files = Vec::new();
        for file in &manifest.checkpoint.files {
            let found = &cold.files()[&file.number].file;
            let name = file_name(manifest.directory, FileKind::Table, file.number).file_name();
            let (path, file, len) = (found.path().to_owned(), Arc::clone(found.handle()), found.size());
            files.push(PinnedFile { name, path, file, len, is_sealed: true });
        }
        // Not the current runs: some of the manifest's may have been merged since, and a merged run does not lead to
        // copies that the journal settles again when the backup is opened.
        for name in manifest.run_names() {
            let (path, file) = self.flush.open(name)?;
            let len = file.size()?;
            files.push(PinnedFile { name: name.file_name(), path, file, len, is_sealed: true });
        }
        for (segment, len) in self.writer.written()? {
            manifest.newest = manifest.newest.max(segment.name.segment);
            let (name, path) = (segment.name.file_name(), segment.path.clone());
            let file = Arc::clone(&segment.file);
            files.push(PinnedFile { name, path, file, len, is_sealed: false });
        }
        Ok(BackupFiles { manifest, files })
    }

    fn count(&mut self) {
        let (core, cold) = self.step.both();
        let tell = |counter: &AtomicU64, count: u64| counter.store(count, Ordering::Relaxed);
        tell(&self.counters.resident, core.len() as u64);
        tell(&self.counters.cold, core.cold_len());
        tell(&self.counters.tables, cold.files().len() as u64);
        tell(&self.counters.runs, (cold.numbers().len() + cold.keys().len()) as u64);
        tell(&self.counters.table_bytes, self.flush.table_bytes);
        tell(&self.counters.body_writes, self.flush.body_writes);
        tell(&self.counters.runs_damaged, cold.damaged_runs());
        tell(&self.counters.memory_full, cold.memory_full());
        tell(&self.counters.runs_rebuilt, self.flush.rebuilt());
        tell(&self.counters.resident_bytes, core.weight() as u64);
        tell(&self.counters.file_bytes, self.flush.budget.told().files);
        tell(&self.counters.idempotency_keys, core.others_len().0 as u64);
    }

    fn take_in(&mut self, command_queue: &mut VecDeque<Command>, now: Now) {
        let begun = self.writer.begin_batch(&mut self.batch, now.wall, self.is_short);
        if let Err(WriteError::Failed(error) | WriteError::Full(error)) = begun {
            self.fail(&error, Vec::new());
            return self.turn(command_queue, now);
        }
        let (is_full, is_tight) = (self.flush.is_full(&self.step), self.flush.is_tight(&self.step));
        self.step.begin_batch(is_full, is_tight);
        self.step.catch_up(now, &mut self.batch);
        let goes_on = |command: &Command| matches!(command, Command::GetOn(..));
        if self.behind.iter().any(goes_on)
            && command_queue.iter().any(|command| matches!(command, Command::Close(_)))
        {
            // They may take many turns, which it would wait for.
            let (gets, rest): (VecDeque<_>, _) = self.behind.drain(..).partition(goes_on);
            self.behind = rest;
            gets.into_iter().for_each(|get| get.refuse(&Error::Closed));
        }
        while let Some(command) = self.behind.pop_back() {
            command_queue.push_front(command);
        }
        self.hold_back(command_queue, now);
        self.resume_bulk(command_queue, now);
        let puts = command_queue.iter().any(Command::is_put);
        let refuses_puts = puts.then(|| self.no_room()).flatten();
        if puts {
            self.is_short = refuses_puts.is_some();
        } else if self.is_short {
            // Without puts this is the only place that notices free room.
            self.is_short = self.room().is_some_and(|DiskRoom { room, keep, .. }| room < keep);
        }
        let mut effects = Vec::new();
        let mut closes = false;
        let mut taken_in = 0;
        while self.batch.len() < Batch::FULL
            && !self.step.cold().has_handed_enough()
            && let Some(command) = command_queue.pop_front()
        {
            self.counters.commands.fetch_add(1, Ordering::Relaxed);
            taken_in += 1;
            let command = match command {
                Command::Snapshot(reply) => {
                    self.snapshots.push(reply);
                    continue;
                }
                command => command,
            };
            closes = matches!(command, Command::Close(_));
            if closes && !(effects.is_empty() && self.behind.is_empty()) {
                // What was given back without a receiver is handled first: after the close nothing is. The same holds
                // for calls that wait for leases to expire.
                closes = false;
                command_queue.push_front(command);
                break;
            }
            if closes && command_queue.iter().any(Command::gives_back) {
                let (back, rest): (Vec<_>, Vec<_>) = command_queue.drain(..).partition(Command::gives_back);
                closes = false;
                command_queue.extend(back.into_iter().chain([command]).chain(rest));
                continue;
            }
            let is_new = !matches!(command, Command::GoOn(..));
            if closes {
                effects.extend(self.step.dismiss());
            }
            match self.step.step(command, now, &mut self.batch, refuses_puts.as_ref()) {
                Stepped::Answered(effect) => effects.push(effect),
                Stepped::Quiet => {}
                Stepped::Unfinished(rest) => {
                    effects.push(rest);
                    break;
                }
                Stepped::Behind(command) => {
                    self.behind.push_back(command);
                    if std::mem::take(&mut closes) {
                        // Nothing comes after it, nor between its slices.
                        break;
                    }
                }
                Stepped::GoesOn(rest) if is_new => self.bulk_operations.push_back(rest),
                Stepped::GoesOn(rest) => self.bulk_operations.push_front(rest),
                Stepped::Closed(effect) => effects.push(effect),
            }
            if closes {
                break;
            }
        }
        if taken_in > 0 {
            self.counters.batch_commands.record(taken_in);
        }
        effects.extend(self.step.serve(now, &mut self.batch));
        self.commit(effects, closes, command_queue, now);
    }

    /// Holds commands whose messages would not fit into memory before the next flush; resumes them when they do. A
    /// command that waits too long is refused.
    fn hold_back(&mut self, command_queue: &mut VecDeque<Command>, now: Now) {
        if self.held.is_empty() && !command_queue.iter().any(Command::brings_many) {
            return;
        }
        let closes = command_queue.iter().any(|command| matches!(command, Command::Close(_)));
        let gate = if closes { PutGate::Open } else { self.flush.gate(&self.step, now, RoomShare::All) };
        if gate == PutGate::Open {
            while let Some((command, _)) = self.held.pop_back() {
                command_queue.push_front(command);
            }
            return;
        }
        for command in std::mem::take(command_queue) {
            if command.brings_many() {
                self.counters.held.fetch_add(1, Ordering::Relaxed);
                self.held.push_back((command, now.mono_ms));
            } else {
                command_queue.push_back(command);
            }
        }
        let waited_long =
            |since: u64| gate == PutGate::Shut || now.mono_ms >= since.saturating_add(MAX_HOLD_MS);
        while let Some((command, _)) = self.held.pop_front_if(|(_, since)| waited_long(*since)) {
            command.refuse(&overloaded());
        }
    }

    /// Resumes the first sweep. Its slices wait and are refused under the same conditions as puts.
    fn resume_bulk(&mut self, command_queue: &mut VecDeque<Command>, now: Now) {
        let brings_many = match self.bulk_operations.front() {
            Some(Command::GoOn(sweep, _)) => sweep.revives(),
            Some(_) | None => return,
        };
        let closes = command_queue.iter().any(|command| matches!(command, Command::Close(_)));
        let refusal = if closes {
            Some(Error::Closed)
        } else if !brings_many {
            None
        } else if let Some(error) = self.no_room() {
            Some(error)
        } else {
            let waits = BulkWait::at(self.bulk_wait.as_ref(), now);
            match self.flush.gate(&self.step, now, waits.part) {
                PutGate::Open => None,
                PutGate::Shut => Some(overloaded()),
                PutGate::Held => {
                    let is_over = now.mono_ms >= waits.since.saturating_add(MAX_HOLD_MS);
                    self.bulk_wait = Some(waits);
                    if !is_over {
                        return;
                    }
                    Some(overloaded())
                }
            }
        };
        self.bulk_wait = None;
        match refusal {
            None => self
                .bulk_operations
                .pop_front()
                .into_iter()
                .for_each(|command| command_queue.push_front(command)),
            Some(error) => self.bulk_operations.drain(..).for_each(|command| command.refuse(&error)),
        }
    }

    /// Writes the batch and sends the answers.
    fn commit(
        &mut self,
        effects: Vec<HeldAnswer>,
        closes: bool,
        command_queue: &mut VecDeque<Command>,
        now: Now,
    ) {
        if !self.batch.is_empty() {
            match self.writer.append(&mut self.batch) {
                Ok(()) => {}
                Err(WriteError::Full(error)) => {
                    let again_at_ms = now.mono_ms.saturating_add(RETRY_MS);
                    let reason = error.to_string().into();
                    self.unchecked = 0;
                    self.stalled = Some(StalledBatch { effects, closes, again_at_ms, reason });
                    return;
                }
                Err(WriteError::Failed(error)) => {
                    self.is_closed = closes;
                    return self.fail(&error, effects);
                }
            }
            self.counters.batches.fetch_add(1, Ordering::Relaxed);
            self.unchecked = self.unchecked.saturating_sub(self.batch.len() as u64);
        }
        if self.must_sync(closes, now)
            && let Err(error) = self.sync()
        {
            self.is_closed = closes;
            return self.fail(&error, effects);
        }
        self.counters.segments.store(self.writer.segments() as u64, Ordering::Relaxed);
        if closes {
            self.is_closed = true;
            self.writer.trim();
        }
        let next = effects.into_iter().filter_map(|effect| effect.release(&BatchOutcome::Done));
        next.for_each(|command| command_queue.push_front(command));
    }

    fn must_sync(&mut self, closes: bool, now: Now) -> bool {
        if !self.writer.is_unsynced() {
            // A new segment syncs what is before it.
            self.unsynced_since = None;
            return false;
        }
        let since = *self.unsynced_since.get_or_insert(now.mono_ms);
        closes
            || match self.durability {
                Durability::Always => !self.batch.is_empty() && self.batch.needs_sync(),
                Durability::IntervalMs(interval) => now.mono_ms >= since.saturating_add(interval),
                Durability::Os => false,
            }
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.writer.sync()?;
        self.unsynced_since = None;
        Ok(())
    }

    /// Retries a batch that found no room. Returns false if there still is none; puts are refused meanwhile, and all
    /// other calls wait.
    fn retry_stalled(&mut self, command_queue: &mut VecDeque<Command>, now: Now) -> bool {
        let Some(stalled) = self.stalled.take() else { return true };
        let is_due = stalled.again_at_ms <= now.mono_ms || !command_queue.is_empty();
        if is_due {
            self.commit(stalled.effects, stalled.closes, command_queue, now);
        } else {
            self.stalled = Some(stalled);
        }
        let Some(still) = &self.stalled else {
            return self.failed.is_none() && !self.is_closed;
        };
        if still.closes
            || command_queue.iter().chain(&self.behind).any(|command| matches!(command, Command::Close(_)))
        {
            // The wait for room has no bound, and a close should not wait.
            let error = std::io::Error::new(std::io::ErrorKind::StorageFull, &*still.reason);
            self.is_closed = still.closes;
            let effects = self.stalled.take().map(|stalled| stalled.effects).unwrap_or_default();
            self.fail(&error, effects);
            self.turn(command_queue, now);
            return false;
        }
        let error = Error::DiskFull { reason: still.reason.clone() };
        self.held.drain(..).for_each(|(command, _)| command.refuse(&error));
        for command in std::mem::take(command_queue) {
            if command.is_put() { command.refuse(&error) } else { command_queue.push_back(command) }
        }
        false
    }

    /// Why no message may be put now, if there is too little room.
    fn no_room(&mut self) -> Option<Error> {
        if self.unchecked > 0 {
            return None;
        }
        let DiskRoom { room, keep, journal } = self.room()?;
        let LowWater { bytes, and_journal } = self.low_water;
        self.scarce = (and_journal && room < keep + journal).then_some(bytes);
        if room >= keep {
            // What is written takes room now, and again when it is flushed.
            self.unchecked = ((room - keep) / 4).clamp(1, bytes.max(1));
            return None;
        }
        let reason =
            format!("{room} bytes are left to write, and {keep} are kept for acks, cancels and tables");
        Some(Error::DiskFull { reason: reason.into() })
    }

    /// The free room. A disk that cannot report it is not known to be full.
    fn room(&self) -> Option<DiskRoom> {
        let LowWater { bytes, and_journal } = self.low_water;
        let room = self.writer.room().ok()?;
        if !and_journal {
            return Some(DiskRoom { room, keep: bytes, journal: 0 });
        }
        let journal = self.writer.unflushed().bytes;
        // The next flush writes as much, and begins with a new segment.
        Some(DiskRoom { room, keep: bytes + journal + self.writer.begun(), journal })
    }

    /// The content of the disk is unknown now: reports this to all waiting callers, and accepts nothing more.
    fn fail(&mut self, error: &std::io::Error, effects: Vec<HeldAnswer>) {
        let reason: Box<str> = format!("the journal could not be written: {error}").into();
        let outcome = BatchOutcome::Failed(reason.clone());
        let waiting = self.step.dismiss();
        self.failed = Some(reason);
        for effect in effects.into_iter().chain(waiting) {
            effect.release(&outcome);
        }
        let error = stopped(self.failed.as_deref().unwrap_or_default());
        self.is_closed |= self.behind.iter().any(|command| matches!(command, Command::Close(_)));
        self.take_held().for_each(|command| command.refuse(&error));
    }
}

/// The error for puts while too much waits in memory to be written.
pub(crate) fn overloaded() -> Error {
    let reason = "messages wait in memory to be written to tables, and there is no room for more";
    Error::Overloaded { reason: reason.into() }
}
