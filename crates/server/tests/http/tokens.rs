//! Who is asked for a token, and what is said to whoever has none, or a wrong one.

use dwell_model::Limits;

use crate::support::{Answer, Connection, Running, start, start_with, tokens};

async fn guarded() -> Running {
    let tokens = tokens(&[("secret", &["put:q", "take:q"]), ("other", &["manage:*"])]);
    start_with(Limits::default(), |config| config.http.tokens = tokens).await
}

async fn put_as(server: &Running, authorization: &str) -> Answer {
    server.send("POST", "/v1/queues/q/messages", &[("authorization", authorization)], b"x").await
}

#[tokio::test]
async fn a_request_without_a_token_is_told_what_to_send() {
    let server = guarded().await;
    let answer = server.post("/v1/queues/q/messages").await;
    assert_eq!(answer.problem(), (401, "token_required".to_owned()));
    assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"dwell\""));
    assert!(answer.text().contains("Authorization: Bearer"));
    for open in ["/health/live", "/health/ready", "/", "/errors/forbidden"] {
        assert_eq!(server.get(open).await.status, 200, "{open}");
    }
    assert_eq!(server.count("ready").await, None);
    server.stop().await;
}

#[tokio::test]
async fn what_is_no_known_token_is_refused_everywhere() {
    let server = guarded().await;
    for wrong in ["Bearer wrong", "Bearer secret2", "Bearer secre", "Bearer", "Basic c2VjcmV0", "secret", ""]
    {
        let answer = put_as(&server, wrong).await;
        assert_eq!(answer.problem(), (401, "token_unknown".to_owned()), "{wrong}");
        assert!(!answer.text().contains("wrong"), "what was shown is not repeated");
        let health = server.send("GET", "/health/live", &[("authorization", wrong)], b"").await;
        assert_eq!(health.problem(), (401, "token_unknown".to_owned()), "{wrong}");
    }
    let twice = [("authorization", "Bearer secret"), ("authorization", "Bearer other")];
    let answer = server.send("POST", "/v1/queues/q/messages", &twice, b"x").await;
    assert_eq!(answer.problem(), (401, "token_unknown".to_owned()));
    assert_eq!(server.count("ready").await, None);
    assert_eq!(put_as(&server, "bearer secret").await.status, 201, "the scheme is read in any case");
    server.stop().await;
}

#[tokio::test]
async fn a_token_in_the_query_is_no_token() {
    let server = guarded().await;
    let answer = server.post("/v1/queues/q/messages?token=secret").await;
    assert_eq!(answer.problem(), (401, "token_required".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn without_tokens_nobody_is_asked_and_nothing_that_is_shown_matters() {
    let server = start().await;
    assert_eq!(put_as(&server, "Bearer anything").await.status, 201);
    server.stop().await;
}

#[tokio::test]
async fn a_foreign_page_is_refused_whatever_token_it_has() {
    let server = guarded().await;
    for (header, value, code) in
        [("host", "evil.example", "foreign_host"), ("origin", "http://evil.example", "foreign_origin")]
    {
        let headers = [(header, value), ("authorization", "Bearer secret")];
        let answer = server.send("POST", "/v1/queues/q/messages", &headers, b"x").await;
        assert_eq!(answer.problem(), (403, code.to_owned()));
    }
    assert_eq!(server.count("ready").await, None);
    server.stop().await;
}

#[tokio::test]
async fn tokens_change_under_an_open_connection() {
    let server = guarded().await;
    let mut connection = Connection::open(server.address).await;
    let mut put = async |secret: &str| {
        let authorization = format!("Bearer {secret}");
        connection.request("POST", "/v1/queues/q/messages", &[("authorization", &authorization)], b"x").await;
        connection.answer().await.status
    };
    assert_eq!((put("secret").await, put("new").await), (201, 401));
    server.control.replace(&[], tokens(&[("secret", &["put:*"]), ("new", &["put:*"])]), None);
    assert_eq!(
        (put("secret").await, put("new").await),
        (201, 201),
        "both, for as long as it takes to change"
    );
    server.control.replace(&[], tokens(&[("new", &["put:*"])]), None);
    assert_eq!((put("secret").await, put("new").await), (401, 201));
    server.stop().await;
}

#[tokio::test]
async fn a_take_that_waits_ends_when_its_token_is_gone() {
    let server = guarded().await;
    let both = tokens(&[("secret", &["put:*", "take:*"]), ("new", &["put:*", "take:*"])]);
    server.control.replace(&[], both.clone(), None);
    let mut connection = Connection::open(server.address).await;
    let secret = [("authorization", "Bearer secret")];
    connection.request("POST", "/v1/queues/q/take?wait=1m", &secret, b"").await;
    server.until_count("waiting", 1).await;
    // What does not concern it does not end it.
    server.control.replace(&[], both, None);
    server.control.replace(&[], tokens(&[("secret", &["put:*", "take:*"])]), None);
    assert_eq!(server.count("waiting").await, Some(1));

    server.control.replace(&[], tokens(&[("new", &["put:*", "take:*"])]), None);
    let answer = connection.answer().await;
    assert_eq!((answer.status, answer.json()["messages"].as_array().unwrap().len()), (200, 0));
    assert_eq!(put_as(&server, "Bearer new").await.status, 201);
    assert_eq!(server.count("ready").await, Some(1), "it was handed to nobody");
    connection.request("POST", "/v1/queues/q/take", &secret, b"").await;
    assert_eq!(connection.answer().await.problem(), (401, "token_unknown".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn a_stream_ends_when_its_token_is_gone_or_has_fewer_scopes() {
    for now in [tokens(&[("new", &["put:*"])]), tokens(&[("secret", &["take:*"])])] {
        let server = guarded().await;
        let mut stream = Connection::open(server.address).await;
        let headers = [
            ("authorization", "Bearer secret"),
            ("content-type", "application/x-ndjson"),
            ("transfer-encoding", "chunked"),
        ];
        stream.head("POST", "/v1/queues/q/messages:batch", &headers).await;
        stream.chunk(b"{\"body\":\"1\"}\n").await;
        assert_eq!(stream.answer_head().await.status, 200);
        assert!(!stream.answer_chunk().await.is_empty());
        server.control.replace(&[], now, None);
        let _ = stream.try_chunk(b"{\"body\":\"2\"}\n").await;
        let last = String::from_utf8(stream.answer_chunk().await).unwrap();
        assert!(last.contains("\"token_unknown\""), "{last}");
        assert!(stream.answer_chunk().await.is_empty());
        assert_eq!(server.count("ready").await, Some(1));
        server.stop().await;
    }
}

#[tokio::test]
async fn a_refusal_comes_before_the_body() {
    let server = guarded().await;
    let mut connection = Connection::open(server.address).await;
    let headers = [("content-length", "1000000"), ("expect", "100-continue")];
    connection.head("POST", "/v1/queues/q/messages", &headers).await;
    assert_eq!(connection.answer().await.problem(), (401, "token_required".to_owned()));
    server.stop().await;
}
