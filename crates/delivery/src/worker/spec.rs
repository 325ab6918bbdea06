//! The configuration of a lane: its queue, its handler, its limits.

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
use crate::{Error, Ladder, Result, Switch, whole_ms};

/// One queue with its handler. The constants are the defaults.
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
    switch: Switch,
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
    pub(super) switch: Switch,
    pub(super) stats: Arc<Stats>,
}

/// The kind of a handler.
#[derive(Clone)]
pub(super) enum Handler {
    Each(Arc<dyn Fn(Job) -> BoxFuture<'static, Outcome> + Send + Sync>),
    Blocking(Arc<dyn Fn(Job) -> Outcome + Send + Sync>),
    Batch(Arc<dyn Fn(Vec<Job>) -> BoxFuture<'static, Vec<Outcome>> + Send + Sync>),
}

/// Probes a destination without a message.
pub(super) type Probe = Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

impl Lane {
    /// The default number of concurrent messages.
    pub const CONCURRENCY: usize = 16;
    /// The maximum number of concurrent messages.
    pub const MAX_CONCURRENCY: usize = 100_000;
    /// The default timeout of a handler, in milliseconds.
    pub const TIMEOUT_MS: u64 = 600_000;
    /// The default lease of a message, in milliseconds. It is renewed after a third.
    pub const LEASE_MS: u64 = 30_000;
    /// The shortest lease, in milliseconds: a shorter one could end before a slow call has renewed it.
    pub const MIN_LEASE_MS: u64 = 1_000;

    /// Calls an async handler for each message of `queue`. Handlers run concurrently, on all threads of the runtime.
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
    /// It cannot be stopped: one that times out keeps its slot until it returns, though its message has failed already.
    /// It should check [`Job::token`].
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

    /// Calls an async handler with all messages of one take: at most [`concurrency`](Lane::concurrency) of them. It
    /// returns an outcome for each, in their order; messages for which there is none have failed this attempt.
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
            switch: Switch::new(),
            stats: Arc::default(),
        }
    }

    /// The maximum number of concurrent messages, 1 to [`Lane::MAX_CONCURRENCY`].
    pub fn concurrency(mut self, messages: usize) -> Lane {
        self.bounds.slots = messages;
        self
    }

    /// The maximum rate of messages.
    pub fn rate(mut self, rate: Rate) -> Lane {
        self.bounds.rate = Some(rate);
        self
    }

    /// The maximum body bytes in flight. A single message of any length is taken.
    pub fn bytes_in_flight(mut self, bytes: usize) -> Lane {
        self.bounds.bytes = Some(bytes);
        self
    }

    /// Handles messages one after the other, in the order of the queue. The messages of one take are settled before the
    /// next take; a message that fails holds the lane until it is done or dead.
    ///
    /// This holds within one worker. Another worker still takes from the queue.
    pub fn strict(mut self) -> Lane {
        self.bounds.is_strict = true;
        self
    }

    /// Delays between attempts, in place of the queue's backoff.
    pub fn retry(mut self, ladder: Ladder) -> Lane {
        self.ladder = Some(ladder);
        self
    }

    /// The timeout of a handler. Then an async one is dropped, and the attempt has failed. It is rounded up to
    /// milliseconds.
    pub fn timeout(mut self, timeout: Duration) -> Lane {
        self.timeout_ms = whole_ms(timeout);
        self
    }

    /// The lease of a message: the time until others get the messages of a process that has died. It is renewed while a
    /// handler runs. At least [`Lane::MIN_LEASE_MS`], rounded up to milliseconds.
    pub fn lease(mut self, lease: Duration) -> Lane {
        self.lease_ms = whole_ms(lease);
        self
    }

    /// Sets a probe of the destination without a message, for when the breaker has opened: `true` if it is up. Its
    /// timeout is that of a handler.
    pub fn probe<F, R>(mut self, probe: F) -> Lane
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = bool> + Send + 'static,
    {
        self.probe = Some(Arc::new(move || Box::pin(probe())));
        self
    }

    /// Takes nothing while this switch is paused. Several lanes may share one.
    pub fn switch(mut self, switch: &Switch) -> Lane {
        self.switch = switch.clone();
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
        let Lane { handler, bounds, ladder, timeout_ms, lease_ms, probe, switch, stats, .. } = self;
        Ok(Spec { queue, handler, bounds, ladder, timeout_ms, lease_ms, probe, switch, stats })
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
