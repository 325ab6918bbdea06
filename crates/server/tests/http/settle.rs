//! Settling what was taken.

use serde_json::{Value, json};

use crate::support::{Running, start};

async fn taken(server: &Running) -> String {
    server.put("", b"x").await;
    receipt(&server.take("").await)
}

fn receipt(taken: &Value) -> String {
    taken["receipt"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn each_of_the_five() {
    let server = start().await;
    let at = |receipt: &str, action: &str| format!("/v1/receipts/{receipt}/{action}");

    let held = taken(&server).await;
    assert_eq!(server.post(&at(&held, "ack")).await.json(), json!({"state": "gone"}));
    assert_eq!(server.post(&at(&held, "ack")).await.problem(), (410, "lease_lost".to_owned()));

    let held = taken(&server).await;
    let fields = json!({"after": "5m", "error": "no route", "priority": 3});
    let retried = server.post_json(&at(&held, "retry"), &fields).await.json();
    assert_eq!(retried["state"], "scheduled");
    let listed = server.get("/v1/queues/q/messages").await.json();
    let message = &listed["messages"][0];
    assert_eq!((&message["due"], &message["last_error"]), (&retried["due"], &json!("no route")));
    assert_eq!((&message["priority"], &message["attempt"]), (&json!(3), &json!(1)));
    server.clock.advance(300_000);

    let held = receipt(&server.take("").await);
    assert_eq!(server.post(&at(&held, "release?priority=4")).await.json(), json!({"state": "ready"}));
    let held = receipt(&server.take("").await);
    let released = server.post(&at(&held, "release?after=1h")).await.json();
    assert_eq!(released["state"], "scheduled");
    server.clock.advance(3_600_000);

    let held = receipt(&server.take("").await);
    let extended = server.post(&at(&held, "extend?lease=10m")).await.json();
    assert_eq!(extended["state"], "leased");
    let until = server.get("/v1/queues/q/messages?state=leased").await.json();
    assert_eq!(until["messages"][0]["lease_until"], extended["lease_until"]);

    let buried = server.post_json(&at(&held, "bury"), &json!({"reason": "poison"})).await.json();
    assert_eq!(buried, json!({"state": "dead", "dead_reason": "buried"}));
    let dead = server.get("/v1/queues/q/messages?state=dead").await.json();
    let dead = &dead["messages"][0];
    assert_eq!((&dead["dead_reason"], &dead["last_error"]), (&json!("buried"), &json!("poison")));
    assert!(dead["dead_at"].is_string());
    server.stop().await;
}

#[tokio::test]
async fn fields_belong_to_their_action() {
    let server = start().await;
    let held = taken(&server).await;
    let code = async |action: &str| server.post(&format!("/v1/receipts/{held}/{action}")).await.problem();
    assert_eq!(code("ack?after=5s").await, (400, "unknown_parameter".to_owned()));
    assert_eq!(code("extend?priority=1").await, (400, "unknown_parameter".to_owned()));
    assert_eq!(code("bury?error=x").await, (400, "unknown_parameter".to_owned()));
    assert_eq!(code("retry?after=5").await, (400, "malformed_delay".to_owned()));
    assert_eq!(code("forget").await, (404, "unknown_route".to_owned()));
    let json = async |action: &str, fields: Value| {
        server.post_json(&format!("/v1/receipts/{held}/{action}"), &fields).await.problem()
    };
    assert_eq!(json("ack", json!({"lease": "5s"})).await, (400, "unknown_field".to_owned()));
    assert_eq!(
        json("retry", json!({"after": "5s", "after_ms": 5})).await,
        (400, "conflicting_fields".to_owned())
    );
    assert_eq!(json("retry?after=5s", json!({"error": "x"})).await, (400, "conflicting_fields".to_owned()));
    let long = "x".repeat(5_000);
    assert_eq!(json("retry", json!({"error": long})).await, (400, "error_text_too_long".to_owned()));
    let form = server.send("POST", &format!("/v1/receipts/{held}/retry"), &[], b"after=5s").await;
    assert_eq!(form.problem(), (415, "unsupported_media_type".to_owned()));
    assert_eq!(server.count("leased").await, Some(1), "nothing has changed");
    server.stop().await;
}

#[tokio::test]
async fn many_at_once_as_an_array_and_as_lines() {
    let server = start().await;
    let (one, two, three) = (taken(&server).await, taken(&server).await, taken(&server).await);
    let items = json!([
        {"receipt": one, "action": "ack"},
        {"receipt": one, "action": "ack"},
        {"receipt": two, "action": "retry", "after_ms": 1000},
        {"receipt": "AAAA", "action": "ack"},
        {"receipt": three, "action": "forget"},
        {"receipt": three, "action": "ack", "error": "x"},
    ]);
    let answers = server.post_json("/v1/settle", &items).await.json();
    let statuses: Vec<_> =
        answers["answers"].as_array().unwrap().iter().map(|answer| &answer["status"]).collect();
    assert_eq!(statuses, [200, 410, 200, 400, 400, 400]);
    assert_eq!(answers["answers"][0], json!({"status": 200, "state": "gone"}));
    assert_eq!(answers["answers"][1]["error"]["code"], "lease_lost");

    let line = json!({"receipt": three, "action": "bury", "reason": "x"}).to_string();
    let ndjson = [("content-type", "application/x-ndjson")];
    let answer = server.send("POST", "/v1/settle", &ndjson, line.as_bytes()).await;
    assert_eq!(answer.lines(), [json!({"status": 200, "state": "dead", "dead_reason": "buried"})]);
    server.stop().await;
}
