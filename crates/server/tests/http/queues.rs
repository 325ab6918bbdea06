//! Queues and their settings, health, and the pages for people.

use serde_json::{Value, json};

use crate::support::start;

#[tokio::test]
async fn a_queue_shows_its_counts_and_settings() {
    let server = start().await;
    server.put("?delay=1h", b"x").await;
    let put = server.put("?delay=2h", b"x").await;
    server.put("?priority=5", b"x").await;
    server.put("", b"x").await;
    let queue = server.get("/v1/queues/q").await.json();
    let next = server.get("/v1/queues/q/messages?max=1").await.json()["messages"][0]["due"].clone();
    let expected = json!({
        "queue": "q",
        "counts": {"scheduled": 2, "ready": 2, "ready_urgent": 1, "leased": 0, "dead": 0},
        "waiting": 0,
        "next_due": next,
        "settings": {
            "lease": "30s", "max_attempts": 16,
            "backoff": {"base": "1s", "factor_percent": 200, "cap": "1h", "jitter_percent": 20},
            "max_pending": null, "pause": "running", "levels": [], "partitions": 1, "idempotency_ttl": "10m",
            "dead_ttl": null, "dead_max": null, "on_expiry": "dead", "max_leased": null, "lapse_backoff": "never",
        },
        "own": [],
    });
    assert_eq!(queue, expected);
    assert_ne!(put["due"], next);
    assert_eq!(server.get("/v1/queues/none").await.problem(), (404, "unknown_queue".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn settings_change_and_are_taken_back() {
    let server = start().await;
    let changes = json!({
        "lease_ms": 90_000, "max_attempts": "unlimited", "backoff": {"base": "2s", "factor_percent": 150},
        "max_pending": 10, "pause": "2030-01-01T00:00:00Z", "levels": ["1s", "1h30m"], "partitions": 4,
        "idempotency_ttl": "1h", "dead_ttl": "30d", "dead_max": 1000, "on_expiry": "drop", "max_leased": 20,
        "lapse_backoff": "second",
    });
    let queue = server.patch_json("/v1/queues/q/settings", &changes).await;
    assert_eq!(queue.status, 200, "{queue:?}");
    let queue = queue.json();
    let expected = json!({
        "lease": "1m30s", "max_attempts": "unlimited",
        "backoff": {"base": "2s", "factor_percent": 150, "cap": "1h", "jitter_percent": 20},
        "max_pending": 10, "pause": "2030-01-01T00:00:00.000Z", "levels": ["1s", "1h30m"], "partitions": 4,
        "idempotency_ttl": "1h", "dead_ttl": "30d", "dead_max": 1000, "on_expiry": "drop", "max_leased": 20,
        "lapse_backoff": "second",
    });
    assert_eq!(queue["settings"], expected);
    let all = [
        "lease",
        "max_attempts",
        "backoff",
        "max_pending",
        "pause",
        "levels",
        "partitions",
        "idempotency_ttl",
        "dead_ttl",
        "dead_max",
        "on_expiry",
        "max_leased",
        "lapse_backoff",
    ];
    assert_eq!(queue["own"], json!(all));

    let back: Value =
        all.iter().filter(|name| **name != "lease").map(|name| ((*name).to_owned(), Value::Null)).collect();
    let queue = server.patch_json("/v1/queues/q/settings", &back).await.json();
    assert_eq!(queue["own"], json!(["lease"]));
    assert_eq!(queue["settings"]["max_attempts"], 16);
    server.stop().await;
}

#[tokio::test]
async fn settings_are_all_made_or_none() {
    let server = start().await;
    let code = async |changes: Value| server.patch_json("/v1/queues/q/settings", &changes).await.problem();
    assert_eq!(code(json!({"lease": "1m", "partitions": 0})).await, (400, "invalid_setting".to_owned()));
    assert_eq!(code(json!({"lease": "1m", "leas": "1m"})).await, (400, "unknown_field".to_owned()));
    assert_eq!(code(json!({"lease": "1m", "lease_ms": 5})).await, (400, "conflicting_fields".to_owned()));
    assert_eq!(code(json!({"lease": 60})).await, (400, "invalid_field".to_owned()));
    assert_eq!(code(json!({"lease": "60"})).await, (400, "malformed_delay".to_owned()));
    assert_eq!(code(json!({"backoff": {"bse": "1s"}})).await, (400, "unknown_field".to_owned()));
    assert_eq!(code(json!({"pause": "yes"})).await, (400, "malformed_instant".to_owned()));
    assert_eq!(code(json!({"levels": ["1s", "x"]})).await, (400, "malformed_delay".to_owned()));
    assert_eq!(code(json!({"max_attempts": 0})).await, (400, "invalid_field".to_owned()));
    assert_eq!(server.get("/v1/queues/q").await.status, 404, "nothing has changed");
    server.put("", b"x").await;
    assert_eq!(code(json!({"partitions": 2})).await, (409, "setting_fixed".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn a_paused_queue_hands_nothing_out_until_it_is_resumed() {
    let server = start().await;
    server.put("", b"x").await;
    let paused = server.post("/v1/queues/q/pause").await.json();
    assert_eq!(paused["settings"]["pause"], "paused");
    assert!(server.take("").await.is_null());
    let resumed = server.post("/v1/queues/q/resume").await.json();
    assert_eq!((&resumed["settings"]["pause"], &resumed["own"]), (&json!("running"), &json!([])));
    assert_eq!(server.take("").await["body"], "x");

    let until =
        server.post_json("/v1/queues/q/pause", &json!({"until": "2040-01-01T00:00:00Z"})).await.json();
    assert_eq!(until["settings"]["pause"], "2040-01-01T00:00:00.000Z");
    let timed = server.post("/v1/queues/q/pause?for=10m").await.json();
    assert!(timed["settings"]["pause"].as_str().unwrap().ends_with('Z'));
    let both = server.post("/v1/queues/q/pause?for=1s&until=2040-01-01T00:00:00Z").await;
    assert_eq!(both.problem(), (400, "conflicting_fields".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn queues_page_by_name() {
    let server = start().await;
    for at in 0..7 {
        server.send("POST", &format!("/v1/queues/q{at}/messages"), &[], b"x").await;
    }
    let mut names = Vec::new();
    let mut target = "/v1/queues?max=3".to_owned();
    loop {
        let page = server.get(&target).await.json();
        let queues = page["queues"].as_array().unwrap();
        names.extend(queues.iter().map(|queue| queue["queue"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        target = format!("/v1/queues?max=3&cursor={next}");
    }
    assert_eq!(names, ["q0", "q1", "q2", "q3", "q4", "q5", "q6"]);
    server.stop().await;
}

#[tokio::test]
async fn purge_and_delete_leave_the_leased_alone() {
    let server = start().await;
    for _ in 0..3 {
        server.put("", b"x").await;
    }
    server.take("").await;
    assert_eq!(server.post("/v1/queues/q/purge").await.json(), json!({"removed": 2}));
    server.put("?delay=1h", b"x").await;
    assert_eq!(server.delete("/v1/queues/q").await.json(), json!({"removed": 1}));
    assert_eq!(server.count("leased").await, Some(1));
    server.stop().await;
}

#[tokio::test]
async fn health_limits_and_pages_answer() {
    let server = start().await;
    assert_eq!(server.get("/health/live").await.text(), r#"{"status":"live"}"#);
    assert_eq!(server.get("/health/ready").await.text(), r#"{"status":"ready"}"#);
    let limits = server.get("/v1/limits").await.json();
    assert_eq!(limits["limits"]["wait"], "1m");
    assert_eq!(limits["limits"]["body_bytes"], 1 << 20);
    assert_eq!(limits["defaults"]["lease"], "30s");
    let root = server.get("/").await;
    assert!(root.text().starts_with("dwell ") && root.text().contains("docs/http.md"));
    let page = server.get("/errors/lease_lost").await;
    assert!(page.text().contains("lease_lost") && page.text().contains("410"));
    assert_eq!(server.get("/errors/none").await.status, 404);
    server.stop().await;
}
