//! Dead messages.

use serde_json::json;

use crate::support::{Running, start};

/// Puts and buries this many messages; returns their ids, oldest dead first.
async fn bury(server: &Running, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..count {
        server.put("", b"x").await;
        let held = server.take("").await;
        server.post(&format!("/v1/receipts/{}/bury", held["receipt"].as_str().unwrap())).await;
        server.clock.advance(10);
        ids.push(held["id"].as_str().unwrap().to_owned());
    }
    ids
}

#[tokio::test]
async fn one_is_revived_or_discarded() {
    let server = start().await;
    let ids = bury(&server, 2).await;
    let at = |id: &str, action: &str| format!("/v1/queues/q/messages/{id}/{action}");
    let done = json!({"done": 1, "refused_in_all": 0, "refused": []});
    assert_eq!(server.post(&at(&ids[0], "revive?delay=1h")).await.json(), done);
    assert_eq!(server.count("scheduled").await, Some(1));
    assert_eq!(server.post(&at(&ids[0], "revive")).await.problem(), (409, "not_dead".to_owned()));
    assert_eq!(server.post(&at(&ids[1], "discard")).await.json(), done);
    assert_eq!(server.post(&at(&ids[1], "discard")).await.problem(), (404, "message_not_found".to_owned()));
    assert_eq!(
        server.post(&at(&ids[1], "discard?delay=1h")).await.problem(),
        (400, "unknown_parameter".to_owned())
    );
    server.stop().await;
}

#[tokio::test]
async fn many_the_oldest_and_all() {
    let server = start().await;
    let ids = bury(&server, 6).await;
    let revived = server.post("/v1/queues/q/dead/revive?oldest=2").await.json();
    assert_eq!(revived["done"], 2);
    assert_eq!(server.count("ready").await, Some(2));
    let fields = json!({"ids": [ids[0], ids[2]], "delay": "1h"});
    let revived = server.post_json("/v1/queues/q/dead/revive", &fields).await.json();
    assert_eq!((&revived["done"], &revived["refused_in_all"]), (&json!(1), &json!(1)));
    assert_eq!(revived["refused"][0]["id"], ids[0]);
    assert_eq!(revived["refused"][0]["error"]["code"], "not_dead");
    assert_eq!(server.count("scheduled").await, Some(1));
    let discarded = server.post_json("/v1/queues/q/dead/discard", &json!({"oldest": 1})).await.json();
    assert_eq!(discarded["done"], 1);
    let discarded = server.post("/v1/queues/q/dead/discard?all=true").await.json();
    assert_eq!(discarded["done"], 2);
    assert_eq!(server.count("dead").await, Some(0));

    let code = async |query: &str| server.post(&format!("/v1/queues/q/dead/discard{query}")).await.problem();
    assert_eq!(code("").await, (400, "missing_field".to_owned()));
    assert_eq!(code("?all=false").await, (400, "missing_field".to_owned()));
    assert_eq!(code("?all=true&oldest=1").await, (400, "conflicting_fields".to_owned()));
    assert_eq!(code("?all=true&delay=1s").await, (400, "unknown_parameter".to_owned()));
    server.stop().await;
}
