//! What the queue's lock guards: the items, who waits, and who leads.
//!
//! # The rules
//! - *Leader and followers*: of the waiting consumers at most one, the leader, has a timer for the head's instant;
//!   the others wait without one.
//! - While items and waiting consumers are there, somebody is going to look: there is a leader, or a consumer was
//!   called and is not back yet. [`State::settle`] restores this, and every operation ends with it.
//! - Whoever is called and goes away without an item (a deadline, a dropped future) settles too, so that
//!   a call is never lost with the one who was called.
//! - A put that becomes the head calls the leader, whose timer is too late now, and nobody else.
//! - Bounded: while there is room and producers wait, one of them was called.

use crate::timing_queue::{Handle, TimingQueue};

use super::time::Time;
use super::waiters::{Ticket, Waiters, Wake};

#[derive(Debug)]
pub(super) struct State<T> {
    pub(super) items: TimingQueue<T>,
    /// The latest reading of the clock. What is due at it is due still, so that a backlog is served without more readings.
    now: i64,
    consumers: Waiters,
    leader: Option<Ticket>,
    producers: Waiters,
    closed: bool,
    capacity: usize,
}

/// Whom an operation has called.
#[derive(Debug)]
#[must_use = "fire the calls when the lock has been let go"]
pub(super) struct Calls {
    consumer: Option<Wake>,
    producer: Option<Wake>,
}

impl Calls {
    #[cold]
    fn fire(self) {
        self.consumer.into_iter().chain(self.producer).for_each(Wake::fire);
    }
}

/// Wakes whom an operation has called. Not under the lock.
pub(super) fn fire(calls: Option<Calls>) {
    if let Some(calls) = calls {
        calls.fire();
    }
}

impl<T> State<T> {
    pub(super) fn new(capacity: usize) -> State<T> {
        State {
            items: TimingQueue::new(),
            now: i64::MIN,
            consumers: Waiters::default(),
            leader: None,
            producers: Waiters::default(),
            closed: false,
            capacity,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn is_full(&self) -> bool {
        self.items.len() >= self.capacity
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The latest reading of the clock that this state knows of.
    pub(super) fn latest_now(&self) -> i64 {
        self.now
    }

    pub(super) fn read_clock(&mut self, time: &Time) -> i64 {
        self.now = time.now();
        self.now
    }

    /// Whether the head is due. Reads the clock if the latest reading does not tell.
    pub(super) fn is_head_due(&mut self, time: &Time) -> bool {
        self.items.next_due().is_some_and(|due| due <= self.now || due <= self.read_clock(time))
    }

    /// Takes the head if it is due.
    pub(super) fn take_due(&mut self, time: &Time) -> Option<T> {
        if !self.is_head_due(time) {
            return None;
        }
        self.items.pop_due(self.now).map(|(_, item)| item)
    }

    pub(super) fn put(&mut self, due: i64, item: T) -> (Handle, Option<Calls>) {
        let is_head = self.items.next_due().is_none_or(|head| due < head);
        let handle = self.items.insert(due, item);
        (handle, self.settle_after(is_head))
    }

    pub(super) fn reschedule(&mut self, handle: Handle, due: i64) -> (bool, Option<Calls>) {
        let is_head = self.items.next_due().is_some_and(|head| due < head);
        let found = self.items.reschedule(handle, due);
        (found, self.settle_after(found && is_head))
    }

    fn settle_after(&mut self, is_new_head: bool) -> Option<Calls> {
        let leader = if is_new_head { self.call_leader() } else { None };
        let calls = self.settle();
        match leader {
            None => calls,
            // Settling saw the leader called, and called no other consumer.
            Some(_) => Some(Calls { consumer: leader, producer: calls.and_then(|calls| calls.producer) }),
        }
    }

    fn call_leader(&mut self) -> Option<Wake> {
        self.leader.take().and_then(|leader| self.consumers.call(leader))
    }

    /// Restores the rules; see the head of this file. `None` if nobody waits, which is the case to be fast in.
    pub(super) fn settle(&mut self) -> Option<Calls> {
        if self.consumers.is_empty() && self.producers.is_empty() { None } else { Some(self.call_next()) }
    }

    #[cold]
    fn call_next(&mut self) -> Calls {
        let nobody_looks = self.leader.is_none() && !self.consumers.is_one_called();
        let consumer = if nobody_looks && !self.consumers.is_empty() && !self.items.is_empty() {
            self.consumers.call_first()
        } else {
            None
        };
        let producer = if !self.producers.is_empty() && !self.producers.is_one_called() && !self.is_full() {
            self.producers.call_first()
        } else {
            None
        };
        Calls { consumer, producer }
    }

    /// Closes the queue and calls everybody.
    pub(super) fn close(&mut self) -> Vec<Wake> {
        self.closed = true;
        self.leader = None;
        let mut wakes = Vec::with_capacity(self.consumers.len() + self.producers.len());
        wakes.extend(std::iter::from_fn(|| self.consumers.call_first()));
        wakes.extend(std::iter::from_fn(|| self.producers.call_first()));
        wakes
    }

    /// The clock was moved by hand: calls the leader if the head is due, and all whose deadline has passed.
    pub(super) fn clock_moved(&mut self, time: &Time) -> Vec<Wake> {
        let now = self.read_clock(time);
        let mut wakes = Vec::new();
        if self.items.next_due().is_some_and(|due| due <= now) {
            wakes.extend(self.call_leader());
        }
        for ticket in self.consumers.overdue(now) {
            self.leader.take_if(|leader| *leader == ticket);
            wakes.extend(self.consumers.call(ticket));
        }
        wakes
    }

    /// How many consumers wait.
    pub(super) fn waiting(&self) -> usize {
        self.consumers.len()
    }

    /// A consumer begins or goes on to wait; it leads if nobody does. The moment at which it wants to be woken,
    /// and the way to wake it that is replaced: to be dropped when the lock has been let go.
    pub(super) fn wait_for_item(
        &mut self,
        ticket: &mut Option<Ticket>,
        wake: Wake,
        deadline: Option<i64>,
    ) -> (Option<i64>, Option<Wake>) {
        let (ticket, forgotten) = self.consumers.wait(ticket, wake, deadline);
        if self.items.is_empty() {
            self.leader.take_if(|leader| *leader == ticket);
            return (deadline, forgotten);
        }
        let leads = *self.leader.get_or_insert(ticket) == ticket;
        let due = self.items.next_due().filter(|_| leads);
        (due.into_iter().chain(deadline).min(), forgotten)
    }

    /// A consumer that waits, or was called, is back.
    pub(super) fn consumer_is_back(&mut self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.consumers.is_back(ticket);
        }
    }

    /// A consumer that [is back](State::consumer_is_back) waits no longer. The way to wake it, to be dropped without the lock.
    pub(super) fn consumer_leaves(&mut self, ticket: Option<Ticket>) -> Option<Wake> {
        let ticket = ticket?;
        self.leader.take_if(|leader| *leader == ticket);
        self.consumers.leave(ticket)
    }

    /// A producer begins or goes on to wait for room.
    pub(super) fn wait_for_room(&mut self, ticket: &mut Option<Ticket>, wake: Wake) -> Option<Wake> {
        self.producers.wait(ticket, wake, None).1
    }

    /// A producer that waits, or was called, is back.
    pub(super) fn producer_is_back(&mut self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.producers.is_back(ticket);
        }
    }

    /// A producer that is back waits no longer.
    pub(super) fn producer_leaves(&mut self, ticket: Option<Ticket>) -> Option<Wake> {
        self.producers.leave(ticket?)
    }
}
