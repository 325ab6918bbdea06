//! `kill -9` of a Redis whose append-only file is synced before each answer.

use std::sync::{Arc, Mutex};

use dwell_store::{Action, Error, Settle, Settled, Store as _, Take};
use dwell_testkit::redis::Server;

use super::ledger::Load;
use super::{ack, held, hold, open, spread_over, within};

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
    spread_over(&open(&url).await, partitions).await;
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
    // The short one comes when its lease is over, by the clock that granted it, and not before.
    let take = Take::from(held()).wait_ms(20_000);
    let taken = within("the short one", other.take(take)).await.unwrap().pop().unwrap();
    assert_eq!(taken.message.id, short.message.id);
    assert!(taken.taken_at >= short.lease_until, "{} before {}", taken.taken_at, short.lease_until);
    assert_eq!(ack(&other, &short.receipt).await, Err(Error::LeaseLost));
    assert_eq!(ack(&other, &taken.receipt).await, Ok(Settled::Gone));
    assert_eq!(ack(&store, &extended.receipt).await, Ok(Settled::Gone), "through the process that took it");
}
