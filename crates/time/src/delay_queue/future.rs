//! Asynchronous operations, on any runtime or none: `put_async`, `take_async`, `take_timeout_async`, `stream`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_core::Stream;

use crate::timing_queue::Handle;

use super::error::{Closed, PutError};
use super::time;
use super::timer::Alarm;
use super::waiters::{Ticket, Wake};
use super::{DelayQueue, QueueShared};

impl<T> DelayQueue<T> {
    /// As [`put`](DelayQueue::put), but waits for room without blocking a thread.
    ///
    /// Nothing is put until the future is awaited. The delay counts from this call.
    pub fn put_async(&self, value: T, delay: Duration) -> Put<T> {
        Put::new(&self.shared, value, self.shared.time.after(delay))
    }

    /// As [`put_at`](DelayQueue::put_at), but waits for room without blocking a thread.
    ///
    /// Nothing is put until the future is awaited.
    pub fn put_at_async(&self, value: T, due: Instant) -> Put<T> {
        Put::new(&self.shared, value, time::from_instant(due))
    }

    /// As [`take`](DelayQueue::take), without blocking a thread.
    ///
    /// Dropping the future loses no item, and other waiters are still served. A future that was woken should be polled
    /// or dropped soon: until then it has its turn, and other waiters may be delayed by it, for 20 ms at most.
    pub fn take_async(&self) -> Take<T> {
        Take { turn: Turn::new(&self.shared) }
    }

    /// As [`take_timeout`](DelayQueue::take_timeout), without blocking a thread. The timeout counts from this call.
    pub fn take_timeout_async(&self, patience: Duration) -> TakeTimeout<T> {
        TakeTimeout { deadline: self.shared.time.after(patience), turn: Turn::new(&self.shared) }
    }

    /// A stream of the items as they become due. It ends when the queue is closed and no due item is left.
    ///
    /// Streams of one queue share its items, as consumers that call [`take`](DelayQueue::take) do. A stream that was
    /// polled keeps its place among the waiters until it is dropped, even if it is not polled again. If its turn comes
    /// and it is not polled, it delays the others once, for 20 ms at most.
    pub fn stream(&self) -> Items<T> {
        Items { turn: Turn::new(&self.shared) }
    }
}

/// The state of one task that waits for items.
#[derive(Debug)]
struct Turn<T> {
    queue: Arc<QueueShared<T>>,
    /// Kept from the first wait until the task receives an item.
    ticket: Option<Ticket>,
    alarm: Option<Alarm>,
}

impl<T> Turn<T> {
    fn new(queue: &Arc<QueueShared<T>>) -> Turn<T> {
        Turn { queue: Arc::clone(queue), ticket: None, alarm: None }
    }

    /// Returns `Ready` with `None` when the deadline has passed.
    fn poll(&mut self, deadline: Option<i64>, context: &mut Context<'_>) -> Poll<Result<Option<T>, Closed>> {
        let queue = &*self.queue;
        let mut wake = None;
        // Dropping a replaced waker may run arbitrary code, so that happens after the lock is released.
        let mut forgotten = Vec::new();
        let (outcome, until) = loop {
            let mut state = queue.state();
            let outcome = if let Some(item) = state.take_due(&queue.time, &queue.intake) {
                Ok(Some(item))
            } else if state.is_closed() {
                Err(Closed)
            } else if deadline.is_some_and(|at| at <= state.read_clock(&queue.time)) {
                Ok(None)
            } else {
                let Some(wake_now) = wake.take() else {
                    // The task's return is not recorded yet: if the clone panics, the task counts as not having
                    // returned.
                    queue.finish(state);
                    wake = Some(Wake::task(context.waker()));
                    continue;
                };
                let (until, replaced) = state.wait_for_item(&mut self.ticket, wake_now, deadline);
                forgotten.extend(replaced);
                if !state.watch(&queue.intake) {
                    state.bring_in(&queue.intake);
                    queue.finish(state);
                    continue;
                }
                queue.finish(state);
                break (Poll::Pending, until);
            };
            forgotten.extend(state.consumer_leaves(self.ticket.take()));
            queue.finish(state);
            break (Poll::Ready(outcome), None);
        };
        // Dropping the wakers may block, and other waiters may depend on the alarm, so the alarm is set first.
        self.set_alarm(until);
        drop(forgotten);
        outcome
    }

    fn set_alarm(&mut self, until: Option<i64>) {
        // A clock that is moved by hand calls the waiters itself when it has moved.
        let Some((at, ticket)) = until.filter(|_| self.queue.has_timer()).zip(self.ticket) else {
            self.alarm = None;
            return;
        };
        if !self.alarm.as_ref().is_some_and(|alarm| alarm.is_set_to(at)) {
            self.alarm = match self.queue.timer() {
                Ok(timer) => Some(timer.set_alarm(at, &self.queue.consumers, ticket)),
                Err(_) => {
                    // The timer's thread could not be started: the task checks again when it is next polled, and tries
                    // again.
                    self.queue.consumers.has_no_alarm(ticket);
                    None
                }
            };
        }
    }
}

impl<T> Drop for Turn<T> {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            let mut state = self.queue.state();
            let forgotten = state.consumer_leaves(self.ticket);
            // Passes on the call that this task will not answer, or the lead that it gives up.
            self.queue.finish(state);
            drop(forgotten);
        }
    }
}

/// The future of [`DelayQueue::take_async`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Take<T> {
    turn: Turn<T>,
}

impl<T> Future for Take<T> {
    type Output = Result<T, Closed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, Closed>> {
        self.get_mut()
            .turn
            .poll(None, context)
            .map_ok(|item| item.expect("a take without deadline ends with an item or an error"))
    }
}

/// The future of [`DelayQueue::take_timeout_async`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct TakeTimeout<T> {
    turn: Turn<T>,
    deadline: Option<i64>,
}

impl<T> Future for TakeTimeout<T> {
    type Output = Result<Option<T>, Closed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Option<T>, Closed>> {
        let this = self.get_mut();
        this.turn.poll(this.deadline, context)
    }
}

/// The stream of [`DelayQueue::stream`].
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Items<T> {
    turn: Turn<T>,
}

impl<T> Stream for Items<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.get_mut().turn.poll(None, context).map(|outcome| outcome.ok().flatten())
    }
}

/// The future of [`DelayQueue::put_async`] and [`DelayQueue::put_at_async`].
#[must_use = "futures do nothing unless awaited"]
pub struct Put<T> {
    queue: Arc<QueueShared<T>>,
    /// `Some` until the put is done.
    value: Option<T>,
    /// `None` if the instant is out of range.
    due: Option<i64>,
    ticket: Option<Ticket>,
}

/// The value is never pinned: it is only moved through.
impl<T> Unpin for Put<T> {}

impl<T> Put<T> {
    fn new(queue: &Arc<QueueShared<T>>, value: T, due: Option<i64>) -> Put<T> {
        Put { queue: Arc::clone(queue), value: Some(value), due, ticket: None }
    }
}

impl<T> Future for Put<T> {
    type Output = Result<Handle, PutError<T>>;

    /// # Panics
    /// If it is polled again after it has returned `Ready`.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Handle, PutError<T>>> {
        const ONCE: &str = "a future is not polled again after it was ready";
        let this = self.get_mut();
        assert!(this.value.is_some(), "{ONCE}");
        let queue = &*this.queue;
        let Some(due) = this.due else {
            return Poll::Ready(Err(PutError::TooFar(this.value.take().expect(ONCE))));
        };
        if queue.limit.is_none() {
            return Poll::Ready(queue.put_unlimited(this.value.take().expect(ONCE), due, None));
        }
        let mut wake = None;
        loop {
            let mut state = queue.state();
            if !state.is_full() || state.is_closed() {
                let value = this.value.take().expect(ONCE);
                let forgotten = state.producer_leaves(this.ticket.take());
                let is_closed = state.is_closed();
                let outcome =
                    if is_closed { Err(PutError::Closed(value)) } else { Ok(state.items.insert(due, value)) };
                queue.finish(state);
                drop(forgotten);
                return Poll::Ready(outcome);
            }
            if let Some(wake) = wake.take() {
                let forgotten = state.wait_for_room(&mut this.ticket, wake);
                queue.finish(state);
                drop(forgotten);
                return Poll::Pending;
            }
            // Cloning a waker may run arbitrary code and may panic: the lock is released first, and the value stays in
            // place.
            drop(state);
            wake = Some(Wake::task(context.waker()));
        }
    }
}

impl<T> Drop for Put<T> {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            let mut state = self.queue.state();
            let forgotten = state.producer_leaves(self.ticket);
            self.queue.finish(state);
            drop(forgotten);
        }
    }
}

impl<T> std::fmt::Debug for Put<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Put").field("done", &self.value.is_none()).finish_non_exhaustive()
    }
}
