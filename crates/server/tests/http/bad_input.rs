//! Bad input: each a typed error with a stable code, and nothing has changed.

use crate::support::{Connection, Running, start, start_with};
use dwell_model::Limits;

async fn code(server: &Running, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> String {
    let answer = server.send(method, target, headers, body).await;
    let (status, code) = answer.problem();
    format!("{status} {code}")
}

#[tokio::test]
async fn parameters_of_a_put() {
    let server = start().await;
    let long_key = format!("key={}", "k".repeat(513));
    for (query, expected) in [
        ("delay=-5s", "400 negative_delay"),
        ("delay=30", "400 malformed_delay"),
        ("delay=soon", "400 malformed_delay"),
        ("delay=", "400 malformed_delay"),
        ("delay=400000000d", "400 due_out_of_range"),
        ("due=1969-12-31T23:59:59Z", "400 due_out_of_range"),
        ("due=10000-01-01T00:00:00Z", "400 due_out_of_range"),
        ("due=tomorrow", "400 malformed_instant"),
        ("due=1795000000", "400 malformed_instant"),
        ("due=2030-01-01T00:00:00Z&delay=5s", "400 conflicting_fields"),
        ("delay=5s&level=1", "400 conflicting_fields"),
        ("delay=5s&delay=6s", "400 invalid_parameter"),
        ("level=1", "400 unknown_level"),
        ("level=0", "400 unknown_level"),
        ("level=x", "400 invalid_parameter"),
        ("expires=2001-01-01T00:00:00Z", "400 expires_before_due"),
        ("due=2000-01-01T00:00:00Z&expires=2001-01-01T00:00:00Z", "400 expires_before_due"),
        ("due=2030-01-01T00:00:00Z&expires=2030-01-01T00:00:00Z", "400 expires_before_due"),
        ("dely=5s", "400 unknown_parameter"),
        ("delay_ms=5", "400 unknown_parameter"),
        ("key=", "400 invalid_key"),
        (&long_key, "400 invalid_key"),
        ("key=%FF", "400 malformed_request"),
        ("on_conflict=ignore", "400 invalid_parameter"),
        ("priority=-1", "400 invalid_parameter"),
        ("priority=4294967296", "400 invalid_parameter"),
        ("max_attempts=0", "400 invalid_parameter"),
        ("lease=0ms", "400 invalid_setting"),
    ] {
        let target = format!("/v1/queues/q/messages?{query}");
        assert_eq!(code(&server, "POST", &target, &[], b"x").await, expected, "{query}");
    }
    assert_eq!(server.count("ready").await, None, "nothing was put");
    server.stop().await;
}

#[tokio::test]
async fn headers_of_a_put() {
    let server = start().await;
    let big = "v".repeat(20_000);
    let long_idempotency_key = "t".repeat(257);
    for (headers, expected) in [
        (&[("dwell-header-a", big.as_str())][..], "431 headers_too_large"),
        (&[("dwell-header-", "x")], "400 invalid_header"),
        (&[("dwell-delay", "5s")], "400 unknown_parameter"),
        (&[("dwell-header-a", "1"), ("dwell-header-a", "2")], "400 conflicting_fields"),
        (&[("content-type", "a/b"), ("dwell-header-content-type", "c/d")], "400 conflicting_fields"),
        (&[("idempotency-key", "two words")], "400 invalid_idempotency_key"),
        (&[("idempotency-key", &long_idempotency_key)], "400 invalid_idempotency_key"),
        (&[("idempotency-key", "a"), ("idempotency-key", "b")], "400 conflicting_fields"),
    ] {
        assert_eq!(
            code(&server, "POST", "/v1/queues/q/messages", headers, b"x").await,
            expected,
            "{headers:?}"
        );
    }
    let mut connection = Connection::open(server.address).await;
    let head = format!("POST /v1/queues/q/messages HTTP/1.1\r\nHost: {}\r\nDwell-Header-A: ", server.address);
    connection.write(&[head.as_bytes(), b"\xff\xfe\r\n\r\n"].concat()).await;
    assert_eq!(connection.answer().await.problem(), (400, "invalid_header".to_owned()));
    assert_eq!(server.count("ready").await, None, "nothing was put");
    server.stop().await;
}

#[tokio::test]
async fn names_in_the_path() {
    let server = start().await;
    let long = "q".repeat(201);
    for queue in ["-q", "%2E", "%2E%2E", "a%20b", "%C3%A4", "a%0A", &long] {
        let target = format!("/v1/queues/{queue}/messages");
        assert_eq!(code(&server, "POST", &target, &[], b"x").await, "400 invalid_queue_name", "{queue}");
        assert_eq!(code(&server, "GET", &target, &[], b"").await, "400 invalid_queue_name", "{queue}");
    }
    assert_eq!(code(&server, "POST", "/v1/queues/%FF/messages", &[], b"x").await, "400 malformed_request");
    let long_key = format!("/v1/queues/q/keys/{}", "k".repeat(513));
    assert_eq!(code(&server, "PUT", &long_key, &[], b"x").await, "400 invalid_key");
    for id in ["x", "00000000-0000-0000-0000-000000000000", "67e55044-10b1-426f-9247-bb680e5fe0c8"] {
        let target = format!("/v1/queues/q/messages/{id}");
        assert_eq!(code(&server, "GET", &target, &[], b"").await, "400 malformed_id", "{id}");
        assert_eq!(code(&server, "DELETE", &target, &[], b"").await, "400 malformed_id", "{id}");
    }
    for number in ["0", "x", "-1", "9007199254740992"] {
        let target = format!("/v1/numbers/{number}");
        assert_eq!(code(&server, "GET", &target, &[], b"").await, "400 malformed_number", "{number}");
    }
    assert_eq!(code(&server, "POST", "/v1/receipts/AQGa/ack", &[], b"").await, "400 malformed_receipt");
    let list = "/v1/queues/q/messages?";
    for (query, expected) in [
        ("cursor=x", "400 malformed_cursor"),
        ("state=gone", "400 invalid_parameter"),
        ("max=1001", "400 invalid_parameter"),
        ("body=no", "400 invalid_parameter"),
        ("limit=5", "400 unknown_parameter"),
        ("", "404 unknown_queue"),
    ] {
        assert_eq!(code(&server, "GET", &format!("{list}{query}"), &[], b"").await, expected, "{query}");
    }
    assert_eq!(code(&server, "GET", "/v1/queues/q", &[], b"").await, "404 unknown_queue");
    server.stop().await;
}

#[tokio::test]
async fn json_bodies() {
    let server = start().await;
    let json = [("content-type", "application/json; charset=utf-8")];
    let target = "/v1/queues/q/settings";
    for (body, expected) in [
        (&b"{\"lease\":\"1m\""[..], "400 malformed_json"),
        (b"{\"lease\":\"\xff\"}", "400 malformed_json"),
        (b"", "400 malformed_json"),
        (b"{\"lease\":\"1m\"}}", "400 malformed_json"),
        (b"{\"leese\":\"1m\"}", "400 unknown_field"),
        (b"[]", "400 invalid_field"),
        (b"{\"lease\":\"1m\",\"lease\":\"2m\"}", "400 invalid_field"),
    ] {
        let text = String::from_utf8_lossy(body);
        assert_eq!(code(&server, "PATCH", target, &json, body).await, expected, "{text}");
    }
    let text = [("content-type", "text/plain")];
    assert_eq!(code(&server, "PATCH", target, &text, b"{}").await, "415 unsupported_media_type");
    assert_eq!(code(&server, "PATCH", target, &[], b"{}").await, "415 unsupported_media_type");
    let deep = format!("{{\"levels\":{}", "[".repeat(100_000));
    let answer = code(&server, "PATCH", target, &json, deep.as_bytes()).await;
    assert!(["400 malformed_json", "400 invalid_field"].contains(&answer.as_str()), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn routes_and_methods() {
    let server = start().await;
    for target in ["/v1", "/v2/queues", "/v1/queues/q/messages/", "/favicon.ico"] {
        assert_eq!(code(&server, "GET", target, &[], b"").await, "404 unknown_route", "{target}");
    }
    for (method, target, allow) in [
        ("GET", "/v1/queues/q/take", "POST"),
        ("PUT", "/v1/queues/q/messages", "POST,GET,HEAD"),
        ("POST", "/health/live", "GET,HEAD"),
        ("OPTIONS", "/v1/queues/q", "GET,HEAD,DELETE"),
    ] {
        let answer = server.send(method, target, &[], b"").await;
        assert_eq!(answer.problem(), (405, "method_not_allowed".to_owned()), "{method} {target}");
        assert_eq!(answer.header("allow"), Some(allow), "{method} {target}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_body_over_its_limit_is_refused_before_it_is_read() {
    let server = start_with(Limits { body_len: 1_000, ..Limits::default() }, |_| {}).await;
    let huge = [("content-length", "107374182400"), ("expect", "100-continue")];
    for (target, expected) in [
        ("/v1/queues/q/messages", (413, "body_too_large".to_owned())),
        ("/v1/queues/q/dead/revive", (413, "request_too_large".to_owned())),
    ] {
        let mut connection = Connection::open(server.address).await;
        connection.head("POST", target, &huge).await;
        assert_eq!(connection.answer().await.problem(), expected);
        assert!(connection.is_closed().await, "what may follow cannot be distinguished from a request");
    }
    // Without a length it is refused as soon as it is too long.
    let mut connection = Connection::open(server.address).await;
    connection.head("POST", "/v1/queues/q/messages", &[("transfer-encoding", "chunked")]).await;
    connection.chunk(&[b'x'; 600]).await;
    connection.chunk(&[b'x'; 600]).await;
    assert_eq!(connection.answer().await.problem(), (413, "body_too_large".to_owned()));
    assert_eq!(server.count("ready").await, None, "nothing was put");
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_sends_all_before_it_reads_sees_its_refusal() {
    let server = start().await;
    let mut connection = Connection::open(server.address).await;
    connection.request("POST", "/v1/queues/q/messages?delay=5", &[], &vec![b'x'; 8 << 20]).await;
    assert_eq!(connection.answer().await.problem(), (400, "malformed_delay".to_owned()));
    connection.request("POST", "/v1/queues/q/messages", &[], b"x").await;
    assert_eq!(connection.answer().await.status, 201, "the connection goes on");
    server.stop().await;
}

#[tokio::test]
async fn what_is_not_http_is_refused() {
    let server = start().await;
    let mut connection = Connection::open(server.address).await;
    connection.write(b"use tube\r\n\r\n").await;
    assert_eq!(connection.answer().await.status, 400);
    let mut connection = Connection::open(server.address).await;
    let endless = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(100_000));
    connection.write(endless.as_bytes()).await;
    assert_eq!(connection.answer().await.status, 431);
    let mut connection = Connection::open(server.address).await;
    let many = "X: y\r\n".repeat(200);
    connection.write(format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n").as_bytes()).await;
    assert_eq!(connection.answer().await.status, 431);
    server.stop().await;
}
