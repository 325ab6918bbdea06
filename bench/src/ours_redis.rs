//! Our side on Redis: the native store on a separate server without persistence, called through the store contract.

use std::sync::Arc;

use bytes::Bytes;
use dwell_model::{Limits, QueueName, Receipt, Timestamp};
use dwell_redis::RedisStore;
use dwell_store::{Action, Delivery, Put, Settle, Store as _, Take};
use dwell_testkit::redis::Server;
use tokio::runtime::Runtime;

use crate::Result;
use crate::workload::Tally;

/// A Redis and a store on it, on the server's clock.
pub(crate) struct Native {
    pub(crate) runtime: Runtime,
    pub(crate) store: Arc<RedisStore>,
    pub(crate) server: Server,
}

impl Native {
    /// One thread serves all calls, as the peer's single connection has a single caller.
    pub(crate) fn start() -> Result<Native> {
        Native::start_on(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
    }

    pub(crate) fn start_on(runtime: Runtime) -> Result<Native> {
        let server = Server::start();
        let store = runtime.block_on(RedisStore::open(server.address(), Limits::default()))?;
        Ok(Native { runtime, store: Arc::new(store), server })
    }

    /// Loads the scripts into Redis by sending one message through another queue.
    ///
    /// The peer's scripts are loaded before the measurement too.
    pub(crate) fn load_scripts(&self) -> Result<()> {
        let queue: QueueName = "scripts".parse()?;
        self.put(vec![put_at(&queue, b"one", 0)?])?;
        let receipts = self.take(&queue, 1, &mut Tally::default())?;
        self.ack(receipts)
    }

    /// Puts a batch; fails if an item was refused.
    pub(crate) fn put(&self, puts: Vec<Put>) -> Result<()> {
        for answer in self.runtime.block_on(self.store.put(puts)) {
            answer?;
        }
        Ok(())
    }

    /// Takes up to `max` messages and adds their bodies to `tally`.
    pub(crate) fn take(&self, queue: &QueueName, max: usize, tally: &mut Tally) -> Result<Vec<Receipt>> {
        let taken = self.runtime.block_on(self.store.take(Take::from(queue.clone()).max(max)))?;
        let receipt = |delivery: Delivery| {
            tally.add(&delivery.message.body);
            delivery.receipt
        };
        Ok(taken.into_iter().map(receipt).collect())
    }

    pub(crate) fn ack(&self, receipts: Vec<Receipt>) -> Result<()> {
        for answer in self.runtime.block_on(self.store.settle(acks(receipts))) {
            answer?;
        }
        Ok(())
    }
}

pub(crate) fn acks(receipts: Vec<Receipt>) -> Vec<Settle> {
    receipts.into_iter().map(|receipt| Settle { receipt, action: Action::Ack }).collect()
}

/// A put of these bytes at an instant.
pub(crate) fn put_at(queue: &QueueName, body: &[u8], due_ms: i64) -> Result<Put> {
    Ok(Put::new(queue.clone(), Bytes::copy_from_slice(body)).at(Timestamp::from_ms(due_ms)?))
}
