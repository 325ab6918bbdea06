//! Waiting with a thread: `put` where there is a capacity limit, `take`, `take_timeout`.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::timing_queue::Handle;

use super::error::{Closed, PutError};
use super::state::{State, fire};
use super::sync::MutexGuard;
use super::time::{self, Time};
use super::waiters::{Seat, Wake};
use super::{DelayQueue, Shared};

impl<T> DelayQueue<T> {
    /// Puts `value`, to be handed over `delay` from now. Waits for room if the queue has a capacity limit
    /// and is full; the delay counts from the call.
    ///
    /// # Errors
    /// [`PutError::Closed`] and [`PutError::TooFar`], with the value.
    pub fn put(&self, value: T, delay: Duration) -> Result<Handle, PutError<T>> {
        match self.shared.time.after(delay) {
            Some(due) => self.shared.put(value, due),
            None => Err(PutError::TooFar(value)),
        }
    }

    /// Puts `value`, to be handed over at `due`: at once if that has passed. Waits as [`put`](DelayQueue::put) does.
    ///
    /// # Errors
    /// As of [`put`](DelayQueue::put).
    pub fn put_at(&self, value: T, due: Instant) -> Result<Handle, PutError<T>> {
        match time::from_instant(due) {
            Some(due) => self.shared.put(value, due),
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

    /// As [`take`](DelayQueue::take), but gives up after `patience`: `None`.
    ///
    /// # Errors
    /// As of [`take`](DelayQueue::take).
    pub fn take_timeout(&self, patience: Duration) -> Result<Option<T>, Closed> {
        // A deadline that cannot be counted to is none.
        self.shared.take(self.shared.time.after(patience))
    }
}

impl<T> Shared<T> {
    fn put(&self, value: T, due: i64) -> Result<Handle, PutError<T>> {
        let mut state = self.state();
        if state.is_full() && !state.is_closed() {
            state = self.wait_for_room(state);
        }
        if state.is_closed() {
            let calls = state.settle();
            drop(state);
            fire(calls);
            return Err(PutError::Closed(value));
        }
        let (handle, calls) = state.put(due, value);
        drop(state);
        fire(calls);
        Ok(handle)
    }

    #[cold]
    fn wait_for_room<'a>(&'a self, mut state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        let seat = Arc::new(Seat::default());
        let mut ticket = None;
        while state.is_full() && !state.is_closed() {
            let _ = state.wait_for_room(&mut ticket, Wake::Thread(Arc::clone(&seat)));
            state = seat.condvar.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.producer_is_back(ticket);
        }
        let _ = state.producer_leaves(ticket);
        state
    }

    fn take(&self, deadline: Option<i64>) -> Result<Option<T>, Closed> {
        let mut state = self.state();
        let mut item = state.take_due(&self.time);
        let mut waited = Ok(());
        if item.is_none() {
            (state, item, waited) = self.wait_for_item(state, deadline);
        }
        let calls = state.settle();
        drop(state);
        fire(calls);
        waited.map(|()| item)
    }

    #[cold]
    fn wait_for_item<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<T>>,
        deadline: Option<i64>,
    ) -> (MutexGuard<'a, State<T>>, Option<T>, Result<(), Closed>) {
        let seat = Arc::new(Seat::default());
        let mut ticket = None;
        let (item, waited) = loop {
            if let Some(item) = state.take_due(&self.time) {
                break (Some(item), Ok(()));
            }
            if state.is_closed() {
                break (None, Err(Closed));
            }
            if deadline.is_some_and(|at| at <= state.read_clock(&self.time)) {
                break (None, Ok(()));
            }
            seat.called.store(false, Ordering::Relaxed);
            let (until, _) = state.wait_for_item(&mut ticket, Wake::Thread(Arc::clone(&seat)), deadline);
            state = self.sleep(state, &seat, until);
            state.consumer_is_back(ticket);
        };
        let _ = state.consumer_leaves(ticket);
        (state, item, waited)
    }

    /// Lets the lock go until the moment, or until called.
    fn sleep<'a>(
        &'a self,
        state: MutexGuard<'a, State<T>>,
        seat: &Seat,
        until: Option<i64>,
    ) -> MutexGuard<'a, State<T>> {
        // A clock that is moved by hand calls us when it has moved.
        let until = until.filter(|_| matches!(self.time, Time::System));
        let Some(until) = until else {
            return seat.condvar.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        let left = until.saturating_sub(state.latest_now());
        if left > self.spin {
            let patience = Duration::from_nanos(left.saturating_sub(self.spin).unsigned_abs());
            return seat.condvar.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        while !seat.called.load(Ordering::Acquire) && self.time.now() < until {
            std::hint::spin_loop();
        }
        self.state()
    }
}
