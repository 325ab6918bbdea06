//! Shutting down.

use std::sync::Arc;

use dwell_model::Limits;
use dwell_server::Drained;
use dwell_store::Store;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::support::{Connection, soon, start, start_with};

#[tokio::test]
async fn waiting_takes_are_answered_with_nothing_and_the_server_ends() {
    let server = start().await;
    let mut waiting = Connection::open(server.address).await;
    waiting.request("POST", "/v1/queues/q/take?wait=1m", &[], b"").await;
    let mut idle = Connection::open(server.address).await;
    idle.request("GET", "/health/live", &[], b"").await;
    assert_eq!(idle.answer().await.status, 200);
    let untouched = Connection::open(server.address).await;
    server.until_count("waiting", 1).await;

    let address = server.address;
    let store = Arc::clone(&server.store);
    assert_eq!(server.stop().await, Drained { cut_off: 0 });
    assert_eq!(waiting.answer().await.text(), r#"{"messages":[]}"#);
    assert!(waiting.is_closed().await);
    assert!(idle.is_closed().await);
    drop(untouched);
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
    assert!(store.stats("q".parse().unwrap()).await.is_err(), "the take has left nothing behind");
}

#[tokio::test]
async fn a_request_under_way_is_answered() {
    let server = start().await;
    let mut connection = Connection::open(server.address).await;
    let headers = [("content-length", "5"), ("expect", "100-continue")];
    connection.head("POST", "/v1/queues/q/messages", &headers).await;
    assert_eq!(connection.answer_head().await.status, 100, "the server has it in its hands");
    let _ = server.stop.send(());
    connection.write(b"hello").await;
    assert_eq!(connection.answer().await.status, 201);
    assert!(connection.is_closed().await);
    soon("the server stops", server.task).await.unwrap();
    assert_eq!(server.store.stats("q".parse().unwrap()).await.unwrap().counts.ready, 1);
}

#[tokio::test]
async fn a_stream_under_way_is_told_where_it_ends() {
    let server = start().await;
    let mut connection = Connection::open(server.address).await;
    let headers = [("content-type", "application/x-ndjson"), ("transfer-encoding", "chunked")];
    connection.head("POST", "/v1/queues/q/messages:batch", &headers).await;
    connection.chunk(b"{\"body\":\"1\"}\n").await;
    assert_eq!(connection.answer_head().await.status, 200);
    let first: Value = serde_json::from_slice(&connection.answer_chunk().await).unwrap();
    assert_eq!(first["status"], 201);
    server.stop().await;
    let last: Value = serde_json::from_slice(&connection.answer_chunk().await).unwrap();
    assert_eq!((&last["status"], last["error"]["code"].as_str()), (&503.into(), Some("shutting_down")));
    assert!(connection.answer_chunk().await.is_empty());
}

/// Whatever was read ahead when the shutdown began: items answered with 201 are put, the one answered with 503 and all
/// after it are not.
#[tokio::test]
async fn a_stream_in_full_flow_ends_at_an_item() {
    let server = start().await;
    let mut connection = Connection::open(server.address).await;
    let headers = [("content-type", "application/x-ndjson"), ("transfer-encoding", "chunked")];
    connection.head("POST", "/v1/queues/q/messages:batch", &headers).await;
    let (mut reader, mut writer) = connection.split();
    let flow = tokio::spawn(async move {
        let lines = b"{\"body\":\"x\"}\n".repeat(1_000);
        // Until the server stops reading.
        while writer.try_chunk(&lines).await.is_ok() {}
    });
    assert_eq!(reader.answer_head().await.status, 200);
    server.until("some are put", |counts| counts.ready > 10_000).await;
    let store = Arc::clone(&server.store);
    let _ = server.stop.send(());
    let mut answers = Vec::new();
    loop {
        let mut chunk = reader.answer_chunk().await;
        if chunk.is_empty() {
            break;
        }
        answers.append(&mut chunk);
    }
    let answers: Vec<Value> = answers
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    let (last, put) = answers.split_last().unwrap();
    assert_eq!(last["error"]["code"], "shutting_down");
    assert!(put.iter().all(|answer| answer["status"] == 201));
    let stopped = soon("the server stops", server.task).await.unwrap();
    assert_eq!(stopped, Drained { cut_off: 0 });
    soon("the flow ends", flow).await.unwrap();
    let ready = store.stats("q".parse().unwrap()).await.unwrap().counts.ready;
    assert_eq!(ready, put.len() as u64);
}

#[tokio::test]
async fn what_does_not_end_in_time_is_cut_off() {
    let server = start_with(Limits::default(), |config| config.drain_ms = 50).await;
    let mut stuck = Connection::open(server.address).await;
    let headers = [("content-length", "5"), ("expect", "100-continue")];
    stuck.head("POST", "/v1/queues/q/messages", &headers).await;
    assert_eq!(stuck.answer_head().await.status, 100);
    let store = Arc::clone(&server.store);
    assert_eq!(server.stop().await, Drained { cut_off: 1 });
    assert!(stuck.is_closed().await);
    assert!(store.stats("q".parse().unwrap()).await.is_err());
}

#[tokio::test]
async fn messages_of_a_connection_that_is_cut_off_are_back_when_the_server_has_ended() {
    let server = start_with(Limits::default(), |config| config.drain_ms = 50).await;
    let body = vec![b'x'; 1 << 20];
    for _ in 0..48 {
        server.put("", &body).await;
    }
    let mut unread = Connection::open(server.address).await;
    unread.request("POST", "/v1/queues/q/take?max=48&max_bytes=67108864&lease=1h", &[], b"").await;
    server.until_count("leased", 48).await;
    let store = Arc::clone(&server.store);
    assert_eq!(server.stop().await, Drained { cut_off: 1 });
    let counts = store.stats("q".parse().unwrap()).await.unwrap().counts;
    assert_eq!((counts.ready, counts.leased), (48, 0));
}
