//! The store of a server: where the configuration says, opened and closed.

use std::sync::Arc;

use dwell_engine::Engine;
use dwell_model::Limits;
use dwell_redis::{Address, OpenError, RedisStore};
use dwell_server::{StoreConfig, StoreKind};
use dwell_store::{MemoryStore, Store};
use dwell_time::SystemClock;
use tokio::runtime::Handle;

use super::engine::{self, Recovered};
use crate::exit::{Exit, Failure};

/// An open store.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) recovered: Option<Recovered>,
    pub(super) engine: Option<Engine>,
    redis: Option<Arc<RedisStore>>,
}

/// Opens it. The calls of one in Redis run on `runtime`.
pub(crate) fn open(config: &StoreConfig, limits: Limits, runtime: &Handle) -> Result<Opened, Failure> {
    let closed_by_itself =
        |store: Arc<dyn Store>| Opened { store, recovered: None, engine: None, redis: None };
    match &config.kind {
        StoreKind::Memory => {
            Ok(closed_by_itself(Arc::new(MemoryStore::new(limits, Arc::new(SystemClock::new())))))
        }
        StoreKind::Redis(address) => {
            let store = Arc::new(open_redis(address, limits, runtime)?);
            Ok(Opened { redis: Some(Arc::clone(&store)), ..closed_by_itself(store) })
        }
        _ => {
            let (engine, recovered) = engine::open(config, limits)?;
            let opened = closed_by_itself(Arc::new(engine.taking_turns()));
            Ok(Opened { recovered: Some(recovered), engine: Some(engine), ..opened })
        }
    }
}

fn open_redis(address: &Address, limits: Limits, runtime: &Handle) -> Result<RedisStore, Failure> {
    let refused = |error: OpenError| Failure {
        retryable: error.is_retryable(),
        ..Failure::new(Exit::CanNotStart, error.code(), error)
    };
    runtime.block_on(RedisStore::open(address.clone(), limits)).map_err(refused)
}

impl Opened {
    /// Ends what the store does for this process; others that share it go on. Call it while the runtime is there.
    pub(crate) async fn leave(&self) {
        let Some(redis) = &self.redis else { return };
        if let Err(error) = redis.leave().await {
            tracing::warn!(code = error.code(), %error, "what is left runs out, and spends an attempt of each message");
        }
    }

    /// Closes the store; what was answered is on the disk then, whatever the durability.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let Some(engine) = self.engine else { return Ok(()) };
        engine.close().map_err(|error| Failure::new(Exit::Refused, error.code(), error))
    }
}
