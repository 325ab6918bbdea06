//! The store: the calls of the contract, each as one statement.
//!
//! # Layout
//! - `put`, `take`, `settle`, `change`, `inspect`, `dead`, `configure`: the calls by kind
//! - `waiting`, `timer`: takes that wait, and takes whose callers were dropped; `hints`: what wakes those of other processes
//! - `session`: leases that end with this process, and the number of leases; `upkeep`: periodic maintenance; `spared`: what a purge
//!   has spared
//! - `open`: the requirements on a PostgreSQL, and the installation of the schema
//! - `message`, `settings`, `refusal`, `deaths`: conversion of rows, JSON, codes and notes

mod change;
mod configure;
mod dead;
mod deaths;
mod hints;
mod inspect;
mod message;
mod open;
mod put;
mod refusal;
mod runtime;
mod session;
mod settings;
mod settle;
mod spared;
mod take;
mod timer;
mod upkeep;
mod waiting;

use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dwell_model::{
    Cursor, Limits, Message, MessageId, Number, QueueName, SettingChange, StateKind, Timestamp,
};
use dwell_store::{
    BulkOutcome, Cancelled, Delivery, Error, Forecast, LeaseRef, LeaseTerms, Page, Put, PutAnswer,
    QueueDeaths, QueueStats, Rescheduled, Result, Selection, Settle, Settled, Store, Take, Target, When,
};
use dwell_time::{Clock, SystemClock};
use tokio::runtime::Handle;
use tokio_postgres::Row;

use deaths::Deaths;
use hints::Hints;
use runtime::OwnRuntime;
use session::{Leases, Session};
use spared::Spared;
use take::Floors;
use timer::Timer;
use upkeep::Ticks;
use waiting::{Returns, WaitingTakes};

use crate::link::{Argument, Failure, Link, locked};
use crate::values::Json;
use crate::{Address, OpenError};

/// A store on one PostgreSQL, shared by all processes that open the same database and schema, and by callers' own transactions.
///
/// Its calls run on the Tokio runtime on which it was opened, or on its own ([`PostgresStore::open_with_thread`],
/// [`PostgresStore::open_with_thread_async`]), and may be awaited anywhere. A thread that blocks on a call must not be one
/// that the store's runtime needs.
///
/// - **Time** is the server's wall clock. A step of that clock moves what is due, and the ends of leases too.
/// - **Session leases** end with this process: when the store is opened again under the same `client` name, or
///   when the process has sent no heartbeat for 15 seconds.
/// - **Numbers** rise by call, not by commit: a transaction that commits late may reveal a lower number after a higher one.
/// - **Caps** are checked without locks: calls at the same time may exceed one, by as much as all but one of them add.
pub struct PostgresStore {
    inner: Arc<Inner>,
    runtime: Handle,
    /// The store's own runtime, if it has one: it ends with the store.
    own_runtime: Option<OwnRuntime>,
}

/// What all calls share.
struct Inner {
    link: Link,
    limits: Limits,
    /// The options of this process, as arguments of functions.
    defaults: Json,
    clock: Arc<dyn Clock>,
    timer: Timer,
    waiters: WaitingTakes,
    hints: Arc<Hints>,
    returns: Returns,
    floors: Floors,
    leases: Leases,
    session: Session,
    ticks: Ticks,
    beats: Ticks,
    spared: Spared,
    deaths: Mutex<Deaths>,
    randoms: (RandomState, AtomicU64),
    /// The highest number of a message that this process was answered; 0 if it was none.
    highest: AtomicU64,
    /// Whether any call was made since the last maintenance.
    has_called: AtomicBool,
    /// Whether this process has left: no further call begins.
    has_left: AtomicBool,
}

impl PostgresStore {
    /// Opens the store; installs the schema if the database has none of this name.
    ///
    /// # Errors
    /// An [`OpenError`]: the server does not answer, or cannot be used.
    ///
    /// # Panics
    /// If it is not called on a Tokio runtime.
    pub async fn open(address: Address, limits: Limits) -> std::result::Result<PostgresStore, OpenError> {
        PostgresStore::open_for_test(address, limits, Arc::new(SystemClock::new())).await
    }

    /// As [`open`](PostgresStore::open), for a program without a runtime: the store has its own, on one thread. Its calls
    /// may be awaited, or waited for, anywhere.
    ///
    /// # Errors
    /// As there, and [`OpenError::Threads`].
    ///
    /// # Panics
    /// If called on a thread of an async runtime, which it would block.
    pub fn open_with_thread(
        address: Address,
        limits: Limits,
    ) -> std::result::Result<PostgresStore, OpenError> {
        let runtime = OwnRuntime::start()?;
        let mut store = runtime.get().block_on(PostgresStore::open(address, limits))?;
        store.own_runtime = Some(runtime);
        Ok(store)
    }

    /// As [`open_with_thread`](PostgresStore::open_with_thread), to be awaited on any runtime or on none.
    ///
    /// # Errors
    /// As there.
    pub async fn open_with_thread_async(
        address: Address,
        limits: Limits,
    ) -> std::result::Result<PostgresStore, OpenError> {
        let runtime = OwnRuntime::start()?;
        let mut store = match runtime.get().spawn(PostgresStore::open(address, limits)).await {
            Ok(opened) => opened?,
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Err(ended) => return Err(OpenError::Threads { reason: ended.to_string() }),
        };
        store.own_runtime = Some(runtime);
        Ok(store)
    }

    /// As [`open`](PostgresStore::open), with a clock for the sleeps of this process. The server's clock is not affected.
    ///
    /// # Errors
    /// As there.
    #[doc(hidden)]
    pub async fn open_for_test(
        address: Address,
        limits: Limits,
        clock: Arc<dyn Clock>,
    ) -> std::result::Result<PostgresStore, OpenError> {
        let at = address.to_string();
        let tls = crate::tls::connector(address.tls.as_ref())?;
        let link = Link::new(address, tls);
        // Boxed, so that the future of an opening stays small.
        Box::pin(open::check(&link)).await?;
        let timer = Timer::start(&clock).map_err(|error| OpenError::Threads { reason: error.to_string() })?;
        let inner = Arc::new(Inner {
            defaults: settings::defaults(&limits, link.address().lock_ms),
            hints: Arc::new(Hints::new(link.address().listens)),
            link,
            limits,
            clock,
            timer,
            waiters: WaitingTakes::default(),
            returns: Returns::default(),
            floors: Floors::default(),
            leases: Leases::default(),
            session: Session::default(),
            ticks: Ticks::default(),
            beats: Ticks::default(),
            spared: Spared::default(),
            deaths: Mutex::default(),
            randoms: (RandomState::new(), AtomicU64::new(0)),
            highest: AtomicU64::new(0),
            has_called: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
        });
        let runtime = Handle::current();
        let store = PostgresStore { inner, runtime, own_runtime: None };
        let ended = Box::pin(store.inner.end_client()).await;
        ended.map_err(|error| OpenError::Unreachable { at, reason: error.to_string() })?;
        store.runtime.spawn(waiting::run(Arc::downgrade(&store.inner)));
        store.runtime.spawn(upkeep::run(Arc::downgrade(&store.inner)));
        store.runtime.spawn(session::run(Arc::downgrade(&store.inner)));
        store.runtime.spawn(hints::run(Arc::downgrade(&store.inner)));
        Ok(store)
    }

    /// Makes the limits and default settings that this store was opened with those of callers in SQL. The last call counts,
    /// from whatever process; a server makes it when it starts.
    ///
    /// # Errors
    /// Those of any call.
    pub async fn publish_defaults(&self) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        self.run(async move { inner.publish_defaults().await }).await?
    }

    /// Ends the store as part of an orderly shutdown: waiting takes return no messages, and leases that are bound to this
    /// process are released without spending an attempt. Returns true if that is known to have happened; otherwise those
    /// leases end 15 seconds later, as after a crash. No later call succeeds.
    pub async fn leave(&self) -> bool {
        self.inner.waiters.close();
        let inner = Arc::clone(&self.inner);
        let left = self.runtime.spawn(async move {
            inner.returns.wait().await;
            let ended = inner.end_session().await;
            inner.has_left.store(true, Ordering::Relaxed);
            inner.timer.stop();
            inner.hints.close();
            inner.link.close();
            ended.is_ok()
        });
        left.await.unwrap_or(false)
    }

    /// Whether it was ended by [`leave`](PostgresStore::leave): then no call succeeds.
    pub fn has_left(&self) -> bool {
        self.inner.has_left.load(Ordering::Relaxed)
    }

    /// Waits until the maintenance that is due has run: under a clock that leaps, a run follows each leap.
    #[doc(hidden)]
    pub async fn await_upkeep(&self) {
        let now_ms = self.inner.clock.now().mono_ms;
        self.inner.ticks.wait(now_ms).await;
        self.inner.spared.ticks.wait(now_ms).await;
    }

    /// Runs a call to completion, even if its caller is dropped.
    async fn run<T: Send + 'static>(&self, call: impl Future<Output = T> + Send + 'static) -> Result<T> {
        self.inner.refuses()?;
        let inner = Arc::clone(&self.inner);
        let running = self.runtime.spawn(async move {
            inner.returns.wait().await;
            call.await
        });
        match running.await {
            Ok(answer) => Ok(answer),
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Err(_) => Err(Error::OutcomeUnknown {
                reason: "the runtime of the store ended before PostgreSQL answered".into(),
                needs_reopen: true,
            }),
        }
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
}

impl Inner {
    fn refuses(&self) -> Result<()> {
        if self.has_left.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Calls a function of the schema, and records its notes. A call that finds too much that time has changed does a
    /// part of that alone, and is repeated.
    async fn rows(
        &self,
        call: &str,
        arguments: &[Argument<'_>],
        is_harmless: bool,
    ) -> std::result::Result<Vec<Row>, Failure> {
        self.has_called.store(true, Ordering::Relaxed);
        loop {
            let rows = self.noted(self.link.call(call, arguments, is_harmless).await)?;
            let again = rows.last().map(|row| row.try_get::<_, Option<&str>>("again"));
            if !matches!(again, Some(Ok(Some("on")))) {
                return Ok(rows);
            }
        }
    }

    fn noted(
        &self,
        answered: std::result::Result<Vec<Row>, Failure>,
    ) -> std::result::Result<Vec<Row>, Failure> {
        if let Ok(rows) = &answered
            && let Some(row) = rows.last()
            && let Ok(Some(noted)) = row.try_get::<_, Option<&str>>("noted")
        {
            locked(&self.deaths).add(noted);
        }
        answered
    }

    fn has_seen(&self, number: Number) {
        self.highest.fetch_max(number.get(), Ordering::Relaxed);
    }

    fn has_taken(&self) {
        self.has_called.store(true, Ordering::Relaxed);
    }

    /// A random number for the jitter of a backoff; it need not be unpredictable.
    fn random(&self) -> u32 {
        let (state, count) = &self.randoms;
        // The cast is lossless: 32 bits are left.
        (state.hash_one(count.fetch_add(1, Ordering::Relaxed)) >> 32) as u32
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.inner.waiters.close();
        self.inner.has_left.store(true, Ordering::Relaxed);
        self.inner.timer.stop();
        self.inner.hints.close();
        self.inner.link.close();
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        let inner = Arc::clone(&self.inner);
        self.each(puts.len(), async move { inner.put(puts).await }).await
    }

    async fn take(&self, take: Take) -> Result<Vec<Delivery>> {
        self.inner.refuses()?;
        waiting::take(&self.inner, &self.runtime, take).await
    }

    async fn take_id(&self, queue: QueueName, id: MessageId, terms: LeaseTerms) -> Result<Delivery> {
        self.inner.refuses()?;
        waiting::take_id(&self.inner, &self.runtime, queue, id, terms).await
    }

    async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        let inner = Arc::clone(&self.inner);
        self.each(settles.len(), async move { inner.settle(settles).await }).await
    }

    async fn expire_lease(&self, queue: QueueName, leases: Vec<LeaseRef>) -> Vec<Result<Settled>> {
        let inner = Arc::clone(&self.inner);
        self.each(leases.len(), async move { inner.expire_lease(&queue, &leases).await }).await
    }

    async fn cancel(&self, queue: QueueName, targets: Vec<Target>) -> Vec<Result<Cancelled>> {
        let inner = Arc::clone(&self.inner);
        self.each(targets.len(), async move { inner.cancel(&queue, &targets).await }).await
    }

    async fn reschedule(&self, queue: QueueName, moves: Vec<(Target, When)>) -> Vec<Result<Rescheduled>> {
        let inner = Arc::clone(&self.inner);
        self.each(moves.len(), async move { inner.reschedule(&queue, &moves).await }).await
    }

    async fn get(&self, queue: QueueName, targets: Vec<Target>, dead: bool) -> Vec<Result<Message>> {
        let inner = Arc::clone(&self.inner);
        self.each(targets.len(), async move { inner.get(&queue, &targets, dead).await }).await
    }

    async fn locate(&self, numbers: Vec<Number>) -> Vec<Result<Option<(QueueName, MessageId)>>> {
        let inner = Arc::clone(&self.inner);
        self.each(numbers.len(), async move { inner.locate(&numbers).await }).await
    }

    async fn list(
        &self,
        queue: QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Page> {
        let inner = Arc::clone(&self.inner);
        self.run(async move { inner.list(&queue, state, after, max).await }).await?
    }

    async fn peek(&self, queue: QueueName, state: StateKind) -> Result<Option<Message>> {
        let inner = Arc::clone(&self.inner);
        self.run(async move { inner.peek(&queue, state).await }).await?
    }

    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        let inner = Arc::clone(&self.inner);
        self.run(async move { inner.stats(&queue).await }).await?
    }

    async fn forecast(&self, queues: Option<Vec<QueueName>>, edges: Vec<Timestamp>) -> Result<Forecast> {
        let inner = Arc::clone(&self.inner);
        self.run(async move { inner.forecast(queues.as_deref(), &edges).await }).await?
    }

    async fn queues(&self, after: Option<QueueName>, max: usize) -> Result<Vec<QueueStats>> {
        let inner = Arc::clone(&self.inner);
        self.run(async move { inner.queues(after.as_ref(), max).await }).await?
    }

    async fn configure(&self, queue: QueueName, changes: Vec<SettingChange>) -> Result<QueueStats> {
        let inner = Arc::clone(&self.inner);
        self.run(async move { inner.configure(&queue, &changes).await }).await?
    }

    async fn revive(&self, queue: QueueName, which: Selection, when: When) -> Result<BulkOutcome> {
        let inner = Arc::clone(&self.inner);
        self.run(async move { inner.revive(&queue, which, when).await }).await?
    }

    async fn deaths(&self) -> Result<Vec<QueueDeaths>> {
        self.inner.refuses()?;
        Ok(locked(&self.inner.deaths).all())
    }

    async fn discard(&self, queue: QueueName, which: Selection) -> Result<BulkOutcome> {
        let inner = Arc::clone(&self.inner);
        self.run(async move { inner.discard(&queue, which).await }).await?
    }

    async fn purge(&self, queue: QueueName) -> Result<u64> {
        let inner = Arc::clone(&self.inner);
        self.run(async move {
            let removed = inner.purge(&queue).await;
            spared::begin(&inner);
            removed
        })
        .await?
    }

    async fn delete_queue(&self, queue: QueueName) -> Result<u64> {
        let inner = Arc::clone(&self.inner);
        self.run(async move {
            let removed = inner.delete_queue(&queue).await;
            spared::begin(&inner);
            removed
        })
        .await?
    }

    fn limits(&self) -> &Limits {
        &self.inner.limits
    }
}
