//! Taking: one job or many that are due.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use dwell_model::{Holder, Invalid, MessageId, QueueName};
use futures_core::future::BoxFuture;
use pollster::block_on;

use super::{Job, Jobs, blocking, whole_ms};
use crate::{Error, LeaseTerms, Queue, Result, Store, Take};

/// A take that hands out at most one job.
#[derive(Clone, Copy, Debug)]
pub enum One {}

/// A take that hands out a limited number of jobs.
#[derive(Clone, Copy, Debug)]
pub enum Many {}

/// A request for due jobs, made when this is awaited, or when `call` is called.
///
/// Without [`wait`](TakeJobs::wait) the answer comes at once, with the jobs that are due now. Dropping the
/// future while it waits is always safe: messages already handed to it are given back at once, without
/// spending an attempt.
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
/// orders.put_many(["one", "two", "three"]).await.all()?;
///
/// // One at a time: an Option.
/// let job = orders.take().wait(Duration::from_secs(30)).await?.expect("one is due");
/// job.ack().await?;
///
/// // Or many: a Vec, which is empty where nothing was due.
/// let jobs = orders.take().max(100).await?;
/// assert_eq!(jobs.len(), 2);
/// orders.ack_all(jobs).await.all()?;
/// # Ok::<(), dwell_store::Error>(())
/// # }).unwrap();
/// ```
#[must_use = "nothing is taken before this is awaited or called"]
pub struct TakeJobs<N = One> {
    store: Arc<dyn Store>,
    take: Take,
    refusal: Option<Error>,
    /// The time without a job after which its stream ends.
    idle: Option<Duration>,
    number: PhantomData<N>,
}

impl TakeJobs<One> {
    pub(super) fn new(queue: &Queue) -> TakeJobs<One> {
        TakeJobs {
            store: Arc::clone(queue.store()),
            take: Take::from(queue.name().clone()),
            refusal: None,
            idle: None,
            number: PhantomData,
        }
    }

    /// Takes at most this many jobs, in one call: the answer is a `Vec` then. It waits only for the first
    /// one. No more than one call of the store may have ([`Limits::batch`](dwell_model::Limits::batch)) are
    /// taken at once.
    ///
    /// All leases begin with the take: they must last until the last of these jobs is done, also in a
    /// [`stream`](TakeJobs::stream).
    pub fn max(self, max: usize) -> TakeJobs<Many> {
        TakeJobs {
            store: self.store,
            take: self.take.max(max),
            refusal: self.refusal,
            idle: self.idle,
            number: PhantomData,
        }
    }

    /// Takes a job, and blocks until there is one or the wait is over. Not on a thread of an async runtime: it may hang for
    /// ever there, see [`blocking`].
    ///
    /// # Errors
    /// As [`Store::take`].
    pub fn call(self) -> Result<Option<blocking::Job>> {
        Ok(block_on(self.into_future())?.map(blocking::Job::from))
    }
}

impl TakeJobs<Many> {
    /// Sets the maximum size of the bodies together in bytes; at least one job is taken.
    pub fn max_bytes(self, max_bytes: usize) -> TakeJobs<Many> {
        TakeJobs { take: self.take.max_bytes(max_bytes), ..self }
    }

    /// Takes jobs, and blocks until there is one or the wait is over. Not on a thread of an async runtime: it may hang for
    /// ever there, see [`blocking`].
    ///
    /// # Errors
    /// As [`Store::take`].
    pub fn call(self) -> Result<Vec<blocking::Job>> {
        Ok(block_on(self.into_future())?.into_iter().map(blocking::Job::from).collect())
    }
}

impl<N> TakeJobs<N> {
    /// Sets how long to wait for the first job, if none is due. It wakes on the instant, without polling. A
    /// part of a millisecond counts as a whole one.
    ///
    /// A [`stream`](TakeJobs::stream) waits for the next job however long that takes, and is not affected by
    /// this: see [`until_idle`](TakeJobs::until_idle).
    pub fn wait(self, wait: Duration) -> TakeJobs<N> {
        TakeJobs { take: self.take.wait_ms(whole_ms(wait)), ..self }
    }

    /// Ends a [`stream`](TakeJobs::stream) when no job has come for this long; a paused queue has none. It
    /// does not affect a single take. A part of a millisecond counts as a whole one.
    pub fn until_idle(self, idle: Duration) -> TakeJobs<N> {
        TakeJobs { idle: Some(idle), ..self }
    }

    /// Sets the lease, over message and queue: 1 ms to 2^32 − 1 s. When it is over, an unsettled job may be
    /// handed to another consumer, with an attempt spent. A part of a millisecond counts as a whole one.
    #[doc(alias = "visibility timeout")]
    pub fn lease(self, lease: Duration) -> TakeJobs<N> {
        TakeJobs { take: self.take.lease_ms(whole_ms(lease)), ..self }
    }

    /// Makes the leases end with this process, however long they are: if it dies, its jobs are free when the
    /// store is opened again (the embedded engine), or soon after (shared stores; 15 s on Redis).
    ///
    /// A process that dies spends an attempt of each. One that closes the store spends none, unless the store is
    /// on Redis and cannot reach it for ten seconds.
    pub fn session(self) -> TakeJobs<N> {
        TakeJobs { take: self.take.session(), ..self }
    }

    /// Sets the name of the holder, which lists of leases show. 1 to 128 bytes of UTF-8 without control
    /// characters.
    pub fn holder<H>(mut self, holder: H) -> TakeJobs<N>
    where
        H: TryInto<Holder>,
        Invalid: From<H::Error>,
    {
        match holder.try_into().map_err(Invalid::from) {
            Ok(holder) => self.take.holder = Some(holder),
            Err(invalid) => self.refusal = self.refusal.or(Some(invalid.into())),
        }
        self
    }

    /// Takes from this queue too: a name, or a [`Queue`] of the same store. Across all of them jobs are
    /// handed out by (priority, due, id). On Redis the queues are compared as they were a moment before the
    /// take, so a message that arrives in between may be handed out late; in a [`stream`](TakeJobs::stream),
    /// jobs that it already holds come first.
    pub fn also_from<Q>(mut self, queue: Q) -> TakeJobs<N>
    where
        Q: TryInto<QueueName>,
        Invalid: From<Q::Error>,
    {
        match queue.try_into().map_err(Invalid::from) {
            Ok(queue) => self.take.queues.push(queue),
            Err(invalid) => self.refusal = self.refusal.or(Some(invalid.into())),
        }
        self
    }

    /// The jobs one after the other, as a stream: without end, unless [`until_idle`](TakeJobs::until_idle) is
    /// set. See [`Jobs`].
    pub fn stream(self) -> Jobs {
        Jobs::new(self)
    }

    /// The jobs one after the other, as a blocking iterator. See [`blocking::Jobs`]. Not on a thread of an
    /// async runtime: it may hang for ever there, see [`blocking`].
    pub fn iter(self) -> blocking::Jobs {
        blocking::Jobs::from(self.stream())
    }

    pub(super) fn idle(&self) -> Option<Duration> {
        self.idle
    }

    pub(super) fn asks_for_none(&self) -> bool {
        self.take.max == 0
    }

    /// The same request, for the number of jobs in it.
    pub(super) fn into_many(self) -> TakeJobs<Many> {
        TakeJobs {
            store: self.store,
            take: self.take,
            refusal: self.refusal,
            idle: self.idle,
            number: PhantomData,
        }
    }

    async fn jobs(self) -> Result<Vec<Job>> {
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        let deliveries = self.store.take(self.take).await?;
        Ok(deliveries.into_iter().map(|delivery| Job::new(&self.store, delivery)).collect())
    }
}

impl IntoFuture for TakeJobs<One> {
    type Output = Result<Option<Job>>;
    type IntoFuture = BoxFuture<'static, Result<Option<Job>>>;

    fn into_future(self) -> BoxFuture<'static, Result<Option<Job>>> {
        Box::pin(async move { Ok(self.jobs().await?.pop()) })
    }
}

impl IntoFuture for TakeJobs<Many> {
    type Output = Result<Vec<Job>>;
    type IntoFuture = BoxFuture<'static, Result<Vec<Job>>>;

    fn into_future(self) -> BoxFuture<'static, Result<Vec<Job>>> {
        Box::pin(self.jobs())
    }
}

// A derived implementation would require `N: Clone`.
impl<N> Clone for TakeJobs<N> {
    fn clone(&self) -> TakeJobs<N> {
        TakeJobs {
            store: Arc::clone(&self.store),
            take: self.take.clone(),
            refusal: self.refusal.clone(),
            idle: self.idle,
            number: PhantomData,
        }
    }
}

impl<N> fmt::Debug for TakeJobs<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TakeJobs")
            .field("take", &self.take)
            .field("refusal", &self.refusal)
            .finish_non_exhaustive()
    }
}

/// A request for one message by its id, whether it is scheduled, ready or dead; also from a paused queue.
#[derive(Clone)]
#[must_use = "nothing is taken before this is awaited or called"]
pub struct TakeId {
    store: Arc<dyn Store>,
    queue: QueueName,
    id: MessageId,
    terms: LeaseTerms,
    refusal: Option<Error>,
}

impl TakeId {
    pub(super) fn new(queue: &Queue, id: MessageId) -> TakeId {
        TakeId {
            store: Arc::clone(queue.store()),
            queue: queue.name().clone(),
            id,
            terms: LeaseTerms::default(),
            refusal: None,
        }
    }

    /// See [`TakeJobs::lease`].
    pub fn lease(self, lease: Duration) -> TakeId {
        let terms = LeaseTerms { lease_ms: Some(whole_ms(lease)), ..self.terms };
        TakeId { terms, ..self }
    }

    /// See [`TakeJobs::session`].
    pub fn session(self) -> TakeId {
        TakeId { terms: LeaseTerms { session: true, ..self.terms }, ..self }
    }

    /// See [`TakeJobs::holder`].
    pub fn holder<H>(mut self, holder: H) -> TakeId
    where
        H: TryInto<Holder>,
        Invalid: From<H::Error>,
    {
        match holder.try_into().map_err(Invalid::from) {
            Ok(holder) => self.terms.holder = Some(holder),
            Err(invalid) => self.refusal = self.refusal.or(Some(invalid.into())),
        }
        self
    }

    /// Takes the job, and blocks until it is answered. Not on a thread of an async runtime: it may hang for
    /// ever there, see [`blocking`].
    ///
    /// # Errors
    /// As [`Store::take_id`].
    pub fn call(self) -> Result<blocking::Job> {
        Ok(block_on(self.into_future())?.into())
    }
}

impl IntoFuture for TakeId {
    type Output = Result<Job>;
    type IntoFuture = BoxFuture<'static, Result<Job>>;

    fn into_future(self) -> BoxFuture<'static, Result<Job>> {
        Box::pin(async move {
            let TakeId { store, queue, id, terms, refusal } = self;
            if let Some(refusal) = refusal {
                return Err(refusal);
            }
            let delivery = store.take_id(queue, id, terms).await?;
            Ok(Job::new(&store, delivery))
        })
    }
}

impl fmt::Debug for TakeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TakeId").field("queue", &self.queue).field("id", &self.id).finish_non_exhaustive()
    }
}
