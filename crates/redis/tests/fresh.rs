//! Messages that have only an instant and a short body: they are stored whole in one sorted set, in batches, and are
//! found there by id and by number, and the entries for their numbers are removed with them.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

use std::collections::HashSet;

use dwell_model::{Limits, QueueName, Receipt, StateKind, Timestamp};
use dwell_redis::RedisStore;
use dwell_store::{
    Action, Cancelled, Delivery, Error, Put, PutAnswer, Settle, Settled, Store, Take, Target, When,
};
use dwell_testkit::redis::Server;
use redis::Value;

fn queue() -> QueueName {
    QueueName::new("orders").unwrap()
}

fn message(body: impl ToString) -> Put {
    Put::new(queue(), body.to_string())
}

async fn open(server: &Server) -> RedisStore {
    RedisStore::open(server.address(), Limits::default()).await.unwrap()
}

async fn put_all(store: &RedisStore, puts: Vec<Put>) -> Vec<PutAnswer> {
    store.put(puts).await.into_iter().map(Result::unwrap).collect()
}

async fn take(store: &RedisStore, max: usize) -> Vec<Delivery> {
    store.take(Take::from(queue()).max(max)).await.unwrap()
}

fn ack(receipt: &Receipt) -> Settle {
    Settle { receipt: receipt.clone(), action: Action::Ack }
}

/// A key of the queue's partition.
fn key(server: &Server, name: &str) -> String {
    let keys: Vec<String> = redis::from_redis_value(server.command(&["KEYS", "dwell:{*}:meta"])).unwrap();
    keys[0].strip_suffix("meta").unwrap().to_owned() + name
}

fn count(server: &Server, command: &str, name: &str) -> i64 {
    redis::from_redis_value(server.command(&[command, &key(server, name)])).unwrap()
}

fn far() -> Timestamp {
    Timestamp::from_ms(4_000_000_000_000).unwrap()
}

#[tokio::test]
async fn many_at_one_instant_are_found_by_id_and_by_number() {
    let server = Server::start();
    let store = open(&server).await;
    // Two adjacent instants, and numbers that change blocks on the way.
    let at = |n: i64| Timestamp::from_ms(far().as_ms() + n % 2).unwrap();
    let puts = (0..700).map(|n| message(n).at(at(n))).collect();
    let put = put_all(&store, puts).await;
    assert_eq!(count(&server, "ZCARD", "due"), 700);
    assert_eq!(count(&server, "EXISTS", "records"), 0, "they lie in one place alone");
    let targets: Vec<_> = put.iter().map(|answer| Target::Id(answer.id)).collect();
    for (n, found) in store.get(queue(), targets.clone(), false).await.into_iter().enumerate() {
        let found = found.unwrap();
        assert_eq!((found.id, &found.body[..]), (put[n].id, n.to_string().as_bytes()));
    }
    let numbers: Vec<_> = put.iter().map(|answer| answer.number).collect();
    let located = store.locate(numbers.clone()).await;
    assert_eq!(located, put.iter().map(|answer| Ok(Some((queue(), answer.id)))).collect::<Vec<_>>());

    // Each third is cancelled, the one behind it rescheduled: their neighbours at the same instant are not.
    let third = |from: usize| targets.iter().skip(from).step_by(3).cloned().collect::<Vec<_>>();
    for (n, cancelled) in store.cancel(queue(), third(0)).await.into_iter().enumerate() {
        assert_eq!(cancelled, Ok(Cancelled::Cancelled(put[3 * n].id)));
    }
    let later = When::At(Timestamp::from_ms(far().as_ms() + 9).unwrap());
    let moves = third(1).into_iter().map(|target| (target, later)).collect();
    for moved in store.reschedule(queue(), moves).await {
        moved.unwrap();
    }
    for (n, found) in store.get(queue(), targets, false).await.into_iter().enumerate() {
        match (n % 3, found) {
            (0, Err(Error::MessageNotFound { .. })) => {}
            (1, Ok(found)) => assert_eq!(found.standing.due.as_ms(), far().as_ms() + 9),
            (2, Ok(found)) => assert_eq!(found.standing.due, at(n as i64)),
            (_, other) => panic!("message {n}: {other:?}"),
        }
    }
    for (n, place) in store.locate(numbers).await.into_iter().enumerate() {
        assert_eq!(place.unwrap().is_some(), n % 3 != 0, "message {n}");
    }
    assert_eq!(store.stats(queue()).await.unwrap().counts.scheduled, 466);
}

#[tokio::test]
async fn what_tells_of_their_numbers_goes_when_they_are_handed_out() {
    let server = Server::start();
    let store = open(&server).await;
    for batch in 0..40_i64 {
        let at = |n: i64| Timestamp::from_ms(1_000_000 + batch * 100 + n).unwrap();
        put_all(&store, (0..100).map(|n| message(n).at(at(n))).collect()).await;
    }
    assert!(count(&server, "HLEN", "due-index") >= 15, "4,000 numbers are in 15 blocks at least");
    let mut seen = HashSet::new();
    while let Some(taken) = Some(take(&store, 100).await).filter(|taken| !taken.is_empty()) {
        seen.extend(taken.iter().map(|delivery| delivery.message.id));
        // Leased ones are located as before.
        let held = &taken[0].message;
        assert_eq!(store.locate(vec![held.number]).await, [Ok(Some((queue(), held.id)))]);
        let acks = taken.iter().map(|delivery| ack(&delivery.receipt)).collect();
        assert!(store.settle(acks).await.iter().all(|settled| *settled == Ok(Settled::Gone)));
    }
    assert_eq!(seen.len(), 4_000);
    assert!(count(&server, "HLEN", "due-index") <= 1, "what was due last may have an entry yet");
    assert_eq!(count(&server, "HLEN", "due-index"), count(&server, "ZCARD", "due-index-until"));
    for key in ["due", "records", "leases"] {
        assert_eq!(count(&server, "EXISTS", key), 0, "{key}");
    }
}

#[tokio::test]
async fn those_due_at_one_instant_are_located_though_some_were_handed_out() {
    let server = Server::start();
    let store = open(&server).await;
    let at = Timestamp::from_ms(1_000_000).unwrap();
    let mut left: HashSet<_> = put_all(&store, (0..600).map(|n| message(n).at(at)).collect())
        .await
        .into_iter()
        .map(|answer| (answer.number, answer.id))
        .collect();
    for _ in 0..5 {
        for delivery in take(&store, 100).await {
            assert!(left.remove(&(delivery.message.number, delivery.message.id)));
            assert_eq!(store.settle(vec![ack(&delivery.receipt)]).await, [Ok(Settled::Gone)]);
        }
        let (numbers, ids): (Vec<_>, Vec<_>) = left.iter().copied().unzip();
        let places = ids.into_iter().map(|id| Ok(Some((queue(), id)))).collect::<Vec<_>>();
        assert_eq!(store.locate(numbers).await, places);
    }
}

#[tokio::test]
async fn a_purge_leaves_nothing_of_them_and_touches_neither_leased_nor_later_ones() {
    let server = Server::start();
    let store = open(&server).await;
    put_all(&store, (0..10).map(message).collect()).await;
    let held = take(&store, 3).await;
    put_all(&store, (0..90).map(|n| message(n).at(far())).collect()).await;
    assert_eq!(store.purge(queue()).await.unwrap(), 97);
    for key in ["due", "due-index", "due-index-until"] {
        assert_eq!(count(&server, "EXISTS", key), 0, "{key}");
    }
    let later = put_all(&store, vec![message("later")]).await;
    let ready = store.list(queue(), StateKind::Ready, None, 10).await.unwrap().messages;
    assert_eq!(ready.iter().map(|message| message.id).collect::<Vec<_>>(), [later[0].id]);
    for delivery in held {
        assert_eq!(store.settle(vec![ack(&delivery.receipt)]).await, [Ok(Settled::Gone)]);
    }
}

#[tokio::test]
async fn acks_of_a_batch_are_answered_one_by_one_whatever_is_among_them() {
    let server = Server::start();
    let store = open(&server).await;
    put_all(&store, (0..8).map(message).collect()).await;
    let mut receipts: Vec<_> = take(&store, 6).await.into_iter().map(|taken| taken.receipt).collect();
    let session = store.take(Take::from(queue()).max(2).session()).await.unwrap();
    receipts.extend(session.into_iter().map(|taken| taken.receipt));
    // One has been extended, one is acked already, one has a wrong token.
    let extend = Settle { receipt: receipts[1].clone(), action: Action::Extend { lease_ms: Some(90_000) } };
    assert!(matches!(store.settle(vec![extend]).await[..], [Ok(Settled::Leased(_))]));
    assert_eq!(store.settle(vec![ack(&receipts[2])]).await, [Ok(Settled::Gone)]);
    let forged = Receipt { token: receipts[4].token, ..receipts[3].clone() };
    let twice = receipts[0].clone();
    let asked = [0, 1, 2, 4, 5, 6, 7].map(|index| receipts[index].clone());
    let acks: Vec<_> = asked.iter().chain([&forged, &twice]).map(ack).collect();
    let (gone, lost) = (Ok(Settled::Gone), Err(Error::LeaseLost));
    let expected = [&gone, &gone, &lost, &gone, &gone, &gone, &gone, &lost, &lost].map(Clone::clone);
    assert_eq!(store.settle(acks.clone()).await, expected);
    // The one whose receipt was forged is still leased, and nothing of the others is left.
    assert_eq!(store.stats(queue()).await.unwrap().counts.leased, 1);
    assert_eq!(count(&server, "ZCARD", "leases"), 1);
    assert_eq!(count(&server, "HLEN", "records"), 1);
    assert_eq!(server.command(&["EXISTS", &key(&server, "session-leases")]), Value::Int(0));
    assert_eq!(store.settle(vec![ack(&receipts[3])]).await, [Ok(Settled::Gone)]);
    assert!(store.settle(acks).await.iter().all(|settled| *settled == lost));
}

#[tokio::test]
async fn a_number_that_a_waiting_message_has_is_given_to_no_other() {
    let server = Server::start();
    let store = open(&server).await;
    let before = put_all(&store, (0..300).map(|n| message(n).at(far())).collect()).await;
    let mut all = before.clone();
    let kinds: [fn(i64) -> Put; 3] =
        [|n| message(n).at(far()), |n| message(n).after_ms(n as u64), |n| message(n).priority(7)];
    for kind in kinds {
        // As after a failover that has lost the latest steps of the counter.
        server.command(&["HSET", "{dwell}:meta", "b", "0"]);
        server.command(&["HDEL", &key(&server, "m"), "h"]);
        let store = open(&server).await;
        all.extend(put_all(&store, (0..300).map(kind).collect()).await);
    }
    let numbers: HashSet<_> = all.iter().map(|answer| answer.number).collect();
    assert_eq!(numbers.len(), 1_200);
    for answer in before {
        let found = store.get(queue(), vec![Target::Id(answer.id)], false).await.pop().unwrap();
        assert_eq!(found.unwrap().number, answer.number);
    }
}
