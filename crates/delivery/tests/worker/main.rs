//! Workers on a store in memory: outcomes, limits, timeouts, failures of every kind, and the end.
//!
//! - `outcomes`, `lanes`, `time`: what a handler's outcome does; which messages are taken; leases and timeouts
//! - `destinations`, `suspects`: destinations that are down; messages that may have killed their process
//! - `store_failures`, `end`: stores that do not answer; the end of a worker

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod destinations;
mod end;
mod lanes;
mod outcomes;
mod store_failures;
mod suspects;
mod time;

use std::collections::HashSet;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dwell_delivery::{Error, Failure, Fired, Job, Ladder, Lane, Outcome, Rate, Worker};
use dwell_model::{
    AttemptLimit, DeathReason, Limits, Message, OnExpiry, QueueName, Setting, State, Timestamp,
};
use dwell_store::{
    Action, Delivery, Json, MemoryStore, Put, PutAnswer, Queue, Result as StoreResult, Settle, Settled,
    Store, Take, Target, When, async_trait, delegate_store,
};
use dwell_time::{Clock, ManualClock, SystemClock};
use tokio::sync::{Semaphore, mpsc, watch};

const PATIENCE: Duration = Duration::from_secs(60);

/// The future's output; panics if it takes too long.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
}

/// Polls until it is true, for what sends no event; panics if it takes too long.
async fn eventually(is_so: impl AsyncFn() -> bool) {
    let so = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    within(so).await;
}

/// A store that counts extended leases, and fails as many calls as a test sets.
struct WatchedStore {
    inner: MemoryStore,
    extended: watch::Sender<usize>,
    failures: AtomicUsize,
    /// Calls of `settle` that never return.
    hangs: AtomicUsize,
    /// Calls of `take` that never return.
    take_hangs: AtomicUsize,
    takes: AtomicUsize,
    /// Calls that read messages.
    looks: AtomicUsize,
    /// The error of takes.
    refusal: Mutex<Option<dwell_store::Error>>,
    refused: AtomicUsize,
}

/// Whether one is left; decrements it if so.
fn spent(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

#[async_trait]
impl Store for WatchedStore {
    async fn take(&self, take: Take) -> StoreResult<Vec<Delivery>> {
        self.takes.fetch_add(1, Ordering::Relaxed);
        if spent(&self.take_hangs) {
            std::future::pending::<()>().await;
        }
        let refusal = self.refusal.lock().unwrap().clone();
        if let Some(refusal) = refusal {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(refusal);
        }
        self.inner.take(take).await
    }

    async fn get(&self, queue: QueueName, targets: Vec<Target>, dead: bool) -> Vec<StoreResult<Message>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.inner.get(queue, targets, dead).await
    }

    async fn settle(&self, settles: Vec<Settle>) -> Vec<StoreResult<Settled>> {
        if spent(&self.hangs) {
            std::future::pending::<()>().await;
        }
        if spent(&self.failures) {
            let refusal = dwell_store::Error::Unavailable { reason: "a test says so".into() };
            return settles.iter().map(|_| Err(refusal.clone())).collect();
        }
        let extends = settles.iter().filter(|settle| matches!(settle.action, Action::Extend { .. })).count();
        let answers = self.inner.settle(settles).await;
        self.extended.send_modify(|count| *count += extends);
        answers
    }

    delegate_store! {
        self.inner;
        own: take settle get;
        forward: put take_id expire_lease cancel reschedule locate list peek stats forecast queues ready;
        forward: configure revive deaths discard purge delete_queue;
    }
}

/// A store, its clock, and a worker's clock.
struct Stage {
    store: Arc<WatchedStore>,
    clock: Arc<dyn Clock>,
    manual: ManualClock,
}

impl Stage {
    /// With the machine's clock.
    fn real() -> Stage {
        Stage::on(Arc::new(SystemClock::new()))
    }

    /// With a clock that the test moves.
    fn manual() -> Stage {
        let manual = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
        Stage { manual: manual.clone(), ..Stage::on(Arc::new(manual)) }
    }

    fn on(clock: Arc<dyn Clock>) -> Stage {
        let store = WatchedStore {
            inner: MemoryStore::new(Limits::default(), Arc::clone(&clock)),
            extended: watch::Sender::new(0),
            failures: AtomicUsize::new(0),
            hangs: AtomicUsize::new(0),
            take_hangs: AtomicUsize::new(0),
            takes: AtomicUsize::new(0),
            looks: AtomicUsize::new(0),
            refusal: Mutex::new(None),
            refused: AtomicUsize::new(0),
        };
        Stage { store: Arc::new(store), clock, manual: ManualClock::new(Timestamp::MIN) }
    }

    fn worker(&self) -> Worker {
        Worker::new(Arc::clone(&self.store) as Arc<dyn Store>).on_clock(Arc::clone(&self.clock))
    }

    fn queue(&self, name: &str) -> Queue {
        Queue::new(Arc::clone(&self.store) as Arc<dyn Store>, name).unwrap()
    }

    async fn put(&self, queue: &str, bodies: &[&str]) -> Vec<PutAnswer> {
        self.queue(queue).put_many(bodies.iter().copied()).await.all().unwrap()
    }

    async fn get(&self, queue: &str, put: &PutAnswer) -> Message {
        self.queue(queue).get(put.id).await.unwrap()
    }

    async fn leased(&self, queue: &str) -> u64 {
        self.queue(queue).stats().await.map_or(0, |stats| stats.counts.leased)
    }

    /// The number of waiting takes.
    async fn waiting(&self, queue: &str) -> u64 {
        self.queue(queue).stats().await.map_or(0, |stats| stats.waiting)
    }

    /// Waits until this many leases were extended in all.
    async fn extended(&self, count: usize) {
        within(self.store.extended.subscribe().wait_for(|extended| *extended >= count)).await.unwrap();
    }

    /// Lets leases of a queue lapse, as when a process dies with all its messages.
    async fn lapse(&self, queue: &str, times: usize) {
        let queue: QueueName = queue.parse().unwrap();
        for _ in 0..times {
            let taken =
                self.store.inner.take(Take::from(queue.clone()).max(1_000).lease_ms(1_000)).await.unwrap();
            assert!(!taken.is_empty());
            self.manual.advance(1_000);
        }
    }
}

/// A worker that runs in a task, until it is stopped.
struct Running {
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<Result<(), Error>>,
}

fn start(worker: Worker) -> Running {
    let (stop, mut stopped) = watch::channel(false);
    let until = async move { drop(stopped.wait_for(|stop| *stop).await) };
    Running { stop, task: tokio::spawn(worker.run_until(until)) }
}

impl Running {
    fn ask_to_stop(&self) {
        self.stop.send_replace(true);
    }

    async fn ended(self) -> Result<(), Error> {
        within(self.task).await.unwrap()
    }

    async fn stop(self) {
        self.ask_to_stop();
        self.ended().await.unwrap();
    }
}

/// A channel whose receiver gets `count` values, or panics.
fn heard<T>() -> (mpsc::UnboundedSender<T>, Heard<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, Heard(receiver))
}

struct Heard<T>(mpsc::UnboundedReceiver<T>);

impl<T> Heard<T> {
    async fn next(&mut self) -> T {
        within(self.0.recv()).await.expect("somebody can still say it")
    }

    async fn take(&mut self, count: usize) -> Vec<T> {
        let mut all = Vec::new();
        while all.len() < count {
            all.push(self.next().await);
        }
        all
    }
}

fn text(job: &Job) -> String {
    job.text().unwrap().to_owned()
}

/// The future's output, while the clock advances: a step, and a pause for the tasks that it wakes. Four of the longest
/// steps are within a lease.
async fn stepping<T>(clock: &ManualClock, step_ms: u64, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    for _ in 0..4 {
        clock.advance(step_ms);
        if let Ok(output) = tokio::time::timeout(Duration::from_secs(5), &mut future).await {
            return output;
        }
    }
    panic!("it does not end, though time passes");
}

/// The reason of its death, if it is dead.
fn death(message: &Message) -> Option<DeathReason> {
    match message.standing.state {
        State::Dead(death) => Some(death.reason),
        _ => None,
    }
}

/// Hides from the compiler that what follows is unreachable.
fn stage_is_a_test() -> bool {
    std::hint::black_box(true)
}
