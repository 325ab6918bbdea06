//! When a token is required, and the answers to missing and wrong ones.

use dwell_model::Limits;
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use crate::support::{Answer, Connection, Running, soon, start, start_with, tokens};

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
    for shown in ["Bearer anything", "Bearer", "Basic c2VjcmV0", "secret", ""] {
        assert_eq!(put_as(&server, shown).await.status, 201, "{shown}");
    }
    let twice = [("authorization", "Bearer one"), ("authorization", "Bearer other")];
    assert_eq!(server.send("POST", "/v1/queues/q/messages", &twice, b"x").await.status, 201);
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
    // A change that does not concern it does not end it.
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

/// For a body that arrives slowly: nothing of it is executed once the token is revoked.
#[tokio::test]
async fn a_request_whose_body_is_still_to_come_ends_when_its_token_is_gone() {
    let one = (b"x".as_slice(), "text/plain", "/v1/queues/q/messages");
    let batch = (br#"[{"body":"x"}]"#.as_slice(), "application/json", "/v1/queues/q/messages:batch");
    for (body, content_type, target) in [one, batch] {
        let server = guarded().await;
        let mut connection = Connection::open(server.address).await;
        let len = body.len().to_string();
        let headers = [
            ("authorization", "Bearer secret"),
            ("content-type", content_type),
            ("content-length", &len),
            ("expect", "100-continue"),
        ];
        connection.head("POST", target, &headers).await;
        assert_eq!(connection.answer_head().await.status, 100, "the server waits for the body");
        server.control.replace(&[], tokens(&[("new", &["put:*"])]), None);
        let _ = connection.try_write(body).await;
        assert_eq!(connection.answer().await.problem(), (401, "token_unknown".to_owned()), "{target}");
        assert_eq!(server.count("ready").await, None);
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

/// The client reads next to nothing until the token is revoked.
#[tokio::test]
async fn a_batch_that_is_answered_piece_by_piece_ends_when_its_token_is_gone() {
    let server = guarded().await;
    let put = async |key: &str, body: &[u8], secret: &str| {
        let target = format!("/v1/queues/q/messages?key={key}&on_conflict=replace");
        let answer = server.send("POST", &target, &[("authorization", secret)], body).await;
        assert!(answer.status < 300, "{answer:?}");
    };
    let often = "k".repeat(500);
    put(&often, b"", "Bearer secret").await;
    put("last", b"before", "Bearer secret").await;
    let mut items = vec![json!({"key": often}); 16_383];
    items.push(json!({"key": "last"}));
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 * 1024).unwrap();
    let stream = soon("connect", socket.connect(server.address)).await.unwrap();
    let mut slow = Connection::over(stream, server.address);
    let headers = [("content-type", "application/json"), ("authorization", "Bearer secret")];
    let items = Value::from(items).to_string();
    slow.request("POST", "/v1/queues/q/messages:get", &headers, items.as_bytes()).await;
    assert_eq!(slow.answer_head().await.status, 200);

    server.control.replace(&[], tokens(&[("new", &["put:q"])]), None);
    put("last", b"after", "Bearer new").await;
    let mut text = Vec::new();
    loop {
        let mut piece = slow.answer_chunk().await;
        if piece.is_empty() {
            break;
        }
        text.append(&mut piece);
    }
    let answers: Value = serde_json::from_slice(&text).unwrap();
    let answers = answers["answers"].as_array().unwrap();
    assert_eq!((answers.len(), &answers[0]["status"]), (16_384, &json!(200)));
    assert_eq!(answers[16_383]["error"]["code"], "token_unknown");
    let first = answers.iter().position(|answer| answer["status"] != 200).unwrap();
    assert!(answers[first..].iter().all(|answer| answer["error"]["code"] == "token_unknown"));
    server.stop().await;
}
