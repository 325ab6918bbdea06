//! A primary dies under load and Sentinels promote its replica: what is lost, and what happens to receipts.

use std::collections::HashSet;

use dwell_model::MessageId;
use dwell_store::{Error, Put, Settled, Store as _, Take, Target};
use dwell_testkit::redis::{Cluster, Sentinels, Server, count};

use super::ledger::{Load, LoadAnswers};
use super::{ack, held, hold, open, put, until, within};

const PATIENT: &str = "?retry_ms=60000";

/// The primary's offset in what it has written, or the replica's in what it has received.
fn position(server: &Server, field: &str) -> i64 {
    server.info(field).and_then(|text| text.parse().ok()).unwrap_or(-1)
}

/// Waits until the replica has all earlier writes.
async fn catch_up(sentinels: &mut Sentinels) {
    let [primary, replica] = sentinels.servers() else { panic!("two servers") };
    let written = position(primary, "master_repl_offset");
    until("the replica's catching up", async || position(replica, "slave_repl_offset") >= written).await;
}

fn acked_again(told: &LoadAnswers) -> usize {
    told.came_back.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_loses_what_the_replica_had_not_received_and_no_more() {
    let mut sentinels = Sentinels::start();
    let url = sentinels.url() + PATIENT;
    let load = Load::start(vec![open(&url).await, open(&url).await]);
    let store = open(&url).await;
    let known = load.go_on(100).await;
    let kept = hold(&store, "kept", 120_000).await;
    catch_up(&mut sentinels).await;
    // From here on the replica receives nothing, without noticing it.
    let primary = &sentinels.servers()[0];
    primary.command(&["ACL", "SETUSER", "default", "-psync", "-sync"]);
    primary.command(&["CLIENT", "KILL", "TYPE", "replica"]);
    let torn = put(&store, Put::new(held(), "torn")).await.unwrap();
    let before = load.told().answered.len();
    load.go_on(50).await;
    let unheard = load.told().answered.len() - before;
    sentinels.servers()[0].kill();
    // It waits until there is a primary again.
    within("a put through the failover", put(&store, Put::new(held(), "after"))).await.unwrap();
    load.go_on(50).await;
    let told = load.end(&store).await;
    let lost = told.lost();
    let early: HashSet<&MessageId> = lost.intersection(&known).collect();
    assert_eq!(early.len(), 0, "the replica had them");
    assert!(!lost.is_empty(), "the replica lacked what was answered after its link was cut");
    report(
        "failover-by-sentinel",
        &format!(
            "failover by Sentinel, the replica cut off {unheard} puts before: {} of {} answered puts lost, {} of {} \
             answered acks undone",
            lost.len(),
            told.answered.len(),
            acked_again(&told),
            told.acked.len()
        ),
    );
    // Messages that were leased before are still leased by their holders, once.
    let torn = store.get(held(), vec![Target::Id(torn.id)], false).await.pop().unwrap();
    assert!(matches!(torn, Err(Error::MessageNotFound { .. })), "{torn:?}");
    assert_eq!(ack(&store, &kept.receipt).await, Ok(Settled::Gone));
    assert_eq!(ack(&store, &kept.receipt).await, Err(Error::LeaseLost));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_the_replica_had_not_heard_of_is_void_after_a_failover() {
    let mut sentinels = Sentinels::start();
    let store = open(&(sentinels.url() + PATIENT)).await;
    let id = put(&store, Put::new(held(), "m")).await.unwrap().id;
    catch_up(&mut sentinels).await;
    let primary = &sentinels.servers()[0];
    primary.command(&["ACL", "SETUSER", "default", "-psync", "-sync"]);
    primary.command(&["CLIENT", "KILL", "TYPE", "replica"]);
    let void = store.take(Take::from(held()).lease_ms(120_000)).await.unwrap().pop().unwrap();
    sentinels.servers()[0].kill();
    let take = Take::from(held()).lease_ms(120_000).wait_ms(60_000);
    let taken = within("a take through the failover", store.take(take)).await.unwrap().pop().unwrap();
    assert_eq!((void.message.id, taken.message.id), (id, id), "it is ready on the replica");
    assert_ne!(void.receipt.token, taken.receipt.token);
    assert_eq!(ack(&store, &void.receipt).await, Err(Error::LeaseLost), "one receipt is good");
    assert_eq!(ack(&store, &taken.receipt).await, Ok(Settled::Gone));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_loses_nothing_that_a_replica_has_confirmed() {
    let mut sentinels = Sentinels::start();
    let url = sentinels.url() + PATIENT;
    let confirmed = url.clone() + "&wait=1";
    let load = Load::start(vec![open(&confirmed).await, open(&confirmed).await]);
    let store = open(&url).await;
    let kept = hold(&open(&confirmed).await, "kept", 120_000).await;
    load.go_on(200).await;
    sentinels.servers()[0].kill();
    within("a put through the failover", put(&store, Put::new(held(), "after"))).await.unwrap();
    // There is no replica left to confirm: a call that asks for it reports that the outcome is unknown.
    let told = load.end(&store).await;
    report(
        "failover-by-sentinel-with-wait",
        &format!(
            "failover by Sentinel with wait=1: {} of {} answered puts lost, {} of {} answered acks undone",
            told.lost().len(),
            told.answered.len(),
            acked_again(&told),
            told.acked.len()
        ),
    );
    assert_eq!(told.lost().len(), 0, "of {} that were answered", told.answered.len());
    assert_eq!(acked_again(&told), 0, "of {} whose ack was answered", told.acked.len());
    assert!(told.answered.len() >= 200 && told.acked.len() >= 200);
    assert_eq!(ack(&store, &kept.receipt).await, Ok(Settled::Gone));
    assert_eq!(ack(&store, &kept.receipt).await, Err(Error::LeaseLost));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster_dies_under_load_and_what_is_lost_is_counted() {
    let mut cluster = Cluster::start();
    let url = cluster.url() + PATIENT;
    let store = open(&url).await;
    let load = Load::start(vec![open(&url).await, open(&url).await]);
    load.go_on(50).await;
    let has_queue = |node: &Server| {
        let keys: Vec<String> = redis::from_redis_value(node.command(&["KEYS", "dwell:{*}:*"])).unwrap();
        !keys.is_empty()
    };
    let node = cluster.nodes().iter().position(has_queue).unwrap();
    cluster.add_replica(node);
    load.go_on(100).await;
    cluster.nodes()[node].kill();
    within("a put through the failover", put(&store, Put::new(held(), "after"))).await.unwrap();
    load.go_on(50).await;
    let told = load.end(&store).await;
    report(
        "failover-in-a-cluster",
        &format!(
            "a node of a cluster dies: {} of {} answered puts lost, {} of {} answered acks undone",
            told.lost().len(),
            told.answered.len(),
            acked_again(&told),
            told.acked.len()
        ),
    );
    // The replica was in step: what it lacks was under way.
    assert!(told.lost().len() < 50, "{} lost", told.lost().len());
}

fn report(name: &str, line: &str) {
    count(env!("CARGO_TARGET_TMPDIR"), name, line);
}
