//! Many dead messages at a time, brought back or removed: the oldest first, a slice at a time.
//!
//! What becomes of each message is recorded singly, so a sweep needs nothing of a replay: whatever of it was recorded is
//! so, and a crash leaves the rest dead. Between two slices others are served, and whoever owns the core may have
//! memory made free; no slice is larger because more are dead.
//!
//! # Ground rules
//! 1. A slice goes on behind the message that the one before it looked at last, by (death, id). A message that is refused
//!    stays dead and is not looked at again.
//! 2. Every message that was dead when the sweep began, and is when its turn comes, is looked at. What has died since is
//!    not meant. A message in memory knows between which sweeps it died; where it leaves memory while a sweep goes on that has to
//!    know, that is [kept](super::late). Where a message expired while it was cold, its expiry says it: it lies between when two
//!    sweeps began. What had expired when the clock was stepped back before a sweep began was dead then; the file of a message
//!    knows the latest time that this was so, and not whether it was before the file was there.
//! 3. A sweep ends: when it has looked at as many of the oldest as it was asked for, or none is left of those that were dead when it
//!    began. Those that are gone otherwise before it comes to them are [counted](super::under_way): it passes over what has
//!    died since, however much, no longer than it takes to come to the last one that it means.
//! 4. No sweep keeps an older one from going on. What [`Cold`](super::Cold) reads takes several calls, and is kept between them
//!    for one position at a time: that of the oldest sweep under way, and beside it one for all others.

use std::ops::Bound;
use std::sync::Arc;

use dwell_model::{Command, MessageId, Now, Number, QueueName, Timestamp};

use super::cold::{Died, HandedOver, Reader};
use super::deaths::Discarded;
use super::entry::{Place, Rare};
use super::{Core, Durability, Log, StoredBody};
use crate::{Error, Result, Selection, Swept};

/// What is done to each message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deed {
    /// It is due then.
    Revive(Timestamp),
    Discard,
}

/// A revive or a discard that goes on.
#[derive(Debug)]
pub struct Sweep {
    queue: QueueName,
    deed: Deed,
    /// Where it goes on: behind this message.
    after: Option<Died>,
    /// As whom it has read cold messages last, if it has looked for anything yet.
    read_as: Option<Reader>,
    /// Sweeps are numbered in the order in which they begin.
    number: u64,
    /// So many messages are asked for,
    asked: u64,
    /// of so many that were dead when it began, and whose time was not over when their turn came.
    dead: u64,
    /// It goes on for as long as this is there.
    _under_way: Arc<()>,
    /// At so many it has looked.
    looked: u64,
    swept: Swept,
}

/// How far a revive or a discard is.
#[derive(Debug)]
pub enum Sweeping {
    /// It is over.
    Done(Swept),
    /// [`Core::go_on`] does more of it.
    Unfinished(Box<Sweep>),
}

impl Sweep {
    /// The queue that it goes through.
    pub fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// Whether it brings messages back.
    pub fn revives(&self) -> bool {
        matches!(self.deed, Deed::Revive(_))
    }

    /// So many messages are meant.
    fn meant(&self) -> u64 {
        self.asked.min(self.dead)
    }

    /// What its caller is told if it ends before its time, for this reason.
    pub fn interrupted(&self, why: Error) -> Error {
        if self.swept.done == 0 {
            return why;
        }
        let done = match self.deed {
            Deed::Revive(_) => "revived",
            Deed::Discard => "discarded",
        };
        let reason =
            format!("{} of {} dead messages were {done}, and then: {why}", self.swept.done, self.meant());
        Error::OutcomeUnknown { reason: reason.into(), needs_reopen: why.needs_reopen() }
    }
}

impl<B: StoredBody> Core<B> {
    /// Begins a sweep of some of a queue's dead messages, and does the first slice of it.
    pub(super) fn begin_sweep(
        &mut self,
        queue: u32,
        which: &Selection,
        deed: Deed,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Sweeping> {
        // Those that are over are forgotten.
        self.oldest_sweep();
        let found = self.queues.get(queue);
        let dead = found.dead();
        let asked = match which {
            Selection::Oldest(count) => *count,
            Selection::All => u64::MAX,
            Selection::Ids(_) => unreachable!("those that are named are looked up by their ids"),
        };
        self.sweeps += 1;
        let stepped = log.cold().map_or(Timestamp::MIN, |cold| cold.most_ripe());
        let under_way = self.under_way.begin(&found.name, self.sweeps, now.wall, stepped);
        let sweep = Box::new(Sweep {
            queue: found.name.clone(),
            deed,
            after: None,
            read_as: None,
            number: self.sweeps,
            asked,
            dead,
            _under_way: under_way,
            looked: 0,
            swept: Swept::default(),
        });
        self.sweep_slice(queue, sweep, now, log)
    }

    /// Does some more of a revive or a discard.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if dead messages cannot be read, or [`Error::OutcomeUnknown`], where some had been swept by
    /// then: it is over.
    pub fn go_on(&mut self, sweep: Box<Sweep>, now: Now, log: &mut impl Log<B>) -> Result<Sweeping> {
        self.begin(now, log);
        match self.touched(&sweep.queue, now, log) {
            Some(queue) => self.sweep_slice(queue, sweep, now, log),
            None => Ok(Sweeping::Done(sweep.swept)),
        }
    }

    /// Does all the rest of a revive or a discard, for who has nothing to do in between.
    ///
    /// # Errors
    /// As for [`Core::go_on`].
    pub fn finish(&mut self, mut sweeping: Sweeping, now: Now, log: &mut impl Log<B>) -> Result<Swept> {
        loop {
            match sweeping {
                Sweeping::Done(swept) => return Ok(swept),
                Sweeping::Unfinished(sweep) => sweeping = self.go_on(sweep, now, log)?,
            }
        }
    }

    fn sweep_slice(
        &mut self,
        queue: u32,
        mut sweep: Box<Sweep>,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Sweeping> {
        if self.has_seen_all(&sweep) {
            self.queues.remove_if_bare(queue);
            return Ok(Sweeping::Done(sweep.swept));
        }
        let left = usize::try_from(sweep.meant() - sweep.looked).unwrap_or(usize::MAX);
        let is_oldest = self.oldest_sweep() == Some(sweep.number);
        let reader = if is_oldest { Reader::Sweep } else { Reader::Younger };
        // Who reads as another than before may come to what others have read, before it began.
        let read_as = sweep.read_as.replace(reader);
        let (is_new, anew) = (read_as.is_none(), read_as != Some(reader));
        // A later slice is a whole one, however little is left: what is missing may be gone, and all that died since lie
        // before the end.
        let most = if is_new { left.min(self.config.swept_a_call) } else { self.config.swept_a_call };
        let handed_over = match self.page_in_dead(queue, reader, sweep.after, anew, most, log) {
            Ok(handed_over) => handed_over,
            Err(error) => return Err(sweep.interrupted(error)),
        };
        let slice = self.oldest(queue, &mut sweep.after, handed_over, most);
        self.under_way.goes_on(&sweep.queue, sweep.number, sweep.after);
        let is_last = slice.len() < most && handed_over == HandedOver::All;
        for ((_, id), slot) in slice {
            if sweep.looked >= sweep.meant() {
                break;
            }
            // One before it may have let it go: a message that expires when it is looked at dies, and its queue keeps so many.
            let entry = self.entries.find(slot).filter(|entry| entry.id == id && entry.place == Place::Dead);
            let Some(entry) = entry else { continue };
            if entry.has_died_since(sweep.number) {
                continue;
            }
            if self.is_past_retention(slot, now) {
                sweep.dead = sweep.dead.saturating_sub(1);
                self.discard_dead(slot, Discarded::Ttl, log);
                continue;
            }
            sweep.looked += 1;
            let swept = self.sweep_one(slot, sweep.deed, now, log);
            sweep.swept.count(id, swept);
        }
        if is_last || self.has_seen_all(&sweep) {
            self.queues.remove_if_bare(queue);
            return Ok(Sweeping::Done(sweep.swept));
        }
        Ok(Sweeping::Unfinished(sweep))
    }

    /// Whether nothing is left to be looked at: all that it means was, or what was not is gone.
    fn has_seen_all(&mut self, sweep: &Sweep) -> bool {
        let gone = self.under_way.gone(&sweep.queue, sweep.number);
        sweep.looked >= sweep.meant() || sweep.looked.saturating_add(gone) >= sweep.dead
    }

    /// A message is about to stand elsewhere, or to go: if it is dead, sweeps that mean it do not come to it.
    pub(super) fn note_went(&mut self, slot: u32) {
        if self.under_way.is_empty() {
            return;
        }
        let entry = self.entries.get(slot);
        if let (Place::Dead, Some(Rare { death: Some(death), died_in, .. })) =
            (entry.place, entry.rare.as_deref())
        {
            self.under_way.went(&self.queues.get(entry.queue).name, (death.at, entry.id), *died_in);
        }
    }

    /// The number of the oldest sweep that may go on.
    pub(super) fn oldest_sweep(&mut self) -> Option<u64> {
        let oldest = self.under_way.oldest();
        self.late.forget_before(oldest);
        oldest
    }

    /// So many bytes are kept of messages that have died since a sweep began that goes on, and have left memory.
    pub fn late_memory(&self) -> usize {
        self.late.memory()
    }

    /// Cold messages of these queues that had expired lie among those from now on that were dead when they were written. Each had
    /// this number and expired then; of its file the clock was stepped back from `ripe` at the latest.
    pub fn moved_to_dead<'a>(
        &mut self,
        moved: impl IntoIterator<Item = (&'a QueueName, Number, Timestamp, Timestamp)>,
    ) {
        if self.oldest_sweep().is_none() {
            return;
        }
        for (queue, number, expires, ripe) in moved {
            self.note_late(number, self.under_way.last_before(queue, expires, ripe));
        }
    }

    /// A message has left memory, or lies elsewhere outside of it, that has died since this sweep began and before the next one; 0
    /// if none had begun that goes on.
    pub(super) fn note_late(&mut self, number: Number, sweep: u64) {
        if sweep > 0 {
            // What was known before is right.
            let sweep = self.late.take(number).unwrap_or(sweep);
            self.late.note(number, sweep);
        }
    }

    /// Revives or discards one message.
    pub(super) fn sweep_one(&mut self, slot: u32, deed: Deed, now: Now, log: &mut impl Log<B>) -> Result<()> {
        let (command, due) = match deed {
            Deed::Revive(due) => {
                self.check_key(slot, now, log)?;
                (Command::Revive(due), due)
            }
            Deed::Discard => (Command::Discard, now.wall),
        };
        let queue = self.entries.get(slot).queue;
        let state = self.change(slot, &command, now, Durability::Synced, log);
        if let (Deed::Discard, Ok(_)) = (deed, &state) {
            self.deaths.discarded(&self.queues.get(queue).name, Discarded::Asked, 1);
        }
        if state.map_err(|refusal| self.refused_instant(slot, due, refusal))?.is_some() {
            self.note_ready(slot, now.wall);
        }
        Ok(())
    }

    /// The next `most` dead messages of a queue behind `after`, as far as none of those before them is cold; `after` is
    /// moved behind them.
    pub(super) fn oldest(
        &self,
        queue: u32,
        after: &mut Option<Died>,
        handed_over: HandedOver,
        most: usize,
    ) -> Vec<(Died, u32)> {
        let to = match handed_over {
            HandedOver::All => Bound::Unbounded,
            HandedOver::To(Some(to)) if *after < Some(to) => Bound::Included(to),
            HandedOver::To(_) => return Vec::new(),
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

    /// Whether the key of a dead message, if it has one, is free. What had it may have expired and die by this, and the queue may
    /// keep so many that the message goes for it.
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

impl Swept {
    pub(super) fn count(&mut self, id: MessageId, outcome: Result<()>) {
        match outcome {
            Ok(()) => self.done += 1,
            Err(refusal) => {
                self.refused_in_all += 1;
                if self.refused.len() < Swept::MAX_REFUSED {
                    self.refused.push((id, refusal));
                }
            }
        }
    }
}
