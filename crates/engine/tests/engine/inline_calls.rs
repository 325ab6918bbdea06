//! Callers that take turns themselves while they are alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use dwell_engine::disk::MemoryDisk;
use dwell_engine::{Engine, Options};
use dwell_model::Now;
use dwell_store::{Blocking, Error, Put, Store, Take};
use dwell_time::{Clock, ManualClock, Sleeper};

use crate::support::{Driven, dir, options, queue, start};

const PATIENCE: Duration = Duration::from_secs(30);
const HOUR_MS: u64 = 3_600_000;

/// The minimum number of calls until a caller takes turns.
const WARM: usize = 100;

fn put_far(store: &Blocking<Engine>, count: usize) {
    for _ in 0..count {
        store.put_one(Put::new(queue("far"), "body").after_ms(HOUR_MS)).unwrap();
    }
}

#[test]
fn a_caller_that_comes_alone_wakes_nobody() {
    let clock = ManualClock::new(start());
    let engine = Engine::open(dir(), options(&MemoryDisk::new(), &clock)).unwrap();
    let store = engine.blocking();
    put_far(&store, WARM);
    let before = engine.counters();
    put_far(&store, 3_000);
    let after = engine.counters();
    assert_eq!((after.commands - before.commands, after.syncs - before.syncs >= 3_000), (3_000, true));
    // A turn that the machine delayed hands the next ones to the thread, and so does the end of a segment.
    let woken = after.wakeups - before.wakeups;
    assert!(woken < 1_500, "{woken} wake-ups for 3,000 puts");
    assert_eq!(store.stats(queue("far")).unwrap().counts.scheduled, WARM as u64 + 3_000);
    engine.close().unwrap();
    assert_eq!(store.put_one(Put::new(queue("far"), "late")), Err(Error::Closed));
}

#[test]
fn the_thread_hears_of_an_instant_that_is_earlier_than_what_it_sleeps_for() {
    let clock = ManualClock::new(start());
    let engine = Engine::open(dir(), options(&MemoryDisk::new(), &clock)).unwrap();
    let store = engine.blocking();
    put_far(&store, WARM);
    let (waiting, (say, hear)) = (engine.blocking(), mpsc::channel());
    let taker = thread::spawn(move || {
        for _ in 0..50 {
            let taken = waiting.take(Take::from(queue("near")).wait_ms(HOUR_MS)).unwrap();
            say.send(taken.len()).unwrap();
        }
    });
    for round in 0..50 {
        while store.stats(queue("near")).map_or(0, |stats| stats.waiting) == 0 {
            thread::yield_now();
        }
        put_far(&store, WARM);
        store.put_one(Put::new(queue("near"), "body").after_ms(10)).unwrap();
        assert!(clock.await_asleep(1, PATIENCE));
        clock.advance(9);
        assert!(hear.try_recv().is_err(), "round {round}: one millisecond is missing");
        clock.advance(1);
        assert_eq!(hear.recv_timeout(PATIENCE), Ok(1), "round {round}");
    }
    taker.join().unwrap();
}

#[test]
fn callers_together_and_alone_are_all_answered() {
    let clock = ManualClock::new(start());
    let engine = Engine::open(dir(), options(&MemoryDisk::new(), &clock)).unwrap();
    let (say, hear) = mpsc::channel();
    for caller in 0..4 {
        let (store, say) = (engine.blocking(), say.clone());
        thread::spawn(move || {
            for i in 0..2_000 {
                // From time to time it pauses, so that the others come together or alone.
                if i % (97 + caller) == 0 {
                    thread::yield_now();
                }
                store.put_one(Put::new(queue("q"), format!("{caller}/{i}"))).unwrap();
            }
            say.send(()).unwrap();
        });
    }
    for _ in 0..4 {
        hear.recv_timeout(PATIENCE).unwrap();
    }
    assert_eq!(engine.blocking().stats(queue("q")).unwrap().counts.ready, 4 * 2_000);
}

/// Panics when it is read, once it is armed.
#[derive(Debug)]
struct Trap {
    clock: ManualClock,
    is_armed: Arc<AtomicBool>,
}

impl Clock for Trap {
    fn now(&self) -> Now {
        assert!(!self.is_armed.load(Ordering::SeqCst), "the trap");
        self.clock.now()
    }

    fn sleeper(&self) -> Box<dyn Sleeper> {
        self.clock.sleeper()
    }
}

#[test]
fn a_turn_that_panics_leaves_nobody_waiting() {
    let clock = ManualClock::new(start());
    let is_armed = Arc::new(AtomicBool::new(false));
    let trap = Arc::new(Trap { clock: clock.clone(), is_armed: Arc::clone(&is_armed) });
    let options = Options { clock: trap, ..options(&MemoryDisk::new(), &clock) };
    let engine = Engine::open(dir(), options).unwrap();
    let (waiting, (say, hear)) = (engine.blocking(), mpsc::channel());
    thread::spawn(move || say.send(waiting.take(Take::from(queue("q")).wait_ms(HOUR_MS))).unwrap());
    let store = engine.blocking();
    while store.stats(queue("q")).map_or(0, |stats| stats.waiting) == 0 {
        thread::yield_now();
    }
    put_far(&store, WARM);
    is_armed.store(true, Ordering::SeqCst);
    // Whichever thread took the turn: the caller gets an error one way or the other. If the engine's thread met the
    // trap first, in its own turn, the put finds the engine closed.
    match catch_unwind(AssertUnwindSafe(|| store.put_one(Put::new(queue("q"), "body")))) {
        Err(_) => {}
        Ok(answer) => assert!(["outcome_unknown", "closed"].contains(&answer.unwrap_err().code())),
    }
    let waited = hear.recv_timeout(PATIENCE).unwrap();
    assert_eq!(waited.unwrap_err().code(), "outcome_unknown");
    while store.put_one(Put::new(queue("q"), "body")) != Err(Error::Closed) {
        thread::yield_now();
    }
}

/// Panics when it is woken.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker of somebody else's");
    }
}

#[test]
fn a_waker_that_panics_ends_no_turn_and_costs_nobody_an_answer() {
    let mut store = Driven::new();
    let engine = store.engine.clone();
    let waker = Waker::from(Arc::new(Panics));
    let panics = &mut Context::from_waker(&waker);
    let noop = &mut Context::from_waker(Waker::noop());
    let take = || engine.take(Take::from(queue("q")).wait_ms(HOUR_MS));
    let (mut first, mut second) = (take(), take());
    let mut put = engine.put(vec![Put::new(queue("q"), "1"), Put::new(queue("q"), "2")]);
    assert!(first.as_mut().poll(panics).is_pending());
    assert!(second.as_mut().poll(panics).is_pending());
    assert!(put.as_mut().poll(panics).is_pending());
    assert_eq!(catch_unwind(AssertUnwindSafe(|| store.driver.turn())).ok(), Some(true), "it is open");
    assert!(matches!(put.as_mut().poll(noop), Poll::Ready(answers) if answers.iter().all(Result::is_ok)));
    for take in [first.as_mut(), second.as_mut()] {
        assert!(matches!(take.poll(noop), Poll::Ready(Ok(taken)) if taken.len() == 1));
    }
    // Nor does one of those that are dropped when no thread is left to answer them.
    let mut last = pin!(take());
    assert!(last.as_mut().poll(panics).is_pending());
    store.driver.turn();
    let Driven { driver, .. } = store;
    assert!(catch_unwind(AssertUnwindSafe(|| drop(driver))).is_ok());
    assert!(matches!(last.as_mut().poll(noop), Poll::Ready(Err(_))));
}
