//! A job: a message that this consumer has leased, and the ways to settle it.
//!
//! Ground rule: dropping a job that was passed on makes no call of the store. A drop cannot wait for an
//! answer, and a worker that panics should count as one that died: the lease runs out, and the attempt is
//! spent.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dwell_model::{Limits, Receipt, Timestamp};
use futures_core::future::BoxFuture;
use pollster::block_on;

use super::{Answers, only, whole_ms};
use crate::{Action, Delivery, Result, Settle, Settled, Store};

/// A message that was handed to this consumer, until it settles it or its lease ends.
///
/// It dereferences to its [`Delivery`]: `job.text()?`, `job.attempt()`, `job.created()`. End it with one of
///
/// | call | the message |
/// |---|---|
/// | [`ack`](Job::ack) | is done, and removed |
/// | [`retry`](Job::retry) | has failed: it comes again after a delay, or is dead once its attempts are spent
/// |
/// | [`release`](Job::release) | is given back, without spending an attempt |
/// | [`bury`](Job::bury) | is set aside among the dead |
///
/// and keep its lease longer with [`extend`](Job::extend). Each fails with
/// [`Error::LeaseLost`](crate::Error::LeaseLost) once the lease has ended: then another consumer may already
/// have the message.
///
/// # A settlement that fails
/// The job still exists: after a retryable error ([`Error::is_retryable`](crate::Error::is_retryable)) it can
/// be settled again, in the same way or another one. Only one settlement takes effect: the later ones are
/// answered with `LeaseLost`. The same applies to the repeat of one whose outcome was unknown and that did
/// take effect.
///
/// # Long work
/// If the work takes longer than the lease, extend the lease meanwhile; nothing here needs exclusive access
/// to the job, so that a task beside the work can do it:
///
/// ```
/// # use std::time::Duration;
/// # use dwell_store::{Job, Result};
/// # async fn send(_: &str) -> Result<()> { Ok(()) }
/// # async fn first<T>(one: impl Future<Output = T>, _other: impl Future<Output = T>) -> T { one.await }
/// # async fn sleep(_: Duration) {}
/// /// Renews the lease for as long as it is not dropped.
/// async fn heartbeat(job: &Job) -> Result<()> {
///     loop {
///         sleep(Duration::from_secs(10)).await;
///         job.renew().await?;
///     }
/// }
///
/// async fn handle(job: Job) -> Result<()> {
///     // `select!`, or what your runtime has for the first of two.
///     first(send(job.text()?), heartbeat(&job)).await?;
///     job.ack().await
/// }
/// ```
///
/// # A job that is dropped
/// Nothing happens at once. The message stays leased until its lease ends; then it is ready again, with an
/// attempt spent, as if this process had died. So a handler that panics or returns early counts as one that
/// failed, and a message that makes it do so each time ends among the dead. If a job will not be handled,
/// call `release`. To settle it elsewhere, or later, keep its [`receipt`](Delivery::receipt).
///
/// ```
/// # use std::sync::Arc;
/// # use dwell_model::Limits;
/// # use dwell_store::{MemoryStore, Queue};
/// # use dwell_time::SystemClock;
/// use std::time::Duration;
///
/// fn send(mail: &str) -> Result<(), String> {
///     if mail.contains('@') { Ok(()) } else { Err(format!("'{mail}' is no address")) }
/// }
///
/// # pollster::block_on(async {
/// # let store = MemoryStore::new(Limits::default(), Arc::new(SystemClock::new()));
/// # let mails = Queue::new(Arc::new(store), "mails")?;
/// mails.put_many(["ann@example.org", "nobody"]).await.all()?;
/// while let Some(job) = mails.take().await? {
///     let sent = send(job.text()?);
///     match sent {
///         Ok(()) => job.ack().await?,
///         Err(error) if job.attempt() < 3 => {
///             job.retry(error).after(Duration::from_secs(60)).await?;
///         }
///         Err(error) => {
///             job.bury(error).await?;
///         }
///     }
/// }
/// # Ok::<(), dwell_store::Error>(())
/// # }).unwrap();
/// ```
#[must_use = "a job that is dropped is held until its lease ends; settle it"]
pub struct Job {
    store: Arc<dyn Store>,
    delivery: Delivery,
    /// When the lease runs out, by the last answer.
    held_until: Mutex<Timestamp>,
}

/// The part of a job that a settlement needs.
#[derive(Clone)]
pub(super) struct JobLease {
    store: Arc<dyn Store>,
    receipt: Receipt,
}

impl JobLease {
    async fn settle(self, action: Action) -> Result<Settled> {
        only(self.store.settle(vec![Settle { receipt: self.receipt, action }]).await)
    }
}

impl fmt::Debug for JobLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.receipt, f)
    }
}

impl Job {
    pub(super) fn new(store: &Arc<dyn Store>, delivery: Delivery) -> Job {
        Job { store: Arc::clone(store), held_until: Mutex::new(delivery.lease_until), delivery }
    }

    /// The work is done: the message is removed. The future does not borrow the job.
    ///
    /// # Errors
    /// [`Error::LeaseLost`](crate::Error::LeaseLost). After
    /// [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown) the message may come again: repeat the call.
    #[doc(alias = "complete")]
    #[doc(alias = "delete")]
    pub fn ack(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let held = self.held();
        async move { held.settle(Action::Ack).await.map(drop) }
    }

    /// The attempt has failed, and `error` is kept with the message: it is scheduled again after the queue's
    /// backoff, or dead if that was its last attempt. The answer says which.
    ///
    /// A text longer than [`Limits::MAX_ERROR_TEXT_LEN`] is truncated.
    #[doc(alias = "fail")]
    #[doc(alias = "nack")]
    pub fn retry(&self, error: impl fmt::Display) -> GiveBack {
        let error = Some(shortened(&error).into());
        GiveBack { held: self.held(), action: Action::Retry { after_ms: None, error, priority: None } }
    }

    /// Gives the message back without spending an attempt; it is ready again at once, or after a delay.
    #[doc(alias = "requeue")]
    pub fn release(&self) -> GiveBack {
        GiveBack { held: self.held(), action: Action::Release { after_ms: None, priority: None } }
    }

    /// Sets the message aside among the dead, where [`Queue::revive`](crate::Queue::revive) finds it;
    /// `reason` is kept with the message.
    ///
    /// A text longer than [`Limits::MAX_ERROR_TEXT_LEN`] is truncated.
    #[doc(alias = "dead letter")]
    #[doc(alias = "reject")]
    pub fn bury(&self, reason: impl fmt::Display) -> Bury {
        Bury { held: self.held(), reason: shortened(&reason), priority: None }
    }

    /// Sets the lease to this length, counted from now. Returns the instant at which the lease ends then, by
    /// the store's wall clock. A part of a millisecond counts as a whole one.
    ///
    /// # Errors
    /// [`Error::LeaseLost`](crate::Error::LeaseLost), and [`Error::Invalid`](crate::Error::Invalid) for less than 1 ms or
    /// more than 2^32 − 1 s.
    #[doc(alias = "touch")]
    #[doc(alias = "visibility timeout")]
    pub async fn extend(&self, lease: Duration) -> Result<Timestamp> {
        self.hold(Some(whole_ms(lease))).await
    }

    /// Sets the lease to the length that was last granted, by the take or by [`extend`](Job::extend), counted from now.
    ///
    /// # Errors
    /// [`Error::LeaseLost`](crate::Error::LeaseLost).
    pub async fn renew(&self) -> Result<Timestamp> {
        self.hold(None).await
    }

    /// When the lease runs out, by the store's wall clock: as of the take
    /// ([`lease_until`](Delivery::lease_until)), or of the last extension since.
    pub fn held_until(&self) -> Timestamp {
        *self.until()
    }

    /// The delivery without its store, to be settled in another way. Its `lease_until` is that of
    /// [`held_until`](Job::held_until).
    pub fn into_delivery(self) -> Delivery {
        let lease_until = self.held_until();
        Delivery { lease_until, ..self.delivery }
    }

    async fn hold(&self, lease_ms: Option<u64>) -> Result<Timestamp> {
        if let Settled::Leased(until) = self.held().settle(Action::Extend { lease_ms }).await? {
            *self.until() = until;
        }
        Ok(self.held_until())
    }

    /// No code that may panic runs under this lock.
    fn until(&self) -> MutexGuard<'_, Timestamp> {
        self.held_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn held(&self) -> JobLease {
        JobLease { store: Arc::clone(&self.store), receipt: self.delivery.receipt.clone() }
    }
}

impl Deref for Job {
    type Target = Delivery;

    fn deref(&self) -> &Delivery {
        &self.delivery
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Job").field(&self.delivery).finish()
    }
}

/// The text of an error, truncated to the maximum length.
fn shortened(text: &dyn fmt::Display) -> String {
    let mut text = text.to_string();
    text.truncate(text.floor_char_boundary(Limits::MAX_ERROR_TEXT_LEN));
    text
}

/// The same action, with its text truncated to the maximum length.
fn with_shortened_text(mut action: Action) -> Action {
    if let Action::Retry { error: Some(text), .. } | Action::Bury { reason: Some(text), .. } = &mut action
        && text.len() > Limits::MAX_ERROR_TEXT_LEN
    {
        *text = shortened(&*text).into();
    }
    action
}

/// A job to be given back, by [`Job::retry`] or [`Job::release`]: when this is awaited, or when
/// [`call`](GiveBack::call) is called.
#[derive(Clone, Debug)]
#[must_use = "nothing is given back before this is awaited or called"]
pub struct GiveBack {
    held: JobLease,
    action: Action,
}

impl GiveBack {
    /// Sets the delay: after a retry it replaces the queue's backoff, after a release it replaces none. A
    /// part of a millisecond counts as a whole one.
    pub fn after(mut self, delay: Duration) -> GiveBack {
        if let Action::Retry { after_ms, .. } | Action::Release { after_ms, .. } = &mut self.action {
            *after_ms = Some(whole_ms(delay));
        }
        self
    }

    /// Sets another priority from now on: smaller first.
    pub fn priority(mut self, new: u32) -> GiveBack {
        if let Action::Retry { priority, .. } | Action::Release { priority, .. } = &mut self.action {
            *priority = Some(new);
        }
        self
    }

    /// Gives the job back, and blocks until it is answered. Not on a thread of an async runtime: it may hang for
    /// ever there, see [`blocking`](crate::blocking).
    ///
    /// # Errors
    /// [`Error::LeaseLost`](crate::Error::LeaseLost), [`Error::Invalid`](crate::Error::Invalid) for a delay past 9999.
    pub fn call(self) -> Result<Settled> {
        block_on(self.into_future())
    }
}

impl IntoFuture for GiveBack {
    type Output = Result<Settled>;
    type IntoFuture = BoxFuture<'static, Result<Settled>>;

    fn into_future(self) -> BoxFuture<'static, Result<Settled>> {
        Box::pin(self.held.settle(self.action))
    }
}

/// A job to be buried, by [`Job::bury`]: when this is awaited, or when [`call`](Bury::call) is called.
#[derive(Clone, Debug)]
#[must_use = "nothing is buried before this is awaited or called"]
pub struct Bury {
    held: JobLease,
    reason: String,
    priority: Option<u32>,
}

impl Bury {
    /// Sets another priority, for when it is revived: smaller first.
    pub fn priority(self, priority: u32) -> Bury {
        Bury { priority: Some(priority), ..self }
    }

    /// Buries the job, and blocks until it is answered. Not on a thread of an async runtime: it may hang for
    /// ever there, see [`blocking`](crate::blocking).
    ///
    /// # Errors
    /// [`Error::LeaseLost`](crate::Error::LeaseLost).
    pub fn call(self) -> Result<Settled> {
        block_on(self.into_future())
    }
}

impl IntoFuture for Bury {
    type Output = Result<Settled>;
    type IntoFuture = BoxFuture<'static, Result<Settled>>;

    fn into_future(self) -> BoxFuture<'static, Result<Settled>> {
        let Bury { held, reason, priority } = self;
        Box::pin(held.settle(Action::Bury { reason: Some(reason.into()), priority }))
    }
}

/// Jobs to be settled together: when this is awaited, or when [`call`](SettleAll::call) is called.
///
/// There is one answer per job, in their order ([`Answers`]): a job whose lease is lost fails alone. If there
/// are more than one call of the store may have ([`Limits::batch`]), they are sent in several, one after the
/// other.
#[derive(Clone)]
#[must_use = "nothing is settled before this is awaited or called"]
pub struct SettleAll {
    settles: Vec<(JobLease, Action)>,
}

impl SettleAll {
    pub(super) fn new<J: Borrow<Job>>(jobs: impl IntoIterator<Item = (J, Action)>) -> SettleAll {
        SettleAll::of(jobs.into_iter().map(|(job, action)| {
            let job: &Job = job.borrow();
            (job.held(), action)
        }))
    }

    pub(super) fn of(settles: impl Iterator<Item = (JobLease, Action)>) -> SettleAll {
        SettleAll { settles: settles.map(|(held, action)| (held, with_shortened_text(action))).collect() }
    }

    /// Settles the jobs, and blocks until they are answered. Not on a thread of an async runtime: it may hang for
    /// ever there, see [`blocking`](crate::blocking).
    pub fn call(self) -> Answers<Settled> {
        block_on(self.into_future())
    }
}

impl IntoFuture for SettleAll {
    type Output = Answers<Settled>;
    type IntoFuture = BoxFuture<'static, Answers<Settled>>;

    fn into_future(self) -> BoxFuture<'static, Answers<Settled>> {
        Box::pin(async move {
            let mut answers = Vec::with_capacity(self.settles.len());
            let mut settles = self.settles.into_iter().peekable();
            while let Some((JobLease { store, receipt }, action)) = settles.next() {
                let batch = store.limits().batch.max(1);
                let mut run = vec![Settle { receipt, action }];
                while run.len() < batch
                    && let Some((held, action)) =
                        settles.next_if(|(held, _)| Arc::ptr_eq(&held.store, &store))
                {
                    run.push(Settle { receipt: held.receipt, action });
                }
                answers.extend(store.settle(run).await);
            }
            Answers::from(answers)
        })
    }
}

impl fmt::Debug for SettleAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SettleAll").field("settles", &self.settles.len()).finish_non_exhaustive()
    }
}
