//! A cluster of three nodes: all keys of a queue are in one slot, whatever its name.

use dwell_redis::Link;
use dwell_redisson::codec::Text;
use dwell_redisson::{
    Consumer, DelayedQueue, Doctor, DoctorOptions, Event, FindingKind, Keys, Mover, MoverOptions, Settled,
    When,
};
use dwell_testkit::redis::Cluster;

use crate::failover::Load;
use crate::{HOUR_MS, run, text};

#[test]
fn everything_works_on_a_cluster() {
    run(async {
        let cluster = Cluster::start();
        let link = Link::open(cluster.address()).await.unwrap();
        // Names whose slots are on different nodes.
        for name in ["orders", "orders{eu}", "mails", "{us}jobs", "a", "b", "c"] {
            let keys = Keys::new(name).unwrap();
            let queue = DelayedQueue::new(link.clone(), keys.clone(), Text);
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let (events, mut heard) = tokio::sync::mpsc::unbounded_channel();
            let options = MoverOptions { sweep_ms: HOUR_MS, ..MoverOptions::default() };
            let mover = Mover::new(link.clone(), keys.clone(), options);
            let report = move |event| drop(events.send(event));
            let running = tokio::spawn(mover.run(async { drop(stopped.await) }, report));
            assert_eq!(heard.recv().await, Some(Event::Listening), "{name}");

            queue.offer(&text("later"), When::In(HOUR_MS)).await.unwrap();
            queue.offer_as("id", &text("soon"), When::In(20)).await.unwrap();
            assert_eq!(queue.take(20_000).await.unwrap(), Some(text("soon")), "{name}");
            assert_eq!(queue.debounce(&text("later"), When::In(20)).await.unwrap().taken_out, 1);

            let consumer = Consumer::new(link.clone(), keys.clone());
            let claimed = consumer.claim(1, 20_000, HOUR_MS).await.unwrap();
            assert_eq!(claimed[0].payload, b"later", "{name}");
            assert_eq!(consumer.retry(&claimed[0], HOUR_MS, "not now").await.unwrap(), Settled::Scheduled);
            assert!(queue.remove(&text("later")).await.unwrap());

            queue.offer(&text("seen"), When::In(HOUR_MS)).await.unwrap();
            let doctor = Doctor::new(link.clone(), keys.clone(), DoctorOptions::default());
            let report = doctor.examine().await.unwrap();
            assert_eq!((report.scheduled, report.listeners), (1, 1), "{name}");
            drop(stop);
            running.await.unwrap();
            // A server notices only after some time that a connection is closed.
            let mut report = doctor.examine().await.unwrap();
            while report.listeners > 0 {
                tokio::task::yield_now().await;
                report = doctor.examine().await.unwrap();
            }
            let kinds: Vec<_> = report.findings.iter().map(|finding| finding.kind).collect();
            assert_eq!(kinds, [FindingKind::NobodyListens], "{name}");
        }
    });
}

/// The only node that the URL names fails permanently. A mover and producers continue with the nodes they have seen.
#[test]
fn a_mover_outlives_the_node_that_its_url_names() {
    run(async {
        let mut cluster = Cluster::start();
        let seed = format!("redis-cluster://127.0.0.1:{}", cluster.nodes()[0].port());
        let link = Link::open(seed.parse().unwrap()).await.unwrap();
        let keys = Keys::new("orders").unwrap();
        let queue = DelayedQueue::new(link.clone(), keys.clone(), Text);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (events, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let options = MoverOptions { sweep_ms: HOUR_MS, ..MoverOptions::default() };
        let mover = Mover::new(link.clone(), keys, options);
        let running =
            tokio::spawn(mover.run(async { drop(stopped.await) }, move |event| drop(events.send(event))));
        assert_eq!(heard.recv().await, Some(Event::Listening));
        cluster.replace(0);
        for round in 0..2 {
            cluster.cut();
            while cluster.subscribers() == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            // A call may coincide with the failure.
            while queue.offer_as(&format!("id {round}"), &text("soon"), When::In(20)).await.is_err() {}
            let taken = loop {
                if let Ok(Some(taken)) = queue.take(10_000).await {
                    break taken;
                }
            };
            assert_eq!(taken, "soon");
        }
        drop(stop);
        running.await.unwrap();
    });
}

/// Like `redis-cli --cluster reshard`, but slowly: during calls some of the keys are on either node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_offers_and_a_consumer_loses_nothing() {
    let mut cluster = Cluster::start();
    let link = Link::open(cluster.address()).await.unwrap();
    let load = Load::start(&link, &Keys::new("orders").unwrap());
    load.go_on(50).await;
    let (slot, from) = cluster.place("orders");
    let to = (from + 1) % 3;
    let (from_id, to_id) = (cluster.id(from), cluster.id(to));
    let (slot, nodes) = (slot.to_string(), cluster.nodes());
    nodes[to].command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
    nodes[from].command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
    let port = nodes[to].port().to_string();
    let mut moved = 0_usize;
    loop {
        let reply = nodes[from].command(&["CLUSTER", "GETKEYSINSLOT", &slot, "1"]);
        let keys: Vec<String> = redis::from_redis_value(reply).unwrap();
        let Some(key) = keys.first() else { break };
        nodes[from].command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        moved += 1;
        if moved < 5 {
            // Gives calls time to run into it.
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }
    for node in [to, from, (to + 1) % 3] {
        nodes[node].command(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
    }
    load.go_on(50).await;
    let told = load.end().await;
    let keys: Vec<String> =
        redis::from_redis_value(nodes[from].command(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"])).unwrap();
    assert_eq!(keys, [""; 0], "some of the queue was begun anew where it was");
    assert!(moved >= 3 && told.failures > 0, "{moved} keys moved, {} calls put off", told.failures);
    let again = told.delivered.values().filter(|times| **times > 1).count();
    println!("{} delivered, {again} of them again, {} calls put off", told.delivered.len(), told.failures);
}

/// A node of a cluster hangs, and then cannot be reached. Calls that were sent before may have been executed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_that_was_carried_out_by_a_node_that_goes_is_not_called_undone() {
    use dwell_redisson::Error;
    use dwell_testkit::redis::proxy::Link as State;
    use std::time::Duration;

    let mut cluster = Cluster::start();
    let proxies = cluster.behind_proxies().await;
    let node = cluster.place("orders").1;
    let keys = Keys::new("orders").unwrap();
    let url = Cluster::url_through(&proxies) + "?connections=1&timeout_ms=3000";
    let timeouts = keys.timeouts();
    for round in 0..4 {
        let link = Link::open(url.parse().unwrap()).await.unwrap();
        let queue = DelayedQueue::new(link.clone(), keys.clone(), Text);
        queue.offer(&text("first"), When::In(HOUR_MS)).await.unwrap();
        let there = |cluster: &mut Cluster| -> i64 {
            redis::from_redis_value(cluster.nodes()[node].command(&["ZCARD", &timeouts])).unwrap()
        };
        let before = there(&mut cluster);
        proxies[node].set(State::Mute);
        let sent = {
            let queue = DelayedQueue::new(link.clone(), keys.clone(), Text);
            tokio::spawn(async move { queue.offer(&text("m"), When::In(HOUR_MS)).await })
        };
        let arrived = async {
            while there(&mut cluster) == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), arrived).await.unwrap();
        proxies[node].set(State::Cut);
        let answer = tokio::time::timeout(Duration::from_secs(30), sent).await.unwrap().unwrap();
        proxies[node].set(State::Whole);
        assert!(matches!(answer, Err(Error::OutcomeUnknown { .. })), "round {round}: {answer:?}");
        assert_eq!(there(&mut cluster), before + 1, "round {round}");
    }
}
