//! The concurrent queue under a model checker: threads are interleaved deliberately at every lock and every wait, and a
//! schedule in which a waiter is never woken is found as a deadlock.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p dwell-time --test delay_queue_shuttle --target-dir target/shuttle`
//!
//! Each scenario runs with a queue that puts directly until threads contend, and with one that uses its intake from the
//! first put on, under random schedules and under PCT (Burckhardt et al., "A randomized scheduler with probabilistic
//! guarantees of finding bugs", 2010). `DWELL_SHUTTLE_RUNS` is the number of runs of each (2,000 by default). A failure
//! prints the schedule; `shuttle::replay` replays it. Time is moved by hand, by a thread of the scenario, and calls the
//! waiters; or it is moved for the timer alone, which then runs in a thread as the process's timer does, and whose
//! alarms and watches are all that wakes tasks.
//!
//! All atomics are sequentially consistent here, whatever ordering the code uses: bugs that a weaker ordering would
//! allow are not found.

#![cfg(shuttle)]

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use dwell_model::Timestamp;
use dwell_time::{Closed, DelayQueue, ManualClock};
use shuttle::future::block_on;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;

const MS: Duration = Duration::from_millis(1);

fn check(scenario: impl Fn() + Send + Sync + Clone + 'static) {
    let runs = std::env::var("DWELL_SHUTTLE_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(2_000);
    for uses_intake in [false, true] {
        USES_INTAKE.set(uses_intake);
        shuttle::check_random(scenario.clone(), runs);
        shuttle::check_pct(scenario.clone(), runs, 3);
    }
}

std::thread_local! {
    /// Local to each test: the model checker runs a test's threads in one thread of the system.
    static USES_INTAKE: Cell<bool> = const { Cell::new(false) };
}

/// A queue whose intake, if it is used, already has handles: the first put of a queue bypasses it.
fn queue() -> (DelayQueue<u32>, ManualClock) {
    let clock = ManualClock::new(Timestamp::MIN);
    let queue = DelayQueue::builder().clock(&clock).build();
    if USES_INTAKE.get() {
        queue.use_intake();
    }
    let first = queue.put(0, Duration::ZERO).unwrap();
    queue.cancel(first).unwrap();
    (queue, clock)
}

/// A queue whose tasks are woken by alarms, and the thread that runs these.
fn queue_with_alarms() -> (DelayQueue<u32>, ManualClock, Alarms) {
    let clock = ManualClock::new(Timestamp::MIN);
    let (queue, run, stop) = DelayQueue::builder().build_with_alarms(&clock);
    if USES_INTAKE.get() {
        queue.use_intake();
    }
    let first = queue.put(0, Duration::ZERO).unwrap();
    queue.cancel(first).unwrap();
    (queue, clock, Alarms { thread: thread::spawn(run), stop: Box::new(stop) })
}

struct Alarms {
    thread: thread::JoinHandle<()>,
    stop: Box<dyn FnOnce() + Send>,
}

impl Alarms {
    fn stop(self) {
        (self.stop)();
        self.thread.join().unwrap();
    }
}

/// Runs `work` in a thread with another handle to the queue.
fn with<R: Send + 'static>(
    queue: &DelayQueue<u32>,
    work: impl FnOnce(DelayQueue<u32>) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let queue = queue.clone();
    thread::spawn(move || work(queue))
}

/// Moves the clock until `done` is set.
fn pass_time(clock: ManualClock, done: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let done = Arc::clone(done);
    thread::spawn(move || {
        while !done.load(Ordering::SeqCst) {
            clock.advance(1);
            thread::yield_now();
        }
    })
}

#[test]
fn no_wake_up_is_lost_between_producers_and_consumers() {
    check(|| {
        let (queue, _clock) = queue();
        let consumers =
            [with(&queue, |queue| queue.take()), with(&queue, |queue| block_on(queue.take_async()))];
        let producers = [1, 2].map(|n| with(&queue, move |queue| queue.put(n, Duration::ZERO).map(drop)));
        let mut taken = consumers.map(|consumer| consumer.join().unwrap().unwrap());
        producers.into_iter().for_each(|producer| producer.join().unwrap().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    });
}

#[test]
fn the_lead_is_not_lost_when_an_earlier_head_comes_while_time_passes() {
    check(|| {
        let (queue, clock) = queue();
        queue.put(2, MS * 2).unwrap();
        let consumers =
            [with(&queue, |queue| queue.take()), with(&queue, |queue| block_on(queue.take_async()))];
        let producer = with(&queue, |queue| queue.put(1, MS).map(drop));
        let done = Arc::new(AtomicBool::new(false));
        let time = pass_time(clock, &done);
        let mut taken = consumers.map(|consumer| consumer.join().unwrap().unwrap());
        producer.join().unwrap().unwrap();
        done.store(true, Ordering::SeqCst);
        time.join().unwrap();
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    });
}

#[test]
fn nobody_sleeps_through_an_earlier_head() {
    check(|| {
        let (queue, _clock) = queue();
        let far = queue.put(0, MS * 3_600_000).unwrap();
        let later = queue.put(1, MS * 3_600_000).unwrap();
        let consumers =
            [with(&queue, |queue| queue.take()), with(&queue, |queue| block_on(queue.take_async()))];
        let producer = with(&queue, |queue| queue.put(2, Duration::ZERO).map(drop));
        let rescheduler = with(&queue, move |queue| queue.reschedule(later, Duration::ZERO));
        let mut taken = consumers.map(|consumer| consumer.join().unwrap().unwrap());
        producer.join().unwrap().unwrap();
        assert!(rescheduler.join().unwrap());
        taken.sort_unstable();
        assert_eq!((taken, queue.cancel(far)), ([1, 2], Some(0)));
    });
}

#[test]
fn the_lead_is_not_lost_with_a_deadline() {
    check(|| {
        let (queue, clock) = queue();
        queue.put(1, MS * 2).unwrap();
        let hasty = with(&queue, |queue| queue.take_timeout(MS));
        let patient = with(&queue, |queue| queue.take_timeout(MS * 50));
        let done = Arc::new(AtomicBool::new(false));
        let time = pass_time(clock, &done);
        let outcomes = [hasty.join().unwrap(), patient.join().unwrap()];
        done.store(true, Ordering::SeqCst);
        time.join().unwrap();
        assert!(
            outcomes.contains(&Ok(Some(1))) && outcomes.contains(&Ok(None)) || outcomes[1] == Ok(Some(1))
        );
    });
}

fn polled_once<F: Future + Unpin>(future: &mut F) -> std::task::Poll<F::Output> {
    block_on(std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context))
    }))
}

#[test]
fn a_dropped_future_loses_neither_item_nor_lead() {
    check(|| {
        let (queue, clock) = queue();
        queue.put(1, MS).unwrap();
        // Polled once, then dropped at an arbitrary point: as the leader, as a follower, or after it was called.
        let dropped = with(&queue, |queue| {
            let mut take = queue.take_async();
            let polled = polled_once(&mut take);
            thread::yield_now();
            drop(take);
            match polled {
                std::task::Poll::Ready(Ok(item)) => Some(item),
                _ => None,
            }
        });
        let consumer = with(&queue, |queue| queue.take());
        let producer = with(&queue, |queue| queue.put(2, Duration::ZERO).map(drop));
        let done = Arc::new(AtomicBool::new(false));
        let time = pass_time(clock, &done);
        let dropped = dropped.join().unwrap();
        producer.join().unwrap().unwrap();
        let taken = consumer.join().unwrap().unwrap();
        done.store(true, Ordering::SeqCst);
        time.join().unwrap();
        let left = queue.drain().into_iter().map(|(_, item)| item);
        let mut all: Vec<u32> = left.chain([taken]).chain(dropped).collect();
        all.sort_unstable();
        assert_eq!(all, [1, 2], "each item is in one place");
    });
}

/// The clock stands still: only the drop itself can call the other consumer.
#[test]
fn a_dropped_future_passes_its_call_on_while_no_time_passes() {
    check(|| {
        let (queue, _clock) = queue();
        let dropped = with(&queue, |queue| {
            let mut take = queue.take_async();
            let polled = polled_once(&mut take);
            thread::yield_now();
            drop(take);
            matches!(polled, std::task::Poll::Ready(Ok(_)))
        });
        let consumer = with(&queue, |queue| queue.take());
        let producer = with(&queue, |queue| queue.put(1, Duration::ZERO).map(drop));
        if dropped.join().unwrap() {
            queue.put(2, Duration::ZERO).unwrap();
        }
        consumer.join().unwrap().unwrap();
        producer.join().unwrap().unwrap();
        assert!(queue.is_empty());
    });
}

#[test]
fn closing_ends_every_wait() {
    check(|| {
        let clock = ManualClock::new(Timestamp::MIN);
        let queue: DelayQueue<u32> = DelayQueue::builder().clock(&clock).capacity_limit(1).build();
        queue.put(1, MS).unwrap();
        let consumers =
            [with(&queue, |queue| queue.take()), with(&queue, |queue| block_on(queue.take_async()))];
        let producers = [
            with(&queue, |queue| queue.put(2, MS).is_err()),
            with(&queue, |queue| block_on(queue.put_async(3, MS)).is_err()),
        ];
        let closer = with(&queue, |queue| queue.close());
        assert!(consumers.map(|consumer| consumer.join().unwrap()) == [Err(Closed); 2]);
        assert!(producers.map(|producer| producer.join().unwrap()) == [true; 2]);
        closer.join().unwrap();
        assert_eq!(queue.drain().len(), 1);
    });
}

#[test]
fn room_is_not_lost_among_producers() {
    check(|| {
        let clock = ManualClock::new(Timestamp::MIN);
        let queue: DelayQueue<u32> = DelayQueue::builder().clock(&clock).capacity_limit(1).build();
        let producers = [
            with(&queue, |queue| queue.put(1, Duration::ZERO).map(drop)),
            with(&queue, |queue| block_on(queue.put_async(2, Duration::ZERO)).map(drop)),
        ];
        // Gives up its place while it waits for room.
        let fickle = with(&queue, |queue| {
            let mut put = queue.put_async(3, Duration::ZERO);
            block_on(std::future::poll_fn(|context| {
                std::task::Poll::Ready(std::pin::Pin::new(&mut put).poll(context))
            }))
            .is_ready()
        });
        let mut taken = vec![queue.take().unwrap(), queue.take().unwrap()];
        producers.into_iter().for_each(|producer| producer.join().unwrap().unwrap());
        if fickle.join().unwrap() {
            taken.push(queue.take().unwrap());
        }
        taken.retain(|item| *item != 3);
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    });
}

#[test]
fn cancels_and_reschedules_strand_nobody() {
    check(|| {
        let (queue, clock) = queue();
        let head = queue.put(1, MS).unwrap();
        let other = queue.put(2, MS * 3).unwrap();
        let consumer = with(&queue, |queue| queue.take());
        let canceller = with(&queue, move |queue| queue.cancel(head));
        let rescheduler = with(&queue, move |queue| queue.reschedule(other, MS));
        let done = Arc::new(AtomicBool::new(false));
        let time = pass_time(clock, &done);
        let taken = consumer.join().unwrap().unwrap();
        let cancelled = canceller.join().unwrap();
        rescheduler.join().unwrap();
        done.store(true, Ordering::SeqCst);
        time.join().unwrap();
        assert_eq!(taken == 1, cancelled.is_none(), "cancelled or taken, not both");
    });
}

/// More items than the intake holds at first, from producers that contend for it: it fills, and is split into trays.
#[test]
fn nothing_is_lost_in_a_crowded_intake() {
    check(|| {
        let (queue, _clock) = queue();
        let producers = [0, 10, 20].map(|from| {
            with(&queue, move |queue| {
                for n in from..from + 5 {
                    queue.put(n, Duration::ZERO).unwrap();
                }
            })
        });
        let consumers = [
            with(&queue, |queue| [queue.take(), queue.take(), queue.take()].map(Result::unwrap)),
            with(&queue, |queue| [0, 1, 2].map(|_| block_on(queue.take_async()).unwrap())),
        ];
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        let taken = consumers.map(|consumer| consumer.join().unwrap());
        for of_one in &taken {
            for from in [0, 10, 20] {
                let of_producer = of_one.iter().filter(|item| (from..from + 5).contains(*item));
                assert!(of_producer.is_sorted(), "items of one instant and one producer leave in order");
            }
        }
        let left = std::iter::from_fn(|| queue.poll());
        let mut all: Vec<u32> = taken.into_iter().flatten().chain(left).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq([0, 10, 20].into_iter().flat_map(|from| from..from + 5)));
    });
}

/// An item is visible to every thread once its put has returned, whatever tray it is in.
#[test]
fn a_put_that_returned_is_seen_by_all_that_begins_then() {
    check(|| {
        let (queue, _clock) = queue();
        let crowd = [1, 2].map(|n| with(&queue, move |queue| queue.put(n, MS).map(drop)));
        let (tell, told) = shuttle::sync::mpsc::channel();
        let producer = with(&queue, move |queue| {
            let near = queue.put(3, Duration::ZERO).unwrap();
            let far = queue.put(4, MS * 2).unwrap();
            tell.send((near, far)).unwrap();
        });
        let (near, far) = told.recv().unwrap();
        assert!(queue.len() >= 2);
        assert_eq!(queue.peek_due(), Some(queue.now()));
        assert_eq!(queue.poll(), Some(3));
        assert_eq!(queue.cancel(near), None);
        assert!(queue.reschedule(far, MS * 3));
        assert_eq!(queue.cancel(far), Some(4));
        producer.join().unwrap();
        crowd.into_iter().for_each(|producer| producer.join().unwrap().unwrap());
        assert_eq!(queue.drain().len(), 2);
    });
}

/// Of several items of one instant, the one that was put first leaves first, even if other threads put the others.
#[test]
fn puts_of_several_threads_keep_their_order() {
    check(|| {
        let (queue, _clock) = queue();
        let crowd = with(&queue, |queue| [8, 9].map(|n| queue.put(n, Duration::ZERO).unwrap()));
        let (first_done, after_first) = shuttle::sync::mpsc::channel();
        let (second_done, after_second) = shuttle::sync::mpsc::channel();
        let first = with(&queue, move |queue| {
            queue.put(1, Duration::ZERO).unwrap();
            first_done.send(()).unwrap();
        });
        let second = with(&queue, move |queue| {
            after_first.recv().unwrap();
            queue.put(2, Duration::ZERO).unwrap();
            second_done.send(()).unwrap();
        });
        let looker = with(&queue, |queue| queue.len());
        after_second.recv().unwrap();
        queue.put(3, Duration::ZERO).unwrap();
        let mut taken: Vec<u32> = std::iter::from_fn(|| queue.poll()).collect();
        [first, second].into_iter().for_each(|producer| producer.join().unwrap());
        crowd.join().unwrap();
        looker.join().unwrap();
        taken.retain(|item| *item < 8);
        assert_eq!(taken, [1, 2, 3]);
    });
}

/// A put is refused, or its item is among those that are left.
#[test]
fn no_put_slips_past_a_close() {
    check(|| {
        let (queue, _clock) = queue();
        let producers = [1, 2, 3].map(|n| {
            with(&queue, move |queue| queue.put(n, MS).map(|_| n).map_err(|refused| refused.into_value()))
        });
        queue.close();
        let mut left: Vec<u32> = queue.drain().into_iter().map(|(_, item)| item).collect();
        let outcomes = producers.map(|producer| producer.join().unwrap());
        assert!(queue.is_empty());
        let mut put: Vec<u32> = outcomes.into_iter().filter_map(Result::ok).collect();
        left.sort_unstable();
        put.sort_unstable();
        assert_eq!(left, put);
    });
}

/// Only an alarm wakes a task when an instant comes.
#[test]
fn no_alarm_is_lost_when_an_earlier_head_comes() {
    check(|| {
        let (queue, clock, alarms) = queue_with_alarms();
        queue.put(2, MS * 2).unwrap();
        let consumers = [(); 2].map(|()| with(&queue, |queue| block_on(queue.take_async())));
        let producer = with(&queue, |queue| queue.put(1, MS).map(drop));
        let done = Arc::new(AtomicBool::new(false));
        let time = pass_time(clock, &done);
        let mut taken = consumers.map(|consumer| consumer.join().unwrap().unwrap());
        producer.join().unwrap().unwrap();
        done.store(true, Ordering::SeqCst);
        time.join().unwrap();
        alarms.stop();
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    });
}

#[test]
fn alarms_end_deadlines_and_pass_the_lead_on() {
    check(|| {
        let (queue, clock, alarms) = queue_with_alarms();
        queue.put(1, MS * 2).unwrap();
        let hasty = with(&queue, |queue| block_on(queue.take_timeout_async(MS)));
        let patient = with(&queue, |queue| block_on(queue.take_timeout_async(MS * 500)));
        let done = Arc::new(AtomicBool::new(false));
        let time = pass_time(clock, &done);
        let outcomes = [hasty.join().unwrap(), patient.join().unwrap()];
        done.store(true, Ordering::SeqCst);
        time.join().unwrap();
        alarms.stop();
        assert!(outcomes == [Ok(None), Ok(Some(1))] || outcomes[0] == Ok(Some(1)), "{outcomes:?}");
    });
}

/// A task that was called, by its alarm or by a put, and never looks at the queue: the watch passes its call to the
/// next one.
#[test]
fn a_future_that_is_kept_unpolled_holds_nobody_up() {
    check(|| {
        let (queue, clock, alarms) = queue_with_alarms();
        let kept = with(&queue, |queue| {
            let mut take = queue.take_async();
            (polled_once(&mut take), take)
        });
        let consumer = with(&queue, |queue| block_on(queue.take_async()));
        let producer = with(&queue, |queue| {
            queue.put(1, MS).unwrap();
            queue.put(2, MS).unwrap();
        });
        let done = Arc::new(AtomicBool::new(false));
        let time = pass_time(clock, &done);
        let taken = consumer.join().unwrap().unwrap();
        producer.join().unwrap();
        let (polled, kept) = kept.join().unwrap();
        done.store(true, Ordering::SeqCst);
        time.join().unwrap();
        alarms.stop();
        let polled = match polled {
            std::task::Poll::Ready(item) => Some(item.unwrap()),
            std::task::Poll::Pending => None,
        };
        drop(kept);
        let left = queue.drain().into_iter().map(|(_, item)| item);
        let mut all: Vec<u32> = left.chain([taken]).chain(polled).collect();
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
    });
}
