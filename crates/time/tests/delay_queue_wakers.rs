//! Wakers, formatters and tasks that panic, block or are never polled again do not affect the other users of a queue.

#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used, reason = "a test, in its helpers too")]

mod support;

use std::fmt::{self, Write};
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::thread;
use std::time::Duration;

use dwell_time::{Closed, DelayQueue};
use futures_core::Stream;
use support::{PATIENCE, await_waiting, hand_driven};

const MS: Duration = Duration::from_millis(1);

/// A waker that panics.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("this waker always panics");
    }
}

/// A waker that panics when its last clone is dropped.
struct PanicsLater;

impl Wake for PanicsLater {
    fn wake(self: Arc<Self>) {}
}

impl Drop for PanicsLater {
    fn drop(&mut self) {
        panic!("this waker panics when it is dropped");
    }
}

/// A waker that counts.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn poll_with<F: Future + Unpin>(future: &mut F, waker: impl Wake + Send + Sync + 'static) -> Poll<F::Output> {
    poll_by(future, &Arc::new(waker))
}

fn poll_by<F: Future + Unpin>(
    future: &mut F,
    waker: &Arc<impl Wake + Send + Sync + 'static>,
) -> Poll<F::Output> {
    let waker = Waker::from(Arc::clone(waker));
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

/// Runs `work` in a thread. The receiver returned receives its result.
fn in_thread<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Receiver<R> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(work()));
    told
}

#[test]
fn a_waker_that_panics_leaves_the_timer_to_the_others() {
    let (first, second) = (DelayQueue::<u32>::new(), DelayQueue::<u32>::new());
    let mut bad = first.take_timeout_async(MS);
    assert!(poll_with(&mut bad, Panics).is_pending());
    let good = in_thread(move || pollster::block_on(second.take_timeout_async(MS * 20)));
    assert_eq!(good.recv_timeout(PATIENCE), Ok(Ok(None)), "the timer goes on");
    assert_eq!(poll_with(&mut bad, Count::default()), Poll::Ready(Ok(None)));
}

#[test]
fn a_panicking_waker_of_another_task_loses_nobody_an_item() {
    type Leave = fn(&DelayQueue<u32>, dwell_time::Handle) -> Option<u32>;
    let ways: [(&str, Leave); 7] = [
        ("poll", |queue, _| queue.poll()),
        ("cancel", |queue, handle| queue.cancel(handle)),
        ("drain_due", |queue, _| queue.drain_due(1).pop()),
        ("drain", |queue, _| queue.drain().pop().map(|(_, item)| item)),
        ("take", |queue, _| queue.take().ok()),
        ("take_async", |queue, _| match poll_with(&mut queue.take_async(), Count::default()) {
            Poll::Ready(taken) => taken.ok(),
            Poll::Pending => None,
        }),
        ("a stream", |queue, _| {
            let mut stream = queue.stream();
            match Pin::new(&mut stream).poll_next(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(item) => item,
                Poll::Pending => None,
            }
        }),
    ];
    for (name, leave) in ways {
        let queue = DelayQueue::with_capacity_limit(1);
        let handle = queue.put(1, Duration::ZERO).unwrap();
        let mut waiting = queue.put_async(2, Duration::ZERO);
        assert!(poll_with(&mut waiting, Panics).is_pending());
        let left = catch_unwind(AssertUnwindSafe(|| leave(&queue, handle)));
        assert_eq!(left.ok().flatten(), Some(1), "{name}");
    }
}

#[test]
fn what_a_panicking_waker_was_woken_for_goes_to_the_next() {
    let queue = DelayQueue::new();
    let (mut bad, mut next) = (queue.take_async(), queue.take_async());
    let count = Arc::new(Count::default());
    assert!(poll_with(&mut bad, Panics).is_pending() && poll_by(&mut next, &count).is_pending());
    let put = catch_unwind(AssertUnwindSafe(|| queue.put(1, Duration::ZERO).is_ok()));
    assert_eq!((put.ok(), count.get()), (Some(true), 1));
    assert_eq!(poll_by(&mut next, &count), Poll::Ready(Ok(1)));
    // Polling it again is harmless, whatever finds out.
    assert!(poll_by(&mut bad, &count).is_pending());
    queue.put(2, Duration::ZERO).unwrap();
    assert_eq!((count.get(), poll_by(&mut bad, &count)), (2, Poll::Ready(Ok(2))));

    let queue = DelayQueue::with_capacity_limit(1);
    queue.put(1, Duration::ZERO).unwrap();
    let (mut bad, mut next) = (queue.put_async(2, MS), queue.put_async(3, MS));
    assert!(poll_with(&mut bad, Panics).is_pending() && poll_by(&mut next, &count).is_pending());
    assert_eq!(catch_unwind(AssertUnwindSafe(|| queue.poll())).ok(), Some(Some(1)));
    assert_eq!(count.get(), 3, "and so does room");
}

#[test]
fn a_leader_whose_waker_panics_loses_the_lead() {
    // A thread has its own timeout; a task is called when the leader is not.
    for is_task in [false, true] {
        let queue = DelayQueue::new();
        queue.put(1, MS * 50).unwrap();
        let mut bad = queue.take_async();
        assert!(poll_with(&mut bad, Panics).is_pending());
        let follower =
            in_thread(move || if is_task { pollster::block_on(queue.take_async()) } else { queue.take() });
        assert_eq!(follower.recv_timeout(PATIENCE), Ok(Ok(1)), "a task: {is_task}");
    }
}

#[test]
fn closing_wakes_who_waits_behind_a_panicking_waker() {
    let queue = DelayQueue::<u32>::with_capacity_limit(1);
    let mut bad = queue.take_async();
    assert!(poll_with(&mut bad, Panics).is_pending());
    let blocked = in_thread({
        let queue = queue.clone();
        move || queue.take()
    });
    await_waiting(&queue, 2);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.close())).is_ok());
    assert_eq!(blocked.recv_timeout(PATIENCE), Ok(Err(Closed)));
}

#[test]
fn closing_wakes_a_thread_though_the_waker_of_a_task_blocks() {
    let queue = DelayQueue::<u32>::new();
    let ((tell, begun), (let_go, go_on)) = (mpsc::channel(), mpsc::channel());
    let holds = Holds { begun: Mutex::new(tell), go_on: Mutex::new(go_on) };
    let mut bad = queue.take_async();
    assert!(poll_with(&mut bad, holds).is_pending());
    let blocked = in_thread({
        let queue = queue.clone();
        move || queue.take()
    });
    await_waiting(&queue, 2);
    let closed = in_thread({
        let queue = queue.clone();
        move || queue.close()
    });
    begun.recv_timeout(PATIENCE).expect("the task is woken");
    assert_eq!(blocked.recv_timeout(PATIENCE), Ok(Err(Closed)));
    let_go.send(()).unwrap();
    assert_eq!(closed.recv_timeout(PATIENCE), Ok(()));
}

#[test]
fn room_reaches_a_thread_though_the_waker_of_the_next_consumer_blocks() {
    let queue = DelayQueue::with_capacity_limit(2);
    queue.put(1, MS * 100).unwrap();
    queue.put(2, PATIENCE * 10).unwrap();
    let first = in_thread({
        let queue = queue.clone();
        move || queue.take()
    });
    await_waiting(&queue, 1);
    let ((tell, begun), (let_go, go_on)) = (mpsc::channel(), mpsc::channel());
    let holds = Holds { begun: Mutex::new(tell), go_on: Mutex::new(go_on) };
    let mut next = queue.take_async();
    assert!(poll_with(&mut next, holds).is_pending());
    // It waits for room long before the first item is due.
    let put = in_thread({
        let queue = queue.clone();
        move || queue.put(3, PATIENCE * 10).is_ok()
    });
    begun.recv_timeout(PATIENCE).expect("whoever takes the first item calls the next consumer");
    assert_eq!(put.recv_timeout(PATIENCE), Ok(true));
    assert!(first.try_recv().is_err(), "it is where the waker holds it");
    let_go.send(()).unwrap();
    assert_eq!(first.recv_timeout(PATIENCE), Ok(Ok(1)));
}

#[test]
fn a_clock_moved_by_hand_wakes_who_waits_behind_a_panicking_waker() {
    let (queue, clock) = hand_driven::<u32>();
    let (mut bad, mut good) = (queue.take_timeout_async(MS), queue.take_timeout_async(MS));
    let count = Arc::new(Count::default());
    assert!(poll_with(&mut bad, Panics).is_pending() && poll_by(&mut good, &count).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| clock.advance(1))).is_ok());
    assert_eq!((count.get(), poll_by(&mut good, &count)), (1, Poll::Ready(Ok(None))));
}

#[test]
fn a_waker_that_panics_when_dropped_loses_no_item() {
    let queue = DelayQueue::new();
    let (mut called, mut waiting) = (queue.take_async(), queue.take_async());
    let count = Arc::new(Count::default());
    assert!(poll_by(&mut called, &count).is_pending() && poll_with(&mut waiting, PanicsLater).is_pending());
    queue.put(1, Duration::ZERO).unwrap();
    assert_eq!(count.get(), 1);
    let polled = catch_unwind(AssertUnwindSafe(|| poll_by(&mut waiting, &count)));
    assert_eq!(polled.ok(), Some(Poll::Ready(Ok(1))));
}

#[test]
fn a_stream_that_is_kept_and_not_polled_delays_others_once() {
    let (queue, clock) = hand_driven();
    queue.put(1, MS * 100).unwrap();
    let mut stream = queue.stream();
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut stream).poll_next(&mut context).is_pending());
    let (mut follower, count) = (queue.take_async(), Arc::new(Count::default()));
    assert!(poll_by(&mut follower, &count).is_pending());
    clock.advance(100);
    assert_eq!(count.get(), 0, "it is the stream's turn");
    clock.advance(20);
    assert_eq!((count.get(), poll_by(&mut follower, &count)), (1, Poll::Ready(Ok(1))));
    // From now on it delays no other waiter, until it is polled again.
    let mut follower = queue.take_async();
    assert!(poll_by(&mut follower, &count).is_pending());
    queue.put(2, Duration::ZERO).unwrap();
    assert_eq!((count.get(), poll_by(&mut follower, &count)), (2, Poll::Ready(Ok(2))));
    queue.put(3, Duration::ZERO).unwrap();
    assert_eq!(Pin::new(&mut stream).poll_next(&mut context), Poll::Ready(Some(3)));
}

#[test]
fn a_stream_that_is_kept_and_not_polled_delays_a_thread_once() {
    for delay in [Duration::ZERO, MS * 5] {
        let queue = DelayQueue::new();
        if delay > Duration::ZERO {
            queue.put(1, delay).unwrap();
        }
        let mut stream = queue.stream();
        assert!(Pin::new(&mut stream).poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
        let follower = in_thread({
            let queue = queue.clone();
            move || queue.take()
        });
        if delay == Duration::ZERO {
            // Called by the put, not by a timer, and not polled either.
            await_waiting(&queue, 2);
            queue.put(1, delay).unwrap();
        }
        assert_eq!(follower.recv_timeout(PATIENCE), Ok(Ok(1)), "due in {delay:?}");
    }
}

#[test]
fn a_put_that_is_kept_and_not_polled_delays_another_once() {
    let queue = DelayQueue::with_capacity_limit(1);
    queue.put(1, Duration::ZERO).unwrap();
    let mut kept = queue.put_async(2, Duration::ZERO);
    assert!(poll_with(&mut kept, Count::default()).is_pending());
    let (mut next, count) = (queue.put_async(3, Duration::ZERO), Arc::new(SendingWaker::default()));
    let told = count.told();
    assert!(poll_by(&mut next, &count).is_pending());
    assert_eq!(queue.poll(), Some(1));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(()));
    assert!(matches!(poll_by(&mut next, &count), Poll::Ready(Ok(_))));
}

/// A waker that sends to a channel.
#[derive(Default)]
struct SendingWaker(Mutex<Option<Sender<()>>>);

impl SendingWaker {
    fn told(&self) -> Receiver<()> {
        let (tell, told) = mpsc::channel();
        *self.0.lock().unwrap() = Some(tell);
        told
    }
}

impl Wake for SendingWaker {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().as_ref().map(|tell| tell.send(()));
    }
}

/// A waker that blocks until it is released, as a thread does that is preempted there.
struct Blocks(Mutex<Receiver<()>>);

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().recv_timeout(PATIENCE * 2);
    }
}

#[test]
fn a_producer_that_is_stopped_before_it_wakes_a_task_delays_others_once() {
    let queue = DelayQueue::new();
    let (go_on, blocked) = mpsc::channel();
    let mut task = queue.take_async();
    assert!(poll_with(&mut task, Blocks(Mutex::new(blocked))).is_pending());
    let follower = in_thread({
        let queue = queue.clone();
        move || queue.take()
    });
    await_waiting(&queue, 2);
    let producer = in_thread({
        let queue = queue.clone();
        move || queue.put(1, Duration::ZERO).is_ok()
    });
    assert_eq!(follower.recv_timeout(PATIENCE), Ok(Ok(1)));
    assert!(producer.try_recv().is_err(), "it is where it was stopped");
    go_on.send(()).unwrap();
    assert_eq!(producer.recv_timeout(PATIENCE), Ok(true));
}

/// A waker that blocks the thread that calls it until it is released, and reports that it blocks.
struct Holds {
    begun: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl Wake for Holds {
    fn wake(self: Arc<Self>) {
        let _ = self.begun.lock().unwrap().send(());
        let _ = self.go_on.lock().unwrap().recv_timeout(PATIENCE * 2);
    }
}

/// Blocks the timer of all tasks of the process with the waker of another queue, until the returned sender is dropped.
fn hold_timer() -> Sender<()> {
    let ((tell, begun), (let_go, go_on)) = (mpsc::channel(), mpsc::channel());
    let queue = DelayQueue::<u32>::new();
    let mut bad = queue.take_timeout_async(MS);
    let holds = Holds { begun: Mutex::new(tell), go_on: Mutex::new(go_on) };
    assert!(poll_with(&mut bad, holds).is_pending());
    begun.recv_timeout(PATIENCE).expect("the timer rings");
    let_go
}

#[test]
fn no_thread_waits_for_the_timer_of_tasks() {
    let (queue, held) = (DelayQueue::new(), hold_timer());
    queue.put(1, MS * 20).unwrap();
    let mut leads = queue.take_async();
    assert!(poll_with(&mut leads, Count::default()).is_pending());
    let thread = in_thread({
        let queue = queue.clone();
        move || queue.take()
    });
    assert_eq!(thread.recv_timeout(PATIENCE), Ok(Ok(1)), "it came after a task that leads");
    drop((leads, held));

    let (queue, held) = (DelayQueue::new(), hold_timer());
    let (mut leads, count) = (queue.take_async(), Arc::new(Count::default()));
    assert!(poll_by(&mut leads, &count).is_pending());
    let thread = in_thread({
        let queue = queue.clone();
        move || queue.take()
    });
    await_waiting(&queue, 2);
    queue.put(1, MS * 20).unwrap();
    assert_eq!(count.get(), 1, "who has waited longest is called");
    assert!(poll_by(&mut leads, &count).is_pending());
    assert_eq!(thread.recv_timeout(PATIENCE), Ok(Ok(1)), "it was there before a task that leads");
    drop(held);
}

/// A waker that blocks the thread that drops its last clone until it is released, and reports that it blocks.
struct HoldsWhenDropped(Holds);

impl Wake for HoldsWhenDropped {
    fn wake(self: Arc<Self>) {}
}

impl Drop for HoldsWhenDropped {
    fn drop(&mut self) {
        let Holds { begun, go_on } = &self.0;
        let _ = begun.lock().unwrap().send(());
        let _ = go_on.lock().unwrap().recv_timeout(PATIENCE * 2);
    }
}

#[test]
fn a_waker_that_blocks_when_dropped_leaves_its_leader_with_a_timer() {
    let queue = DelayQueue::new();
    let ((tell, begun), (let_go, go_on)) = (mpsc::channel(), mpsc::channel());
    let holds = Holds { begun: Mutex::new(tell), go_on: Mutex::new(go_on) };
    let (mut first, mut second) = (queue.take_async(), queue.take_async());
    assert!(poll_with(&mut first, Count::default()).is_pending());
    assert!(poll_with(&mut second, HoldsWhenDropped(holds)).is_pending());
    queue.put(1, MS * 20).unwrap();
    // The first task was called. The second is polled again before the first returns, leads, and is stopped where its
    // old waker is dropped.
    let leads = in_thread(move || {
        let pending = poll_with(&mut second, Count::default()).is_pending();
        (pending, second)
    });
    begun.recv_timeout(PATIENCE).expect("its old waker is dropped");
    let waker = Arc::new(SendingWaker::default());
    let told = waker.told();
    assert!(poll_by(&mut first, &waker).is_pending());
    assert_eq!(told.recv_timeout(PATIENCE), Ok(()), "the leader's timer has rung, and it was not back");
    assert_eq!(poll_by(&mut first, &waker), Poll::Ready(Ok(1)));
    let_go.send(()).unwrap();
    assert!(leads.recv_timeout(PATIENCE).unwrap().0);
}

/// Calls the queue while the queue's `Debug` output is written to it.
struct Curious<'a>(&'a DelayQueue<u32>, Vec<usize>);

impl Write for Curious<'_> {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        self.1.push(self.0.len());
        Ok(())
    }
}

#[test]
fn a_formatter_may_use_the_queue() {
    let queue = DelayQueue::new();
    queue.put(1, MS).unwrap();
    let written = in_thread(move || {
        let mut curious = Curious(&queue, Vec::new());
        write!(curious, "{queue:?}").unwrap();
        curious.1
    });
    let asked = written.recv_timeout(PATIENCE).expect("the queue's lock is not held while it is written");
    assert!(!asked.is_empty() && asked.iter().all(|len| *len == 1));
}

/// What is done when a waker is cloned.
type OnClone = Box<dyn Fn() + Send + Sync>;

/// A waker that does something when it is cloned. Its clones only count.
fn waker_that_is_cloned(on_clone: OnClone, count: &Arc<Count>) -> Waker {
    struct Cloned(OnClone, Arc<Count>);
    const CLONED: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop);
    #[expect(unsafe_code, reason = "only a vtable of one's own tells when a waker is cloned")]
    fn clone(data: *const ()) -> RawWaker {
        // SAFETY: `data` is a `Cloned`, which is borrowed for the call.
        let cloned = unsafe { &*data.cast::<Cloned>() };
        cloned.0();
        let waker = ManuallyDrop::new(Waker::from(Arc::clone(&cloned.1)));
        RawWaker::new(waker.data(), waker.vtable())
    }
    fn wake(data: *const ()) {
        wake_by_ref(data);
        drop(data);
    }
    fn wake_by_ref(_: *const ()) {}
    #[expect(unsafe_code, reason = "as above")]
    fn drop(data: *const ()) {
        // SAFETY: `data` came from a box, and this is its last use.
        std::mem::drop(unsafe { Box::from_raw(data.cast_mut().cast::<Cloned>()) });
    }
    let data: *const Cloned = Box::into_raw(Box::new(Cloned(on_clone, Arc::clone(count))));
    #[expect(unsafe_code, reason = "as above")]
    // SAFETY: the functions uphold the contract of a vtable, and what they share may be used by all threads.
    unsafe {
        Waker::from_raw(RawWaker::new(data.cast(), &CLONED))
    }
}

#[test]
fn a_waker_may_use_the_queue_when_it_is_cloned() {
    let asked = in_thread(|| {
        let queue = DelayQueue::with_capacity_limit(1);
        let count = Arc::new(Count::default());
        let asks = {
            let (queue, count): (DelayQueue<u32>, _) = (queue.clone(), Arc::clone(&count));
            move || {
                let queue = queue.clone();
                waker_that_is_cloned(Box::new(move || assert!(queue.len() < 2)), &count)
            }
        };
        let mut take = queue.take_async();
        assert!(Pin::new(&mut take).poll(&mut Context::from_waker(&asks())).is_pending());
        queue.put(1, Duration::ZERO).unwrap();
        assert_eq!(count.get(), 1);
        let mut put = queue.put_async(2, Duration::ZERO);
        assert!(Pin::new(&mut put).poll(&mut Context::from_waker(&asks())).is_pending());
        assert_eq!(queue.poll(), Some(1));
        count.get()
    });
    assert_eq!(asked.recv_timeout(PATIENCE), Ok(2), "no lock is held while a waker is cloned");
}

#[test]
fn a_waker_that_panics_when_cloned_leaves_its_turn_to_the_next() {
    let panics = || waker_that_is_cloned(Box::new(|| panic!("this waker is never cloned")), &Arc::default());
    let queue = DelayQueue::new();
    let (mut bad, mut next) = (queue.take_async(), queue.take_async());
    let count = Arc::new(Count::default());
    assert!(poll_with(&mut bad, Count::default()).is_pending() && poll_by(&mut next, &count).is_pending());
    // It is called, finds that another consumer was faster, and cannot wait again.
    queue.put(1, Duration::ZERO).unwrap();
    assert_eq!(queue.poll(), Some(1));
    let waker = panics();
    let polled = catch_unwind(AssertUnwindSafe(|| {
        Pin::new(&mut bad).poll(&mut Context::from_waker(&waker)).is_pending()
    }));
    assert!(polled.is_err());
    drop(bad);
    queue.put(2, Duration::ZERO).unwrap();
    assert_eq!((count.get(), poll_by(&mut next, &count)), (1, Poll::Ready(Ok(2))));
    assert_eq!(queue.waiting(), 0);

    let queue = DelayQueue::with_capacity_limit(1);
    queue.put(1, Duration::ZERO).unwrap();
    let mut bad = queue.put_async(2, Duration::ZERO);
    let polled = catch_unwind(AssertUnwindSafe(|| {
        Pin::new(&mut bad).poll(&mut Context::from_waker(&waker)).is_pending()
    }));
    assert!(polled.is_err());
    assert_eq!(queue.poll(), Some(1));
    assert!(matches!(poll_by(&mut bad, &count), Poll::Ready(Ok(_))), "the value is where it was");
    assert_eq!(queue.poll(), Some(2));
}

/// Records the number of items when it is woken.
struct Looks(DelayQueue<u32>, Mutex<Vec<usize>>);

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0.len());
    }
}

#[test]
fn who_takes_many_lets_others_in_between() {
    const ITEMS: usize = 5_000;
    type TakeMany = fn(&DelayQueue<u32>) -> usize;
    let ways: [(&str, TakeMany); 3] = [
        ("drain_due", |queue| queue.drain_due(usize::MAX).len()),
        ("drain", |queue| queue.drain().len()),
        ("clear", |queue| {
            queue.clear();
            ITEMS
        }),
    ];
    for (name, take_many) in ways {
        let queue = DelayQueue::with_capacity_limit(ITEMS);
        for n in 0..ITEMS as u32 {
            queue.put(n, Duration::ZERO).unwrap();
        }
        let mut put = queue.put_async(7, Duration::ZERO);
        let looks = Arc::new(Looks(queue.clone(), Mutex::default()));
        assert!(poll_by(&mut put, &looks).is_pending());
        assert_eq!(take_many(&queue), ITEMS, "{name}");
        let seen = looks.1.lock().unwrap().clone();
        assert!(
            seen.len() == 1 && seen[0] >= ITEMS / 2,
            "{name}: {seen:?} items were in when there was room"
        );
        assert!(queue.is_empty());
    }
}

#[test]
fn many_leave_in_order_though_others_put_meanwhile() {
    let queue = DelayQueue::new();
    let producer = in_thread({
        let queue = queue.clone();
        move || {
            for n in 0..50_000_u32 {
                queue.put(n, MS * (n * 7_919 % 1_000)).unwrap();
            }
        }
    });
    let mut count = 0;
    while count < 50_000 {
        let drained = queue.drain();
        assert!(drained.is_sorted_by_key(|(due, _)| *due));
        count += drained.len();
        thread::yield_now();
    }
    producer.recv_timeout(PATIENCE).unwrap();
    assert!(queue.is_empty());
}
