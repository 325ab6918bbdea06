//! Workers on every kind of store: in memory, the engine on files, Redis, and a server over HTTP. What they do is the same.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::serve_in_memory;
use dwell_client::Client;
use dwell_delivery::{Failure, Fired, Job, Ladder, Lane, Outcome, Worker};
use dwell_engine::{Engine, Options};
use dwell_model::{DeathReason, Limits, Message, State};
use dwell_redis::RedisStore;
use dwell_store::{Json, MemoryStore, PutAnswer, Queue, Store};
use dwell_testkit::redis::Server as Redis;
use dwell_time::SystemClock;
use tokio::sync::{mpsc, watch};

const PATIENCE: Duration = Duration::from_secs(120);

/// A store, and what has to stay alive with it.
struct Bed {
    store: Arc<dyn Store>,
    _kept: Box<dyn Any + Send + Sync>,
}

impl Bed {
    async fn memory() -> Bed {
        let store = MemoryStore::new(Limits::default(), Arc::new(SystemClock::new()));
        Bed { store: Arc::new(store), _kept: Box::new(()) }
    }

    async fn engine() -> Bed {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::open(folder.path().join("data"), Options::default()).unwrap();
        Bed { store: Arc::new(engine), _kept: Box::new(folder) }
    }

    async fn redis() -> Bed {
        let redis = Redis::start();
        let store = RedisStore::open(redis.url().parse().unwrap(), Limits::default()).await.unwrap();
        Bed { store: Arc::new(store), _kept: Box::new(redis) }
    }

    async fn http() -> Bed {
        let server = serve_in_memory(&[]);
        let client = Client::builder(server.url()).build().unwrap();
        Bed { store: Arc::new(client), _kept: Box::new(std::sync::Mutex::new(server)) }
    }

    fn worker(&self) -> Worker {
        Worker::new(Arc::clone(&self.store))
    }

    fn queue(&self, name: &str) -> Queue {
        Queue::new(Arc::clone(&self.store), name).unwrap()
    }

    async fn put(&self, bodies: &[&str]) -> Vec<PutAnswer> {
        within(self.queue("q").put_many(bodies.iter().copied())).await.all().unwrap()
    }

    async fn get(&self, put: &PutAnswer) -> Message {
        within(self.queue("q").get(put.id)).await.unwrap()
    }

    async fn is_gone(&self, put: &PutAnswer) -> bool {
        within(self.queue("q").get(put.id)).await.is_err()
    }
}

/// The future's output; panics if it takes too long.
async fn within<T>(future: impl IntoFuture<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
}

/// A worker that runs in a task, until it is stopped.
struct Running {
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<Result<(), dwell_delivery::Error>>,
}

fn start(worker: Worker) -> Running {
    let (stop, mut stopped) = watch::channel(false);
    let until = async move { drop(stopped.wait_for(|stop| *stop).await) };
    Running { stop, task: tokio::spawn(worker.run_until(until)) }
}

impl Running {
    async fn stop(self) {
        self.stop.send_replace(true);
        within(self.task).await.unwrap().unwrap();
    }
}

async fn next<T>(receiver: &mut mpsc::UnboundedReceiver<T>) -> T {
    within(receiver.recv()).await.expect("a handler can still say it")
}

async fn an_outcome_decides_what_becomes_of_the_message(bed: Bed) {
    let puts = bed.put(&["done", "retry", "error", "release", "bury", "not json"]).await;
    let (said, mut hears) = mpsc::unbounded_channel();
    let handler = move |job: Job| {
        let said = said.clone();
        async move {
            said.send(()).unwrap();
            match job.text()? {
                "done" => Ok(Outcome::Done),
                "retry" => {
                    Ok(Outcome::Retry { error: "later".into(), after: Some(Duration::from_secs(3_600)) })
                }
                "release" => Ok(Outcome::Release { after: Some(Duration::from_secs(3_600)) }),
                "bury" => Ok(Outcome::Bury { reason: "no".into() }),
                "not json" => job.json::<u32>().map(|_| Outcome::Done).map_err(Failure::permanent),
                _ => Err("x".parse::<u8>().unwrap_err().into()),
            }
        }
    };
    let ladder = Ladder::parse(["1h"]).unwrap();
    let worker = bed.worker().lane(Lane::new("q", handler).retry(ladder));
    let stats = worker.stats().remove(0);
    let running = start(worker);
    for _ in 0..6 {
        next(&mut hears).await;
    }
    running.stop().await;
    let counts =
        [stats.taken(), stats.done(), stats.retried(), stats.released(), stats.buried(), stats.lost()];
    assert_eq!(counts, [6, 1, 2, 1, 2, 0]);

    assert!(bed.is_gone(&puts[0]).await);
    for (put, attempts, error) in [
        (&puts[1], 1, Some("later")),
        (&puts[2], 1, Some("invalid digit found in string")),
        (&puts[3], 0, None),
    ] {
        let Message { standing, created, .. } = bed.get(put).await;
        assert_eq!((standing.attempts, standing.last_error.as_deref()), (attempts, error));
        assert!(standing.due.ms_since(created) > 2_000_000, "{standing:?}");
    }
    for put in &puts[4..] {
        match bed.get(put).await.standing.state {
            State::Dead(death) => assert_eq!(death.reason, DeathReason::Buried),
            other => panic!("{other:?}"),
        }
    }
}

async fn each_of_many_is_handled_once_and_as_many_at_a_time_as_may_be(bed: Bed) {
    const MESSAGES: usize = 1_000;
    let bodies: Vec<String> = (0..MESSAGES).map(|number| number.to_string()).collect();
    bed.put(&bodies.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let (said, mut hears) = mpsc::unbounded_channel();
    let (running_now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let most_of_all = Arc::clone(&most);
    let handler = move |Json(number): Json<usize>| {
        let (said, running_now, most) = (said.clone(), Arc::clone(&running_now), Arc::clone(&most));
        async move {
            most.fetch_max(running_now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            running_now.fetch_sub(1, Ordering::SeqCst);
            said.send(number).unwrap();
        }
    };
    let running = start(bed.worker().lane(Lane::new("q", handler).concurrency(8)));
    let mut times: BTreeMap<usize, usize> = BTreeMap::new();
    for _ in 0..MESSAGES {
        *times.entry(next(&mut hears).await).or_default() += 1;
    }
    running.stop().await;
    assert_eq!(hears.try_recv().ok(), None, "one came again");
    assert!(times.len() == MESSAGES && times.values().all(|times| *times == 1));
    assert!((1..=8).contains(&most_of_all.load(Ordering::SeqCst)));
    assert!(within(bed.queue("q").stats()).await.is_err(), "nothing is left");
}

async fn a_lease_is_renewed_while_the_handler_runs(bed: Bed) {
    let put = bed.put(&["slow"]).await.remove(0);
    let (said, mut hears) = mpsc::unbounded_channel();
    let handler = move |job: Job| {
        let said = said.clone();
        async move {
            // Twice as long as a lease.
            tokio::time::sleep(Duration::from_secs(6)).await;
            said.send((job.attempt(), job.token().fired())).unwrap();
        }
    };
    let worker = bed.worker().lane(Lane::new("q", handler).lease(Duration::from_secs(3)));
    let stats = worker.stats().remove(0);
    let running = start(worker);
    assert_eq!(next(&mut hears).await, (1, None), "the lease was lost");
    running.stop().await;
    assert_eq!((stats.taken(), stats.done(), stats.lost()), (1, 1, 0));
    assert!(bed.is_gone(&put).await);
}

async fn a_drain_gives_back_what_is_not_done(bed: Bed) {
    let put = bed.put(&["endless"]).await.remove(0);
    let (said, mut hears) = mpsc::unbounded_channel();
    let handler = move |job: Job| {
        let said = said.clone();
        async move {
            said.send(None).unwrap();
            let fired = job.token().wait().await;
            said.send(Some(fired)).unwrap();
            std::future::pending::<()>().await;
        }
    };
    let running = start(bed.worker().drain(Duration::from_millis(50)).handle("q", handler));
    assert_eq!(next(&mut hears).await, None);
    running.stop().await;
    assert_eq!(next(&mut hears).await, Some(Fired::Draining));
    let standing = bed.get(&put).await.standing;
    assert_eq!((standing.attempts, standing.counts.releases), (0, 1), "{standing:?}");
    assert_eq!(standing.state, State::Ready);
}

async fn a_strict_lane_keeps_the_order_though_one_fails(bed: Bed) {
    bed.put(&["0", "1", "2", "3"]).await;
    let (said, mut hears) = mpsc::unbounded_channel();
    let handler = move |job: Job| {
        let said = said.clone();
        async move {
            said.send(format!("{} {}", job.text().unwrap(), job.attempt())).unwrap();
            match (job.text()?, job.attempt()) {
                ("1", 1 | 2) => Err(Failure::retry("not yet")),
                _ => Ok(()),
            }
        }
    };
    let ladder = Ladder::parse(["20ms"]).unwrap();
    let running = start(bed.worker().lane(Lane::new("q", handler).strict().concurrency(1).retry(ladder)));
    let mut order = Vec::new();
    for _ in 0..6 {
        order.push(next(&mut hears).await);
    }
    running.stop().await;
    assert_eq!(order, ["0 1", "1 1", "1 2", "1 3", "2 1", "3 1"]);
}

async fn a_message_that_falls_due_and_one_without_attempts_left(bed: Bed) {
    let queue = bed.queue("q");
    let later = within(queue.put("later").delay(Duration::from_millis(300))).await.unwrap();
    let once = within(queue.put("fails").max_attempts(1)).await.unwrap();
    let (said, mut hears) = mpsc::unbounded_channel();
    let handler = move |job: Job| {
        let said = said.clone();
        async move {
            said.send((job.id(), job.taken_at >= job.message.standing.due)).unwrap();
            if job.text()? == "fails" { Err(Failure::retry("it fails")) } else { Ok(()) }
        }
    };
    let running = start(bed.worker().handle("q", handler));
    let first = next(&mut hears).await;
    let second = next(&mut hears).await;
    running.stop().await;
    assert_eq!([first, second], [(once.id, true), (later.id, true)]);
    match bed.get(&once).await.standing.state {
        State::Dead(death) => assert_eq!(death.reason, DeathReason::AttemptsSpent),
        other => panic!("{other:?}"),
    }
    assert!(bed.is_gone(&later).await);
}

macro_rules! on_every_store {
    ($($test:ident)*) => {
        on_every_store! { @ memory $($test)* }
        on_every_store! { @ engine $($test)* }
        on_every_store! { @ redis $($test)* }
        on_every_store! { @ http $($test)* }
    };
    (@ $store:ident $($test:ident)*) => {
        mod $store {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(super::Bed::$store().await).await;
                }
            )*
        }
    };
}

on_every_store! {
    an_outcome_decides_what_becomes_of_the_message
    each_of_many_is_handled_once_and_as_many_at_a_time_as_may_be
    a_lease_is_renewed_while_the_handler_runs
    a_drain_gives_back_what_is_not_done
    a_strict_lane_keeps_the_order_though_one_fails
    a_message_that_falls_due_and_one_without_attempts_left
}
