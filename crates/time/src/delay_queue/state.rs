//! What the queue's lock guards: the items, the waiters, and the leader.
//!
//! To *call* a waiter is to notify it: see [`waiters`](super::waiters).
//!
//! # The rules
//! - *Leader and followers*: at most one of the waiting consumers, the leader, has a timer for the head's instant; the
//!   others wait without one.
//! - A thread has a timeout of its own. A task needs the timer that all tasks share, which the waker of another task
//!   may block. So a task leads only while no thread waits: a thread that begins to wait takes the lead from a task,
//!   and a waiting thread is called to take it.
//! - While there are items and waiting consumers, one consumer is going to look at the queue: there is a leader whose
//!   timer is not after the head's instant, or a consumer was called and has not returned yet. [`QueueState::settle`]
//!   restores this, and every operation that changes something ends with it. A consumer that returns and waits again
//!   takes the lead if the leader's timer is too late.
//! - A leader whose timer fires is called, and leads no longer. A call that a task does not answer passes to the next
//!   waiter after a grace period: see [`Waiters`](super::waiters). So a task that is not polled delays others once, by
//!   that period.
//! - A consumer that is called and leaves without an item (at its deadline, or because its future is dropped) settles
//!   too, so that its call is not lost.
//! - A put that becomes the head calls the leader, whose timer is now too late, and no other waiter.
//! - A consumer that finds no waiters and a head in the near future does not wait: it polls the queue at the head's
//!   instant and a few times before ([`QueueState::near_head`]). These rules do not count it as a waiter, since it
//!   returns without being called.
//! - Bounded queues: while there is room and producers wait, one of them has been called.
//! - These rules do not see items that are still in the [intake](super::intake). The watch covers them: a put of an
//!   item for which [`QueueState::watch`] requires a call takes the lock and settles.

use std::sync::Arc;

use crate::timing_queue::{Handle, TimingQueue};

use super::intake::{EVERYBODY, Intake, Left, NOBODY};
use super::time::Time;
use super::waiters::{GRACE_NS, PendingWake, Ticket, WaiterList, Waiters, Wake};

#[derive(Debug)]
pub(super) struct QueueState<T> {
    pub(super) items: TimingQueue<T>,
    /// The latest reading of the clock. Items due at it remain due, so a backlog is served without further readings.
    now: i64,
    consumers: Arc<WaiterList>,
    /// The leader, as long as it [waits](Waiters::is_waiting): a timer may have called it since.
    leader: Option<Ticket>,
    /// The instant for which the leader has set its timer.
    leader_until: i64,
    /// Whether a consumer that is not a waiter polls the clock for a head in the near future.
    looking: bool,
    producers: Arc<WaiterList>,
    /// The end of the current watches, if no timer ends them because the clock is moved by hand.
    watch_ends: Option<i64>,
    closed: bool,
    capacity: usize,
    supply: Supply<T>,
}

/// The supplies of the intake.
#[derive(Debug)]
struct Supply<T> {
    /// An empty buffer for items, to be swapped with that of a tray.
    room: Vec<Left<T>>,
    /// Reserved handles, for trays that run out of them.
    fresh: Vec<Handle>,
    /// The number of handles that a tray receives. Doubled when a producer finds none.
    batch: usize,
    /// The watch that was set last.
    watch: i64,
}

/// The maximum number of items in a tray, if they are small: moving one batch then takes some ten microseconds.
const BATCH_MAX: usize = 1024;
/// The maximum size of the items in a tray, in bytes, if that allows more than a few items.
const BATCH_BYTES: usize = 64 * 1024;
const BATCH_MIN: usize = 8;

/// Less than a sleep costs in processor time: `docs/decisions/2026-11-21-parking.md` has the measurements.
const NEAR_NS: i64 = 20_000;
/// How long a consumer polls the clock alone before it looks at the queue again.
const LOOK_NS: i64 = 5_000;

/// The waiters that an operation has called.
#[derive(Debug, Default)]
#[must_use = "fire the calls when the lock has been let go"]
pub(super) struct Calls {
    consumer: Option<PendingWake>,
    producer: Option<PendingWake>,
}

impl Calls {
    /// Wakes the waiters that an operation has called. Must not run under the lock.
    ///
    /// A thread that is preempted here delays the waiters that it has called, and those behind them, until it runs
    /// again or the watch ends.
    pub(super) fn fire(self, consumers: &WaiterList, producers: &WaiterList) {
        let (consumer, producer) =
            (self.consumer.map(|call| (consumers, call)), self.producer.map(|call| (producers, call)));
        // A producer that is a thread goes first, since the waker of a consumer that is a task may block.
        let in_turn = match &producer {
            Some((_, call)) if call.is_thread() => [producer, consumer],
            _ => [consumer, producer],
        };
        in_turn.into_iter().flatten().for_each(|(line, call)| line.fire(call));
    }
}

/// The waiters that a clock moved by hand has called.
#[derive(Debug, Default)]
pub(super) struct CalledWaiters {
    pub(super) consumers: Vec<PendingWake>,
    pub(super) producers: Vec<PendingWake>,
}

impl<T> QueueState<T> {
    pub(super) fn new(
        capacity: usize,
        consumers: &Arc<WaiterList>,
        producers: &Arc<WaiterList>,
    ) -> QueueState<T> {
        QueueState {
            items: TimingQueue::new(),
            now: i64::MIN,
            consumers: Arc::clone(consumers),
            leader: None,
            leader_until: i64::MAX,
            looking: false,
            producers: Arc::clone(producers),
            watch_ends: None,
            closed: false,
            capacity,
            supply: Supply { room: Vec::new(), fresh: Vec::new(), batch: 0, watch: NOBODY },
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn is_full(&self) -> bool {
        self.items.len() >= self.capacity
    }

    /// The latest reading of the clock.
    pub(super) fn latest_now(&self) -> i64 {
        self.now
    }

    pub(super) fn read_clock(&mut self, time: &Time) -> i64 {
        self.now = time.now();
        self.now
    }

    /// Takes the head if it is due. Reads the clock only if the latest reading does not decide it.
    #[inline]
    pub(super) fn take_due(&mut self, time: &Time, intake: &Intake<T>) -> Option<T> {
        if intake.has_before(self.items.next_due()) {
            self.bring_in(intake);
        }
        let due = self.items.next_due()?;
        if due > self.now && due > self.read_clock(time) {
            return None;
        }
        self.items.pop_due(self.now).map(|(_, item)| item)
    }

    /// When to look again, if the head is so near that blocking and being woken would cost more processor time than
    /// polling.
    ///
    /// One consumer at a time polls, and only while no other waits.
    pub(super) fn near_head(&self, time: &Time) -> Option<i64> {
        let head = self.items.next_due()?;
        let is_near = head <= self.now.saturating_add(NEAR_NS) && matches!(time, Time::System);
        if !is_near || self.looking || !self.consumers.is_empty() {
            return None;
        }
        // A put of an earlier head finds no waiter to call. The item is seen when this interval is over.
        Some(head.min(self.now.saturating_add(LOOK_NS)))
    }

    pub(super) fn begin_to_look(&mut self) {
        self.looking = true;
    }

    pub(super) fn end_looking(&mut self) {
        self.looking = false;
    }

    /// Moves the items of the intake into the queue, and supplies the intake with handles.
    #[cold]
    pub(super) fn bring_in(&mut self, intake: &Intake<T>) {
        let Supply { room, fresh, batch, watch } = &mut self.supply;
        intake.make_room(*watch, self.closed);
        intake.collect(room, fresh, *batch);
        // Twice the number that was used, in case more producers come.
        let enough = (2 * room.len()).clamp(*batch, *batch * intake.trays());
        for Left { handle, due, item, .. } in room.drain(..) {
            self.items.insert_reserved(handle, due, item);
        }
        while fresh.len() < enough {
            fresh.push(self.items.reserve());
        }
    }

    /// Prepares a larger batch of handles, because a producer found none.
    pub(super) fn supply_more(&mut self) {
        let most = (BATCH_BYTES / size_of::<Left<T>>()).clamp(BATCH_MIN, BATCH_MAX);
        let Supply { fresh, batch, .. } = &mut self.supply;
        *batch = (*batch * 2).clamp(BATCH_MIN, most);
        while fresh.len() < *batch {
            fresh.push(self.items.reserve());
        }
    }

    /// Whether there are no waiters and no watch, so that there is nothing to settle. This is the fast path.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.consumers.is_empty() && self.producers.is_empty() && self.supply.watch == NOBODY
    }

    /// Restores the rules at the head of this file.
    pub(super) fn settle(&mut self, calls: &mut Calls) {
        // A waiter that an earlier round called has not been woken yet, and may have lost the call already. One call is
        // enough.
        if let Some(head) = self.items.next_due()
            && calls.consumer.is_none()
        {
            let mut consumers = self.consumers.lock();
            if !consumers.is_one_called() {
                calls.consumer = match leader(self.leader, &consumers) {
                    Some(leader) if head < self.leader_until => consumers.call(leader),
                    Some(leader) if !consumers.is_thread(leader) => consumers.call_first_thread(),
                    Some(_) => None,
                    None => consumers.call_first(),
                };
            }
        }
        if !self.producers.is_empty() && !self.is_full() && calls.producer.is_none() {
            let mut producers = self.producers.lock();
            if !producers.is_one_called() {
                calls.producer = producers.call_first();
            }
        }
    }

    /// Sets the watch according to the waiters.
    ///
    /// False if the intake holds an item that has to be moved into the queue first.
    pub(super) fn watch(&mut self, intake: &Intake<T>) -> bool {
        let until = self.watched_until();
        let done = until == self.supply.watch || intake.watch(until);
        if done {
            self.supply.watch = until;
        }
        done
    }

    fn watched_until(&self) -> i64 {
        if self.consumers.is_empty() {
            return NOBODY;
        }
        let consumers = self.consumers.lock();
        if consumers.is_one_called() {
            NOBODY
        } else if leader(self.leader, &consumers).is_some() {
            self.leader_until.saturating_sub(1)
        } else {
            EVERYBODY
        }
    }

    /// Closes the queue and removes all waiters, to be woken by the caller.
    pub(super) fn close(&mut self) -> impl Iterator<Item = Wake> + use<T> {
        self.closed = true;
        self.leader = None;
        let consumers = self.consumers.lock().dismiss();
        consumers.chain(self.producers.lock().dismiss())
    }

    /// Records a watch that no timer ends.
    pub(super) fn note_watch(&mut self, time: &Time) {
        self.watch_ends = self.watch_ends.or(Some(time.now().saturating_add(GRACE_NS)));
    }

    /// Reacts to a clock moved by hand: calls the leader if the head is due, and all waiters whose deadline has passed.
    ///
    /// Ends watches.
    pub(super) fn clock_moved(&mut self, time: &Time) -> CalledWaiters {
        let now = self.read_clock(time);
        let ends_watch = self.watch_ends.take_if(|end| *end <= now).is_some();
        let mut moved = CalledWaiters::default();
        let (mut consumers, mut producers) = (self.consumers.lock(), self.producers.lock());
        if ends_watch {
            moved.consumers.extend(consumers.end_watch());
            moved.producers.extend(producers.end_watch());
        }
        if self.items.next_due().is_some_and(|due| due <= now) {
            moved.consumers.extend(self.leader.take().and_then(|leader| consumers.call(leader)));
        }
        for ticket in consumers.overdue(now) {
            moved.consumers.extend(consumers.call(ticket));
        }
        moved
    }

    /// The number of consumers that wait.
    pub(super) fn waiting(&self) -> usize {
        self.consumers.len()
    }

    /// Registers a consumer that begins or continues to wait.
    ///
    /// It takes the lead if there is no leader, if the leader's timer is too late, or if it is a thread and the leader
    /// is a task. Returns the instant at which it has to be woken, and the wake that was replaced, to be dropped after
    /// the lock is released.
    ///
    /// The caller must not release the lock before the [watch](QueueState::watch) is set.
    pub(super) fn wait_for_item(
        &mut self,
        ticket: &mut Option<Ticket>,
        wake: Wake,
        deadline: Option<i64>,
    ) -> (Option<i64>, Option<Wake>) {
        let mut consumers = self.consumers.lock();
        let (ticket, forgotten) = consumers.wait(ticket, wake, deadline);
        let Some(head) = self.items.next_due() else {
            self.leader.take_if(|leader| *leader == ticket);
            return (deadline, forgotten);
        };
        let takes_lead = match leader(self.leader, &consumers) {
            Some(leader) if consumers.is_thread(leader) => head < self.leader_until,
            Some(_) => head < self.leader_until || consumers.is_thread(ticket),
            None => true,
        };
        if takes_lead {
            self.leader = Some(ticket);
        }
        if self.leader != Some(ticket) {
            return (deadline, forgotten);
        }
        self.leader_until = head;
        (Some(deadline.map_or(head, |deadline| deadline.min(head))), forgotten)
    }

    /// Records that a consumer which waited, or was called, has returned.
    pub(super) fn consumer_is_back(&mut self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.consumers.lock().is_back(ticket);
        }
    }

    /// Removes a consumer, called or not. Returns its wake, to be dropped without the lock.
    pub(super) fn consumer_leaves(&mut self, ticket: Option<Ticket>) -> Option<Wake> {
        let ticket = ticket?;
        self.leader.take_if(|leader| *leader == ticket);
        self.consumers.lock().leave(ticket)
    }

    /// Registers a producer that begins or continues to wait for room.
    pub(super) fn wait_for_room(&mut self, ticket: &mut Option<Ticket>, wake: Wake) -> Option<Wake> {
        self.producers.lock().wait(ticket, wake, None).1
    }

    /// Records that a producer which waited, or was called, has returned.
    pub(super) fn producer_is_back(&mut self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.producers.lock().is_back(ticket);
        }
    }

    /// Removes a producer, called or not.
    pub(super) fn producer_leaves(&mut self, ticket: Option<Ticket>) -> Option<Wake> {
        self.producers.lock().leave(ticket?)
    }
}

/// The leader, if it still waits.
fn leader(leader: Option<Ticket>, consumers: &Waiters) -> Option<Ticket> {
    leader.filter(|leader| consumers.is_waiting(*leader))
}
