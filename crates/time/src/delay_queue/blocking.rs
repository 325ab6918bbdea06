//! Blocking operations: `put` on a bounded queue, `take`, `take_timeout`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::timing_queue::Handle;

use super::error::{Closed, PutError};
use super::state::QueueState;
use super::sync::Guard;
use super::time::{self, Time};
use super::timer::FineTimer;
use super::waiters::{BlockedWaiter, Wake};
use super::{DelayQueue, QueueShared};

impl<T> DelayQueue<T> {
    /// Puts `value`, which becomes due after `delay`.
    ///
    /// Blocks while the queue has a capacity limit and is full. The delay counts from the call.
    ///
    /// # Errors
    /// [`PutError::Closed`] and [`PutError::TooFar`], with the value.
    pub fn put(&self, value: T, delay: Duration) -> Result<Handle, PutError<T>> {
        match self.shared.time.now_and_after(delay) {
            Some((now, due)) => self.shared.put(value, due, Some(now)),
            None => Err(PutError::TooFar(value)),
        }
    }

    /// Puts `value`, which becomes due at `due`: at once if that instant has passed.
    ///
    /// Blocks as [`put`](DelayQueue::put) does.
    ///
    /// # Errors
    /// The same as [`put`](DelayQueue::put).
    pub fn put_at(&self, value: T, due: Instant) -> Result<Handle, PutError<T>> {
        match time::from_instant(due) {
            Some(due) => self.shared.put(value, due, None),
            None => Err(PutError::TooFar(value)),
        }
    }

    /// Takes the earliest item as soon as it is due; blocks the thread until then.
    ///
    /// # Errors
    /// [`Closed`] if the queue is or becomes closed and nothing in it is due.
    pub fn take(&self) -> Result<T, Closed> {
        match self.shared.take(None)? {
            Some(item) => Ok(item),
            None => unreachable!("a take without deadline ends with an item or an error"),
        }
    }

    /// As [`take`](DelayQueue::take), but returns `None` after `patience`.
    ///
    /// # Errors
    /// The same as [`take`](DelayQueue::take).
    pub fn take_timeout(&self, patience: Duration) -> Result<Option<T>, Closed> {
        // A deadline beyond the range of the clock counts as no deadline.
        self.shared.take(self.shared.time.after(patience))
    }
}

impl<T> QueueShared<T> {
    fn put(&self, value: T, due: i64, now: Option<i64>) -> Result<Handle, PutError<T>> {
        if self.limit.is_none() {
            return self.put_unlimited(value, due, now);
        }
        let mut state = self.state();
        if state.is_full() && !state.is_closed() {
            state = self.wait_for_room(state);
        }
        if state.is_closed() {
            self.finish(state);
            return Err(PutError::Closed(value));
        }
        let handle = state.items.insert(due, value);
        self.finish(state);
        Ok(handle)
    }

    #[cold]
    fn wait_for_room<'a>(&'a self, mut state: Guard<'a, QueueState<T>>) -> Guard<'a, QueueState<T>> {
        let seat = Arc::new(BlockedWaiter::default());
        let mut ticket = None;
        while state.is_full() && !state.is_closed() {
            let _ = state.wait_for_room(&mut ticket, Wake::Thread(Arc::clone(&seat)));
            self.let_go(state);
            seat.wait();
            state = self.state();
            state.producer_is_back(ticket);
        }
        let _ = state.producer_leaves(ticket);
        state
    }

    fn take(&self, deadline: Option<i64>) -> Result<Option<T>, Closed> {
        let mut state = self.state();
        match state.take_due(&self.time, &self.intake) {
            Some(item) => {
                self.finish(state);
                Ok(Some(item))
            }
            None => self.wait_for_item(state, deadline),
        }
    }

    #[cold]
    fn wait_for_item<'a>(
        &'a self,
        mut state: Guard<'a, QueueState<T>>,
        deadline: Option<i64>,
    ) -> Result<Option<T>, Closed> {
        let seat = Arc::new(BlockedWaiter::default());
        let mut ticket = None;
        let outcome = loop {
            if let Some(item) = state.take_due(&self.time, &self.intake) {
                break Ok(Some(item));
            }
            if state.is_closed() {
                break Err(Closed);
            }
            if deadline.is_some_and(|at| at <= state.read_clock(&self.time)) {
                break Ok(None);
            }
            if let Some(until) = state.near_head(&self.time) {
                state = self.look_again_at(deadline.map_or(until, |at| at.min(until)), state);
                continue;
            }
            let (until, _) = state.wait_for_item(&mut ticket, Wake::Thread(Arc::clone(&seat)), deadline);
            if !state.watch(&self.intake) {
                state.bring_in(&self.intake);
                continue;
            }
            let now = state.latest_now();
            self.let_go(state);
            self.sleep(&seat, now, until);
            state = self.state();
            state.consumer_is_back(ticket);
        };
        let _ = state.consumer_leaves(ticket);
        self.finish(state);
        outcome
    }

    /// Spins on the clock until `until`, where blocking the thread would take longer than the remaining time.
    fn look_again_at<'a>(
        &'a self,
        until: i64,
        mut state: Guard<'a, QueueState<T>>,
    ) -> Guard<'a, QueueState<T>> {
        state.begin_to_look();
        drop(state);
        while self.time.now() < until {
            std::hint::spin_loop();
        }
        state = self.state();
        state.end_looking();
        state
    }

    /// Blocks until `until`, or until called.
    fn sleep(&self, seat: &BlockedWaiter, now: i64, until: Option<i64>) {
        // A clock that is moved by hand calls the waiters itself when it has moved.
        let Some(until) = until.filter(|_| matches!(self.time, Time::System)) else { return seat.wait() };
        let left = until.saturating_sub(now).saturating_sub(self.spin);
        if left > 0 {
            let _fine = FineTimer::for_this_thread();
            return seat.wait_for(Duration::from_nanos(left.unsigned_abs()));
        }
        while !seat.was_called() && self.time.now() < until {
            std::hint::spin_loop();
        }
    }
}
