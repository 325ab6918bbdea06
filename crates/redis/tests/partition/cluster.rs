//! A cluster that changes during calls: a slot moves to another node key by key, a node dies with and without a
//! replica.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dwell_model::{Limits, MessageId, QueueName, Setting, SettingChange, Timestamp};
use dwell_redis::RedisStore;
use dwell_store::{Action, Error, Put, Settled, Store as _, Take};
use dwell_testkit::redis::proxy::Link;
use dwell_testkit::redis::{Cluster, count};
use dwell_time::{Clock, ManualClock};

use super::{is_unavailable, is_unknown, message, open, put, queue, settle, within};

const PATIENT: &str = "?retry_ms=30000&timeout_ms=2000";
const BRIEF: &str = "?retry_ms=300&timeout_ms=2000";
/// The number of moved keys after each of which a call is made.
const LOOKED_AT: usize = 4;

/// Puts two messages and takes and acks one, until `stop` is set; returns what was put and what was acked.
async fn work(store: Arc<RedisStore>, stop: Arc<AtomicBool>) -> (Vec<MessageId>, HashSet<MessageId>) {
    let (mut ids, mut acked) = (Vec::new(), HashSet::new());
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..2 {
            ids.push(put(&store, message("m")).await.unwrap().id);
        }
        for delivery in store.take(Take::from(queue()).max(1)).await.unwrap() {
            assert!(delivery.taken_at >= delivery.message.standing.due, "it is early");
            assert_eq!(settle(&store, delivery.receipt, Action::Ack).await, Ok(Settled::Gone));
            assert!(acked.insert(delivery.message.id), "one came twice");
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    (ids, acked)
}

async fn drain(store: &RedisStore) -> HashSet<MessageId> {
    let mut ids = HashSet::new();
    loop {
        let taken = within("a take", store.take(Take::from(queue()).max(128))).await.unwrap();
        if taken.is_empty() {
            return ids;
        }
        for delivery in taken {
            assert!(ids.insert(delivery.message.id), "one came twice");
            settle(store, delivery.receipt, Action::Ack).await.unwrap();
        }
    }
}

/// The slot of the messages, and its node.
fn place(cluster: &mut Cluster) -> (u16, usize) {
    let key = tagged(cluster);
    cluster.place(&key)
}

/// A key with the one hash tag in use.
fn tagged(cluster: &mut Cluster) -> String {
    for node in cluster.nodes() {
        let keys: Vec<String> =
            redis::from_redis_value(node.command(&["KEYS", "dwell:{*}:meta"])).unwrap_or_default();
        if let Some(key) = keys.into_iter().next() {
            return key;
        }
    }
    panic!("no message is anywhere");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_key_by_key_loses_nothing_and_splits_nothing() {
    a_slot_moves_of_a_queue_over(1).await;
}

/// One of its partitions moves, and the others do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_of_a_queue_that_is_spread_moves_key_by_key_and_nothing_is_lost() {
    a_slot_moves_of_a_queue_over(3).await;
}

async fn a_slot_moves_of_a_queue_over(partitions: u16) {
    let mut cluster = Cluster::start();
    let store = Arc::new(open(&(cluster.url() + PATIENT)).await);
    let brief = open(&(cluster.url() + BRIEF)).await;
    let changes = vec![SettingChange::Set(Setting::Partitions(partitions))];
    store.configure(queue(), changes).await.unwrap();
    let mut besides = 0;
    put(&store, message("first")).await.unwrap();
    let (slot, from) = place(&mut cluster);
    let to = (from + 1) % 3;
    let (from_id, to_id) = (cluster.id(from), cluster.id(to));
    let stop = Arc::new(AtomicBool::new(false));
    let worker = tokio::spawn(work(Arc::clone(&store), Arc::clone(&stop)));
    tokio::time::sleep(Duration::from_millis(100)).await;

    let number = slot.to_string();
    let port = cluster.nodes()[to].port().to_string();
    let nodes = cluster.nodes();
    nodes[to].command(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &from_id]);
    nodes[from].command(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &to_id]);
    // Half of the keys on each node: calls are put off, and nothing is created on the new node.
    let mut moved = 0_usize;
    loop {
        let keys: Vec<String> =
            redis::from_redis_value(nodes[from].command(&["CLUSTER", "GETKEYSINSLOT", &number, "1"]))
                .unwrap();
        let Some(key) = keys.first() else { break };
        nodes[from].command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        moved += 1;
        // Each of these waits for as long as an impatient client retries; the patient one has to outlast them all.
        if moved > LOOKED_AT {
            continue;
        }
        for _ in 0..partitions {
            let put_off = put(&brief, message("while it moves")).await;
            // The other partitions accept their messages.
            let elsewhere = partitions > 1 && put_off.is_ok();
            besides += usize::from(elsewhere);
            assert!(elsewhere || is_unavailable(&put_off), "after {moved} keys: {put_off:?}");
        }
        let put_off = brief.stats(queue()).await;
        assert!(is_unavailable(&put_off), "after {moved} keys: {put_off:?}");
    }
    assert!(moved > 2, "{moved} keys");
    for node in [to, from, (to + 1) % 3, (from + 2) % 3] {
        nodes[node].command(&["CLUSTER", "SETSLOT", &number, "NODE", &to_id]);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    stop.store(true, Ordering::Relaxed);
    let (ids, acked) = within("the worker", worker).await.unwrap();
    let left = drain(&store).await;
    let lost = ids.iter().filter(|id| !acked.contains(id) && !left.contains(id)).count();
    assert_eq!(lost, 0, "of {}", ids.len());
    assert_eq!(acked.intersection(&left).count(), 0, "what was acked came again");
    // The first one and some others were not put by the worker.
    assert_eq!(acked.union(&left).count(), ids.len() + 1 + besides, "what was refused is there, or more");
    assert_eq!(besides > 0, partitions > 1);
}

/// No layer below the store repeats a call by itself, and what may have happened is not reported as not done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_of_a_cluster_is_unknown_or_fetched_again_and_nothing_happens_twice() {
    let mut cluster = Cluster::start();
    let proxies = cluster.behind_proxies().await;
    let url = Cluster::url_through(&proxies);
    let once = Arc::new(open(&format!("{url}?connections=1&timeout_ms=2000&retry_ms=0")).await);
    let again = open(&format!("{url}?connections=1&timeout_ms=2000&retry_ms=30000")).await;
    put(&again, message("first").after_ms(600_000)).await.unwrap();
    put(&once, message("second").after_ms(600_000)).await.unwrap();
    let key = tagged(&mut cluster);
    let (_, node) = cluster.place(&key);
    let (node, proxy) = (&cluster.nodes()[node], &proxies[node]);
    let fresh = key.strip_suffix("meta").unwrap().to_owned() + "due";
    let there = || -> i64 { redis::from_redis_value(node.command(&["ZCARD", &fresh])).unwrap() };
    for round in 0..5 {
        let before = there();
        proxy.lose_next_reply();
        let unknown = put(&once, message("m").after_ms(600_000)).await;
        assert!(is_unknown(&unknown), "round {round}: {unknown:?}");
        assert_eq!(there(), before + 1, "round {round}: it was put, and once");
        proxy.lose_next_reply();
        put(&again, message("m").after_ms(600_000)).await.unwrap();
        assert_eq!(there(), before + 2, "round {round}: it was made again, and put once");
    }
    // The node stops answering, and then it cannot be reached: the call was sent before, over a connection that was
    // whole.
    put(&once, message("m").after_ms(600_000)).await.unwrap();
    let before = there();
    proxy.set(Link::Mute);
    let sent = {
        let once = Arc::clone(&once);
        tokio::spawn(async move { put(&once, message("m").after_ms(600_000)).await })
    };
    within("the put", async {
        while there() == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    proxy.set(Link::Cut);
    let unknown = within("a put", sent).await.unwrap();
    assert!(is_unknown(&unknown), "{unknown:?}");
    let read = within("stats", once.stats(queue())).await;
    assert!(is_unavailable(&read), "what changes nothing cannot have happened: {read:?}");
    proxy.set(Link::Whole);
    within("a put", async { while put(&once, message("m")).await.is_err() {} }).await;
}

/// A call that times out drops the connection that all share. Until there is another one, the others continue on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_made_anew_for_a_node_that_does_not_answer_holds_up_nobody_elsewhere() {
    let mut cluster = Cluster::start();
    let proxies = cluster.behind_proxies().await;
    let url = Cluster::url_through(&proxies) + "?connections=1&timeout_ms=6000&retry_ms=0";
    let store = Arc::new(open(&url).await);
    // A queue on each of two nodes.
    let mut queues: Vec<(usize, QueueName)> = Vec::new();
    for n in 0.. {
        let name = QueueName::new(&format!("q{n}")).unwrap();
        let before: Vec<_> = (0..3).map(|node| partitions(&mut cluster, node)).collect();
        store.put(vec![Put::new(name.clone(), "m")]).await.pop().unwrap().unwrap();
        let node = (0..3).find(|node| partitions(&mut cluster, *node) > before[*node]).unwrap();
        if queues.iter().all(|(known, _)| *known != node) {
            queues.push((node, name));
        }
        if queues.len() == 2 {
            break;
        }
    }
    let [(away, gone), (_, there)] = <[_; 2]>::try_from(queues).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let others = {
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        tokio::spawn(async move {
            let (clock, mut longest) = (dwell_time::SystemClock::new(), 0);
            while !stop.load(Ordering::Relaxed) {
                let began = clock.now().mono_ms;
                store.stats(there.clone()).await.unwrap();
                longest = longest.max(clock.now().mono_ms - began);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            longest
        })
    };
    proxies[away].set(Link::Stalled);
    for _ in 0..2 {
        let refused = within("stats", store.stats(gone.clone())).await;
        assert!(is_unavailable(&refused), "{refused:?}");
    }
    proxies[away].set(Link::Whole);
    within("the node's return", async { while store.stats(gone.clone()).await.is_err() {} }).await;
    stop.store(true, Ordering::Relaxed);
    let longest = within("the others", others).await.unwrap();
    // Calls on the node that does not answer wait for 6 seconds.
    assert!(longest < 1_000, "a call on another node took {longest} ms");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_away_keeps_nobody_from_the_queues_of_others() {
    let mut cluster = Cluster::start();
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
    let open_at = async |options: &str| {
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let address = (cluster.url() + options).parse().unwrap();
        RedisStore::open_for_test(address, Limits::default(), shared).await.unwrap()
    };
    let store = open_at("?retry_ms=60000&timeout_ms=2000").await;
    let gone = open_at("").await;
    let brief = open_at("?retry_ms=300&timeout_ms=2000").await;
    let directory = cluster.place("{dwell}:meta").1;
    // A queue on each of two nodes.
    let mut queues = std::collections::HashMap::new();
    for n in 0.. {
        let name = QueueName::new(&format!("q{n}")).unwrap();
        for _ in 0..2 {
            store.put(vec![Put::new(name.clone(), "m")]).await.pop().unwrap().unwrap();
        }
        for node in 0..3 {
            let keys: Vec<String> =
                redis::from_redis_value(cluster.nodes()[node].command(&["KEYS", "dwell:{*}:meta"])).unwrap();
            if !keys.is_empty() && node != directory && !queues.values().any(|known| *known == name) {
                queues.entry(node).or_insert_with(|| name.clone());
            }
        }
        // The one that was put last is where there was none before.
        if queues.len() == 2 {
            break;
        }
    }
    let (away, there) = {
        let mut nodes = queues.into_iter();
        (nodes.next().unwrap(), nodes.next().unwrap())
    };
    let session = |queue: &QueueName| Take::from(queue.clone()).max(1).lease_ms(3_600_000).session();
    assert_eq!(gone.take(session(&away.1)).await.unwrap().len(), 1);
    drop(gone);
    cluster.nodes()[away.0].kill();
    // It has to count the leases in all queues before it hands out the first message.
    let taken = within("a take", store.take(Take::from(there.1.clone()).max(1))).await.unwrap();
    assert_eq!(taken.len(), 1, "of {}", there.1);
    let receipt = taken.into_iter().next().unwrap().receipt;
    assert_eq!(settle(&store, receipt, Action::Ack).await, Ok(Settled::Gone));
    store.put(vec![Put::new(there.1.clone(), "n")]).await.pop().unwrap().unwrap();
    let refused = within("a take", brief.take(Take::from(away.1.clone()))).await.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    let both = Take::from_all([away.1, there.1.clone()]).max(1);
    let taken = tokio::time::timeout(Duration::from_secs(30), store.take(both)).await;
    assert_eq!(taken.expect("it waits for the node that is away").unwrap().len(), 1);
    // What a dead process had bound cannot be freed there. The processes that try still send their heartbeats: what
    // is bound to them stays bound.
    let held = store.take(session(&there.1)).await.unwrap().pop().unwrap().receipt;
    for _ in 0..3 {
        clock.advance(10_000);
        let now = clock.now().wall.as_ms();
        let mut heard = || {
            let reply = cluster.nodes()[directory].command(&[
                "ZCOUNT",
                "{dwell}:heartbeats",
                &now.to_string(),
                "+inf",
            ]);
            redis::from_redis_value::<i64>(reply).unwrap()
        };
        let beats = async {
            while heard() < 2 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), beats).await.expect("both are heard of in time");
    }
    assert_eq!(settle(&store, held, Action::Ack).await, Ok(Settled::Gone));
}

/// Queues on all nodes, of which one dies: one with queues alone, or the one that has the directory too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_away_is_no_matter_to_lists_of_the_others_queues_and_to_readiness() {
    for (directory_goes, full_coverage) in [(false, false), (true, false), (false, true)] {
        let what = format!("the directory goes: {directory_goes}, full coverage: {full_coverage}");
        let mut cluster = Cluster::start();
        for node in cluster.nodes() {
            let full = if full_coverage { "yes" } else { "no" };
            node.command(&["CONFIG", "SET", "cluster-require-full-coverage", full]);
        }
        let store = open(&(cluster.url() + "?retry_ms=5000&timeout_ms=2000")).await;
        assert_eq!(within("readiness", store.ready()).await, Ok(()));
        for n in 0..24 {
            let name = QueueName::new(&format!("q{n:02}")).unwrap();
            store.put(vec![Put::new(name, "m")]).await.pop().unwrap().unwrap();
        }
        let listed = within("a list", store.queues(None, 100)).await.unwrap();
        assert_eq!(listed.len(), 24);
        let directory = cluster.place("{dwell}:meta").1;
        let away = if directory_goes { directory } else { (directory + 1) % 3 };
        let there = 24 - partitions(&mut cluster, away);
        assert!((1..24).contains(&there), "{what}: {there} queues are elsewhere");
        cluster.nodes()[away].kill();
        if full_coverage {
            // None of its queues is served any more, once it reports that.
            comes_true(async || store.ready().await.is_err()).await;
            continue;
        }
        // The others have to agree that it is down before they report that all is well.
        comes_true(async || store.ready().await.is_ok()).await;
        for _ in 0..3 {
            assert_eq!(within("readiness", store.ready()).await, Ok(()), "{what}");
        }
        let listed = within("a list", store.queues(None, 100)).await;
        if directory_goes {
            assert!(is_unavailable(&listed), "{what}: {listed:?}");
            continue;
        }
        let listed = listed.unwrap_or_else(|error| panic!("{what}: {error}"));
        let names: Vec<_> = listed.iter().map(|stats| stats.name.to_string()).collect();
        assert_eq!(names, (0..24).map(|n| format!("q{n:02}")).collect::<Vec<_>>(), "{what}: all are named");
        let (read, unread): (Vec<_>, Vec<_>) = listed.into_iter().partition(|stats| stats.unread.is_none());
        assert_eq!(read.len(), there, "{what}");
        assert!(read.iter().all(|stats| stats.counts.ready == 1));
        for stats in &unread {
            let why = stats.unread.as_ref().map_or(Ok(()), |error| Err(error.clone()));
            assert!(is_unavailable(&why), "{what}: {why:?}");
        }
        let alone = within("a queue that is away", store.stats(unread[0].name.clone())).await;
        assert!(is_unavailable(&alone), "{what}: {alone:?}");
        // However short the pages are.
        let page = within("a page", store.queues(None, 1)).await.unwrap();
        assert_eq!(page[0].name.as_str(), "q00", "{what}");
    }
}

/// A process begins while a node is away, one with queues alone or the one that has the directory too: it is cut off,
/// or does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_begins_while_a_node_is_away_serves_the_queues_of_the_others() {
    let mut cluster = Cluster::start();
    let proxies = cluster.behind_proxies().await;
    let url = Cluster::url_through(&proxies) + "?retry_ms=1000&timeout_ms=1500";
    let before = open(&url).await;
    let mut queues = std::collections::BTreeMap::new();
    for n in 0.. {
        let had: Vec<usize> = (0..3).map(|node| partitions(&mut cluster, node)).collect();
        let name = QueueName::new(&format!("q{n}")).unwrap();
        before.put(vec![Put::new(name.clone(), "m")]).await.pop().unwrap().unwrap();
        let node = (0..3).find(|node| partitions(&mut cluster, *node) > had[*node]).unwrap();
        queues.entry(node).or_insert(name);
        if queues.len() == 3 {
            break;
        }
    }
    let directory = cluster.place("{dwell}:meta").1;
    let put = async |store: &RedisStore, name: &QueueName| {
        within("a put", store.put(vec![Put::new(name.clone(), "m")])).await.pop().unwrap()
    };
    for (directory_goes, how) in
        [(false, Link::Cut), (false, Link::Deaf), (true, Link::Cut), (true, Link::Deaf)]
    {
        let what = format!("the directory goes: {directory_goes}, {how:?}");
        let away = if directory_goes { directory } else { (directory + 1) % 3 };
        proxies[away].set(how);
        let opened = within("opening", RedisStore::open(url.parse().unwrap(), Limits::default())).await;
        let store = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
        let limits = {
            let mut limits = Limits::default();
            limits.defaults.partitions = 2;
            limits
        };
        // The default number of partitions differs: only the directory can show that.
        let other = match directory_goes {
            true => Some(within("opening", RedisStore::open(url.parse().unwrap(), limits)).await.unwrap()),
            false => None,
        };
        for (node, name) in &queues {
            let what = format!("{what}, node {node}");
            let stats = within("stats", store.stats(name.clone())).await;
            let taken = within("a take", store.take(Take::from(name.clone()).max(1))).await;
            let session = within("a take", store.take(Take::from(name.clone()).max(1).session())).await;
            if *node == away {
                assert!(is_unavailable(&stats), "{what}: {stats:?}");
                assert!(taken.as_ref().is_err_and(Error::is_retryable), "{what}: {taken:?}");
            } else {
                assert_eq!(stats.unwrap().counts.ready, 1, "{what}");
                let receipt = taken.unwrap().pop().unwrap().receipt;
                assert_eq!(settle(&store, receipt, Action::Ack).await, Ok(Settled::Gone), "{what}");
            }
            let refused = put(&store, name).await.map(drop);
            if *node == away || directory_goes {
                assert!(refused.as_ref().is_err_and(Error::is_retryable), "{what}: {refused:?}");
                assert!(session.as_ref().is_err_and(Error::is_retryable), "{what}: {session:?}");
            } else {
                assert_eq!((refused, session), (Ok(()), Ok(Vec::new())), "{what}");
            }
        }
        assert_eq!(within("readiness", store.ready()).await, Ok(()), "{what}");
        proxies[away].set(Link::Whole);
        // It is registered as soon as the directory is back, and then it is like any other.
        for name in queues.values() {
            comes_true(async || put(&store, name).await.is_ok()).await;
            let session = Take::from(name.clone()).max(100).session();
            for delivery in within("a take", store.take(session)).await.unwrap() {
                assert_eq!(settle(&store, delivery.receipt, Action::Ack).await, Ok(Settled::Gone), "{what}");
            }
        }
        if let Some(other) = other {
            let name = &queues[&directory];
            comes_true(async || {
                let refused = other.stats(name.clone()).await;
                refused.is_err_and(|error| error.to_string().contains("spread over 1 partitions"))
            })
            .await;
            assert!(within("a take", other.take(Take::from(name.clone()))).await.is_err(), "{what}");
            assert!(within("readiness", other.ready()).await.is_err(), "{what}");
        }
        drop(store);
        for name in queues.values() {
            within("a purge", before.purge(name.clone())).await.unwrap();
            put(&before, name).await.unwrap();
        }
    }
}

async fn comes_true(holds: impl AsyncFn() -> bool) {
    let waited = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waited).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_dies_is_replaced_by_its_replica_or_its_queues_are_refused() {
    let mut cluster = Cluster::start();
    let store = open(&(cluster.url() + PATIENT)).await;
    put(&store, message("first")).await.unwrap();
    let (_, node) = place(&mut cluster);
    cluster.add_replica(node);
    let mut ids = HashSet::new();
    for _ in 0..100 {
        ids.insert(put(&store, message("m")).await.unwrap().id);
    }
    cluster.nodes()[node].kill();
    ids.insert(within("a put through the failover", put(&store, message("after"))).await.unwrap().id);
    let found = drain(&store).await;
    let lost = ids.iter().filter(|id| !found.contains(id)).count();
    let line = format!("a node of an idle cluster dies: {lost} of {} answered messages lost", ids.len());
    count(env!("CARGO_TARGET_TMPDIR"), "failover-in-an-idle-cluster", &line);
    assert!(lost < ids.len(), "the last one is there");

    // There is no further replica: the queue is refused, with a reason, until an operator acts.
    put(&store, message("last")).await.unwrap();
    let brief = open(&(cluster.url() + BRIEF)).await;
    cluster.nodes()[3].kill();
    let refused = within("a put", put(&brief, message("n"))).await;
    let typed = matches!(&refused, Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. }));
    assert!(typed && refused.as_ref().is_err_and(Error::is_retryable), "{refused:?}");
    let read = within("stats", brief.stats(queue())).await;
    assert!(is_unavailable(&read), "{read:?}");
}

/// All nodes that the URL names are replaced, one after the other. Then all connections are cut: only the nodes that
/// the process remembers lead to the cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_outlives_all_the_nodes_that_its_url_names() {
    let mut cluster = Cluster::start();
    let store = Arc::new(open(&(cluster.url() + PATIENT)).await);
    // A queue on each node, so that a call meets each one that is replaced.
    let mut queues: Vec<QueueName> = Vec::new();
    for n in 0.. {
        let had: Vec<usize> = (0..3).map(|node| partitions(&mut cluster, node)).collect();
        let name = QueueName::new(&format!("q{n}")).unwrap();
        within("a put", store.put(vec![Put::new(name.clone(), "m")])).await.pop().unwrap().unwrap();
        let node = (0..3).find(|node| partitions(&mut cluster, *node) > had[*node]).unwrap();
        if had[node] == 0 {
            queues.push(name);
        }
        if queues.len() == 3 {
            break;
        }
    }
    let put_all = async |when: &str| {
        for name in &queues {
            let answer = within("a put", store.put(vec![Put::new(name.clone(), "m")])).await.pop().unwrap();
            assert!(answer.is_ok(), "{when}: {answer:?}");
        }
    };
    for node in 0..3 {
        cluster.replace(node);
        put_all("a node was replaced").await;
    }
    cluster.cut();
    put_all("connections were cut").await;

    // Hints too: a take that waits subscribes again.
    let waiting = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.take(Take::from(queue()).wait_ms(60_000)).await })
    };
    within("a subscription", comes(|| cluster.subscribers() > 0)).await;
    cluster.cut();
    within("a subscription after the cut", comes(|| cluster.subscribers() > 0)).await;
    let other = open(&cluster.url()).await;
    put(&other, message("hinted at")).await.unwrap();
    assert_eq!(within("the take", waiting).await.unwrap().unwrap().len(), 1);
}

/// The number of partitions on a node.
pub(super) fn partitions(cluster: &mut Cluster, node: usize) -> usize {
    let keys: Vec<String> =
        redis::from_redis_value(cluster.nodes()[node].command(&["KEYS", "dwell:{*}:meta"])).unwrap();
    keys.len()
}

async fn comes(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A node is away, and there is much background work for it. A process dies that had bound a lease elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_bound_to_a_process_that_is_gone_is_freed_though_a_node_is_away() {
    let mut cluster = Cluster::start();
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
    let open_at = async |options: &str| {
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let address = (cluster.url() + options).parse().unwrap();
        RedisStore::open_for_test(address, Limits::default(), shared).await.unwrap()
    };
    let store = open_at("?retry_ms=60000&timeout_ms=2000").await;
    let gone = open_at("?timeout_ms=2000").await;
    let directory = cluster.place("{dwell}:meta").1;
    let away = (directory + 1) % 3;
    // Queues on both nodes, all in one block of numbers.
    let (mut over_there, mut here) = (0, None);
    for n in 0.. {
        let had: Vec<usize> = (0..3).map(|node| partitions(&mut cluster, node)).collect();
        let name = QueueName::new(&format!("q{n}")).unwrap();
        store.put(vec![Put::new(name.clone(), "m")]).await.pop().unwrap().unwrap();
        if partitions(&mut cluster, directory) > had[directory] {
            here = Some(name);
        } else if partitions(&mut cluster, away) > had[away] {
            over_there += 1;
        }
        if over_there >= 3 && here.is_some() {
            break;
        }
    }
    let here = here.unwrap();
    // Its blocks of numbers are checked, one partition after the other.
    cluster.nodes()[away].kill();
    clock.advance(2 * 3_600_000);
    tokio::time::sleep(Duration::from_secs(7)).await;
    let session = Take::from(here.clone()).max(1).lease_ms(3_600_000).session();
    assert_eq!(within("a take", gone.take(session)).await.unwrap().len(), 1);
    drop(gone);
    // The other one sends heartbeats, and this one does not.
    for _ in 0..4 {
        clock.advance(7_000);
        let now = clock.now().wall.as_ms().to_string();
        let mut heard = || {
            let reply = cluster.nodes()[directory].command(&["ZCOUNT", "{dwell}:heartbeats", &now, "+inf"]);
            redis::from_redis_value::<i64>(reply).unwrap()
        };
        within("a beat", async {
            while heard() == 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }
    let freed = async {
        loop {
            if let Ok(taken) = store.take(Take::from(here.clone()).max(1)).await
                && let Some(freed) = taken.into_iter().next()
            {
                break freed;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let freed = tokio::time::timeout(Duration::from_secs(15), freed).await;
    assert_eq!(freed.expect("it waits for the node that is away").message.standing.attempt(), 2);
}
