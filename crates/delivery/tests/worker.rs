//! Workers on a store in memory: outcomes, limits, timeouts, failures of every kind, and the end.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::collections::HashSet;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dwell_delivery::{Error, Failure, Fired, Job, Ladder, Lane, Outcome, Rate, Worker};
use dwell_model::{
    AttemptLimit, DeathReason, Limits, Message, OnExpiry, QueueName, Setting, State, Timestamp,
};
use dwell_store::{
    Action, Delivery, Json, MemoryStore, Put, PutAnswer, Queue, Result as StoreResult, Settle, Settled,
    Store, Take, Target, When, async_trait, delegate_store,
};
use dwell_time::{Clock, ManualClock, SystemClock};
use tokio::sync::{Semaphore, mpsc, watch};

const PATIENCE: Duration = Duration::from_secs(60);

/// The future's output; panics if it takes too long.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
}

/// Polls until it is true, for what sends no event; panics if it takes too long.
async fn eventually(is_so: impl AsyncFn() -> bool) {
    let so = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    within(so).await;
}

/// A store that counts extended leases, and fails as many calls as a test sets.
struct WatchedStore {
    inner: MemoryStore,
    extended: watch::Sender<usize>,
    failures: AtomicUsize,
    /// Calls of `settle` that never return.
    hangs: AtomicUsize,
    /// Calls of `take` that never return.
    take_hangs: AtomicUsize,
    takes: AtomicUsize,
    /// Calls that read messages.
    looks: AtomicUsize,
    /// The error of takes.
    refusal: Mutex<Option<dwell_store::Error>>,
    refused: AtomicUsize,
}

/// Whether one is left; decrements it if so.
fn spent(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

#[async_trait]
impl Store for WatchedStore {
    async fn take(&self, take: Take) -> StoreResult<Vec<Delivery>> {
        self.takes.fetch_add(1, Ordering::Relaxed);
        if spent(&self.take_hangs) {
            std::future::pending::<()>().await;
        }
        let refusal = self.refusal.lock().unwrap().clone();
        if let Some(refusal) = refusal {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(refusal);
        }
        self.inner.take(take).await
    }

    async fn get(&self, queue: QueueName, targets: Vec<Target>, dead: bool) -> Vec<StoreResult<Message>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.inner.get(queue, targets, dead).await
    }

    async fn settle(&self, settles: Vec<Settle>) -> Vec<StoreResult<Settled>> {
        if spent(&self.hangs) {
            std::future::pending::<()>().await;
        }
        if spent(&self.failures) {
            let refusal = dwell_store::Error::Unavailable { reason: "a test says so".into() };
            return settles.iter().map(|_| Err(refusal.clone())).collect();
        }
        let extends = settles.iter().filter(|settle| matches!(settle.action, Action::Extend { .. })).count();
        let answers = self.inner.settle(settles).await;
        self.extended.send_modify(|count| *count += extends);
        answers
    }

    delegate_store! {
        self.inner;
        own: take settle get;
        forward: put take_id expire_lease cancel reschedule locate list peek stats forecast queues ready;
        forward: configure revive deaths discard purge delete_queue;
    }
}

/// A store, its clock, and a worker's clock.
struct Stage {
    store: Arc<WatchedStore>,
    clock: Arc<dyn Clock>,
    manual: ManualClock,
}

impl Stage {
    /// With the machine's clock.
    fn real() -> Stage {
        Stage::on(Arc::new(SystemClock::new()))
    }

    /// With a clock that the test moves.
    fn manual() -> Stage {
        let manual = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
        Stage { manual: manual.clone(), ..Stage::on(Arc::new(manual)) }
    }

    fn on(clock: Arc<dyn Clock>) -> Stage {
        let store = WatchedStore {
            inner: MemoryStore::new(Limits::default(), Arc::clone(&clock)),
            extended: watch::Sender::new(0),
            failures: AtomicUsize::new(0),
            hangs: AtomicUsize::new(0),
            take_hangs: AtomicUsize::new(0),
            takes: AtomicUsize::new(0),
            looks: AtomicUsize::new(0),
            refusal: Mutex::new(None),
            refused: AtomicUsize::new(0),
        };
        Stage { store: Arc::new(store), clock, manual: ManualClock::new(Timestamp::MIN) }
    }

    fn worker(&self) -> Worker {
        Worker::new(Arc::clone(&self.store) as Arc<dyn Store>).on_clock(Arc::clone(&self.clock))
    }

    fn queue(&self, name: &str) -> Queue {
        Queue::new(Arc::clone(&self.store) as Arc<dyn Store>, name).unwrap()
    }

    async fn put(&self, queue: &str, bodies: &[&str]) -> Vec<PutAnswer> {
        self.queue(queue).put_many(bodies.iter().copied()).await.all().unwrap()
    }

    async fn get(&self, queue: &str, put: &PutAnswer) -> Message {
        self.queue(queue).get(put.id).await.unwrap()
    }

    async fn leased(&self, queue: &str) -> u64 {
        self.queue(queue).stats().await.map_or(0, |stats| stats.counts.leased)
    }

    /// The number of waiting takes.
    async fn waiting(&self, queue: &str) -> u64 {
        self.queue(queue).stats().await.map_or(0, |stats| stats.waiting)
    }

    /// Waits until this many leases were extended in all.
    async fn extended(&self, count: usize) {
        within(self.store.extended.subscribe().wait_for(|extended| *extended >= count)).await.unwrap();
    }

    /// Lets leases of a queue lapse, as when a process dies with all its messages.
    async fn lapse(&self, queue: &str, times: usize) {
        let queue: QueueName = queue.parse().unwrap();
        for _ in 0..times {
            let taken =
                self.store.inner.take(Take::from(queue.clone()).max(1_000).lease_ms(1_000)).await.unwrap();
            assert!(!taken.is_empty());
            self.manual.advance(1_000);
        }
    }
}

/// A worker that runs in a task, until it is stopped.
struct Running {
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<Result<(), Error>>,
}

fn start(worker: Worker) -> Running {
    let (stop, mut stopped) = watch::channel(false);
    let until = async move { drop(stopped.wait_for(|stop| *stop).await) };
    Running { stop, task: tokio::spawn(worker.run_until(until)) }
}

impl Running {
    fn ask_to_stop(&self) {
        self.stop.send_replace(true);
    }

    async fn ended(self) -> Result<(), Error> {
        within(self.task).await.unwrap()
    }

    async fn stop(self) {
        self.ask_to_stop();
        self.ended().await.unwrap();
    }
}

/// A channel whose receiver gets `count` values, or panics.
fn heard<T>() -> (mpsc::UnboundedSender<T>, Heard<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, Heard(receiver))
}

struct Heard<T>(mpsc::UnboundedReceiver<T>);

impl<T> Heard<T> {
    async fn next(&mut self) -> T {
        within(self.0.recv()).await.expect("somebody can still say it")
    }

    async fn take(&mut self, count: usize) -> Vec<T> {
        let mut all = Vec::new();
        while all.len() < count {
            all.push(self.next().await);
        }
        all
    }
}

fn text(job: &Job) -> String {
    job.text().unwrap().to_owned()
}

/// The future's output, while the clock advances: a step, and a pause for the tasks that it wakes. Four of the longest
/// steps are within a lease.
async fn stepping<T>(clock: &ManualClock, step_ms: u64, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    for _ in 0..4 {
        clock.advance(step_ms);
        if let Ok(output) = tokio::time::timeout(Duration::from_secs(5), &mut future).await {
            return output;
        }
    }
    panic!("it does not end, though time passes");
}

/// The reason of its death, if it is dead.
fn death(message: &Message) -> Option<DeathReason> {
    match message.standing.state {
        State::Dead(death) => Some(death.reason),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_decides_what_becomes_of_the_message() {
    let stage = Stage::manual();
    let puts = stage.put("q", &["done", "retry", "error", "release", "bury", "permanent"]).await;
    let (said, mut hears) = heard();
    let handler = move |job: Job| {
        let said = said.clone();
        async move {
            said.send(()).unwrap();
            match job.text()? {
                "done" => Ok(Outcome::Done),
                "retry" => Ok(Outcome::Retry { error: "later".into(), after: Some(Duration::from_secs(7)) }),
                "release" => Ok(Outcome::Release { after: Some(Duration::from_secs(3)) }),
                "bury" => Ok(Outcome::Bury { reason: "no".into() }),
                "permanent" => Err(Failure::permanent("never")),
                _ => Err("x".parse::<u8>().unwrap_err().into()),
            }
        }
    };
    let ladder = Ladder::parse(["10s"]).unwrap();
    let worker = stage.worker().lane(Lane::new("q", handler).retry(ladder));
    let stats = worker.stats().remove(0);
    let running = start(worker);
    hears.take(6).await;
    running.stop().await;

    let now = stage.clock.now().wall;
    assert!(stage.queue("q").get(puts[0].id).await.is_err(), "it is gone");
    let retried = stage.get("q", &puts[1]).await.standing;
    assert_eq!(
        (retried.due, retried.attempts, retried.last_error.as_deref()),
        (now.after(7_000).unwrap(), 1, Some("later"))
    );
    let failed = stage.get("q", &puts[2]).await.standing;
    assert!((8_000..=10_000).contains(&failed.due.ms_since(now)), "the ladder says ten seconds less jitter");
    assert_eq!(failed.last_error.as_deref(), Some("invalid digit found in string"));
    let released = stage.get("q", &puts[3]).await.standing;
    assert_eq!(
        (released.due, released.attempts, released.counts.releases),
        (now.after(3_000).unwrap(), 0, 1)
    );
    for (put, reason) in [(&puts[4], "no"), (&puts[5], "never")] {
        let buried = stage.get("q", put).await;
        assert_eq!(
            (death(&buried), buried.standing.last_error.as_deref()),
            (Some(DeathReason::Buried), Some(reason))
        );
    }
    let counts =
        [stats.taken(), stats.done(), stats.retried(), stats.released(), stats.buried(), stats.running()];
    assert_eq!(counts, [6, 1, 2, 1, 2, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_json_cannot_read_is_buried() {
    let stage = Stage::real();
    let good = stage.queue("q").put(Json((1, "a"))).await.unwrap();
    let bad = stage.put("q", &["{"]).await.remove(0);
    let (said, mut hears) = heard();
    let handler = move |(job, Json(value)): (Job, Json<(u32, String)>)| {
        said.send((job.id(), value)).unwrap();
        async {}
    };
    let running = start(stage.worker().handle("q", handler));
    assert_eq!(hears.next().await, (good.id, (1, "a".to_owned())));
    // Both were taken together, so that the worker holds both.
    running.stop().await;
    let buried = stage.get("q", &bad).await;
    assert_eq!(death(&buried), Some(DeathReason::Buried));
    assert!(buried.standing.last_error.unwrap().contains("not JSON"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_is_a_failed_attempt_and_harms_nobody_else() {
    let stage = Stage::manual();
    let puts = stage.put("q", &["panic", "fine"]).await;
    let blocking = stage.put("b", &["panic"]).await.remove(0);
    let (said, mut hears) = heard();
    let (said_too, handler_said) = (said.clone(), said.clone());
    let worker = stage
        .worker()
        .handle("q", move |job: Job| {
            let said = handler_said.clone();
            async move {
                said.send(()).unwrap();
                assert_ne!(job.text().unwrap(), "panic", "the handler looked at it");
            }
        })
        .lane(Lane::blocking("b", move |_: Job| {
            said_too.send(()).unwrap();
            if stage_is_a_test() {
                panic!("blocking {}", "too");
            }
        }));
    let stats = worker.stats();
    let running = start(worker);
    hears.take(3).await;
    running.stop().await;
    let failed = stage.get("q", &puts[0]).await.standing;
    assert_eq!(failed.attempts, 1);
    assert!(failed.last_error.unwrap().starts_with("the handler panicked: "));
    assert!(stage.queue("q").get(puts[1].id).await.is_err(), "it is done");
    let error = stage.get("b", &blocking).await.standing.last_error.unwrap();
    assert_eq!(&*error, "the handler panicked: blocking too");
    assert_eq!((stats[0].panicked(), stats[1].panicked()), (1, 1));
}

/// Hides from the compiler that what follows is unreachable.
fn stage_is_a_test() -> bool {
    std::hint::black_box(true)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lane_waits_for_another() {
    let stage = Stage::real();
    stage.put("slow", &["1", "2", "3", "4"]).await;
    let bodies: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    stage.put("fast", &bodies.iter().map(String::as_str).collect::<Vec<_>>()).await;
    stage.put("broken", &["x"]).await;
    let (said, mut hears) = heard();
    let worker = stage
        .worker()
        .drain(Duration::ZERO)
        .lane(Lane::new("slow", |_: Job| std::future::pending::<()>()).concurrency(2))
        .lane(Lane::new("broken", |_: Job| async { Err::<(), _>(Failure::refused("down")) }))
        .lane(Lane::new("idle", |_: Job| async {}))
        .handle("fast", move |job: Job| {
            said.send(text(&job)).unwrap();
            async {}
        });
    let running = start(worker);
    let seen: HashSet<String> = hears.take(200).await.into_iter().collect();
    assert_eq!(seen.len(), 200);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_runs_as_many_at_a_time_as_it_may_and_takes_no_more() {
    let stage = Stage::real();
    let bodies: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    stage.put("q", &bodies.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let gate = Arc::new(Semaphore::new(0));
    let (at_once, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (said, mut hears) = heard();
    let handler = {
        let (gate, at_once, most) = (Arc::clone(&gate), Arc::clone(&at_once), Arc::clone(&most));
        move |_: Job| {
            let (gate, at_once, most, said) =
                (Arc::clone(&gate), Arc::clone(&at_once), Arc::clone(&most), said.clone());
            async move {
                most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                said.send(()).unwrap();
                gate.acquire().await.unwrap().forget();
                at_once.fetch_sub(1, Ordering::SeqCst);
            }
        }
    };
    let running = start(stage.worker().lane(Lane::new("q", handler).concurrency(3)));
    hears.take(3).await;
    let counts = stage.queue("q").stats().await.unwrap().counts;
    assert_eq!((counts.leased, counts.ready), (3, 47));
    gate.add_permits(50);
    hears.take(47).await;
    running.stop().await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_renewed_for_as_long_as_the_handler_runs() {
    let stage = Stage::manual();
    let put = stage.put("q", &["long"]).await.remove(0);
    let finish = Arc::new(Semaphore::new(0));
    let (said, mut hears) = heard();
    let gate = Arc::clone(&finish);
    let handler = move |job: Job| {
        let (gate, said) = (Arc::clone(&gate), said.clone());
        async move {
            said.send(job.token().fired()).unwrap();
            gate.acquire().await.unwrap().forget();
            said.send(job.token().fired()).unwrap();
        }
    };
    let running = start(stage.worker().handle("q", handler));
    assert_eq!(hears.next().await, None);
    for renewals in 1..=12 {
        stage.manual.advance(10_000);
        stage.extended(renewals).await;
    }
    assert_eq!(stage.get("q", &put).await.standing.attempts, 0);
    finish.add_permits(1);
    assert_eq!(hears.next().await, None);
    running.stop().await;
    assert!(stage.queue("q").get(put.id).await.is_err(), "it is done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_fires_when_the_lease_is_over_and_the_outcome_is_thrown_away() {
    let stage = Stage::manual();
    let put = stage.put("q", &["x"]).await.remove(0);
    let (said, mut hears) = heard();
    let handler = move |job: Job| {
        let said = said.clone();
        async move {
            said.send((job.attempt(), None)).unwrap();
            if job.attempt() == 1 {
                let fired = job.token().wait().await;
                said.send((1, Some(fired))).unwrap();
                return Outcome::Bury { reason: "nobody may see this".into() };
            }
            Outcome::Done
        }
    };
    // With one slot, the take that returns it again begins after the leap.
    let worker = stage.worker().lane(Lane::new("q", handler).concurrency(1));
    let stats = worker.stats().remove(0);
    let running = start(worker);
    assert_eq!(hears.next().await, (1, None));
    // As if the process had been stopped for that long.
    stage.manual.advance(30_000);
    assert_eq!(hears.take(2).await, [(1, Some(Fired::LeaseLost)), (2, None)]);
    running.stop().await;
    assert!(stage.queue("q").get(put.id).await.is_err(), "the second attempt has done it");
    assert_eq!((stats.lost(), stats.buried(), stats.done()), (1, 0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_message_that_has_expired_is_not_done_where_its_queue_drops_what_expires() {
    let stage = Stage::manual();
    stage.queue("q").set(Setting::OnExpiry(OnExpiry::Drop)).await.unwrap();
    let expires = Some(stage.manual.now().wall.after(1_000).unwrap());
    let put = Put { expires, ..Put::new("q".parse().unwrap(), "m") };
    let put = stage.store.put(vec![put]).await.pop().unwrap().unwrap();
    let manual = stage.manual.clone();
    let handler = move |_: Job| {
        let manual = manual.clone();
        async move {
            manual.advance(1_000);
            Outcome::Retry { error: "it fails".into(), after: None }
        }
    };
    let worker = stage.worker().lane(Lane::new("q", handler).concurrency(1));
    let stats = worker.stats().remove(0);
    let running = start(worker);
    eventually(async || stats.retried() == 1).await;
    running.stop().await;
    assert!(stage.queue("q").get(put.id).await.is_err(), "it is gone");
    assert_eq!((stats.done(), stats.retried(), stats.lost()), (0, 1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_exceeds_its_time_is_dropped_and_its_slot_is_free() {
    let stage = Stage::manual();
    let puts = stage.put("q", &["hangs", "fine"]).await;
    let (said, mut hears) = heard();
    let handler = move |job: Job| {
        let said = said.clone();
        async move {
            said.send((text(&job), job.time_left())).unwrap();
            if text(&job) == "hangs" {
                std::future::pending::<()>().await;
            }
        }
    };
    let timeout = Duration::from_secs(5);
    let worker = stage.worker().lane(Lane::new("q", handler).concurrency(1).timeout(timeout));
    let stats = worker.stats().remove(0);
    let running = start(worker);
    assert_eq!(hears.next().await, ("hangs".to_owned(), timeout));
    stage.manual.advance(5_000);
    assert_eq!(hears.next().await, ("fine".to_owned(), timeout));
    running.stop().await;
    let failed = stage.get("q", &puts[0]).await.standing;
    assert_eq!(failed.attempts, 1);
    assert_eq!(failed.last_error.as_deref(), Some("the handler has not returned after 5s"));
    assert_eq!(stats.timed_out(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocking_handler_that_exceeds_its_time_keeps_its_slot() {
    let stage = Stage::manual();
    let puts = stage.put("q", &["hangs", "fine"]).await;
    let (said, mut hears) = heard();
    let (finish, finished) = std::sync::mpsc::channel::<()>();
    let finished = Mutex::new(finished);
    let handler = move |job: Job| {
        said.send((text(&job), None)).unwrap();
        if text(&job) == "hangs" {
            finished.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            said.send(("hangs".to_owned(), job.token().fired())).unwrap();
        }
    };
    let worker =
        stage.worker().lane(Lane::blocking("q", handler).concurrency(1).timeout(Duration::from_secs(5)));
    let stats = worker.stats().remove(0);
    let running = start(worker);
    assert_eq!(hears.next().await.0, "hangs");
    stage.manual.advance(5_000);
    // Its attempt has failed, and it still runs: the other message waits.
    eventually(async || stage.get("q", &puts[0]).await.standing.attempts == 1).await;
    assert_eq!((stats.stuck(), stats.running()), (1, 1));
    assert_eq!(stage.leased("q").await, 0);
    finish.send(()).unwrap();
    assert_eq!(hears.next().await, ("hangs".to_owned(), Some(Fired::TimedOut)));
    assert_eq!(hears.next().await, ("fine".to_owned(), None));
    running.stop().await;
    assert_eq!(stats.stuck(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_then_fires_tokens_and_releases_what_is_not_done() {
    let stage = Stage::manual();
    let puts = stage.put("q", &["quick", "deaf", "obedient"]).await;
    let gate = Arc::new(Semaphore::new(0));
    let (said, mut hears) = heard();
    let opens = Arc::clone(&gate);
    let handler = move |job: Job| {
        let (said, gate) = (said.clone(), Arc::clone(&opens));
        async move {
            said.send(text(&job)).unwrap();
            match job.text()? {
                "quick" => gate.acquire().await?.forget(),
                "obedient" => {
                    let fired = job.token().wait().await;
                    said.send(format!("{fired:?}")).unwrap();
                }
                _ => std::future::pending().await,
            }
            Ok::<(), Failure>(())
        }
    };
    let running = start(stage.worker().handle("q", handler).drain(Duration::from_secs(5)));
    hears.take(3).await;
    eventually(async || stage.waiting("q").await == 1).await;
    running.ask_to_stop();
    eventually(async || stage.waiting("q").await == 0).await;
    let late = stage.put("q", &["late"]).await.remove(0);
    gate.add_permits(1);
    eventually(async || stage.queue("q").get(puts[0].id).await.is_err()).await;
    // The drain, and its time limit, may have begun a moment after the takes ended.
    let fired = within(stepping(&stage.manual, 5_000, hears.next())).await;
    assert_eq!(fired, "Draining");
    within(stepping(&stage.manual, 1_000, running.ended())).await.unwrap();
    for done in [&puts[0], &puts[2]] {
        assert!(stage.queue("q").get(done.id).await.is_err(), "it is done");
    }
    let dropped = stage.get("q", &puts[1]).await.standing;
    assert_eq!((dropped.attempts, dropped.counts.releases, dropped.state), (0, 1, State::Ready));
    let late = stage.get("q", &late).await.standing;
    assert_eq!(late.counts.takes, 0, "takes end at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_destination_is_down_nothing_is_taken_and_no_attempt_is_spent() {
    let stage = Stage::real();
    let bodies: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    stage.put("q", &bodies.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let is_up = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (probed, mut probes) = heard();
    let (said, mut hears) = heard();
    let (up, up_too) = (Arc::clone(&is_up), Arc::clone(&is_up));
    let lane = Lane::new("q", move |job: Job| {
        let (is_up, said) = (up.load(Ordering::SeqCst), said.clone());
        async move {
            if !is_up {
                return Err(Failure::refused("connection refused"));
            }
            said.send(text(&job)).unwrap();
            Ok(())
        }
    });
    let lane = lane.concurrency(8).probe(move || {
        let is_up = up_too.load(Ordering::SeqCst);
        let _ = probed.send(());
        async move { is_up }
    });
    let worker = stage.worker().lane(lane);
    let stats = worker.stats().remove(0);
    let running = start(worker);
    probes.take(4).await;
    eventually(async || stats.released() == 8).await;
    let counts = stage.queue("q").stats().await.unwrap().counts;
    assert_eq!((counts.leased, counts.ready), (0, 100), "all have gone back");
    assert_eq!((stats.taken(), stats.breaker()), (8, "open"), "one take, before it opened");
    is_up.store(true, Ordering::SeqCst);
    let seen: HashSet<String> = hears.take(100).await.into_iter().collect();
    assert_eq!(seen.len(), 100);
    running.stop().await;
    assert_eq!((stats.retried(), stats.released(), stats.done()), (0, 8, 100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_breaks_a_destination_that_is_up_has_failed_itself() {
    let stage = Stage::real();
    stage.queue("q").set(Setting::MaxAttempts(AttemptLimit::try_from(1).unwrap())).await.unwrap();
    let poison = stage.put("q", &["poison"]).await.remove(0);
    stage.put("q", &["fine"]).await;
    let (said, mut hears) = heard();
    let breaks = Arc::new(AtomicUsize::new(0));
    let broken = Arc::clone(&breaks);
    let lane = Lane::new("q", move |job: Job| {
        let (said, broken) = (said.clone(), Arc::clone(&broken));
        async move {
            if job.text()? == "poison" {
                broken.fetch_add(1, Ordering::SeqCst);
                return Err(Failure::refused("connection reset"));
            }
            said.send(()).unwrap();
            Ok(())
        }
    });
    let running = start(stage.worker().lane(lane.concurrency(1).probe(|| async { true })));
    hears.next().await;
    running.stop().await;
    let dead = stage.get("q", &poison).await;
    assert_eq!(death(&dead), Some(DeathReason::AttemptsSpent));
    let error = dead.standing.last_error.unwrap();
    assert_eq!(&*error, "it breaks a destination that is up: connection reset");
    assert_eq!(breaks.load(Ordering::SeqCst), 4, "once before it opened, and three times after probes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_breaks_a_destination_without_a_probe_holds_up_no_other() {
    let stage = Stage::real();
    stage.queue("q").set(Setting::MaxAttempts(AttemptLimit::try_from(1).unwrap())).await.unwrap();
    let poison = stage.put("q", &["poison"]).await.remove(0);
    stage.put("q", &["fine"]).await;
    let (said, mut hears) = heard();
    let lane = Lane::new("q", move |job: Job| {
        let said = said.clone();
        async move {
            if job.text()? == "poison" {
                return Err(Failure::refused("connection reset"));
            }
            said.send(()).unwrap();
            Ok(())
        }
    });
    let running = start(stage.worker().lane(lane.concurrency(1)));
    hears.next().await;
    // It repeatedly breaks the connection after others were answered: in the end the failure is its own.
    let standing = async || {
        let message = stage.get("q", &poison).await;
        (message.standing.counts.releases, death(&message).is_some())
    };
    for _ in 0..20 {
        let (releases, is_dead) = standing().await;
        if is_dead {
            break;
        }
        stage.put("q", &["fine"]).await;
        hears.next().await;
        eventually(async || {
            let (now, is_dead) = standing().await;
            now > releases || is_dead
        })
        .await;
    }
    assert!(standing().await.1, "it is dead");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspect_runs_when_its_worker_holds_nothing_else() {
    let stage = Stage::manual();
    stage.put("a", &["s1", "s2", "s3"]).await;
    stage.lapse("a", 2).await;
    let running_now = Arc::new(AtomicUsize::new(0));
    let gate = Arc::new(Semaphore::new(0));
    let (said, mut hears) = heard();
    let handler = {
        let (running_now, gate) = (Arc::clone(&running_now), Arc::clone(&gate));
        move |job: Job| {
            let (running_now, gate, said) = (Arc::clone(&running_now), Arc::clone(&gate), said.clone());
            async move {
                let others = running_now.fetch_add(1, Ordering::SeqCst);
                said.send((text(&job), others)).unwrap();
                gate.acquire().await.unwrap().forget();
                running_now.fetch_sub(1, Ordering::SeqCst);
            }
        }
    };
    stage.put("b", &["x1", "x2"]).await;
    let running = start(stage.worker().handle("b", handler.clone()).handle("a", handler));
    let mut order = Vec::new();
    for _ in 0..5 {
        let (body, others) = hears.next().await;
        if body.starts_with('s') {
            assert_eq!(others, 0, "{body} runs beside others");
            // Only its lease is held. The other suspects may be on their way back.
            eventually(async || stage.leased("a").await + stage.leased("b").await == 1).await;
        }
        order.push(body);
        gate.add_permits(1);
    }
    running.stop().await;
    order.sort();
    assert_eq!(order, ["s1", "s2", "s3", "x1", "x2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspect_that_finds_no_silence_goes_back_and_the_lanes_go_on() {
    let stage = Stage::manual();
    let suspect = stage.put("a", &["suspect"]).await.remove(0);
    stage.lapse("a", 2).await;
    stage.put("b", &["long"]).await;
    let gate = Arc::new(Semaphore::new(0));
    let (said, mut hears) = heard();
    let opens = Arc::clone(&gate);
    let (said_a, said_b) = (said.clone(), said);
    let lane_a = Lane::new("a", move |job: Job| {
        said_a.send(text(&job)).unwrap();
        async {}
    });
    let lane_b = Lane::new("b", move |job: Job| {
        let (said, gate) = (said_b.clone(), Arc::clone(&opens));
        async move {
            said.send(text(&job)).unwrap();
            if text(&job) == "long" {
                gate.acquire().await.unwrap().forget();
            }
        }
    });
    // `b` is held before `a` is checked.
    stage.queue("a").pause().await.unwrap();
    let running = start(stage.worker().lane(lane_b).lane(lane_a));
    assert_eq!(hears.next().await, "long");
    stage.queue("a").resume().await.unwrap();
    eventually(async || stage.leased("a").await == 1).await;
    stage.put("b", &["next"]).await;
    let before = stage.clock.now().wall;
    let gone_back = eventually(async || stage.leased("a").await == 0);
    within(stepping(&stage.manual, 10_000, gone_back)).await;
    let standing = stage.get("a", &suspect).await.standing;
    assert_eq!((standing.state, standing.attempts), (State::Scheduled, 2), "no attempt but the two lapses");
    assert!(standing.due.ms_since(before) >= 60_000);
    assert_eq!(hears.next().await, "next", "the lanes go on");
    gate.add_permits(1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strict_lane_keeps_the_order_though_a_message_fails() {
    let stage = Stage::real();
    stage.put("q", &["a", "b", "c", "d"]).await;
    let (said, mut hears) = heard();
    let handler = move |job: Job| {
        said.send(format!("{}{}", text(&job), job.attempt())).unwrap();
        async move {
            match (job.text()?, job.attempt()) {
                ("b", 1 | 2) => Err(Failure::retry("not yet").after(Duration::from_millis(30))),
                _ => Ok(()),
            }
        }
    };
    let running = start(stage.worker().lane(Lane::new("q", handler).strict()));
    assert_eq!(hears.take(6).await, ["a1", "b1", "b2", "b3", "c1", "d1"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_strict_lane_nothing_overtakes_a_suspect() {
    let stage = Stage::manual();
    stage.put("q", &["b"]).await;
    stage.lapse("q", 2).await;
    // `a` is handled before the suspect, and `c` after it.
    let first = Put { priority: 0, ..Put::new("q".parse().unwrap(), "a") };
    stage.store.put(vec![first]).await.remove(0).unwrap();
    stage.put("q", &["c"]).await;
    let (said, mut hears) = heard();
    let handler = move |job: Job| {
        said.send(text(&job)).unwrap();
        async {}
    };
    let running = start(stage.worker().lane(Lane::new("q", handler).strict()));
    assert_eq!(hears.take(3).await, ["a", "b", "c"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strict_lane_takes_what_it_waits_for_only_when_it_may_be_taken() {
    let stage = Stage::manual();
    let (said, mut hears) = heard();
    let handler = move |job: Job| {
        said.send(format!("{}{}", text(&job), job.attempt())).unwrap();
        async move {
            match job.attempt() {
                1 if text(&job) != "last" => {
                    Err(Failure::retry("not yet").after(Duration::from_millis(10_000)))
                }
                _ => Ok(()),
            }
        }
    };
    let moved = stage.put("q", &["moved"]).await.remove(0);
    let running = start(stage.worker().lane(Lane::new("q", handler).strict()));
    assert_eq!(hears.next().await, "moved1");
    eventually(async || stage.get("q", &moved).await.standing.state == State::Scheduled).await;
    // Moved by a caller, from 10 s to 15 s; and then the queue is paused.
    let later = stage.clock.now().wall.after(15_000).unwrap();
    let target = Target::Id(moved.id);
    let queue: QueueName = "q".parse().unwrap();
    stage.store.reschedule(queue.clone(), vec![(target, When::At(later))]).await.remove(0).unwrap();
    let looked = async |ms: u64| {
        let before = stage.store.looks.load(Ordering::Relaxed);
        stage.manual.advance(ms);
        eventually(async || stage.store.looks.load(Ordering::Relaxed) > before).await;
    };
    looked(10_001).await;
    stage.queue("q").pause().await.unwrap();
    looked(5_000).await;
    looked(1_000).await;
    assert_eq!(stage.get("q", &moved).await.standing.counts.takes, 1, "it waits");
    stage.queue("q").resume().await.unwrap();
    assert_eq!(within(stepping(&stage.manual, 250, hears.next())).await, "moved2");

    // A message that has expired while the lane waited for it is dead, and the lane continues.
    let expires = stage.clock.now().wall.after(5_000).unwrap();
    let expiring = Put { expires: Some(expires), ..Put::new(queue, "expiring") };
    let expiring = stage.store.put(vec![expiring]).await.remove(0).unwrap();
    assert_eq!(hears.next().await, "expiring1");
    eventually(async || stage.get("q", &expiring).await.standing.state == State::Scheduled).await;
    stage.put("q", &["last"]).await;
    assert_eq!(within(stepping(&stage.manual, 10_001, hears.next())).await, "last1");
    running.stop().await;
    let dead = stage.get("q", &expiring).await;
    assert_eq!((death(&dead), dead.standing.counts.takes), (Some(DeathReason::Expired), 1));
}

#[test]
fn a_blocking_handler_that_has_not_begun_spends_no_attempt() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).max_blocking_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let stage = Stage::real();
        let puts = stage.put("q", &["a", "b"]).await;
        let (said, mut hears) = heard();
        let (finish, finished) = std::sync::mpsc::channel::<()>();
        let finished = Mutex::new(finished);
        let lane = Lane::blocking("q", move |job: Job| {
            said.send(text(&job)).unwrap();
            finished.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        });
        let running = start(stage.worker().drain(Duration::ZERO).lane(lane.concurrency(2)));
        let begun = hears.next().await;
        eventually(async || stage.leased("q").await == 2).await;
        running.stop().await;
        let other = &puts[usize::from(begun == "a")];
        let standing = stage.get("q", other).await.standing;
        assert_eq!((standing.state, standing.attempts, standing.counts.releases), (State::Ready, 0, 1));
        finish.send(()).unwrap();
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_has_an_outcome_for_each_message() {
    let stage = Stage::manual();
    let puts = stage.put("q", &["a", "b", "c"]).await;
    let (said, mut hears) = heard();
    let lane = Lane::batch("q", move |jobs: Vec<Job>| {
        said.send(jobs.iter().map(text).collect::<Vec<_>>()).unwrap();
        // No outcome for the last one.
        async { vec![Outcome::Done, Outcome::Bury { reason: "b".into() }] }
    });
    let running = start(stage.worker().lane(lane));
    assert_eq!(hears.next().await, ["a", "b", "c"]);
    running.stop().await;
    assert!(stage.queue("q").get(puts[0].id).await.is_err(), "it is done");
    assert_eq!(death(&stage.get("q", &puts[1]).await), Some(DeathReason::Buried));
    let missing = stage.get("q", &puts[2]).await.standing;
    assert_eq!(missing.last_error.as_deref(), Some("the handler gave 2 outcomes for 3 messages"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_that_the_store_cannot_do_now_is_tried_again() {
    let stage = Stage::real();
    let put = stage.put("q", &["x"]).await.remove(0);
    stage.store.failures.store(3, Ordering::Relaxed);
    let (said, mut hears) = heard();
    let worker = stage.worker().handle("q", move |_: Job| {
        said.send(()).unwrap();
        async {}
    });
    let stats = worker.stats().remove(0);
    let running = start(worker);
    hears.next().await;
    running.stop().await;
    assert!(stage.queue("q").get(put.id).await.is_err(), "it is done");
    assert_eq!((stats.done(), stats.lost()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_that_is_not_answered_is_made_again_and_holds_up_no_other() {
    let stage = Stage::manual();
    let first = stage.put("a", &["x"]).await.remove(0);
    stage.store.hangs.store(1, Ordering::Relaxed);
    let (said, mut hears) = heard();
    let handler = move |_: Job| {
        said.send(()).unwrap();
        async {}
    };
    let worker = stage.worker().handle("a", handler.clone()).handle("b", handler);
    let stats = worker.stats();
    let running = start(worker);
    hears.next().await;
    eventually(async || stage.store.hangs.load(Ordering::Relaxed) == 0).await;
    let second = stage.put("b", &["y"]).await.remove(0);
    hears.next().await;
    let is_gone = async |queue: &str, put: &PutAnswer| stage.queue(queue).get(put.id).await.is_err();
    // The next call waits a second for the previous one.
    let done = eventually(async || is_gone("b", &second).await);
    within(stepping(&stage.manual, 1_000, done)).await;
    assert!(!is_gone("a", &first).await, "its call is still under way");
    let done = eventually(async || is_gone("a", &first).await);
    // At the first step the call times out, and at the second it is made again.
    within(stepping(&stage.manual, 9_500, done)).await;
    running.stop().await;
    assert_eq!((stats[0].done(), stats[0].lost(), stats[1].done()), (1, 0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_that_is_not_answered_is_made_again_when_its_leases_would_be_over() {
    let stage = Stage::manual();
    stage.put("q", &["x"]).await;
    stage.store.take_hangs.store(1, Ordering::Relaxed);
    let (said, mut hears) = heard();
    let running = start(stage.worker().handle("q", move |_: Job| {
        said.send(()).unwrap();
        async {}
    }));
    eventually(async || stage.store.take_hangs.load(Ordering::Relaxed) == 0).await;
    stage.manual.advance(30_000);
    hears.next().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_is_not_answered_is_made_again() {
    let stage = Stage::manual();
    let put = stage.put("q", &["long"]).await.remove(0);
    let finish = Arc::new(Semaphore::new(0));
    let (said, mut hears) = heard();
    let gate = Arc::clone(&finish);
    let handler = move |job: Job| {
        let (gate, said) = (Arc::clone(&gate), said.clone());
        async move {
            said.send(job.token().fired()).unwrap();
            gate.acquire().await.unwrap().forget();
            said.send(job.token().fired()).unwrap();
        }
    };
    let running = start(stage.worker().handle("q", handler));
    assert_eq!(hears.next().await, None);
    stage.store.hangs.store(1, Ordering::Relaxed);
    stage.manual.advance(10_000);
    eventually(async || stage.store.hangs.load(Ordering::Relaxed) == 0).await;
    stage.manual.advance(5_000);
    stage.extended(1).await;
    // Past the end of the lease as first granted.
    stage.manual.advance(10_000);
    stage.extended(2).await;
    stage.manual.advance(10_000);
    stage.extended(3).await;
    finish.add_permits(1);
    assert_eq!(hears.next().await, None);
    running.stop().await;
    assert!(stage.queue("q").get(put.id).await.is_err(), "it is done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspect_that_exceeds_its_time_and_still_runs_keeps_its_own_slot_alone() {
    let stage = Stage::manual();
    stage.queue("a").set(Setting::MaxAttempts(AttemptLimit::try_from(3).unwrap())).await.unwrap();
    stage.put("a", &["hangs"]).await;
    stage.lapse("a", 2).await;
    let (said, mut hears) = heard();
    let (finish, finished) = std::sync::mpsc::channel::<()>();
    let finished = Mutex::new(finished);
    let said_too = said.clone();
    let hangs = Lane::blocking("a", move |job: Job| {
        said.send(text(&job)).unwrap();
        finished.lock().unwrap().recv_timeout(PATIENCE).unwrap();
    });
    let quick = Lane::new("b", move |job: Job| {
        said_too.send(text(&job)).unwrap();
        async {}
    });
    let hangs = hangs.concurrency(1).timeout(Duration::from_secs(5));
    let running = start(stage.worker().lane(hangs).lane(quick));
    assert_eq!(hears.next().await, "hangs");
    stage.put("b", &["x"]).await;
    assert_eq!(within(stepping(&stage.manual, 5_000, hears.next())).await, "x");
    finish.send(()).unwrap();
    running.stop().await;
}

/// Panics when it is dropped.
struct Touchy;

impl Drop for Touchy {
    fn drop(&mut self) {
        if stage_is_a_test() {
            panic!("dropped");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_when_it_is_dropped_frees_its_slot() {
    let stage = Stage::manual();
    stage.queue("q").set(Setting::MaxAttempts(AttemptLimit::try_from(1).unwrap())).await.unwrap();
    let puts = stage.put("q", &["hangs", "fine"]).await;
    let (said, mut hears) = heard();
    let handler = move |job: Job| {
        said.send(text(&job)).unwrap();
        async move {
            if text(&job) == "hangs" {
                let _touchy = Touchy;
                std::future::pending::<()>().await;
            }
        }
    };
    let timeout = Duration::from_secs(5);
    let running = start(stage.worker().lane(Lane::new("q", handler).concurrency(1).timeout(timeout)));
    assert_eq!(hears.next().await, "hangs");
    assert_eq!(within(stepping(&stage.manual, 5_000, hears.next())).await, "fine");
    running.stop().await;
    assert_eq!(stage.get("q", &puts[0]).await.standing.attempts, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_dropped_stops_its_handlers() {
    let stage = Stage::real();
    stage.put("q", &["x"]).await;
    let (said, mut hears) = heard();
    let handler = move |job: Job| {
        let said = said.clone();
        async move {
            said.send(None).unwrap();
            said.send(Some(job.token().wait().await)).unwrap();
            std::future::pending::<()>().await;
        }
    };
    let running = start(stage.worker().handle("q", handler));
    assert_eq!(hears.next().await, None);
    running.task.abort();
    assert_eq!(hears.next().await, Some(Fired::LeaseLost));
    // Dropped with its sender a moment later.
    assert_eq!(within(hears.0.recv()).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_may_take_no_more_settles_what_it_has_in_hand() {
    let stage = Stage::real();
    let first = stage.put("q", &["a"]).await.remove(0);
    let gate = Arc::new(Semaphore::new(0));
    let (said, mut hears) = heard();
    let opens = Arc::clone(&gate);
    let handler = move |_: Job| {
        let (said, gate) = (said.clone(), Arc::clone(&opens));
        async move {
            said.send(()).unwrap();
            gate.acquire().await.unwrap().forget();
        }
    };
    let running = start(stage.worker().handle("q", handler));
    hears.next().await;
    eventually(async || stage.waiting("q").await == 1).await;
    *stage.store.refusal.lock().unwrap() = Some(dwell_store::Error::Refused {
        code: "forbidden",
        reason: "the token was withdrawn".into(),
        is_retryable: false,
    });
    // The waiting take returns it; the next one is refused.
    let second = stage.put("q", &["b"]).await.remove(0);
    hears.next().await;
    eventually(async || stage.store.refused.load(Ordering::Relaxed) > 0).await;
    gate.add_permits(2);
    assert_eq!(running.ended().await.unwrap_err().code(), "forbidden");
    for put in [first, second] {
        assert!(stage.queue("q").get(put.id).await.is_err(), "it is done");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_down_does_not_hold_up_the_end_for_as_long_as_a_lease() {
    let stage = Stage::manual();
    stage.put("q", &["x"]).await;
    stage.store.failures.store(usize::MAX, Ordering::Relaxed);
    let (said, mut hears) = heard();
    let handler = move |_: Job| {
        said.send(()).unwrap();
        async {}
    };
    let lane = Lane::new("q", handler).lease(Duration::from_secs(6 * 3_600));
    let running = start(stage.worker().lane(lane).drain(Duration::from_secs(1)));
    hears.next().await;
    eventually(async || stage.store.failures.load(Ordering::Relaxed) < usize::MAX).await;
    running.ask_to_stop();
    eventually(async || stage.waiting("q").await == 0).await;
    // The drain ends at the first step, and what is left to the store at the second one.
    within(stepping(&stage.manual, 12_000, running.ended())).await.unwrap();
    assert_eq!(stage.leased("q").await, 1, "its lease ends by itself");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lasting_worker_goes_on_though_it_is_refused_as_if_for_good() {
    let stage = Stage::manual();
    stage.put("q", &["x"]).await;
    *stage.store.refusal.lock().unwrap() = Some(dwell_store::Error::Refused {
        code: "forbidden",
        reason: "a test says so".into(),
        is_retryable: false,
    });
    let (said, mut hears) = heard();
    let handler = move |_: Job| {
        said.send(()).unwrap();
        async {}
    };
    let running = start(stage.worker().handle("q", handler).lasting());
    eventually(async || stage.store.refused.load(Ordering::Relaxed) > 0).await;
    *stage.store.refusal.lock().unwrap() = None;
    within(stepping(&stage.manual, 30_000, hears.next())).await;
    stage.store.inner.close();
    assert_eq!(running.ended().await.unwrap_err().code(), "closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_answers_for_a_server_ends_no_worker() {
    let stage = Stage::real();
    stage.put("q", &["a"]).await;
    let (said, mut hears) = heard();
    let running = start(stage.worker().handle("q", move |_: Job| {
        said.send(()).unwrap();
        async {}
    }));
    hears.next().await;
    eventually(async || stage.waiting("q").await == 1).await;
    let answer = dwell_store::Error::BadAnswer { server: "http://x".into(), reason: "status 503".into() };
    *stage.store.refusal.lock().unwrap() = Some(answer);
    stage.put("q", &["b"]).await;
    hears.next().await;
    eventually(async || stage.store.refused.load(Ordering::Relaxed) > 1).await;
    *stage.store.refusal.lock().unwrap() = None;
    stage.put("q", &["c"]).await;
    hears.next().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_messages_are_handled_once_each() {
    let stage = Stage::real();
    let puts = (0..10_000).map(|number| Put::new("q".parse().unwrap(), number.to_string()));
    stage.store.put(puts.collect()).await;
    let (said, mut hears) = heard();
    let worker = stage.worker().lane(
        Lane::new("q", move |job: Job| {
            said.send(text(&job)).unwrap();
            async {}
        })
        .concurrency(256),
    );
    let stats = worker.stats().remove(0);
    let running = start(worker);
    let seen: HashSet<String> = hears.take(10_000).await.into_iter().collect();
    assert_eq!(seen.len(), 10_000);
    running.stop().await;
    assert_eq!((stats.done(), stats.lost(), stats.retried()), (10_000, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_ends_when_its_store_is_closed() {
    let stage = Stage::real();
    let running = start(stage.worker().handle("q", |_: Job| async {}));
    eventually(async || stage.waiting("q").await == 1).await;
    stage.store.inner.close();
    assert_eq!(running.ended().await.unwrap_err().code(), "closed");
}

#[tokio::test]
async fn what_no_worker_can_run_is_refused_and_takes_nothing() {
    let stage = Stage::real();
    let lane = || Lane::new("q", |_: Job| async {});
    let none = Rate { messages: 0, per_ms: 1 };
    for (worker, code) in [
        (stage.worker(), "invalid_lane"),
        (stage.worker().lane(lane().concurrency(0)), "invalid_lane"),
        (stage.worker().lane(lane().concurrency(100_001)), "invalid_lane"),
        (stage.worker().lane(lane().rate(none)), "invalid_lane"),
        (stage.worker().lane(lane().timeout(Duration::ZERO)), "invalid_lane"),
        (stage.worker().lane(lane().lease(Duration::from_millis(999))), "invalid_lane"),
        (stage.worker().lane(lane().lease(Duration::MAX)), "invalid_lane"),
        (stage.worker().lane(lane()).lane(lane()), "duplicate_lane"),
        (stage.worker().lane(Lane::new("two words", |_: Job| async {})), "invalid_queue_name"),
    ] {
        assert_eq!(within(worker.run()).await.unwrap_err().code(), code);
    }
    assert_eq!(stage.store.takes.load(Ordering::Relaxed), 0);
}
