//! Operations on a queue as a whole that take several scripts: changing its number of partitions, registering it,
//! unregistering it.

use std::collections::HashSet;

use dwell_model::{Key, Limits, MessageId, QueueName, Setting, SettingChange, SettingName};
use dwell_redis::RedisStore;
use dwell_store::{Action, Error, Put, Settle, Settled, Store as _, Take};
use dwell_testkit::redis::Server;
use dwell_testkit::redis::proxy::Proxy;

use super::{open, within};

async fn change(store: &RedisStore, queue: &QueueName, change: SettingChange) -> Result<u16, Error> {
    Ok(store.configure(queue.clone(), vec![change]).await?.settings.partitions)
}

fn partitions(partitions: u16) -> SettingChange {
    SettingChange::Set(Setting::Partitions(partitions))
}

/// Puts under keys that lie in all partitions.
async fn put_some(store: &RedisStore, queue: &QueueName, named: &str) -> HashSet<MessageId> {
    let mut ids = HashSet::new();
    for n in 0..6 {
        let key = Key::new(&format!("{named} {n}")).unwrap();
        let answer = store.put(vec![Put::new(queue.clone(), "m").key(key)]).await.pop().unwrap();
        ids.insert(answer.unwrap().id);
    }
    ids
}

async fn drain(store: &RedisStore, queue: &QueueName) -> HashSet<MessageId> {
    let mut ids = HashSet::new();
    loop {
        let taken = within("a take", store.take(Take::from(queue.clone()).max(128))).await.unwrap();
        if taken.is_empty() {
            return ids;
        }
        for delivery in taken {
            assert!(ids.insert(delivery.message.id), "one came twice");
            let ack = Settle { receipt: delivery.receipt, action: Action::Ack };
            assert_eq!(store.settle(vec![ack]).await, [Ok(Settled::Gone)]);
        }
    }
}

/// The change is interrupted after each of its scripts in turn. The next process finds a queue that works: one that
/// has not learnt of the change and uses a partition directly, or one that has just been opened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_partitions_that_is_broken_off_anywhere_is_carried_on_by_whoever_comes_next() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let once = open(&proxy.url("connections=1&timeout_ms=5000&retry_ms=0")).await;
    let (knows, mut cuts) = (open(&server.url()).await, 0);
    for (from, to) in [(1, 3), (3, 1), (3, 2), (3, 3)] {
        for (comes, who) in ["the one who knows", "a new one", "a new one that changes it"].iter().enumerate()
        {
            for after in 0.. {
                let what = format!("{from} to {to}, cut after {after} answers, then {who}");
                let queue = QueueName::new(&format!("q{from}-{to}-{comes}-{after}")).unwrap();
                change(&knows, &queue, partitions(from)).await.unwrap();
                // The one that is cut off knows the queue.
                assert_eq!(once.stats(queue.clone()).await.unwrap().settings.partitions, from, "{what}");
                proxy.lose_reply_after(after);
                let asked =
                    if from == to { SettingChange::Set(Setting::LeaseMs(7_000)) } else { partitions(to) };
                let changed = change(&once, &queue, asked).await;
                proxy.lose_reply_after(-1);
                let was_cut = match &changed {
                    Ok(_) => false,
                    Err(Error::OutcomeUnknown { .. } | Error::Unavailable { .. }) => true,
                    Err(error) => panic!("{what}: {error}"),
                };
                let new = open(&server.url()).await;
                let mut ids = match comes {
                    0 => put_some(&knows, &queue, "knows").await,
                    1 => put_some(&new, &queue, "new").await,
                    _ => {
                        let changed = within(&what, change(&new, &queue, partitions(2))).await;
                        assert_eq!(changed, Ok(2), "{what}");
                        HashSet::new()
                    }
                };
                let told = new.stats(queue.clone()).await.unwrap();
                assert_eq!(knows.stats(queue.clone()).await.unwrap(), told, "{what}");
                let is_one = [from, to].contains(&told.settings.partitions);
                assert!(is_one || comes == 2, "{what}: {}", told.settings.partitions);
                assert_eq!(told.counts.ready, ids.len() as u64, "{what}");
                for store in [&knows, &new] {
                    ids.extend(put_some(store, &queue, &format!("{}", ids.len())).await);
                }
                assert_eq!(drain(&new, &queue).await, ids, "{what}");
                assert_eq!(within(&what, change(&knows, &queue, partitions(4))).await, Ok(4), "{what}");
                let ids = put_some(&new, &queue, "last").await;
                assert_eq!(drain(&knows, &queue).await, ids, "{what}");
                new.delete_queue(queue.clone()).await.unwrap();
                cuts += usize::from(was_cut);
                if !was_cut {
                    assert!(from == to || after > 8, "{what}");
                    break;
                }
            }
        }
    }
    assert!(cuts > 90, "{cuts} cuts");
    // Nothing is left of what was spread over more partitions.
    within("letting go", async {
        while !redis::from_redis_value::<Vec<String>>(server.command(&["KEYS", "dwell:{*}:meta"]))
            .unwrap()
            .is_empty()
        {
            assert_eq!(knows.queues(None, 10).await, Ok(Vec::new()));
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    })
    .await;
}

/// A process is about to close the partitions when another puts into one that is still open: the change is undone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_that_comes_before_its_partition_is_closed_undoes_the_change() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let slow = open(&proxy.url("connections=1&timeout_ms=60000")).await;
    let (knows, mut undone) = (open(&server.url()).await, 0);
    for after in 0..24 {
        let queue = QueueName::new(&format!("q{after}")).unwrap();
        change(&knows, &queue, partitions(3)).await.unwrap();
        assert_eq!(slow.stats(queue.clone()).await.unwrap().settings.partitions, 3);
        proxy.stop_request_after(after);
        let asked = queue.clone();
        let changing = async { change(&slow, &asked, partitions(1)).await };
        let (ids, changed) = {
            let meanwhile = async {
                // If it is over before, nothing is stopped.
                let _ = tokio::time::timeout(std::time::Duration::from_millis(700), proxy.stopped()).await;
                let ids = put_some(&knows, &queue, "meanwhile").await;
                proxy.stop_request_after(-1);
                proxy.go_on();
                ids
            };
            tokio::join!(meanwhile, within("the change", changing))
        };
        let is = knows.stats(queue.clone()).await.unwrap().settings.partitions;
        match changed {
            Ok(1) => assert!([1, 3].contains(&is), "after {after}: {is}"),
            Err(Error::SettingFixed { setting: SettingName::Partitions, .. }) => {
                assert!([1, 3].contains(&is), "after {after}: {is}");
                undone += usize::from(is == 3);
            }
            other => panic!("after {after}: {other:?}"),
        }
        assert_eq!(drain(&knows, &queue).await, ids, "after {after}");
    }
    assert!(undone >= 2, "{undone} were undone");
}

/// A process registers a queue, and before it puts its first message another one unregisters the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_others_let_go_of_before_its_first_put_arrives_is_listed_all_the_same() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    // Near the limit of queues a process that empties one unregisters it at once.
    let limits = Limits { queues: 4, ..Limits::default() };
    let open_at = async |url: String| RedisStore::open(url.parse().unwrap(), limits.clone()).await.unwrap();
    let slow = open_at(proxy.url("connections=1&timeout_ms=60000")).await;
    let quick = open_at(server.url()).await;
    let first = QueueName::new("first").unwrap();
    let put = async |store: &RedisStore, queue: &QueueName| {
        store.put(vec![Put::new(queue.clone(), "m")]).await.pop().unwrap().map(|answer| answer.id)
    };
    // The server has all scripts.
    put(&slow, &first).await.unwrap();
    let mut stopped_late = 0;
    for after in 0..5 {
        let queue = QueueName::new(&format!("q{after}")).unwrap();
        proxy.stop_request_after(after);
        let (came, answered) = {
            let meanwhile = async {
                let came = tokio::time::timeout(std::time::Duration::from_millis(1_000), proxy.stopped())
                    .await
                    .is_ok();
                for _ in 0..2 {
                    put(&quick, &queue).await.unwrap();
                    drain(&quick, &queue).await;
                    // Lists unregister empty queues, too.
                    quick.queues(None, 10).await.unwrap();
                }
                proxy.stop_request_after(-1);
                proxy.go_on();
                came
            };
            tokio::join!(meanwhile, within("the put", put(&slow, &queue)))
        };
        stopped_late += usize::from(came && after >= 2);
        let id = answered.unwrap();
        let names = async || {
            let listed = quick.queues(None, 10).await.unwrap();
            listed.iter().map(|stats| stats.name.as_str().to_owned()).collect::<Vec<_>>()
        };
        // It was handed out with the others, or is there: then its queue is listed.
        if quick.stats(queue.clone()).await.is_ok() {
            assert!(names().await.contains(&queue.to_string()), "after {after}: {:?}", names().await);
            assert_eq!(drain(&quick, &queue).await, HashSet::from([id]), "after {after}");
        }
    }
    assert!(stopped_late > 0, "the put with the registration was stopped");
    let unlisted = within("letting go", async {
        loop {
            let listed = quick.queues(None, 10).await.unwrap();
            if listed.len() == 1 {
                break listed[0].name.clone();
            }
        }
    })
    .await;
    assert_eq!(unlisted, first);
}
