//! Clients that stall.

use std::time::Duration;

use dwell_model::Limits;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use crate::support::{Answer, Connection, PATIENCE, soon, start_with};

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_connection() {
    let server = start_with(Limits::default(), |config| config.http.head_ms = 50).await;
    let mut connection = Connection::open(server.address).await;
    connection.write(b"GET /health/live HTTP/1.1\r\nHost: local").await;
    assert!(connection.is_closed().await);
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_stands_still_is_refused() {
    let server = start_with(Limits::default(), |config| config.http.body_ms = 50).await;
    let mut connection = Connection::open(server.address).await;
    connection.head("POST", "/v1/queues/q/messages", &[("content-length", "5")]).await;
    connection.write(b"hel").await;
    let answer = connection.answer().await;
    assert_eq!(answer.problem(), (408, "request_timeout".to_owned()));

    let mut connection = Connection::open(server.address).await;
    let headers = [("content-type", "application/x-ndjson"), ("transfer-encoding", "chunked")];
    connection.head("POST", "/v1/queues/q/messages:batch", &headers).await;
    connection.chunk(b"{\"body\":\"1\"}\n{\"body\"").await;
    let answer = connection.answer().await;
    let answers: Vec<Value> = answer.lines();
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0]["status"], 201);
    assert_eq!(answers[1]["error"]["code"], "request_timeout");
    assert_eq!(server.count("ready").await, Some(1));
    server.stop().await;
}

/// Crash story: 1. a client sends requests to which the answers have no body, one behind the other, and reads nothing.
/// 2. The server goes on reading requests, and keeps the head of each answer, until its memory is full.
#[tokio::test]
async fn requests_are_not_read_while_the_answers_before_them_are_not() {
    const MOST: usize = 48 * 1024 * 1024;
    const REQUEST: &[u8] =
        b"HEAD / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n";
    let server = start_with(Limits::default(), |config| config.http.write_ms = 2_000).await;
    let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let many = REQUEST.repeat(1_000);
    let mut sent = 0;
    // It ends once the server has read nothing for longer than it waits for a client that reads nothing.
    while sent < MOST
        && let Ok(Ok(len)) = tokio::time::timeout(PATIENCE, stream.write(&many[sent % REQUEST.len()..])).await
    {
        sent += len;
    }
    assert!(sent < MOST, "{sent} bytes of requests were read, and no answer");
    server.stop().await;
}

/// The answer to a request whose bytes arrive slowly, by `drip`.
pub(crate) async fn dripping(
    connection: Connection,
    mut drip: impl AsyncFnMut(&mut Connection<tokio::net::tcp::OwnedWriteHalf>) -> std::io::Result<()>,
) -> Answer {
    let (mut reader, mut writer) = connection.split();
    let drips = async {
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            if drip(&mut writer).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    soon("an answer", async {
        tokio::select! {
            answer = reader.answer() => answer,
            () = drips => unreachable!("it goes on for ever"),
        }
    })
    .await
}

/// A fast beginning does not allow the rest to take hours.
#[tokio::test]
async fn a_body_most_of_which_came_at_once_may_not_come_slowly_from_then_on() {
    let server = start_with(Limits::default(), |config| {
        config.http.body_ms = 200;
        config.http.body_rate = 1_024;
    })
    .await;
    let mut slow = Connection::open(server.address).await;
    slow.head("POST", "/v1/queues/q/messages", &[("content-length", "1000000")]).await;
    slow.write(&vec![b'x'; 900_000]).await;
    let answer = dripping(slow, async |slow| slow.try_write(b"x").await).await;
    assert_eq!(answer.problem(), (408, "request_timeout".to_owned()));
    server.stop().await;
}

/// Half a line is held; that a stream may be endless does not allow its line to be.
#[tokio::test]
async fn a_line_of_a_stream_that_comes_ever_so_slowly_ends_it() {
    let server = start_with(Limits::default(), |config| {
        config.http.body_ms = 200;
        config.http.body_rate = 1_024;
    })
    .await;
    let mut slow = Connection::open(server.address).await;
    let headers = [("content-type", "application/x-ndjson"), ("transfer-encoding", "chunked")];
    slow.head("POST", "/v1/queues/q/messages:batch", &headers).await;
    slow.chunk(b"{\"body\":\"1\"}\n{\"body\":\"").await;
    let answer = dripping(slow, async |slow| slow.try_chunk(b"x").await).await;
    let answers: Vec<Value> = answer.lines();
    assert_eq!((answers[0]["status"].as_u64(), answers.len()), (Some(201), 2));
    assert_eq!(answers[1]["error"]["code"], "request_timeout");
    server.stop().await;
}

#[tokio::test]
async fn an_answer_that_nobody_reads_is_given_up() {
    let server = start_with(Limits::default(), |config| config.http.write_ms = 50).await;
    let body = vec![b'x'; 1 << 20];
    for _ in 0..48 {
        server.put("", &body).await;
    }
    let mut unread = Connection::open(server.address).await;
    unread.request("POST", "/v1/queues/q/take?max=48&max_bytes=67108864&lease=1h", &[], b"").await;
    server.until_count("leased", 48).await;
    server.until_count("ready", 48).await;
    server.stop().await;
}
