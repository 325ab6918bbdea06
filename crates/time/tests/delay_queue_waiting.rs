//! Which event wakes which waiter: leader and followers, dropped futures, deadlines, streams, and any runtime.
//!
//! Futures are polled by hand with wakers that count, so that "only the leader was woken" can be asserted.

#![cfg(not(shuttle))]

mod support;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use dwell_time::{Closed, DelayQueue, PutError};
use futures_core::Stream;
use support::{PATIENCE, await_that, await_waiting, hand_driven};

const MS: Duration = Duration::from_millis(1);

/// Counts how often it was woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future with its own counting waker.
struct Task<F> {
    future: F,
    count: Arc<Count>,
}

impl<F: Future + Unpin> Task<F> {
    fn new(future: F) -> Task<F> {
        Task { future, count: Arc::default() }
    }

    fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(&self.count));
        Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker))
    }

    fn woken(&self) -> usize {
        self.count.0.load(Ordering::SeqCst)
    }
}

#[test]
fn a_put_of_an_earlier_head_wakes_exactly_the_leader() {
    let (queue, _clock) = hand_driven();
    queue.put(1, MS * 100).unwrap();
    let mut tasks: Vec<_> = (0..5).map(|_| Task::new(queue.take_async())).collect();
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    queue.put(2, MS * 200).unwrap();
    assert!(tasks.iter().all(|task| task.woken() == 0), "a later item wakes nobody");
    queue.put(3, MS * 50).unwrap();
    let woken: Vec<_> = tasks.iter().map(Task::woken).collect();
    assert_eq!(woken, [1, 0, 0, 0, 0]);
    assert!(tasks[0].poll().is_pending());
    let handle = queue.put(4, MS * 300).unwrap();
    assert!(queue.reschedule(handle, MS * 10));
    let woken: Vec<_> = tasks.iter().map(Task::woken).collect();
    assert_eq!(woken, [2, 0, 0, 0, 0], "a reschedule to the head is a put of an earlier head");
}

#[test]
fn a_thousand_that_wait_are_woken_one_by_one() {
    let (queue, clock) = hand_driven();
    let mut tasks: Vec<_> = (0..1_000).map(|_| Task::new(queue.take_async())).collect();
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    assert_eq!(queue.waiting(), 1_000);
    queue.put(1, MS * 10).unwrap();
    queue.put(2, MS * 20).unwrap();
    assert!(tasks[0].poll().is_pending(), "the first put made it look, and it leads now");
    clock.advance(10);
    assert_eq!(tasks.iter().map(Task::woken).sum::<usize>(), 2);
    assert_eq!(tasks[0].poll(), Poll::Ready(Ok(1)));
    assert_eq!(tasks[1].woken(), 1, "the lead is passed on, to whoever has waited longest");
    assert_eq!(tasks.iter().map(Task::woken).sum::<usize>(), 3);
}

#[test]
fn a_dropped_leader_passes_the_lead_on() {
    let (queue, clock) = hand_driven();
    queue.put(1, MS * 10).unwrap();
    let (mut leader, mut follower) = (Task::new(queue.take_async()), Task::new(queue.take_async()));
    assert!(leader.poll().is_pending() && follower.poll().is_pending());
    drop(leader);
    assert_eq!(follower.woken(), 1);
    assert!(follower.poll().is_pending());
    clock.advance(10);
    assert_eq!(follower.woken(), 2);
    assert_eq!(follower.poll(), Poll::Ready(Ok(1)));
}

#[test]
fn a_dropped_future_that_was_woken_passes_the_call_on() {
    let queue = DelayQueue::new();
    let (mut called, mut next) = (Task::new(queue.take_async()), Task::new(queue.take_async()));
    assert!(called.poll().is_pending() && next.poll().is_pending());
    queue.put(1, Duration::ZERO).unwrap();
    assert_eq!((called.woken(), next.woken()), (1, 0));
    drop(called);
    assert_eq!(next.woken(), 1);
    assert_eq!(next.poll(), Poll::Ready(Ok(1)), "no item is lost with the future");
}

#[test]
fn a_dropped_future_that_was_never_polled_is_nobody() {
    let queue = DelayQueue::new();
    drop(queue.take_async());
    drop(queue.put_async(1, MS));
    assert_eq!((queue.waiting(), queue.len()), (0, 0));
}

#[test]
fn a_polling_passer_by_takes_the_item_and_the_woken_one_waits_on() {
    let queue = DelayQueue::new();
    let mut task = Task::new(queue.take_async());
    assert!(task.poll().is_pending());
    queue.put(1, Duration::ZERO).unwrap();
    assert_eq!(queue.poll(), Some(1));
    assert!(task.poll().is_pending());
    queue.put(2, Duration::ZERO).unwrap();
    assert_eq!(task.woken(), 2);
    assert_eq!(task.poll(), Poll::Ready(Ok(2)));
}

#[test]
fn a_task_that_moves_to_another_waker_is_woken_there() {
    let queue = DelayQueue::new();
    let mut task = Task::new(queue.take_async());
    assert!(task.poll().is_pending());
    let old = std::mem::take(&mut task.count);
    assert!(task.poll().is_pending());
    queue.put(1, Duration::ZERO).unwrap();
    assert_eq!((old.0.load(Ordering::SeqCst), task.woken()), (0, 1));
}

#[test]
fn a_deadline_passes_the_lead_on() {
    let (queue, clock) = hand_driven();
    queue.put(1, MS * 50).unwrap();
    let mut hasty = Task::new(queue.take_timeout_async(MS * 10));
    let mut patient = Task::new(queue.take_async());
    assert!(hasty.poll().is_pending() && patient.poll().is_pending());
    clock.advance(10);
    assert_eq!(hasty.poll(), Poll::Ready(Ok(None)));
    assert!(patient.woken() >= 1 && patient.poll().is_pending());
    let before = patient.woken();
    clock.advance(40);
    assert_eq!(patient.woken(), before + 1);
    assert_eq!(patient.poll(), Poll::Ready(Ok(1)));
}

#[test]
fn closing_wakes_tasks_with_an_error_and_ends_streams() {
    let (queue, _clock) = hand_driven();
    queue.put(1, MS).unwrap();
    let mut take = Task::new(queue.take_async());
    let mut stream = queue.stream();
    let mut context = Context::from_waker(Waker::noop());
    assert!(take.poll().is_pending() && Pin::new(&mut stream).poll_next(&mut context).is_pending());
    queue.close();
    assert_eq!(take.woken(), 1);
    assert_eq!(take.poll(), Poll::Ready(Err(Closed)));
    assert_eq!(Pin::new(&mut stream).poll_next(&mut context), Poll::Ready(None));
    assert_eq!(queue.waiting(), 0);
}

#[test]
fn a_stream_yields_items_as_they_fall_due() {
    let (queue, clock) = hand_driven();
    for n in 1..=3 {
        queue.put(n, MS * n).unwrap();
    }
    let mut stream = queue.stream();
    let mut context = Context::from_waker(Waker::noop());
    for n in 1..=3 {
        assert!(Pin::new(&mut stream).poll_next(&mut context).is_pending());
        clock.advance(1);
        assert_eq!(Pin::new(&mut stream).poll_next(&mut context), Poll::Ready(Some(n)));
    }
}

#[test]
fn a_put_that_waits_for_room_is_woken_by_whatever_makes_room() {
    type MakeRoom = fn(&DelayQueue<u32>, dwell_time::Handle);
    let ways: [MakeRoom; 5] = [
        |queue, _| assert!(queue.poll().is_some()),
        |queue, handle| assert!(queue.cancel(handle).is_some()),
        |queue, _| assert_eq!(queue.drain_due(1).len(), 1),
        |queue, _| assert_eq!(queue.drain().len(), 1),
        |queue, _| queue.clear(),
    ];
    for make_room in ways {
        let queue = DelayQueue::with_capacity_limit(1);
        let handle = queue.put(1, Duration::ZERO).unwrap();
        let (mut first, mut second) = (Task::new(queue.put_async(2, MS)), Task::new(queue.put_async(3, MS)));
        assert!(first.poll().is_pending() && second.poll().is_pending());
        make_room(&queue, handle);
        assert_eq!((first.woken(), second.woken()), (1, 0));
        drop(first);
        assert_eq!(second.woken(), 1, "room that the first one leaves goes to the second");
        assert!(second.poll().is_ready());
        assert_eq!(queue.len(), 1);
    }
}

#[test]
fn room_for_many_reaches_all_who_wait_for_it() {
    let queue = DelayQueue::with_capacity_limit(3);
    (0..3).for_each(|n| {
        queue.put(n, Duration::ZERO).unwrap();
    });
    let mut puts: Vec<_> = (3..6).map(|n| Task::new(queue.put_async(n, Duration::ZERO))).collect();
    assert!(puts.iter_mut().all(|put| put.poll().is_pending()));
    assert_eq!(queue.drain_due(3), [0, 1, 2]);
    for put in &mut puts {
        assert_eq!(put.woken(), 1);
        assert!(put.poll().is_ready());
    }
    assert_eq!(queue.drain_due(9), [3, 4, 5]);
}

#[test]
fn a_put_that_is_refused_gives_the_value_back() {
    let queue = DelayQueue::with_capacity_limit(1);
    assert!(matches!(
        Task::new(queue.put_async("far", Duration::MAX)).poll(),
        Poll::Ready(Err(PutError::TooFar("far")))
    ));
    queue.put("in", MS).unwrap();
    let mut waiting = Task::new(queue.put_async("waits", MS));
    assert!(waiting.poll().is_pending());
    queue.close();
    assert_eq!(waiting.woken(), 1);
    assert!(matches!(waiting.poll(), Poll::Ready(Err(PutError::Closed("waits")))));
}

#[test]
fn tasks_wait_on_the_real_clock_without_a_runtime() {
    let queue = DelayQueue::new();
    let at = queue.now() + MS * 5;
    queue.put_at("in 5 ms", at).unwrap();
    assert_eq!(pollster::block_on(queue.take_async()), Ok("in 5 ms"));
    assert!(queue.now() >= at);
    assert_eq!(pollster::block_on(queue.take_timeout_async(MS * 2)), Ok(None));
}

#[test]
fn an_earlier_put_shortens_the_wait_on_the_real_clock() {
    let queue = DelayQueue::new();
    queue.put("far", PATIENCE * 10).unwrap();
    let threads = [
        thread::spawn({
            let queue = queue.clone();
            move || queue.take()
        }),
        thread::spawn({
            let queue = queue.clone();
            move || pollster::block_on(queue.take_async())
        }),
    ];
    await_waiting(&queue, 2);
    queue.put("near", MS).unwrap();
    queue.put("near", MS * 2).unwrap();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), Ok("near"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tokio_tasks_share_a_queue() {
    const TASKS: u32 = 50;
    const ITEMS: u32 = 40;
    let queue = DelayQueue::new();
    let consumers: Vec<_> = (0..TASKS)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let mut taken = Vec::new();
                for _ in 0..ITEMS {
                    let (due, n) = queue.take_async().await.unwrap();
                    assert!(queue.now() >= due, "never early");
                    taken.push(n);
                }
                taken
            })
        })
        .collect();
    for n in 0..TASKS * ITEMS {
        let due = queue.now() + Duration::from_micros(u64::from(n * 7919 % 5_000));
        queue.put_at((due, n), due).unwrap();
    }
    let mut all = Vec::new();
    for consumer in consumers {
        all.extend(tokio::time::timeout(PATIENCE, consumer).await.expect("no wake-up is lost").unwrap());
    }
    all.sort_unstable();
    assert_eq!(all, (0..TASKS * ITEMS).collect::<Vec<_>>());
}

#[test]
fn a_spinning_consumer_is_on_time_and_hears_of_an_earlier_head() {
    let queue: DelayQueue<u32> = DelayQueue::builder().spin(PATIENCE).build();
    queue.put(1, PATIENCE * 10).unwrap();
    let consumer = thread::spawn({
        let queue = queue.clone();
        move || queue.take_timeout(PATIENCE)
    });
    await_waiting(&queue, 1);
    let due = queue.now() + MS;
    queue.put_at(2, due).unwrap();
    assert_eq!(consumer.join().unwrap(), Ok(Some(2)));
    assert!(queue.now() >= due);
}

#[test]
fn heads_that_are_near_are_waited_for_and_none_is_early() {
    const ITEMS: u32 = 3_000;
    let queue = DelayQueue::new();
    let consumers = [0, 1].map(|_| {
        let queue = queue.clone();
        thread::spawn(move || {
            let mut taken = Vec::new();
            loop {
                match queue.take_timeout(PATIENCE) {
                    Ok(Some((due, n))) => {
                        assert!(queue.now() >= due, "item {n} is early");
                        taken.push(n);
                    }
                    Ok(None) => panic!("{} items were taken, and no more came", taken.len()),
                    Err(Closed) => return taken,
                }
            }
        })
    });
    // Near the distance below which a consumer polls instead of blocking, and often before a head that is waited for.
    for n in 0..ITEMS {
        let due = queue.now() + Duration::from_micros(u64::from(n * 7_919 % 45));
        queue.put_at((due, n), due).unwrap();
    }
    await_that("the consumers to empty the queue", || queue.is_empty());
    queue.close();
    let mut all: Vec<u32> = consumers.into_iter().flat_map(|consumer| consumer.join().unwrap()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..ITEMS).collect::<Vec<_>>());
}

#[test]
fn a_patience_that_ends_before_a_near_head_ends_the_wait() {
    let queue = DelayQueue::new();
    for _ in 0..500 {
        let due = queue.now() + Duration::from_micros(15);
        queue.put_at(due, due).unwrap();
        match queue.take_timeout(Duration::from_nanos(500)) {
            // A consumer that was preempted for a while finds it due.
            Ok(taken) => taken.into_iter().for_each(|due| assert!(queue.now() >= due)),
            Err(Closed) => unreachable!("nobody closes it"),
        }
        queue.clear();
    }
}

#[test]
fn a_queue_that_is_dropped_with_its_clock_alive_is_forgotten_by_it() {
    let (queue, clock) = hand_driven::<u32>();
    let mut task = Task::new(queue.take_timeout_async(MS));
    assert!(task.poll().is_pending());
    drop((queue, task));
    clock.advance(1);
    await_that("nothing", || true);
}
