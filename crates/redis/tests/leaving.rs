//! A process that ends in order gives back what is bound to it, and spends no attempt: however much it is, whatever
//! is under way, and though Redis is slow.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

use std::sync::Arc;
use std::time::Duration;

use dwell_model::{Limits, QueueName, Setting, SettingChange};
use dwell_redis::RedisStore;
use dwell_store::{Delivery, Error, Put, Store as _, Take};
use dwell_testkit::redis::Server;
use dwell_testkit::redis::proxy::{Link, Proxy};
use dwell_testkit::{until_async, within};

const LEASE_MS: u64 = 3_600_000;

fn queue() -> QueueName {
    QueueName::new("jobs").unwrap()
}

async fn open(url: &str) -> Arc<RedisStore> {
    Arc::new(RedisStore::open(url.parse().unwrap(), Limits::default()).await.unwrap())
}

async fn put(store: &RedisStore, count: usize) {
    for answer in store.put(vec![Put::new(queue(), "m"); count]).await {
        answer.unwrap();
    }
}

async fn take(store: &RedisStore, max: usize) -> Vec<Delivery> {
    store.take(Take::from(queue()).max(max).lease_ms(LEASE_MS)).await.unwrap()
}

async fn bind(store: &RedisStore, max: usize) -> Vec<Delivery> {
    store.take(Take::from(queue()).max(max).lease_ms(LEASE_MS).session()).await.unwrap()
}

/// Redis does not answer for longer than the former time limit for leaving, and there are many slices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_leases_are_released_though_redis_does_not_answer_for_a_while() {
    const LEASES: usize = 1_000;
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let (leaving, other) = (open(&proxy.url("")).await, open(&server.url()).await);
    other.configure(queue(), vec![SettingChange::Set(Setting::Partitions(3))]).await.unwrap();
    put(&other, LEASES).await;
    assert_eq!(bind(&leaving, LEASES).await.len(), LEASES);
    proxy.set(Link::Stalled);
    let left = tokio::spawn(async move { leaving.leave().await });
    // The time for which it does not answer.
    tokio::time::sleep(Duration::from_secs(4)).await;
    proxy.set(Link::Whole);
    assert_eq!(within("the leaving", left).await.unwrap(), Ok(true));
    let again = take(&other, LEASES).await;
    assert_eq!(again.len(), LEASES);
    for delivery in again {
        let standing = &delivery.message.standing;
        assert_eq!((standing.attempt(), standing.counts.releases, standing.counts.lapses), (1, 1, 0));
    }
}

/// The take reaches Redis when all else that the process held has been given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_take_under_way_binds_is_released_as_well() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let store = open(&proxy.url("connections=2&timeout_ms=20000")).await;
    let other = open(&server.url()).await;
    put(&other, 1).await;
    // From now on the process is registered to bind leases here.
    assert_eq!(bind(&store, 1).await.len(), 1);
    put(&other, 1).await;
    proxy.stop_request_after(0);
    let taking = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { bind(&store, 1).await })
    };
    within("the take", proxy.stopped()).await;
    let leaving = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.leave().await })
    };
    // A call that begins before that is behind the request that is stopped.
    let has_left = async || {
        let asked = tokio::time::timeout(Duration::from_millis(100), store.ready()).await;
        asked == Ok(Err(Error::Closed))
    };
    until_async("the leaving", has_left).await;
    proxy.go_on();
    assert_eq!(within("the leaving", leaving).await.unwrap(), Ok(true));
    within("the take", taking).await.unwrap();
    let again = take(&other, 2).await;
    assert_eq!(again.len(), 2);
    assert!(again.iter().all(|delivery| delivery.message.standing.attempt() == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_could_not_release_its_leases_says_so() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let store = open(&proxy.url("")).await;
    put(&store, 1).await;
    assert_eq!(bind(&store, 1).await.len(), 1);
    proxy.set(Link::Cut);
    let left = within("the leaving", store.leave()).await;
    assert!(matches!(left, Err(Error::Unavailable { .. })), "{left:?}");
    assert_eq!(store.leave().await, Ok(false), "it has left all the same");
}
