//! Who waits, in the order of arrival, and how each is woken.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::sync::{Condvar, Mutex, MutexGuard};

/// A waiter's number. It keeps its number, and with it its turn, if it is woken for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// Where a blocked thread sits.
#[derive(Debug, Default)]
pub(super) struct Seat {
    called: Mutex<bool>,
    bell: Condvar,
}

impl Seat {
    fn called(&self) -> MutexGuard<'_, bool> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self) {
        *self.called() = true;
        self.bell.notify_one();
    }

    /// Whether this was called since the last time that it was asked.
    pub(super) fn was_called(&self) -> bool {
        mem::take(&mut *self.called())
    }

    /// Blocks until called.
    pub(super) fn wait(&self) {
        let mut called = self.called();
        while !mem::take(&mut *called) {
            called = self.bell.wait(called).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Blocks until called, or about so long; may end for nothing.
    pub(super) fn wait_for(&self, patience: Duration) {
        let mut called = self.called();
        if !*called {
            called = self.bell.wait_timeout(called, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
        *called = false;
    }
}

/// Wakes one waiter. To be fired when the queue's lock has been let go: a task's waker may run anything.
#[derive(Debug)]
pub(super) enum Wake {
    Thread(Arc<Seat>),
    Task(Waker),
}

impl Wake {
    pub(super) fn fire(self) {
        match self {
            Wake::Thread(seat) => seat.call(),
            Wake::Task(waker) => waker.wake(),
        }
    }
}

#[derive(Debug)]
struct Waiter {
    wake: Wake,
    /// When it gives up, in the queue's nanoseconds.
    deadline: Option<i64>,
}

/// Waiters, some of whom were *called*: told to look, but not back under the lock yet.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiting: BTreeMap<Ticket, Waiter>,
    called: usize,
    next: u64,
}

impl Waiters {
    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether somebody was called and has not looked yet.
    pub(super) fn is_one_called(&self) -> bool {
        self.called > 0
    }

    /// Starts or continues to wait. Gives back the wake that is replaced.
    pub(super) fn wait(
        &mut self,
        ticket: &mut Option<Ticket>,
        wake: Wake,
        deadline: Option<i64>,
    ) -> (Ticket, Option<Wake>) {
        let ticket = *ticket.get_or_insert_with(|| {
            self.next += 1;
            Ticket(self.next)
        });
        let replaced = self.waiting.insert(ticket, Waiter { wake, deadline });
        (ticket, replaced.map(|waiter| waiter.wake))
    }

    /// A waiter is back under the lock. If it was called, it has answered.
    pub(super) fn is_back(&mut self, ticket: Ticket) {
        if !self.waiting.contains_key(&ticket) {
            self.called -= 1;
        }
    }

    /// A waiter waits no longer, called or not.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Wake> {
        self.waiting.remove(&ticket).map(|waiter| waiter.wake)
    }

    pub(super) fn call(&mut self, ticket: Ticket) -> Option<Wake> {
        let waiter = self.waiting.remove(&ticket)?;
        self.called += 1;
        Some(waiter.wake)
    }

    /// Calls whoever has waited longest.
    pub(super) fn call_first(&mut self) -> Option<Wake> {
        let (_, waiter) = self.waiting.pop_first()?;
        self.called += 1;
        Some(waiter.wake)
    }

    /// The tickets of those who give up at `now`.
    pub(super) fn overdue(&self, now: i64) -> Vec<Ticket> {
        let overdue = self.waiting.iter().filter(|(_, waiter)| waiter.deadline.is_some_and(|at| at <= now));
        overdue.map(|(ticket, _)| *ticket).collect()
    }
}
