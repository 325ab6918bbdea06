//! Putting one message.

use serde_json::json;

use crate::support::{start, start_with};
use dwell_model::Limits;

#[tokio::test]
async fn a_put_is_answered_with_where_the_message_is() {
    let server = start().await;
    let answer = server.send("POST", "/v1/queues/a%2Fb%3B1/messages?delay=30m", &[], b"close order 7").await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let put = answer.json();
    assert_eq!(put["outcome"], "created");
    assert_eq!(put["number"], 1);
    let location = answer.header("location").unwrap();
    assert_eq!(location, format!("/v1/queues/a%2Fb%3B1/messages/{}", put["id"].as_str().unwrap()));

    let message = server.get(location).await.json();
    assert_eq!(message["queue"], "a/b;1");
    assert_eq!(message["state"], "scheduled");
    assert_eq!(message["body"], "close order 7");
    assert_eq!(message["due"], put["due"]);
    server.stop().await;
}

#[tokio::test]
async fn every_attribute_arrives() {
    let server = start().await;
    let target = "/v1/queues/q/messages?due=2030-01-02T03:04:05%2B01:00&key=%D0%B7%D0%B0%D0%BA%D0%B0%D0%B7+7\
                  &priority=5&expires=2031-01-01T00:00:00Z&max_attempts=unlimited&lease=1h30m";
    let headers =
        [("Content-Type", "text/x-order"), ("Dwell-Header-Trace", "é-1"), ("Idempotency-Key", "t1")];
    let answer = server.send("POST", target, &headers, b"x").await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let message = server.get(answer.header("location").unwrap()).await.json();
    let expected = json!({
        "id": answer.json()["id"], "number": 1, "queue": "q", "state": "scheduled", "body": "x", "size": 1,
        "due": "2030-01-02T02:04:05.000Z", "created": message["created"],
        "expires": "2031-01-01T00:00:00.000Z", "key": "заказ 7",
        "headers": {"content-type": "text/x-order", "trace": "é-1"},
        "priority": 5, "attempt": 0, "max_attempts": "unlimited", "lease": "1h30m",
        "counts": {"takes": 0, "lapses": 0, "releases": 0, "buries": 0, "revives": 0},
    });
    assert_eq!(message, expected);
    server.stop().await;
}

#[tokio::test]
async fn an_idempotency_key_makes_a_repeated_put_harmless() {
    let server = start().await;
    let put = || server.send("POST", "/v1/queues/q/messages", &[("Idempotency-Key", "once")], b"x");
    let first = put().await.json();
    let taken = server.take("").await;
    server.post(&format!("/v1/receipts/{}/ack", taken["receipt"].as_str().unwrap())).await;
    let again = put().await;
    assert_eq!((again.status, again.json()), (201, first));
    assert!(server.take("").await.is_null());
    server.stop().await;
}

#[tokio::test]
async fn an_idempotency_key_with_another_body_or_key_is_a_mismatch_and_puts_nothing() {
    let server = start().await;
    let put = |query: &str, body: &'static [u8]| {
        let target = format!("/v1/queues/q/messages{query}");
        let server = &server;
        async move { server.send("POST", &target, &[("Idempotency-Key", "once")], body).await }
    };
    let first = put("?key=k&delay=1h", b"x").await.json();
    for (query, body) in [("?key=k&delay=1h", b"y"), ("?key=l&delay=1h", b"x"), ("?delay=1h", b"x")] {
        let refused = put(query, body).await;
        assert_eq!(refused.problem(), (422, "idempotency_mismatch".to_owned()), "{query}");
        assert_eq!(refused.json()["id"], first["id"], "{query}");
    }
    let item = |body: &str| json!([{"body": body, "key": "k", "delay": "2h", "idempotency_key": "once"}]);
    let many = server.post_json("/v1/queues/q/messages:batch", &item("y")).await.json();
    assert_eq!(many["answers"][0]["error"]["code"], "idempotency_mismatch");
    let many = server.post_json("/v1/queues/q/messages:batch", &item("x")).await.json();
    assert_eq!((&many["answers"][0]["id"], &many["answers"][0]["due"]), (&first["id"], &first["due"]));
    assert_eq!(put("?key=k&delay=5h&priority=3", b"x").await.json(), first, "all else may differ");
    assert_eq!(server.count("scheduled").await, Some(1));
    server.stop().await;
}

#[tokio::test]
async fn conflicts_of_keys_are_settled_as_asked() {
    let server = start().await;
    let first = server.put("?key=k&delay=1h", b"1").await;
    let taken = server.send("POST", "/v1/queues/q/messages?key=k", &[], b"2").await;
    assert_eq!(taken.problem(), (409, "key_taken".to_owned()));
    assert_eq!(taken.json()["id"], first["id"]);

    let kept = server.send("POST", "/v1/queues/q/messages?key=k&on_conflict=keep&delay=1m", &[], b"3").await;
    assert_eq!((kept.status, &kept.json()["outcome"]), (200, &json!("kept")));
    assert_eq!(kept.json()["id"], first["id"]);
    assert_eq!(kept.header("location"), None);

    let replaced = server.send("PUT", "/v1/queues/q/keys/k?delay=1h", &[], b"4").await;
    assert_eq!(replaced.status, 201);
    assert_eq!(replaced.json()["outcome"], "replaced");
    assert_eq!(replaced.json()["replaced"], first["id"]);
    assert_eq!(server.get("/v1/queues/q/keys/k").await.json()["body"], "4");

    let rejected = server.send("PUT", "/v1/queues/q/keys/k?on_conflict=reject", &[], b"5").await;
    assert_eq!(rejected.problem(), (409, "key_taken".to_owned()));
    let named_twice = server.send("PUT", "/v1/queues/q/keys/k?key=l", &[], b"5").await;
    assert_eq!(named_twice.problem(), (400, "unknown_parameter".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn levels_are_the_queues() {
    let server = start().await;
    let answer = server.patch_json("/v1/queues/q/settings", &json!({"levels": ["1s", "5s", "2h"]})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let third = server.put("?level=3", b"x").await;
    let plain = server.put("?delay=2h", b"x").await;
    assert_eq!(third["due"], plain["due"]);
    let unknown = server.send("POST", "/v1/queues/q/messages?level=4", &[], b"x").await;
    assert_eq!(unknown.problem(), (400, "unknown_level".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn a_full_queue_says_when_to_come_back() {
    let server = start().await;
    server.patch_json("/v1/queues/q/settings", &json!({"max_pending": 1})).await;
    server.put("", b"1").await;
    let full = server.send("POST", "/v1/queues/q/messages", &[], b"2").await;
    assert_eq!(full.problem(), (429, "queue_full".to_owned()));
    assert_eq!(full.json()["limit"], 1);
    assert_eq!(full.header("retry-after"), Some("1"));
    server.stop().await;
}

#[tokio::test]
async fn bodies_are_kept_to_the_byte_and_to_the_limit() {
    let server = start_with(Limits { body_len: 300_000, ..Limits::default() }, |_| {}).await;
    let longest: Vec<u8> = (0..300_000_u32).map(|at| ((at * 7919) >> 3) as u8).collect();
    server.put("", &longest).await;
    let raw = [("accept", "application/octet-stream")];
    let taken = server.send("POST", "/v1/queues/q/take", &raw, b"").await;
    assert!(taken.body == longest);
    server.put("", b"").await;
    let taken = server.take("").await;
    assert_eq!((&taken["body"], &taken["size"]), (&json!(""), &json!(0)));

    let too_long = server.send("POST", "/v1/queues/q/messages", &[], &vec![0; 300_001]).await;
    assert_eq!(too_long.problem(), (413, "body_too_large".to_owned()));
    assert_eq!(too_long.json()["limit"], 300_000);
    server.stop().await;
}
