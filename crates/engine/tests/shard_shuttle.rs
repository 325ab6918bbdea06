//! The engine's threads under a model checker: callers, their inline calls and the shard's thread are interleaved
//! deliberately at every lock, reply and sleep between them, and a schedule in which a thread waits forever is found as
//! a deadlock.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p dwell-engine --test shard_shuttle --target-dir target/shuttle`
//!
//! It is the whole engine, on a disk in memory: inbox, seat and shard are the real ones. Each scenario runs under
//! random schedules and under PCT (Burckhardt et al., "A randomized scheduler with probabilistic guarantees of finding
//! bugs", 2010); `DWELL_SHUTTLE_RUNS` sets the number of runs of each (2,000 by default). A failure prints the
//! schedule; `shuttle::replay` replays it. Time is moved by hand, and wakes no thread unless it is moved.

#![cfg(shuttle)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::Poll;

use dwell_engine::disk::{Calls, Fault, MemoryDisk};
use dwell_engine::{Engine, Options};
use dwell_model::{Now, QueueName, Timestamp, Wake};
use dwell_store::{Delivery, Error, Put, QueueStats, Result, Store as _, Take};
use dwell_time::{Clock, Notifier, Sleeper};
use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::{Config, Runner, thread};

const HOUR_MS: u64 = 3_600_000;

/// The number of calls of one caller after which it takes turns itself.
const WARM: usize = 4;

fn check(scenario: impl Fn() + Send + Sync + Clone + 'static) {
    let runs = std::env::var("DWELL_SHUTTLE_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(2_000);
    let config = || {
        let mut config = Config::new();
        // Large enough for opening an engine.
        config.stack_size = 512 * 1024;
        config
    };
    Runner::new(RandomScheduler::new(runs), config()).run(scenario.clone());
    Runner::new(PctScheduler::new(3, runs), config()).run(scenario);
}

/// A clock that a thread of the scenario moves, and at whose sleepers the model checker may switch threads.
#[derive(Clone, Debug)]
struct ModelClock(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ms: u64,
    /// For each sleeper, whether it was notified.
    notified: Vec<bool>,
    /// The thread in which reading the clock panics.
    doomed: Option<thread::ThreadId>,
}

#[derive(Debug)]
struct Place {
    number: usize,
    shared: Arc<Shared>,
}

impl ModelClock {
    fn new() -> ModelClock {
        ModelClock(Arc::new(Shared { state: Mutex::default(), moved: Condvar::new() }))
    }

    fn advance(&self, ms: u64) {
        self.0.state.lock().unwrap().ms += ms;
        self.0.moved.notify_all();
    }

    /// From now on the turns of this caller panic, and no others.
    fn doom_caller(&self) {
        self.0.state.lock().unwrap().doomed = Some(thread::current().id());
    }
}

fn at(ms: u64) -> Now {
    let wall = Timestamp::from_ms(1_795_000_000_000 + ms as i64).unwrap();
    Now { wall, mono_ms: ms }
}

impl Clock for ModelClock {
    fn now(&self) -> Now {
        let (ms, doomed) = {
            let state = self.0.state.lock().unwrap();
            (state.ms, state.doomed)
        };
        if doomed == Some(thread::current().id()) {
            // As a panic does, but without a report of each.
            resume_unwind(Box::new("a turn ends here"));
        }
        at(ms)
    }

    fn sleeper(&self) -> Box<dyn Sleeper> {
        let mut state = self.0.state.lock().unwrap();
        state.notified.push(false);
        Box::new(Place { number: state.notified.len() - 1, shared: Arc::clone(&self.0) })
    }
}

impl Sleeper for Place {
    fn sleep(&mut self, wake: Wake) {
        let mut state = self.shared.state.lock().unwrap();
        while !state.notified[self.number] && !wake.is_reached(at(state.ms)) {
            state = self.shared.moved.wait(state).unwrap();
        }
        state.notified[self.number] = false;
    }

    fn notifier(&self) -> std::sync::Arc<dyn Notifier> {
        std::sync::Arc::new(Place { number: self.number, shared: Arc::clone(&self.shared) })
    }

    fn wakeups(&self) -> u64 {
        0
    }
}

impl Notifier for Place {
    fn notify(&self) {
        self.shared.state.lock().unwrap().notified[self.number] = true;
        self.shared.moved.notify_all();
    }
}

/// The place where an engine is opened, and opened again.
#[derive(Clone)]
struct Home {
    disk: MemoryDisk,
    clock: ModelClock,
}

impl Home {
    fn new() -> Home {
        Home { disk: MemoryDisk::new(), clock: ModelClock::new() }
    }

    fn open(&self) -> Engine {
        let options = Options {
            segment_bytes: Options::MIN_SEGMENT_BYTES,
            low_water_bytes: Some(0),
            clock: std::sync::Arc::new(self.clock.clone()),
            disk: std::sync::Arc::new(self.disk.clone()),
            seed: Some(7),
            ..Options::default()
        };
        Engine::open("/data", options).unwrap()
    }
}

fn queue(name: &str) -> QueueName {
    name.parse().unwrap()
}

/// Runs `work` in a thread with its own handle of the engine.
fn with<R: Send + 'static>(
    engine: &Engine,
    work: impl FnOnce(Engine) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let engine = engine.clone();
    thread::spawn(move || work(engine))
}

fn put(engine: &Engine, put: Put) -> Result<()> {
    block_on(engine.put(vec![put])).pop().unwrap().map(drop)
}

fn take(engine: &Engine, wait_ms: u64) -> Result<Vec<Delivery>> {
    block_on(engine.take(Take::from(queue("q")).wait_ms(wait_ms)))
}

fn stats(engine: &Engine) -> Option<QueueStats> {
    match block_on(engine.stats(queue("q"))) {
        Ok(stats) => Some(stats),
        Err(error) => {
            assert_eq!(error.code(), "unknown_queue");
            None
        }
    }
}

/// Calls of one caller, until its next one is likely to be an inline call.
fn warm(engine: &Engine) {
    for _ in 0..WARM {
        put(engine, Put::new(queue("far"), "body").after_ms(HOUR_MS)).unwrap();
    }
}

/// Waits until this number of takes wait.
fn await_waiting(engine: &Engine, count: u64) {
    while stats(engine).map_or(0, |stats| stats.waiting) < count {
        thread::yield_now();
    }
}

fn polled_once<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    block_on(std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))))
}

#[test]
fn every_call_is_answered_whoever_takes_its_turn() {
    check(|| {
        let engine = Home::new().open();
        let callers =
            [engine.with_inline_calls(), engine.with_inline_calls(), engine.clone()].map(|caller| {
                with(&caller, |caller| {
                    for _ in 0..4 {
                        put(&caller, Put::new(queue("q"), "body")).unwrap();
                    }
                })
            });
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        assert_eq!(stats(&engine).unwrap().counts.ready, 12);
    });
}

/// The clock moves once, when the put was answered: the thread sleeps until the hour is over unless it is notified.
#[test]
fn the_thread_hears_of_an_instant_that_an_inline_call_brings() {
    check(|| {
        let home = Home::new();
        let engine = home.open().with_inline_calls();
        let taker = with(&engine, |engine| take(&engine, 2 * HOUR_MS));
        await_waiting(&engine, 1);
        warm(&engine);
        put(&engine, Put::new(queue("q"), "body").after_ms(10)).unwrap();
        home.clock.advance(10);
        assert_eq!(taker.join().unwrap().unwrap().len(), 1);
    });
}

/// No time passes: only the put itself can wake a waiting take.
#[test]
fn takes_are_answered_by_puts_inline_and_not() {
    check(|| {
        let engine = Home::new().open();
        let takers = [engine.with_inline_calls(), engine.clone()]
            .map(|taker| with(&taker, |taker| take(&taker, HOUR_MS)));
        let putters = [engine.with_inline_calls(), engine.clone()].map(|putter| {
            with(&putter, |putter| {
                warm(&putter);
                put(&putter, Put::new(queue("q"), "body")).unwrap();
            })
        });
        putters.into_iter().for_each(|putter| putter.join().unwrap());
        let taken = takers.map(|taker| taker.join().unwrap().unwrap());
        assert_eq!(taken.map(|deliveries| deliveries.len()), [1, 1]);
    });
}

/// The caller of a take goes away at any moment: while its command waits, while the take does, or with the message.
#[test]
fn a_caller_that_goes_away_loses_nothing() {
    check(|| {
        let engine = Home::new().open().with_inline_calls();
        let dropped = with(&engine, |engine| {
            let mut take = engine.take(Take::from(queue("q")).wait_ms(HOUR_MS));
            let polled = polled_once(&mut take);
            thread::yield_now();
            drop(take);
            matches!(polled, Poll::Ready(Ok(_)))
        });
        let putter = with(&engine, |engine| put(&engine, Put::new(queue("q"), "body")));
        let patient = with(&engine, |engine| take(&engine, HOUR_MS));
        putter.join().unwrap().unwrap();
        let had_it = dropped.join().unwrap();
        if had_it {
            put(&engine, Put::new(queue("q"), "another")).unwrap();
        }
        let taken = patient.join().unwrap().unwrap();
        let standing = &taken[0].message.standing;
        assert_eq!((taken.len(), standing.attempts, standing.counts.lapses), (1, 0, 0));
        let stats = stats(&engine).unwrap();
        assert_eq!((stats.waiting, stats.counts.ready, stats.counts.leased), (0, 0, 1 + u64::from(had_it)));
    });
}

/// Each put was done or refused, and what was done is there when the directory is opened again.
#[test]
fn a_close_answers_whoever_waits_and_loses_nothing() {
    check(|| {
        let home = Home::new();
        let engine = home.open();
        let takers = [engine.with_inline_calls(), engine.clone()]
            .map(|taker| with(&taker, |taker| take(&taker, HOUR_MS)));
        let putters = [engine.with_inline_calls(), engine.clone()].map(|putter| {
            with(&putter, |putter| {
                let puts = (0..4).map(|_| put(&putter, Put::new(queue("q"), "body")));
                let is_done = |done: Result<()>| match done {
                    Ok(()) => true,
                    Err(error) => {
                        assert_eq!(error, Error::Closed);
                        false
                    }
                };
                puts.filter(|done| is_done(done.clone())).count() as u64
            })
        });
        let closers = [(); 2].map(|()| with(&engine, |engine| engine.close()));
        let mut closed = closers.map(|closer| closer.join().unwrap());
        closed.sort_unstable_by_key(Result::is_err);
        assert_eq!(closed, [Ok(()), Err(Error::Closed)]);
        let taken: u64 = takers
            .into_iter()
            .map(|taker| match taker.join().unwrap() {
                Ok(deliveries) => deliveries.len() as u64,
                Err(error) => {
                    assert_eq!(error, Error::Closed);
                    0
                }
            })
            .sum();
        let done: u64 = putters.into_iter().map(|putter| putter.join().unwrap()).sum();
        assert_eq!(put(&engine, Put::new(queue("q"), "late")), Err(Error::Closed));
        let counts = stats(&home.open()).map(|stats| stats.counts).unwrap_or_default();
        assert_eq!((counts.ready + counts.leased, counts.leased), (done, taken));
    });
}

/// A caller's turn leaves a batch behind that found no room: the thread, which sleeps, has to retry it.
#[test]
fn a_batch_that_an_inline_call_found_no_room_for_is_tried_again() {
    check(|| {
        let home = Home::new();
        let engine = home.open().with_inline_calls();
        warm(&engine);
        let error = std::io::ErrorKind::StorageFull;
        home.disk.fail(Fault { calls: Calls::Writes, after: 0, times: 1, error });
        let putter = with(&engine, |engine| put(&engine, Put::new(queue("q"), "body")));
        let is_done = Arc::new(AtomicBool::new(false));
        let time = thread::spawn({
            let (clock, is_done) = (home.clock.clone(), Arc::clone(&is_done));
            move || {
                while !is_done.load(Ordering::SeqCst) {
                    clock.advance(100);
                    thread::yield_now();
                }
            }
        });
        putter.join().unwrap().unwrap();
        is_done.store(true, Ordering::SeqCst);
        time.join().unwrap();
        assert_eq!(stats(&engine).unwrap().counts.ready, 1);
    });
}

/// A caller's turn panics, and the shard ends with it: waiting callers get an error, and later calls are refused.
#[test]
fn a_caller_that_panics_in_its_turn_leaves_nobody_waiting() {
    static PANICS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let far = || Put::new(queue("far"), "body").after_ms(HOUR_MS);
    check(move || {
        let home = Home::new();
        let engine = home.open();
        let waiting = with(&engine, |engine| take(&engine, HOUR_MS));
        await_waiting(&engine, 1);
        let clock = home.clock.clone();
        let caller = with(&engine.with_inline_calls(), move |engine| {
            warm(&engine);
            clock.doom_caller();
            catch_unwind(AssertUnwindSafe(|| put(&engine, Put::new(queue("q"), "body")))).ok()
        });
        let other = with(&engine, move |engine| put(&engine, far()));
        let (done, waiting, other) = (caller.join().unwrap(), waiting.join().unwrap(), other.join().unwrap());
        if let Some(done) = done {
            // The shard's thread took the turn.
            assert_eq!((done, waiting.unwrap().len(), other), (Ok(()), 1, Ok(())));
            return;
        }
        PANICS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let is_gone = |error: &Error| matches!(error, Error::Closed | Error::OutcomeUnknown { .. });
        assert!(is_gone(&waiting.unwrap_err()));
        assert!(other.err().is_none_or(|error| is_gone(&error)));
        assert_eq!(put(&engine, far()), Err(Error::Closed));
        assert!(engine.close().is_err());
        drop(engine);
        assert_eq!(stats(&home.open()), None, "nothing of the put was written");
    });
    assert!(PANICS.load(std::sync::atomic::Ordering::Relaxed) > 0, "no caller took a turn");
}
