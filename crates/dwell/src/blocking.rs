//! The same API for threads without a runtime: the same names, and calls that block.
//!
//! The builders are the same types: `orders.put("…").call()?` here is
//! `orders.put("…").await?` there. See [`dwell_store::blocking`].
//!
//! Do not call it on a thread of an async runtime: it blocks that thread and the other tasks on it. If the store runs on
//! that same runtime, as a `redis::RedisStore` opened on it does, the call may never return. A store of `Dwell::redis`,
//! in either module, runs on its own thread.

use std::fmt;
#[cfg(feature = "engine")]
use std::path::Path;
use std::sync::Arc;

use dwell_model::{Invalid, Limits, MessageId, Number, QueueName};
pub use dwell_store::blocking::{Job, Jobs, Queue};
use dwell_store::{QueueStats, Result, Store};
use dwell_time::Clock;
use pollster::block_on;

#[cfg(any(feature = "engine", feature = "http", feature = "postgres", feature = "redis"))]
use crate::OpenError;

/// An open store, and the queues in it. Cloning is cheap, and clones are the same store. See [`crate::Dwell`].
#[derive(Clone)]
pub struct Dwell {
    inner: crate::Dwell,
    store: Arc<dyn Store>,
}

/// The same store. If it runs on the program's Tokio runtime, that
/// runtime must be driven by another thread; see the [module](self).
impl From<crate::Dwell> for Dwell {
    fn from(inner: crate::Dwell) -> Dwell {
        Dwell { store: inner.for_threads(), inner }
    }
}

impl Dwell {
    /// See [`crate::Dwell::open`].
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "engine")]
    pub fn open(dir: impl AsRef<Path>) -> std::result::Result<Dwell, OpenError> {
        crate::Dwell::open(dir).map(Dwell::from)
    }

    /// See [`crate::Dwell::open_with`].
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "engine")]
    pub fn open_with(
        dir: impl AsRef<Path>,
        options: dwell_engine::Options,
    ) -> std::result::Result<Dwell, OpenError> {
        crate::Dwell::open_with(dir, options).map(Dwell::from)
    }

    /// See [`crate::Dwell::connect`].
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "http")]
    pub fn connect(url: &str) -> std::result::Result<Dwell, OpenError> {
        crate::Dwell::connect(url).map(Dwell::from)
    }

    /// See [`crate::Dwell::redis`].
    ///
    /// # Panics
    /// If called on a thread of an async runtime, which it would block.
    ///
    /// # Errors
    /// As there, and if the operating system refuses a thread.
    #[cfg(feature = "redis")]
    pub fn redis(url: &str) -> std::result::Result<Dwell, OpenError> {
        Dwell::redis_with(url.parse::<dwell_redis::Address>()?, Limits::default())
    }

    /// See [`crate::Dwell::redis_with`].
    ///
    /// # Panics
    /// If called on a thread of an async runtime, which it would block.
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "redis")]
    pub fn redis_with(
        address: dwell_redis::Address,
        limits: Limits,
    ) -> std::result::Result<Dwell, OpenError> {
        Ok(crate::Dwell::from(dwell_redis::RedisStore::open_with_thread(address, limits)?).into())
    }

    /// See [`crate::Dwell::postgres`].
    ///
    /// # Panics
    /// If called on a thread of an async runtime, which it would block.
    ///
    /// # Errors
    /// As there, and if the operating system refuses a thread.
    #[cfg(feature = "postgres")]
    pub fn postgres(url: &str) -> std::result::Result<Dwell, OpenError> {
        Dwell::postgres_with(url.parse::<dwell_postgres::Address>()?, Limits::default())
    }

    /// See [`crate::Dwell::postgres_with`].
    ///
    /// # Panics
    /// If called on a thread of an async runtime, which it would block.
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "postgres")]
    pub fn postgres_with(
        address: dwell_postgres::Address,
        limits: Limits,
    ) -> std::result::Result<Dwell, OpenError> {
        Ok(crate::Dwell::from(dwell_postgres::PostgresStore::open_with_thread(address, limits)?).into())
    }

    /// See [`crate::Dwell::memory`].
    pub fn memory() -> Dwell {
        crate::Dwell::memory().into()
    }

    /// See [`crate::Dwell::memory_with`].
    pub fn memory_with(limits: Limits, clock: Arc<dyn Clock>) -> Dwell {
        crate::Dwell::memory_with(limits, clock).into()
    }

    /// See [`crate::Dwell::on`].
    pub fn on(store: Arc<dyn Store>) -> Dwell {
        crate::Dwell::on(store).into()
    }

    /// The queue `name`. It needs no creation.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if no queue can have that name.
    pub fn queue<N>(&self, name: N) -> Result<Queue>
    where
        N: TryInto<QueueName>,
        Invalid: From<N::Error>,
    {
        Queue::new(Arc::clone(&self.store), name)
    }

    /// See [`crate::Dwell::queues`].
    ///
    /// # Errors
    /// As there.
    pub fn queues(&self, after: Option<QueueName>, max: usize) -> Result<Vec<QueueStats>> {
        block_on(self.inner.queues(after, max))
    }

    /// See [`crate::Dwell::locate`].
    ///
    /// # Errors
    /// As there.
    pub fn locate(&self, number: Number) -> Result<Option<(QueueName, MessageId)>> {
        block_on(self.inner.locate(number))
    }

    /// The store itself, for calls over several queues.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// See [`crate::Dwell::engine`].
    #[cfg(feature = "engine")]
    pub fn engine(&self) -> Option<&dwell_engine::Engine> {
        self.inner.engine()
    }

    /// See [`crate::Dwell::close`].
    ///
    /// # Errors
    /// As there.
    pub fn close(&self) -> Result<()> {
        block_on(self.inner.close())
    }
}

impl fmt::Debug for Dwell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}
