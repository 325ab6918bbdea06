//! The engine with its thread: waiting, waking, giving back, closing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use dwell_engine::disk::MemoryDisk;
use dwell_engine::{Durability, Engine, OpenError, Options};
use dwell_model::StateKind;
use dwell_store::{Action, Error, Put, Settle, Store, Take};
use dwell_time::{ManualClock, SystemClock};
use pollster::block_on;

use crate::support::{dir, options, queue, start};

const PATIENCE: Duration = Duration::from_secs(30);

fn engine(clock: &ManualClock) -> Engine {
    Engine::open(dir(), options(&MemoryDisk::new(), clock)).unwrap()
}

/// Runs `work` in a thread; its result can be awaited with a timeout.
fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
    let (say, hear) = mpsc::channel();
    thread::spawn(move || {
        let _ = say.send(work());
    });
    hear
}

#[test]
fn a_waiting_take_is_woken_at_the_instant_and_an_idle_engine_does_not_run() {
    let clock = ManualClock::new(start());
    let engine = engine(&clock);
    let store = engine.blocking();
    store.put_one(Put::new(queue("q"), "body").after_ms(5_000)).unwrap();
    let waiting = engine.blocking();
    let taken = spawn(move || waiting.take(Take::from(queue("q")).wait_ms(60_000)));
    while store.stats(queue("q")).unwrap().waiting == 0 {
        thread::yield_now();
    }
    assert!(clock.await_asleep(1, PATIENCE));
    let before = engine.counters();
    clock.advance(4_999);
    assert!(clock.await_asleep(1, PATIENCE));
    assert!(taken.try_recv().is_err(), "one millisecond is missing");
    assert_eq!(engine.counters().batches, before.batches);
    clock.advance(1);
    let taken = taken.recv_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(taken[0].message.body, "body");
    assert_eq!(taken[0].lateness_ms, 0);
}

#[test]
fn an_idle_engine_with_waiting_takes_is_not_woken_by_the_real_clock() {
    let disk = MemoryDisk::new();
    let options =
        Options { clock: Arc::new(SystemClock::new()), ..options(&disk, &ManualClock::new(start())) };
    let engine = Engine::open(dir(), options).unwrap();
    let store = engine.blocking();
    store.put_one(Put::new(queue("q"), "far").after_ms(3_600_000)).unwrap();
    let waiting = engine.blocking();
    let taken = spawn(move || waiting.take(Take::from(queue("q")).wait_ms(2_000)));
    while store.stats(queue("q")).unwrap().waiting == 0 {
        thread::yield_now();
    }
    let before = engine.counters().wakeups;
    assert_eq!(taken.recv_timeout(PATIENCE).unwrap().unwrap(), []);
    let woken = engine.counters().wakeups - before;
    // One for the command above, if it was not asleep again yet, and one for the end of the wait.
    assert!(woken <= 3, "{woken} wake-ups in 2 s with nothing to do");
}

#[test]
fn a_take_that_is_dropped_gives_its_messages_back_at_once_and_spends_no_attempt() {
    let clock = ManualClock::new(start());
    let engine = engine(&clock);
    let store = engine.blocking();
    // Dropped while it waits.
    let mut waiting = Box::pin(engine.take(Take::from(queue("q")).wait_ms(60_000)));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    while store.stats(queue("q")).map_or(0, |stats| stats.waiting) == 0 {
        thread::yield_now();
    }
    drop(waiting);
    // The drop is a command like any other, and comes before the next one.
    assert_eq!(store.stats(queue("q")).unwrap_err().code(), "unknown_queue");
    // Dropped with an answer that was not read.
    let mut waiting = Box::pin(engine.take(Take::from(queue("q")).wait_ms(60_000)));
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    store.put_one(Put::new(queue("q"), "body")).unwrap();
    while store.stats(queue("q")).unwrap().counts.leased == 0 {
        thread::yield_now();
    }
    drop(waiting);
    let taken = store.take(Take::from(queue("q"))).unwrap();
    let standing = &taken[0].message.standing;
    assert_eq!((standing.attempts, standing.counts.takes, standing.counts.lapses), (0, 2, 0));
}

#[test]
fn a_close_answers_waiting_takes_with_nothing_and_later_calls_with_closed() {
    let clock = ManualClock::new(start());
    let engine = engine(&clock);
    let store = engine.blocking();
    let waiting = engine.blocking();
    let taken = spawn(move || waiting.take(Take::from(queue("q")).wait_ms(60_000)));
    while store.stats(queue("q")).map_or(0, |stats| stats.waiting) == 0 {
        thread::yield_now();
    }
    engine.close().unwrap();
    assert_eq!(taken.recv_timeout(PATIENCE).unwrap(), Ok(Vec::new()));
    assert_eq!(store.put_one(Put::new(queue("q"), "late")), Err(Error::Closed));
    assert_eq!(engine.close(), Err(Error::Closed));
}

#[test]
fn callers_share_syncs() {
    let clock = ManualClock::new(start());
    let engine = engine(&clock);
    let before = engine.counters();
    let calls: Vec<_> = (0..64)
        .map(|i| {
            let store = engine.blocking();
            spawn(move || {
                for j in 0..50 {
                    store.put_one(Put::new(queue("q"), format!("{i}/{j}"))).unwrap();
                }
            })
        })
        .collect();
    for call in calls {
        call.recv_timeout(PATIENCE).unwrap();
    }
    let after = engine.counters();
    assert_eq!(after.commands - before.commands, 64 * 50);
    assert_eq!(engine.blocking().stats(queue("q")).unwrap().counts.ready, 64 * 50);
    assert!(after.syncs - before.syncs <= after.batches - before.batches);
}

#[test]
fn futures_of_any_runtime_are_answered() {
    let clock = ManualClock::new(start());
    let engine = engine(&clock);
    block_on(async {
        let puts = (0..10).map(|i| Put::new(queue("q"), format!("{i}"))).collect();
        assert!(engine.put(puts).await.iter().all(Result::is_ok));
        let taken = engine.take(Take::from(queue("q")).max(10)).await.unwrap();
        let settles =
            taken.into_iter().map(|taken| Settle { receipt: taken.receipt, action: Action::Ack }).collect();
        assert!(engine.settle(settles).await.iter().all(Result::is_ok));
        let ready = engine.list(queue("q"), StateKind::Ready, None, 10).await;
        assert_eq!(ready.unwrap_err().code(), "unknown_queue");
    });
}

/// Crash story: 1. Messages that expire are written to tables. 2. All of them are purged. 3. Their expiry comes. 4.
/// Nothing is cold, so nothing is looked at, and the files report forever that something has expired: the thread does
/// not sleep again.
#[test]
fn an_engine_sleeps_though_what_has_expired_in_files_is_all_gone() {
    const HOUR_MS: u64 = 3_600_000;
    let clock = ManualClock::new(start());
    let (memory_limit, segment_bytes) = (64 * 1024, 64 * 1024);
    let options = Options { memory_limit, segment_bytes, ..options(&MemoryDisk::new(), &clock) };
    let engine = Engine::open(dir(), options).unwrap();
    let store = engine.blocking();
    let expires = Some(start().after(2 * HOUR_MS).unwrap());
    for i in 0..400 {
        let put = Put { expires, ..Put::new(queue("q"), format!("{i}")).after_ms(HOUR_MS) };
        store.put_one(put).unwrap();
    }
    while engine.counters().flushes == 0 {
        thread::yield_now();
    }
    assert_eq!(store.purge(queue("q")), Ok(400));
    clock.advance(2 * HOUR_MS + 10_001);
    assert!(clock.await_asleep(1, PATIENCE), "the thread finds something to do again and again");
}

/// Crash story: 1. A put fills a segment. 2. At the end of the interval the next one is begun, and what is before it
/// synced. 3. Nothing is left to be synced, but the time since which something waits for a sync stays set: the thread
/// does not sleep again.
#[test]
fn an_interval_that_ends_with_a_new_segment_and_nothing_in_it_is_over() {
    let clock = ManualClock::new(start());
    let (durability, segment_bytes) = (Durability::IntervalMs(50), 4096);
    let options = Options { durability, segment_bytes, ..options(&MemoryDisk::new(), &clock) };
    let engine = Engine::open(dir(), options).unwrap();
    engine.blocking().put_one(Put::new(queue("q"), vec![7; 5_000]).after_ms(3_600_000)).unwrap();
    assert!(clock.await_asleep(1, PATIENCE));
    let segments = engine.counters().segments;
    clock.advance(50);
    assert!(clock.await_asleep(1, PATIENCE), "the thread finds something to sync again and again");
    assert_eq!(engine.counters().segments, segments + 1);
}

/// A task that drops its future, and the engine with it, on the thread that wakes it.
struct DropsItsFuture {
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    dropped: mpsc::Sender<thread::Result<()>>,
}

impl Wake for DropsItsFuture {
    fn wake(self: Arc<DropsItsFuture>) {
        let future = self.future.lock().unwrap().take();
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(future)));
        let _ = self.dropped.send(dropped);
    }
}

/// Crash story: 1. An executor drops a task when it is woken, which is done by the thread of the engine. 2. The task
/// has the last handle of the engine, which closes it and waits for its thread: for itself.
#[test]
fn the_last_handle_may_be_dropped_by_the_thread_of_the_engine() {
    let disk = MemoryDisk::new();
    let clock = ManualClock::new(start());
    let engine = Engine::open(dir(), options(&disk, &clock)).unwrap();
    engine.blocking().put_one(Put::new(queue("q"), "body").after_ms(5_000)).unwrap();
    let (say, hear) = mpsc::channel();
    let task = Arc::new(DropsItsFuture { future: Mutex::new(None), dropped: say });
    let mut future: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
        let _ = engine.take(Take::from(queue("q")).wait_ms(60_000)).await;
    });
    let waker = Waker::from(Arc::clone(&task));
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    *task.future.lock().unwrap() = Some(future);
    assert!(clock.await_asleep(1, PATIENCE));
    clock.advance(5_000);
    assert!(hear.recv_timeout(PATIENCE).unwrap().is_ok(), "it waits for itself");
    let (say, hear) = mpsc::channel();
    thread::spawn(move || {
        while let Err(OpenError::Locked { .. }) = Engine::open(dir(), options(&disk, &clock)).map(drop) {
            thread::yield_now();
        }
        let _ = say.send(());
    });
    hear.recv_timeout(PATIENCE).expect("the thread has ended, and let the directory go");
}
