//! What is said of a lane: its queue, its handler, its bounds.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use dwell_model::{QueueName, Setting};
use dwell_store::BoxFuture;

use super::Stats;
use crate::job::{FromJob, Job};
use crate::lane::{Bounds, Rate};
use crate::outcome::{IntoOutcome, Outcome};
use crate::{Error, Ladder, Result, whole_ms};

/// One queue with its handler. What is not said is as the constants here have it.
///
/// ```
/// use std::time::Duration;
///
/// use dwell_delivery::{Failure, Job, Ladder, Lane, Rate};
///
/// async fn send(job: Job) -> Result<(), Failure> {
///     println!("{}", job.text()?);
///     Ok(())
/// }
///
/// let mails = Lane::new("mails", send)
///     .concurrency(16)
///     .rate(Rate::per_second(100))
///     .retry(Ladder::parse(["1s", "5s", "30s", "2m", "10m", "1h"])?)
///     .timeout(Duration::from_secs(30));
/// # Ok::<(), dwell_delivery::Error>(())
/// ```
#[must_use = "a lane does nothing before a worker runs it"]
pub struct Lane {
    queue: String,
    handler: Handler,
    bounds: Bounds,
    ladder: Option<Ladder>,
    timeout_ms: u64,
    lease_ms: u64,
    probe: Option<Probe>,
    pub(super) stats: Arc<Stats>,
}

/// A lane that was checked.
pub(super) struct Spec {
    pub(super) queue: QueueName,
    pub(super) handler: Handler,
    pub(super) bounds: Bounds,
    pub(super) ladder: Option<Ladder>,
    pub(super) timeout_ms: u64,
    pub(super) lease_ms: u64,
    pub(super) probe: Option<Probe>,
    pub(super) stats: Arc<Stats>,
}

/// How messages are handled.
#[derive(Clone)]
pub(super) enum Handler {
    Each(Arc<dyn Fn(Job) -> BoxFuture<'static, Outcome> + Send + Sync>),
    Blocking(Arc<dyn Fn(Job) -> Outcome + Send + Sync>),
    Batch(Arc<dyn Fn(Vec<Job>) -> BoxFuture<'static, Vec<Outcome>> + Send + Sync>),
}

/// Tries a destination without a message.
pub(super) type Probe = Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

impl Lane {
    /// Messages at a time.
    pub const CONCURRENCY: usize = 16;
    /// The most messages at a time.
    pub const MAX_CONCURRENCY: usize = 100_000;
    /// How long a handler may take, in milliseconds.
    pub const TIMEOUT_MS: u64 = 600_000;
    /// The lease of a message, in milliseconds. It is renewed at a third.
    pub const LEASE_MS: u64 = 30_000;
    /// The shortest lease, in milliseconds: shorter ones end before a slow call has renewed them.
    pub const MIN_LEASE_MS: u64 = 1_000;

    /// Calls an async handler for each message of `queue`. Handlers run beside each other, on all threads of the runtime.
    pub fn new<A, F, R>(queue: &str, handler: F) -> Lane
    where
        A: FromJob + 'static,
        F: Fn(A) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        let handler = Arc::new(handler);
        Lane::of(
            queue,
            Handler::Each(Arc::new(move |job| {
                let handler = Arc::clone(&handler);
                match A::from_job(job) {
                    Ok(argument) => {
                        let handling = handler(argument);
                        Box::pin(async move { handling.await.into_outcome() })
                    }
                    Err(outcome) => Box::pin(std::future::ready(outcome)),
                }
            })),
        )
    }

    /// Calls a blocking handler for each message of `queue`, on threads that may block.
    ///
    /// It cannot be stopped: one that exceeds its time keeps its slot until it returns, though its message has failed already. It should look at
    /// [`Job::token`].
    pub fn blocking<A, F, R>(queue: &str, handler: F) -> Lane
    where
        A: FromJob + 'static,
        F: Fn(A) -> R + Send + Sync + 'static,
        R: IntoOutcome,
    {
        let handle = move |job| match A::from_job(job) {
            Ok(argument) => handler(argument).into_outcome(),
            Err(outcome) => outcome,
        };
        Lane::of(queue, Handler::Blocking(Arc::new(handle)))
    }

    /// Calls an async handler with all messages that one take has brought: at most [`concurrency`](Lane::concurrency) of them. It returns an
    /// outcome for each, in their order; messages for which there is none have failed this attempt.
    pub fn batch<F, R>(queue: &str, handler: F) -> Lane
    where
        F: Fn(Vec<Job>) -> R + Send + Sync + 'static,
        R: Future<Output = Vec<Outcome>> + Send + 'static,
    {
        Lane::of(queue, Handler::Batch(Arc::new(move |jobs| Box::pin(handler(jobs)))))
    }

    fn of(queue: &str, handler: Handler) -> Lane {
        Lane {
            queue: queue.to_owned(),
            handler,
            bounds: Bounds { slots: Lane::CONCURRENCY, rate: None, bytes: None, is_strict: false },
            ladder: None,
            timeout_ms: Lane::TIMEOUT_MS,
            lease_ms: Lane::LEASE_MS,
            probe: None,
            stats: Arc::default(),
        }
    }

    /// At most so many messages at a time, 1 to [`Lane::MAX_CONCURRENCY`].
    pub fn concurrency(mut self, messages: usize) -> Lane {
        self.bounds.slots = messages;
        self
    }

    /// At most so many messages in a time.
    pub fn rate(mut self, rate: Rate) -> Lane {
        self.bounds.rate = Some(rate);
        self
    }

    /// At most so many bytes of bodies at a time. One message is taken however long it is.
    pub fn bytes_in_flight(mut self, bytes: usize) -> Lane {
        self.bounds.bytes = Some(bytes);
        self
    }

    /// Handles messages one after the other, in the order of the queue. What one take has brought is settled before the next; a message that
    /// fails holds the lane until it is done or dead.
    ///
    /// This is so in one worker. Another worker takes from the queue all the same.
    pub fn strict(mut self) -> Lane {
        self.bounds.is_strict = true;
        self
    }

    /// Delays between attempts, in place of the queue's backoff.
    pub fn retry(mut self, ladder: Ladder) -> Lane {
        self.ladder = Some(ladder);
        self
    }

    /// How long a handler may take. Then an async one is dropped, and the attempt has failed. A part of a millisecond counts as a whole
    /// one.
    pub fn timeout(mut self, timeout: Duration) -> Lane {
        self.timeout_ms = whole_ms(timeout);
        self
    }

    /// The lease of a message: how long it takes until others get what this process had when it died. It is renewed while a handler
    /// runs. From [`Lane::MIN_LEASE_MS`] up; a part of a millisecond counts as a whole one.
    pub fn lease(mut self, lease: Duration) -> Lane {
        self.lease_ms = whole_ms(lease);
        self
    }

    /// How the destination is tried without a message, once the breaker has opened: `true` if it is up. It has the time of a handler.
    pub fn probe<F, R>(mut self, probe: F) -> Lane
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = bool> + Send + 'static,
    {
        self.probe = Some(Arc::new(move || Box::pin(probe())));
        self
    }

    pub(super) fn checked(self) -> Result<Spec> {
        let queue: QueueName = self.queue.parse().map_err(dwell_store::Error::from)?;
        let refuse = |reason: String| {
            Err(Error::InvalidLane { reason: format!("the lane of queue '{queue}': {reason}").into() })
        };
        if !(1..=Lane::MAX_CONCURRENCY).contains(&self.bounds.slots) {
            return refuse(format!(
                "concurrency is 1 to {}, not {}",
                Lane::MAX_CONCURRENCY,
                self.bounds.slots
            ));
        }
        if let Some(Rate { messages, per_ms }) = self.bounds.rate
            && (messages == 0 || per_ms == 0)
        {
            return refuse(format!("a rate is at least 1 message in 1 ms, not {messages} in {per_ms} ms"));
        }
        if self.timeout_ms == 0 {
            return refuse("a handler has at least 1 ms".into());
        }
        if !(Lane::MIN_LEASE_MS..=Setting::MAX_LEASE_MS).contains(&self.lease_ms) {
            return refuse(format!(
                "a lease lasts {} to {} ms, not {}",
                Lane::MIN_LEASE_MS,
                Setting::MAX_LEASE_MS,
                self.lease_ms
            ));
        }
        let Lane { handler, bounds, ladder, timeout_ms, lease_ms, probe, stats, .. } = self;
        Ok(Spec { queue, handler, bounds, ladder, timeout_ms, lease_ms, probe, stats })
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("queue", &self.queue)
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}
