//! Opening a store: one call for each kind; all kinds are used alike.

use std::fmt;
#[cfg(feature = "engine")]
use std::path::Path;
use std::sync::Arc;

use dwell_model::{Invalid, Limits, MessageId, Number, QueueName};
use dwell_store::{Error, MemoryStore, Queue, QueueStats, Result, Store};
use dwell_time::{Clock, SystemClock};

#[cfg(any(feature = "engine", feature = "http", feature = "postgres", feature = "redis"))]
use crate::OpenError;

/// An open store, and the queues in it. Cloning is cheap, and clones are the same store.
///
/// The store is closed when its last clone is dropped, with the last [`Queue`] and [`Job`](dwell_store::Job) of it. Call
/// [`close`](Dwell::close) to learn whether closing succeeded.
///
/// A store in files blocks two kinds of threads: the one that drops the last of these, until all is
/// synced, as `close` does; and the one that polls a take or a get, while it reads bodies that were
/// not prefetched. On an async runtime, close the store before the program ends (in `spawn_blocking`
/// if a sync may not block a thread), so that no task happens to drop it last.
#[derive(Clone)]
pub struct Dwell {
    store: Arc<dyn Store>,
    opened: Opened,
}

/// How the store is closed: that is not in the contract, since it is up to the code that opened the store.
#[derive(Clone)]
pub(crate) enum Opened {
    #[cfg(feature = "engine")]
    Engine(dwell_engine::Engine),
    #[cfg(feature = "postgres")]
    Postgres(Arc<dwell_postgres::PostgresStore>),
    #[cfg(feature = "redis")]
    Redis(Arc<dwell_redis::RedisStore>),
    Memory(Arc<MemoryStore>),
    /// By the caller that opened it, or there is nothing to close.
    Elsewhere,
}

impl Dwell {
    /// Opens the data directory `dir`, and creates it if it does not exist. Only one process at a time can have it open.
    ///
    /// Recovery runs before this returns, on this thread: milliseconds for a small store,
    /// seconds for millions of messages. What it found, such as a journal that a crash
    /// has cut short, is in the report of the [`engine`](Dwell::engine).
    ///
    /// # Errors
    /// [`OpenError::Engine`]. Nothing in the directory was changed, unless the disk itself failed.
    #[cfg(feature = "engine")]
    pub fn open(dir: impl AsRef<Path>) -> std::result::Result<Dwell, OpenError> {
        Dwell::open_with(dir, dwell_engine::Options::default())
    }

    /// The same, with options.
    ///
    /// # Errors
    /// As [`Dwell::open`].
    #[cfg(feature = "engine")]
    pub fn open_with(
        dir: impl AsRef<Path>,
        options: dwell_engine::Options,
    ) -> std::result::Result<Dwell, OpenError> {
        Ok(dwell_engine::Engine::open(dir, options)?.into())
    }

    /// The store of the server at `url`, such as `http://127.0.0.1:7411` or `https://dwell.example`. It connects on first
    /// use. The differences over HTTP are listed in [`http`](crate::http).
    ///
    /// For a token, certificates and timeouts, build an [`http::Client`](crate::http::Client) and make a `Dwell` from it.
    ///
    /// # Errors
    /// [`OpenError::Http`] if `url` is not a server's address, or the operating system refuses a thread.
    #[cfg(feature = "http")]
    pub fn connect(url: &str) -> std::result::Result<Dwell, OpenError> {
        Ok(dwell_client::Client::new(url)?.into())
    }

    /// The store on the Redis at `url`: `redis://…`, `redis-sentinel://…` or
    /// `redis-cluster://…`; see [`redis::Address`](crate::redis::Address). Its calls run
    /// on its own thread. This may be awaited on any runtime, or without one.
    ///
    /// When dropped, the store gives back what was about to be handed over, for two seconds at most, and does not wait
    /// for that: call [`close`](Dwell::close) before the process ends.
    ///
    /// To run the calls on the program's own Tokio runtime, which saves two thread switches per call, open a
    /// [`redis::RedisStore`](crate::redis::RedisStore) there and make a `Dwell` from it.
    ///
    /// # Errors
    /// [`OpenError::Redis`], before anything is written; also if the operating system refuses a thread.
    #[cfg(feature = "redis")]
    pub async fn redis(url: &str) -> std::result::Result<Dwell, OpenError> {
        Dwell::redis_with(url.parse::<dwell_redis::Address>()?, Limits::default()).await
    }

    /// The same, with a parsed address and with limits.
    ///
    /// # Errors
    /// As [`Dwell::redis`].
    #[cfg(feature = "redis")]
    pub async fn redis_with(
        address: dwell_redis::Address,
        limits: Limits,
    ) -> std::result::Result<Dwell, OpenError> {
        Ok(dwell_redis::RedisStore::open_with_thread_async(address, limits).await?.into())
    }

    /// The store on the PostgreSQL at `url`, `postgres://…`; see [`postgres::Address`](crate::postgres::Address). If the
    /// database has no schema, it is installed. The calls run on the store's own thread. This may be awaited on any
    /// runtime, or without one.
    ///
    /// Call [`close`](Dwell::close) before the process ends: it gives back what was about to be handed over. If the store is
    /// only dropped, that is ready again when its lease ends.
    ///
    /// To run the calls on the program's own Tokio runtime, open a
    /// [`postgres::PostgresStore`](crate::postgres::PostgresStore) there and make a `Dwell` from it.
    ///
    /// # Errors
    /// [`OpenError::Postgres`]; also if the operating system refuses a thread.
    #[cfg(feature = "postgres")]
    pub async fn postgres(url: &str) -> std::result::Result<Dwell, OpenError> {
        Dwell::postgres_with(url.parse::<dwell_postgres::Address>()?, Limits::default()).await
    }

    /// The same, with a parsed address and with limits.
    ///
    /// # Errors
    /// As [`Dwell::postgres`].
    #[cfg(feature = "postgres")]
    pub async fn postgres_with(
        address: dwell_postgres::Address,
        limits: Limits,
    ) -> std::result::Result<Dwell, OpenError> {
        Ok(dwell_postgres::PostgresStore::open_with_thread_async(address, limits).await?.into())
    }

    /// A new store in memory. Its messages are lost when it is dropped.
    pub fn memory() -> Dwell {
        Dwell::memory_with(Limits::default(), Arc::new(SystemClock::new()))
    }

    /// The same, with limits and a clock: with a [`ManualClock`](crate::ManualClock) a test moves time by hand.
    pub fn memory_with(limits: Limits, clock: Arc<dyn Clock>) -> Dwell {
        MemoryStore::new(limits, clock).into()
    }

    /// Any store that the caller has opened and closes itself. To have [`close`](Dwell::close) close a store of the other
    /// kinds, make the `Dwell` `from` it.
    pub fn on(store: Arc<dyn Store>) -> Dwell {
        Dwell { store, opened: Opened::Elsewhere }
    }

    /// The queue `name`. It needs no creation.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no queue can have that name.
    pub fn queue<N>(&self, name: N) -> Result<Queue>
    where
        N: TryInto<QueueName>,
        Invalid: From<N::Error>,
    {
        Queue::new(Arc::clone(&self.store), name)
    }

    /// The queues that have messages, waiting takes, or settings of their own: by name, at most `max`, from the first one
    /// after `after`, or from the beginning.
    ///
    /// # Errors
    /// Those of the store as a whole. A queue that cannot be read is listed by name, with the reason ([`QueueStats::unread`]).
    pub async fn queues(&self, after: Option<QueueName>, max: usize) -> Result<Vec<QueueStats>> {
        self.store.queues(after, max).await
    }

    /// Queue and id of the message with this number; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Unavailable`] and [`Error::ForeignData`], if the message may be stored where it cannot be read.
    pub async fn locate(&self, number: Number) -> Result<Option<(QueueName, MessageId)>> {
        self.store.locate(vec![number]).await.pop().expect("a store answers each item")
    }

    /// The store itself, for calls over several queues.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The engine of a store in files, for what only the engine has, such as counters and backups.
    #[cfg(feature = "engine")]
    pub fn engine(&self) -> Option<&dwell_engine::Engine> {
        match &self.opened {
            Opened::Engine(engine) => Some(engine),
            _ => None,
        }
    }

    /// Closes the store for all clones and queues: waiting takes return no messages, all later calls return
    /// [`Error::Closed`], session leases are released without spending an attempt, and all is synced. Other processes on the
    /// same Redis or PostgreSQL are not affected. A store that the caller has opened ([`Dwell::on`]) is left open.
    ///
    /// A store in files syncs on this thread.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] or [`Error::Stopped`] if the disk failed, now or before; [`Error::Unavailable`] if Redis or
    /// PostgreSQL did not answer, so that session leases were not released and end as after a crash; [`Error::Closed`] if it was
    /// closed already.
    pub async fn close(&self) -> Result<()> {
        match &self.opened {
            #[cfg(feature = "engine")]
            Opened::Engine(engine) => engine.close()?,
            #[cfg(feature = "postgres")]
            Opened::Postgres(store) => {
                first(!store.has_left())?;
                if !store.leave().await {
                    let reason = "PostgreSQL did not release session leases".into();
                    return Err(Error::Unavailable { reason });
                }
            }
            #[cfg(feature = "redis")]
            Opened::Redis(store) => first(store.leave().await?)?,
            Opened::Memory(store) => first(store.close())?,
            Opened::Elsewhere => {}
        }
        Ok(())
    }

    /// The same store for threads that may block, by the fastest path for them.
    pub(crate) fn for_threads(&self) -> Arc<dyn Store> {
        match &self.opened {
            // A thread that may block runs the engine's steps itself (inline call), which saves two thread switches per call.
            #[cfg(feature = "engine")]
            Opened::Engine(engine) => Arc::clone(engine.blocking().store()) as Arc<dyn Store>,
            _ => Arc::clone(&self.store),
        }
    }
}

#[cfg(feature = "engine")]
impl From<dwell_engine::Engine> for Dwell {
    /// The store of this engine and of its clones: [`close`](Dwell::close) closes it for all of them.
    fn from(engine: dwell_engine::Engine) -> Dwell {
        Dwell { store: Arc::new(engine.clone()), opened: Opened::Engine(engine) }
    }
}

#[cfg(feature = "http")]
impl From<dwell_client::Client> for Dwell {
    /// The store of this client's server. [`close`](Dwell::close) leaves it open, since it belongs to the server.
    fn from(client: dwell_client::Client) -> Dwell {
        Dwell::on(Arc::new(client))
    }
}

#[cfg(feature = "postgres")]
impl From<dwell_postgres::PostgresStore> for Dwell {
    /// This store. Its calls run where it was opened: on that runtime, or on its own thread.
    fn from(store: dwell_postgres::PostgresStore) -> Dwell {
        let store = Arc::new(store);
        Dwell { store: Arc::clone(&store) as Arc<dyn Store>, opened: Opened::Postgres(store) }
    }
}

#[cfg(feature = "redis")]
impl From<dwell_redis::RedisStore> for Dwell {
    /// This store. Its calls run where it was opened: on that runtime, or on its own thread.
    fn from(store: dwell_redis::RedisStore) -> Dwell {
        let store = Arc::new(store);
        Dwell { store: Arc::clone(&store) as Arc<dyn Store>, opened: Opened::Redis(store) }
    }
}

impl From<MemoryStore> for Dwell {
    fn from(store: MemoryStore) -> Dwell {
        let store = Arc::new(store);
        Dwell { store: Arc::clone(&store) as Arc<dyn Store>, opened: Opened::Memory(store) }
    }
}

#[cfg(feature = "delivery")]
impl dwell_delivery::IntoStore for Dwell {
    fn into_store(self) -> Arc<dyn Store> {
        self.store
    }
}

/// Refuses a second close.
fn first(is_first: bool) -> Result<()> {
    if is_first { Ok(()) } else { Err(Error::Closed) }
}

impl fmt::Debug for Dwell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let opened = match &self.opened {
            #[cfg(feature = "engine")]
            Opened::Engine(_) => "engine",
            #[cfg(feature = "postgres")]
            Opened::Postgres(_) => "postgres",
            #[cfg(feature = "redis")]
            Opened::Redis(_) => "redis",
            Opened::Memory(_) => "memory",
            Opened::Elsewhere => "elsewhere",
        };
        f.debug_struct("Dwell").field("opened", &opened).finish_non_exhaustive()
    }
}
