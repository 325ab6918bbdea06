//! The worker: takes due messages from a store and calls a handler for each queue.
//!
//! # What a handler can rely on
//! - A message is handled at least once, and its lease is renewed for as long as that takes.
//! - Each lane takes only as many messages as it has free slots, and none waits for another.
//! - A handler that panics or times out has failed one attempt. A message that kills the process again and again is run
//!   alone, and is dead in the end: see [`suspect`](crate::suspect).
//! - While its destination is down, a lane takes nothing and spends no attempt: see [`breaker`](crate::breaker).
//!
//! # Layout
//! - [`Worker`]: the lanes, and their common configuration
//! - [`Lane`]: one queue, its handler and its limits
//! - [`Stats`]: the counts of a lane
//! - `run`: the tasks of a running worker, and their end
//! - `lane`: the task of a lane; `handling`: one message in its handler
//! - `keeper`, `settler`: the tasks that renew leases and settle messages, for all lanes

mod handling;
mod keeper;
mod lane;
mod run;
mod settler;
mod shared;
mod spec;
mod stats;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use dwell_store::Store;
use dwell_time::{Clock, SystemClock};

use self::run::Terms;
use crate::job::FromJob;
use crate::outcome::IntoOutcome;
use crate::{Error, IntoStore, Result, whole_ms};

pub use spec::Lane;
pub use stats::Stats;

/// Handlers for queues of one store, before they run.
///
/// It runs on a Tokio runtime, in this process, over any store: one that is open here, or a client of a remote one.
///
/// ```
/// use std::sync::Arc;
///
/// use dwell_delivery::Worker;
/// use dwell_model::Limits;
/// use dwell_store::{Json, MemoryStore, Queue};
/// use dwell_time::SystemClock;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), dwell_delivery::Error> {
/// let store = Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
/// Queue::new(store.clone(), "orders")?.put(Json(7)).await?;
///
/// let (closed, mut heard) = tokio::sync::mpsc::channel(1);
/// let close_order = move |Json(order): Json<u64>| {
///     let closed = closed.clone();
///     // An error would be a retry.
///     async move { closed.send(order).await }
/// };
/// let worker = Worker::new(store).handle("orders", close_order);
/// // It ends when the first order is closed; `run` would go on.
/// worker.run_until(async { assert_eq!(heard.recv().await, Some(7)) }).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a worker does nothing before it is run"]
pub struct Worker {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    lanes: Vec<Lane>,
    terms: Terms,
}

impl Worker {
    /// The default time that running handlers have when the worker is asked to end, in milliseconds: see
    /// [`drain`](Worker::drain).
    pub const DRAIN_MS: u64 = 30_000;

    /// A worker over this store, without handlers.
    pub fn new(store: impl IntoStore) -> Worker {
        let clock = Arc::new(SystemClock::new());
        Worker {
            store: store.into_store(),
            clock,
            lanes: Vec::new(),
            terms: Terms { drain_ms: Worker::DRAIN_MS, is_session: false, is_lasting: false },
        }
    }

    /// Calls `handler` for each message of `queue`, with the default limits of a [`Lane`].
    pub fn handle<A, F, R>(self, queue: &str, handler: F) -> Worker
    where
        A: FromJob + 'static,
        F: Fn(A) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.lane(Lane::new(queue, handler))
    }

    /// Adds this lane.
    pub fn lane(mut self, lane: Lane) -> Worker {
        self.lanes.push(lane);
        self
    }

    /// How long running handlers have when the worker is asked to end.
    pub fn drain(mut self, drain: Duration) -> Worker {
        self.terms.drain_ms = whole_ms(drain);
        self
    }

    /// Takes session leases: those that end with this process. For a store that is open in this process: if that dies, its messages are
    /// free when the store is opened again, and not only when their leases end.
    pub fn session_leases(mut self) -> Worker {
        self.terms.is_session = true;
        self
    }

    /// Keeps the worker running if the store answers a lane with an error that is not retryable: the lane retries every 30 s.
    /// For a worker that is not restarted, as in a server. It still ends when the store has to be opened again.
    pub fn lasting(mut self) -> Worker {
        self.terms.is_lasting = true;
        self
    }

    /// Uses this clock, in place of the machine's, for tests that control one.
    pub fn on_clock(self, clock: Arc<dyn Clock>) -> Worker {
        Worker { clock, ..self }
    }

    /// The counts of the lanes, in the order in which they were added; also while the worker runs.
    pub fn stats(&self) -> Vec<Arc<Stats>> {
        self.lanes.iter().map(|lane| Arc::clone(&lane.stats)).collect()
    }

    /// Runs until the store has to be opened again.
    ///
    /// # Errors
    /// Those of [`run_until`](Worker::run_until).
    pub async fn run(self) -> Result<()> {
        self.run_until(std::future::pending()).await
    }

    /// Runs until `stop` completes, then drains: takes end, running handlers have the time of [`drain`](Worker::drain),
    /// and those that remain are dropped and their messages released with no attempt spent. A blocking handler that
    /// still runs is abandoned: its lease runs out. So do the leases of messages that the store has not taken back within
    /// eleven seconds after the drain: a store that is down does not delay the end.
    ///
    /// If it is dropped before it completes, it leaves its messages to their leases.
    ///
    /// # Errors
    /// [`Error::InvalidLane`], [`Error::DuplicateLane`] before anything is taken; the store's, if it has to be opened
    /// again, or refuses a lane's calls for good and the worker is not [lasting](Worker::lasting).
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) -> Result<()> {
        if self.lanes.is_empty() {
            return Err(Error::InvalidLane { reason: "it has no handler; add one with `handle`".into() });
        }
        let mut queues = BTreeSet::new();
        let mut specs = Vec::new();
        for lane in self.lanes {
            let spec = lane.checked()?;
            if !queues.insert(spec.queue.as_str().to_owned()) {
                return Err(Error::DuplicateLane { queue: spec.queue });
            }
            specs.push(spec);
        }
        run::run(self.store, self.clock, specs, self.terms, stop).await
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("lanes", &self.lanes)
            .field("drain_ms", &self.terms.drain_ms)
            .finish_non_exhaustive()
    }
}
