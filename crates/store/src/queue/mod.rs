//! A queue as a program uses it: over any store, with builders that are awaited or called.
//!
//! This module adds no behaviour to the [`Store`]: each call is one of the contract's, with names and units
//! that are easy to use correctly.
//!
//! # Layout
//! - [`Queue`]: one queue of a store, with its puts, takes and queries
//! - `put`: [`PutOne`], [`PutMany`]; `body`, `json`: the types of a body
//! - `take`: [`TakeJobs`], [`TakeId`]; `jobs`: the same as a stream
//! - `answers`: [`Answers`], the answers to a batch
//! - `job`: [`Job`], and how it is settled; `delivery`: the accessors of its message
//! - [`blocking`]: the same names for threads without a runtime

mod answers;
pub mod blocking;
mod body;
mod delivery;
mod job;
mod jobs;
#[cfg(feature = "json")]
mod json;
mod put;
mod take;

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dwell_model::{
    Cursor, Invalid, Key, Message, MessageId, Pause, QueueName, Setting, SettingChange, StateKind, Timestamp,
};

use crate::{
    Action, BulkOutcome, Cancelled, LeaseRef, Page, QueueStats, Rescheduled, Result, Selection, Settled,
    Store, Target, When,
};

pub use answers::Answers;
pub use body::{Body, IntoBody};
pub use job::{Bury, GiveBack, Job, SettleAll};
pub use jobs::Jobs;
#[cfg(feature = "json")]
pub use json::Json;
pub use put::{IntoPut, PutMany, PutOne};
pub use take::{Many, One, TakeId, TakeJobs};

/// One queue of a store. Cloning is cheap, and clones are the same queue.
///
/// A queue needs no creation: put, take, pause and configure work on a name that was never used before.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use dwell_model::Limits;
/// use dwell_store::{MemoryStore, Queue};
/// use dwell_time::SystemClock;
///
/// # pollster::block_on(async {
/// let store = MemoryStore::new(Limits::default(), Arc::new(SystemClock::new()));
/// let orders = Queue::new(Arc::new(store), "orders")?;
///
/// orders.put("close order 7").delay(Duration::from_millis(20)).key("order-7").await?;
/// let job = orders.take().wait(Duration::from_secs(30)).await?.expect("it is due in 20 ms");
/// assert_eq!(job.text()?, "close order 7");
/// job.ack().await?;
/// # Ok::<(), dwell_store::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Queue {
    store: Arc<dyn Store>,
    name: QueueName,
}

impl Queue {
    /// The queue `name` of `store`.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if this is not a valid name of a queue.
    pub fn new<N>(store: Arc<dyn Store>, name: N) -> Result<Queue>
    where
        N: TryInto<QueueName>,
        Invalid: From<N::Error>,
    {
        Ok(Queue { store, name: name.try_into().map_err(Invalid::from)? })
    }

    /// Its name.
    pub fn name(&self) -> &QueueName {
        &self.name
    }

    /// The store that it is in, for calls over several queues.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The same queue for threads without a runtime. See [`blocking`] for threads that must not block on a
    /// store that needs a runtime.
    ///
    /// In files, a queue of `dwell::blocking::Dwell` is faster for a single caller: its thread runs the
    /// store's steps itself, where this one leaves them to the store's thread.
    pub fn blocking(&self) -> blocking::Queue {
        blocking::Queue::from(self.clone())
    }

    /// Puts a message, due at once unless [`delay`](PutOne::delay) or [`at`](PutOne::at) say otherwise. Await it, or
    /// [`call`](PutOne::call) it.
    #[doc(alias = "enqueue")]
    #[doc(alias = "offer")]
    #[doc(alias = "publish")]
    #[doc(alias = "send")]
    pub fn put(&self, body: impl IntoBody) -> PutOne {
        PutOne::new(self, body)
    }

    /// Puts many messages in one call of the store: bodies, or [`put`](Queue::put)s with their options.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use dwell_model::Limits;
    /// # use dwell_store::{MemoryStore, Queue};
    /// # use dwell_time::SystemClock;
    /// use std::time::Duration;
    ///
    /// # pollster::block_on(async {
    /// # let store = MemoryStore::new(Limits::default(), Arc::new(SystemClock::new()));
    /// # let orders = Queue::new(Arc::new(store), "orders")?;
    /// orders.put_many(["one", "two"]).await.all()?;
    ///
    /// let numbered = (1..=3).map(|n| orders.put(format!("order {n}")).delay(Duration::from_secs(n)));
    /// for answer in orders.put_many(numbered).await {
    ///     println!("due {}", answer?.due);
    /// }
    /// # Ok::<(), dwell_store::Error>(())
    /// # }).unwrap();
    /// ```
    ///
    /// All are sent to the store of this queue, each into the queue that it names: a `put` made by another
    /// queue into that one.
    pub fn put_many<P: IntoPut>(&self, items: impl IntoIterator<Item = P>) -> PutMany {
        PutMany::new(self, items)
    }

    /// Takes the next due job, or several with [`max`](TakeJobs::max). Await it, [`call`](TakeJobs::call) it,
    /// or make a [`stream`](TakeJobs::stream) of it.
    #[doc(alias = "dequeue")]
    #[doc(alias = "poll")]
    #[doc(alias = "receive")]
    #[doc(alias = "reserve")]
    pub fn take(&self) -> TakeJobs {
        TakeJobs::new(self)
    }

    /// Takes this message, whether it is scheduled, ready or dead. Await it, or [`call`](TakeId::call) it.
    pub fn take_id(&self, id: MessageId) -> TakeId {
        TakeId::new(self, id)
    }

    /// Acks many jobs in one call of the store: owned ones, or references to jobs that may have to be settled
    /// once more.
    ///
    /// A job is settled in the store where it was taken. Jobs of other queues of the same store are sent in
    /// the same call, those of another store in a separate one.
    pub fn ack_all<J: Borrow<Job>>(&self, jobs: impl IntoIterator<Item = J>) -> SettleAll {
        SettleAll::new(jobs.into_iter().map(|job| (job, Action::Ack)))
    }

    /// Settles many jobs in one call of the store, each as its action says. See [`ack_all`](Queue::ack_all).
    ///
    /// An error or reason longer than [`Limits::MAX_ERROR_TEXT_LEN`](dwell_model::Limits::MAX_ERROR_TEXT_LEN)
    /// is truncated, as in [`Job::retry`] and [`Job::bury`].
    pub fn settle_all<J: Borrow<Job>>(&self, jobs: impl IntoIterator<Item = (J, Action)>) -> SettleAll {
        SettleAll::new(jobs)
    }

    /// Reads a message by its id or by its key, in any state. A text is a key.
    ///
    /// # Errors
    /// [`Error::MessageNotFound`](crate::Error::MessageNotFound), [`Error::UnknownQueue`](crate::Error::UnknownQueue).
    pub async fn get<T>(&self, target: T) -> Result<Message>
    where
        T: TryInto<Target>,
        Invalid: From<T::Error>,
    {
        let target = target.try_into().map_err(Invalid::from)?;
        only(self.store.get(self.name.clone(), vec![target], false).await)
    }

    /// Reads the message that has this key; if none is live, the youngest dead one that had it. To revive
    /// that one, use its id.
    ///
    /// # Errors
    /// As for [`get`](Queue::get).
    pub async fn get_dead<K>(&self, key: K) -> Result<Message>
    where
        K: TryInto<Key>,
        Invalid: From<K::Error>,
    {
        let key = key.try_into().map_err(Invalid::from)?;
        only(self.store.get(self.name.clone(), vec![Target::Key(key)], true).await)
    }

    /// Ends the lease of a message, as if its deadline were now. `takes` is the message's number of takes
    /// when its holder was read ([`Counts::takes`](dwell_model::Counts::takes)), so that a later holder is
    /// not affected.
    ///
    /// # Errors
    /// [`Error::MessageNotFound`](crate::Error::MessageNotFound), [`Error::NotLeased`](crate::Error::NotLeased),
    /// [`Error::LeaseChanged`](crate::Error::LeaseChanged).
    pub async fn expire_lease(&self, id: MessageId, takes: u32) -> Result<Settled> {
        only(self.store.expire_lease(self.name.clone(), vec![LeaseRef { id, takes }]).await)
    }

    /// Removes a scheduled or ready message, by its id or by its key, and returns what it found. A text is a
    /// key.
    ///
    /// # Errors
    /// Those of the store; a missing message is [`Cancelled::NotFound`].
    pub async fn cancel<T>(&self, target: T) -> Result<Cancelled>
    where
        T: TryInto<Target>,
        Invalid: From<T::Error>,
    {
        let target = target.try_into().map_err(Invalid::from)?;
        only(self.store.cancel(self.name.clone(), vec![target]).await)
    }

    /// Moves the instant of a scheduled or ready message: to a delay from now ([`Duration`]), or to an
    /// instant. The id stays. A text is a key.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid); a missing message is [`Rescheduled::NotFound`].
    pub async fn reschedule<T, W>(&self, target: T, when: W) -> Result<Rescheduled>
    where
        T: TryInto<Target>,
        W: TryInto<When>,
        Invalid: From<T::Error> + From<W::Error>,
    {
        let target = target.try_into().map_err(Invalid::from)?;
        let when = when.try_into().map_err(Invalid::from)?;
        only(self.store.reschedule(self.name.clone(), vec![(target, when)]).await)
    }

    /// The present state of the queue.
    ///
    /// # Errors
    /// [`Error::UnknownQueue`](crate::Error::UnknownQueue) if it has no messages, no waiting takes and no
    /// settings of its own.
    pub async fn stats(&self) -> Result<QueueStats> {
        self.store.stats(self.name.clone()).await
    }

    /// One page of the messages in a state, in (due, id) order: from `after` on, which is the
    /// [`next`](Page::next) of the page before, or from the beginning.
    ///
    /// # Errors
    /// [`Error::UnknownQueue`](crate::Error::UnknownQueue).
    pub async fn list(&self, state: StateKind, after: Option<Cursor>, max: usize) -> Result<Page> {
        self.store.list(self.name.clone(), state, after, max).await
    }

    /// The first message of a state: of the ready ones the one that the next take receives, of the dead ones
    /// the one that died first, of the others the first by (due, id).
    ///
    /// # Errors
    /// [`Error::UnknownQueue`](crate::Error::UnknownQueue).
    pub async fn peek(&self, state: StateKind) -> Result<Option<Message>> {
        self.store.peek(self.name.clone(), state).await
    }

    /// Changes one setting, and returns the queue as it is then.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid), [`Error::SettingFixed`](crate::Error::SettingFixed),
    /// [`Error::TooManyQueues`](crate::Error::TooManyQueues).
    pub async fn set(&self, setting: Setting) -> Result<QueueStats> {
        self.configure([SettingChange::Set(setting)]).await
    }

    /// Changes settings, all or none, and returns the queue as it is then.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid), [`Error::SettingFixed`](crate::Error::SettingFixed),
    /// [`Error::TooManyQueues`](crate::Error::TooManyQueues).
    pub async fn configure(&self, changes: impl Into<Vec<SettingChange>>) -> Result<QueueStats> {
        self.store.configure(self.name.clone(), changes.into()).await
    }

    /// Stops handing out messages until [`resume`](Queue::resume); puts are still accepted.
    ///
    /// # Errors
    /// [`Error::TooManyQueues`](crate::Error::TooManyQueues), and those of the store.
    pub async fn pause(&self) -> Result<QueueStats> {
        self.set(Setting::Pause(Pause::Indefinite)).await
    }

    /// Stops handing out messages until this instant; puts are still accepted.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid), [`Error::TooManyQueues`](crate::Error::TooManyQueues), and those of the
    /// store.
    pub async fn pause_until<T>(&self, end: T) -> Result<QueueStats>
    where
        T: TryInto<Timestamp>,
        Invalid: From<T::Error>,
    {
        let end = end.try_into().map_err(Invalid::from)?;
        self.set(Setting::Pause(Pause::Until(end))).await
    }

    /// Starts handing out messages again.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn resume(&self) -> Result<QueueStats> {
        let running = SettingChange::running(self.store.limits().defaults.pause);
        self.configure([running]).await
    }

    /// Revives dead messages, oldest first and due at once, with all their attempts available again.
    ///
    /// # Errors
    /// As [`Store::revive`]; refusals of single messages are in the answer.
    pub async fn revive(&self, which: impl Into<Selection>) -> Result<BulkOutcome> {
        self.revive_at(which, When::Now).await
    }

    /// The same, due after a delay from now ([`Duration`]) or at an instant.
    ///
    /// # Errors
    /// As [`Store::revive`], and [`Error::Invalid`](crate::Error::Invalid) for an instant before 1970 or past 9999.
    pub async fn revive_at<W>(&self, which: impl Into<Selection>, when: W) -> Result<BulkOutcome>
    where
        W: TryInto<When>,
        Invalid: From<W::Error>,
    {
        let when = when.try_into().map_err(Invalid::from)?;
        self.store.revive(self.name.clone(), which.into(), when).await
    }

    /// Removes dead messages.
    ///
    /// # Errors
    /// As [`Store::discard`].
    pub async fn discard(&self, which: impl Into<Selection>) -> Result<BulkOutcome> {
        self.store.discard(self.name.clone(), which.into()).await
    }

    /// Removes all scheduled and ready messages, and returns their number. Leased and dead ones stay.
    ///
    /// # Errors
    /// As [`Store::purge`].
    pub async fn purge(&self) -> Result<u64> {
        self.store.purge(self.name.clone()).await
    }

    /// Removes all messages except the leased, and the queue's own settings, and returns the number of
    /// messages.
    ///
    /// # Errors
    /// As [`Store::delete_queue`].
    pub async fn delete(&self) -> Result<u64> {
        self.store.delete_queue(self.name.clone()).await
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("name", &self.name).finish_non_exhaustive()
    }
}

impl From<Duration> for When {
    /// After this delay. A part of a millisecond counts as a whole one.
    fn from(delay: Duration) -> When {
        When::AfterMs(whole_ms(delay))
    }
}

impl From<Timestamp> for When {
    fn from(due: Timestamp) -> When {
        When::At(due)
    }
}

impl TryFrom<std::time::SystemTime> for When {
    type Error = Invalid;

    /// At this instant. A part of a millisecond counts as a whole one.
    fn try_from(due: std::time::SystemTime) -> std::result::Result<When, Invalid> {
        Ok(When::At(due.try_into()?))
    }
}

#[cfg(feature = "jiff")]
impl TryFrom<jiff::Timestamp> for When {
    type Error = Invalid;

    /// At this instant. A part of a millisecond counts as a whole one.
    fn try_from(due: jiff::Timestamp) -> std::result::Result<When, Invalid> {
        Ok(When::At(due.try_into()?))
    }
}

#[cfg(feature = "jiff")]
impl TryFrom<&jiff::Zoned> for When {
    type Error = Invalid;

    /// At this instant. A part of a millisecond counts as a whole one.
    fn try_from(due: &jiff::Zoned) -> std::result::Result<When, Invalid> {
        Ok(When::At(due.try_into()?))
    }
}

#[cfg(feature = "jiff")]
impl TryFrom<jiff::Zoned> for When {
    type Error = Invalid;

    /// At this instant. A part of a millisecond counts as a whole one.
    fn try_from(due: jiff::Zoned) -> std::result::Result<When, Invalid> {
        Ok(When::At(due.try_into()?))
    }
}

impl From<MessageId> for Target {
    fn from(id: MessageId) -> Target {
        Target::Id(id)
    }
}

impl From<dwell_model::Key> for Target {
    fn from(key: dwell_model::Key) -> Target {
        Target::Key(key)
    }
}

impl From<&dwell_model::Key> for Target {
    fn from(key: &dwell_model::Key) -> Target {
        Target::Key(key.clone())
    }
}

impl From<&Queue> for QueueName {
    /// Its name, for example for [`TakeJobs::also_from`].
    fn from(queue: &Queue) -> QueueName {
        queue.name().clone()
    }
}

impl TryFrom<&str> for Target {
    type Error = Invalid;

    /// The message that has this key. An id is a [`MessageId`], not a text.
    fn try_from(key: &str) -> std::result::Result<Target, Invalid> {
        Ok(Target::Key(dwell_model::Key::new(key)?))
    }
}

impl TryFrom<&String> for Target {
    type Error = Invalid;

    /// The message that has this key. An id is a [`MessageId`], not a text.
    fn try_from(key: &String) -> std::result::Result<Target, Invalid> {
        Target::try_from(key.as_str())
    }
}

impl TryFrom<String> for Target {
    type Error = Invalid;

    /// The message that has this key. An id is a [`MessageId`], not a text.
    fn try_from(key: String) -> std::result::Result<Target, Invalid> {
        Target::try_from(key.as_str())
    }
}

impl From<MessageId> for Selection {
    fn from(id: MessageId) -> Selection {
        Selection::Ids(vec![id])
    }
}

impl From<Vec<MessageId>> for Selection {
    fn from(ids: Vec<MessageId>) -> Selection {
        Selection::Ids(ids)
    }
}

/// A span in milliseconds, rounded up: no message is early, and no lease too short. A span that does not fit
/// 64 bits becomes their maximum, which every call refuses or treats as unlimited.
fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The answer to the only item of a call.
fn only<T>(mut answers: Vec<Result<T>>) -> Result<T> {
    answers.pop().expect("a store answers each item")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_millisecond_counts_as_a_whole_one() {
        let cases = [(0, 0), (1, 1), (999_999, 1), (1_000_000, 1), (1_000_001, 2)];
        for (nanos, ms) in cases {
            assert_eq!(whole_ms(Duration::from_nanos(nanos)), ms, "{nanos} ns");
        }
        assert_eq!(whole_ms(Duration::MAX), u64::MAX);
        assert_eq!(When::from(Duration::from_micros(1_500)), When::AfterMs(2));
    }

    #[test]
    fn a_text_is_a_key_and_an_id_is_an_id() {
        let id = MessageId::new(Timestamp::MIN, 0, 0, 1);
        assert_eq!(Target::from(id), Target::Id(id));
        let key = dwell_model::Key::new("order-7").unwrap();
        assert_eq!(Target::try_from("order-7"), Ok(Target::Key(key.clone())));
        assert_eq!(Target::try_from(&String::from("order-7")), Ok(Target::Key(key.clone())));
        assert_eq!(Target::try_from(format!("order-{}", 7)), Ok(Target::Key(key.clone())));
        assert_eq!(
            (Target::from(&key), Target::from(key.clone())),
            (Target::Key(key.clone()), Target::Key(key))
        );
        assert_eq!(Target::try_from("").unwrap_err().code(), "invalid_key");
    }
}
