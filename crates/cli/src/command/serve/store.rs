//! Opens and closes the store of a server.

use std::fmt::Display;
use std::sync::Arc;

use dwell_engine::Engine;
use dwell_model::Limits;
use dwell_postgres::PostgresStore;
use dwell_redis::RedisStore;
use dwell_server::{StoreConfig, StoreKind};
use dwell_store::{MemoryStore, Store};
use dwell_time::SystemClock;
use tokio::runtime::Handle;

use super::engine::{self, Recovered};
use crate::exit::{Exit, Failure};

/// An open store.
pub(crate) struct OpenedStore {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) recovered: Option<Recovered>,
    pub(super) engine: Option<Engine>,
    shared: SharedStore,
}

/// A store that other processes may share.
enum SharedStore {
    Not,
    Redis(Arc<RedisStore>),
    Postgres(Arc<PostgresStore>),
}

/// Opens it. The calls of a store in Redis or PostgreSQL run on `runtime`.
pub(crate) fn open(config: &StoreConfig, limits: Limits, runtime: &Handle) -> Result<OpenedStore, Failure> {
    let closed_by_itself = |store: Arc<dyn Store>| OpenedStore {
        store,
        recovered: None,
        engine: None,
        shared: SharedStore::Not,
    };
    match &config.kind {
        StoreKind::Memory => {
            Ok(closed_by_itself(Arc::new(MemoryStore::new(limits, Arc::new(SystemClock::new())))))
        }
        StoreKind::Redis(address) => {
            let opened = runtime.block_on(RedisStore::open(address.as_ref().clone(), limits));
            let refused = |error: dwell_redis::OpenError| refused(error.code(), error.is_retryable(), error);
            let store = Arc::new(opened.map_err(refused)?);
            Ok(OpenedStore { shared: SharedStore::Redis(Arc::clone(&store)), ..closed_by_itself(store) })
        }
        StoreKind::Postgres(address) => {
            let opened = runtime.block_on(PostgresStore::open(address.as_ref().clone(), limits));
            let refused =
                |error: dwell_postgres::OpenError| refused(error.code(), error.is_retryable(), error);
            let store = Arc::new(opened.map_err(refused)?);
            // Callers in SQL have the defaults of the configuration too.
            let published = runtime.block_on(store.publish_defaults());
            published.map_err(|error| self::refused(error.code(), error.is_retryable(), error))?;
            Ok(OpenedStore { shared: SharedStore::Postgres(Arc::clone(&store)), ..closed_by_itself(store) })
        }
        _ => {
            let (engine, recovered) = engine::open(config, limits)?;
            let opened = closed_by_itself(Arc::new(engine.with_inline_calls()));
            Ok(OpenedStore { recovered: Some(recovered), engine: Some(engine), ..opened })
        }
    }
}

fn refused(code: &'static str, retryable: bool, error: impl Display) -> Failure {
    Failure { retryable, ..Failure::new(Exit::CannotStart, code, error) }
}

impl OpenedStore {
    /// Ends the store's work for this process; others that share it go on. It has to be called before the runtime is
    /// dropped.
    pub(crate) async fn leave(&self) {
        const RUNS_OUT: &str = "what is left runs out, and spends an attempt of each message";
        match &self.shared {
            SharedStore::Not => {}
            SharedStore::Redis(store) => {
                if let Err(error) = store.leave().await {
                    tracing::warn!(code = error.code(), %error, "{RUNS_OUT}");
                }
            }
            SharedStore::Postgres(store) => {
                if !store.leave().await {
                    tracing::warn!(
                        code = "unavailable",
                        "PostgreSQL did not release session leases: {RUNS_OUT}"
                    );
                }
            }
        }
    }

    /// Closes the store; everything that was answered is on disk then, with any durability.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let Some(engine) = self.engine else { return Ok(()) };
        engine.close().map_err(|error| Failure::new(Exit::Refused, error.code(), error))
    }
}
