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
//!    the message is removed instead, and that is recorded; if it cannot be read for that, it dies, and the
//!    record of a [promotion](Cold::promote) says so.
//! 6. A capture is of one moment, the call of [`begin_snapshot`](Core::begin_snapshot), and is made in slices:
//!    a message that changes before its slice is captured first, and then changed.

use std::num::NonZeroU32;

use dwell_model::{Key, Message, MessageId, Now, Number, QueueName, Standing, State, StateKind, Timestamp};

use super::queue::ReadyKey;
use super::{Core, Log, StoredBody};
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
    /// Whether it still counts as pending, though it is dead: it had expired when it was last promoted, which
    /// could not be read then.
    pub died_unread: bool,
}

impl<B> ColdMessage<B> {
    /// Whether it counts as dead among the cold ones.
    pub(super) fn counts_as_dead(&self) -> bool {
        matches!(self.message.standing.state, State::Dead(_)) && !self.died_unread
    }

    /// Whether its expiry has passed and it is not dead yet.
    pub(super) fn expires_by(&self, now: Now) -> bool {
        let Standing { state, expires, .. } = &self.message.standing;
        !matches!(state, State::Dead(_)) && expires.is_some_and(|expires| expires <= now.wall)
    }

    /// Whether it was found among the pending ones, and time makes it a dead one.
    pub(super) fn dies_by(&self, now: Now) -> bool {
        self.died_unread || self.expires_by(now)
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

    /// How many dead messages of this queue were passed over for [`DeadReader::Retention`], which is not held up by
    /// what cannot be read: at least all that were, and `None` if none was. They are looked for again after
    /// [`try_passed_over`](Cold::try_passed_over).
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
    /// They are handed over, and their removal is recorded. Those that cannot be read die.
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
    /// Whether any of those that died were to be handed over, and could not be read.
    pub died_unread: bool,
}

// A derived implementation would require `B: Default`.
impl<B> Default for Expired<B> {
    fn default() -> Expired<B> {
        Expired { died: Vec::new(), gone: Vec::new(), died_unread: false }
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
    pub(super) head: Option<ReadyKey>,
    /// A lower bound: none of those that would be handed out before `head` is due before this.
    pub(super) next: Option<Timestamp>,
    /// The value of the core's count of falling behind when a call last gave up on finding the first message.
    pub(super) gave_up: u64,
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

impl<B: StoredBody> Core<B> {
    /// The number of cold messages.
    pub fn cold_len(&self) -> u64 {
        self.cold
    }

    /// Whether any message of a queue is cold.
    pub fn has_cold(&self, queue: &QueueName) -> bool {
        self.queues.find(queue).is_some_and(|queue| !self.queues.get(queue).cold.is_empty())
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
}
