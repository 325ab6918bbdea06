//! Takes that wait: what wakes them, and the commands that they send.

use std::sync::Arc;

use dwell_model::{Invalid, Limits, Timestamp};
use dwell_redis::RedisStore;
use dwell_store::{Action, Delivery, Error, LeaseTerms, Put, Settle, Store as _, Take};
use dwell_testkit::redis::Server;
use dwell_time::ManualClock;
use tokio::task::JoinHandle;

use super::{put, queue, within};

struct Fixture {
    server: Server,
    clock: ManualClock,
    store: Arc<RedisStore>,
}

impl Fixture {
    async fn new() -> Fixture {
        let (server, clock) =
            (Server::start(), ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap()));
        let shared = Arc::new(clock.clone());
        let store = RedisStore::open_for_test(server.address(), Limits::default(), shared).await.unwrap();
        Fixture { server, clock, store: Arc::new(store) }
    }

    /// A take that waits, and that Redis has noted in this number of partitions.
    async fn wait(&self, take: Take, partitions: usize) -> JoinHandle<Vec<Delivery>> {
        let store = Arc::clone(&self.store);
        let waiting = tokio::spawn(async move { store.take(take.wait_ms(3_600_000)).await.unwrap() });
        within("a take's beginning to wait", async {
            let noted = || -> Vec<String> {
                redis::from_redis_value(self.server.command(&["KEYS", "dwell:{*}:waiters"])).unwrap()
            };
            while noted().len() < partitions {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
        waiting
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_made_shorter_is_waited_for_no_longer() {
    let bed = Fixture::new().await;
    let jobs = queue("jobs");
    put(&bed.store, Put::new(jobs.clone(), "m")).await.unwrap();
    let held = bed.store.take(Take::from(jobs.clone()).lease_ms(600_000)).await.unwrap().pop().unwrap();
    let waiting = bed.wait(Take::from(jobs), 1).await;
    let action = Action::Extend { lease_ms: Some(1_000) };
    bed.store.settle(vec![Settle { receipt: held.receipt, action }]).await.pop().unwrap().unwrap();
    // A sweep, which comes every ten seconds, would find it as well.
    bed.clock.advance(1_000);
    let again = within("the take", waiting).await.unwrap().pop().unwrap();
    assert_eq!((again.message.id, again.lateness_ms), (held.message.id, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_one_that_was_taken_by_its_id_is_waited_for() {
    let bed = Fixture::new().await;
    let jobs = queue("jobs");
    let id = put(&bed.store, Put::new(jobs.clone(), "m").after_ms(3_600_000)).await.unwrap().id;
    let waiting = bed.wait(Take::from(jobs.clone()), 1).await;
    bed.store.take_id(jobs, id, LeaseTerms::of_ms(1_000)).await.unwrap();
    bed.clock.advance(1_000);
    let again = within("the take", waiting).await.unwrap().pop().unwrap();
    assert_eq!((again.message.id, again.lateness_ms), (id, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_over_many_queues_asks_each_of_them_once_a_sweep() {
    const QUEUES: usize = 100;
    let bed = Fixture::new().await;
    let calls = || -> usize {
        let told = bed.server.info("cmdstat_evalsha").unwrap_or_default();
        told.split(['=', ',']).nth(1).map_or(0, |calls| calls.parse().unwrap())
    };
    let name = |n: usize| queue(&format!("q{n}"));
    let waiting = bed.wait(Take::from_all((0..QUEUES).map(name)), QUEUES).await;
    // Waits until no command is sent for a while.
    let rest = async || {
        within("the asking", async {
            let mut before = usize::MAX;
            while std::mem::replace(&mut before, calls()) != calls() {
                tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            }
        })
        .await;
    };
    rest().await;
    assert!(calls() <= 8 * QUEUES, "it began with {} scripts", calls());
    bed.server.command(&["CONFIG", "RESETSTAT"]);
    for sweep in 1..=2 {
        bed.clock.advance(10_000);
        within("a sweep", async {
            while calls() < sweep * QUEUES {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
        rest().await;
    }
    assert!(calls() <= 4 * QUEUES, "two sweeps asked {} scripts", calls());
    bed.server.command(&["CONFIG", "RESETSTAT"]);
    let id = put(&bed.store, Put::new(name(57), "m")).await.unwrap().id;
    let taken = within("the take", waiting).await.unwrap();
    assert_eq!(taken.iter().map(|delivery| delivery.message.id).collect::<Vec<_>>(), [id]);
    rest().await;
    assert!(calls() <= 4 * QUEUES, "one message took {} scripts", calls());
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// An hour is the default wait of a consumer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takes_that_are_answered_leave_no_task_and_no_timer_until_their_time_would_be_over() {
    const TAKES: usize = 2_000;
    let bed = Fixture::new().await;
    let jobs = queue("jobs");
    let take = || bed.store.take(Take::from(jobs.clone()).wait_ms(3_600_000));
    let some = |puts: usize| bed.store.put(vec![Put::new(jobs.clone(), "m"); puts]);
    some(1).await;
    assert_eq!(take().await.unwrap().len(), 1);
    let (before, (sleepers, _)) = (tasks(), bed.store.kept_for_test());
    for _ in 0..TAKES / 100 {
        some(100).await;
        for _ in 0..100 {
            assert_eq!(take().await.unwrap().len(), 1);
        }
    }
    // Takes that wait before there is something, and takes that are dropped.
    for _ in 0..20 {
        let waiting = bed.wait(Take::from(jobs.clone()), 1).await;
        some(1).await;
        assert_eq!(within("the take", waiting).await.unwrap().len(), 1);
        bed.wait(Take::from(jobs.clone()), 1).await.abort();
    }
    let left = async {
        while tasks() > before + 16 || bed.store.kept_for_test().0 > sleepers + 16 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let is_over = tokio::time::timeout(std::time::Duration::from_secs(10), left).await.is_ok();
    let (after, kept) = (tasks(), bed.store.kept_for_test().0);
    assert!(is_over, "{before} tasks and {sleepers} timers have become {after} and {kept}");
}

/// The resident memory of this process, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Each of them waits for an hour, and is answered while it waits. `DWELL_TAKES` is their number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes, and a process of its own; ./scripts/test --long runs it"]
async fn a_million_takes_that_are_answered_leave_tasks_timers_and_memory_as_they_were() {
    const AT_ONCE: usize = 64;
    const QUEUES: usize = 4;
    const MORE_KIB: u64 = 16 * 1024;
    let takes = std::env::var("DWELL_TAKES").map_or(1_000_000, |value| value.parse().expect("a number"));
    let server = Server::start();
    let store = Arc::new(RedisStore::open(server.address(), Limits::default()).await.unwrap());
    let queues: Vec<_> = (0..QUEUES).map(|n| queue(&format!("q{n}"))).collect();
    let round = async || {
        let waiting: Vec<JoinHandle<Vec<Delivery>>> = (0..AT_ONCE)
            .map(|n| {
                let (store, name) = (Arc::clone(&store), queues[n % QUEUES].clone());
                tokio::spawn(
                    async move { store.take(Take::from(name).max(1).wait_ms(3_600_000)).await.unwrap() },
                )
            })
            .collect();
        for name in &queues {
            let puts = vec![Put::new(name.clone(), "m"); AT_ONCE / QUEUES];
            assert!(store.put(puts).await.iter().all(Result::is_ok));
        }
        let mut acks = Vec::with_capacity(AT_ONCE);
        for take in waiting {
            let taken = within("a take", take).await.unwrap().pop().unwrap();
            acks.push(Settle { receipt: taken.receipt, action: Action::Ack });
        }
        assert!(store.settle(acks).await.iter().all(Result::is_ok));
    };
    // Warms up what is made once: connections, threads, what the allocator keeps.
    for _ in 0..100 {
        round().await;
    }
    let figures = || (tasks(), store.kept_for_test().0, resident_kib());
    let (before_tasks, before_timers, before_kib) = figures();
    println!("0 takes: {before_tasks} tasks, {before_timers} timers, {before_kib} KiB");
    let rounds = usize::div_ceil(takes, AT_ONCE);
    for part in 1..=10_usize {
        for _ in rounds * (part - 1) / 10..rounds * part / 10 {
            round().await;
        }
        let (tasks, timers, kib) = figures();
        let line =
            format!("{} takes: {tasks} tasks, {timers} timers, {kib} KiB", rounds * part / 10 * AT_ONCE);
        println!("{line}");
        assert!(tasks <= before_tasks + AT_ONCE && timers <= before_timers + AT_ONCE, "{line}");
        assert!(kib <= before_kib + MORE_KIB, "it began with {before_kib} KiB; {line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_over_many_queues_costs_a_few_tasks_and_has_a_limit() {
    const QUEUES: usize = 1_024;
    let bed = Fixture::new().await;
    let name = |n: usize| queue(&format!("q{n}"));
    let before = tasks();
    let waiting = bed.wait(Take::from_all((0..QUEUES).map(name)), QUEUES).await;
    let settled = async {
        while tasks() > before + 32 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let is_settled = tokio::time::timeout(std::time::Duration::from_secs(10), settled).await.is_ok();
    assert!(is_settled, "{before} tasks have become {}", tasks());
    let id = put(&bed.store, Put::new(name(700), "m")).await.unwrap().id;
    let taken = within("the take", waiting).await.unwrap();
    assert_eq!(taken.iter().map(|delivery| delivery.message.id).collect::<Vec<_>>(), [id]);
    for wait_ms in [0, 3_600_000] {
        let one_more = Take::from_all((0..=QUEUES).map(name)).wait_ms(wait_ms);
        let refusal = Invalid::BatchTooLarge { len: QUEUES + 1, limit: QUEUES };
        assert_eq!(within("a refusal", bed.store.take(one_more)).await, Err(Error::Invalid(refusal)));
    }
}

/// Subscribed to one by one, each of them would wait for the answers to all before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channels_of_many_queues_are_subscribed_to_together() {
    const QUEUES: usize = 512;
    let bed = Fixture::new().await;
    let name = |n: usize| queue(&format!("q{n}"));
    let waiting = bed.wait(Take::from_all((0..QUEUES).map(name)), QUEUES).await;
    let heard = || -> Vec<String> {
        redis::from_redis_value(bed.server.command(&["PUBSUB", "CHANNELS", "dwell:{*}:waiters"])).unwrap()
    };
    within("the subscribing", async {
        while heard().len() < QUEUES {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let told = bed.server.info("cmdstat_subscribe").unwrap();
    let calls: usize = told.split(['=', ',']).nth(1).unwrap().parse().unwrap();
    assert!(calls <= QUEUES / 8, "{QUEUES} channels were subscribed to by {calls} commands");
    // Each hint arrives: a sweep, which comes every ten seconds, waits for the clock.
    let id = put(&bed.store, Put::new(name(311), "m")).await.unwrap().id;
    let taken = within("the take", waiting).await.unwrap();
    assert_eq!(taken.iter().map(|delivery| delivery.message.id).collect::<Vec<_>>(), [id]);
}

/// Each puts into a queue that was never used before, while others wait on many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_put_costs_the_same_however_many_names_are_waited_on() {
    const NAMES: usize = 1_000;
    const PUTS: usize = 10;
    let bed = Fixture::new().await;
    let received = || bed.server.info("total_net_input_bytes").unwrap().parse::<usize>().unwrap();
    let name = |n: usize| queue(&format!("a-name-of-forty-characters-or-so-{n:06}"));
    put(&bed.store, Put::new(queue("first"), "m")).await.unwrap();
    let _waiting = bed.wait(Take::from_all((0..NAMES).map(name)), NAMES).await;
    // The server has the scripts by now, and no command is sent for a while.
    put(&bed.store, Put::new(queue("second"), "m")).await.unwrap();
    within("the asking", async {
        let mut before = 0;
        while received() > std::mem::replace(&mut before, received()) + 1_000 {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
    })
    .await;
    let before = received();
    for n in 0..PUTS {
        put(&bed.store, Put::new(queue(&format!("new{n}")), "m")).await.unwrap();
    }
    let sent = (received() - before) / PUTS;
    assert!(sent < NAMES * 10, "{sent} bytes a put");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_are_waited_on_count_where_the_number_of_queues_meets_its_limit() {
    let server = Server::start();
    let clock = Arc::new(ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap()));
    let limits = Limits { queues: 4, ..Limits::default() };
    let store = RedisStore::open_for_test(server.address(), limits, clock.clone()).await.unwrap();
    let bed = Fixture { server, clock: (*clock).clone(), store: Arc::new(store) };
    for n in 0..2 {
        put(&bed.store, Put::new(queue(&format!("q{n}")), "m").after_ms(60_000)).await.unwrap();
    }
    // One of the two is registered.
    let waiting = bed.wait(Take::from_all([queue("q0"), queue("w")]), 2).await;
    put(&bed.store, Put::new(queue("q2"), "m").after_ms(60_000)).await.unwrap();
    let refused = put(&bed.store, Put::new(queue("q3"), "m").after_ms(60_000)).await;
    assert_eq!(refused, Err(Error::TooManyQueues { limit: 4 }));
    waiting.abort();
    within("a place", async {
        while put(&bed.store, Put::new(queue("q3"), "m").after_ms(60_000)).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}
