//! Queues named `dwell:…` can be read and not changed, by every route of the table.

use dwell_model::{Limits, QueueName};
use dwell_store::{Action, LeaseTerms, Put, Settle, Store, Take};
use dwell_wire::{Operation, ROUTES, Route};
use serde_json::{Value, json};

use crate::support::{Answer, Running, start, start_with, tokens};

const QUEUE: &str = "dwell:test";

fn queue() -> QueueName {
    QUEUE.parse().unwrap()
}

/// A message in each state, put by a program with direct access to the store.
struct Stage {
    scheduled: String,
    receipt: String,
    leased: String,
    dead: String,
    number: u64,
}

async fn stage(server: &Running) -> Stage {
    let store = &server.store;
    let put = |key: &str| Put { key: Some(key.parse().unwrap()), ..Put::new(queue(), key.to_owned()) };
    let puts = vec![put("dead"), put("leased"), put("k").after_ms(3_600_000)];
    let ids: Vec<_> = store.put(puts).await.into_iter().map(Result::unwrap).collect();
    let dead = store.take_id(queue(), ids[0].id, LeaseTerms::of_ms(60_000)).await.unwrap();
    let bury = Settle { receipt: dead.receipt, action: Action::Bury { reason: None, priority: None } };
    store.settle(vec![bury]).await.remove(0).unwrap();
    let leased = store.take(Take::from(queue()).lease_ms(3_600_000)).await.unwrap().remove(0);
    Stage {
        scheduled: ids[2].id.to_string(),
        receipt: leased.receipt.to_string(),
        leased: ids[1].id.to_string(),
        dead: ids[0].id.to_string(),
        number: ids[2].number.get(),
    }
}

/// Sends a request that would change the reserved queue, if it could.
async fn send(server: &Running, route: &Route, stage: &Stage) -> Answer {
    let id = match route.operation {
        Operation::Revive | Operation::Discard => &stage.dead,
        _ => &stage.scheduled,
    };
    let path = route
        .path
        .replace("{queue}", "dwell%3Atest")
        .replace("{id}", id)
        .replace("{key}", "k")
        .replace("{number}", &stage.number.to_string())
        .replace("{receipt}", &stage.receipt)
        .replace("{action}", "ack");
    let (query, body) = match route.operation {
        Operation::Put | Operation::PutKey => ("", json!("text")),
        Operation::PutMany => ("", json!([{"body": "x"}])),
        Operation::PutManyAnywhere => ("", json!([{"queue": QUEUE, "body": "x"}])),
        Operation::GetMany | Operation::CancelMany => ("", json!([{"id": id}])),
        Operation::RescheduleMany => ("", json!([{"id": id, "delay": "1s"}])),
        Operation::Reschedule | Operation::RescheduleKey => ("?delay=1s", Value::Null),
        Operation::TakeFrom => ("?queue=other&queue=dwell%3Atest", Value::Null),
        Operation::SettleMany => ("", json!([{"receipt": stage.receipt, "action": "ack"}])),
        Operation::ExpireLeases => ("", json!([{"id": stage.leased, "takes": 1}])),
        Operation::ReviveMany | Operation::DiscardMany => ("?all=true", Value::Null),
        Operation::Configure => ("", json!({"lease": "30s"})),
        _ => ("", Value::Null),
    };
    let target = format!("{path}{query}");
    if body.is_null() {
        return server.send(route.method, &target, &[], b"").await;
    }
    server
        .send(route.method, &target, &[("content-type", "application/json")], body.to_string().as_bytes())
        .await
}

/// The code that the answer, or its only item, refuses with.
fn code(answer: &Answer) -> Option<String> {
    let json: Value = serde_json::from_slice(&answer.body).ok()?;
    let code = match answer.status {
        200 => &json["answers"][0]["error"]["code"],
        _ => &json["code"],
    };
    code.as_str().map(str::to_owned)
}

#[tokio::test]
async fn every_route_reads_a_reserved_queue_and_none_changes_it() {
    let server = start().await;
    let stage = stage(&server).await;
    let before = server.store.stats(queue()).await.unwrap();
    let (mut refused, mut read) = (0, 0);
    for route in ROUTES {
        let names_queue = ["{queue}", "{receipt}", "{number}"].iter().any(|part| route.path.contains(part));
        let in_body = matches!(
            route.operation,
            Operation::PutManyAnywhere | Operation::TakeFrom | Operation::SettleMany
        );
        if !names_queue && !in_body {
            continue;
        }
        let answer = send(&server, route, &stage).await;
        let said = format!("{} {}: {answer:?}", route.method, route.path);
        if route.method == "GET" || route.operation == Operation::GetMany {
            assert_eq!((answer.status, code(&answer)), (200, None), "{said}");
            read += 1;
        } else {
            assert_eq!(code(&answer).as_deref(), Some("queue_reserved"), "{said}");
            refused += 1;
        }
        assert_eq!(server.store.stats(queue()).await.unwrap(), before, "{said}");
    }
    assert!(refused >= 20 && read >= 8, "{refused} {read}");
    // Not even the other queue that a refused take named was touched.
    assert_eq!(server.store.queues(None, 9).await.unwrap().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn in_a_batch_the_other_items_are_done() {
    let server = start().await;
    let items = json!([{"queue": QUEUE, "body": "x"}, {"queue": "q", "body": "y"}]);
    let answers = server.post_json("/v1/messages:batch", &items).await.json();
    let error = &answers["answers"][0]["error"];
    assert_eq!(
        (&error["code"], &error["queue"], &error["retryable"]),
        (&json!("queue_reserved"), &json!(QUEUE), &json!(false))
    );
    assert_eq!(answers["answers"][1]["outcome"], "created");
    assert_eq!(server.count("ready").await, Some(1));
    server.stop().await;
}

#[tokio::test]
async fn a_token_that_is_good_for_all_is_not_good_for_that() {
    let all: &[&str] = &["put:*", "take:*", "manage:*"];
    let server = start_with(Limits::default(), |config| config.http.tokens = tokens(&[("all", all)])).await;
    let bearer = [("authorization", "Bearer all")];
    let put = server.send("POST", "/v1/queues/dwell%3Atest/messages", &bearer, b"x").await;
    assert_eq!(put.problem(), (403, "queue_reserved".to_owned()));
    // The token is checked first.
    let nobody = server.send("POST", "/v1/queues/dwell%3Atest/messages", &[], b"x").await;
    assert_eq!(nobody.problem(), (401, "token_required".to_owned()));
    server.stop().await;
}
