//! Many concurrent calls, processes and queues: what they cost a Redis, and that none of them holds up another.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

mod confirmed;
mod session_leases;
mod waiting;
mod wide;

use dwell_model::{Limits, QueueName};
use dwell_redis::{Address, RedisStore};
use dwell_store::{Error, Put, PutAnswer, Store as _};
use dwell_testkit::within;

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

async fn open(address: Address) -> RedisStore {
    RedisStore::open(address, Limits::default()).await.unwrap()
}

async fn put(store: &RedisStore, put: Put) -> Result<PutAnswer, Error> {
    store.put(vec![put]).await.pop().unwrap()
}
