//! The same for threads without a runtime: the same names, and calls that block.
//!
//! Builders are the very same: `orders.put("…").call()?` here is `orders.put("…").await?` there. See [`dwell_store::blocking`].
//!
//! Do not call it on a thread of an async runtime: it blocks that thread, and the other tasks there with it. Where the store runs on
//! that runtime, as a `redis::RedisStore` does that was opened on it, the call may never return. A store of `Dwell::redis`, here or
//! there, has a thread of its own.

use std::fmt;
#[cfg(feature = "engine")]
use std::path::Path;
use std::sync::Arc;

use dwell_model::{Invalid, QueueName};
pub use dwell_store::blocking::{Job, Jobs, Queue};
use dwell_store::{Result, Store};
use pollster::block_on;

#[cfg(any(feature = "engine", feature = "redis"))]
use crate::OpenError;

/// An open store, and the queues in it. Cloning is cheap, and clones are the same store. See [`crate::Dwell`].
#[derive(Clone)]
pub struct Dwell {
    inner: crate::Dwell,
    store: Arc<dyn Store>,
}

/// The same store. If it runs on a Tokio runtime ([`crate::Dwell::on`]), another thread has to drive that; see the [module](self).
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

    /// See [`crate::Dwell::redis`].
    ///
    /// # Panics
    /// On a thread of an async runtime, which it would hold up.
    ///
    /// # Errors
    /// As there, and if the operating system gives no thread.
    #[cfg(feature = "redis")]
    pub fn redis(url: &str) -> std::result::Result<Dwell, OpenError> {
        let address = url.parse::<dwell_redis::Address>()?;
        let store = dwell_redis::RedisStore::open_with_thread(address, dwell_model::Limits::default())?;
        Ok(crate::Dwell::on_redis(store).into())
    }

    /// See [`crate::Dwell::memory`].
    pub fn memory() -> Dwell {
        crate::Dwell::memory().into()
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

    /// The store itself, for calls over several queues.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
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
