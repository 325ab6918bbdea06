//! The cold messages of a shard: those that are in tables and not in memory.
//!
//! Each file has a bitmap of the entries that are *out*: their messages are gone, or resident and so owned by the core.
//! All other entries are cold, and found here: by number and key through runs, by queue through the sections of the files.
//! Some of the entries that are out are *over*: cold too, and dead since their expiry has come. The files never change;
//! what becomes of an entry that was handed over is recorded by the core and the journal.
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
//! - this file: lookups, and handing over

mod block_cache;
mod dead;
mod expiry;
mod forecast;
mod id_lookup;
mod merge;
mod prefetch;
mod prefetched_bodies;
mod ready_stream;
mod section_order;
mod settlements;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use dwell_model::{
    Key, Message, MessageId, Now, Number, QueueName, Rules, Settings, Standing, State, StateKind, Timestamp,
    as_of,
};
use dwell_store::core::{
    Cold, ColdCounts, ColdHead, ColdMessage, CopyAt, DeadProgress, DeadReader, DeadSearch, Died, Expired,
    Expiring, QueuePart,
};
use dwell_store::{Error, Forecast, Result};

use crate::executor::Executor;
use crate::index_run::{IndexRun, NumberSet, TableRef, key_hash};
use crate::journal::segment::{BodyRef, Segment};
use crate::sealed::{self, ReadError};
use crate::shard::overloaded;
use crate::table::{DeletionBitmap, SectionState, TableEntry};
use block_cache::BlockCache;
use id_lookup::IdLookup;
use prefetch::Prefetch;
use prefetched_bodies::PrefetchedBodies;
use ready_stream::{ReadyStream, open_at_once};
use section_order::SectionOrder;

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

/// The maximum number of messages that had a key to be looked up one by one; more are looked up together, since they
/// share blocks.
const LOOKED_UP: usize = 4;
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
    /// The range of the times of death of a section's dead messages, for sections that were read in full: of those that were
    /// cold then.
    deaths: BTreeMap<SectionRef, (Timestamp, Timestamp)>,
    /// The maximum number of dead messages that are remembered to be handed over next.
    dead_entries: usize,
    /// Retention needs no message that died after this.
    retain_until: Option<Died>,
    /// Queues of which dead messages were passed over for retention, since they could not be read.
    passed_over: BTreeMap<QueueName, u64>,
    /// From when to when those dead messages of a section died that could be read, where others were passed over for retention; nothing
    /// if none could. For retention alone, until these are tried again.
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
    /// A set without files: `window` is the maximum number of due messages per hand-over, `block_cache` and `block_bytes`
    /// bound the block cache, and `dead_entries` is the maximum number of dead messages that are remembered.
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

    /// Whether some of these may not be handed over now, since they have expired by `ready_until` and their expiry was not
    /// processed.
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

    /// Replaces runs of the number index with the index run that they were merged into; false if not all of them are there.
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

    /// The place of the cold message with this number.
    fn home(&self, number: Number) -> sealed::Result<Option<EntryRef>> {
        for run in &self.numbers {
            let Some(TableRef { file, ordinal }) = run.home(number)? else { continue };
            if self.files.get(&file).is_some_and(|file| file.is_cold(ordinal)) {
                return Ok(Some(EntryRef { file, ordinal }));
            }
        }
        Ok(None)
    }

    /// The places of those that are cold, the latest first if there are few. `numbers` rise.
    fn homes(&self, numbers: &[Number]) -> sealed::Result<Vec<EntryRef>> {
        if numbers.len() <= LOOKED_UP {
            return numbers.iter().rev().filter_map(|number| self.home(*number).transpose()).collect();
        }
        let mut spots = Vec::new();
        for run in &self.numbers {
            let mut wanted = NumberSet::default();
            for number in numbers {
                if run.may_hold(number.get())? {
                    wanted.add(number.get());
                }
            }
            if wanted.is_empty() {
                continue;
            }
            run.find_all(&wanted, |TableRef { file, ordinal }| {
                if self.files.get(&file).is_some_and(|file| file.is_cold(ordinal)) {
                    spots.push(EntryRef { file, ordinal });
                }
            })?;
        }
        Ok(spots)
    }

    /// Looks at some more of the messages that had this key, by their numbers, and returns whether these were all: one
    /// or two reads for each, and a few for each run. See [`Cold::dead_by_key`](dwell_store::core::Cold::dead_by_key).
    fn search_dead_key(
        &mut self,
        queue: &QueueName,
        key: &Key,
        after: Option<Died>,
        most: usize,
        search: &mut DeadSearch,
    ) -> sealed::Result<bool> {
        // A message that has expired since its file was written is there under the hash of a live one.
        let hashes = [true, false].map(|is_dead| key_hash(self.directory, queue, key, is_dead));
        let (mut numbers, mut end) = (Vec::new(), None::<Number>);
        for (run, hash) in self.keys.iter().flat_map(|run| hashes.map(|hash| (run, hash))) {
            let found = run.find_after(hash, search.to, most)?;
            if let Some(last) = found.last().filter(|_| found.len() >= most) {
                // What this run has behind its last one was not read.
                end = Some(end.map_or(*last, |end| end.min(*last)));
            }
            numbers.extend(found);
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers.truncate(end.map_or(numbers.len(), |end| numbers.partition_point(|number| *number <= end)));
        let is_all = end.is_none() && numbers.len() <= most;
        numbers.truncate(most);
        let mut spots = self.homes(&numbers)?;
        // In the order of the places, each block is read once.
        spots.sort_unstable();
        for spot in spots {
            let file = &self.files[&spot.file];
            if !file.over.has(spot.ordinal) && !file.was_dead(spot.ordinal) {
                continue;
            }
            // The known times of death of the section may be enough to skip it.
            let section =
                u32::try_from(file.file.section_of(spot.ordinal)).expect("sections are counted in 32 bits");
            let least = search.youngest.map(|(died, _)| died).max(after);
            let deaths = self.deaths.get(&SectionRef { file: spot.file, section });
            if deaths.zip(least).is_some_and(|((_, last), (least, _))| *last < least) {
                continue;
            }
            let TableEntry { entry, .. } = self.blocks.entry(file, spot.ordinal)?;
            let had_it = entry.queue == *queue && entry.own_key() == Some(key);
            let died = dead::died_at(entry).filter(|died| had_it && Some(*died) > after);
            search.youngest = search.youngest.max(died.map(|died| (died, entry.number)));
        }
        search.to = numbers.last().copied().or(search.to);
        search.looked_at += numbers.len();
        Ok(is_all)
    }

    /// The place of the message that a search has found to be the youngest, if it is still there.
    fn found_dead(&self, number: Number) -> sealed::Result<Option<EntryRef>> {
        let is_dead = |spot: &EntryRef| {
            let file = &self.files[&spot.file];
            file.over.has(spot.ordinal) || file.was_dead(spot.ordinal)
        };
        Ok(self.home(number)?.filter(is_dead))
    }

    fn key_home(&mut self, queue: &QueueName, key: &Key) -> sealed::Result<Option<EntryRef>> {
        let hash = key_hash(self.directory, queue, key, false);
        for run in self.keys.clone() {
            // Messages that expired in place, or that died and whose runs were not merged yet, had the key as well.
            for spot in self.homes(&run.find(hash)?)? {
                let file = &self.files[&spot.file];
                if file.over.has(spot.ordinal) || file.was_dead(spot.ordinal) {
                    continue;
                }
                let entry = &self.blocks.entry(file, spot.ordinal)?.entry;
                if entry.queue == *queue && entry.live_key() == Some(key) {
                    return Ok(Some(spot));
                }
            }
        }
        Ok(None)
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

/// A message as it is handed over: dead if it is over, else ready if it is due by `ready_until`.
fn cold_message(
    spot: EntryRef,
    found: TableEntry,
    segment: &Arc<Segment>,
    ready_until: Timestamp,
    is_over: bool,
) -> ColdMessage<BodyRef> {
    let ready_since = found.entry.ready_since;
    let mut message = message(found, segment);
    if is_over {
        message.standing = expired(&message.standing);
    } else if message.standing.state == State::Scheduled && message.standing.due <= ready_until {
        message.standing.state = State::Ready;
    }
    let file = NonZeroU32::new(spot.file).expect("files are counted from 1");
    let copy = CopyAt { file, ordinal: spot.ordinal };
    ColdMessage { message, ready_since, copy, over_by: is_over.then_some(ready_until) }
}

/// The standing of a message without a holder, once its expiry has come.
pub(crate) fn expired(standing: &Standing) -> Standing {
    let wall = standing.expires.expect("what is over has an expiry");
    // The limit of attempts applies to leases that run out, and what is over has died, whatever its queue's settings
    // say about later messages.
    let (id, settings) = (MessageId::new(wall, 0, 0, 0), Settings::default());
    as_of(standing, Now { wall, mono_ms: 0 }, Rules::of(id, None, &settings)).expect("nothing drops it")
}

/// The message of an entry.
pub(crate) fn message(found: TableEntry, segment: &Arc<Segment>) -> Message<BodyRef> {
    let TableEntry { entry, body, .. } = found;
    Message {
        id: entry.id,
        number: entry.number,
        queue: entry.queue,
        body: BodyRef { segment: Arc::clone(segment), at: body.at, len: body.len },
        key: entry.key,
        headers: entry.headers,
        created: entry.created,
        lease_ms: entry.lease_ms,
        max_attempts: entry.max_attempts,
        standing: entry.standing,
    }
}

impl Cold<BodyRef> for ColdSet {
    fn by_number(&mut self, number: Number) -> Result<Option<ColdMessage<BodyRef>>> {
        let found = self.home(number).and_then(|spot| self.hand_over_one(spot));
        self.tell(found)
    }

    fn by_id(
        &mut self,
        queue: &QueueName,
        id: MessageId,
        number: Number,
    ) -> Result<Option<ColdMessage<BodyRef>>> {
        let spot = match self.find_by_id(queue, id, number) {
            Ok(None) => self.home(number),
            found => found,
        };
        let found = spot.and_then(|spot| self.hand_over_one(spot));
        self.tell(found)
    }

    fn by_key(&mut self, queue: &QueueName, key: &Key) -> Result<Option<ColdMessage<BodyRef>>> {
        let found = self.key_home(queue, key).and_then(|spot| self.hand_over_one(spot));
        self.tell(found)
    }

    fn due(
        &mut self,
        queue: &QueueName,
        ready_until: Timestamp,
        into: &mut Vec<ColdMessage<BodyRef>>,
    ) -> Result<()> {
        if self.is_full && self.by_queue.contains_key(queue) {
            return Err(self.refuse_for_room());
        }
        let has_enough = self.has_handed_enough();
        let Some(queued) = self.by_queue.get_mut(queue) else { return Ok(()) };
        let most = self.window.min(MIN_WINDOW.max(PER_SECTION * queued.sections.len()));
        let usual = queued.window.min(most);
        queued.window = (2 * usual).min(most);
        let window = if has_enough { (usual / FEWER).max(1) } else { usual };
        if self.is_tight && self.again_ms.is_some() {
            self.prefetches.retain(|prefetch| prefetch.queue != *queue);
        } else {
            self.hand_over_read(queue, ready_until, window, into);
        }
        if !into.is_empty() {
            return Ok(());
        }
        let found = self.first_ready(queue, ready_until, window);
        if found.as_ref().is_ok_and(|found| self.is_too_tight_for(found, ready_until)) {
            return Err(self.refuse_for_room());
        }
        let found = found.map(|found| self.hand_over(found, into));
        self.tell(found)
    }

    fn head(&mut self, queue: &QueueName, ready_until: Timestamp) -> Result<ColdHead> {
        let found = self.next_ready(queue, ready_until);
        self.tell(found)
    }

    fn dead_by_key(
        &mut self,
        queue: &QueueName,
        key: &Key,
        after: Option<Died>,
        most: usize,
        search: &mut DeadSearch,
        into: &mut Vec<ColdMessage<BodyRef>>,
    ) -> Result<bool> {
        let is_all = self.search_dead_key(queue, key, after, most.max(1), search);
        if !self.tell(is_all)? {
            return Ok(false);
        }
        let Some((_, number)) = search.youngest.filter(|(died, _)| Some(*died) > after) else {
            return Ok(true);
        };
        let spot = self.found_dead(number);
        let Some(spot) = self.tell(spot)? else {
            // Another call has brought it back, or removed it: the youngest is one of the others.
            *search = DeadSearch { looked_at: search.looked_at, ..DeadSearch::default() };
            return Ok(false);
        };
        let found = self.hand_over_one(Some(spot));
        into.extend(self.tell(found)?);
        Ok(true)
    }

    fn expire(
        &mut self,
        now: Now,
        most: usize,
        expiring: &dyn Fn(&QueueName) -> Expiring,
        into: &mut Expired<BodyRef>,
    ) -> bool {
        self.expire_some(now, most, expiring, into)
    }

    fn is_behind_in(&self, queue: &QueueName, now: Now) -> bool {
        self.has_fresh_in(queue, now)
    }

    fn expire_unread(
        &mut self,
        queue: &QueueName,
        now: Now,
        expiring: &dyn Fn(&QueueName) -> Expiring,
        into: &mut Expired<BodyRef>,
    ) -> Result<()> {
        self.expire_aside(queue, now, expiring, into)
    }

    fn page(
        &mut self,
        queue: &QueueName,
        state: StateKind,
        ready_until: Timestamp,
        after: Option<(Timestamp, MessageId)>,
        count: usize,
        into: &mut Vec<ColdMessage<BodyRef>>,
    ) -> Result<()> {
        let found = self.first_after(queue, state, ready_until, after, count);
        if found.as_ref().is_ok_and(|found| self.is_too_tight_for(found, ready_until)) {
            return Err(overloaded());
        }
        let found = found.map(|found| self.hand_over(found, into));
        self.tell(found)
    }

    fn dead(
        &mut self,
        queue: &QueueName,
        reader: DeadReader,
        after: Option<Died>,
        anew: bool,
        most: usize,
        into: &mut Vec<ColdMessage<BodyRef>>,
    ) -> Result<DeadProgress> {
        if anew {
            self.end_stale_windows(queue, reader);
        }
        let handed_over = self.hand_over_dead(queue, reader, after, most, into);
        self.tell(handed_over)
    }

    fn retain_until(&mut self, until: Option<Died>) {
        self.retain_until = until;
    }

    fn passed_over(&self, queue: &QueueName) -> Option<u64> {
        self.passed_over.get(queue).copied()
    }

    fn try_passed_over(&mut self, queue: &QueueName) {
        self.forget_passed_over(queue);
    }

    fn counts(&mut self, queue: &QueueName, ready_until: Timestamp) -> Result<ColdCounts> {
        let found = self.count(queue, ready_until);
        self.tell(found)
    }

    fn forecast(
        &mut self,
        queue: &QueueName,
        ready_until: Timestamp,
        edges: &[Timestamp],
    ) -> Result<Forecast> {
        let found = self.due_by(queue, ready_until, edges);
        self.tell(found)
    }

    fn forget(&mut self, queue: &QueueName, which: QueuePart) {
        self.prefetches.retain(|prefetch| prefetch.queue != *queue);
        self.bodies.forget(queue);
        self.walks.retain(|walk| which == QueuePart::Pending || !walk.is_of(queue));
        if which == QueuePart::Dead {
            self.forget_passed_over(queue);
        }
        let Some(queued) = self.by_queue.get_mut(queue) else { return };
        if which == QueuePart::Pending {
            // None of its sections has any entry left: without this, the next take would find that out section by section.
            queued.order = SectionOrder::default();
        }
        for at in &queued.sections {
            let file = self.files.get_mut(&at.file).expect("sections are those of files");
            let is_dead = file.file.sections()[at.section as usize].state == SectionState::Dead;
            if is_dead == (which == QueuePart::Dead) {
                file.clear_section(at.section as usize);
                file.sections[at.section as usize].bound = None;
            } else if which == QueuePart::Dead {
                file.clear_over(at.section as usize);
            }
        }
    }

    fn promote(&mut self, wall: Timestamp) {
        self.end_prefetches();
        self.promoted = self.promoted.max(wall);
        self.promoted_to = self.promoted_to.max(wall);
        for file in self.files.values_mut() {
            file.ready_until = file.ready_until.max(wall);
        }
    }

    fn put_back(&mut self, copy: CopyAt, died: Option<Died>) {
        self.end_prefetches();
        if let Some(died) = died {
            self.dead_is_back(copy, died);
        }
        let file = self.files.get_mut(&copy.file.get()).expect("a copy lies in a file");
        let section = file.file.section_of(copy.ordinal);
        if died.is_some() && file.file.sections()[section].state != SectionState::Dead {
            file.be_over(copy.ordinal);
            return;
        }
        let section = file.put_back(copy.ordinal) as u32;
        self.lower(SectionRef { file: copy.file.get(), section }, copy.ordinal);
    }

    fn promoted_to(&self) -> Timestamp {
        self.promoted_to
    }
}
