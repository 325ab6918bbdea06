//! Clients that disconnect: their messages are given back at once, and no attempt is spent.
//!
//! The clock stands still in these tests, so that no lease can run out and hide a bug.

use dwell_store::{Put, Store};

use crate::support::{Connection, start};

#[tokio::test]
async fn a_waiting_take_whose_connection_closes_takes_nothing() {
    let server = start().await;
    let mut connection = Connection::open(server.address).await;
    connection.request("POST", "/v1/queues/q/take?wait=1m", &[], b"").await;
    server.until_count("waiting", 1).await;
    drop(connection);
    // Without messages, waiters and settings the queue is deleted.
    crate::support::until("the take is gone", || async { server.count("waiting").await.is_none() }).await;
    server.put("", b"x").await;
    assert_eq!(server.count("ready").await, Some(1));
    let taken = server.take("").await;
    assert_eq!(taken["counts"]["takes"], 1);
    server.stop().await;
}

/// A message falls due just as a client disconnects whose take waits, and that has sent `behind` more requests: it is
/// given back.
async fn is_given_back(rounds: u32, behind: usize) {
    let server = start().await;
    let more = format!("GET /health/live HTTP/1.1\r\nHost: {}\r\n\r\n", server.address).repeat(behind);
    for round in 0..rounds {
        let mut connection = Connection::open(server.address).await;
        connection.request("POST", "/v1/queues/q/take?wait=1m&lease=1h", &[], b"").await;
        server.until_count("waiting", 1).await;
        connection.write(more.as_bytes()).await;
        drop(connection);
        let put = server.store.put(vec![Put::new("q".parse().unwrap(), "x")]).await;
        assert!(put[0].is_ok());
        server.until_count("ready", 1).await;
        let taken = server.take("").await;
        assert_eq!(taken["attempt"], 1, "round {round}");
        server.post(&format!("/v1/receipts/{}/ack", taken["receipt"].as_str().unwrap())).await;
    }
    server.stop().await;
}

/// The runtime of this test has one thread, so the server cannot notice the disconnect before it has a message for the
/// client.
#[tokio::test]
async fn a_message_that_falls_due_just_as_the_client_goes_is_given_back() {
    is_given_back(50, 0).await;
}

/// Unread bytes after the take must not hide the disconnect: more than the server reads ahead, and no more than the
/// system's buffers hold, because the end of a longer stream cannot have arrived.
#[tokio::test]
async fn much_that_is_unread_behind_a_take_does_not_hide_that_its_client_went() {
    is_given_back(10, 1_500).await;
}

#[tokio::test]
async fn an_answer_that_was_made_and_not_written_gives_its_messages_back() {
    let server = start().await;
    // More than socket buffers hold, so that the answer stays in the server's.
    let body = vec![b'x'; 1 << 20];
    for _ in 0..48 {
        server.put("", &body).await;
    }
    let mut connection = Connection::open(server.address).await;
    connection.request("POST", "/v1/queues/q/take?max=48&max_bytes=67108864&lease=1h", &[], b"").await;
    server.until_count("leased", 48).await;
    assert_eq!(connection.answer_head().await.status, 200, "the answer is on its way");
    assert_eq!(server.count("ready").await, Some(0));
    drop(connection);
    server.until_count("ready", 48).await;
    assert_eq!(server.count("leased").await, Some(0));
    let taken = server.take("").await;
    assert_eq!(taken["attempt"], 1);
    server.stop().await;
}

#[tokio::test]
async fn an_answer_that_was_written_keeps_its_lease_when_the_client_goes() {
    let server = start().await;
    server.put("", b"x").await;
    let taken = server.take("?lease=1h").await;
    assert_eq!(server.count("leased").await, Some(1));
    let acked = server.post(&format!("/v1/receipts/{}/ack", taken["receipt"].as_str().unwrap())).await;
    assert_eq!(acked.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_pipelines_and_goes_gives_its_message_back() {
    let server = start().await;
    let mut connection = Connection::open(server.address).await;
    let take =
        format!("POST /v1/queues/q/take?wait=1m&lease=1h HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
    connection.write(take.repeat(2).as_bytes()).await;
    server.until_count("waiting", 1).await;
    drop(connection);
    server.put("", b"x").await;
    server.until_count("ready", 1).await;
    server.until_count("waiting", 0).await;
    server.stop().await;
}
