//! Reading, cancelling and rescheduling messages.

use serde_json::{Value, json};

use crate::support::start;

#[tokio::test]
async fn a_message_is_found_by_id_key_and_number() {
    let server = start().await;
    let put = server.put("?delay=1h&key=a%2Fb", b"x").await;
    let by_id = server.get(&format!("/v1/queues/q/messages/{}", put["id"].as_str().unwrap())).await.json();
    assert_eq!(server.get("/v1/queues/q/keys/a%2Fb").await.json(), by_id);
    assert_eq!(server.get("/v1/numbers/1").await.json(), by_id);
    let without = server.get("/v1/numbers/1?body=false").await.json();
    assert_eq!((&without["body"], &without["size"]), (&Value::Null, &json!(1)));
    let raw = server.send("GET", "/v1/numbers/1", &[("accept", "application/octet-stream")], b"").await;
    assert_eq!((raw.text(), raw.header("dwell-state")), ("x", Some("scheduled")));

    assert_eq!(server.get("/v1/queues/q/keys/none").await.problem(), (404, "message_not_found".to_owned()));
    assert_eq!(server.get("/v1/queues/none/keys/a").await.problem(), (404, "unknown_queue".to_owned()));
    assert_eq!(server.get("/v1/numbers/2").await.problem(), (404, "message_not_found".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn a_list_pages_and_shows_each_message_once() {
    let server = start().await;
    for at in 0..25 {
        server.put(&format!("?delay={}s", 100 - at), format!("{at}").as_bytes()).await;
    }
    let mut bodies = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server.get(&format!("/v1/queues/q/messages?max=10{cursor}")).await.json();
        let messages = page["messages"].as_array().unwrap();
        assert!(messages.len() <= 10);
        bodies.extend(messages.iter().map(|message| message["body"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    let expected: Vec<String> = (0..25).rev().map(|at| at.to_string()).collect();
    assert_eq!(bodies, expected, "in the order of due");
    let none = server.get("/v1/queues/q/messages?state=dead&body=false").await.text().to_owned();
    assert_eq!(none, r#"{"messages":[]}"#);
    server.stop().await;
}

#[tokio::test]
async fn a_cancel_says_what_it_found() {
    let server = start().await;
    let id = server.put("?delay=1h", b"x").await["id"].as_str().unwrap().to_owned();
    let target = format!("/v1/queues/q/messages/{id}");
    assert_eq!(server.delete(&target).await.json(), json!({"outcome": "cancelled", "id": id}));
    assert_eq!(server.delete(&target).await.problem(), (404, "message_not_found".to_owned()));

    let id = server.put("?key=k", b"x").await["id"].clone();
    let held = server.take("").await;
    let leased = server.delete("/v1/queues/q/keys/k").await;
    assert_eq!(leased.problem(), (409, "leased".to_owned()));
    assert_eq!(leased.json()["id"], id);
    server.post(&format!("/v1/receipts/{}/bury", held["receipt"].as_str().unwrap())).await;
    let dead = server.delete(&format!("/v1/queues/q/messages/{}", id.as_str().unwrap())).await;
    assert_eq!(dead.problem(), (409, "dead".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn a_reschedule_moves_the_instant_and_keeps_the_id() {
    let server = start().await;
    let id = server.put("?delay=1h&key=k", b"x").await["id"].clone();
    let due = "2030-01-01T00:00:00.000Z";
    let moved = server.post("/v1/queues/q/keys/k/reschedule?due=2030-01-01T00:00:00Z").await.json();
    assert_eq!(moved, json!({"outcome": "moved", "id": id, "due": due}));
    let target = format!("/v1/queues/q/messages/{}", id.as_str().unwrap());
    assert_eq!(server.get(&target).await.json()["due"], due);
    let target = format!("{target}/reschedule");
    assert_eq!(server.post_json(&target, &json!({"delay_ms": 0})).await.status, 200);
    assert_eq!(server.take("").await["id"], id);

    assert_eq!(server.post(&format!("{target}?delay=1s")).await.problem(), (409, "leased".to_owned()));
    assert_eq!(server.post(&target).await.problem(), (400, "missing_field".to_owned()));
    let both = format!("{target}?delay=1s&level=2");
    assert_eq!(server.post(&both).await.problem(), (400, "conflicting_fields".to_owned()));
    let none = server.post("/v1/queues/q/keys/none/reschedule?delay=1s").await;
    assert_eq!(none.problem(), (404, "message_not_found".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn many_are_cancelled_and_moved_at_once() {
    let server = start().await;
    let id = server.put("?delay=1h", b"1").await["id"].clone();
    server.put("?delay=1h&key=k", b"2").await;
    let items = json!([
        {"id": id, "delay": "2h"}, {"key": "k", "level": 9}, {"key": "none", "delay": "1s"}, {"id": id},
        {"id": id, "key": "k", "delay": "1s"},
    ]);
    let moved = server.post_json("/v1/queues/q/messages:reschedule", &items).await.json();
    let statuses = |answers: &Value| -> Vec<u64> {
        answers["answers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|answer| answer["status"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(statuses(&moved), [200, 400, 404, 400, 400]);
    assert_eq!(moved["answers"][0]["outcome"], "moved");

    let items = json!([{"id": id}, {"key": "k"}, {"key": "k"}, {}]);
    let cancelled = server.post_json("/v1/queues/q/messages:cancel", &items).await.json();
    assert_eq!(statuses(&cancelled), [200, 200, 404, 400]);
    assert_eq!(cancelled["answers"][0], json!({"status": 200, "outcome": "cancelled", "id": id}));
    server.stop().await;
}
