//! Many items in one request.

use dwell_model::Limits;
use serde_json::{Value, json};

use crate::support::{Connection, start, start_with};

const NDJSON: (&str, &str) = ("content-type", "application/x-ndjson");

fn summary(answers: &[Value]) -> Vec<String> {
    let one = |answer: &Value| match answer["error"]["code"].as_str() {
        None => format!("{} {}", answer["status"], answer["outcome"].as_str().unwrap_or_default()),
        Some(code) => {
            assert_eq!(answer["status"], answer["error"]["status"]);
            format!("{} {code}", answer["status"])
        }
    };
    answers.iter().map(one).collect()
}

#[tokio::test]
async fn an_array_is_answered_item_by_item() {
    let server = start().await;
    let items = json!([
        {"body": "1", "key": "k", "delay": "1h"},
        {"body": "2", "key": "k"},
        {"body_base64": "/wA=", "delay_ms": 5, "headers": {"a": "b"}, "max_attempts": 3, "lease_ms": 1500},
        {"body": "4", "delya": "1h"},
        {"body": "5", "due": "2030-01-01T00:00:00Z", "delay": "1h"},
        {"body": "6", "queue": "elsewhere"},
        {"body": "7", "queue": "q", "key": "k", "on_conflict": "replace"},
        {"delay": "1h"},
        {"body": "9", "body_base64": ""},
        {"body": "10", "delay": "1h", "delay_ms": 3600000},
        {"body": "11", "delay": "-1h"},
        {"body": "12", "priority": "high"},
        17,
        {"body": "14", "idempotency_key": "two words"},
    ]);
    let answer = server.post_json("/v1/queues/q/messages:batch", &items).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answers = answer.json()["answers"].as_array().unwrap().clone();
    assert_eq!(
        summary(&answers),
        [
            "201 created",
            "409 key_taken",
            "201 created",
            "400 unknown_field",
            "400 conflicting_fields",
            "400 conflicting_fields",
            "201 replaced",
            "400 missing_field",
            "400 conflicting_fields",
            "400 conflicting_fields",
            "400 negative_delay",
            "400 invalid_field",
            "400 invalid_field",
            "400 invalid_idempotency_key",
        ]
    );
    assert_eq!(answers[1]["error"]["id"], answers[0]["id"]);
    assert_eq!(answers[6]["replaced"], answers[0]["id"]);
    let binary = format!("/v1/queues/q/messages/{}", answers[2]["id"].as_str().unwrap());
    let binary = server.get(&binary).await.json();
    assert_eq!(binary["body_base64"], "/wA=");
    assert_eq!(binary["lease"], "1s500ms");
    assert_eq!(binary["max_attempts"], 3);
    assert_eq!(binary["headers"], json!({"a": "b"}));
    server.stop().await;
}

#[tokio::test]
async fn each_item_may_name_its_queue() {
    let server = start().await;
    let items = json!([{"queue": "a", "body": "1"}, {"queue": "b", "body": "2"}, {"body": "3"}, {"queue": "-", "body": "4"}]);
    let answers = server.post_json("/v1/messages:batch", &items).await.json();
    let answers = answers["answers"].as_array().unwrap();
    assert_eq!(
        summary(answers),
        ["201 created", "201 created", "400 missing_field", "400 invalid_queue_name"]
    );
    let queues = server.get("/v1/queues").await.json();
    let names: Vec<_> =
        queues["queues"].as_array().unwrap().iter().map(|queue| queue["queue"].clone()).collect();
    assert_eq!(names, ["a", "b"]);
    server.stop().await;
}

#[tokio::test]
async fn an_array_has_limits_and_is_refused_whole() {
    let server = start_with(Limits { batch: 3, ..Limits::default() }, |_| {}).await;
    let target = "/v1/queues/q/messages:batch";
    assert_eq!(server.post_json(target, &json!([])).await.text(), r#"{"answers":[]}"#);
    let too_many =
        server.post_json(target, &json!([{"body": "1"}, {"body": "2"}, {"body": "3"}, {"body": "4"}])).await;
    assert_eq!(too_many.problem(), (413, "batch_too_large".to_owned()));
    assert_eq!(too_many.json()["limit"], 3);
    let no_array = server.post_json(target, &json!({"body": "1"})).await;
    assert_eq!(no_array.problem(), (400, "invalid_field".to_owned()));
    let json = [("content-type", "application/json")];
    for broken in [&b"[{\"body\":\"1\"}"[..], b"[{\"body\":\"\xff\"}]", b"", b"[{\"body\":\"1\"}] x"] {
        let broken = server.send("POST", target, &json, broken).await;
        assert_eq!(broken.problem(), (400, "malformed_json".to_owned()));
    }
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let wrong = server.send("POST", target, &form, b"[{\"body\":\"1\"}]").await;
    assert_eq!(wrong.problem(), (415, "unsupported_media_type".to_owned()));
    let idempotency_key = [json[0], ("idempotency-key", "t")];
    let idempotency_key = server.send("POST", target, &idempotency_key, b"[]").await;
    assert_eq!(idempotency_key.problem(), (400, "conflicting_fields".to_owned()));
    assert_eq!(server.count("ready").await, None, "nothing was put");
    server.stop().await;
}

#[tokio::test]
async fn lines_are_answered_in_order() {
    let server = start_with(Limits { body_len: 1_000, batch: 500, ..Limits::default() }, |_| {}).await;
    let mut body = Vec::new();
    let mut expected = Vec::new();
    for at in 0..5_000 {
        let (line, answer) = match at % 100 {
            7 => ("{\"body\":".to_owned(), "400 malformed_json"),
            8 => (format!("{{\"body\":\"{}\"}}", "x".repeat(1_001)), "413 body_too_large"),
            9 => ("\n\r".to_owned(), ""),
            10 if at % 1_000 == 10 => {
                (format!("{{\"body\":\"{}\"}}", "x".repeat(200_000)), "413 request_too_large")
            }
            _ => (format!("{{\"body\":\"{at}\",\"delay\":\"1h\"}}"), "201 created"),
        };
        body.extend_from_slice(line.as_bytes());
        body.push(b'\n');
        expected.extend((!answer.is_empty()).then(|| answer.to_owned()));
    }
    body.pop();
    let answer = server.send("POST", "/v1/queues/q/messages:batch", &[NDJSON], &body).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    let answers = answer.lines();
    assert_eq!(summary(&answers), expected);
    let numbers: Vec<u64> = answers.iter().filter_map(|answer| answer["number"].as_u64()).collect();
    assert!(numbers.is_sorted(), "items take effect in their order");
    server.stop().await;
}

#[tokio::test]
async fn a_line_is_answered_before_the_next_one_is_sent() {
    let server = start().await;
    let mut connection = Connection::open(server.address).await;
    let headers = [NDJSON, ("transfer-encoding", "chunked"), ("expect", "100-continue")];
    connection.head("POST", "/v1/messages:batch", &headers).await;
    assert_eq!(connection.answer_head().await.status, 100);
    connection.chunk(b"{\"queue\":\"q\",\"body\":\"0\"}\n{\"que").await;
    assert_eq!(connection.answer_head().await.status, 200);
    let first: Value = serde_json::from_slice(&connection.answer_chunk().await).unwrap();
    assert_eq!(first["status"], 201);
    for round in 1..20 {
        let line =
            if round == 1 { "ue\":\"q\",\"body\":\"1\"}\n" } else { "{\"queue\":\"q\",\"body\":\"x\"}\n" };
        connection.chunk(line.as_bytes()).await;
        let answer: Value = serde_json::from_slice(&connection.answer_chunk().await).unwrap();
        assert_eq!((&answer["status"], &answer["number"]), (&json!(201), &json!(round + 1)));
    }
    connection.chunk(b"").await;
    assert!(connection.answer_chunk().await.is_empty());
    assert_eq!(server.count("ready").await, Some(20));

    connection.request("GET", "/health/live", &[], b"").await;
    assert_eq!(connection.answer().await.status, 200, "the connection goes on");
    server.stop().await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_puts_no_half_line() {
    let server = start().await;
    let mut connection = Connection::open(server.address).await;
    connection.head("POST", "/v1/queues/q/messages:batch", &[NDJSON, ("transfer-encoding", "chunked")]).await;
    connection.chunk(b"{\"body\":\"1\"}\n{\"body\":\"2\"}").await;
    assert_eq!(connection.answer_head().await.status, 200);
    drop(connection);
    server.put("", b"later").await;
    server.until_count("ready", 2).await;
    server.stop().await;
}

#[tokio::test]
async fn answers_to_many_large_gets_are_streamed() {
    let server = start().await;
    let body = "x".repeat(1_000_000);
    let mut items = Vec::new();
    for _ in 0..40 {
        let id = server.put("?delay=1h", body.as_bytes()).await["id"].clone();
        items.push(json!({"id": id}));
    }
    items.push(json!({"key": "none"}));
    items.push(json!({"id": "x"}));
    let answer = server.post_json("/v1/queues/q/messages:get", &Value::Array(items)).await;
    assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
    let answers = answer.json()["answers"].as_array().unwrap().clone();
    assert_eq!(answers.len(), 42);
    assert!(answers[..40].iter().all(|answer| answer["message"]["body"] == body));
    assert_eq!(summary(&answers[40..]), ["404 message_not_found", "400 malformed_id"]);
    server.stop().await;
}
