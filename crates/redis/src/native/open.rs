//! Opening a store: the requirements on a Redis, earlier processes of the same name, and the background tasks.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use dwell_model::Limits;
use dwell_store::Error;
use dwell_time::{Clock, SystemClock};
use futures_util::future::join_all;
use redis::{RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::layout::{DIRECTORY, LAYOUT, directory};
use super::partition::KNOWN_QUEUES;
use super::recent::Recent;
use super::script_call::{Wire, locked, random};
use super::timer::Timer;
use super::{Inner, OwnRuntime, RedisStore, settings};
use crate::{Address, AddressKind, Link, OpenError};

/// How often a process sends a heartbeat and does its background work.
const BEAT: Duration = Duration::from_secs(5);

/// How often the nodes of a cluster are asked whether they evict, in ms.
const POLICY_MS: u64 = 60_000;

/// How long a store that is dropped does work that other processes would otherwise do later.
pub(super) const LEAVING: Duration = Duration::from_secs(2);

/// How long a leaving process tries to give back what it holds without any success.
const IN_VAIN: Duration = Duration::from_secs(10);

/// The delay before it retries when no server answered.
const AGAIN: Duration = Duration::from_secs(1);

impl RedisStore {
    /// Opens the store at an address. Call it on the Tokio runtime that is to run its calls.
    ///
    /// A cluster that serves though a node is away can be opened. Where that is the node with the directory, the
    /// process is registered as soon as it is back; until then what needs the directory is refused with
    /// [`Error::Unavailable`]: puts, settings, and takes that bind leases.
    ///
    /// # Errors
    /// [`OpenError`], before anything is written: no server answers, the server is too old, or is set to evict; or
    /// what lies under the prefix is not ours; or this is not awaited on a Tokio runtime.
    pub async fn open(address: Address, limits: Limits) -> Result<RedisStore, OpenError> {
        RedisStore::open_on(address, limits, Arc::new(SystemClock::new()), None).await
    }

    /// The same for a program without a runtime: the store owns one, on one thread. Its calls may be awaited, or
    /// blocked on, anywhere.
    ///
    /// # Panics
    /// On a thread of an async runtime, which it would block.
    ///
    /// # Errors
    /// As [`RedisStore::open`], and [`OpenError::Threads`].
    pub fn open_with_thread(address: Address, limits: Limits) -> Result<RedisStore, OpenError> {
        let runtime = OwnRuntime::start()?;
        let mut store = runtime.get().block_on(RedisStore::open(address, limits))?;
        store.own_runtime = Some(runtime);
        Ok(store)
    }

    /// The same as an async function, on any runtime or on none. The store needs no thread of the caller's, so calls
    /// may be awaited and blocked on side by side.
    ///
    /// # Errors
    /// As [`RedisStore::open_with_thread`].
    pub async fn open_with_thread_async(address: Address, limits: Limits) -> Result<RedisStore, OpenError> {
        let runtime = OwnRuntime::start()?;
        let mut store = match runtime.get().spawn(RedisStore::open(address, limits)).await {
            Ok(opened) => opened?,
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Err(ended) => return Err(OpenError::Threads { reason: ended.to_string() }),
        };
        store.own_runtime = Some(runtime);
        Ok(store)
    }

    /// The same on a test's clock, which replaces the server's clock and this process's.
    ///
    /// # Errors
    /// As [`RedisStore::open`].
    #[doc(hidden)]
    pub async fn open_for_test(
        address: Address,
        limits: Limits,
        clock: Arc<dyn Clock>,
    ) -> Result<RedisStore, OpenError> {
        RedisStore::open_on(address, limits, Arc::clone(&clock), Some(clock)).await
    }

    /// Announces that this process is about to end.
    ///
    /// Takes that wait are answered with nothing, calls that begin from here on with [`Error::Closed`], messages
    /// whose callers have gone are given back, and messages that are bound to this process are released now, which
    /// spends no attempt. Calls under way are completed, and other processes go on. Returns false if it was called
    /// before: then nothing is done.
    ///
    /// Without it, session leases run out once this process has been silent for long. It takes as long as Redis needs,
    /// and gives up when nothing could be given back for ten seconds.
    ///
    /// # Errors
    /// Not all could be given back: the remaining leases run out, which spends an attempt of each message. The
    /// process has left all the same.
    pub async fn leave(&self) -> Result<bool, Error> {
        if self.inner.has_left.swap(true, Ordering::SeqCst) {
            return Ok(false);
        }
        self.inner.waiters.close(&self.inner.returns);
        let inner = Arc::clone(&self.inner);
        match self.runtime.spawn(async move { inner.give_all_back().await }).await {
            Ok(answer) => answer.map(|()| true),
            Err(_) => Err(super::waiting::runtime_gone(true)),
        }
    }

    /// Runs now what a process does every few seconds, for tests with their own clock.
    ///
    /// # Errors
    /// Redis is away.
    #[doc(hidden)]
    pub async fn beat_for_test(&self) -> Result<(), Error> {
        self.inner.present_late().await?;
        let gone = self.inner.be_heard().await?;
        let inner = &self.inner;
        tokio::join!(
            inner.free_gone(gone),
            inner.look_at_policy(),
            Box::pin(inner.clear_trash()),
            Box::pin(inner.tidy()),
            Box::pin(inner.count_again())
        );
        Ok(())
    }

    /// From now on that runs only when a test calls for it. Call this at once after opening.
    #[doc(hidden)]
    pub fn beat_no_more_for_test(&self) {
        self.inner.is_still.store(true, Ordering::Relaxed);
    }

    /// What this process keeps in memory, for tests of its bounds: the number of sleeps, and of partitions that it
    /// remembers beyond a call.
    #[doc(hidden)]
    pub fn kept_for_test(&self) -> (usize, usize) {
        let places = self.inner.wire.places() + locked(&self.inner.session).places();
        let places = places + locked(&self.inner.known_partitions).len();
        (self.inner.timer.sleepers(), places)
    }

    async fn open_on(
        address: Address,
        limits: Limits,
        clock: Arc<dyn Clock>,
        test_clock: Option<Arc<dyn Clock>>,
    ) -> Result<RedisStore, OpenError> {
        let runtime = Handle::try_current().map_err(|_| OpenError::Unsupported {
            what: "RedisStore::open outside of a Tokio runtime",
            reason: "call it in a task, or open the store with a thread of its own".to_owned(),
        })?;
        let link = Link::open(address).await?;
        check(&link).await?;
        let timer = Timer::start(&clock).map_err(|error| unreachable(&link, &error))?;
        let inner = Inner {
            wire: Wire::new(link, test_clock),
            defaults: settings::defaults(&limits.defaults),
            limits,
            clock,
            known_partitions: std::sync::Mutex::new(Recent::new(KNOWN_QUEUES)),
            turn: AtomicUsize::new(random() as usize),
            numbers: Default::default(),
            entered: Default::default(),
            reserved: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            used: Default::default(),
            pace: Default::default(),
            session: Default::default(),
            left: Notify::new(),
            released: AtomicU64::new(0),
            // Assumed to be near the limit, until the directory was asked.
            queue_count: AtomicU64::new(u64::MAX),
            bare: Default::default(),
            trash: Default::default(),
            retaining: Default::default(),
            deaths: Default::default(),
            look_ms: AtomicU64::new(0),
            leased: Default::default(),
            lease_counts: Default::default(),
            held_up: Default::default(),
            ended: AtomicU64::new(0),
            takes: AtomicU64::new(1),
            calls: AtomicU64::new(1),
            waiters: Default::default(),
            walks: Default::default(),
            evicting: Default::default(),
            stranger: Default::default(),
            has_left: AtomicBool::new(false),
            is_still: AtomicBool::new(false),
            policy_ms: AtomicU64::new(0),
            timer,
            returns: Default::default(),
        };
        // If it cannot be registered, dropping it stops the background tasks.
        let store = RedisStore { inner: Arc::new(inner), runtime, own_runtime: None };
        match store.inner.present().await {
            Err(away) if away.is_retryable() && store.inner.is_served_elsewhere().await => {
                *locked(&store.inner.stranger) = Some(Stranger::of(&away));
            }
            answer => answer?,
        }
        store.runtime.spawn(beat(Arc::downgrade(&store.inner)));
        Ok(store)
    }
}

/// Why this process is not registered in the directory yet.
#[derive(Debug)]
pub(super) struct Stranger {
    why: Error,
    /// The directory has answered, and refuses the process as it was opened.
    is_refused: bool,
}

impl Stranger {
    fn of(refusal: &OpenError) -> Stranger {
        let reason = refusal.to_string().into();
        let why = match refusal {
            OpenError::Foreign { .. } | OpenError::Layout { .. } => Error::ForeignData { reason },
            _ => Error::Unavailable { reason },
        };
        Stranger { why, is_refused: !refusal.is_retryable() }
    }
}

impl Inner {
    /// Gives back what this process holds, and continues for as long as some of that succeeds. Heartbeats go on
    /// meanwhile, or other processes would consider it dead and end its leases.
    async fn give_all_back(&self) -> Result<(), Error> {
        let given = async {
            let ((), released) = tokio::join!(self.pay_all_returns(), self.release_session_leases());
            self.forget_session_leases().await;
            released
        };
        let beats = self.go_on_being_heard();
        tokio::pin!(given, beats);
        let mut released = 0;
        loop {
            let answer: Result<_, _> = tokio::select! {
                answer = tokio::time::timeout(IN_VAIN, &mut given) => answer,
                () = &mut beats => continue,
            };
            if let Ok(answer) = answer {
                return answer;
            }
            let before = std::mem::replace(&mut released, self.released.load(Ordering::Relaxed));
            if before == released {
                let reason = format!(
                    "Redis at {}: for {} s nothing could be given back; what this process holds runs out",
                    self.wire.link.address(),
                    IN_VAIN.as_secs()
                );
                return Err(Error::Unavailable { reason: reason.into() });
            }
        }
    }

    /// Sends heartbeats; never ends.
    async fn go_on_being_heard(&self) {
        loop {
            tokio::time::sleep(BEAT).await;
            // Dead processes are found by those that stay.
            let _ = self.be_heard().await;
        }
    }

    /// Checks the directory, and registers this process there.
    async fn present(&self) -> Result<(), OpenError> {
        let link = &self.wire.link;
        look(link).await?;
        match self.introduce(link.address().client.as_deref()).await {
            Ok(None) => Ok(()),
            Ok(Some(there)) => Err(OpenError::Partitions { there, asked: self.limits.defaults.partitions }),
            Err(Error::ForeignData { reason }) => Err(OpenError::Foreign { found: reason.into() }),
            Err(error) => Err(unreachable(link, &error)),
        }
    }

    /// Whether the store is on a cluster whose other nodes serve, though the one with the directory does not.
    async fn is_served_elsewhere(&self) -> bool {
        let link = &self.wire.link;
        link.address().kind() == AddressKind::Cluster && link.cluster_serves().await
    }

    /// Registers a process that was opened while the directory was away, once it is back.
    ///
    /// # Errors
    /// It is not back yet, or refuses the process.
    async fn present_late(&self) -> Result<(), Error> {
        if locked(&self.stranger).is_none() {
            return Ok(());
        }
        let stranger = self.present().await.err().map(|refusal| Stranger::of(&refusal));
        let answer = stranger.as_ref().map_or(Ok(()), |stranger| Err(stranger.why.clone()));
        *locked(&self.stranger) = stranger;
        answer
    }

    /// Why a call is refused: this process has left; the process is not registered in the directory, and the call
    /// needs that; or the directory refuses the process, and so all of its calls.
    pub(super) fn refuses(&self, needs_directory: bool) -> Option<Error> {
        if self.has_left.load(Ordering::Relaxed) {
            return Some(Error::Closed);
        }
        let stranger = locked(&self.stranger);
        let refusing = stranger.as_ref().filter(|stranger| needs_directory || stranger.is_refused);
        refusing.map(|stranger| stranger.why.clone())
    }

    /// Background work that is not urgent: whatever fails is retried at a later beat. A failure for one queue does
    /// not stop the work for the others.
    async fn tidy(&self) {
        let clear_blocks = async { while self.clear_old_blocks().await.unwrap_or(false) {} };
        // If this fails, it is retried at the next beat.
        let find_lost = async { drop(self.find_lost().await) };
        let leave_idle_partitions = async { drop(self.leave_idle_partitions().await) };
        tokio::join!(self.retain_all(), clear_blocks, self.retire_bare(), find_lost, leave_idle_partitions);
    }

    /// Frees what is bound to dead processes. What fails now is retried at a later beat.
    async fn free_gone(&self, gone: Vec<Bytes>) {
        join_all(gone.iter().map(|process| self.free_silent(process))).await;
    }

    /// Checks the eviction policy: a server may have been set to evict since the last check, or no longer.
    async fn look_at_policy(&self) {
        let now_ms = self.wire.mono_ms();
        // A cluster asks all of its nodes, and one that is away costs the connection to the others.
        let is_cluster = self.wire.link.address().kind() == AddressKind::Cluster;
        if is_cluster && now_ms < self.policy_ms.load(Ordering::Relaxed) {
            return;
        }
        self.policy_ms.store(now_ms + POLICY_MS, Ordering::Relaxed);
        // If a server cannot be asked, the last result stays.
        if let Ok(policy) = evicting(&self.wire.link).await {
            *locked(&self.evicting) = policy;
        }
    }

    /// Why puts are refused: the server might evict them. All other calls go on, so that existing messages are handed
    /// out before they are evicted.
    pub(super) fn refuses_puts(&self) -> Option<Error> {
        let policy = locked(&self.evicting).clone()?;
        let reason = format!(
            "Redis is set to evict (maxmemory-policy {policy}), which loses messages or lets a repeated call happen \
             twice: nothing is put until it is set to noeviction"
        );
        Some(Error::Unavailable { reason: reason.into() })
    }
}

/// Sends heartbeats for as long as the store exists. Nothing that is less urgent delays a heartbeat: a process
/// without one is considered dead.
async fn beat(store: Weak<Inner>) {
    // Each runs separately: a slow one does not delay the others.
    let (mut freeing, mut looking, mut tidying) =
        (OnePass::default(), OnePass::default(), OnePass::default());
    let (mut counting, mut clearing) = (OnePass::default(), OnePass::default());
    let mut pause = BEAT;
    loop {
        tokio::time::sleep(pause).await;
        let Some(inner) = store.upgrade() else { return };
        // A process that has left sends no heartbeats: what a call under way has bound meanwhile is freed by others.
        if inner.is_still.load(Ordering::Relaxed) || inner.has_left.load(Ordering::Relaxed) {
            return;
        }
        inner.wire.tidy();
        inner.forget_walks();
        let heard = match inner.present_late().await {
            Ok(()) => inner.be_heard().await,
            Err(error) => Err(error),
        };
        pause = if heard.is_ok() { BEAT } else { AGAIN };
        let Ok(gone) = heard else { continue };
        let (freed, looked, counted) = (Arc::clone(&inner), Arc::clone(&inner), Arc::clone(&inner));
        let cleared = Arc::clone(&inner);
        // A large purge takes long.
        clearing.enter(async move { Box::pin(cleared.clear_trash()).await });
        counting.enter(async move { Box::pin(counted.count_again()).await });
        freeing.enter(async move { freed.free_gone(gone).await });
        looking.enter(async move { looked.look_at_policy().await });
        tidying.enter(async move { Box::pin(inner.tidy()).await });
    }
}

/// Admits one task at a time; a task that finds another one running is dropped.
#[derive(Default)]
struct OnePass(Option<JoinHandle<()>>);

impl OnePass {
    fn enter(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        if self.0.as_ref().is_none_or(JoinHandle::is_finished) {
            self.0 = Some(tokio::spawn(work));
        }
    }
}

fn unreachable(link: &Link, error: &dyn Display) -> OpenError {
    OpenError::Unreachable { at: link.address().to_string(), reason: error.to_string() }
}

/// Checks every server of the address that is there.
async fn check(link: &Link) -> Result<(), OpenError> {
    let failed = |error: redis::RedisError| unreachable(link, &error);
    let texts = info(link, "server").await.map_err(failed)?;
    let needs_aof = link.address().confirm.is_some_and(|confirm| confirm.aof);
    // Valkey reports the version of Redis that it is compatible with.
    for version in fields(&texts, "redis_version") {
        if is_before(version, (6, 2)) {
            let version = version.to_owned();
            return Err(OpenError::TooOld { version, needed: "6.2", what: "the store's scripts" });
        }
        if needs_aof && is_before(version, (7, 2)) {
            return Err(OpenError::TooOld { version: version.to_owned(), needed: "7.2", what: "waitaof" });
        }
    }
    if link.address().confirm.is_some() && link.address().kind() == AddressKind::Cluster {
        let reason =
            "its connections are shared; ask for min-replicas-to-write at the servers instead".to_owned();
        return Err(OpenError::Unsupported { what: "wait on a cluster", reason });
    }
    if let Some(confirm) =
        link.address().confirm.filter(|confirm| confirm.within_ms >= link.address().timeout_ms)
    {
        let reason = format!("{} ms of waiting do not fit into timeout_ms", confirm.within_ms);
        return Err(OpenError::Unsupported { what: "wait_ms", reason });
    }
    match evicting(link).await.map_err(failed)? {
        Some(policy) => Err(OpenError::Evicts { policy }),
        None => Ok(()),
    }
}

/// The policy of a server that evicts keys when its memory is full, if there is one.
async fn evicting(link: &Link) -> RedisResult<Option<String>> {
    let texts = info(link, "memory").await?;
    let evicts = fields(&texts, "maxmemory_policy").find(|policy| *policy != "noeviction");
    Ok(evicts.map(str::to_owned))
}

/// The reply of each server to `INFO`.
async fn info(link: &Link, section: &str) -> RedisResult<Vec<String>> {
    let mut texts = Vec::new();
    collect(link.send(redis::cmd("INFO").arg(section)).await?, &mut texts);
    Ok(texts)
}

fn fields<'a>(texts: &'a [String], name: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = texts.iter().flat_map(|text| text.lines());
    lines.filter_map(move |line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Checks what lies where the directory would.
async fn look(link: &Link) -> Result<(), OpenError> {
    let failed = |error: redis::RedisError| unreachable(link, &error);
    let directory = directory(link.address().prefix());
    for (name, expected) in DIRECTORY {
        let key = format!("{directory}{name}");
        let found: String = link.ask(redis::cmd("TYPE").arg(&key)).await.map_err(failed)?;
        if found != "none" && found != expected {
            let found = format!("the key {key} is a {found} and not a {expected}");
            return Err(OpenError::Foreign { found });
        }
    }
    let layout: Option<String> =
        link.ask(redis::cmd("HGET").arg(format!("{directory}meta")).arg("v")).await.map_err(failed)?;
    match layout.filter(|layout| layout != LAYOUT) {
        Some(layout) => Err(OpenError::Layout {
            found: format!("layout {layout} is not known to this version of dwell, which has {LAYOUT}"),
        }),
        None => Ok(()),
    }
}

/// A cluster answers for each of its nodes.
fn collect(reply: Value, texts: &mut Vec<String>) {
    match reply {
        Value::BulkString(bytes) => texts.push(String::from_utf8_lossy(&bytes).into_owned()),
        Value::VerbatimString { text, .. } => texts.push(text),
        Value::SimpleString(text) => texts.push(text),
        Value::Array(items) => items.into_iter().for_each(|item| collect(item, texts)),
        Value::Map(pairs) => pairs.into_iter().for_each(|(_, value)| collect(value, texts)),
        _ => {}
    }
}

fn is_before(version: &str, needed: (u32, u32)) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < needed
}
