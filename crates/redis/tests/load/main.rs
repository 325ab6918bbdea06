//! Redis dies, fails over, drops its scripts and its connections under a real load; and what was answered is compared
//! with what was delivered. `docs/redis.md` has the table.
//!
//! - `ledger`: producers and consumers, and the record of their answers
//! - `storm`: connections killed and scripts flushed, over and over
//! - `restart`: `kill -9` of a Redis whose file is always synced
//! - `failover`: a primary dies under Sentinels, with `WAIT` and without

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

mod failover;
mod ledger;
mod restart;
mod storm;

use dwell_model::{Limits, QueueName, Receipt, Setting, SettingChange};
use dwell_redis::RedisStore;
use dwell_store::{Action, Delivery, Error, Put, PutAnswer, Settle, Settled, Store as _, Take};
use dwell_testkit::{until_async as until, within};

/// The queue of the load.
fn queue() -> QueueName {
    QueueName::new("orders").unwrap()
}

/// The queue of the messages that a test itself holds.
fn held() -> QueueName {
    QueueName::new("held").unwrap()
}

async fn open(url: &str) -> RedisStore {
    RedisStore::open(url.parse().unwrap(), Limits::default()).await.unwrap()
}

/// Spreads the queue of the load.
async fn over_partitions(store: &RedisStore, partitions: u16) {
    let changes = vec![SettingChange::Set(Setting::Partitions(partitions))];
    assert_eq!(store.configure(queue(), changes).await.unwrap().settings.partitions, partitions);
}

async fn put(store: &RedisStore, put: Put) -> Result<PutAnswer, Error> {
    store.put(vec![put]).await.pop().unwrap()
}

/// Puts a message into the test's own queue and takes it at once.
async fn hold(store: &RedisStore, body: &str, lease_ms: u64) -> Delivery {
    put(store, Put::new(held(), body.to_owned())).await.unwrap();
    store.take(Take::from(held()).lease_ms(lease_ms)).await.unwrap().pop().unwrap()
}

async fn ack(store: &RedisStore, receipt: &Receipt) -> Result<Settled, Error> {
    store.settle(vec![Settle { receipt: receipt.clone(), action: Action::Ack }]).await.pop().unwrap()
}
