//! Holders, leases that an operator ends, caps, and deaths by queue.

use dwell_model::Setting;
use dwell_server::QueueConfig;
use serde_json::{Value, json};

use crate::support::{Running, start};

async fn leased(server: &Running) -> Value {
    server.get("/v1/queues/q/messages?state=leased").await.json()["messages"][0].take()
}

#[tokio::test]
async fn an_operator_ends_the_lease_that_was_listed_and_no_later_one() {
    let server = start().await;
    server.put("", b"x").await;
    let taken = server.take("?lease=1m&holder=worker%207").await;
    server.clock.advance(1_000);
    let listed = leased(&server).await;
    assert_eq!(
        (&listed["holder"], &listed["lease_granted"], &listed["lease_until"]),
        (&json!("worker 7"), &taken["taken_at"], &taken["lease_until"])
    );
    let id = &listed["id"];
    let end = |takes: u32| json!([{"id": id, "takes": takes}]);
    let target = "/v1/queues/q/leases:expire";
    let later = server.post_json(target, &end(2)).await.json();
    let error = &later["answers"][0]["error"];
    assert_eq!((&error["code"], &error["takes"]), (&json!("lease_changed"), &json!(1)));
    let ended = server.post_json(target, &end(1)).await.json();
    assert_eq!(ended, json!({"answers": [{"status": 200, "state": "ready"}]}));
    let again = server.post_json(target, &end(1)).await.json();
    assert_eq!(again["answers"][0]["error"]["code"], "not_leased");
    let receipt = taken["receipt"].as_str().unwrap();
    let ack = server.post(&format!("/v1/receipts/{receipt}/ack")).await;
    assert_eq!(ack.problem(), (410, "lease_lost".to_owned()));
    let shown = server.take("").await;
    assert_eq!((&shown["attempt"], &shown["counts"]["lapses"]), (&json!(2), &json!(1)));
    assert!(shown.get("holder").is_none(), "{shown}");
    server.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_holder_or_a_lease_is_said_and_changes_nothing() {
    let server = start().await;
    let put = server.put("", b"x").await;
    let long = "h".repeat(129);
    for holder in ["", "a%0Ab", long.as_str()] {
        let refused = server.post(&format!("/v1/queues/q/take?holder={holder}")).await;
        assert_eq!(refused.problem(), (400, "invalid_holder".to_owned()), "{holder}");
        let target = format!("/v1/queues/q/messages/{}/take?holder={holder}", put["id"].as_str().unwrap());
        assert_eq!(server.post(&target).await.problem(), (400, "invalid_holder".to_owned()), "{holder}");
    }
    let items = json!([{"id": "x", "takes": 1}, {"id": put["id"]}, {"id": put["id"], "takes": 0}]);
    let answers = server.post_json("/v1/queues/q/leases:expire", &items).await.json();
    let codes: Vec<&str> =
        (0..3).map(|at| answers["answers"][at]["error"]["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["malformed_id", "missing_field", "not_leased"]);
    for settings in [json!({"dead_ttl": "0s"}), json!({"max_leased": 0}), json!({"dead_max": 1_u64 << 53})] {
        let refused = server.patch_json("/v1/queues/q/settings", &settings).await;
        assert_eq!(refused.problem(), (400, "invalid_setting".to_owned()), "{settings}");
    }
    assert_eq!((server.count("ready").await, server.count("leased").await), (Some(1), Some(0)));
    server.stop().await;
}

#[tokio::test]
async fn the_dead_are_found_by_key_and_counted_by_reason() {
    let server = start().await;
    server.patch_json("/v1/queues/q/settings", &json!({"dead_max": 1, "max_leased": 1})).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        server.put("?key=k", b"x").await;
        let taken = server.take("").await;
        let receipt = taken["receipt"].as_str().unwrap();
        assert!(server.take("").await.is_null(), "one at a time");
        assert_eq!(server.post(&format!("/v1/receipts/{receipt}/bury")).await.status, 200);
        ids.push(taken["id"].clone());
    }
    let by_key = "/v1/queues/q/keys/k";
    assert_eq!(server.get(by_key).await.problem(), (404, "message_not_found".to_owned()));
    assert_eq!(server.get(&format!("{by_key}?dead=true")).await.json()["id"], ids[1]);
    let many = server.post_json("/v1/queues/q/messages:get?dead=true", &json!([{"key": "k"}])).await.json();
    assert_eq!(many["answers"][0]["message"]["id"], ids[1]);
    let expected = json!({"queues": [{
        "queue": "q",
        "deaths": {"attempts": 0, "lapse": 0, "expiry": 0, "buried": 2},
        "discarded": {"dead_ttl": 0, "dead_max": 1, "on_expiry": 0, "asked": 0},
    }]});
    assert_eq!(server.get("/v1/deaths").await.json(), expected);
    let page = server.get("/metrics").await;
    for line in [
        "dwell_deaths_total{queue=\"q\",reason=\"buried\"} 2",
        "dwell_discarded_total{queue=\"q\",reason=\"dead_max\"} 1",
        "dwell_deaths_total{queue=\"~other\",reason=\"buried\"} 0",
    ] {
        assert!(page.text().lines().any(|found| found == line), "{line} in {}", page.text());
    }
    server.stop().await;
}

#[tokio::test]
async fn a_deleted_queue_keeps_the_settings_that_the_configuration_has_for_it() {
    let server = start().await;
    let name = "q".parse().unwrap();
    server.control.keep_queues(&[QueueConfig { name, settings: vec![Setting::LeaseMs(60_000)] }]);
    server.put("", b"x").await;
    server.patch_json("/v1/queues/q/settings", &json!({"lease": "1s", "dead_max": 3})).await;
    assert_eq!(server.delete("/v1/queues/q").await.json(), json!({"removed": 1}));
    let queue = server.get("/v1/queues/q").await.json();
    assert_eq!((&queue["own"], &queue["settings"]["lease"]), (&json!(["lease"]), &json!("1m")));
    server.put("", b"y").await;
    assert_eq!(server.delete("/v1/queues/q").await.status, 200, "and again");
    assert_eq!(server.get("/v1/queues/q").await.json()["own"], json!(["lease"]));
    server.stop().await;
}
