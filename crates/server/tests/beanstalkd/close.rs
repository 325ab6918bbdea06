//! The jobs of a connection are given back when it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dwell_model::Limits;
use dwell_store::{MemoryStore, Store};
use dwell_time::SystemClock;
use tokio::time::timeout;

use crate::counting::Counting;
use crate::support::{soon, start, start_counting, start_on, until};

#[tokio::test]
async fn all_jobs_of_a_connection_are_ready_at_once_when_it_closes() {
    let server = start().await;
    let (mut producer, mut worker) = (server.connect().await, server.connect().await);
    for _ in 0..100 {
        producer.put(0, 0, 1_000, "x").await;
    }
    for _ in 0..100 {
        worker.reserve().await;
    }
    assert_eq!((server.counts().await.ready, server.counts().await.leased), (0, 100));
    drop(worker);
    until("they are ready", || async { server.counts().await.ready == 100 }).await;
    let id = producer.reserve().await;
    assert_eq!(producer.map(&format!("stats-job {id}")).await["timeouts"], "0");
    server.stop().await;
}

/// Each call is a sync, where the store has a disk.
#[tokio::test]
async fn what_many_connections_held_goes_back_in_one_call() {
    const WORKERS: u64 = 50;
    let (server, store) = start_counting().await;
    let mut client = server.connect().await;
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        client.put(0, 0, 1_000, "x").await;
        let mut worker = server.connect().await;
        worker.reserve().await;
        workers.push(worker);
    }
    store.holds_settles.store(true, Ordering::SeqCst);
    drop(workers.pop());
    until("the first is under way", async || store.settles.load(Ordering::SeqCst) == 1).await;
    drop(workers);
    until("all have gone", async || client.map("stats").await["current-connections"] == "1").await;
    store.gate.add_permits(1_000);
    until("they are ready", async || server.counts().await.ready == WORKERS).await;
    assert_eq!(
        store.settles.load(Ordering::SeqCst),
        2,
        "one call for all that came while the first was under way"
    );
    server.stop().await;
}

/// The caller that stops a server closes its store next.
#[tokio::test]
async fn what_connections_held_has_gone_back_when_the_server_has_stopped() {
    let memory = Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
    let store = Arc::new(Counting::new(Arc::clone(&memory) as Arc<dyn Store>));
    let server = start_on(Arc::clone(&store) as Arc<dyn Store>, Arc::clone(&memory), 0).await;
    let mut worker = server.connect().await;
    worker.put(0, 0, 1_000, "x").await;
    worker.reserve().await;
    store.holds_settles.store(true, Ordering::SeqCst);
    let mut stopping = server.begin_stop();
    until("it is being given back", async || store.settles.load(Ordering::SeqCst) == 1).await;
    let early = timeout(Duration::from_millis(100), &mut stopping).await;
    assert!(early.is_err(), "it has stopped before");
    store.gate.add_permits(1);
    soon("it stops", stopping).await.unwrap();
    let counts = memory.stats("default".parse().unwrap()).await.unwrap().counts;
    assert_eq!((counts.ready, counts.leased), (1, 0));
}

#[tokio::test]
async fn quit_closes_after_what_came_before_and_gives_back() {
    let server = start().await;
    let mut client = server.connect().await;
    let id = client.put(0, 0, 1_000, "x").await;
    client.write("reserve\r\nquit\r\nuse t\r\n").await;
    assert_eq!(client.next_job().await.1, id);
    assert!(client.is_closed().await);
    until("it is ready", || async { server.counts().await.ready == 1 }).await;
    server.stop().await;
}

#[tokio::test]
async fn a_waiting_reserve_of_a_connection_that_closes_takes_nothing() {
    let server = start().await;
    for _ in 0..20 {
        let mut waiter = server.connect().await;
        waiter.write("reserve\r\n").await;
        server.until_waiting(1).await;
        drop(waiter);
        let mut client = server.connect().await;
        let id = client.put(0, 0, 1_000, "x").await;
        assert_eq!(client.job("reserve-with-timeout 10").await.1, id);
        client.expect(&format!("delete {id}"), "DELETED").await;
    }
    server.stop().await;
}

/// More than is read while a reserve waits.
fn a_reserve_and_much_behind_it() -> String {
    format!("reserve\r\n{}", "list-tube-used\r\n".repeat(MUCH))
}

const MUCH: usize = 5_000;

#[tokio::test]
async fn a_waiting_reserve_of_a_connection_that_closes_takes_nothing_though_much_is_behind_it() {
    let server = start().await;
    let mut client = server.connect().await;
    for _ in 0..5 {
        let mut waiter = server.connect().await;
        waiter.write(a_reserve_and_much_behind_it()).await;
        server.until_waiting(1).await;
        drop(waiter);
        server.until_waiting(0).await;
        let id = client.put(0, 0, 1_000, "x").await;
        assert_eq!(client.job("reserve-with-timeout 10").await.1, id);
        client.expect(&format!("delete {id}"), "DELETED").await;
    }
    until("they are gone", async || client.map("stats").await["current-connections"] == "1").await;
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_stops_sending_with_much_behind_a_waiting_reserve_gets_all_its_replies() {
    let server = start().await;
    let mut client = server.connect().await;
    client.write(a_reserve_and_much_behind_it()).await;
    server.until_waiting(1).await;
    client.half_close().await;
    assert_eq!(client.line().await, "TIMED_OUT");
    for _ in 0..MUCH {
        assert_eq!(client.line().await, "USING default");
    }
    assert!(client.is_closed().await);
    server.stop().await;
}

#[tokio::test]
async fn half_a_put_puts_nothing() {
    let server = start().await;
    let mut client = server.connect().await;
    client.write("put 0 0 9 5\r\nhel").await;
    client.half_close().await;
    assert!(client.is_closed().await);
    assert_eq!(server.counts().await.ready, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_sends_all_and_stops_sending_gets_all_its_replies() {
    let server = start().await;
    let mut client = server.connect().await;
    client.write("put 0 0 9 1\r\nx\r\nuse t\r\nlist-tube-used\r\n").await;
    client.half_close().await;
    assert!(client.line().await.starts_with("INSERTED "));
    assert_eq!(client.line().await, "USING t");
    assert_eq!(client.line().await, "USING t");
    assert!(client.is_closed().await);
    server.stop().await;
}
