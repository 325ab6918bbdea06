//! A node is away: which calls wait for it, and for how long. No call waits for what others wait for, one after the
//! other.

use std::sync::Arc;
use std::time::Duration;

use dwell_model::{Limits, QueueName, Setting, SettingChange, Timestamp};
use dwell_redis::RedisStore;
use dwell_store::{LeaseRef, Put, Store as _, Take};
use dwell_testkit::redis::proxy::{Link, Proxy};
use dwell_testkit::redis::{Cluster, Sentinels, Server};
use dwell_testkit::until_async;
use dwell_time::{Clock, ManualClock, SystemClock};

use super::{message, open, put, queue, within};

/// Monotonic milliseconds.
fn now_ms() -> u64 {
    SystemClock::new().now().mono_ms
}

fn since(began_ms: u64) -> Duration {
    Duration::from_millis(now_ms() - began_ms)
}

/// Waits until `count` messages are scheduled.
async fn until_there_are(store: &RedisStore, count: u64) {
    let counted = async {
        while store.stats(queue()).await.unwrap().counts.scheduled < count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), counted).await.unwrap();
}

/// Sixty callers whose answers are lost, over a link that is half open for 66 seconds, with the default options.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_wait_for_a_connection_end_in_time_and_happen_once() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let (store, plain) = (Arc::new(open(&proxy.url("")).await), open(&server.url()).await);
    put(&store, message("first").after_ms(3_600_000)).await.unwrap();
    proxy.set(Link::Mute);
    let callers: Vec<_> = (0..60)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let began = now_ms();
                let answer = put(&store, message("m").after_ms(3_600_000)).await;
                (since(began), answer)
            })
        })
        .collect();
    until_there_are(&plain, 61).await;
    proxy.set(Link::Deaf);
    tokio::time::sleep(Duration::from_secs(66)).await;
    proxy.set(Link::Whole);
    let mut longest = Duration::ZERO;
    for caller in callers {
        let (took, answer) = caller.await.unwrap();
        longest = longest.max(took);
        assert!(answer.is_ok() || super::is_unknown(&answer), "{answer:?}");
    }
    let there = plain.stats(queue()).await.unwrap().counts.scheduled;
    assert_eq!(there, 61, "puts happened twice");
    assert!(longest < Duration::from_secs(25), "a call took {longest:?}");
}

/// `retry_ms` at its maximum: the last try begins within the minute and is sent after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_last_try_that_is_sent_after_a_minute_happens_once() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let store = Arc::new(open(&proxy.url("connections=1&retry_ms=60000")).await);
    let plain = open(&server.url()).await;
    put(&store, message("first").after_ms(3_600_000)).await.unwrap();
    proxy.set(Link::Mute);
    let caller = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { put(&store, message("m").after_ms(3_600_000)).await })
    };
    until_there_are(&plain, 2).await;
    let began = now_ms();
    proxy.set(Link::Deaf);
    tokio::time::sleep(Duration::from_millis(56_000) - since(began)).await;
    proxy.set(Link::Stalled);
    tokio::time::sleep(Duration::from_millis(60_500) - since(began)).await;
    proxy.set(Link::Whole);
    let answer = caller.await.unwrap();
    let there = plain.stats(queue()).await.unwrap().counts.scheduled;
    assert_eq!(there, 2, "it was put twice: {answer:?}");
}

/// The first Sentinel of the URL is a machine that is off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_come_though_the_first_sentinel_does_not_answer() {
    let off = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sentinels = Sentinels::start();
    let url = sentinels.url() + "?timeout_ms=3000";
    let through = url.replacen("://", &format!("://{},", off.local_addr().unwrap()), 1);
    let plain = open(&url).await;
    let store = Arc::new(open(&through).await);
    let takes: Vec<_> = (0..10)
        .map(|n| {
            let store = Arc::clone(&store);
            let queue = QueueName::new(&format!("q{n}")).unwrap();
            tokio::spawn(async move { store.take(Take::from(queue).wait_ms(200_000)).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(6)).await;
    for n in 0..10 {
        let queue = QueueName::new(&format!("q{n}")).unwrap();
        plain.put(vec![Put::new(queue, "m")]).await.pop().unwrap().unwrap();
    }
    let mut most = 0;
    for take in takes {
        let taken = take.await.unwrap().unwrap();
        most = most.max(taken[0].lateness_ms);
    }
    assert!(most < 11_000, "{most} ms late");
}

/// Messages on connections with subscriptions do not arrive, and calls may take a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_hangs_keeps_nobody_from_asking() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    proxy.set(Link::NoHints);
    let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
    let open = async |url: String| {
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        RedisStore::open_for_test(url.parse().unwrap(), Limits::default(), shared).await.unwrap()
    };
    let store = Arc::new(open(proxy.url("timeout_ms=60000")).await);
    let plain = open(server.url()).await;
    let name = |n: usize| QueueName::new(&format!("q{n}")).unwrap();
    let waiting: Vec<_> = (0..20)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.take(Take::from(name(n)).wait_ms(3_600_000)).await })
        })
        .collect();
    let noted = async {
        let count = || -> usize {
            let keys: Vec<String> =
                redis::from_redis_value(server.command(&["KEYS", "dwell:{*}:waiters"])).unwrap();
            keys.len()
        };
        while count() < waiting.len() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("the asking", async { tokio::time::timeout(Duration::from_secs(20), noted).await.unwrap() }).await;
    for n in 0..waiting.len() {
        plain.put(vec![Put::new(name(n), "m")]).await.pop().unwrap().unwrap();
    }
    // The maximum delay of a lost hint.
    clock.advance(10_000);
    for take in waiting {
        assert_eq!(within("a take", take).await.unwrap().unwrap().len(), 1);
    }
}

/// Twelve callers that need numbers while Redis is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_who_need_numbers_do_not_wait_for_each_other() {
    let mut server = Server::start();
    let store = Arc::new(open(&(server.url() + "?retry_ms=1000&timeout_ms=1000")).await);
    server.kill();
    let callers: Vec<_> = (0..12)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let began = now_ms();
                (put(&store, message("m")).await.is_err(), since(began))
            })
        })
        .collect();
    let mut longest = Duration::ZERO;
    for caller in callers {
        let (refused, took) = caller.await.unwrap();
        assert!(refused);
        longest = longest.max(took);
    }
    assert!(longest < Duration::from_secs(4), "{longest:?}");
}

/// A queue with a message on a node, and another one on the node of the directory.
async fn two_queues(cluster: &mut Cluster, store: &RedisStore) -> (usize, QueueName, QueueName) {
    let directory = cluster.place("{dwell}:meta").1;
    let (mut away, mut there) = (None, None);
    for n in 0.. {
        let had: Vec<usize> = (0..3).map(|node| super::cluster::partitions(cluster, node)).collect();
        let name = QueueName::new(&format!("q{n}")).unwrap();
        store.put(vec![Put::new(name.clone(), "m")]).await.pop().unwrap().unwrap();
        let node = (0..3).find(|node| super::cluster::partitions(cluster, *node) > had[*node]).unwrap();
        if node == directory {
            there = Some(name);
        } else if away.is_none() {
            away = Some((node, name));
        }
        if away.is_some() && there.is_some() {
            break;
        }
    }
    let ((node, away), there) = (away.unwrap(), there.unwrap());
    (node, away, there)
}

/// A cluster that serves though a node is away.
fn cluster() -> Cluster {
    let mut cluster = Cluster::start();
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    cluster
}

/// Stops a server: it does not answer any more, and its connections stay open.
fn stop(server: &Server) {
    let pid = server.pid().to_string();
    assert!(std::process::Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
}

/// Callers of takes on a queue whose node is away leave, one after the other: no other call waits for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takes_that_are_given_up_on_a_node_that_is_away_keep_nobody() {
    let mut cluster = cluster();
    let store = Arc::new(open(&(cluster.url() + "?timeout_ms=2000")).await);
    let (node, away, there) = two_queues(&mut cluster, &store).await;
    assert_eq!(store.take(Take::from(there.clone())).await.unwrap().len(), 1);
    cluster.nodes()[node].kill();
    let impatient = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            loop {
                let take = store.take(Take::from(away.clone()).wait_ms(5_000));
                let _ = tokio::time::timeout(Duration::from_millis(1_000), take).await;
            }
        })
    };
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let began = now_ms();
    let stats = tokio::time::timeout(Duration::from_secs(45), store.stats(there.clone())).await;
    let took = since(began);
    impatient.abort();
    assert!(stats.is_ok_and(|stats| stats.is_ok()));
    assert!(took < Duration::from_secs(3), "{took:?}");
}

/// A take on a queue whose node is away is dropped, and so is one that was handed a message of another queue: that
/// one is given back at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_back_to_one_node_does_not_wait_for_another_that_is_away() {
    let mut cluster = cluster();
    let store = Arc::new(open(&(cluster.url() + "?timeout_ms=2000&retry_ms=40000")).await);
    let plain = open(&(cluster.url() + "?timeout_ms=2000")).await;
    let (node, away, there) = two_queues(&mut cluster, &store).await;
    // One message there is leased, and a take waits there.
    assert_eq!(store.take(Take::from(away.clone())).await.unwrap().len(), 1);
    let waiting = {
        let (store, away) = (Arc::clone(&store), away.clone());
        tokio::spawn(async move { store.take(Take::from(away).wait_ms(60_000)).await })
    };
    within("the take waits", async {
        while plain.stats(away.clone()).await.unwrap().waiting == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let mut unread = Box::pin(store.take(Take::from(there.clone()).lease_ms(3_600_000)));
    let begun = std::future::poll_fn(|context| std::task::Poll::Ready(unread.as_mut().poll(context)));
    assert!(begun.await.is_pending());
    within("the take", async {
        while plain.stats(there.clone()).await.unwrap().counts.leased == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    cluster.nodes()[node].kill();
    waiting.abort();
    let _ = waiting.await;
    // The note that a take waits there is being removed from Redis.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    drop(unread);
    let back = tokio::time::timeout(Duration::from_secs(15), async {
        loop {
            if let Ok(taken) = plain.take(Take::from(there.clone())).await
                && let Some(back) = taken.into_iter().next()
            {
                break back;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let back = back.await.expect("it waits for the node that is away");
    assert_eq!(back.message.standing.attempt(), 1);
}

/// A take that hangs on a node that is away is dropped; calls on other queues end, and so do all tasks that they have
/// started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_leave_no_task_behind_while_a_take_that_was_given_up_hangs() {
    let mut cluster = cluster();
    let store = Arc::new(open(&(cluster.url() + "?timeout_ms=2000&retry_ms=60000")).await);
    let (node, away, there) = two_queues(&mut cluster, &store).await;
    assert_eq!(store.take(Take::from(there.clone())).await.unwrap().len(), 1);
    cluster.nodes()[node].kill();
    let hanging = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.take(Take::from(away)).await })
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    hanging.abort();
    let _ = hanging.await;
    const CALLS: usize = 300;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let calls = (0..CALLS).map(|_| store.stats(there.clone()));
    let answers = within("the calls", futures_util::future::join_all(calls)).await;
    assert!(answers.iter().all(Result::is_ok));
    let left = tasks().saturating_sub(before);
    assert!(left < CALLS / 10, "{CALLS} calls left {left} tasks behind");
}

/// A take waits on a queue whose node dies, and on another one; behind it one waits on that one alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_that_is_held_up_by_one_of_its_queues_keeps_nobody_from_another() {
    let mut cluster = cluster();
    let store = Arc::new(open(&(cluster.url() + "?timeout_ms=2000&retry_ms=40000")).await);
    let plain = open(&(cluster.url() + "?timeout_ms=2000")).await;
    let (node, away, there) = two_queues(&mut cluster, &store).await;
    let waits = |queues: Vec<QueueName>| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.take(Take::from_all(queues).wait_ms(60_000)).await })
    };
    let waiting = async |queue: &QueueName, count: u64| {
        while plain.stats(queue.clone()).await.unwrap().waiting < count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    for queue in [&away, &there] {
        let taken = store.take(Take::from(queue.clone())).await.unwrap().pop().unwrap();
        super::settle(&store, taken.receipt, dwell_store::Action::Ack).await.unwrap();
    }
    // Its asker asks again when the first one is due. The other queue has a message too, so that it is known.
    plain.put(vec![Put::new(away.clone(), "m").after_ms(3_000)]).await.pop().unwrap().unwrap();
    plain.put(vec![Put::new(there.clone(), "later").after_ms(3_600_000)]).await.pop().unwrap().unwrap();
    let both = waits(vec![away.clone(), there.clone()]);
    within("both wait", waiting(&away, 1)).await;
    within("both wait", waiting(&there, 1)).await;
    let behind = waits(vec![there.clone()]);
    within("another waits", waiting(&there, 2)).await;
    cluster.nodes()[node].kill();
    // By now the first one is being served, and asks for the queue that is away.
    tokio::time::sleep(Duration::from_millis(4_000)).await;
    let began = now_ms();
    plain.put(vec![Put::new(there.clone(), "m")]).await.pop().unwrap().unwrap();
    let taken = tokio::time::timeout(Duration::from_secs(30), behind).await;
    let taken = taken.expect("it waits for the node that is away").unwrap().unwrap();
    both.abort();
    assert_eq!(taken.len(), 1);
    assert!(since(began) < Duration::from_secs(8), "{:?}", since(began));
}

/// A node does not answer while leases are counted: that is waited for once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takes_do_not_wait_again_and_again_for_queues_that_cannot_be_counted() {
    let mut cluster = cluster();
    let plain = open(&cluster.url()).await;
    let (node, _, there) = two_queues(&mut cluster, &plain).await;
    // No call times out, and no connection is made again because of that.
    let store = open(&(cluster.url() + "?timeout_ms=60000")).await;
    // Otherwise the other nodes consider a stopped one failed after some seconds, and then it is not waited for.
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-node-timeout", "120000"]);
    }
    stop(&cluster.nodes()[node]);
    within("the first take", store.take(Take::from(there.clone()))).await.unwrap();
    let (began, mut longest) = (now_ms(), Duration::ZERO);
    while since(began) < Duration::from_secs(13) {
        let asked = now_ms();
        within("a take", store.take(Take::from(there.clone()))).await.unwrap();
        longest = longest.max(since(asked));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(longest < Duration::from_millis(1_000), "a take took {longest:?}");
}

/// Of the partitions that use a block of numbers a third does not answer: they are not waited for one after the
/// other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_nobody_has_is_not_looked_for_without_end() {
    let mut cluster = cluster();
    let store = open(&(cluster.url() + "?timeout_ms=1000&retry_ms=500")).await;
    let directory = cluster.place("{dwell}:meta").1;
    let name = |n: usize| QueueName::new(&format!("q{n}")).unwrap();
    let mut last = None;
    for n in 0..200 {
        last = store.put(vec![Put::new(name(n), "m")]).await.pop().unwrap().ok();
    }
    let last = last.unwrap();
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-node-timeout", "120000"]);
    }
    let cancelled = store.cancel(name(199), vec![dwell_store::Target::Id(last.id)]).await;
    assert!(cancelled[0].is_ok());
    stop(&cluster.nodes()[(directory + 1) % 3]);
    let began = now_ms();
    let located = within("a look-up", store.locate(vec![last.number])).await.pop().unwrap();
    assert!(super::is_unavailable(&located), "{located:?}");
    assert!(since(began) < Duration::from_secs(5), "{:?}", since(began));
}

/// Stops a node of a cluster that does not have the directory; the others consider it alive though it does not
/// answer.
fn stop_one(cluster: &mut Cluster) {
    let directory = cluster.place("{dwell}:meta").1;
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-node-timeout", "120000"]);
    }
    stop(&cluster.nodes()[(directory + 1) % 3]);
}

/// A third of the queues is on a node that does not answer: they are not waited for one after the other, and the
/// others are counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forecast_of_all_queues_does_not_wait_for_each_that_does_not_answer() {
    const QUEUES: usize = 240;
    let mut cluster = cluster();
    // No call times out.
    let store = open(&(cluster.url() + "?timeout_ms=60000")).await;
    for n in 0..QUEUES {
        let put = Put::new(QueueName::new(&format!("q{n}")).unwrap(), "m").after_ms(3_600_000);
        store.put(vec![put]).await.pop().unwrap().unwrap();
    }
    let stopped = (cluster.place("{dwell}:meta").1 + 1) % 3;
    let away = super::cluster::partitions(&mut cluster, stopped);
    stop_one(&mut cluster);
    let began = now_ms();
    let counted = within("a forecast", store.forecast(None, vec![Timestamp::MAX])).await.unwrap();
    let there = (QUEUES - away) as u64;
    assert_eq!((counted.scheduled, counted.due_by), (there, vec![there]));
    assert!(since(began) < Duration::from_secs(8), "{:?}", since(began));
}

/// A third of the partitions of a queue does not answer: that is waited for once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_that_an_operator_ends_do_not_wait_for_each_others_partitions() {
    const MESSAGES: usize = 192;
    let mut cluster = cluster();
    let store = open(&(cluster.url() + "?timeout_ms=1000&retry_ms=1000")).await;
    let wide = QueueName::new("wide").unwrap();
    store.configure(wide.clone(), vec![SettingChange::Set(Setting::Partitions(48))]).await.unwrap();
    for answer in store.put(vec![Put::new(wide.clone(), "m"); MESSAGES]).await {
        answer.unwrap();
    }
    let taken = store.take(Take::from(wide.clone()).max(MESSAGES).lease_ms(600_000)).await.unwrap();
    assert_eq!(taken.len(), MESSAGES);
    let lease = |id, takes| LeaseRef { id, takes };
    let leases = taken.iter().map(|one| lease(one.message.id, one.message.standing.counts.takes)).collect();
    stop_one(&mut cluster);
    let began = now_ms();
    let ended = within("leases end", store.expire_lease(wide, leases)).await;
    let done = ended.iter().filter(|answer| answer.is_ok()).count();
    assert!((1..MESSAGES).contains(&done), "{done} have ended");
    assert!(ended.iter().flat_map(|answer| answer.as_ref().err()).all(|error| error.is_retryable()));
    assert!(since(began) < Duration::from_secs(10), "{:?}", since(began));
}

/// A third of the queues that were purged is on a node that does not answer: the others are freed without waiting for
/// each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_purged_is_cleared_away_though_a_node_does_not_answer() {
    const QUEUES: usize = 24;
    // More than a purge frees itself. Those with a priority are set aside; others are freed at once.
    const MESSAGES: usize = 200;
    let mut cluster = cluster();
    let store = Arc::new(open(&(cluster.url() + "?timeout_ms=1000&retry_ms=10000")).await);
    store.beat_no_more_for_test();
    for n in 0..QUEUES {
        let name = QueueName::new(&format!("q{n}")).unwrap();
        for answer in
            store.put(vec![Put::new(name.clone(), "m").priority(7).after_ms(3_600_000); MESSAGES]).await
        {
            answer.unwrap();
        }
        assert_eq!(store.purge(name).await.unwrap(), MESSAGES as u64);
    }
    let stopped = (cluster.place("{dwell}:meta").1 + 1) % 3;
    let set_aside = |cluster: &mut Cluster, node: usize| -> usize {
        let keys = cluster.nodes()[node].command(&["KEYS", "dwell:{*}:purged"]);
        redis::from_redis_value::<Vec<String>>(keys).unwrap().len()
    };
    let there = |cluster: &mut Cluster| -> usize {
        (0..3).filter(|node| *node != stopped).map(|node| set_aside(cluster, node)).sum()
    };
    let (away, here) = (set_aside(&mut cluster, stopped), there(&mut cluster));
    assert!(away > 0 && here > 0 && away + here == QUEUES, "{away} and {here}");
    stop_one(&mut cluster);
    let began = now_ms();
    let beat = tokio::spawn(async move { store.beat_for_test().await });
    until_async("the others", async || there(&mut cluster) == 0).await;
    beat.abort();
    assert!(since(began) < Duration::from_secs(15), "{:?}", since(began));
}
