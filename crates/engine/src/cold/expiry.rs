//! Messages that expire while they are cold: found by the expiries of their files, and dead in place.
//!
//! Nothing is written, read or handed over for a message that dies this way. Its entry has its expiry, and the journal
//! records the latest time that was seen: so every later open comes to the same result. While the file is open, a bit
//! marks the entry as *over*: it is out of its section, which holds what is scheduled or ready, and is found by
//! searches for dead messages. Ten million messages that expire at one instant are ten million bits, and ten thousand
//! reads of a few KiB; they are processed in slices, and other commands are served in between. After a restart all of a
//! file's expiries are processed again, whether they had been or not: that is cheaper than to remember the position.
//!
//! An entry is dead if it expires by the latest time that was seen, or by the time at which its file was promoted: so a
//! clock that steps back revives nothing.
//!
//! Expiries that cannot be read are set aside by the file, a chunk at a time. So one unreadable place keeps no other
//! message from expiring, and is not read again by each call, but after a second, two, four, and so on up to a minute;
//! and at once if a call needs it. Where many places are unreadable, a few are tried at a time, and the next retry goes
//! on behind them, so a place that can be read again is reached even if those before it stay unreadable. Chunks that
//! were set aside are forgotten with their file.
//!
//! If a queue drops expired messages, its entries are handed over instead, to be recorded as gone: their numbers are
//! needed for that, and so their blocks are read, a few at a time. That takes far longer than to look at expiries, so
//! it has a separate progress, which follows the other: entries that wait for it delay their own queue alone, and
//! queues that also drop expired messages and have messages in the same files. These entries are processed file by
//! file, and in each file in the order in which they have expired. Those that cannot be read then die, and the core
//! records that all files are promoted, which keeps them dead. A replay leaves entries of these queues where they are,
//! since the journal has the records; what it has left is looked at again when a file is promoted, and when the replay
//! has ended.
//!
//! # Ground rules
//! 1. An entry that is over is out too: searches for pending entries skip it as they skip what is gone.
//! 2. What lies before a file's progress and is cold is over. So an entry that is cold again is over at once if its
//!    time has come, and nothing has to be looked at twice for it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use dwell_model::{Now, QueueName, Timestamp};
use dwell_store::core::{Expired, Expiring};
use dwell_store::{Error, Result};

use super::table::ColdTable;
use super::{ColdSet, EntryRef, SectionRef};
use crate::journal::segment::BodyRef;
use crate::sealed::ReadError;
use crate::table::SectionState;

/// The delay before chunks set aside are first retried, and the maximum delay, in ms.
const FIRST_WAIT_MS: u64 = 1_000;
const LONGEST_WAIT_MS: u64 = 60_000;
/// The number of failed reads in one call after which it tries no more: the medium may be gone.
const FAILURES: usize = 16;

/// The maximum number of entries that one call hands over, and of blocks that it reads for them.
const HANDED_OVER: usize = 1_024;
const BLOCKS: usize = 64;

/// The rule of each queue for entries that expire.
type Rule<'a> = &'a dyn Fn(&QueueName) -> Expiring;

/// The outcome for those entries of a file that have expired.
#[derive(Debug, Default)]
struct Fates {
    /// The number of entries that have died, by section.
    died: BTreeMap<usize, u64>,
    /// Entries that are to be handed over.
    going: Vec<u32>,
}

/// A position in a file's expiries: everything before it was processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct ExpiryProgress {
    /// The index of the chunk.
    chunk: u32,
    /// The index of the pair in the chunk.
    pair: u32,
}

/// Chunks of expiries of a file that could not be read when their time had come.
#[derive(Debug, Default)]
pub(super) struct SetAside {
    /// The chunks, with the earliest expiry of each.
    chunks: BTreeMap<u32, Timestamp>,
    /// The time of the next retry, on the monotonic clock.
    again_ms: u64,
    /// The last delay before a retry.
    waited_ms: u64,
    /// The last read error.
    reason: Box<str>,
}

impl SetAside {
    /// The state before anything is set aside.
    fn beginning(now: Now) -> Box<SetAside> {
        let reason = "too much else could not be read".into();
        let mut aside = Box::new(SetAside { reason, ..SetAside::default() });
        aside.wait(now);
        aside
    }

    /// The memory in bytes.
    pub(super) fn memory(&self) -> usize {
        size_of::<SetAside>() + self.chunks.len() * 2 * size_of::<(u32, Timestamp)>()
    }

    /// Sets the next retry after all of it was tried and some failed again, or when it is new.
    fn wait(&mut self, now: Now) {
        self.waited_ms = (2 * self.waited_ms).clamp(FIRST_WAIT_MS, LONGEST_WAIT_MS);
        self.again_ms = now.mono_ms.saturating_add(self.waited_ms);
    }

    /// Sets the next retry after some of it was not tried, because the call's limit of failures or of reads was
    /// reached.
    fn come_next(&mut self, now: Now, budget: &ExpiryBudget) {
        let wait = if budget.has_failed() { FIRST_WAIT_MS } else { 0 };
        self.again_ms = now.mono_ms.saturating_add(wait);
    }
}

/// The remaining budget of one call.
struct ExpiryBudget {
    pairs: usize,
    /// The number of entries that may be handed over.
    going: usize,
    /// The number of blocks that may be read for these.
    blocks: usize,
    /// The number of pairs that may be looked at for these.
    passed: usize,
    /// The number of pairs of chunks set aside that may be read, to find out whether they are readable again.
    retried: usize,
    failures: usize,
}

impl ExpiryBudget {
    fn new(pairs: usize) -> ExpiryBudget {
        let passed = pairs.max(HANDED_OVER);
        ExpiryBudget { pairs, going: HANDED_OVER, blocks: BLOCKS, passed, retried: pairs, failures: 0 }
    }

    /// Whether nothing more is to be handed over.
    fn is_spent(&self) -> bool {
        self.going == 0 || self.blocks == 0 || self.passed == 0
    }

    /// Whether nothing more is to be looked at.
    fn is_empty(&self) -> bool {
        self.pairs == 0 && self.is_spent()
    }

    /// Whether nothing more is to be read that might fail.
    fn has_failed(&self) -> bool {
        self.failures >= FAILURES
    }

    /// Records that something was set aside, after a failed read or untried.
    fn failed(&mut self, error: Option<ReadError>, aside: &mut SetAside) {
        if let Some(error) = error {
            aside.reason = error.to_string().into();
            self.failures += 1;
        }
    }
}

impl ColdTable {
    /// Entries that expire by this instant are dead.
    fn over_by(&self, now: Now) -> Timestamp {
        self.ready_until.max(now.wall)
    }

    /// When to process an entry that expires at `at`. What had expired when the file was promoted is dead at any time.
    fn come_to(&self, at: Option<Timestamp>) -> Option<Timestamp> {
        at.map(|at| if at <= self.ready_until { Timestamp::MIN } else { at })
    }

    /// Sets the expiry of the next entry to be processed.
    fn set_next_expiry(&mut self, at: Option<Timestamp>) {
        self.next_expiry = self.come_to(at);
    }

    /// The same of the next entry that was not looked at.
    fn set_ahead_expiry(&mut self, at: Option<Timestamp>) {
        self.ahead_expiry = self.come_to(at);
    }

    /// Positions the file at the first of its expiries, before any other use.
    pub(super) fn begin_expiries(&mut self) {
        let first = self.file.first_expiry();
        self.set_next_expiry(first);
        self.set_ahead_expiry(first);
    }

    /// Whether entries of this section may have expired by now that were not processed.
    fn has_fresh_in(&self, section: usize, now: Now) -> bool {
        let state = &self.sections[section];
        let is_pending = state.live > 0 && self.file.sections()[section].state != SectionState::Dead;
        is_pending && (state.waits || self.ahead_expiry.is_some_and(|at| at <= now.wall))
    }

    /// Whether expired entries of a queue are set aside.
    fn has_aside(&self, queue: &QueueName, now: Now) -> bool {
        let Some(aside) = &self.aside else { return false };
        let over_by = self.over_by(now);
        let sections = self.file.sections().iter().zip(&self.sections);
        let is_live =
            |section: &crate::table::Section| section.queue == *queue && section.state != SectionState::Dead;
        aside.chunks.values().any(|earliest| *earliest <= over_by)
            && sections.into_iter().any(|(section, state)| is_live(section) && state.live > 0)
    }

    /// Processes the expiries whose time has come, from the current position on, and returns the outcomes.
    fn expire(&mut self, now: Now, budget: &mut ExpiryBudget, rule: Rule<'_>) -> Fates {
        let mut fates = Fates::default();
        self.look_ahead(now, budget, rule, &mut fates);
        self.see_to_waiting(now, budget, rule, &mut fates);
        fates
    }

    /// What happens to an entry that expires. Entries that had expired when the file was promoted died by that.
    fn fate(&self, (at, ordinal): (Timestamp, u32), rule: Rule<'_>) -> Expiring {
        if at <= self.ready_until {
            return Expiring::Die;
        }
        rule(&self.file.sections()[self.file.section_of(ordinal)].queue)
    }

    fn die_in(&mut self, ordinal: u32, fates: &mut Fates) {
        if let Some(section) = self.die(ordinal) {
            *fates.died.entry(section).or_default() += 1;
        }
    }

    /// Looks at the expiries whose time has come. Entries that are to die do; those to be handed over wait, and delay
    /// no other section.
    fn look_ahead(&mut self, now: Now, budget: &mut ExpiryBudget, rule: Rule<'_>, fates: &mut Fates) {
        let over_by = self.over_by(now);
        loop {
            let chunk = self.ahead_to.chunk;
            let Some(first) = self.file.expiry_chunk_from(chunk) else {
                self.ahead_expiry = None;
                return;
            };
            let from = if self.ahead_to.pair > 0 { self.ahead_expiry.unwrap_or(first) } else { first };
            self.set_ahead_expiry(Some(from));
            if from > over_by || budget.pairs == 0 {
                return;
            }
            let next = ExpiryProgress { chunk: chunk + 1, pair: 0 };
            let Some(pairs) = self.read_chunk(chunk, first, now, budget) else {
                self.ahead_to = next;
                continue;
            };
            let mut pair = self.ahead_to.pair as usize;
            while let Some(expiry) = pairs.get(pair).copied()
                && expiry.0 <= over_by
                && budget.pairs > 0
            {
                (pair, budget.pairs) = (pair + 1, budget.pairs - 1);
                let ordinal = expiry.1;
                match self.fate(expiry, rule) {
                    Expiring::Die => self.die_in(ordinal, fates),
                    Expiring::Go if self.is_pending(ordinal) => {
                        let section = self.file.section_of(ordinal);
                        self.sections[section].waits = true;
                    }
                    Expiring::Go => {}
                    Expiring::Stay => self.has_left |= self.is_pending(ordinal),
                }
            }
            if let Some((at, _)) = pairs.get(pair) {
                self.ahead_to.pair = u32::try_from(pair).expect("a chunk has few pairs");
                self.set_ahead_expiry(Some(*at));
                return;
            }
            self.ahead_to = next;
        }
    }

    /// Processes entries that wait to be handed over, in the order in which they have expired.
    fn see_to_waiting(&mut self, now: Now, budget: &mut ExpiryBudget, rule: Rule<'_>, fates: &mut Fates) {
        let does_any_wait = self.sections.iter().any(|section| section.waits);
        let mut blocks = BTreeSet::new();
        while does_any_wait && self.expired_to < self.ahead_to {
            let ExpiryProgress { chunk, pair } = self.expired_to;
            let first = self.file.expiry_chunk_from(chunk);
            if budget.is_spent() {
                if pair == 0 {
                    self.set_next_expiry(first);
                }
                return;
            }
            let next = self.ahead_to.min(ExpiryProgress { chunk: chunk + 1, pair: 0 });
            let Some(pairs) = self.read_chunk(chunk, first.unwrap_or(Timestamp::MIN), now, budget) else {
                self.expired_to = next;
                continue;
            };
            let end = if next.chunk == chunk { next.pair as usize } else { pairs.len() };
            let mut pair = pair as usize;
            while let Some(expiry) = pairs.get(pair).copied().filter(|_| pair < end && !budget.is_spent()) {
                (pair, budget.passed) = (pair + 1, budget.passed - 1);
                let ordinal = expiry.1;
                match self.fate(expiry, rule) {
                    Expiring::Die => self.die_in(ordinal, fates),
                    Expiring::Go if self.is_pending(ordinal) => {
                        budget.going -= 1;
                        budget.blocks -= usize::from(blocks.insert(self.file.block_of(ordinal)));
                        fates.going.push(ordinal);
                    }
                    Expiring::Go => {}
                    Expiring::Stay => self.has_left |= self.is_pending(ordinal),
                }
            }
            match pairs.get(pair).filter(|_| pair < end) {
                Some((at, _)) => {
                    self.expired_to.pair = u32::try_from(pair).expect("a chunk has few pairs");
                    self.set_next_expiry(Some(*at));
                }
                None => self.expired_to = next,
            }
        }
        self.sections.iter_mut().for_each(|section| section.waits = false);
        (self.expired_to, self.next_expiry) = (self.ahead_to, self.ahead_expiry);
    }

    /// Whether an entry is cold, and neither dead nor over.
    fn is_pending(&self, ordinal: u32) -> bool {
        !self.out.has(ordinal) && !self.was_dead(ordinal)
    }

    /// Reads a chunk; sets it aside if it cannot be read.
    fn read_chunk(
        &mut self,
        chunk: u32,
        from: Timestamp,
        now: Now,
        budget: &mut ExpiryBudget,
    ) -> Option<Vec<(Timestamp, u32)>> {
        if self.aside.as_ref().is_some_and(|aside| aside.chunks.contains_key(&chunk)) {
            return None;
        }
        let read = if budget.has_failed() { None } else { Some(self.file.expiry_chunk(chunk)) };
        let failed = match read {
            Some(Ok(pairs)) => return Some(pairs),
            Some(Err(error)) => Some(error),
            None => None,
        };
        let aside = self.aside.get_or_insert_with(|| SetAside::beginning(now));
        aside.chunks.insert(chunk, from);
        budget.failed(failed, aside);
        None
    }

    /// Retries some of the chunks set aside, and has those that can be read now looked at like any other. Returns the
    /// chunk at which it stopped, if it did.
    fn try_aside(&mut self, chunks: Range<u32>, budget: &mut ExpiryBudget) -> Option<u32> {
        let mut aside = self.aside.take()?;
        let chunks: Vec<u32> = aside.chunks.range(chunks).map(|(chunk, _)| *chunk).collect();
        let mut stopped = None;
        for chunk in chunks {
            if budget.has_failed() || budget.retried == 0 {
                stopped = Some(chunk);
                break;
            }
            match self.file.expiry_chunk(chunk) {
                Ok(pairs) => {
                    budget.retried = budget.retried.saturating_sub(pairs.len());
                    aside.chunks.remove(&chunk);
                    self.look_again_from(chunk);
                }
                Err(error) => budget.failed(Some(error), &mut aside),
            }
        }
        if !aside.chunks.is_empty() {
            self.aside = Some(aside);
        }
        stopped
    }

    /// Moves the position back, so that the expiries from a chunk on are looked at again.
    fn look_again_from(&mut self, chunk: u32) {
        let (from, first) = (ExpiryProgress { chunk, pair: 0 }, self.file.expiry_chunk_from(chunk));
        if from < self.ahead_to {
            self.ahead_to = from;
            self.set_ahead_expiry(first);
        }
        if from < self.expired_to {
            self.expired_to = from;
            self.set_next_expiry(first);
        }
    }
}

impl ColdSet {
    /// See [`Cold::expire`](dwell_store::core::Cold::expire).
    pub(super) fn expire_some(
        &mut self,
        now: Now,
        most: usize,
        rule: Rule<'_>,
        into: &mut Expired<BodyRef>,
    ) -> bool {
        let has_fresh = self.next_expiry.is_some_and(|next| next <= now.wall);
        let has_again = self.again_ms.is_some_and(|again| again <= now.mono_ms);
        if !has_fresh && !has_again {
            return true;
        }
        let mut budget = ExpiryBudget::new(most);
        let mut is_through = true;
        if has_again {
            let is_due = |aside: &SetAside| aside.again_ms <= now.mono_ms;
            let due = self.files.iter().filter(|(_, file)| file.aside.as_deref().is_some_and(is_due));
            let due: Vec<u32> = due.map(|(number, _)| *number).collect();
            let stopped = self.try_aside(&due, self.retry_from, now, &mut budget);
            is_through = stopped.is_none() || budget.has_failed();
            self.retry_from = stopped.unwrap_or_default();
        }
        self.look_at_fresh(now, &mut budget, rule, into) && is_through
    }

    /// Has the entries looked at again that a replay has left, since their queues drop expired messages: those that had
    /// expired when their file was promoted are dead, and the others are dropped after the replay.
    pub(crate) fn look_again_at_left(&mut self) {
        for file in self.files.values_mut().filter(|file| file.has_left) {
            file.has_left = false;
            file.look_again_from(0);
        }
        self.find_next_expiry();
    }

    /// Retries what these files have set aside, from a chunk of a file on, and then what lies before. Returns where to
    /// continue if that was not all.
    fn try_aside(
        &mut self,
        files: &[u32],
        (first, chunk): (u32, u32),
        now: Now,
        budget: &mut ExpiryBudget,
    ) -> Option<(u32, u32)> {
        let (before, behind) = files.split_at(files.partition_point(|number| *number < first));
        // The first file comes last too, with the chunks before the given one.
        let split = behind.first().filter(|number| **number == first && chunk > 0);
        let whole = |number: &u32| (*number, 0..u32::MAX);
        let rest = behind.iter().skip(usize::from(split.is_some())).chain(before).map(whole);
        let parts = split.map(|number| (*number, chunk..u32::MAX)).into_iter().chain(rest);
        let mut stopped = None;
        let mut tried = BTreeSet::new();
        for (number, chunks) in parts.chain(split.map(|number| (*number, 0..chunk))) {
            let Some(file) = self.files.get_mut(&number) else { continue };
            let is_last = chunks.start == 0;
            stopped = file.try_aside(chunks, budget).map(|chunk| (number, chunk));
            if stopped.is_some() {
                break;
            }
            if is_last {
                tried.insert(number);
            }
        }
        for number in files {
            let Some(aside) = self.files.get_mut(number).and_then(|file| file.aside.as_mut()) else {
                continue;
            };
            if tried.contains(number) { aside.wait(now) } else { aside.come_next(now, budget) }
        }
        stopped
    }

    /// See [`Cold::expire_unread`](dwell_store::core::Cold::expire_unread).
    pub(super) fn expire_aside(
        &mut self,
        queue: &QueueName,
        now: Now,
        rule: Rule<'_>,
        into: &mut Expired<BodyRef>,
    ) -> Result<()> {
        if self.again_ms.is_none() {
            return Ok(());
        }
        let mut budget = ExpiryBudget::new(usize::MAX);
        let meant = self.files.iter().filter(|(_, file)| file.has_aside(queue, now));
        let meant: Vec<u32> = meant.map(|(number, _)| *number).collect();
        self.try_aside(&meant, (0, 0), now, &mut budget);
        self.find_next_expiry();
        // Entries of other queues in other files wait for their turn.
        loop {
            let fresh = self.fresh_of(queue, now);
            if fresh.is_empty() {
                break;
            }
            budget = ExpiryBudget { failures: budget.failures, ..ExpiryBudget::new(usize::MAX) };
            self.look_at(fresh, now, &mut budget, rule, into);
        }
        let Some(file) = self.files.values().find(|file| file.has_aside(queue, now)) else { return Ok(()) };
        let reason = file.aside.as_ref().map_or("", |aside| &*aside.reason);
        Err(Error::Unavailable {
            reason: format!("messages of queue '{queue}' have expired that cannot be read: {reason}").into(),
        })
    }

    /// Looks at the files with expiries that are due and were not looked at; returns whether that was all.
    fn look_at_fresh(
        &mut self,
        now: Now,
        budget: &mut ExpiryBudget,
        rule: Rule<'_>,
        into: &mut Expired<BodyRef>,
    ) -> bool {
        let is_fresh = |file: &ColdTable| file.next_expiry.is_some_and(|next| next <= now.wall);
        let fresh = self.files.iter().filter(|(_, file)| is_fresh(file)).map(|(number, _)| *number);
        self.look_at(fresh.collect(), now, budget, rule, into);
        self.next_expiry.is_none_or(|next| next > now.wall)
    }

    /// Looks at these files.
    fn look_at(
        &mut self,
        files: BTreeSet<u32>,
        now: Now,
        budget: &mut ExpiryBudget,
        rule: Rule<'_>,
        into: &mut Expired<BodyRef>,
    ) {
        for number in files {
            if budget.is_empty() {
                break;
            }
            let file = self.files.get_mut(&number).expect("it was just there");
            let Fates { mut died, going } = file.expire(now, budget, rule);
            self.let_go(number, &going, &mut died, into);
            for (section, count) in died {
                let queue = self.files[&number].file.sections()[section].queue.clone();
                self.have_died(&queue, number, section);
                into.died.push((queue, count));
            }
        }
        self.find_next_expiry();
    }

    /// Hands over entries of a file that are to be gone. Those that cannot be read die.
    fn let_go(
        &mut self,
        number: u32,
        going: &[u32],
        died: &mut BTreeMap<usize, u64>,
        into: &mut Expired<BodyRef>,
    ) {
        if going.is_empty() {
            return;
        }
        let mut spots: Vec<EntryRef> =
            going.iter().map(|ordinal| EntryRef { file: number, ordinal: *ordinal }).collect();
        spots.sort_unstable();
        let handed = self.handed;
        match self.read_all(&spots) {
            Ok(found) => self.hand_over(found, &mut into.gone),
            // The readable ones are handed over all the same.
            Err(_) => {
                for spot in spots {
                    if let Ok(found) = self.read_all(&[spot]) {
                        self.hand_over(found, &mut into.gone);
                        continue;
                    }
                    let file = self.files.get_mut(&number).expect("it was just there");
                    if let Some(section) = file.die(spot.ordinal) {
                        *died.entry(section).or_default() += 1;
                        into.died_unread = true;
                    }
                }
            }
        }
        // They do not become resident.
        self.handed = handed;
    }

    /// Whether messages of this queue may have expired by now that were not processed, apart from those set aside.
    pub(super) fn has_fresh_in(&self, queue: &QueueName, now: Now) -> bool {
        self.next_expiry.is_some_and(|next| next <= now.wall) && self.fresh_lanes(queue, now).next().is_some()
    }

    /// The files in which a queue has such messages.
    fn fresh_of(&self, queue: &QueueName, now: Now) -> BTreeSet<u32> {
        self.fresh_lanes(queue, now).map(|at| at.file).collect()
    }

    fn fresh_lanes(&self, queue: &QueueName, now: Now) -> impl Iterator<Item = &SectionRef> {
        let sections = self.by_queue.get(queue).map_or(&[][..], |queued| queued.sections.as_slice());
        sections.iter().filter(move |at| self.files[&at.file].has_fresh_in(at.section as usize, now))
    }

    /// Finds the next expiry and the next retry of the current files.
    pub(super) fn find_next_expiry(&mut self) {
        self.next_expiry = self.files.values().filter_map(|file| file.next_expiry).min();
        let aside = self.files.values().filter_map(|file| file.aside.as_ref());
        self.again_ms = aside.map(|aside| aside.again_ms).min();
    }

    /// When the next cold message expires that was not processed, apart from those that cannot be read.
    pub(crate) fn next_expiry(&self) -> Option<Timestamp> {
        self.next_expiry
    }
}
