//! What a connection held goes back when it ends.

use crate::support::{start, until};

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
