//! Taking messages.

use serde_json::json;

use crate::support::{Connection, soon, start, start_with};
use dwell_model::Limits;

const RAW: (&str, &str) = ("accept", "text/html, application/octet-stream;q=0.9");

#[tokio::test]
async fn a_delivery_says_all_there_is_to_say() {
    let server = start().await;
    let put =
        server.send("POST", "/v1/queues/q/messages?delay=30m&key=k", &[("content-type", "a/b")], b"hi").await;
    assert!(server.take("").await.is_null());
    server.clock.advance(30 * 60 * 1000 + 5);
    let taken = server.take("?lease=1m").await;
    let expected = json!({
        "receipt": taken["receipt"], "lease_until": taken["lease_until"], "taken_at": taken["taken_at"],
        "lateness_ms": 5,
        "id": put.json()["id"], "number": 1, "queue": "q", "state": "leased", "body": "hi", "size": 2,
        "due": put.json()["due"], "created": taken["created"], "key": "k",
        "headers": {"content-type": "a/b"}, "priority": 1024, "attempt": 1,
        "counts": {"takes": 1, "lapses": 0, "releases": 0, "buries": 0, "revives": 0},
    });
    assert_eq!(taken, expected);
    server.stop().await;
}

#[tokio::test]
async fn a_waiting_take_wakes_on_the_instant_and_on_a_put() {
    let server = start().await;
    server.put("?delay=10s", b"scheduled").await;
    for (body, wake) in [("scheduled", false), ("put", true)] {
        let waiting = server.post("/v1/queues/q/take?wait=1m");
        let waker = async {
            server.until_count("waiting", 1).await;
            if wake {
                server.put("", b"put").await;
            } else {
                server.clock.advance(10_000);
            }
        };
        let (answer, ()) = tokio::join!(waiting, waker);
        let taken = &answer.json()["messages"][0];
        assert_eq!((&taken["body"], &taken["lateness_ms"]), (&json!(body), &json!(0)));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_take_that_waits_in_vain_is_answered_with_nothing() {
    let server = start().await;
    let waiting = server.post("/v1/queues/q/take?wait=30s");
    let clock = async {
        server.until_count("waiting", 1).await;
        server.clock.advance(30_000);
    };
    let (answer, ()) = tokio::join!(waiting, clock);
    assert_eq!((answer.status, answer.text()), (200, r#"{"messages":[]}"#));
    server.stop().await;
}

#[tokio::test]
async fn several_queues_are_taken_from_in_order() {
    let server = start().await;
    for (queue, priority) in [("a", 3), ("b", 1), ("c", 2)] {
        let target = format!("/v1/queues/{queue}/messages?priority={priority}");
        server.send("POST", &target, &[], queue.as_bytes()).await;
    }
    let answer = server.post("/v1/take?queue=a,b&queue=c&max=10").await.json();
    let bodies: Vec<_> =
        answer["messages"].as_array().unwrap().iter().map(|message| &message["body"]).collect();
    assert_eq!(bodies, ["b", "c", "a"]);
    server.stop().await;
}

#[tokio::test]
async fn bytes_bound_a_take() {
    let server = start().await;
    for _ in 0..5 {
        server.put("", &[b'x'; 100]).await;
    }
    let taken = server.post("/v1/queues/q/take?max=5&max_bytes=250").await.json();
    assert_eq!(taken["messages"].as_array().unwrap().len(), 2);
    let taken = server.post("/v1/queues/q/take?max=5&max_bytes=1").await.json();
    assert_eq!(taken["messages"].as_array().unwrap().len(), 1, "always one");
    let taken = server.post("/v1/queues/q/take?max=5&max_bytes=0").await.json();
    assert_eq!(taken["messages"].as_array().unwrap().len(), 1, "always one");
    server.stop().await;
}

#[tokio::test]
async fn raw_bodies_come_as_they_were_put() {
    let server = start().await;
    let headers = [("content-type", "image/x-dwell"), ("dwell-header-trace", "é")];
    let binary: Vec<u8> = (0..=255).collect();
    server.send("POST", "/v1/queues/q/messages?key=a%2F%C3%A4&max_attempts=7", &headers, &binary).await;
    let taken = server.send("POST", "/v1/queues/q/take", &[RAW], b"").await;
    assert_eq!((taken.status, &taken.body), (200, &binary));
    assert_eq!(taken.header("content-type"), Some("image/x-dwell"));
    assert_eq!(taken.header("dwell-header-trace"), Some("é"));
    assert_eq!(taken.header("dwell-key"), Some("a%2F%C3%A4"));
    assert_eq!(taken.header("dwell-attempt"), Some("1"));
    assert_eq!(taken.header("dwell-max-attempts"), Some("7"));
    assert_eq!(taken.header("dwell-state"), Some("leased"));
    assert_eq!(taken.header("dwell-lateness-ms"), Some("0"));
    let acked = server.post(&format!("/v1/receipts/{}/ack", taken.header("dwell-receipt").unwrap())).await;
    assert_eq!(acked.text(), r#"{"state":"gone"}"#);

    let none = server.send("POST", "/v1/queues/q/take", &[RAW], b"").await;
    assert_eq!((none.status, none.text()), (204, ""));
    let several = server.send("POST", "/v1/queues/q/take?max=2", &[RAW], b"").await;
    assert_eq!(several.problem(), (400, "invalid_parameter".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn an_empty_raw_body_is_handed_over_too() {
    let server = start().await;
    server.put("", b"").await;
    let mut connection = Connection::open(server.address).await;
    connection.request("POST", "/v1/queues/q/take", &[RAW], b"").await;
    let taken = connection.answer().await;
    assert_eq!((taken.status, taken.text()), (200, ""));
    assert_eq!(taken.header("content-type"), Some("application/octet-stream"));
    connection.request("POST", "/v1/queues/q/take", &[RAW], b"").await;
    assert_eq!(connection.answer().await.status, 204, "it is not given back");
    let acked = server.post(&format!("/v1/receipts/{}/ack", taken.header("dwell-receipt").unwrap())).await;
    assert_eq!(acked.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_message_is_taken_by_its_id() {
    let server = start().await;
    let id = server.put("?delay=1h", b"x").await["id"].clone();
    let target = format!("/v1/queues/q/messages/{}/take", id.as_str().unwrap());
    let taken = server.post(&format!("{target}?lease=5m")).await;
    assert_eq!((taken.status, &taken.json()["id"]), (200, &id));
    assert!(taken.json()["receipt"].is_string());
    let again = server.post_json(&target, &json!({"lease_ms": 5000})).await;
    assert_eq!(again.problem(), (409, "leased".to_owned()));
    assert_eq!(again.json()["id"], id);
    server.stop().await;
}

#[tokio::test]
async fn limits_of_a_take() {
    let limits = Limits { leased: 1, batch: 10, ..Limits::default() };
    let server = start_with(limits, |config| config.http.max_wait_ms = 2_000).await;
    let code = async |query: &str| server.post(&format!("/v1/queues/q/take{query}")).await.problem();
    assert_eq!(code("?wait=2001ms").await, (400, "wait_too_long".to_owned()));
    assert_eq!(code("?wait=5").await, (400, "malformed_delay".to_owned()));
    assert_eq!(code("?max=0").await, (400, "invalid_parameter".to_owned()));
    assert_eq!(code("?max=11").await, (400, "invalid_parameter".to_owned()));
    assert_eq!(code("?max_bytes=67108865").await, (400, "invalid_parameter".to_owned()));
    assert_eq!(code("?lease=0s").await, (400, "invalid_setting".to_owned()));
    assert_eq!(server.post("/v1/take").await.problem(), (400, "missing_field".to_owned()));
    assert_eq!(server.post("/v1/take?queue=a,,b").await.problem(), (400, "invalid_queue_name".to_owned()));
    let with_body = server.send("POST", "/v1/queues/q/take", &[], b"max=5").await;
    assert_eq!(with_body.problem(), (400, "conflicting_fields".to_owned()));
    server.put("", b"1").await;
    server.put("", b"2").await;
    server.take("").await;
    assert_eq!(code("").await, (429, "too_many_leased".to_owned()));
    let waiting = server.post("/v1/queues/q/take?wait=2s");
    let clock = async {
        server.until_count("waiting", 1).await;
        server.clock.advance(2_000);
    };
    let (answer, ()) = tokio::join!(waiting, clock);
    assert_eq!((answer.status, answer.text()), (200, r#"{"messages":[]}"#), "one that waits is not refused");
    server.stop().await;
}

#[tokio::test]
async fn a_message_reaches_exactly_one_of_many_waiting_takes() {
    let server = start().await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let mut connection = Connection::open(server.address).await;
        waiting.spawn(async move {
            connection.request("POST", "/v1/queues/q/take?wait=1m", &[], b"").await;
            connection.answer().await
        });
    }
    server.until_count("waiting", 50).await;
    for at in 0..50 {
        server.put("", format!("{at}").as_bytes()).await;
    }
    let mut bodies = Vec::new();
    while let Some(answer) = soon("all are served", waiting.join_next()).await {
        let taken = answer.unwrap().json();
        assert_eq!(taken["messages"].as_array().unwrap().len(), 1);
        bodies.push(taken["messages"][0]["body"].as_str().unwrap().parse::<u32>().unwrap());
    }
    bodies.sort_unstable();
    assert_eq!(bodies, (0..50).collect::<Vec<_>>());
    server.stop().await;
}

/// A head has room for 16,384 names, each of which a store would have to wait on.
#[tokio::test]
async fn a_take_names_as_many_queues_as_the_limit_says_and_no_more() {
    let server = start().await;
    let limit = server.get("/v1/limits").await.json()["limits"]["take_queues"].as_u64().unwrap() as usize;
    let names = |count: usize| (0..count).map(|at| format!("q{at}")).collect::<Vec<_>>().join(",");
    let most = server.post(&format!("/v1/take?queue={}", names(limit))).await;
    assert_eq!(most.status, 200, "{most:?}");
    for query in [
        format!("queue={}", names(limit + 1)),
        format!("queue={}&queue=more", names(limit)),
        format!("queue={}&wait=1s", names(limit + 1)),
    ] {
        let refused = server.post(&format!("/v1/take?{query}")).await;
        assert_eq!(refused.problem(), (400, "too_many_names".to_owned()));
        assert_eq!(refused.json()["limit"], limit, "{refused:?}");
    }
    server.stop().await;
}

/// There is room for 256 names, in addition to those that each take may always wait on.
#[tokio::test]
async fn how_many_names_all_waiting_takes_have_is_bounded() {
    let server = start_with(Limits::default(), |config| config.memory_bytes = 1 << 20).await;
    let target = |prefix: &str, count: usize, wait: &str| {
        let names: Vec<_> = (1..count).map(|at| format!("{prefix}{at}")).collect();
        format!("/v1/take?queue=q,{}{wait}", names.join(","))
    };
    let mut first = Connection::open(server.address).await;
    first.request("POST", &target("a", 200, "&wait=1m"), &[], b"").await;
    server.until_count("waiting", 1).await;
    let refused = server.post(&target("b", 200, "&wait=1m")).await;
    assert_eq!(refused.problem(), (429, "too_many_waiting".to_owned()));
    assert_eq!(server.post(&target("b", 200, "")).await.status, 200, "one that does not wait is not refused");
    let mut few = Connection::open(server.address).await;
    few.request("POST", &target("c", 16, "&wait=1m"), &[], b"").await;
    server.until_count("waiting", 2).await;

    server.put("", b"x").await;
    assert_eq!(first.answer().await.json()["messages"][0]["body"], "x");
    let mut again = Connection::open(server.address).await;
    again.request("POST", &target("b", 200, "&wait=1m"), &[], b"").await;
    server.until_count("waiting", 2).await;
    // However it ends, the room is free again.
    drop(again);
    server.until_count("waiting", 1).await;
    let mut last = Connection::open(server.address).await;
    last.request("POST", &target("d", 200, "&wait=1m"), &[], b"").await;
    server.until_count("waiting", 2).await;
    server.stop().await;
}
