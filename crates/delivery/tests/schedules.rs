//! Schedules on a store in memory with a clock that tests move: each instant runs once, whichever call a runner dies
//! in.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dwell_delivery::schedule::{
    Defined, Every, INSTANT_HEADER, Missed, Overlap, QUEUE, Runner, Schedule, Schedules, Times,
};
use dwell_model::{Headers, Limits, Pause, QueueName, Setting, SettingChange, Timestamp};
use dwell_store::{
    Action, Delivery, Error, LeaseTerms, MemoryStore, Put, PutAnswer, Result, Settle, Settled, Store, Take,
    async_trait, delegate_store,
};
use dwell_time::{Clock, ManualClock};

const PATIENCE: Duration = Duration::from_secs(60);
const MINUTE_MS: u64 = 60_000;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A store whose caller dies at its n-th call: before the call was made, or after it and before its answer.
struct Deadly {
    inner: Arc<MemoryStore>,
    calls: AtomicUsize,
    dies_at: Mutex<Option<(usize, bool)>>,
}

impl Deadly {
    async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let death = *self.dies_at.lock().unwrap();
        match death {
            Some((at, is_made)) if at == number => {
                if is_made {
                    call.await;
                }
                std::future::pending().await
            }
            _ => call.await,
        }
    }
}

#[async_trait]
impl Store for Deadly {
    async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        self.call(self.inner.put(puts)).await
    }

    async fn take(&self, take: Take) -> Result<Vec<Delivery>> {
        self.call(self.inner.take(take)).await
    }

    async fn take_id(
        &self,
        queue: QueueName,
        id: dwell_model::MessageId,
        terms: LeaseTerms,
    ) -> Result<Delivery> {
        self.call(self.inner.take_id(queue, id, terms)).await
    }

    async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        self.call(self.inner.settle(settles)).await
    }

    delegate_store! {
        self.inner;
        own: put take take_id settle;
        forward: expire_lease cancel reschedule get locate list peek stats forecast queues ready;
        forward: configure revive deaths discard purge delete_queue;
    }
}

/// A remote store: each put takes time.
struct SlowStore {
    inner: Arc<MemoryStore>,
    clock: ManualClock,
    put_ms: u64,
}

#[async_trait]
impl Store for SlowStore {
    async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        let answers = self.inner.put(puts).await;
        self.clock.advance(self.put_ms);
        answers
    }

    delegate_store! {
        self.inner;
        own: put;
        forward: take take_id settle expire_lease cancel reschedule get locate list peek stats forecast queues ready;
        forward: configure revive deaths discard purge delete_queue;
    }
}

/// A store whose disk is full: puts are refused, or those into one queue.
struct Full {
    inner: Arc<MemoryStore>,
    of: Option<&'static str>,
}

#[async_trait]
impl Store for Full {
    async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        let mut answers = Vec::new();
        for put in puts {
            if self.of.is_none_or(|of| put.queue.as_str() == of) {
                answers.push(Err(Error::DiskFull { reason: "1 MiB is left".into() }));
            } else {
                answers.extend(self.inner.put(vec![put]).await);
            }
        }
        answers
    }

    async fn configure(
        &self,
        queue: QueueName,
        changes: Vec<SettingChange>,
    ) -> Result<dwell_store::QueueStats> {
        match self.of {
            None => Err(Error::DiskFull { reason: "1 MiB is left".into() }),
            Some(_) => self.inner.configure(queue, changes).await,
        }
    }

    delegate_store! {
        self.inner;
        own: put configure;
        forward: take take_id settle expire_lease cancel reschedule get locate list peek stats forecast queues ready;
        forward: revive deaths discard purge delete_queue;
    }
}

struct Stage {
    clock: ManualClock,
    inner: Arc<MemoryStore>,
    deadly: Arc<Deadly>,
}

impl Stage {
    fn begin(start: &str) -> Stage {
        Stage::begin_with(start, Limits::default())
    }

    fn begin_with(start: &str, limits: Limits) -> Stage {
        let clock = ManualClock::new(at(start));
        let inner = Arc::new(MemoryStore::with_seed(limits, Arc::new(clock.clone()), 7));
        let deadly =
            Deadly { inner: Arc::clone(&inner), calls: AtomicUsize::new(0), dies_at: Mutex::new(None) };
        Stage { clock, inner, deadly: Arc::new(deadly) }
    }

    fn now(&self) -> Timestamp {
        self.clock.now().wall
    }

    fn schedules(&self) -> Schedules {
        Schedules::new(Arc::clone(&self.inner) as Arc<dyn Store>)
    }

    fn runner(&self) -> Runner {
        Runner::new(Arc::clone(&self.inner) as Arc<dyn Store>, Arc::new(self.clock.clone()))
    }

    /// Runs what is due now.
    fn run(&self) -> usize {
        now(self.runner().run_due()).expect("it ends").expect("the store serves")
    }

    /// The same by a runner that dies at its n-th call. Returns whether it survived.
    fn run_and_die(&self, call: usize, is_made: bool) -> bool {
        self.arm(call, is_made);
        let runner = Runner::new(Arc::clone(&self.deadly) as Arc<dyn Store>, Arc::new(self.clock.clone()));
        now(runner.run_due()).map(|ran| ran.expect("the store serves")).is_some()
    }

    fn arm(&self, call: usize, is_made: bool) {
        self.deadly.calls.store(0, Ordering::Relaxed);
        *self.deadly.dies_at.lock().unwrap() = Some((call, is_made));
    }

    /// The instants of all runs in the queue, which is empty afterwards.
    fn runs(&self, queue: &str) -> Vec<String> {
        let take = Take::from(queue.parse().unwrap()).max(10_000);
        let taken = now(self.inner.take(take)).unwrap().unwrap();
        let acks = taken.iter().map(|run| Settle { receipt: run.receipt.clone(), action: Action::Ack });
        assert!(now(self.inner.settle(acks.collect())).unwrap().iter().all(Result::is_ok));
        taken.iter().map(|run| run.header(INSTANT_HEADER).unwrap_or("by hand").to_owned()).collect()
    }
}

/// The output of a future that depends on no other task, or `None` if it waits for ever.
fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = Box::pin(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

fn every_minute(name: &str) -> Schedule {
    Schedule::new(name, "runs", Times::Every(Every::new(MINUTE_MS).unwrap())).unwrap().overlap(Overlap::Allow)
}

fn define(stage: &Stage, schedule: Schedule) -> Defined {
    now(stage.schedules().define(schedule, stage.now())).unwrap().unwrap()
}

#[test]
fn each_instant_is_run_once_at_its_instant() {
    let stage = Stage::begin("2026-11-26T10:00:30Z");
    assert_eq!(define(&stage, every_minute("tick").body("do it")), Defined::Created);
    assert_eq!(stage.run(), 1, "it is armed");
    assert_eq!(stage.runs("runs"), [""; 0]);
    stage.clock.advance(29_999);
    assert_eq!(stage.run(), 0, "nothing is early");
    stage.clock.advance(1);
    assert_eq!(stage.run(), 1);
    assert_eq!(stage.runs("runs"), ["2026-11-26T10:01:00.000Z"]);
    assert_eq!(now(stage.schedules().get("tick")).unwrap().unwrap().next, Some(at("2026-11-26T10:02:00Z")));
}

#[test]
fn each_instant_is_run_once_though_a_runner_dies_at_any_call() {
    let mut deaths = 0;
    for is_made in [false, true] {
        for call in 0..12 {
            let stage = Stage::begin("2026-11-26T10:00:30Z");
            define(&stage, every_minute("tick"));
            stage.run();
            stage.clock.advance(30_000);
            let lived = stage.run_and_die(call, is_made);
            deaths += usize::from(!lived);
            // The dead runner's messages are ready when its lease ends, before the next instant.
            stage.clock.advance(30_000);
            stage.run();
            stage.clock.advance(30_000);
            stage.run();
            let runs = stage.runs("runs");
            assert_eq!(
                runs,
                ["2026-11-26T10:01:00.000Z", "2026-11-26T10:02:00.000Z"],
                "dead at call {call}, made: {is_made}"
            );
            let next = now(stage.schedules().get("tick")).unwrap().unwrap().next;
            assert_eq!(next, Some(at("2026-11-26T10:03:00Z")));
        }
    }
    assert_eq!(deaths, 8, "a turn is a take, two puts and a settlement");
}

#[test]
fn an_instant_that_comes_while_a_dead_runner_holds_the_schedule_is_missed() {
    let [first, second] = ["2026-11-26T10:01:00.000Z", "2026-11-26T10:02:00.000Z"];
    let mut counted = [0, 0];
    for missed in [Missed::All, Missed::One] {
        for is_made in [false, true] {
            for call in 0..4 {
                let stage = Stage::begin("2026-11-26T10:00:30Z");
                define(&stage, every_minute("tick").missed(missed));
                stage.run();
                stage.clock.advance(30_000);
                assert!(!stage.run_and_die(call, is_made));
                // The next instant comes before another runner has the schedule.
                stage.clock.advance(MINUTE_MS);
                let runner = stage.runner();
                now(runner.run_due()).unwrap().unwrap();
                let is_missed = runner.runs().missed == 1;
                counted[usize::from(missed == Missed::One)] += usize::from(is_missed);
                let expected = if is_missed { vec![first] } else { vec![first, second] };
                assert_eq!(stage.runs("runs"), expected, "{missed:?}, dead at call {call}, made: {is_made}");
                stage.clock.advance(MINUTE_MS);
                stage.run();
                assert_eq!(stage.runs("runs"), ["2026-11-26T10:03:00.000Z"]);
            }
        }
    }
    assert_eq!(counted, [0, 5], "only `Missed::One` leaves it out, where the next message was not put");
}

#[test]
fn a_schedule_is_the_old_or_the_new_one_though_who_defines_it_dies_at_any_call() {
    let mut seen = [0, 0];
    for is_made in [false, true] {
        for call in 0..8 {
            let stage = Stage::begin("2026-11-26T10:00:30Z");
            define(&stage, every_minute("tick").body("old"));
            stage.run();
            stage.arm(call, is_made);
            let dying = Schedules::new(Arc::clone(&stage.deadly) as Arc<dyn Store>);
            let new = every_minute("tick").body("new");
            let lived = now(dying.define(new.clone(), stage.now())).is_some();
            // The lease ends at the next instant.
            stage.clock.advance(29_000);
            stage.run();
            assert_eq!(stage.runs("runs"), [""; 0], "nothing is early");
            stage.clock.advance(31_000);
            stage.run();
            stage.run();
            assert_eq!(
                stage.runs("runs"),
                ["2026-11-26T10:01:00.000Z"],
                "dead at call {call}, made: {is_made}"
            );
            let standing = now(stage.schedules().get("tick")).unwrap().unwrap().schedule;
            seen[usize::from(standing == new)] += 1;
            assert!(standing == new || !lived, "a definition that was answered stands");
            stage.clock.advance(30_000);
            stage.run();
            assert_eq!(stage.runs("runs"), ["2026-11-26T10:02:00.000Z"]);
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

#[test]
fn a_definition_that_says_the_same_changes_nothing() {
    let stage = Stage::begin("2026-11-26T10:00:30Z");
    define(&stage, every_minute("tick"));
    stage.run();
    // At exactly the instant, as for servers that start.
    stage.clock.advance(30_000);
    assert_eq!(define(&stage, every_minute("tick")), Defined::Unchanged);
    assert_eq!(stage.run(), 1);
    assert_eq!(stage.runs("runs"), ["2026-11-26T10:01:00.000Z"]);
    assert_eq!(define(&stage, every_minute("tick").body("x")), Defined::Changed);
}

#[test]
fn a_definition_of_what_could_never_run_changes_nothing() {
    let stage = Stage::begin("2026-11-26T10:00:30Z");
    let never = Schedule::new("a", "q", Times::cron("0 0 30 2 *", None, "UTC").unwrap()).unwrap();
    let refused = now(stage.schedules().define(never, stage.now())).unwrap().unwrap_err();
    assert_eq!(refused.code(), "cron_never_fires");
    assert!(now(stage.schedules().list()).unwrap().unwrap().is_empty());
}

#[test]
fn a_run_is_left_out_or_takes_the_place_of_one_that_is_not_done() {
    for (overlap, expected) in [
        (Overlap::Skip, vec!["2026-11-26T10:01:00.000Z"]),
        (Overlap::Replace, vec!["2026-11-26T10:03:00.000Z"]),
        (
            Overlap::Allow,
            vec!["2026-11-26T10:01:00.000Z", "2026-11-26T10:02:00.000Z", "2026-11-26T10:03:00.000Z"],
        ),
    ] {
        let stage = Stage::begin("2026-11-26T10:00:30Z");
        define(&stage, every_minute("tick").overlap(overlap));
        stage.run();
        stage.clock.advance(30_000);
        stage.run();
        for _ in 0..2 {
            stage.clock.advance(MINUTE_MS);
            stage.run();
        }
        assert_eq!(stage.runs("runs"), expected, "{overlap:?}");
    }
}

#[test]
fn what_was_missed_is_run_as_the_schedule_says() {
    for (missed, expected) in [
        (Missed::One, vec!["2026-11-26T10:01:00.000Z"]),
        (Missed::Skip, vec!["2026-11-26T10:04:00.000Z"]),
        (
            Missed::All,
            vec![
                "2026-11-26T10:01:00.000Z",
                "2026-11-26T10:02:00.000Z",
                "2026-11-26T10:03:00.000Z",
                "2026-11-26T10:04:00.000Z",
            ],
        ),
    ] {
        let stage = Stage::begin("2026-11-26T10:00:30Z");
        define(&stage, every_minute("tick").missed(missed));
        stage.run();
        stage.clock.advance(30_000 + 3 * MINUTE_MS + 5_000);
        let runner = stage.runner();
        now(runner.run_due()).unwrap().unwrap();
        assert_eq!(stage.runs("runs"), expected, "{missed:?}");
        let counts = runner.runs();
        assert_eq!(counts.put + counts.missed, 4, "{counts:?}");
        let next = now(stage.schedules().get("tick")).unwrap().unwrap().next;
        assert_eq!(next, Some(at("2026-11-26T10:05:00Z")));
    }
}

#[test]
fn schedules_that_have_missed_much_take_no_lease_of_each_other() {
    let stage = Stage::begin("2026-11-26T10:00:30Z");
    let names = ["a", "b", "c", "d"];
    for name in names {
        define(&stage, every_minute(name).missed(Missed::All));
    }
    stage.run();
    stage.clock.advance(1_000 * MINUTE_MS);
    // The puts of all schedules take longer than a lease, and those of one do not.
    let slow = SlowStore { inner: Arc::clone(&stage.inner), clock: stage.clock.clone(), put_ms: 12_000 };
    let runner = Runner::new(Arc::new(slow) as Arc<dyn Store>, Arc::new(stage.clock.clone()));
    assert_eq!(now(runner.run_due()).unwrap().unwrap(), names.len());
    assert_eq!(runner.runs().put, 4_000);
    let counts = now(stage.inner.stats(QUEUE.parse().unwrap())).unwrap().unwrap().counts;
    assert_eq!((counts.leased, counts.scheduled + counts.ready), (0, 4), "each has its next message alone");
    assert_eq!(stage.runs("runs").len(), 4_000);
}

#[test]
fn runs_that_were_put_are_not_put_again_though_the_queue_is_full_for_longer_than_idempotency_keys_last() {
    let stage = Stage::begin("2026-11-26T10:00:30Z");
    let runs = "runs".parse().unwrap();
    let limit = SettingChange::Set(Setting::MaxPending(2));
    now(stage.inner.configure(runs, vec![limit])).unwrap().unwrap();
    define(&stage, every_minute("tick").missed(Missed::All));
    stage.run();
    stage.clock.advance(30_000 + 4 * MINUTE_MS);
    stage.run();
    assert_eq!(stage.runs("runs"), ["2026-11-26T10:01:00.000Z", "2026-11-26T10:02:00.000Z"]);
    stage.clock.advance(15 * MINUTE_MS);
    stage.run();
    assert_eq!(stage.runs("runs"), ["2026-11-26T10:03:00.000Z", "2026-11-26T10:04:00.000Z"]);
}

#[test]
fn a_schedule_runs_from_its_definition_on_though_no_runner_was_there() {
    let stage = Stage::begin("2026-11-26T10:00:30Z");
    define(&stage, every_minute("tick"));
    stage.clock.advance(30_000);
    stage.run();
    assert_eq!(stage.runs("runs"), ["2026-11-26T10:01:00.000Z"]);
    assert_eq!(now(stage.schedules().get("tick")).unwrap().unwrap().next, Some(at("2026-11-26T10:02:00Z")));
}

#[test]
fn what_says_the_same_writes_nothing_and_is_no_trouble_to_a_store_that_is_full() {
    let stage = Stage::begin("2026-11-26T10:00:30Z");
    define(&stage, every_minute("tick"));
    let full = Schedules::new(Arc::new(Full { inner: Arc::clone(&stage.inner), of: None }) as Arc<dyn Store>);
    let define = |schedule| now(full.define(schedule, stage.now())).unwrap();
    assert_eq!(define(every_minute("tick")).unwrap(), Defined::Unchanged);
    assert_eq!(define(every_minute("tick").body("x")).unwrap_err().code(), "disk_full");
    assert_eq!(define(every_minute("tock")).unwrap_err().code(), "disk_full");
    assert_eq!(now(stage.schedules().get("tick")).unwrap().unwrap().schedule, every_minute("tick"));
}

#[test]
fn what_says_the_same_is_not_checked_again() {
    let stage = Stage::begin("2026-11-26T10:00:30Z");
    // The day on which clocks are put forward has 23 hours.
    let times = Times::cron("0 12 * * *", None, "Europe/Berlin").unwrap();
    let noon = Schedule::new("noon", "runs", times).unwrap().jitter_ms(84_600_000);
    assert_eq!(define(&stage, noon.clone()), Defined::Created);
    stage.clock.advance(60 * 86_400_000);
    assert_eq!(noon.check(stage.now()).unwrap_err().code(), "invalid_schedule");
    assert_eq!(define(&stage, noon.clone()), Defined::Unchanged);
    let refused = now(stage.schedules().define(noon.body("x"), stage.now())).unwrap().unwrap_err();
    assert_eq!(refused.code(), "invalid_schedule");
}

#[test]
fn defaults_are_not_for_the_queue_of_schedules() {
    let mut limits = Limits::default();
    limits.defaults.pause = Pause::Indefinite;
    (limits.defaults.max_pending, limits.defaults.max_leased) = (Some(1), Some(1));
    let stage = Stage::begin_with("2026-11-26T10:00:30Z", limits);
    for name in ["a", "b", "c"] {
        assert_eq!(define(&stage, every_minute(name)), Defined::Created);
    }
    assert_eq!(stage.run(), 3);
    let stats = |queue: &str| now(stage.inner.stats(queue.parse().unwrap())).unwrap().unwrap();
    // What the queue was given stays.
    let pause = vec![SettingChange::Set(Setting::Pause(Pause::Indefinite))];
    now(stage.inner.configure(QUEUE.parse().unwrap(), pause)).unwrap().unwrap();
    now(stage.schedules().keep_apart()).unwrap().unwrap();
    assert_eq!(stats(QUEUE).settings.pause, Pause::Indefinite);
    assert_eq!(stats(QUEUE).settings.max_pending, Some(Setting::MAX_COUNT));
}

#[test]
fn a_schedule_whose_run_cannot_be_put_is_tried_less_and_less_often() {
    let stage = Stage::begin("2026-11-26T10:00:30Z");
    define(&stage, every_minute("tick"));
    stage.run();
    stage.clock.advance(30_000);
    let full = Full { inner: Arc::clone(&stage.inner), of: Some("runs") };
    let runner = Runner::new(Arc::new(full) as Arc<dyn Store>, Arc::new(stage.clock.clone()));
    let mut waits = Vec::new();
    for _ in 0..7 {
        assert_eq!(now(runner.run_due()).unwrap().unwrap(), 1);
        let due = now(stage.inner.stats(QUEUE.parse().unwrap())).unwrap().unwrap().next_due.unwrap();
        let wait_ms = due.ms_since(stage.now());
        waits.push(wait_ms / 1_000);
        stage.clock.advance(wait_ms);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    assert_eq!(stage.run(), 1);
    assert_eq!(stage.runs("runs")[0], "2026-11-26T10:01:00.000Z");
}

#[test]
fn what_a_store_could_not_keep_is_refused() {
    let limits = Limits { body_len: 3, ..Limits::default() };
    let code = |schedule: Schedule| schedule.check_size(&limits).map_err(|error| error.code());
    assert_eq!(code(every_minute("tick").body("abc")), Ok(()));
    assert_eq!(code(every_minute("tick").body("abcd")), Err("body_too_large"));
    // Headers that are no longer than they may be, and twice as long as JSON.
    let quotes = "\"".repeat(Headers::MAX_LEN / 2);
    let schedule = every_minute("tick").headers(Headers::new([("h", quotes.as_str())]).unwrap());
    assert_eq!(code(schedule), Err("headers_too_large"));
}

#[test]
fn a_definition_whose_runs_could_not_be_put_is_refused() {
    let stage = Stage::begin("2026-11-26T10:00:30Z");
    // The runs have two more headers.
    let long = "x".repeat(Headers::MAX_LEN - 184);
    let schedule = every_minute(&"n".repeat(200)).headers(Headers::new([("h", long.as_str())]).unwrap());
    let refused = now(stage.schedules().define(schedule, stage.now())).unwrap().unwrap_err();
    assert_eq!(refused.code(), "headers_too_large");
    assert!(now(stage.schedules().list()).unwrap().unwrap().is_empty());
}

#[test]
fn a_paused_schedule_runs_nothing_and_goes_on_from_its_resumption() {
    let stage = Stage::begin("2026-11-26T10:00:30Z");
    define(&stage, every_minute("tick"));
    stage.run();
    let schedules = stage.schedules();
    now(schedules.pause("tick")).unwrap().unwrap();
    stage.clock.advance(10 * MINUTE_MS);
    assert_eq!(stage.run(), 0);
    let listed = now(schedules.get("tick")).unwrap().unwrap();
    assert_eq!((listed.is_paused, listed.next), (true, None));
    // A definition leaves it paused, and a manual run is put in any case.
    assert_eq!(define(&stage, every_minute("tick").body("new")), Defined::Changed);
    now(schedules.run("tick")).unwrap().unwrap();
    assert_eq!((stage.run(), stage.runs("runs")), (0, vec!["by hand".to_owned()]));
    now(schedules.resume("tick")).unwrap().unwrap();
    stage.run();
    stage.clock.advance(30_000);
    stage.run();
    assert_eq!(stage.runs("runs"), ["2026-11-26T10:11:00.000Z"]);
}

#[test]
fn a_schedule_that_is_deleted_is_gone_and_one_in_hand_is_busy() {
    let stage = Stage::begin("2026-11-26T10:00:30Z");
    define(&stage, every_minute("tick"));
    let schedules = stage.schedules();
    let held = now(stage.inner.take(Take::from(QUEUE.parse().unwrap()))).unwrap().unwrap();
    for refused in [now(schedules.delete("tick")), now(schedules.pause("tick"))] {
        let refused = refused.unwrap().unwrap_err();
        assert_eq!((refused.code(), refused.is_retryable()), ("schedule_busy", true));
    }
    let release = Action::Release { after_ms: None, priority: None };
    now(stage.inner.settle(vec![Settle { receipt: held[0].receipt.clone(), action: release }])).unwrap();
    now(schedules.delete("tick")).unwrap().unwrap();
    for refused in
        [now(schedules.delete("tick")), now(schedules.pause("tick")), now(schedules.delete("two words"))]
    {
        assert_eq!(refused.unwrap().unwrap_err().code(), "unknown_schedule");
    }
    assert_eq!(now(schedules.run("tick")).unwrap().unwrap_err().code(), "unknown_schedule");
}

#[test]
fn what_is_no_schedule_harms_no_other() {
    let stage = Stage::begin("2026-11-26T10:00:30Z");
    let stray = Put::new(QUEUE.parse().unwrap(), "stray").key("stray".try_into().unwrap());
    now(stage.inner.put(vec![stray])).unwrap();
    define(&stage, every_minute("tick"));
    stage.run();
    stage.clock.advance(30_000);
    let runner = stage.runner();
    now(runner.run_due()).unwrap().unwrap();
    assert_eq!(stage.runs("runs"), ["2026-11-26T10:01:00.000Z"]);
    let listed = now(stage.schedules().list()).unwrap().unwrap();
    let codes: Vec<&str> =
        listed.iter().map(|one| one.as_ref().map_or_else(|error| error.code(), |_| "ok")).collect();
    assert_eq!(codes.len(), 2);
    assert!(codes.contains(&"ok") && codes.contains(&"unreadable_schedule"), "{codes:?}");
}

/// Two runners in separate threads over one store, while their clock moves on.
///
/// It moves as soon as an instant has been run, often before that turn has put the next message: then the lease is over, and the
/// instant after it is missed. `Missed::All` runs it all the same; another policy may leave it out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_runners_run_each_instant_once() {
    let stage = Stage::begin("2026-11-26T10:00:00Z");
    let names: Vec<String> = (0..20).map(|number| format!("s{number}")).collect();
    for name in &names {
        let schedule = every_minute(name).jitter_ms(20_000).missed(Missed::All);
        stage.schedules().define(schedule, stage.now()).await.unwrap();
    }
    assert_eq!(stage.runner().run_due().await.unwrap(), names.len(), "all are armed");
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let runners: Vec<_> = (0..2)
        .map(|_| {
            let (runner, mut stopped) = (stage.runner(), stopped.clone());
            tokio::spawn(async move {
                let stop = async move { drop(stopped.wait_for(|stop| *stop).await) };
                runner.run_until(stop).await
            })
        })
        .collect();
    let mut seen: Vec<String> = Vec::new();
    for minute in 1..=10 {
        stage.clock.advance(MINUTE_MS);
        // The runs of this minute, delayed by jitter, and those of the one before have come: the queue of runs shows
        // it.
        let expected = if minute == 1 { 0 } else { names.len() };
        let mut come = Vec::new();
        while come.len() < expected {
            let take = Take::from("runs".parse().unwrap()).max(1_000).wait_ms(20_000);
            let taken = tokio::time::timeout(PATIENCE, stage.inner.take(take)).await.unwrap().unwrap();
            for run in taken {
                let name = run.header("dwell-schedule-name").unwrap();
                come.push(format!("{name} {}", run.header(INSTANT_HEADER).unwrap()));
                stage.inner.settle(vec![Settle { receipt: run.receipt.clone(), action: Action::Ack }]).await;
            }
        }
        seen.extend(come);
    }
    stop.send(true).unwrap();
    for runner in runners {
        tokio::time::timeout(PATIENCE, runner).await.unwrap().unwrap().unwrap();
    }
    let in_all = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), in_all, "an instant was run twice");
    assert_eq!(in_all, names.len() * 9);
    assert_eq!(stage.runs("runs"), [""; 0], "a run was put again after it was done");
}
