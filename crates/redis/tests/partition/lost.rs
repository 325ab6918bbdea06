//! A directory that has lost its entries: the queues are there, and the processes that use them register them again.

use std::collections::HashSet;
use std::time::Duration;

use dwell_model::{Limits, Number, QueueName, Setting, SettingChange};
use dwell_redis::RedisStore;
use dwell_store::{Action, Error, Put, PutAnswer, Settle, Store as _, Take};
use dwell_testkit::redis::{Cluster, Server};

use super::cluster::partitions;
use super::{open, within};

fn name(text: &str) -> QueueName {
    QueueName::new(text).unwrap()
}

async fn put(store: &RedisStore, queue: &QueueName) -> PutAnswer {
    within("a put", store.put(vec![Put::new(queue.clone(), "m").after_ms(3_600_000)]))
        .await
        .pop()
        .unwrap()
        .unwrap()
}

async fn listed(store: &RedisStore) -> Vec<String> {
    let listed = store.queues(None, 100).await.unwrap();
    listed.iter().map(|stats| stats.name.as_str().to_owned()).collect()
}

/// Removes keys of the directory, as if they had never reached the server that has it now.
fn forget(server: &Server, names: &str) {
    let keys: Vec<String> =
        redis::from_redis_value(server.command(&["KEYS", &format!("{{dwell}}:{names}")])).unwrap();
    assert!(!keys.is_empty());
    for key in keys {
        server.command(&["DEL", &key]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_the_directory_has_lost_comes_back_when_it_is_used() {
    let server = Server::start();
    let store = open(&server.url()).await;
    let queues = [name("putting"), name("taking"), name("asking"), name("unused"), name("partitions")];
    let over_three = vec![SettingChange::Set(Setting::Partitions(3))];
    store.configure(queues[4].clone(), over_three).await.unwrap();
    for queue in &queues {
        put(&store, queue).await;
    }
    drop(store);
    forget(&server, "queues");
    forget(&server, "registrations");
    let uses: [(&str, &[usize]); 3] = [("puts", &[0, 4]), ("takes", &[1]), ("asks", &[2])];
    let mut expected = Vec::new();
    for (how, used) in uses {
        // Another process each time, which was not there before.
        let store = open(&server.url()).await;
        for index in used {
            match how {
                "puts" => drop(put(&store, &queues[*index]).await),
                // Nothing is due: it learns when something will be.
                "takes" => drop(store.take(Take::from(queues[*index].clone())).await.unwrap()),
                _ => drop(store.stats(queues[*index].clone()).await.unwrap()),
            }
            expected.push(queues[*index].as_str().to_owned());
        }
        store.beat_for_test().await.unwrap();
        expected.sort();
        assert_eq!(listed(&store).await, expected, "it {how}");
    }
    // A queue that was registered again is unregistered as usual.
    let store = open(&server.url()).await;
    for queue in &queues[..4] {
        store.purge(queue.clone()).await.unwrap();
    }
    store.beat_for_test().await.unwrap();
    assert_eq!(listed(&store).await, ["partitions"]);
    let count: i64 = redis::from_redis_value(server.command(&["ZCARD", "{dwell}:queues"])).unwrap();
    assert_eq!(count, 1);
}

/// A process that waits on several queues asks each of them whether there is something, and takes from none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_that_a_take_waits_on_come_back_and_those_with_nothing_do_not() {
    let server = Server::start();
    let store = open(&server.url()).await;
    let (scheduled, empty) = (name("scheduled"), name("empty"));
    put(&store, &scheduled).await;
    drop(store);
    forget(&server, "queues");
    forget(&server, "registrations");
    let store = std::sync::Arc::new(open(&server.url()).await);
    let waiting = {
        let (store, queues) = (std::sync::Arc::clone(&store), [scheduled.clone(), empty.clone()]);
        tokio::spawn(async move { store.take(Take::from_all(queues).wait_ms(60_000)).await })
    };
    within("the queue's return", async {
        let known = || redis::from_redis_value::<i64>(server.command(&["ZCARD", "{dwell}:queues"])).unwrap();
        while known() == 0 {
            store.beat_for_test().await.unwrap();
        }
    })
    .await;
    for _ in 0..3 {
        store.beat_for_test().await.unwrap();
    }
    let names: Vec<String> =
        redis::from_redis_value(server.command(&["ZRANGE", "{dwell}:queues", "0", "-1"])).unwrap();
    assert_eq!(names, ["scheduled"]);
    waiting.abort();
}

/// The directory is lost as a whole, counters included: numbers stay unique, and are found again where a process
/// lives that has used them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_is_gone_whole_is_made_anew_and_gives_no_number_twice() {
    let server = Server::start();
    let (lives, other) = (open(&server.url()).await, open(&server.url()).await);
    let (orders, mails) = (name("orders"), name("mails"));
    let mut given = Vec::new();
    for _ in 0..600 {
        given.push(put(&lives, &orders).await);
    }
    given.push(put(&other, &mails).await);
    forget(&server, "*");
    lives.beat_for_test().await.unwrap();
    assert!(listed(&lives).await.contains(&"orders".to_owned()));
    // The other one has blocks that it does not know to be lost.
    given.push(put(&other, &mails).await);
    other.beat_for_test().await.unwrap();
    assert_eq!(listed(&lives).await, ["mails", "orders"]);
    let fresh = open(&server.url()).await;
    for store in [&fresh, &lives, &other] {
        for _ in 0..300 {
            given.push(put(store, &orders).await);
            given.push(put(store, &mails).await);
        }
    }
    let distinct: HashSet<_> = given.iter().map(|answer| answer.number).collect();
    assert_eq!(distinct.len(), given.len());
    let numbers: Vec<Number> = given.iter().map(|answer| answer.number).collect();
    for (some, answers) in numbers.chunks(500).zip(given.chunks(500)) {
        let found = fresh.locate(some.to_vec()).await;
        for (answer, found) in answers.iter().zip(found) {
            assert_eq!(found.unwrap().map(|(_, id)| id), Some(answer.id), "number {}", answer.number);
        }
    }
    // The default number of partitions of the earlier processes holds again.
    let mut limits = Limits::default();
    limits.defaults.partitions = 2;
    let refused = RedisStore::open(server.address(), limits).await;
    assert!(refused.is_err_and(|error| error.code() == "setting_fixed"));
}

/// No living process knows how far the numbers had come; only the partition does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_process_over_a_directory_that_is_gone_puts_beside_what_is_there() {
    let server = Server::start();
    let orders = name("orders");
    let mut given = HashSet::new();
    {
        let store = open(&server.url()).await;
        let puts = || (0..1_000).map(|_| Put::new(orders.clone(), "m").after_ms(3_600_000)).collect();
        for _ in 0..10 {
            for answer in store.put(puts()).await {
                given.insert(answer.unwrap().number);
            }
        }
    }
    forget(&server, "*");
    let store = open(&server.url()).await;
    for _ in 0..300 {
        assert!(given.insert(put(&store, &orders).await.number));
    }
    store.beat_for_test().await.unwrap();
    assert_eq!(listed(&store).await, ["orders"]);
    assert!(given.insert(put(&store, &name("mails")).await.number));
    assert_eq!(store.stats(orders).await.unwrap().counts.scheduled, 10_300);
}

/// A registration that another process gave up was higher than all that the new directory would give.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_was_let_go_of_before_the_directory_was_lost_takes_puts() {
    let server = Server::start();
    // Near the limit of queues a process that empties one unregisters it at once.
    let limits = Limits { queues: 2, ..Limits::default() };
    let open_it = async || RedisStore::open(server.address(), limits.clone()).await.unwrap();
    let store = open_it().await;
    let orders = name("orders");
    for _ in 0..40 {
        put(&store, &orders).await;
        store.purge(orders.clone()).await.unwrap();
    }
    drop(store);
    forget(&server, "*");
    let store = open_it().await;
    put(&store, &orders).await;
    assert_eq!(listed(&store).await, ["orders"]);
    store.purge(orders.clone()).await.unwrap();
    drop(store);
    forget(&server, "*");
    let store = open_it().await;
    let paused = vec![SettingChange::Set(Setting::LeaseMs(7_000))];
    within("a change", store.configure(orders.clone(), paused)).await.unwrap();
    assert_eq!(listed(&store).await, ["orders"]);
}

/// Registered and not replicated: the replica that takes over does not know the queue, whose messages are elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_whose_registration_a_failover_has_lost_is_listed_again() {
    let mut cluster = Cluster::start();
    let url = cluster.url() + "?retry_ms=60000&timeout_ms=2000";
    let store = open(&url).await;
    let directory = cluster.place("{dwell}:meta").1;
    cluster.add_replica(directory);
    let mut before = Vec::new();
    for n in 0..3 {
        before.push(put(&store, &name(&format!("before-{n}"))).await.number);
    }
    // From here on the replica receives nothing.
    let offset = |server: &Server, field| server.info(field).and_then(|text| text.parse::<i64>().ok());
    let nodes = cluster.nodes();
    let written = offset(&nodes[directory], "master_repl_offset").unwrap();
    within("the replica", async {
        while offset(&nodes[3], "slave_repl_offset").is_none_or(|received| received < written) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    nodes[directory].command(&["ACL", "SETUSER", "default", "-psync", "-sync"]);
    nodes[directory].command(&["CLIENT", "KILL", "TYPE", "replica"]);
    let mut lost = Vec::new();
    for n in 0.. {
        let queue = name(&format!("q{n}"));
        let had: Vec<usize> = (0..3).map(|node| partitions(&mut cluster, node)).collect();
        let number = put(&store, &queue).await.number;
        let node = (0..3).find(|node| partitions(&mut cluster, *node) > had[*node]).unwrap();
        if node != directory {
            lost.push((queue, number));
        }
        if lost.len() == 4 {
            break;
        }
    }
    cluster.nodes()[directory].kill();
    let found = within("the queues' return", async {
        loop {
            let names = match store.queues(None, 100).await {
                Ok(listed) => listed.into_iter().map(|stats| stats.name).collect::<HashSet<_>>(),
                Err(error) => {
                    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
                    continue;
                }
            };
            if lost.iter().all(|(queue, _)| names.contains(queue)) {
                break names;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert!(found.len() >= lost.len());
    let numbers: Vec<_> = lost.iter().map(|(_, number)| *number).collect();
    let located = within("their numbers", async {
        loop {
            let located: Vec<_> =
                store.locate(numbers.clone()).await.into_iter().map(Result::unwrap).collect();
            if located.iter().all(Option::is_some) {
                break located;
            }
        }
    })
    .await;
    for ((queue, _), found) in lost.iter().zip(located) {
        assert_eq!(found.unwrap().0, *queue);
    }
    let mut all: HashSet<_> = before.into_iter().chain(numbers).collect();
    let known = all.len();
    for _ in 0..300 {
        all.insert(put(&store, &name("after")).await.number);
    }
    assert_eq!(all.len(), known + 300, "a number was given twice");
}

/// Makes a queue that is spread over three partitions, with `puts` messages, of which the first partition loses the
/// spread: as after a failover of its node.
async fn lose_partitions(server: &Server, store: &RedisStore, queue: &QueueName, puts: usize) {
    let puts = vec![Put::new(queue.clone(), "m"); puts];
    // The first partition is the only one for now.
    assert!(store.put(puts[..1].to_vec()).await[0].is_ok());
    let first: Vec<String> = redis::from_redis_value(server.command(&["KEYS", "dwell:{*}:meta"])).unwrap();
    store.purge(queue.clone()).await.unwrap();
    store.configure(queue.clone(), over_three()).await.unwrap();
    assert!(store.put(puts).await.iter().all(Result::is_ok));
    store.beat_for_test().await.unwrap();
    server.command(&["HDEL", &first[0], "o", "n"]);
}

fn over_three() -> Vec<SettingChange> {
    vec![SettingChange::Set(Setting::Partitions(3))]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_the_first_one_has_lost_are_given_back_by_the_others() {
    const PUTS: usize = 30;
    let server = Server::start();
    let (store, queue) = (open(&server.url()).await, name("orders"));
    lose_partitions(&server, &store, &queue, PUTS).await;
    let taken = within("a take", store.take(Take::from(queue.clone()).max(PUTS))).await.unwrap();
    assert_eq!(taken.len(), PUTS);
    let stats = within("a change", store.configure(queue.clone(), over_three())).await.unwrap();
    assert_eq!((stats.settings.partitions, stats.counts.leased), (3, PUTS as u64));
    // A queue whose number of partitions was lowered is believed.
    store.delete_queue(queue.clone()).await.unwrap();
    let held = taken.into_iter().map(|delivery| (delivery.receipt, Action::Ack));
    let acks = held.map(|(receipt, action)| Settle { receipt, action }).collect();
    assert!(store.settle(acks).await.iter().all(Result::is_ok));
    let other = open(&server.url()).await;
    let narrow = vec![SettingChange::Set(Setting::Partitions(1))];
    assert_eq!(other.configure(queue.clone(), narrow).await.unwrap().settings.partitions, 1);
    assert!(store.put(vec![Put::new(queue.clone(), "m")]).await[0].is_ok());
    assert_eq!(store.stats(queue).await.unwrap().settings.partitions, 1);
}

/// The same, where no process that has used the queue before is left: the directory has the number of partitions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_begins_after_partitions_were_lost_hears_of_it_from_the_directory() {
    const PUTS: usize = 30;
    let server = Server::start();
    let (store, queue) = (open(&server.url()).await, name("orders"));
    lose_partitions(&server, &store, &queue, PUTS).await;
    drop(store);
    let other = open(&server.url()).await;
    let mut taken = 0;
    for _ in 0..2 {
        let take = Take::from(queue.clone()).max(PUTS);
        taken += within("a take", other.take(take)).await.unwrap().len();
        other.beat_for_test().await.unwrap();
    }
    assert_eq!(taken, PUTS);
    let stats = within("stats", other.stats(queue.clone())).await.unwrap();
    assert_eq!((stats.settings.partitions, stats.counts.leased), (3, PUTS as u64));
    // A lowered number of partitions stays, whatever was reported to the directory before.
    other.delete_queue(queue.clone()).await.unwrap();
}
