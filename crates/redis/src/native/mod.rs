//! The native store: queues that many machines share over one Redis.
//!
//! Every call is one script on one partition, or a few where it names several queues; `docs/redis.md` has every key
//! and what each script costs. No background process moves messages: each call first applies what time has brought
//! about.
//!
//! # Layout
//! - `lua/`: the scripts; `scripts` assembles them, `script_call` calls them, `pack` encodes their arguments and
//!   replies; `confirm`: connections for calls that replicas confirm; `said`: the meaning of the server's errors;
//!   `recent`: a bounded map
//! - `layout`, `message`, `settings`: where data is stored, and how it is read
//! - `partition`: calls on partitions, and queues that are spread over several; `repartition`: changing the number of
//!   partitions
//! - `directory`: what the queues share: names, numbers; `lost_queues`: restoring what it has lost; `session_leases`:
//!   the processes, and session leases
//! - `put`, `take`, `settle`, `expire_lease`, `change`, `inspect`, `forecast`, `configure`, `dead`, `purge`: one call
//!   each, with its relatives; `walk`: lists of leased messages; `retention`, `deaths`: how long messages stay dead,
//!   and the counts of deaths
//! - `waiting`, `timer`, `give_backs`: takes that wait, the tasks that ask for them and wake them, and messages whose
//!   callers have gone
//! - `open`: the requirements on a Redis, and the background tasks

mod change;
mod configure;
mod confirm;
mod dead;
mod deaths;
mod directory;
mod expire_lease;
mod forecast;
mod give_backs;
mod inspect;
mod layout;
mod lost_queues;
mod message;
mod open;
mod pack;
mod partition;
mod purge;
mod put;
mod recent;
mod repartition;
mod retention;
mod script_call;
mod scripts;
mod session_leases;
mod settings;
mod settle;
mod take;
mod timer;
mod waiting;
mod walk;

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use async_trait::async_trait;
use dwell_model::{
    Cursor, Limits, Message, MessageId, Number, QueueName, SettingChange, StateKind, Timestamp,
};
use dwell_store::{
    BulkOutcome, Cancelled, Delivery, Error, Forecast, LeaseRef, LeaseTerms, Page, Put, PutAnswer,
    QueueDeaths, QueueStats, Rescheduled, Result, Selection, Settle, Settled, Store, Take, Target, When,
};
use dwell_time::Clock;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

use deaths::Deaths;
use directory::{BlockPace, KnownBlocks, ReservedNumbers};
use give_backs::GiveBacks;
use layout::Partition;
use lost_queues::UsedQueues;
use open::{LEAVING, Stranger};
use pack::Pack;
use recent::Recent;
use script_call::Wire;
use session_leases::SessionLeases;
use take::{CappedQueues, LeaseCount};
use timer::Timer;
use waiting::WaitingTakes;
use walk::LeasedWalks;

use crate::OpenError;

/// A store over one Redis, shared with every process that opens the same address and prefix.
///
/// Its calls run on the Tokio runtime that it was opened on, or on its own one ([`RedisStore::open_with_thread`],
/// [`RedisStore::open_with_thread_async`]), and may be awaited anywhere. A thread that blocks on a call must not be
/// one that the store's runtime needs: on a worker thread of that runtime, or on the thread that drives a
/// current-thread runtime, the call may never return.
///
/// - **Time** is the server's wall clock. A step of that clock moves what is due, and leases with it.
/// - **Session leases** end with this process: when the store is opened again under the same `client` name, or
///   when the process has sent no heartbeat for 15 seconds.
/// - **Numbers** rise within a process; between processes they rise by blocks of 256.
/// - **The cap of leased messages** is watched, not locked: several processes together may pass it for a moment.
pub struct RedisStore {
    inner: Arc<Inner>,
    runtime: Handle,
    /// The runtime itself, if the store owns one.
    own_runtime: Option<OwnRuntime>,
}

/// A runtime that a store owns. Dropping a [`Runtime`] blocks until its tasks have ended, which a thread of another
/// runtime must not do.
struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    /// Starts it, with one thread.
    fn start() -> std::result::Result<OwnRuntime, OpenError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("dwell-redis")
            .enable_all()
            .build()
            .map_err(|error| OpenError::Threads { reason: error.to_string() })?;
        Ok(OwnRuntime(Some(runtime)))
    }

    fn get(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until it is dropped")
    }

    /// Shuts it down after `last`, on a thread that waits for that. Where the operating system gives no thread, it is
    /// shut down at once.
    fn end_after(self, last: impl Future<Output = ()> + Send + 'static) {
        let thread = std::thread::Builder::new().name("dwell-redis-end".to_owned());
        let _ = thread.spawn(move || self.get().block_on(last));
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The state that the calls share.
struct Inner {
    wire: Wire,
    limits: Limits,
    /// The default settings, as scripts receive them.
    defaults: Pack,
    clock: Arc<dyn Clock>,
    /// Queues whose number of partitions differs from the default, as far as this process knows. For one that was
    /// dropped from the map, a script returns the number of partitions again.
    known_partitions: Mutex<Recent<QueueName, u16>>,
    /// Chooses the partition of the next message without a key or idempotency key, in a queue that is spread.
    turn: AtomicUsize,
    numbers: tokio::sync::Mutex<ReservedNumbers>,
    /// Blocks of numbers that are entered in the directory for this process and its partitions.
    entered: Mutex<KnownBlocks>,
    /// The block that follows those which this process has reserved.
    reserved: AtomicU64,
    /// The highest registration that is known to have been given up.
    given_up: AtomicU64,
    /// The queues that this process uses: the directory must have them.
    used: Mutex<UsedQueues>,
    /// The pace at which unused old blocks of numbers are looked for.
    pace: Mutex<BlockPace>,
    /// Where this process binds leases.
    session: Mutex<SessionLeases>,
    /// Notified when the directory has removed some of its partitions, or no take under way may bind any leases.
    left: Notify,
    /// The number of slices of session leases that were ended.
    released: AtomicU64,
    /// The number of queues in the directory when it was last asked.
    queue_count: AtomicU64,
    /// Queues that were empty, to be unregistered.
    bare: Mutex<HashSet<QueueName>>,
    /// Partitions where data was set aside, to be deleted.
    trash: Mutex<HashSet<Partition>>,
    /// Partitions with more dead messages past their queue's retention than calls discard along the way.
    retaining: Mutex<HashSet<Partition>>,
    /// The counts of deaths and discards from the replies to this process.
    deaths: Mutex<Deaths>,
    /// When to look through all queues for trash and for dead messages past retention next, on the clock for timeouts.
    look_ms: AtomicU64,
    leased: tokio::sync::Mutex<LeaseCount>,
    /// How many times leases were counted.
    lease_counts: AtomicU64,
    held_up: Mutex<CappedQueues>,
    /// The number of leases that have ended since this counter was last read.
    ended: AtomicU64,
    takes: AtomicU64,
    /// The number of scripts that were called on partitions.
    calls: AtomicU64,
    waiters: WaitingTakes,
    walks: Mutex<LeasedWalks>,
    /// The eviction policy of a server that was set to evict since the store was opened.
    evicting: Mutex<Option<String>>,
    /// Why this process is not registered in the directory yet, where it was opened without it.
    stranger: Mutex<Option<Stranger>>,
    /// This process has announced that it ends: no call begins any more.
    has_left: AtomicBool,
    /// A test triggers the beats.
    is_still: AtomicBool,
    /// When to ask the nodes of a cluster for their policy next, on the clock for timeouts.
    policy_ms: AtomicU64,
    timer: Timer,
    returns: GiveBacks,
}

impl RedisStore {
    /// Runs a call that changes something to its end, even if its caller is dropped. If the runtime ends first, a
    /// call that has begun may have happened.
    async fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> std::result::Result<T, Error> {
        if let Some(refusal) = self.inner.refuses(false) {
            return Err(refusal);
        }
        let inner = Arc::clone(&self.inner);
        let has_begun = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&has_begun);
        let call = async move {
            inner.await_returns().await;
            begins.store(true, Ordering::Relaxed);
            call.await
        };
        match self.runtime.spawn(call).await {
            Ok(answer) => Ok(answer),
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            // Its task has been dropped, so its write to the flag is visible here.
            Err(_) => Err(waiting::runtime_gone(has_begun.load(Ordering::Relaxed))),
        }
    }

    /// The same for a call that only reads.
    async fn read<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> std::result::Result<T, Error> {
        self.run(call).await.map_err(|error| match error {
            Error::OutcomeUnknown { .. } => Error::Closed,
            refusal => refusal,
        })
    }

    async fn each<T: Send + Clone + 'static>(
        &self,
        items: usize,
        call: impl Future<Output = Vec<Result<T>>> + Send + 'static,
    ) -> Vec<Result<T>> {
        if let Err(refusal) = self.inner.limits.check_batch(items) {
            return vec![Err(refusal.into()); items];
        }
        self.run(call).await.unwrap_or_else(|error| vec![Err(error); items])
    }

    async fn read_each<T: Send + Clone + 'static>(
        &self,
        items: usize,
        call: impl Future<Output = Vec<Result<T>>> + Send + 'static,
    ) -> Vec<Result<T>> {
        if let Err(refusal) = self.inner.limits.check_batch(items) {
            return vec![Err(refusal.into()); items];
        }
        self.read(call).await.unwrap_or_else(|error| vec![Err(error); items])
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.inner.waiters.close(&self.inner.returns);
        self.inner.timer.stop();
        // Messages that were about to be handed over are given back before the runtime ends.
        if let Some(runtime) = self.own_runtime.take() {
            let inner = Arc::clone(&self.inner);
            runtime.end_after(async move {
                let _ = tokio::time::timeout(LEAVING, inner.pay_all_returns()).await;
            });
        }
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        if let Some(refusal) = self.inner.refuses(true).or_else(|| self.inner.refuses_puts()) {
            return vec![Err(refusal); puts.len()];
        }
        let inner = Arc::clone(&self.inner);
        self.each(puts.len(), async move { inner.put(puts).await }).await
    }

    async fn take(&self, take: Take) -> Result<Vec<Delivery>> {
        if let Some(refusal) = self.inner.refuses(take.session) {
            return Err(refusal);
        }
        waiting::take(&self.inner, &self.runtime, take).await
    }

    async fn take_id(&self, queue: QueueName, id: MessageId, terms: LeaseTerms) -> Result<Delivery> {
        if let Some(refusal) = self.inner.refuses(terms.session) {
            return Err(refusal);
        }
        waiting::take_id(&self.inner, &self.runtime, queue, id, terms).await
    }

    async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        let inner = Arc::clone(&self.inner);
        self.each(settles.len(), async move { inner.settle(settles).await }).await
    }

    async fn expire_lease(&self, queue: QueueName, leases: Vec<LeaseRef>) -> Vec<Result<Settled>> {
        let inner = Arc::clone(&self.inner);
        self.each(leases.len(), async move { inner.expire_lease(&queue, leases).await }).await
    }

    async fn cancel(&self, queue: QueueName, targets: Vec<Target>) -> Vec<Result<Cancelled>> {
        let inner = Arc::clone(&self.inner);
        self.each(targets.len(), async move { inner.cancel(&queue, targets).await }).await
    }

    async fn reschedule(&self, queue: QueueName, moves: Vec<(Target, When)>) -> Vec<Result<Rescheduled>> {
        let inner = Arc::clone(&self.inner);
        self.each(moves.len(), async move { inner.reschedule(&queue, moves).await }).await
    }

    async fn get(&self, queue: QueueName, targets: Vec<Target>, dead: bool) -> Vec<Result<Message>> {
        let inner = Arc::clone(&self.inner);
        let items = targets.len();
        // It is large, and would be moved twice.
        self.read_each(items, Box::pin(async move { inner.get(&queue, targets, dead).await })).await
    }

    async fn locate(&self, numbers: Vec<Number>) -> Vec<Result<Option<(QueueName, MessageId)>>> {
        let inner = Arc::clone(&self.inner);
        self.read_each(numbers.len(), async move { inner.locate(&numbers).await }).await
    }

    async fn list(
        &self,
        queue: QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Page> {
        let inner = Arc::clone(&self.inner);
        self.read(async move { inner.list(&queue, state, after, max).await }).await?
    }

    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        let inner = Arc::clone(&self.inner);
        self.read(async move { inner.stats(&queue).await }).await?
    }

    async fn forecast(&self, queues: Option<Vec<QueueName>>, edges: Vec<Timestamp>) -> Result<Forecast> {
        let inner = Arc::clone(&self.inner);
        self.read(async move { inner.forecast(queues, &edges).await }).await?
    }

    async fn queues(&self, after: Option<QueueName>, max: usize) -> Result<Vec<QueueStats>> {
        let inner = Arc::clone(&self.inner);
        self.read(async move { inner.queues(after, max).await }).await?
    }

    async fn deaths(&self) -> Result<Vec<QueueDeaths>> {
        if let Some(refusal) = self.inner.refuses(false) {
            return Err(refusal);
        }
        Ok(script_call::locked(&self.inner.deaths).all())
    }

    async fn ready(&self) -> Result<()> {
        if let Some(refusal) = self.inner.refuses(false) {
            return Err(refusal);
        }
        let inner = Arc::clone(&self.inner);
        match self.runtime.spawn(async move { inner.ready().await }).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Closed),
        }
    }

    async fn configure(&self, queue: QueueName, changes: Vec<SettingChange>) -> Result<QueueStats> {
        if let Some(refusal) = self.inner.refuses(true) {
            return Err(refusal);
        }
        let inner = Arc::clone(&self.inner);
        self.run(async move { inner.configure(&queue, changes).await }).await?
    }

    async fn revive(&self, queue: QueueName, which: Selection, when: When) -> Result<BulkOutcome> {
        let inner = Arc::clone(&self.inner);
        self.run(async move { inner.revive(&queue, which, when).await }).await?
    }

    async fn discard(&self, queue: QueueName, which: Selection) -> Result<BulkOutcome> {
        let inner = Arc::clone(&self.inner);
        self.run(async move { inner.discard(&queue, which).await }).await?
    }

    async fn purge(&self, queue: QueueName) -> Result<u64> {
        let inner = Arc::clone(&self.inner);
        self.run(async move { inner.purge(&queue).await }).await?
    }

    async fn delete_queue(&self, queue: QueueName) -> Result<u64> {
        let inner = Arc::clone(&self.inner);
        self.run(async move { inner.delete_queue(&queue).await }).await?
    }

    fn limits(&self) -> &Limits {
        &self.inner.limits
    }
}
