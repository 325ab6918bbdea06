//! Limits on connections, on slow clients, and on lengths.

use dwell_model::Limits;

use crate::support::{Connection, start, start_with, until};

#[tokio::test]
async fn a_connection_too_many_is_told_so_and_the_next_has_its_place() {
    let server = start_with(Limits::default(), |config| config.http.max_connections = 2).await;
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut connection = Connection::open(server.address).await;
        connection.request("GET", "/health/live", &[], b"").await;
        assert_eq!(connection.answer().await.status, 200);
        kept.push(connection);
    }
    let mut refused = Connection::open(server.address).await;
    refused.request("POST", "/v1/queues/q/messages", &[], b"x").await;
    assert_eq!(refused.answer().await.problem(), (503, "too_many_connections".to_owned()));
    assert!(refused.is_closed().await);
    assert_eq!(server.count("ready").await, None, "nothing was done");

    kept.pop();
    // The permit is free once the server has seen the end.
    until("a place is free", || async {
        let mut connection = Connection::open(server.address).await;
        connection.request("GET", "/health/live", &[], b"").await;
        connection.answer().await.status == 200
    })
    .await;
    kept[0].request("GET", "/health/live", &[], b"").await;
    assert_eq!(kept[0].answer().await.status, 200, "those who were there notice nothing");
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_comes_ever_so_slowly_is_refused() {
    // A byte now and then avoids the idle timeout, and is far from a megabyte a second.
    let server = start_with(Limits::default(), |config| {
        config.http.body_ms = 100;
        config.http.body_rate = 1 << 20;
    })
    .await;
    let connection = Connection::open(server.address).await;
    let (mut reader, mut writer) = connection.split();
    writer.head("POST", "/v1/queues/q/messages", &[("transfer-encoding", "chunked")]).await;
    let trickle = tokio::spawn(async move {
        while writer.try_chunk(b"x").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    server.clock.advance(60_000);
    let answer = reader.answer().await;
    assert_eq!(answer.problem(), (408, "request_timeout".to_owned()));
    trickle.abort();
    assert_eq!(server.count("ready").await, None);
    server.stop().await;
}

/// A client that sends headers slowly and endlessly.
#[tokio::test]
async fn a_head_that_never_ends_is_cut_off_in_time() {
    let server = start_with(Limits::default(), |config| config.http.head_ms = 100).await;
    let (mut reader, mut writer) = Connection::open(server.address).await.split();
    writer.write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n").await;
    let drip = tokio::spawn(async move {
        // Each is a whole header, so the connection is never idle.
        while writer.try_write(b"X-A: b\r\n").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
    reader.read_to_end().await;
    drip.abort();
    server.stop().await;
}

#[tokio::test]
async fn endless_headers_and_lines_are_refused_before_they_fill_the_memory() {
    let server = start().await;
    let mut many = Connection::open(server.address).await;
    many.write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n").await;
    many.write(&b"X-Header: value\r\n".repeat(101)).await;
    many.write(b"\r\n").await;
    assert_eq!(many.answer_head().await.status, 431);

    let megabyte = vec![b'a'; 1 << 20];
    for start in [&b"GET /"[..], b"GET / HTTP/1.1\r\nX-Long: ", b""] {
        let (mut reader, mut writer) = Connection::open(server.address).await.split();
        // The server may close before everything is sent.
        let _ = writer.try_write(&[start, &megabyte].concat()).await;
        let said = reader.read_to_end().await;
        let said = String::from_utf8_lossy(&said);
        let refused =
            ["HTTP/1.1 400", "HTTP/1.1 414", "HTTP/1.1 431"].iter().any(|line| said.starts_with(line));
        assert!(said.is_empty() || refused, "{said}");
    }
    assert_eq!(server.get("/health/live").await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn garbage_and_half_requests_harm_nobody() {
    let server = start().await;
    let garbage: Vec<Vec<u8>> = vec![
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        b"put 0 0 60 5\r\nhello\r\n".to_vec(),
        vec![0; 100_000],
        (0..=255).cycle().take(70_000).collect(),
    ];
    for bytes in garbage {
        let (mut reader, mut writer) = Connection::open(server.address).await.split();
        let _ = writer.try_write(&bytes).await;
        drop(writer);
        reader.read_to_end().await;
    }
    let mut half = Connection::open(server.address).await;
    half.head("POST", "/v1/queues/q/messages", &[("content-length", "10")]).await;
    half.write(b"hello").await;
    drop(half);
    assert_eq!(server.get("/health/live").await.status, 200);
    assert_eq!(server.count("ready").await, None, "half a message is none");
    server.stop().await;
}

/// An answer of megabytes, read in small pieces, while others are served.
#[tokio::test]
async fn a_client_that_reads_slowly_keeps_nobody_waiting() {
    let server = start().await;
    let body = vec![b'x'; 1 << 20];
    for _ in 0..32 {
        server.put("", &body).await;
    }
    let mut slow = Connection::open(server.address).await;
    slow.request("POST", "/v1/queues/q/take?max=32&max_bytes=67108864&lease=1h", &[], b"").await;
    server.until_count("leased", 32).await;
    let mut read = 0;
    for _ in 0..100 {
        read += slow.read_some(1).await;
        assert_eq!(server.get("/health/live").await.status, 200);
    }
    assert_eq!(read, 100);
    server.stop().await;
}
