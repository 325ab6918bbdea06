//! The cold messages of a shard: those that are in tables and not in memory.
//!
//! Each file has a bitmap of the entries that are *out*: their messages are gone, or resident and so owned by the core.
//! All other entries are cold, and found here: by number and key through runs, by queue through the sections of the
//! files. Some of the entries that are out are *over*: cold too, and dead since their expiry has come. The files never
//! change; what becomes of an entry that was handed over is recorded by the core and the journal.
//!
//! # Layout
//! - `table`: a table and its bitmap
//! - `expiry`: messages that expire while they are cold, and die in place
//! - `block_cache`: the block cache; `prefetched_bodies`: bodies that were read with their messages
//! - `id_lookup`: where a message lies by its id
//! - `settlements`: settles what recovery finds to be gone
//! - `section_order`: which sections of a queue may have something ready
//! - `forecast`: how many messages fall due by given instants
//! - `merge`: the messages of a queue in order, and counted; `dead`: the dead ones by their deaths
//! - `ready_stream`, `prefetch`: read-ahead of a queue's ready messages
//! - `run_lookup`: where a message lies by its number or key; `entry_message`: the message of an entry
//! - `core_interface`: the calls of the core
//! - this file: the files and runs, and handing over

mod block_cache;
mod core_interface;
mod dead;
mod entry_message;
mod expiry;
mod forecast;
mod id_lookup;
mod merge;
mod prefetch;
mod prefetched_bodies;
mod ready_stream;
mod run_lookup;
mod section_order;
mod settlements;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use dwell_model::{Message, Number, QueueName, Timestamp};
use dwell_store::core::{ColdMessage, CopyAt, Died};
use dwell_store::{Error, Result};

use crate::executor::Executor;
use crate::index_run::{IndexRun, TableRef};
use crate::journal::segment::BodyRef;
use crate::sealed::{self, ReadError};
use crate::shard::overloaded;
use crate::table::{DeletionBitmap, SectionState, TableEntry};
use block_cache::BlockCache;
use entry_message::cold_message;
use id_lookup::IdLookup;
use prefetch::Prefetch;
use prefetched_bodies::PrefetchedBodies;
use ready_stream::{ReadyStream, open_at_once};
use section_order::SectionOrder;

pub(crate) use entry_message::{expired, message};
pub(crate) use prefetched_bodies::MAX_GAP;
pub(crate) use settlements::GoneByQueue;
pub(crate) use table::{ColdTable, MAX_BODY_WRITES};

/// A section of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SectionRef {
    file: u32,
    section: u32,
}

/// An entry of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EntryRef {
    file: u32,
    ordinal: u32,
}

/// The sections of a queue.
#[derive(Debug)]
struct QueueSections {
    sections: Vec<SectionRef>,
    order: SectionOrder,
    /// The number of due messages that the next hand-over has: one at first, for a caller that takes one, then doubled
    /// each time, so that each block is read for many.
    window: usize,
    /// The version at the last hand-over.
    version: u64,
}

/// The maximum number of messages per hand-over, unless [`PER_SECTION`] allows more.
const MIN_WINDOW: usize = 512;
/// The number of messages per section that a hand-over may have, so that each of its blocks is used for several.
const PER_SECTION: usize = 8;
/// The number of full hand-overs per turn; after that, a turn hands over only few of each queue.
const WINDOWS_PER_TURN: usize = 4;
/// The divisor of a hand-over in a turn that has had enough.
const FEWER: usize = 16;
/// The size of a hand-over from which the messages that follow are read ahead.
const PREFETCH_FROM: usize = 64;
/// The maximum number of queues that are read ahead at a time.
const MAX_PREFETCHES: usize = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct ColdSet {
    /// The directory's number: hashes of keys are salted with it.
    directory: u64,
    files: BTreeMap<u32, ColdTable>,
    by_queue: HashMap<QueueName, QueueSections>,
    /// Runs of the number index, newest first.
    numbers: Vec<Arc<IndexRun<TableRef>>>,
    /// Runs of the key index, newest first.
    keys: Vec<Arc<IndexRun<Number>>>,
    blocks: BlockCache,
    id_lookup: IdLookup,
    /// Queues that are being read ahead. All are of the current version.
    prefetches: Vec<Prefetch>,
    /// Incremented when something becomes cold or ready other than by the progress of the clock, and when files are
    /// added.
    version: u64,
    /// Runs the read-ahead; without it, it is done step by step in turns.
    executor: Option<Arc<Executor>>,
    /// The bodies of messages that were handed over.
    bodies: PrefetchedBodies,
    /// The maximum number of due messages per hand-over.
    window: usize,
    /// The number of messages handed over in this turn.
    handed: usize,
    /// The latest wall time that messages were promoted with since the last [`ColdSet::take_promoted`].
    promoted: Timestamp,
    /// The latest of all wall times that messages were promoted with.
    promoted_to: Timestamp,
    /// No cold message expires before this, apart from those set aside.
    next_expiry: Option<Timestamp>,
    /// The next retry of what was set aside, if anything was, on the monotonic clock.
    again_ms: Option<u64>,
    /// How often a due message stayed in its file because memory was full.
    memory_full: u64,
    /// The file and chunk at which the next retry begins.
    retry_from: (u32, u32),
    /// The number of entries of all files, in any state.
    entries: u64,
    /// The size of all files in bytes.
    bytes: u64,
    /// No scheduled entry that could be moved out of a coarse file is due before this.
    split_from: Option<Timestamp>,
    /// Scans over the dead messages of queues.
    walks: Vec<dead::DeadWindow>,
    /// The range of the times of death of a section's dead messages, for sections that were read in full: of those that
    /// were cold then.
    deaths: BTreeMap<SectionRef, (Timestamp, Timestamp)>,
    /// The maximum number of dead messages that are remembered to be handed over next.
    dead_entries: usize,
    /// Retention needs no message that died after this.
    retain_until: Option<Died>,
    /// Queues of which dead messages were passed over for retention, since they could not be read.
    passed_over: BTreeMap<QueueName, u64>,
    /// From when to when those dead messages of a section died that could be read, where others were passed over for
    /// retention; nothing if none could. For retention alone, until these are tried again.
    readable: BTreeMap<SectionRef, Option<(Timestamp, Timestamp)>>,
    /// Whether nothing that is due may be handed over, since too much waits in memory to be written.
    is_full: bool,
    /// Whether no message may be handed over that has expired and was set aside: it would have to be written too.
    is_tight: bool,
    /// The last read error.
    failed: Option<ReadError>,
    /// How often the next entry of a section was looked up.
    #[cfg(test)]
    looked: u64,
}

impl ColdSet {
    /// A set without files: `window` is the maximum number of due messages per hand-over, `block_cache` and
    /// `block_bytes` bound the block cache, and `dead_entries` is the maximum number of dead messages that are
    /// remembered.
    pub(crate) fn new(
        directory: u64,
        window: usize,
        (blocks, block_bytes): (usize, usize),
        dead_entries: usize,
    ) -> ColdSet {
        ColdSet {
            directory,
            files: BTreeMap::new(),
            by_queue: HashMap::new(),
            numbers: Vec::new(),
            keys: Vec::new(),
            blocks: BlockCache::keeping(blocks, block_bytes),
            id_lookup: IdLookup::default(),
            prefetches: Vec::new(),
            version: 0,
            executor: None,
            bodies: PrefetchedBodies::keeping(block_bytes / 2),
            window: window.max(1),
            handed: 0,
            promoted: Timestamp::MIN,
            promoted_to: Timestamp::MIN,
            next_expiry: None,
            again_ms: None,
            memory_full: 0,
            retry_from: (0, 0),
            entries: 0,
            bytes: 0,
            split_from: None,
            walks: Vec::new(),
            deaths: BTreeMap::new(),
            dead_entries: dead_entries.max(1),
            retain_until: None,
            passed_over: BTreeMap::new(),
            readable: BTreeMap::new(),
            is_full: false,
            is_tight: false,
            failed: None,
            #[cfg(test)]
            looked: 0,
        }
    }

    /// From now on the executor reads ahead, beside the turns.
    pub(crate) fn use_executor(&mut self, executor: Arc<Executor>) {
        self.executor = Some(executor);
    }

    /// Begins a turn. If `is_full`, the memory for unwritten changes is used up, and no due message is handed over in
    /// this turn.
    pub(crate) fn begin_turn(&mut self, is_full: bool) {
        (self.handed, self.is_full) = (0, is_full);
    }

    /// If set, more than enough in memory waits to be written, so that no message is handed over in this turn that has
    /// expired and could not be read in time: its death would be recorded, and wait there too.
    pub(crate) fn set_tight(&mut self, is_tight: bool) {
        self.is_tight = is_tight;
    }

    /// Whether some of these may not be handed over now, since they have expired by `ready_until` and their expiry was
    /// not processed.
    fn is_too_tight_for(&self, found: &[(EntryRef, TableEntry)], ready_until: Timestamp) -> bool {
        let has_expired = |(spot, found): &(EntryRef, TableEntry)| {
            let file = &self.files[&spot.file];
            let is_dead = file.was_dead(spot.ordinal) || file.over.has(spot.ordinal);
            !is_dead && found.entry.standing.expires.is_some_and(|expires| expires <= ready_until)
        };
        self.is_tight && self.again_ms.is_some() && found.iter().any(has_expired)
    }

    /// Whether the memory for unwritten changes is used up.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// How often a due message stayed in its file because memory was full.
    pub(crate) fn memory_full(&self) -> u64 {
        self.memory_full
    }

    fn refuse_for_room(&mut self) -> Error {
        self.memory_full += 1;
        overloaded()
    }

    /// The number of messages that this turn has made resident.
    pub(crate) fn handed_over(&self) -> usize {
        self.handed
    }

    /// Whether this turn has made as many messages resident as it should: the rest is left to the next turn, before
    /// which clean messages are evicted.
    pub(crate) fn has_handed_enough(&self) -> bool {
        self.handed >= WINDOWS_PER_TURN * self.window
    }

    /// Ends the read-ahead: what was read may no longer be what comes next.
    fn end_prefetches(&mut self) {
        self.version += 1;
        self.prefetches.clear();
    }

    pub(crate) fn files(&self) -> &BTreeMap<u32, ColdTable> {
        &self.files
    }

    pub(crate) fn numbers(&self) -> &[Arc<IndexRun<TableRef>>] {
        &self.numbers
    }

    pub(crate) fn keys(&self) -> &[Arc<IndexRun<Number>>] {
        &self.keys
    }

    /// Adds a file.
    pub(crate) fn add(&mut self, file: ColdTable) {
        self.end_prefetches();
        let number = file.file.name().number;
        for (section, at) in file.file.sections().iter().zip(0..) {
            let queued = self.by_queue.entry(section.queue.clone());
            let new = || QueueSections {
                sections: Vec::new(),
                order: SectionOrder::default(),
                window: 1,
                version: 0,
            };
            let queued = queued.or_insert_with(new);
            queued.sections.push(SectionRef { file: number, section: at });
        }
        self.next_expiry = self.next_expiry.into_iter().chain(file.next_expiry).min();
        self.split_from = self.split_from.into_iter().chain(file.split_from()).min();
        self.entries += u64::from(file.file.len());
        self.bytes += file.file.size();
        self.id_lookup.add(&file.file);
        self.dead_come(&file);
        self.promoted_to = self.promoted_to.max(file.ready_until);
        let sections = file.sections.len() as u32;
        let before = self.files.insert(number, file);
        assert!(before.is_none(), "no two files have one number");
        (0..sections).for_each(|section| self.enlist(SectionRef { file: number, section }));
    }

    /// Removes a file without cold entries.
    pub(crate) fn remove(&mut self, number: u32) -> Option<ColdTable> {
        self.prefetches.iter().for_each(|prefetch| prefetch.forget(number));
        let sections = self.files.get(&number)?.sections.len() as u32;
        (0..sections).for_each(|section| self.list(SectionRef { file: number, section }, None));
        let file = self.files.remove(&number)?;
        self.entries -= u64::from(file.file.len());
        self.bytes -= file.file.size();
        self.id_lookup.remove(&file.file);
        self.dead_go(number);
        self.deaths.retain(|at, _| at.file != number);
        self.readable.retain(|at, _| at.file != number);
        // Those of a queue lie side by side.
        for of_queue in file.file.sections().chunk_by(|one, other| one.queue == other.queue) {
            let Some(section) = of_queue.first() else { continue };
            if let Some(queued) = self.by_queue.get_mut(&section.queue) {
                queued.sections.retain(|at| at.file != number);
                if queued.sections.is_empty() {
                    self.by_queue.remove(&section.queue);
                }
            }
        }
        self.blocks.forget(number);
        self.find_next_expiry();
        Some(file)
    }

    /// Makes an entry no longer cold, since it has been moved into another file. Returns whether it was over.
    pub(crate) fn take_out(&mut self, copy: CopyAt) -> bool {
        self.files.get_mut(&copy.file.get()).expect("a copy lies in a file").take_out(copy.ordinal)
    }

    /// Whether an entry was dead when it was written.
    pub(crate) fn was_dead(&self, copy: CopyAt) -> bool {
        self.files[&copy.file.get()].was_dead(copy.ordinal)
    }

    /// The entries of a file that were dead when it was written.
    pub(crate) fn dead_of(&self, file: u32) -> Vec<Range<u32>> {
        let sections = self.files.get(&file).map_or(&[][..], |file| file.file.sections());
        sections
            .iter()
            .filter(|section| section.state == SectionState::Dead)
            .map(|section| section.range())
            .collect()
    }

    /// Records that entries due by these instants have been moved out of these files.
    pub(crate) fn set_split(&mut self, split: &[(u32, Timestamp)]) {
        for (number, until) in split {
            if let Some(file) = self.files.get_mut(number) {
                file.set_split(*until);
            }
        }
        self.split_from = self.files.values().filter_map(ColdTable::split_from).min();
    }

    /// No scheduled entry that could be moved out of a coarse file is due before this.
    pub(crate) fn split_from(&self) -> Option<Timestamp> {
        self.split_from
    }

    /// The number of entries of all files, in any state.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// The size of all files in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Replaces runs of the number index with the index run that they were merged into; false if not all of them are
    /// there.
    pub(crate) fn replace_numbers(
        &mut self,
        old: &[Arc<IndexRun<TableRef>>],
        new: &[Arc<IndexRun<TableRef>>],
    ) -> bool {
        replace(&mut self.numbers, old, new)
    }

    /// The same for runs of the key index.
    pub(crate) fn replace_keys(
        &mut self,
        old: &[Arc<IndexRun<Number>>],
        new: &[Arc<IndexRun<Number>>],
    ) -> bool {
        replace(&mut self.keys, old, new)
    }

    /// Sets the index runs in which messages are found, newest first.
    pub(crate) fn set_runs(
        &mut self,
        numbers: Vec<Arc<IndexRun<TableRef>>>,
        keys: Vec<Arc<IndexRun<Number>>>,
    ) {
        (self.numbers, self.keys) = (numbers, keys);
    }

    /// The number of index runs that could not be read when that was tried.
    pub(crate) fn damaged_runs(&self) -> u64 {
        let numbers = self.numbers.iter().filter(|run| run.damage().is_some()).count();
        (numbers + self.keys.iter().filter(|run| run.damage().is_some()).count()) as u64
    }

    /// The queues of all files.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &QueueName> {
        self.by_queue.keys()
    }

    /// The number of cold messages by queue: pending ones, and dead ones.
    pub(crate) fn totals(&self) -> BTreeMap<QueueName, (u64, u64)> {
        let mut totals: BTreeMap<QueueName, (u64, u64)> = BTreeMap::new();
        for file in self.files.values() {
            for (section, state) in file.file.sections().iter().zip(&file.sections) {
                let (pending, dead) = totals.entry(section.queue.clone()).or_default();
                let count = if section.state == SectionState::Dead { &mut *dead } else { pending };
                *count += u64::from(state.live);
                *dead += u64::from(state.over);
            }
        }
        totals
    }

    /// The approximate memory for finding cold messages in bytes: indexes, filters, bits, and cached blocks.
    pub(crate) fn memory(&self) -> usize {
        let files = self.files.values().map(ColdTable::memory).sum::<usize>();
        let runs = self.numbers.iter().map(|run| run.memory()).sum::<usize>();
        let keys = self.keys.iter().map(|run| run.memory()).sum::<usize>();
        let prefetches = self.prefetches.iter().map(Prefetch::memory).sum::<usize>();
        let walks = self.walks.iter().map(dead::DeadWindow::memory).sum::<usize>();
        let deaths = self.deaths.len() * 2 * size_of::<(SectionRef, (Timestamp, Timestamp))>();
        files + runs + keys + self.blocks.memory() + self.id_lookup.memory() + prefetches + walks + deaths
    }

    /// The settled entries of each file, and the instant by which it is ripe.
    pub(crate) fn states(&self) -> BTreeMap<u32, (DeletionBitmap, Timestamp)> {
        self.files.iter().map(|(number, file)| (*number, (file.settled(), file.ready_until))).collect()
    }

    /// The latest wall time that messages were promoted with since the last call.
    pub(crate) fn take_promoted(&mut self) -> Timestamp {
        std::mem::replace(&mut self.promoted, Timestamp::MIN)
    }

    /// Whether a read has failed since the last [`ColdSet::take_failure`].
    pub(crate) fn has_failure(&self) -> bool {
        self.failed.is_some()
    }

    /// The error of the last failed read since the last call, if any.
    pub(crate) fn take_failure(&mut self) -> Option<ReadError> {
        self.failed.take()
    }

    /// The message at `copy`, in any state.
    pub(crate) fn read(&mut self, copy: CopyAt) -> sealed::Result<Option<Message<BodyRef>>> {
        let Some(file) = self.files.get(&copy.file.get()) else { return Ok(None) };
        if copy.ordinal >= file.file.len() {
            return Ok(None);
        }
        let found = self.blocks.entry(file, copy.ordinal)?.clone();
        Ok(Some(message(found, &file.segment)))
    }

    fn tell<T>(&mut self, read: sealed::Result<T>) -> Result<T> {
        read.map_err(|error| {
            let reason = format!("a message cannot be read: {error}").into();
            self.failed = Some(error);
            Error::Unavailable { reason }
        })
    }

    /// Reads entries. In the order of the entries, each block is read once.
    fn read_all(&mut self, spots: &[EntryRef]) -> sealed::Result<Vec<(EntryRef, TableEntry)>> {
        let read =
            |spot: &EntryRef| Ok((*spot, self.blocks.entry(&self.files[&spot.file], spot.ordinal)?.clone()));
        spots.iter().map(read).collect()
    }

    /// Hands over messages that were read ahead, if there are any.
    fn hand_over_read(
        &mut self,
        queue: &QueueName,
        ready_until: Timestamp,
        most: usize,
        into: &mut Vec<ColdMessage<BodyRef>>,
    ) {
        let Some(at) = self.prefetch_of(queue, ready_until) else { return };
        let mut left = most;
        let bodies = self.bodies.of(queue);
        into.reserve(most.min(self.prefetches[at].at_hand()));
        while left > 0 && self.prefetches[at].peek(ready_until).is_some() {
            let Some(next) = self.prefetches[at].pop() else { break };
            let (spot, number) = (next.spot, next.number());
            let Some(file) = self.files.get_mut(&spot.file).filter(|file| !file.out.has(spot.ordinal)) else {
                continue;
            };
            file.take_out_of(next.section as usize, spot.ordinal);
            self.handed += 1;
            into.push(cold_message(spot, next.found, &file.segment, file.ready_until, false));
            if let Some(body) = next.body {
                bodies.add(number, body);
            }
            left -= 1;
        }
        if left == most {
            self.prefetches.remove(at);
        } else {
            self.prefetches[at].go_on(self.executor.as_deref());
        }
    }

    /// The index of the queue's read-ahead, which is begun if much of the queue was asked for and nothing else has
    /// happened since.
    fn prefetch_of(&mut self, queue: &QueueName, ready_until: Timestamp) -> Option<usize> {
        if let Some(at) = self.prefetches.iter().position(|prefetch| prefetch.queue == *queue) {
            if self.prefetches[at].is_right(ready_until) {
                return Some(at);
            }
            self.prefetches.remove(at);
            return None;
        }
        let (version, most) = (self.version, 2 * self.window);
        let queued = self.by_queue.get_mut(queue)?;
        let is_steady = std::mem::replace(&mut queued.version, version) == version;
        if !is_steady || queued.window < PREFETCH_FROM.min(self.window) {
            return None;
        }
        let cursors = self.cursors(queue, ready_until);
        let count = open_at_once(&cursors);
        if cursors.is_empty() || !self.blocks.can_spare(count) {
            return None;
        }
        let has_one_rank = self.has_one_rank(queue);
        let prefetch =
            Prefetch::new(queue.clone(), ready_until, has_one_rank, ReadyStream::new(cursors), count, most);
        if self.prefetches.len() >= MAX_PREFETCHES {
            self.prefetches.remove(0);
        }
        self.prefetches.push(prefetch);
        Some(self.prefetches.len() - 1)
    }

    /// The bodies of these messages in their order, as far as they were read ahead.
    pub(crate) fn bodies_of<'a>(
        &mut self,
        messages: impl Iterator<Item = &'a Message<BodyRef>>,
    ) -> Vec<(Number, Bytes)> {
        self.bodies.take(messages.map(|message| (&message.queue, message.number)))
    }

    /// Hands entries over.
    fn hand_over(&mut self, found: Vec<(EntryRef, TableEntry)>, into: &mut Vec<ColdMessage<BodyRef>>) {
        into.reserve(found.len());
        self.handed += found.len();
        for (spot, found) in found {
            let file = self.files.get_mut(&spot.file).expect("it was just read");
            let is_over = file.take_out(spot.ordinal);
            into.push(cold_message(spot, found, &file.segment, file.ready_until, is_over));
        }
    }

    /// Hands over those of these messages that are cold.
    pub(crate) fn draw(&mut self, numbers: &[Number]) -> sealed::Result<Vec<ColdMessage<BodyRef>>> {
        let mut spots = Vec::new();
        for number in numbers {
            spots.extend(self.home(*number)?);
        }
        spots.sort_unstable();
        let (read, mut drawn) = (self.read_all(&spots)?, Vec::new());
        self.hand_over(read, &mut drawn);
        Ok(drawn)
    }

    fn hand_over_one(&mut self, spot: Option<EntryRef>) -> sealed::Result<Option<ColdMessage<BodyRef>>> {
        let mut found = Vec::new();
        let read = self.read_all(spot.as_slice())?;
        self.hand_over(read, &mut found);
        Ok(found.pop())
    }
}

/// Puts `new` in the place of the adjacent runs `old`.
fn replace<V>(runs: &mut Vec<Arc<IndexRun<V>>>, old: &[Arc<IndexRun<V>>], new: &[Arc<IndexRun<V>>]) -> bool {
    let is_here = |at: &usize| {
        runs[*at..].len() >= old.len() && runs[*at..].iter().zip(old).all(|(run, old)| Arc::ptr_eq(run, old))
    };
    let Some(at) = (0..runs.len()).find(is_here) else { return false };
    runs.splice(at..at + old.len(), new.iter().cloned());
    true
}
