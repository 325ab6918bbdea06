//! The waiters in the order of their arrival, and how each of them is woken.
//!
//! # The rules
//! - A waiter that was *called* has been notified to look at the queue, and has not returned yet. Other waiters depend
//!   on it meanwhile.
//! - A task may never return: its stream is kept and not polled, its executor is stuck, its waker panicked. So a call
//!   expires. If the waker panics, the call passes to the next waiter at once. A task that does not return within a
//!   [grace period](GRACE_NS) loses its call to the next waiter, if there is one: the *watch* enforces this, and a line
//!   has at most one watch at a time. Threads always return, and are not watched.
//! - Calling a waiter twice is harmless, and so is a waiter that returns after it has lost its call: only its ticket is
//!   kept with the call.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::sync::{AtomicUsize, Condvar, Guard, Lock, Mutex, MutexGuard};

/// The minimum time for which waiters wait for a task that was called; the maximum is twice as long.
///
/// A task that is merely slow loses nothing: the waiter that is called in its place looks at the queue, and continues
/// to wait if there is no item.
pub(super) const GRACE_NS: i64 = 10_000_000;

/// A waiter's number. A waiter that is woken without an item keeps its number, and so its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// Where a blocked thread waits for its call.
#[derive(Debug, Default)]
pub(super) struct BlockedWaiter {
    called: Mutex<bool>,
    bell: Condvar,
}

impl BlockedWaiter {
    fn called(&self) -> MutexGuard<'_, bool> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self) {
        *self.called() = true;
        self.bell.notify_one();
    }

    /// Whether the thread was called since this was last checked.
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

    /// Blocks until called, or for about `patience`; may return spuriously.
    pub(super) fn wait_for(&self, patience: Duration) {
        let mut called = self.called();
        if !*called {
            called = self.bell.wait_timeout(called, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
        *called = false;
    }
}

/// Wakes one waiter.
///
/// Must be fired or dropped after the queue's lock is released, as a task's waker may run arbitrary code.
#[derive(Debug)]
pub(super) enum Wake {
    Thread(Arc<BlockedWaiter>),
    Task(TaskWaker),
}

impl Wake {
    /// Creates a wake for the task of `waker`. Must not run under a lock: a clone may run arbitrary code, and panic.
    pub(super) fn task(waker: &Waker) -> Wake {
        Wake::Task(TaskWaker(Some(waker.clone())))
    }

    /// Whether it wakes a thread, which runs no foreign code.
    pub(super) fn is_thread(&self) -> bool {
        matches!(self, Wake::Thread(_))
    }

    /// False if the waker panicked.
    #[must_use]
    pub(super) fn fire(self) -> bool {
        match self {
            Wake::Thread(seat) => {
                seat.call();
                true
            }
            Wake::Task(mut waker) => waker.0.take().is_none_or(|waker| contained(|| waker.wake())),
        }
    }
}

/// A foreign waker, whose panics are caught: the thread that wakes or drops it may hold an item, or have other waiters
/// to wake.
#[derive(Debug)]
pub(super) struct TaskWaker(Option<Waker>);

impl Drop for TaskWaker {
    fn drop(&mut self) {
        if let Some(waker) = self.0.take() {
            contained(|| drop(waker));
        }
    }
}

/// Runs foreign code. False if it panicked, which the panic hook has already reported.
fn contained(call: impl FnOnce()) -> bool {
    let Err(payload) = catch_unwind(AssertUnwindSafe(call)) else { return true };
    // Dropping the panic's payload runs foreign code too.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(payload);
    }
    false
}

#[derive(Debug)]
struct Waiter {
    wake: Wake,
    /// When it gives up, in the queue's nanoseconds.
    deadline: Option<i64>,
}

/// A waiter that is about to be woken.
#[derive(Debug)]
#[must_use = "fire the call when the lock has been let go"]
pub(super) struct PendingWake {
    ticket: Ticket,
    wake: Wake,
}

impl PendingWake {
    /// Whether it wakes a thread.
    pub(super) fn is_thread(&self) -> bool {
        self.wake.is_thread()
    }
}

/// What is kept of a call until the waiter returns.
#[derive(Debug)]
struct CalledWaiter {
    number: u64,
    is_task: bool,
}

/// Waiters, some of which were called.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiting: BTreeMap<Ticket, Waiter>,
    /// Those of them that are threads.
    threads: BTreeSet<Ticket>,
    called: BTreeMap<Ticket, CalledWaiter>,
    /// The number of tickets, and of calls, so far.
    tickets: u64,
    calls: u64,
    /// The number of the last call at the time the watch was set; `None` without a watch.
    watched: Option<u64>,
}

impl Waiters {
    /// Whether a waiter was called and has not looked at the queue yet.
    pub(super) fn is_one_called(&self) -> bool {
        !self.called.is_empty()
    }

    /// Whether the waiter of `ticket` waits, and was not called.
    pub(super) fn is_waiting(&self, ticket: Ticket) -> bool {
        self.waiting.contains_key(&ticket)
    }

    /// Whether the waiter of `ticket` waits, and is a thread, which has its own timeout.
    pub(super) fn is_thread(&self, ticket: Ticket) -> bool {
        self.threads.contains(&ticket)
    }

    /// Begins or continues to wait. Returns the wake that was replaced.
    pub(super) fn wait(
        &mut self,
        ticket: &mut Option<Ticket>,
        wake: Wake,
        deadline: Option<i64>,
    ) -> (Ticket, Option<Wake>) {
        let ticket = *ticket.get_or_insert_with(|| {
            self.tickets += 1;
            Ticket(self.tickets)
        });
        self.called.remove(&ticket);
        if wake.is_thread() {
            self.threads.insert(ticket);
        }
        let replaced = self.waiting.insert(ticket, Waiter { wake, deadline });
        (ticket, replaced.map(|waiter| waiter.wake))
    }

    /// Records that a waiter has returned and holds the lock. If it was called, it has answered.
    pub(super) fn is_back(&mut self, ticket: Ticket) {
        self.called.remove(&ticket);
    }

    /// Removes a waiter, called or not.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Wake> {
        self.called.remove(&ticket);
        self.threads.remove(&ticket);
        self.waiting.remove(&ticket).map(|waiter| waiter.wake)
    }

    pub(super) fn call(&mut self, ticket: Ticket) -> Option<PendingWake> {
        let waiter = self.waiting.remove(&ticket)?;
        self.threads.remove(&ticket);
        Some(self.note_call(ticket, waiter))
    }

    /// Calls the waiter that has waited longest.
    pub(super) fn call_first(&mut self) -> Option<PendingWake> {
        let (ticket, _) = self.waiting.first_key_value()?;
        self.call(*ticket)
    }

    /// Calls the thread that has waited longest, if there is one.
    pub(super) fn call_first_thread(&mut self) -> Option<PendingWake> {
        self.call(*self.threads.first()?)
    }

    fn note_call(&mut self, ticket: Ticket, Waiter { wake, .. }: Waiter) -> PendingWake {
        self.calls += 1;
        let is_task = !wake.is_thread();
        self.called.insert(ticket, CalledWaiter { number: self.calls, is_task });
        PendingWake { ticket, wake }
    }

    /// The tickets of the waiters whose deadline has passed at `now`.
    pub(super) fn overdue(&self, now: i64) -> Vec<Ticket> {
        let overdue = self.waiting.iter().filter(|(_, waiter)| waiter.deadline.is_some_and(|at| at <= now));
        overdue.map(|(ticket, _)| *ticket).collect()
    }

    /// Removes all waiters. They do not count as called, since no other waiter depends on them.
    pub(super) fn dismiss(&mut self) -> impl Iterator<Item = Wake> + use<> {
        self.threads.clear();
        mem::take(&mut self.waiting).into_values().map(|waiter| waiter.wake)
    }

    /// Sets the watch if there are waiters while a task was called. Returns whether it was set.
    pub(super) fn wants_watch(&mut self) -> bool {
        let wants = self.watched.is_none()
            && !self.waiting.is_empty()
            && self.called.values().any(|called| called.is_task);
        if wants {
            self.watched = Some(self.calls);
        }
        wants
    }

    /// The grace period of the watch has passed: tasks that were called before it was set and have not returned lose
    /// their call to the waiter that has waited longest.
    pub(super) fn end_watch(&mut self) -> Option<PendingWake> {
        let last = self.watched.take()?;
        let before = self.called.len();
        self.called.retain(|_, called| !called.is_task || called.number > last);
        if self.called.len() < before { self.call_first() } else { None }
    }
}

/// The waiters of one kind of a queue. Waking them needs neither the queue nor its items, as a timer does so.
#[derive(Debug, Default)]
pub(super) struct WaiterList {
    waiters: Lock<Waiters>,
    /// The number of waiters. It is raised only under the queue's lock.
    len: AtomicUsize,
}

/// The waiters, under the line's lock, which is taken after the queue's if both are.
pub(super) struct Locked<'a> {
    waiters: Guard<'a, Waiters>,
    len: &'a AtomicUsize,
}

impl Deref for Locked<'_> {
    type Target = Waiters;

    fn deref(&self) -> &Waiters {
        &self.waiters
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Waiters {
        &mut self.waiters
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.len.store(self.waiters.waiting.len(), Ordering::Relaxed);
    }
}

impl WaiterList {
    pub(super) fn lock(&self) -> Locked<'_> {
        Locked { waiters: self.waiters.lock(), len: &self.len }
    }

    /// The number of waiters.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether there are no waiters.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Wakes the waiter that was called. If its waker panics, the one that has waited longest is called instead.
    pub(super) fn fire(&self, call: PendingWake) {
        let mut next = Some(call);
        while let Some(PendingWake { ticket, wake }) = next {
            if wake.fire() {
                return;
            }
            let mut waiters = self.lock();
            waiters.is_back(ticket);
            next = waiters.call_first();
        }
    }

    /// Calls a waiter whose alarm is due.
    pub(super) fn ring(&self, ticket: Ticket) {
        let call = self.lock().call(ticket);
        if let Some(call) = call {
            self.fire(call);
        }
    }

    /// Ends the watch, whose grace period has passed.
    pub(super) fn end_watch(&self) {
        let call = self.lock().end_watch();
        if let Some(call) = call {
            self.fire(call);
        }
    }

    /// Handles a leader that could not set an alarm.
    ///
    /// It is woken to look again, and so is the waiter that has waited longest, since no waiter may depend on a leader
    /// that is not woken at the head's instant.
    pub(super) fn has_no_alarm(&self, ticket: Ticket) {
        let (own, next) = {
            let mut waiters = self.lock();
            // If it was called meanwhile, it has already been woken.
            let own = waiters.call(ticket);
            waiters.is_back(ticket);
            (own, waiters.call_first())
        };
        own.into_iter().chain(next).for_each(|call| self.fire(call));
    }

    /// Sets the watch if it is needed. Returns whether it was set.
    pub(super) fn wants_watch(&self) -> bool {
        !self.is_empty() && self.lock().wants_watch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(waiters: &mut Waiters) -> Ticket {
        waiters.wait(&mut None, Wake::task(Waker::noop()), None).0
    }

    #[test]
    fn a_task_that_does_not_come_back_loses_its_call_and_one_called_since_does_not() {
        let mut waiters = Waiters::default();
        let [first, second, third] = [(); 3].map(|()| waiting(&mut waiters));
        assert!(!waiters.wants_watch(), "nobody was called");
        assert_eq!(waiters.call_first().unwrap().ticket, first);
        assert!(waiters.wants_watch() && !waiters.wants_watch(), "it is set once");
        assert_eq!(waiters.call_first().unwrap().ticket, second);
        assert_eq!(waiters.end_watch().unwrap().ticket, third);
        assert!(!waiters.called.contains_key(&first) && waiters.called.contains_key(&second));
        // A waiter that returns without a call, or twice, does not answer the calls of others.
        waiters.is_back(first);
        assert!(waiters.called.contains_key(&second));
        waiters.is_back(second);
        waiters.is_back(second);
        assert!(!waiters.called.contains_key(&second) && waiters.called.contains_key(&third));
        waiters.leave(third);
        assert!(!waiters.is_one_called());
    }

    #[test]
    fn threads_are_not_watched() {
        let mut waiters = Waiters::default();
        waiters.wait(&mut None, Wake::Thread(Arc::default()), None);
        waiting(&mut waiters);
        drop(waiters.call_first());
        assert!(!waiters.wants_watch());
    }
}
