//! Who waits, in the order of arrival, and how each is woken.
//!
//! # The rules
//! - Whoever is *called* has been told to look, and is not back yet. Others rely on it meanwhile.
//! - A task may never come back: its stream is kept and not polled, its executor is stuck, its waker panicked. So a call is
//!   not for ever. A waker that panics passes it on at once. A task that is not back within a [grace period](GRACE_NS)
//!   loses it to the next one, if others wait: that is what the *watch* is for, of which there is one a line at a time.
//!   Threads always come back, and are not watched.
//! - Being called twice, or coming back though the call was lost, does no harm: a ticket is all that is kept of a call.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::sync::{AtomicUsize, Condvar, Guard, Lock, Mutex, MutexGuard};

/// For how long others wait for a task that was called, at least; twice as long at most. A task that is merely slow loses
/// nothing by it: whoever is called in its place looks, and goes on waiting if there is nothing.
pub(super) const GRACE_NS: i64 = 10_000_000;

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

/// Wakes one waiter. To be fired, or dropped, when the queue's lock has been let go: a task's waker may run anything.
#[derive(Debug)]
pub(super) enum Wake {
    Thread(Arc<Seat>),
    Task(TaskWaker),
}

impl Wake {
    /// The way to wake the task of this waker. Not under a lock: a clone may run anything, and panic.
    pub(super) fn task(waker: &Waker) -> Wake {
        Wake::Task(TaskWaker(Some(waker.clone())))
    }

    /// Whether that wakes a thread, which runs nothing of anybody else's.
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

/// A waker of somebody else's, whose panics end here: the thread that wakes or drops it has an item of its own in hand,
/// or others to wake.
#[derive(Debug)]
pub(super) struct TaskWaker(Option<Waker>);

impl Drop for TaskWaker {
    fn drop(&mut self) {
        if let Some(waker) = self.0.take() {
            contained(|| drop(waker));
        }
    }
}

/// Runs what belongs to somebody else. False if it panicked, of which the panic hook has told already.
fn contained(call: impl FnOnce()) -> bool {
    let Err(payload) = catch_unwind(AssertUnwindSafe(call)) else { return true };
    // What was thrown belongs to somebody else too.
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

/// A waiter that is going to be woken.
#[derive(Debug)]
#[must_use = "fire the call when the lock has been let go"]
pub(super) struct Call {
    ticket: Ticket,
    wake: Wake,
}

impl Call {
    /// Whether it wakes a thread.
    pub(super) fn is_thread(&self) -> bool {
        self.wake.is_thread()
    }
}

/// What is kept of a call until the waiter is back.
#[derive(Debug)]
struct Called {
    number: u64,
    is_task: bool,
}

/// Waiters, some of whom were called.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiting: BTreeMap<Ticket, Waiter>,
    /// Those of them that are threads.
    threads: BTreeSet<Ticket>,
    called: BTreeMap<Ticket, Called>,
    /// How many tickets there were, and how many calls.
    tickets: u64,
    calls: u64,
    /// The number of the last call when the watch was set, if it is.
    watched: Option<u64>,
}

impl Waiters {
    /// Whether somebody was called and has not looked yet.
    pub(super) fn is_one_called(&self) -> bool {
        !self.called.is_empty()
    }

    /// Whether that one waits, and was not called.
    pub(super) fn is_waiting(&self, ticket: Ticket) -> bool {
        self.waiting.contains_key(&ticket)
    }

    /// Whether that one waits, and is a thread: it can time itself.
    pub(super) fn is_thread(&self, ticket: Ticket) -> bool {
        self.threads.contains(&ticket)
    }

    /// Starts or continues to wait. Gives back the wake that is replaced.
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

    /// A waiter is back under the lock. If it was called, it has answered.
    pub(super) fn is_back(&mut self, ticket: Ticket) {
        self.called.remove(&ticket);
    }

    /// A waiter waits no longer, called or not.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Wake> {
        self.called.remove(&ticket);
        self.threads.remove(&ticket);
        self.waiting.remove(&ticket).map(|waiter| waiter.wake)
    }

    pub(super) fn call(&mut self, ticket: Ticket) -> Option<Call> {
        let waiter = self.waiting.remove(&ticket)?;
        self.threads.remove(&ticket);
        Some(self.note_call(ticket, waiter))
    }

    /// Calls whoever has waited longest.
    pub(super) fn call_first(&mut self) -> Option<Call> {
        let (ticket, _) = self.waiting.first_key_value()?;
        self.call(*ticket)
    }

    /// Calls the thread that has waited longest, if any waits.
    pub(super) fn call_first_thread(&mut self) -> Option<Call> {
        self.call(*self.threads.first()?)
    }

    fn note_call(&mut self, ticket: Ticket, Waiter { wake, .. }: Waiter) -> Call {
        self.calls += 1;
        let is_task = !wake.is_thread();
        self.called.insert(ticket, Called { number: self.calls, is_task });
        Call { ticket, wake }
    }

    /// The tickets of those who give up at `now`.
    pub(super) fn overdue(&self, now: i64) -> Vec<Ticket> {
        let overdue = self.waiting.iter().filter(|(_, waiter)| waiter.deadline.is_some_and(|at| at <= now));
        overdue.map(|(ticket, _)| *ticket).collect()
    }

    /// Takes all who wait. They are not counted as called: nobody relies on them.
    pub(super) fn dismiss(&mut self) -> impl Iterator<Item = Wake> + use<> {
        self.threads.clear();
        mem::take(&mut self.waiting).into_values().map(|waiter| waiter.wake)
    }

    /// Whether the watch has to be set, and is now: somebody waits while a task was called.
    pub(super) fn wants_watch(&mut self) -> bool {
        let wants = self.watched.is_none()
            && !self.waiting.is_empty()
            && self.called.values().any(|called| called.is_task);
        if wants {
            self.watched = Some(self.calls);
        }
        wants
    }

    /// The grace period has passed since the watch was set: tasks that were called before and are not back lose their call
    /// to whoever has waited longest.
    pub(super) fn end_watch(&mut self) -> Option<Call> {
        let last = self.watched.take()?;
        let before = self.called.len();
        self.called.retain(|_, called| !called.is_task || called.number > last);
        if self.called.len() < before { self.call_first() } else { None }
    }
}

/// The waiters of one kind of a queue. What it takes to wake them needs neither the queue nor its items: a timer does so.
#[derive(Debug, Default)]
pub(super) struct Line {
    waiters: Lock<Waiters>,
    /// How many wait. Only who holds the queue's lock lets it rise.
    len: AtomicUsize,
}

/// The waiters, under the line's lock. It is taken after the queue's, if both are.
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

impl Line {
    pub(super) fn lock(&self) -> Locked<'_> {
        Locked { waiters: self.waiters.lock(), len: &self.len }
    }

    /// How many wait.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether nobody waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Wakes whom that calls. If its waker panics, whoever has waited longest is called instead.
    pub(super) fn fire(&self, call: Call) {
        let mut next = Some(call);
        while let Some(Call { ticket, wake }) = next {
            if wake.fire() {
                return;
            }
            let mut waiters = self.lock();
            waiters.is_back(ticket);
            next = waiters.call_first();
        }
    }

    /// The moment that this waiter wanted to be woken at has come.
    pub(super) fn ring(&self, ticket: Ticket) {
        let call = self.lock().call(ticket);
        if let Some(call) = call {
            self.fire(call);
        }
    }

    /// The moment of the watch has come.
    pub(super) fn end_watch(&self) {
        let call = self.lock().end_watch();
        if let Some(call) = call {
            self.fire(call);
        }
    }

    /// This waiter leads and has no timer. It is woken, to look again, and so is whoever has waited longest: nobody may rely
    /// on a leader that nothing wakes at the head's instant.
    pub(super) fn has_no_alarm(&self, ticket: Ticket) {
        let (own, next) = {
            let mut waiters = self.lock();
            // If it was called since it has been woken already.
            let own = waiters.call(ticket);
            waiters.is_back(ticket);
            (own, waiters.call_first())
        };
        own.into_iter().chain(next).for_each(|call| self.fire(call));
    }

    /// Whether the watch has to be set, and is now.
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
        // Whoever comes back without a call, or twice, answers no call of others.
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
