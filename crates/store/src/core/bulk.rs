//! Sweeps: reviving or discarding many dead messages, the oldest first, in slices.
//!
//! The result for each message is recorded singly, so a sweep needs no support from a replay: the recorded
//! part is done, and after a crash the rest is still dead. Between two slices other calls are served, and the
//! owner of the core may have memory freed; a slice is no larger if more messages are dead.
//!
//! # Ground rules
//! 1. A slice continues after the last message of the slice before it, by (death, id). A message that is
//!    refused stays dead and is not looked at again.
//! 2. A sweep includes every message that was dead when it began and is dead when its turn comes, and none
//!    that died since. A message in memory knows between which sweeps it died; where it leaves memory during
//!    a sweep that has to know, that is [kept](super::late_deaths). Where a message expired while it was cold, its
//!    expiry decides: it lies between the beginnings of two sweeps. Messages that had expired when the clock
//!    stepped back before a sweep began were dead then; a message's file stores the latest time of such a
//!    step, but not whether the file existed before the step.
//! 3. A sweep ends when it has looked at as many of the oldest as it was asked for, or none is left of those
//!    that were dead when it began. Those removed otherwise before it reaches them are
//!    [counted](super::bulk_in_progress): it skips messages that have died since, however many, only until it has
//!    reached the last one that it includes.
//! 4. No sweep blocks an older one. Reading by [`Cold`](super::Cold) takes several calls, and is kept between
//!    them for one position at a time: that of the oldest sweep in progress, and separately one for all
//!    others.

use std::ops::Bound;
use std::sync::Arc;

use dwell_model::{Command, MessageId, Now, Number, QueueName, Timestamp};

use super::cold::{DeadProgress, DeadReader, Died};
use super::deaths::Discarded;
use super::entry::{Position, RareFields};
use super::{Core, Durability, Log, StoredBody};
use crate::{BulkOutcome, Error, Result, Selection};

/// The action for each message.
#[derive(Clone, Copy, Debug)]
pub(super) enum BulkAction {
    /// Revive it, with this due instant.
    Revive(Timestamp),
    Discard,
}

/// A revive or a discard in progress.
#[derive(Debug)]
pub struct BulkOperation {
    queue: QueueName,
    action: BulkAction,
    /// The position: the last message that was looked at.
    after: Option<Died>,
    /// The reader under which it last read cold messages, if it has read any yet.
    read_as: Option<DeadReader>,
    /// Its number: sweeps are numbered in the order in which they begin.
    number: u64,
    /// The number of messages asked for,
    asked: u64,
    /// and the number that were dead when it began, without those found past their retention.
    dead: u64,
    /// The sweep is in progress for as long as this exists.
    _under_way: Arc<()>,
    /// The number of messages that it has looked at.
    looked: u64,
    swept: BulkOutcome,
}

/// The progress of a revive or a discard.
#[derive(Debug)]
pub enum BulkProgress {
    /// It is complete.
    Done(BulkOutcome),
    /// [`Core::go_on`] continues it.
    Unfinished(Box<BulkOperation>),
}

impl BulkOperation {
    /// The queue that it sweeps.
    pub fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// Whether it revives messages.
    pub fn revives(&self) -> bool {
        matches!(self.action, BulkAction::Revive(_))
    }

    /// The number of messages to look at.
    fn meant(&self) -> u64 {
        self.asked.min(self.dead)
    }

    /// The error for its caller if it ends early for this reason.
    pub fn interrupted(&self, why: Error) -> Error {
        if self.swept.done == 0 {
            return why;
        }
        let done = match self.action {
            BulkAction::Revive(_) => "revived",
            BulkAction::Discard => "discarded",
        };
        let reason =
            format!("{} of {} dead messages were {done}, and then: {why}", self.swept.done, self.meant());
        Error::OutcomeUnknown { reason: reason.into(), needs_reopen: why.needs_reopen() }
    }
}

impl<B: StoredBody> Core<B> {
    /// Begins a sweep of some of a queue's dead messages, and does the first slice of it.
    pub(super) fn begin_bulk(
        &mut self,
        queue: u32,
        which: &Selection,
        action: BulkAction,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<BulkProgress> {
        // Forgets sweeps that have ended.
        self.oldest_bulk();
        let found = self.queues.get(queue);
        let dead = found.dead();
        let asked = match which {
            Selection::Oldest(count) => *count,
            Selection::All => u64::MAX,
            Selection::Ids(_) => unreachable!("those that are named are looked up by their ids"),
        };
        self.sweeps += 1;
        let stepped = log.cold().map_or(Timestamp::MIN, |cold| cold.promoted_to());
        let bulk_in_progress = self.bulk_in_progress.begin(&found.name, self.sweeps, now.wall, stepped);
        let bulk = Box::new(BulkOperation {
            queue: found.name.clone(),
            action,
            after: None,
            read_as: None,
            number: self.sweeps,
            asked,
            dead,
            _under_way: bulk_in_progress,
            looked: 0,
            swept: BulkOutcome::default(),
        });
        self.sweep_slice(queue, bulk, now, log)
    }

    /// Continues a revive or a discard by a slice.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if dead messages cannot be read, or [`Error::OutcomeUnknown`] if some had been
    /// swept by then: the sweep has ended.
    pub fn go_on(
        &mut self,
        bulk: Box<BulkOperation>,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<BulkProgress> {
        self.begin(now, log);
        match self.touched(&bulk.queue, now, log) {
            Some(queue) => self.sweep_slice(queue, bulk, now, log),
            None => Ok(BulkProgress::Done(bulk.swept)),
        }
    }

    /// Completes a revive or a discard, for callers with nothing to do in between.
    ///
    /// # Errors
    /// As for [`Core::go_on`].
    pub fn finish(
        &mut self,
        mut progress: BulkProgress,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<BulkOutcome> {
        loop {
            match progress {
                BulkProgress::Done(swept) => return Ok(swept),
                BulkProgress::Unfinished(bulk) => progress = self.go_on(bulk, now, log)?,
            }
        }
    }

    fn sweep_slice(
        &mut self,
        queue: u32,
        mut bulk: Box<BulkOperation>,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<BulkProgress> {
        if self.has_seen_all(&bulk) {
            self.queues.remove_if_bare(queue);
            return Ok(BulkProgress::Done(bulk.swept));
        }
        let left = usize::try_from(bulk.meant() - bulk.looked).unwrap_or(usize::MAX);
        let is_oldest = self.oldest_bulk() == Some(bulk.number);
        let reader = if is_oldest { DeadReader::Sweep } else { DeadReader::Younger };
        // After a change of the reader, it may meet what others had read under that one, before it began.
        let read_as = bulk.read_as.replace(reader);
        let (is_new, anew) = (read_as.is_none(), read_as != Some(reader));
        // A later slice is a full one, however little is left: the missing messages may have been removed,
        // and all those that died since come before the end.
        let most = if is_new { left.min(self.config.bulk_per_call) } else { self.config.bulk_per_call };
        let handed_over = match self.page_in_dead(queue, reader, bulk.after, anew, most, log) {
            Ok(handed_over) => handed_over,
            Err(error) => return Err(bulk.interrupted(error)),
        };
        let slice = self.oldest(queue, &mut bulk.after, handed_over, most);
        self.bulk_in_progress.goes_on(&bulk.queue, bulk.number, bulk.after);
        let is_last = slice.len() < most && handed_over == DeadProgress::All;
        for ((_, id), slot) in slice {
            if bulk.looked >= bulk.meant() {
                break;
            }
            // Processing an earlier one may have removed it: a message that expires when it is looked at
            // dies, and the queue is trimmed to its limit.
            let entry =
                self.entries.find(slot).filter(|entry| entry.id == id && entry.place == Position::Dead);
            let Some(entry) = entry else { continue };
            if entry.has_died_since(bulk.number) {
                continue;
            }
            if self.is_past_retention(slot, now) {
                bulk.dead = bulk.dead.saturating_sub(1);
                self.discard_dead(slot, Discarded::Ttl, log);
                continue;
            }
            bulk.looked += 1;
            let swept = self.bulk_one(slot, bulk.action, now, log);
            bulk.swept.count(id, swept);
        }
        if is_last || self.has_seen_all(&bulk) {
            self.queues.remove_if_bare(queue);
            return Ok(BulkProgress::Done(bulk.swept));
        }
        Ok(BulkProgress::Unfinished(bulk))
    }

    /// Whether nothing is left to look at: each message that it includes was looked at or removed otherwise.
    fn has_seen_all(&mut self, bulk: &BulkOperation) -> bool {
        let gone = self.bulk_in_progress.gone(&bulk.queue, bulk.number);
        bulk.looked >= bulk.meant() || bulk.looked.saturating_add(gone) >= bulk.dead
    }

    /// Notes that a message is about to change its standing or to be removed: if it is dead, sweeps that
    /// include it will not find it.
    pub(super) fn note_leaves_dead(&mut self, slot: u32) {
        if self.bulk_in_progress.is_empty() {
            return;
        }
        let entry = self.entries.get(slot);
        if let (Position::Dead, Some(RareFields { death: Some(death), died_in, .. })) =
            (entry.place, entry.rare.as_deref())
        {
            self.bulk_in_progress.went(&self.queues.get(entry.queue).name, (death.at, entry.id), *died_in);
        }
    }

    /// The number of the oldest sweep in progress.
    pub(super) fn oldest_bulk(&mut self) -> Option<u64> {
        let oldest = self.bulk_in_progress.oldest();
        self.late.forget_before(oldest);
        oldest
    }

    /// The memory, in bytes, of what is kept about messages that have died since a sweep in progress began
    /// and have left memory.
    pub fn late_deaths_memory(&self) -> usize {
        self.late.memory()
    }

    /// Notes that expired cold messages of these queues are now stored among messages that were dead when
    /// they were written. Each item is queue, number, expiry, and `ready_until`: the latest time from which the
    /// clock stepped back while its file existed.
    pub fn moved_to_dead<'a>(
        &mut self,
        moved: impl IntoIterator<Item = (&'a QueueName, Number, Timestamp, Timestamp)>,
    ) {
        if self.oldest_bulk().is_none() {
            return;
        }
        for (queue, number, expires, ready_until) in moved {
            self.note_late_death(number, self.bulk_in_progress.last_before(queue, expires, ready_until));
        }
    }

    /// Notes that a message has left memory, or has moved outside of it, that died after this sweep began and
    /// before the next one; 0 if none in progress had begun.
    pub(super) fn note_late_death(&mut self, number: Number, bulk: u64) {
        if bulk > 0 {
            // An earlier note is correct.
            let bulk = self.late.take(number).unwrap_or(bulk);
            self.late.note(number, bulk);
        }
    }

    /// Revives or discards one message.
    pub(super) fn bulk_one(
        &mut self,
        slot: u32,
        action: BulkAction,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<()> {
        let (command, due) = match action {
            BulkAction::Revive(due) => {
                self.check_key(slot, now, log)?;
                (Command::Revive(due), due)
            }
            BulkAction::Discard => (Command::Discard, now.wall),
        };
        let queue = self.entries.get(slot).queue;
        let state = self.change(slot, &command, now, Durability::Synced, log);
        if let (BulkAction::Discard, Ok(_)) = (action, &state) {
            self.deaths.discarded(&self.queues.get(queue).name, Discarded::Asked, 1);
        }
        if state.map_err(|refusal| self.refused_instant(slot, due, refusal))?.is_some() {
            self.note_ready(slot, now.wall);
        }
        Ok(())
    }

    /// The next `most` dead messages of a queue after `after`, as far as none of those before them is cold;
    /// `after` is moved past them.
    pub(super) fn oldest(
        &self,
        queue: u32,
        after: &mut Option<Died>,
        handed_over: DeadProgress,
        most: usize,
    ) -> Vec<(Died, u32)> {
        let to = match handed_over {
            DeadProgress::All => Bound::Unbounded,
            DeadProgress::To(Some(to)) if *after < Some(to) => Bound::Included(to),
            DeadProgress::To(_) => return Vec::new(),
        };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let by_death = &self.queues.get(queue).dead.by_death;
        let slice: Vec<_> =
            by_death.range((from, to)).take(most).map(|(died, slot)| (*died, *slot)).collect();
        *after = match (slice.last(), to) {
            (_, Bound::Included(to)) if slice.len() < most => Some(to),
            (last, _) => last.map(|(died, _)| *died).or(*after),
        };
        slice
    }

    /// Checks that the key of a dead message, if it has one, is free. The key's owner may have expired and
    /// die by this, and the queue may be trimmed by discarding this message.
    fn check_key(&mut self, slot: u32, now: Now, log: &mut impl Log<B>) -> Result<()> {
        let entry = self.entries.get(slot);
        let (Some(key), queue, id) = (entry.key().cloned(), entry.queue, entry.id) else { return Ok(()) };
        match self.find_key(queue, &key, now, log)? {
            Some(owner) if owner != slot => Err(Error::KeyTaken { id: self.entries.get(owner).id }),
            _ if self.resident_id(queue, id) != Some(slot) => {
                Err(Error::MessageNotFound { queue: self.queues.get(queue).name.clone() })
            }
            _ => Ok(()),
        }
    }
}

impl BulkOutcome {
    pub(super) fn count(&mut self, id: MessageId, outcome: Result<()>) {
        match outcome {
            Ok(()) => self.done += 1,
            Err(refusal) => {
                self.refused_in_all += 1;
                if self.refused.len() < BulkOutcome::MAX_REFUSED {
                    self.refused.push((id, refusal));
                }
            }
        }
    }
}
