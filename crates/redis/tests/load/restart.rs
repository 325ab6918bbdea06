//! `kill -9` of a Redis whose append-only file is synced before each answer.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use dwell_model::{Holder, MessageId, QueueName, Setting, SettingChange, StateKind};
use dwell_redis::RedisStore;
use dwell_store::{Action, Delivery, Error, LeaseRef, Put, Settle, Settled, Store as _, Take, Target};
use dwell_testkit::redis::Server;

use super::ledger::Load;
use super::{ack, held, hold, open, over_partitions, until, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_answered_is_lost_by_kill_9_where_the_file_is_always_synced() {
    kill_under_load(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_answered_of_a_queue_that_is_spread_is_lost_by_kill_9() {
    kill_under_load(4).await;
}

async fn kill_under_load(partitions: u16) {
    let server = Arc::new(Mutex::new(Server::durable()));
    let url = server.lock().unwrap().url();
    over_partitions(&open(&url).await, partitions).await;
    let load = Load::start(vec![open(&url).await, open(&url).await]);
    for _ in 0..3 {
        load.go_on(100).await;
        let server = Arc::clone(&server);
        let killed = tokio::task::spawn_blocking(move || server.lock().unwrap().start_again());
        within("the restart", killed).await.unwrap();
    }
    load.go_on(50).await;
    let told = load.end(&open(&url).await).await;
    println!("{} put, {} acked, {} failures", told.answered.len(), told.acked.len(), told.failures);
    assert_eq!(told.lost().len(), 0, "of {} that were answered", told.answered.len());
    assert_eq!(told.came_back.len(), 0, "of {} whose ack was answered", told.acked.len());
    assert!(told.answered.len() >= 350 && told.acked.len() >= 350);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_outlives_kill_9_and_a_stale_receipt_does_not() {
    let mut server = Server::durable();
    let store = open(&server.url()).await;
    let (kept, extended) = (hold(&store, "kept", 60_000).await, hold(&store, "extended", 60_000).await);
    // Given back and taken again: the first receipt is stale.
    let stale = hold(&store, "again", 60_000).await;
    let release = Action::Release { after_ms: None, priority: None };
    let released = vec![Settle { receipt: stale.receipt.clone(), action: release }];
    assert_eq!(store.settle(released).await, [Ok(Settled::Ready)]);
    let again = store.take(Take::from(held()).lease_ms(60_000)).await.unwrap().pop().unwrap();
    assert_eq!(again.message.id, stale.message.id);
    let short = hold(&store, "short", 3_000).await;
    server.kill();
    server.start_again();
    let other = open(&server.url()).await;
    assert_eq!(other.stats(held()).await.unwrap().counts.leased, 4, "all are leased still");
    assert_eq!(ack(&other, &stale.receipt).await, Err(Error::LeaseLost));
    for receipt in [&kept.receipt, &again.receipt] {
        assert_eq!(ack(&other, receipt).await, Ok(Settled::Gone), "within the lease");
        assert_eq!(ack(&other, receipt).await, Err(Error::LeaseLost), "and once");
    }
    let extend = Action::Extend { lease_ms: Some(120_000) };
    let longer = vec![Settle { receipt: extended.receipt.clone(), action: extend }];
    assert!(
        matches!(other.settle(longer).await[..], [Ok(Settled::Leased(until))] if until > extended.lease_until)
    );
    // The short one comes when its lease has run out, by the clock that granted it, and not before.
    let take = Take::from(held()).wait_ms(20_000);
    let taken = within("the short one", other.take(take)).await.unwrap().pop().unwrap();
    assert_eq!(taken.message.id, short.message.id);
    assert!(taken.taken_at >= short.lease_until, "{} before {}", taken.taken_at, short.lease_until);
    assert_eq!(ack(&other, &short.receipt).await, Err(Error::LeaseLost));
    assert_eq!(ack(&other, &taken.receipt).await, Ok(Settled::Gone));
    assert_eq!(ack(&store, &extended.receipt).await, Ok(Settled::Gone), "through the process that took it");
}

/// More than a few scripts discard along the way.
const DEAD: usize = 1_200;
const KEPT: usize = 5;
const HELD: usize = 250;

/// Puts `count` messages and takes them, in the order of the puts.
async fn taken(store: &RedisStore, name: &QueueName, count: usize) -> Vec<Delivery> {
    let puts = (0..count).map(|n| Put::new(name.clone(), n.to_string())).collect();
    assert!(store.put(puts).await.iter().all(Result::is_ok));
    let mut all = Vec::new();
    while all.len() < count {
        let holder = Some(Holder::new("worker 7").unwrap());
        let take = Take { holder, ..Take::from(name.clone()).max(count - all.len()).lease_ms(3_600_000) };
        let taken = store.take(take).await.unwrap();
        assert!(!taken.is_empty(), "{} of {count}", all.len());
        all.extend(taken);
    }
    all
}

/// Puts, takes and buries [`DEAD`] messages, in the order of the puts.
async fn buried(store: &RedisStore, name: &QueueName) -> Vec<MessageId> {
    let held = taken(store, name, DEAD).await;
    for part in held.chunks(100) {
        let bury = Action::Bury { reason: None, priority: None };
        let settles = part.iter().map(|one| Settle { receipt: one.receipt.clone(), action: bury.clone() });
        assert!(store.settle(settles.collect()).await.iter().all(Result::is_ok));
    }
    held.into_iter().map(|one| one.message.id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_goes_on_and_ended_leases_stay_ended_through_kill_9_between_them() {
    let server = Arc::new(Mutex::new(Server::durable()));
    let url = server.lock().unwrap().url();
    // The call that meets the kill gives up soon.
    let store = Arc::new(open(&format!("{url}?retry_ms=1000")).await);
    let [dead, leased] = ["dead", "leased"].map(|name| QueueName::new(name).unwrap());
    let buried = buried(&store, &dead).await;
    let held = Arc::new(taken(&store, &leased, HELD).await);
    let (ended, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let ending = tokio::spawn({
        let (store, held, leased) = (Arc::clone(&store), Arc::clone(&held), leased.clone());
        async move {
            for (number, one) in held.iter().enumerate() {
                let lease = LeaseRef { id: one.message.id, takes: one.message.standing.counts.takes };
                match store.expire_lease(leased.clone(), vec![lease]).await.pop().unwrap() {
                    Ok(settled) => assert_eq!(settled, Settled::Ready),
                    Err(error) => {
                        assert!(error.is_retryable(), "{error}");
                        return number;
                    }
                }
                // The receiver is gone once the kill is under way.
                let _ = ended.send(number + 1);
            }
            held.len()
        }
    });
    while within("some leases", heard.recv()).await.is_some_and(|number| number < 20) {}
    let most = vec![SettingChange::Set(Setting::DeadMax(KEPT as u64))];
    within("the setting", store.configure(dead.clone(), most)).await.unwrap();
    let killed = Arc::clone(&server);
    within("the kill", tokio::task::spawn_blocking(move || killed.lock().unwrap().kill())).await.unwrap();
    let answered = within("the end of the calls", ending).await.unwrap();
    assert!((20..HELD).contains(&answered), "{answered}: the kill came at no time that means anything");
    let started = Arc::clone(&server);
    let start = tokio::task::spawn_blocking(move || started.lock().unwrap().start_again());
    within("the restart", start).await.unwrap();

    let other = open(&url).await;
    let youngest: BTreeSet<MessageId> = buried[DEAD - KEPT..].iter().copied().collect();
    let kept = async |ids: &BTreeSet<MessageId>| {
        let targets = ids.iter().copied().map(Target::Id).collect();
        other
            .get(QueueName::new("dead").unwrap(), targets, false)
            .await
            .iter()
            .filter(|one| one.is_ok())
            .count()
    };
    assert_eq!(kept(&youngest).await, KEPT, "the youngest are kept");
    until("what is too much goes", async || {
        other.stats(dead.clone()).await.unwrap().counts.dead == KEPT as u64
    })
    .await;
    assert_eq!(kept(&youngest).await, KEPT, "and it was of the older");

    let targets = held.iter().map(|one| Target::Id(one.message.id)).collect();
    let found = other.get(leased, targets, false).await;
    for (number, (one, found)) in held.iter().zip(found).enumerate() {
        let standing = found.unwrap().standing;
        let acked = ack(&other, &one.receipt).await;
        let is_ended = standing.state.kind() == StateKind::Ready
            && (standing.attempts, standing.counts.lapses, standing.holder.is_some()) == (1, 1, false)
            && acked == Err(Error::LeaseLost);
        let is_held = standing.state.kind() == StateKind::Leased
            && (standing.attempts, standing.holder.is_some()) == (0, true)
            && acked == Ok(Settled::Gone);
        match number {
            number if number < answered => {
                assert!(is_ended, "{number} of {answered}: {standing:?} {acked:?}")
            }
            number if number > answered => assert!(is_held, "{number} of {answered}: {standing:?} {acked:?}"),
            // Its answer never came.
            _ => assert!(is_ended || is_held, "{standing:?} {acked:?}"),
        }
    }
}
