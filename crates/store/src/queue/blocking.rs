//! The same queue for threads without a runtime: the same names, and calls that block.
//!
//! The builders are the same types. They end with `call()` here and with `.await` there; either works on each
//! of them, so only types that are not builders have a blocking counterpart.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use dwell_model::Limits;
//! use dwell_store::{MemoryStore, blocking::Queue};
//! use dwell_time::SystemClock;
//!
//! let store = MemoryStore::new(Limits::default(), Arc::new(SystemClock::new()));
//! let orders = Queue::new(Arc::new(store), "orders")?;
//!
//! orders.put("close order 7").delay(Duration::from_millis(20)).key("order-7").call()?;
//! while let Some(job) = orders.take().wait(Duration::from_millis(100)).call()? {
//!     println!("{}", job.text()?);
//!     job.ack()?;
//! }
//! # Ok::<(), dwell_store::Error>(())
//! ```
//!
//! # Not on the threads of an async runtime
//! A call blocks its thread, and the other tasks there with it. A store on Redis that was opened on a Tokio
//! runtime, and not with a thread of its own, runs its calls on that runtime. A call *hangs for ever* if it
//! blocks the only thread of that runtime, or the last one that is free, or the thread that has to drive a
//! current-thread runtime.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use dwell_model::{
    Cursor, Invalid, Key, Message, MessageId, QueueName, Setting, SettingChange, StateKind, Timestamp,
};
use dwell_time::Clock;
use pollster::block_on;

use super::{Bury, GiveBack, IntoBody, IntoPut, PutMany, PutOne, SettleAll, TakeId, TakeJobs};
use crate::{
    Action, BulkOutcome, Cancelled, Delivery, Page, QueueStats, Rescheduled, Result, Selection, Settled,
    Store, Target, When,
};

/// One queue of a store. Cloning is cheap, and clones are the same queue. See [`crate::Queue`].
#[derive(Clone)]
pub struct Queue {
    inner: super::Queue,
}

impl From<super::Queue> for Queue {
    fn from(inner: super::Queue) -> Queue {
        Queue { inner }
    }
}

impl From<&Queue> for QueueName {
    fn from(queue: &Queue) -> QueueName {
        queue.name().clone()
    }
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
        super::Queue::new(store, name).map(Queue::from)
    }

    /// Its name.
    pub fn name(&self) -> &QueueName {
        self.inner.name()
    }

    /// The store that it is in, for calls over several queues.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.inner.store()
    }

    /// Puts a message, once [`call`](PutOne::call) is called. See [`crate::Queue::put`].
    pub fn put(&self, body: impl IntoBody) -> PutOne {
        self.inner.put(body)
    }

    /// Puts many messages, once [`call`](PutMany::call) is called. See [`crate::Queue::put_many`].
    pub fn put_many<P: IntoPut>(&self, items: impl IntoIterator<Item = P>) -> PutMany {
        self.inner.put_many(items)
    }

    /// Takes the next due job, or several with [`max`](TakeJobs::max), once [`call`](TakeJobs::call) is
    /// called; or one after the other with [`iter`](TakeJobs::iter). See [`crate::Queue::take`].
    pub fn take(&self) -> TakeJobs {
        self.inner.take()
    }

    /// Takes this message, once [`call`](TakeId::call) is called. See [`crate::Queue::take_id`].
    pub fn take_id(&self, id: MessageId) -> TakeId {
        self.inner.take_id(id)
    }

    /// Acks many jobs, once [`call`](SettleAll::call) is called. See [`crate::Queue::ack_all`].
    pub fn ack_all<J: Borrow<Job>>(&self, jobs: impl IntoIterator<Item = J>) -> SettleAll {
        self.settle_all(jobs.into_iter().map(|job| (job, Action::Ack)))
    }

    /// Settles many jobs, once [`call`](SettleAll::call) is called. See [`crate::Queue::settle_all`].
    pub fn settle_all<J: Borrow<Job>>(&self, jobs: impl IntoIterator<Item = (J, Action)>) -> SettleAll {
        SettleAll::of(jobs.into_iter().map(|(job, action)| {
            let job: &Job = job.borrow();
            (job.inner.held(), action)
        }))
    }

    /// See [`crate::Queue::get`].
    ///
    /// # Errors
    /// As there.
    pub fn get<T>(&self, target: T) -> Result<Message>
    where
        T: TryInto<Target>,
        Invalid: From<T::Error>,
    {
        block_on(self.inner.get(target))
    }

    /// See [`crate::Queue::get_dead`].
    ///
    /// # Errors
    /// As there.
    pub fn get_dead<K>(&self, key: K) -> Result<Message>
    where
        K: TryInto<Key>,
        Invalid: From<K::Error>,
    {
        block_on(self.inner.get_dead(key))
    }

    /// See [`crate::Queue::expire_lease`].
    ///
    /// # Errors
    /// As there.
    pub fn expire_lease(&self, id: MessageId, takes: u32) -> Result<Settled> {
        block_on(self.inner.expire_lease(id, takes))
    }

    /// See [`crate::Queue::cancel`].
    ///
    /// # Errors
    /// As there.
    pub fn cancel<T>(&self, target: T) -> Result<Cancelled>
    where
        T: TryInto<Target>,
        Invalid: From<T::Error>,
    {
        block_on(self.inner.cancel(target))
    }

    /// See [`crate::Queue::reschedule`].
    ///
    /// # Errors
    /// As there.
    pub fn reschedule<T, W>(&self, target: T, when: W) -> Result<Rescheduled>
    where
        T: TryInto<Target>,
        W: TryInto<When>,
        Invalid: From<T::Error> + From<W::Error>,
    {
        block_on(self.inner.reschedule(target, when))
    }

    /// See [`crate::Queue::stats`].
    ///
    /// # Errors
    /// As there.
    pub fn stats(&self) -> Result<QueueStats> {
        block_on(self.inner.stats())
    }

    /// See [`crate::Queue::list`].
    ///
    /// # Errors
    /// As there.
    pub fn list(&self, state: StateKind, after: Option<Cursor>, max: usize) -> Result<Page> {
        block_on(self.inner.list(state, after, max))
    }

    /// See [`crate::Queue::peek`].
    ///
    /// # Errors
    /// As there.
    pub fn peek(&self, state: StateKind) -> Result<Option<Message>> {
        block_on(self.inner.peek(state))
    }

    /// See [`crate::Queue::set`].
    ///
    /// # Errors
    /// As there.
    pub fn set(&self, setting: Setting) -> Result<QueueStats> {
        block_on(self.inner.set(setting))
    }

    /// See [`crate::Queue::configure`].
    ///
    /// # Errors
    /// As there.
    pub fn configure(&self, changes: impl Into<Vec<SettingChange>>) -> Result<QueueStats> {
        block_on(self.inner.configure(changes))
    }

    /// See [`crate::Queue::pause`].
    ///
    /// # Errors
    /// As there.
    pub fn pause(&self) -> Result<QueueStats> {
        block_on(self.inner.pause())
    }

    /// See [`crate::Queue::pause_until`].
    ///
    /// # Errors
    /// As there.
    pub fn pause_until<T>(&self, end: T) -> Result<QueueStats>
    where
        T: TryInto<Timestamp>,
        Invalid: From<T::Error>,
    {
        block_on(self.inner.pause_until(end))
    }

    /// See [`crate::Queue::resume`].
    ///
    /// # Errors
    /// As there.
    pub fn resume(&self) -> Result<QueueStats> {
        block_on(self.inner.resume())
    }

    /// See [`crate::Queue::revive`].
    ///
    /// # Errors
    /// As there.
    pub fn revive(&self, which: impl Into<Selection>) -> Result<BulkOutcome> {
        block_on(self.inner.revive(which))
    }

    /// See [`crate::Queue::revive_at`].
    ///
    /// # Errors
    /// As there.
    pub fn revive_at<W>(&self, which: impl Into<Selection>, when: W) -> Result<BulkOutcome>
    where
        W: TryInto<When>,
        Invalid: From<W::Error>,
    {
        block_on(self.inner.revive_at(which, when))
    }

    /// See [`crate::Queue::discard`].
    ///
    /// # Errors
    /// As there.
    pub fn discard(&self, which: impl Into<Selection>) -> Result<BulkOutcome> {
        block_on(self.inner.discard(which))
    }

    /// See [`crate::Queue::purge`].
    ///
    /// # Errors
    /// As there.
    pub fn purge(&self) -> Result<u64> {
        block_on(self.inner.purge())
    }

    /// See [`crate::Queue::delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete(&self) -> Result<u64> {
        block_on(self.inner.delete())
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}

/// A message that was handed to this consumer, until it settles it or its lease ends. See [`crate::Job`],
/// also for what happens to one that is dropped.
#[derive(Debug)]
#[must_use = "a job that is dropped is held until its lease ends; settle it"]
pub struct Job {
    inner: super::Job,
}

impl From<super::Job> for Job {
    fn from(inner: super::Job) -> Job {
        Job { inner }
    }
}

impl Job {
    /// See [`crate::Job::ack`].
    ///
    /// # Errors
    /// As there.
    pub fn ack(&self) -> Result<()> {
        block_on(self.inner.ack())
    }

    /// Given back once [`call`](GiveBack::call) is called. See [`crate::Job::retry`].
    pub fn retry(&self, error: impl fmt::Display) -> GiveBack {
        self.inner.retry(error)
    }

    /// Given back once [`call`](GiveBack::call) is called. See [`crate::Job::release`].
    pub fn release(&self) -> GiveBack {
        self.inner.release()
    }

    /// Buried once [`call`](Bury::call) is called. See [`crate::Job::bury`].
    pub fn bury(&self, reason: impl fmt::Display) -> Bury {
        self.inner.bury(reason)
    }

    /// See [`crate::Job::extend`].
    ///
    /// # Errors
    /// As there.
    pub fn extend(&self, lease: Duration) -> Result<Timestamp> {
        block_on(self.inner.extend(lease))
    }

    /// See [`crate::Job::renew`].
    ///
    /// # Errors
    /// As there.
    pub fn renew(&self) -> Result<Timestamp> {
        block_on(self.inner.renew())
    }

    /// See [`crate::Job::held_until`].
    pub fn held_until(&self) -> Timestamp {
        self.inner.held_until()
    }

    /// The delivery without its store, to be settled in another way. See [`crate::Job::into_delivery`].
    pub fn into_delivery(self) -> Delivery {
        self.inner.into_delivery()
    }
}

impl Deref for Job {
    type Target = Delivery;

    fn deref(&self) -> &Delivery {
        &self.inner
    }
}

/// Jobs as they become due, by [`TakeJobs::iter`]: a [stream](crate::Jobs) whose `next` blocks. It ends as
/// that one does, and a `for` loop that is left early releases the jobs that were not passed on, as that one
/// does when it is dropped.
///
/// ```
/// # use std::sync::Arc;
/// # use dwell_model::Limits;
/// # use dwell_store::{MemoryStore, blocking::Queue};
/// # use dwell_time::SystemClock;
/// use std::time::Duration;
///
/// # let store = MemoryStore::new(Limits::default(), Arc::new(SystemClock::new()));
/// # let orders = Queue::new(Arc::new(store), "orders")?;
/// orders.put_many(["one", "two"]).call().all()?;
/// for job in orders.take().until_idle(Duration::from_millis(5)).iter() {
///     job?.ack()?;
/// }
/// # Ok::<(), dwell_store::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "an iterator does nothing before it is asked"]
pub struct Jobs {
    inner: super::Jobs,
}

impl From<super::Jobs> for Jobs {
    fn from(inner: super::Jobs) -> Jobs {
        Jobs { inner }
    }
}

impl Jobs {
    /// See [`crate::Jobs::on_clock`].
    pub fn on_clock(self, clock: Arc<dyn Clock>) -> Jobs {
        Jobs { inner: self.inner.on_clock(clock) }
    }

    /// Ends the iterator. Returns the jobs that it holds and has not passed on, to be settled: preferably
    /// released.
    pub fn into_buffered(self) -> Vec<Job> {
        self.inner.into_buffered().into_iter().map(Job::from).collect()
    }
}

impl Iterator for Jobs {
    type Item = Result<Job>;

    fn next(&mut self) -> Option<Result<Job>> {
        Some(block_on(self.inner.next())?.map(Job::from))
    }
}
