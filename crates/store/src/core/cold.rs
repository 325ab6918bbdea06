//! Messages that are not in memory: counted here, kept by the owner of the core.
//!
//! A message is *resident* when it is in this core, else *cold*. The owner of the core may keep copies of
//! messages elsewhere, and gives the core a [`Cold`] through its [`Log`]. The core asks it for each message
//! that a call touches, at that moment, and so answers as if everything were resident.
//!
//! Ground rules:
//! 1. A message is resident or cold, never both: a message that [`Cold`] hands over is no longer cold.
//! 2. A resident message that is equal to its copy is *clean*, and may be [evicted](Core::evict) without a
//!    record. Any change makes it *changed*, until it is [captured](Core::snapshot_some) and has a new copy.
//! 3. A leased message is never cold.
//! 4. For its cold messages, each queue knows their count, the first of those that are due, and when the next
//!    one is due. The latter two are lower bounds, made exact when they are reached.
//! 5. A cold message that expires dies in place: nothing is recorded, handed over or read for it, and it
//!    needs no memory here. Its copy says when it expires and the log says what time it is, so a replay
//!    reaches the same result. [`catch_up`](Core::catch_up) processes expiries in slices. Until it has
//!    finished, expired messages may count as pending. Every call whose result would differ processes the
//!    rest first, or [gives up](Core::gave_up) and has to be repeated. Where the queue drops what expires,
//!    the message is removed instead, and that is recorded.
//! 6. A capture is of one moment, the call of [`begin_snapshot`](Core::begin_snapshot), and is made in slices:
//!    a message that changes before its slice is captured first, and then changed.

use std::num::NonZeroU32;

use dwell_model::{
    Key, Message, MessageId, Now, Number, OnExpiry, QueueName, Standing, State, StateKind, Timestamp,
};

use super::deaths::Discarded;
use super::entry::{ChangeMark, Entry, Position, RareFields};
use super::queue::ReadyKey;
use super::snapshot_entry::{QueueNames, SnapshotEntry};
use super::{Core, Durability, Log, Record, StoredBody};
use crate::{Forecast, Result, StateCounts};

/// The location of a copy of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CopyAt {
    /// The number of the file.
    pub file: NonZeroU32,
    /// The index of the message in the file, from 0.
    pub ordinal: u32,
}

/// A copy of a message. It is never leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColdMessage<B> {
    /// The message.
    pub message: Message<B>,
    /// When it was last made ready by anything but its instant; [`Timestamp::MIN`] if never.
    pub ready_since: Timestamp,
    /// The location of this copy.
    pub copy: CopyAt,
    /// If it expired while it was cold: the last time that it was [promoted](Cold::promote) to.
    pub over_by: Option<Timestamp>,
}

impl<B> ColdMessage<B> {
    /// Whether its expiry has passed and it is not dead yet.
    fn expires_by(&self, now: Now) -> bool {
        let Standing { state, expires, .. } = &self.message.standing;
        !matches!(state, State::Dead(_)) && expires.is_some_and(|expires| expires <= now.wall)
    }
}

/// The next cold messages of a queue to be handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ColdHead {
    /// Priority, due and id of the first of those that are due.
    pub first: Option<(u32, Timestamp, MessageId)>,
    /// The next due instant among messages that would be handed out before `first`: all that are not due
    /// where there is no `first`, else those before it by (priority, due, id). An earlier instant is allowed,
    /// if it is after `ready_until`.
    pub next: Option<Timestamp>,
}

/// How many cold messages a queue has, by state; none is leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ColdCounts {
    /// By state.
    pub counts: StateCounts,
    /// The earliest due instant of the scheduled ones.
    pub next_due: Option<Timestamp>,
}

/// The store of cold messages. A message that it hands over is resident from then on.
///
/// A cold message is scheduled until its instant lies at or before `ready_until`, or before any wall time that it was
/// [promoted](Cold::promote) with; then it is ready.
///
/// # Errors
/// Each call that reads fails with [`Error::Unavailable`](crate::Error::Unavailable) if it cannot; it has
/// handed over nothing then.
pub trait Cold<B> {
    /// Hands over the message with this number, if it is cold.
    fn by_number(&mut self, number: Number) -> Result<Option<ColdMessage<B>>>;

    /// Hands over the message with this number, if it is cold. If there is one, it has this id and is in this
    /// queue.
    fn by_id(
        &mut self,
        _queue: &QueueName,
        _id: MessageId,
        number: Number,
    ) -> Result<Option<ColdMessage<B>>> {
        self.by_number(number)
    }

    /// Hands over the message of the queue that has this key, if it is cold and not dead.
    fn by_key(&mut self, queue: &QueueName, key: &Key) -> Result<Option<ColdMessage<B>>>;

    /// Hands over the first of a queue's ready messages, by (priority, due, id): at least one if there are
    /// any.
    fn due(
        &mut self,
        queue: &QueueName,
        ready_until: Timestamp,
        into: &mut Vec<ColdMessage<B>>,
    ) -> Result<()>;

    /// The first of a queue's cold messages to be handed out, and the next due instant.
    fn head(&mut self, queue: &QueueName, ready_until: Timestamp) -> Result<ColdHead>;

    /// Searches for the youngest dead message of the queue that had this key, did not give it up, is cold,
    /// and died after `after`. Looks at about `most` messages, starting at the position of `search`, and
    /// returns whether the search is complete; if so, the youngest is handed over. Messages that have died
    /// since the search began may be missing.
    fn dead_by_key(
        &mut self,
        queue: &QueueName,
        key: &Key,
        after: Option<Died>,
        most: usize,
        search: &mut DeadSearch,
        into: &mut Vec<ColdMessage<B>>,
    ) -> Result<bool>;

    /// Processes the messages of all queues that expire by now, as `expiring` says for their queues. Those
    /// that had expired when they were [promoted](Cold::promote) die; a message that dies has its expiry as the
    /// instant of its death. Looks at about `most` expiries and returns whether there are no more; the next
    /// call continues from there. It costs next to nothing where there are none. Messages that cannot be read
    /// are set aside and retried from time to time, and do not block the others. The result is added to
    /// `into`.
    fn expire(
        &mut self,
        now: Now,
        most: usize,
        expiring: &dyn Fn(&QueueName) -> Expiring,
        into: &mut Expired<B>,
    ) -> bool;

    /// Whether messages of this queue may have expired by now that [`expire`](Cold::expire) has not
    /// processed, except those set aside.
    fn is_behind_in(&self, queue: &QueueName, now: Now) -> bool;

    /// Retries the expiries that were set aside, if any of them may be of this queue. Fails if some still
    /// cannot be read. Other messages that expire are handled as by [`expire`](Cold::expire).
    fn expire_unread(
        &mut self,
        queue: &QueueName,
        now: Now,
        expiring: &dyn Fn(&QueueName) -> Expiring,
        into: &mut Expired<B>,
    ) -> Result<()>;

    /// Hands over the first `count` messages of a queue in a state after `after`, by (due, id).
    fn page(
        &mut self,
        queue: &QueueName,
        state: StateKind,
        ready_until: Timestamp,
        after: Option<(Timestamp, MessageId)>,
        count: usize,
        into: &mut Vec<ColdMessage<B>>,
    ) -> Result<()>;

    /// Hands over dead messages of a queue that died after `after`, the oldest first: `most` at most, and
    /// fewer or none where much has to be read; the next call continues. Returns the position up to which
    /// none are left. Of those that have expired since `anew` was last passed, some may be missing.
    fn dead(
        &mut self,
        queue: &QueueName,
        reader: DeadReader,
        after: Option<Died>,
        anew: bool,
        most: usize,
        into: &mut Vec<ColdMessage<B>>,
    ) -> Result<DeadProgress>;

    /// [`DeadReader::Retention`] needs no messages that died after this one: those known to have died later need
    /// not be read for it.
    fn retain_until(&mut self, _until: Option<Died>) {}

    /// How many dead messages of this queue were passed over for [`DeadReader::Retention`], which is not held up by what cannot be read: at
    /// least all that were, and `None` if none was. They are looked for again after [`try_passed_over`](Cold::try_passed_over).
    fn passed_over(&self, _queue: &QueueName) -> Option<u64> {
        None
    }

    /// [`DeadReader::Retention`] begins anew in this queue when it is asked next, and tries what was passed over.
    fn try_passed_over(&mut self, _queue: &QueueName) {}

    /// How many are cold.
    fn counts(&mut self, queue: &QueueName, ready_until: Timestamp) -> Result<ColdCounts>;

    /// The exact number of scheduled messages, and how many of them are due by each of `edges`, which may be
    /// in any order: with an error of at most [`within`](Forecast::within), so that no message has to be
    /// read.
    fn forecast(
        &mut self,
        queue: &QueueName,
        ready_until: Timestamp,
        edges: &[Timestamp],
    ) -> Result<Forecast>;

    /// Forgets the cold messages of a queue in these states.
    fn forget(&mut self, queue: &QueueName, which: QueuePart);

    /// Makes messages that are due by `wall` ready; they stay ready if the clock steps back.
    fn promote(&mut self, wall: Timestamp);

    /// Takes back a message that it had handed over and that has not changed, and when it died, if it is
    /// dead: it may have expired since.
    fn put_back(&mut self, copy: CopyAt, died: Option<Died>);

    /// The latest wall time to which any messages here may have been [promoted](Cold::promote).
    fn promoted_to(&self) -> Timestamp;
}

/// How the cold messages of a queue that expire are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiring {
    /// They die in place.
    Die,
    /// They are handed over, and their removal is recorded.
    Go,
    /// Nothing is done: a replay has the records of those that were removed.
    Stay,
}

/// The messages that have expired.
#[derive(Clone, Debug)]
pub struct Expired<B> {
    /// The number of messages that died in place, by queue.
    pub died: Vec<(QueueName, u64)>,
    /// Messages that are handed over to be removed.
    pub gone: Vec<ColdMessage<B>>,
}

// A derived implementation would require `B: Default`.
impl<B> Default for Expired<B> {
    fn default() -> Expired<B> {
        Expired { died: Vec::new(), gone: Vec::new() }
    }
}

/// When a message died, and its id: the order in which dead messages are swept.
pub type Died = (Timestamp, MessageId);

/// The progress of a search for the youngest dead message that had a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DeadSearch {
    /// All messages with this number or a lower one have been looked at.
    pub to: Option<Number>,
    /// The youngest of those, and its number.
    pub youngest: Option<(Died, Number)>,
    /// Of those none counted that died up to this one: the youngest that was resident.
    pub after: Option<Died>,
    /// How many messages were looked at.
    pub looked_at: usize,
}

/// A reader of the dead messages of a queue in order. Each reader has its own position: a peek, which starts
/// at the first message, does not reset the position of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadReader {
    /// A peek at the oldest one.
    Peek,
    /// The oldest revive or discard in progress, or a replay of one.
    Sweep,
    /// Revives and discards that have begun while an older one is in progress.
    Younger,
    /// The check of a queue's oldest messages against its retention.
    Retention,
}

/// How far dead messages were handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadProgress {
    /// None are left after the requested position.
    All,
    /// None are left between the requested position and this one. If this one is not after the requested
    /// position, nothing is known yet.
    To(Option<Died>),
}

/// A selection of a queue's messages, by state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePart {
    /// Scheduled and ready ones.
    Pending,
    /// Dead ones.
    Dead,
}

/// What a queue knows about its cold messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ColdBounds {
    pub(super) pending: u64,
    pub(super) dead: u64,
    /// A lower bound: none of those that were due when it was found is handed out before this.
    head: Option<ReadyKey>,
    /// A lower bound: none of those that would be handed out before `head` is due before this.
    next: Option<Timestamp>,
    /// The value of the core's count of falling behind when a call last gave up on finding the first message.
    gave_up: u64,
    /// The slice in which expired messages of this queue were last made resident.
    pub(super) had_over_in: u64,
}

impl ColdBounds {
    /// A lower bound of the messages that are due at `ready_until`, if there may be any.
    pub(super) fn due(&self, ready_until: Timestamp) -> Option<ReadyKey> {
        if self.pending == 0 {
            return None;
        }
        if self.next.is_some_and(|next| next <= ready_until) {
            return Some(ReadyKey { priority: 0, due: Timestamp::MIN, id: least_id() });
        }
        self.head
    }

    /// Resets the bounds, since some messages may have become ready by anything but their instant.
    pub(super) fn look_again(&mut self) {
        self.next = Some(Timestamp::MIN);
    }

    /// A lower bound of the next due instant after `ready_until`.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.next.filter(|_| self.pending > 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending == 0 && self.dead == 0
    }
}

fn least_id() -> MessageId {
    MessageId::new(Timestamp::MIN, 0, 0, 0)
}

/// The result of a capture.
#[derive(Clone, Debug)]
pub struct Snapshot<B> {
    /// The messages that had changed.
    pub changed: Vec<SnapshotEntry<B>>,
    /// The queues of those messages.
    pub names: QueueNames,
    /// The copies of resident messages that had not changed. It may also contain some that were cold, and
    /// some twice.
    pub clean: Vec<CopyAt>,
}

/// A capture in progress.
#[derive(Debug)]
pub(super) struct SnapshotInProgress<B> {
    /// The mark of the messages that had changed.
    span: ChangeMark,
    /// The next slot to look at, and the end of the slots that existed at the beginning.
    next: u32,
    end: u32,
    snapshot: Snapshot<B>,
}

/// What has happened to a message since it was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// It has not changed: it is clean.
    Clean,
    /// It has changed.
    Changed,
    /// It was removed.
    Gone,
}

impl<B: StoredBody> Core<B> {
    /// The number of cold messages.
    pub fn cold_len(&self) -> u64 {
        self.cold
    }

    /// Whether any message of a queue is cold.
    pub fn has_cold(&self, queue: &QueueName) -> bool {
        self.queues.find(queue).is_some_and(|queue| !self.queues.get(queue).cold.is_empty())
    }

    /// The number of resident messages that have changed since their last capture, or were never captured.
    pub fn changed_len(&self) -> usize {
        self.changed
    }

    /// Declares the cold messages of a queue, before any call; `wall` is the last time at which they were
    /// looked at.
    pub fn set_cold(&mut self, queue: &QueueName, pending: u64, dead: u64) {
        if pending == 0 && dead == 0 {
            return;
        }
        let queue = self.queues.find_or_insert(queue);
        self.queues.get_mut(queue).cold =
            ColdBounds { pending, dead, next: Some(Timestamp::MIN), ..ColdBounds::default() };
        self.cold += pending + dead;
        self.look_at_retention(queue);
    }

    /// For each incarnation that put messages, the number that belongs to its counter 0. It finds a message
    /// by its id alone.
    pub fn numbering(&self) -> impl Iterator<Item = (u32, u64)> {
        self.numbering.starts()
    }

    /// Restores what [`numbering`](Core::numbering) returned before.
    pub fn set_numbering(&mut self, incarnation: u32, start: u64) {
        self.numbering.set(incarnation, start);
    }

    /// Adds a message that was leased when everything was captured and has a copy at `copy`.
    ///
    /// # Panics
    /// If it is resident.
    pub fn hold(&mut self, message: Message<B>, copy: CopyAt) {
        let slot =
            self.make_resident(ColdMessage { message, ready_since: Timestamp::MIN, copy, over_by: None });
        self.mark_changed(slot);
    }

    /// Begins to capture every message that has changed, in its present state. The captured messages count as
    /// unchanged, except those that are leased.
    ///
    /// # Panics
    /// If a capture is in progress.
    pub fn begin_snapshot(&mut self) {
        assert!(self.snapshotting.is_none(), "one capture at a time");
        let snapshot = Snapshot {
            changed: Vec::with_capacity(self.changed),
            names: QueueNames::default(),
            clean: Vec::new(),
        };
        let end = u32::try_from(self.entries.places()).expect("slots are 32-bit numbers");
        self.snapshotting = Some(Box::new(SnapshotInProgress { span: self.span, next: 0, end, snapshot }));
        self.span = self.span.next();
        self.snapshots += 1;
    }

    /// Continues the capture, looking at `most` slots. Returns everything captured, if this was the last
    /// slice.
    ///
    /// # Panics
    /// If no capture is in progress.
    pub fn snapshot_some(&mut self, most: usize) -> Option<Snapshot<B>> {
        let snapshotting = self.snapshotting.as_mut().expect("a capture was begun");
        let from = snapshotting.next;
        let to = snapshotting.end.min(from.saturating_add(u32::try_from(most).unwrap_or(u32::MAX)));
        snapshotting.next = to;
        for slot in from..to {
            if self.entries.find_mut(slot).is_some() {
                self.snapshot_before_change(slot);
            }
        }
        let is_done =
            self.snapshotting.as_ref().is_some_and(|snapshotting| snapshotting.next == snapshotting.end);
        let done = self.snapshotting.take_if(|_| is_done)?;
        Some(done.snapshot)
    }

    /// The number of messages that the capture in progress has captured so far.
    pub fn snapshot_len(&self) -> usize {
        self.snapshotting.as_ref().map_or(0, |snapshotting| snapshotting.snapshot.changed.len())
    }

    /// Captures a message that is about to change or to be removed, if it belongs to a capture in progress.
    pub(super) fn snapshot_before_change(&mut self, slot: u32) {
        if self.snapshotting.is_none() || !self.was_there_at_snapshot(slot) {
            return;
        }
        let Some(mut snapshotting) = self.snapshotting.take() else { return };
        let entry = self.entries.get(slot);
        if entry.mark == snapshotting.span {
            let snapshot = self.snapshot(slot, &mut snapshotting.snapshot.names);
            snapshotting.snapshot.changed.push(snapshot);
            let now = self.span;
            let entry = self.entries.get_mut(slot);
            if entry.place.is_leased() {
                entry.mark = now;
            } else {
                // The older copy is out of date, and the new one does not exist yet.
                (entry.mark, entry.copy) = (ChangeMark::Captured, None);
                self.changed -= 1;
            }
        } else if let (ChangeMark::Captured, Some(copy)) = (entry.mark, entry.copy) {
            snapshotting.snapshot.clean.push(copy);
        }
        self.snapshotting = Some(snapshotting);
    }

    /// A message in its present state.
    fn snapshot(&self, slot: u32, names: &mut QueueNames) -> SnapshotEntry<B> {
        let entry = self.entries.get(slot);
        let queue = self.queues.get(entry.queue);
        let is_untouched = entry.rare.is_none() && entry.attempts == 0 && entry.takes == 0;
        if !is_untouched || !entry.place.is_pending() {
            return SnapshotEntry::of(self.message(slot), entry.made_ready(), entry.copy, names);
        }
        SnapshotEntry {
            id: entry.id,
            number: entry.number,
            due: entry.due,
            created: entry.created,
            body: entry.body.clone(),
            copy: entry.copy,
            queue: names.place(&queue.name),
            priority: entry.priority,
            unusual: None,
            is_ready: entry.place == Position::Ready || entry.due <= queue.ready_until,
        }
    }

    /// Marks the captured messages as changed again, since they could not be copied.
    ///
    /// # Panics
    /// If a capture is in progress.
    pub fn undo_snapshot(&mut self) {
        assert!(self.snapshotting.is_none(), "what is being captured cannot be given up");
        let slots: Vec<u32> = self
            .entries
            .iter()
            .filter(|(_, entry)| !entry.mark.is_changed() && entry.copy.is_none())
            .map(|(slot, _)| slot)
            .collect();
        slots.into_iter().for_each(|slot| self.mark_changed(slot));
    }

    /// Sets the location of the copy of a captured message, and of its body. A copy that it had before is
    /// dropped.
    pub fn placed(&mut self, number: Number, body: B, copy: CopyAt) -> CopyOutcome {
        let Some(slot) = self.resident_number(number) else { return CopyOutcome::Gone };
        let entry = self.entries.get_mut(slot);
        entry.body = body;
        entry.copy = Some(copy);
        if entry.mark.is_changed() { CopyOutcome::Changed } else { CopyOutcome::Clean }
    }

    /// Evicts clean messages until at most `keep` are resident, or none of those looked at is clean. Looks at
    /// `most` at a time; the next call continues from there.
    pub fn evict(&mut self, keep: usize, most: usize, cold: &mut dyn Cold<B>) -> usize {
        let mut evicted = 0;
        let swept = self.oldest_bulk();
        let room = self.entries.places();
        for _ in 0..most.min(room) {
            if self.entries.len() <= keep {
                break;
            }
            self.hand = if self.hand + 1 < room as u32 { self.hand + 1 } else { 0 };
            let slot = self.hand;
            if self.entries.find_mut(slot).is_none() || self.is_unfreed(slot) {
                continue;
            }
            let entry = self.entries.get(slot);
            let (Some(copy), ChangeMark::Captured, false) = (entry.copy, entry.mark, entry.place.is_leased())
            else {
                continue;
            };
            // Notes that a sweep in progress does not include it: once it is evicted, nothing else would record that.
            // Sweeps that have ended are not considered.
            let name = &self.queues.get(entry.queue).name;
            let has_expired = entry.place.is_pending() && entry.expires().is_some_and(|at| at <= self.seen);
            if has_expired && self.settings(entry.queue).on_expiry == OnExpiry::Drop {
                // It is removed when time acts on its queue, and must not count as dead until then.
                continue;
            }
            let since = match (swept, entry.rare.as_deref()) {
                (Some(_), Some(rare)) if entry.place == Position::Dead => {
                    self.bulk_in_progress.last_to(name, rare.died_in)
                }
                // Time has not acted on it yet. It had not expired when the clock last stepped back: that
                // expires all messages.
                (Some(_), Some(RareFields { expires: Some(expires), .. }))
                    if entry.place.is_pending() && *expires <= self.seen =>
                {
                    self.bulk_in_progress.last_before(name, *expires, Timestamp::MIN)
                }
                _ => 0,
            };
            self.note_late_death(entry.number, since);
            let died = self.evict_one(slot);
            cold.put_back(copy, died);
            evicted += 1;
        }
        evicted
    }

    /// Returns when it died, if it is dead.
    fn evict_one(&mut self, slot: u32) -> Option<Died> {
        let seen = self.seen;
        let entry = self.remove(slot);
        // Time has not acted on its queue since, and need not: a cold message dies in place.
        if let (true, Some(expires)) = (entry.place.is_pending(), entry.expires().filter(|at| *at <= seen)) {
            let found = self.queues.get_mut(entry.queue);
            found.cold.dead += 1;
            self.cold += 1;
            self.deaths.expired(&found.name, 1);
            self.expect_end_of_expired(entry.queue);
            return Some((expires, entry.id));
        }
        let found = self.queues.get_mut(entry.queue);
        let view = &mut found.cold;
        let rare = entry.rare.as_deref();
        match entry.place {
            Position::Dead => view.dead += 1,
            Position::Ready => {
                let key = ReadyKey::of(&entry);
                view.head = Some(view.head.map_or(key, |head| head.min(key)));
                view.pending += 1;
            }
            Position::Scheduled(_) => {
                view.next = Some(view.next.map_or(entry.due, |next| next.min(entry.due)));
                view.pending += 1;
            }
            Position::Leased(_) => unreachable!("what is leased is not evicted"),
        }
        self.cold += 1;
        rare.and_then(|rare| rare.death).map(|death| (death.at, entry.id))
    }

    /// Makes a cold message resident. If it died during a sweep, the position of its death among the sweeps
    /// is kept.
    pub(super) fn page_in(&mut self, cold: ColdMessage<B>) -> u32 {
        let Message { number, queue, standing, .. } = &cold.message;
        let is_dead = matches!(standing.state, State::Dead(_));
        let late = if is_dead { self.late.take(*number) } else { None };
        let over = cold.over_by.zip(standing.expires);
        let died_in = late.or_else(|| {
            over.map(|(ready_until, expires)| self.bulk_in_progress.last_before(queue, expires, ready_until))
        });
        let slot = self.make_resident(cold);
        let entry = self.entries.get_mut(slot);
        if let (Some(sweeps), Some(rare)) = (died_in, entry.rare.as_deref_mut()) {
            rare.died_in = sweeps;
        }
        let queue = entry.queue;
        self.count_out(queue, is_dead, 1);
        slot
    }

    /// Subtracts `count` from a queue's cold messages.
    pub(super) fn count_out(&mut self, queue: u32, dead: bool, count: u64) {
        let view = &mut self.queues.get_mut(queue).cold;
        let counted = if dead { &mut view.dead } else { &mut view.pending };
        *counted = counted.checked_sub(count).expect("what was cold was counted");
        self.cold -= count;
    }

    pub(super) fn make_resident(&mut self, cold: ColdMessage<B>) -> u32 {
        let ColdMessage { message, ready_since, copy, over_by: _ } = cold;
        let queue = self.queues.find_or_insert(&message.queue);
        let Message { id, number, body, key, headers, created, lease_ms, max_attempts, standing, .. } =
            message;
        let plain = key.is_none()
            && headers.is_empty()
            && lease_ms.is_none()
            && max_attempts.is_none()
            && ready_since == Timestamp::MIN;
        let rare = (!plain).then(|| {
            Box::new(RareFields {
                key,
                headers,
                lease_ms,
                max_attempts,
                ready_since,
                ..RareFields::default()
            })
        });
        let mut entry = Entry {
            id,
            number,
            due: standing.due,
            created,
            body,
            rare,
            copy: Some(copy),
            queue,
            priority: standing.priority,
            attempts: 0,
            takes: 0,
            mark: ChangeMark::Captured,
            place: Position::Ready,
            epoch: 0,
        };
        let is_ripe = standing.due <= self.queues.get(queue).ready_until;
        let state = match standing.state {
            State::Scheduled if is_ripe => State::Ready,
            state => state,
        };
        let holder = standing.holder.clone();
        entry.set_standing(standing);
        self.insert_as(entry, state, holder)
    }

    /// Makes a cold message resident and lets time act on it. Its queue was touched before.
    pub(super) fn draw(&mut self, cold: ColdMessage<B>, now: Now, log: &mut impl Log<B>) {
        let is_over = cold.expires_by(now);
        let slot = self.page_in(cold);
        if is_over {
            self.expire_drawn(self.entries.get(slot).queue, now, log);
        }
    }

    /// Makes the next due cold messages of a queue resident. Returns true if there were any and all of them
    /// have expired.
    pub(super) fn feed(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) -> Result<bool> {
        let found = self.queues.get(queue);
        let (name, ready_until) = (found.name.clone(), found.ready_until);
        let mut drawn = Vec::new();
        let Some(cold) = log.cold() else {
            unreachable!("only a log that has cold messages makes them so");
        };
        cold.due(&name, ready_until, &mut drawn)?;
        let all_over = !drawn.is_empty() && drawn.iter().all(|cold| cold.expires_by(now));
        for cold in drawn {
            self.draw(cold, now, log);
        }
        let Some(cold) = log.cold() else { return Ok(all_over) };
        let ColdHead { first, next } = cold.head(&name, ready_until)?;
        assert!(next.is_none_or(|next| next > ready_until), "what is due is not next");
        let view = &mut self.queues.get_mut(queue).cold;
        view.head = first.map(|(priority, due, id)| ReadyKey { priority, due, id });
        view.next = next;
        Ok(all_over)
    }

    /// Processes a slice of the cold messages whose expiry has passed; returns whether there are no more. The
    /// owner of a core with cold messages calls it before each batch of calls, and again while the core [is
    /// behind](Core::is_behind): this keeps the calls after it short.
    pub fn catch_up(&mut self, now: Now, log: &mut impl Log<B>) -> bool {
        self.begin(now, log);
        self.expire_slice(now, log)
    }

    /// Whether cold messages have expired that no slice has processed yet.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Whether cold messages of this queue may have expired that no slice has processed yet: calls that
    /// depend on all pending or dead messages would have to process the rest at once. Other queues are not
    /// considered.
    pub fn is_behind_in(&self, queue: &QueueName, now: Now, log: &mut impl Log<B>) -> bool {
        self.is_behind && self.queues.find(queue).is_some_and(|queue| self.is_behind_of(queue, now, log))
    }

    /// Whether `count` puts into a queue might be refused because expired cold messages still count.
    pub fn is_full_behind(&self, queue: &QueueName, count: usize, now: Now, log: &mut impl Log<B>) -> bool {
        let is_full = |queue: u32| {
            let limit = self.settings(queue).max_pending;
            limit.is_some_and(|limit| self.queues.get(queue).pending() + count as u64 > limit)
        };
        self.queues.find(queue).is_some_and(is_full) && self.is_behind_in(queue, now, log)
    }

    pub(super) fn is_behind_of(&self, queue: u32, now: Now, log: &mut impl Log<B>) -> bool {
        let found = self.queues.get(queue);
        found.cold.pending > 0 && log.cold().is_some_and(|cold| cold.is_behind_in(&found.name, now))
    }

    /// Whether the last call found too many expired messages to reach those behind them, and returned nothing
    /// of their queue: repeat it when the core is no longer [behind](Core::is_behind_in) in that queue. Also
    /// true if it depends on more lapsed leases than its slice had room for, on more expired messages that
    /// could not be read in time, or on earlier takes that are not served yet: repeat it after the next
    /// [`serve`](Core::serve).
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    fn expire_slice(&mut self, now: Now, log: &mut impl Log<B>) -> bool {
        if self.cold == 0 {
            self.is_behind = false;
            return true;
        }
        let is_replay = log.is_replay();
        let Some(cold) = log.cold() else { return true };
        let mut expired = Expired::default();
        let expiring = |name: &QueueName| self.expiring(name, is_replay);
        let is_done = cold.expire(now, self.config.expired_a_call, &expiring, &mut expired);
        if !is_done && !self.is_behind {
            self.fell_behind += 1;
        }
        self.is_behind = !is_done;
        self.count_expired(expired, log);
        self.look_where_given_up(now, log);
        is_done
    }

    /// Looks for the first message again in queues where all expired messages have been processed by now.
    fn look_where_given_up(&mut self, now: Now, log: &mut impl Log<B>) {
        for queue in std::mem::take(&mut self.given_up) {
            if self.queues.find_mut(queue).is_none() {
                continue;
            }
            if self.is_behind && self.is_behind_of(queue, now, log) {
                self.given_up.push(queue);
            } else {
                self.queues.get_mut(queue).cold.gave_up = 0;
            }
        }
    }

    /// Processes all cold messages of a queue whose expiry has passed.
    pub(super) fn expire_cold_of(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) {
        while self.is_behind_of(queue, now, log) {
            self.expire_slice(now, log);
        }
    }

    /// Processes all cold messages whose expiry has passed.
    pub(super) fn expire_cold(&mut self, now: Now, log: &mut impl Log<B>) {
        while !self.expire_slice(now, log) {}
    }

    /// Whether a queue drops what expires.
    pub fn drops_expired(&self, queue: &QueueName) -> bool {
        let queue = self.queues.find(queue);
        queue.is_some_and(|queue| self.settings(queue).on_expiry == OnExpiry::Drop)
    }

    /// How the cold messages of a queue that expire are handled.
    fn expiring(&self, queue: &QueueName, is_replay: bool) -> Expiring {
        let Some(queue) = self.queues.find(queue) else { return Expiring::Die };
        match self.settings(queue).on_expiry {
            OnExpiry::Dead => Expiring::Die,
            OnExpiry::Drop if is_replay => Expiring::Stay,
            OnExpiry::Drop => Expiring::Go,
        }
    }

    fn count_expired(&mut self, Expired { died, gone }: Expired<B>, log: &mut impl Log<B>) {
        if !died.is_empty() {
            // Answers depend on the time from now on.
            log.keep_time();
        }
        for (queue, count) in died {
            self.died_cold(&queue, count);
        }
        for ColdMessage { message: Message { queue: name, number, .. }, .. } in gone {
            log.record(&Record::Gone { number }, Durability::Written);
            self.deaths.discarded(&name, Discarded::OnExpiry, 1);
            let queue = self.queues.find(&name).expect("what has cold messages is a queue");
            self.count_out(queue, false, 1);
            self.note_bare(queue);
        }
    }

    /// Moves `count` cold messages of a queue from pending to dead, since they expired in place.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn died_cold(&mut self, queue: &QueueName, count: u64) {
        self.deaths.expired(queue, count);
        let queue = self.queues.find(queue).expect("what has cold messages is a queue");
        let view = &mut self.queues.get_mut(queue).cold;
        view.pending = view.pending.checked_sub(count).expect("what was cold was counted");
        view.dead += count;
        self.expect_end_of_expired(queue);
    }

    /// Processes all expired messages of a queue, before all messages of a state are swept. Fails while some
    /// cannot be read, since it is then unknown which are pending and which are dead.
    pub(super) fn expire_queue(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) -> Result<()> {
        if self.queues.get(queue).cold.pending == 0 {
            return Ok(());
        }
        if log.is_replay() {
            self.expire_cold(now, log);
        } else {
            self.expire_cold_of(queue, now, log);
        }
        self.expire_unread(queue, now, log)
    }

    /// Expires messages that could not be read when their time came. Fails if some still cannot.
    pub(super) fn expire_unread(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) -> Result<()> {
        let found = self.queues.get(queue);
        let is_replay = log.is_replay();
        let Some(cold) = log.cold().filter(|_| found.cold.pending > 0) else { return Ok(()) };
        let mut expired = Expired::default();
        let expiring = |name: &QueueName| self.expiring(name, is_replay);
        let read = cold.expire_unread(&found.name, now, &expiring, &mut expired);
        self.count_expired(expired, log);
        read
    }

    /// Whether to stop looking for the first message of a queue: either all that was found last time had
    /// expired and the rest will be dead soon, or the slice is used up.
    pub(super) fn is_given_up(&mut self, queue: u32) -> bool {
        let is_behind = self.is_behind && self.queues.get(queue).cold.gave_up == self.fell_behind;
        let given_up = is_behind || self.has_more_over(queue);
        self.gave_up |= given_up;
        given_up
    }

    /// Stops looking for the first message of a queue until the core is no longer behind in it.
    pub(super) fn give_up(&mut self, queue: u32) {
        self.given_up.push(queue);
        let view = &mut self.queues.get_mut(queue).cold;
        view.gave_up = self.fell_behind;
        view.look_again();
        self.gave_up = true;
    }

    /// Makes the messages resident that a page of a list may show. False if there were too few, since some
    /// had expired.
    pub(super) fn page_in_list(
        &mut self,
        queue: u32,
        state: StateKind,
        after: Option<(Timestamp, MessageId)>,
        count: usize,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<bool> {
        let found = self.queues.get(queue);
        if found.cold.is_empty() || state == StateKind::Leased {
            return Ok(true);
        }
        let (name, ready_until) = (found.name.clone(), found.ready_until);
        let mut drawn = Vec::new();
        if let Some(cold) = log.cold() {
            cold.page(&name, state, ready_until, after, count, &mut drawn)?;
        }
        let is_enough = !drawn.iter().any(|cold| cold.expires_by(now));
        drawn.into_iter().for_each(|cold| self.draw(cold, now, log));
        Ok(is_enough)
    }

    /// Makes up to `most` of the next dead messages of a queue resident, those that died after `after`. For
    /// those that expired while they were cold, the position of the death among the sweeps is kept.
    pub(super) fn page_in_dead(
        &mut self,
        queue: u32,
        reader: DeadReader,
        after: Option<Died>,
        anew: bool,
        most: usize,
        log: &mut impl Log<B>,
    ) -> Result<DeadProgress> {
        let found = self.queues.get(queue);
        if found.cold.dead == 0 {
            return Ok(DeadProgress::All);
        }
        let mut drawn = Vec::new();
        let Some(cold) = log.cold() else { return Ok(DeadProgress::All) };
        let handed_over = cold.dead(&found.name, reader, after, anew, most, &mut drawn)?;
        for cold in drawn {
            self.page_in(cold);
        }
        Ok(handed_over)
    }

    /// Forgets cold messages of a queue; returns how many.
    pub(super) fn forget_cold(&mut self, queue: u32, which: QueuePart, log: &mut impl Log<B>) -> u64 {
        let found = self.queues.get_mut(queue);
        let count = match which {
            QueuePart::Pending => std::mem::take(&mut found.cold.pending),
            QueuePart::Dead => std::mem::take(&mut found.cold.dead),
        };
        if count > 0 {
            let name = found.name.clone();
            if let Some(cold) = log.cold() {
                cold.forget(&name, which);
            }
            self.cold -= count;
        }
        count
    }

    /// The number of cold messages of a queue, by state.
    pub(super) fn cold_counts(&self, queue: u32, log: &mut impl Log<B>) -> Result<ColdCounts> {
        let found = self.queues.get(queue);
        if found.cold.is_empty() {
            return Ok(ColdCounts::default());
        }
        match log.cold() {
            Some(cold) => cold.counts(&found.name, found.ready_until),
            None => Ok(ColdCounts::default()),
        }
    }

    /// The message with this number, made resident if it is cold.
    pub(super) fn find_number(&mut self, number: Number, log: &mut impl Log<B>) -> Result<Option<u32>> {
        if let Some(slot) = self.resident_number(number) {
            return Ok(Some(slot));
        }
        if self.cold == 0 {
            return Ok(None);
        }
        let Some(cold) = log.cold() else { return Ok(None) };
        let found = cold.by_number(number)?;
        Ok(found.map(|cold| self.page_in(cold)))
    }

    /// The message with this number, made resident if it is cold. If it is in this queue, it has this id.
    pub(super) fn find_identified(
        &mut self,
        queue: u32,
        id: MessageId,
        number: Number,
        log: &mut impl Log<B>,
    ) -> Result<Option<u32>> {
        if let Some(slot) = self.resident_number(number) {
            return Ok(Some(slot));
        }
        if self.cold == 0 {
            return Ok(None);
        }
        let Some(cold) = log.cold() else { return Ok(None) };
        let found = cold.by_id(&self.queues.get(queue).name, id, number)?;
        Ok(found.map(|cold| self.page_in(cold)))
    }

    pub(super) fn mark_changed(&mut self, slot: u32) {
        self.snapshot_before_change(slot);
        let span = self.span;
        let entry = self.entries.get_mut(slot);
        if !std::mem::replace(&mut entry.mark, span).is_changed() {
            self.changed += 1;
        }
    }

    /// Removes a message from the indexes by number, and from the count of changed messages.
    pub(super) fn strike_off(&mut self, entry: &Entry<B>, slot: u32) {
        self.changed -= usize::from(entry.mark.is_changed());
        self.weight -= entry.weight();
        let entries = &self.entries;
        self.by_number.remove(entry.number, slot, |slot| entries.get(slot).number);
    }
}
