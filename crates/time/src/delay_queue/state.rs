//! What the queue's lock guards: the items, who waits, and who leads.
//!
//! # The rules
//! - *Leader and followers*: of the waiting consumers at most one, the leader, has a timer for the head's instant;
//!   the others wait without one.
//! - A thread times itself, and a task needs the timer of all tasks, which somebody else's waker may block: so a task leads only
//!   where no thread waits. A thread that comes to wait takes the lead from a task, and one that waits is called to.
//! - While items and waiting consumers are there, somebody is going to look: there is a leader whose timer is not
//!   after the head's instant, or a consumer was called and is not back yet. [`State::settle`] restores this, and every
//!   operation that changes something ends with it. Who is back and waits again takes the lead where the leader's
//!   timer is too late.
//! - A leader whose timer rings is called, and leads no longer. A call that a task does not answer goes to the next after a
//!   grace period: [`Waiters`](super::waiters). So a task that is not polled delays others once, and by that.
//! - Whoever is called and goes away without an item (a deadline, a dropped future) settles too, so that
//!   a call is never lost with the one who was called.
//! - A put that becomes the head calls the leader, whose timer is too late now, and nobody else.
//! - Who finds nobody waiting and the head near does not wait, but looks again at its instant and some times before
//!   ([`State::near_head`]). These rules do not see it: nobody has to be called for one that comes back by itself.
//! - Bounded: while there is room and producers wait, one of them was called.
//! - Items that lie in the [intake](super::intake) still are not seen by these rules. The watch stands in for them: a put
//!   that [`State::watch`] says somebody has to be called for comes and settles.

use std::sync::Arc;

use crate::timing_queue::{Handle, TimingQueue};

use super::intake::{EVERYBODY, Intake, Left, NOBODY};
use super::time::Time;
use super::waiters::{Call, GRACE_NS, Line, Ticket, Waiters, Wake};

#[derive(Debug)]
pub(super) struct State<T> {
    pub(super) items: TimingQueue<T>,
    /// The latest reading of the clock. What is due at it is due still, so that a backlog is served without more readings.
    now: i64,
    consumers: Arc<Line>,
    /// Who leads, as long as it [waits](Waiters::is_waiting): a timer may have called it since.
    leader: Option<Ticket>,
    /// For when the leader has set its timer.
    leader_until: i64,
    /// Whether a consumer that does not wait yet looks at the clock, for a head that is near.
    looking: bool,
    producers: Arc<Line>,
    /// When the watches end that no timer ends, since the clock is moved by hand.
    watch_ends: Option<i64>,
    closed: bool,
    capacity: usize,
    supply: Supply<T>,
}

/// What the intake is supplied with.
#[derive(Debug)]
struct Supply<T> {
    /// Empty: the room for items, to be swapped with a tray.
    room: Vec<Left<T>>,
    /// Handles for trays that run out of them.
    fresh: Vec<Handle>,
    /// How many handles a tray gets. Doubles when a producer finds none.
    batch: usize,
    /// The watch that was set last.
    watch: i64,
}

/// The most items that lie in a tray, if they are small: what is brought in at a time takes some ten microseconds.
const BATCH_MAX: usize = 1024;
/// The most bytes of items in a tray, if that is more than a few.
const BATCH_BYTES: usize = 64 * 1024;
const BATCH_MIN: usize = 8;

/// What a sleep costs in time of a processor, or less: `docs/decisions/2026-11-21-parking.md` has what was measured.
const NEAR_NS: i64 = 20_000;
/// For how long a consumer looks at nothing but the clock.
const LOOK_NS: i64 = 5_000;

/// Whom an operation has called.
#[derive(Debug, Default)]
#[must_use = "fire the calls when the lock has been let go"]
pub(super) struct Calls {
    consumer: Option<Call>,
    producer: Option<Call>,
}

impl Calls {
    /// Wakes whom an operation has called. Not under the lock.
    ///
    /// A thread that the operating system takes off its processor here delays those that it has called, and those behind
    /// them, until it runs again or the watch ends.
    pub(super) fn fire(self, consumers: &Line, producers: &Line) {
        let (consumer, producer) =
            (self.consumer.map(|call| (consumers, call)), self.producer.map(|call| (producers, call)));
        // A producer that is a thread goes first: the waker of a consumer that is a task may block.
        let in_turn = match &producer {
            Some((_, call)) if call.is_thread() => [producer, consumer],
            _ => [consumer, producer],
        };
        in_turn.into_iter().flatten().for_each(|(line, call)| line.fire(call));
    }
}

/// Whom a clock that was moved by hand has called.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub(super) consumers: Vec<Call>,
    pub(super) producers: Vec<Call>,
}

impl<T> State<T> {
    pub(super) fn new(capacity: usize, consumers: &Arc<Line>, producers: &Arc<Line>) -> State<T> {
        State {
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

    /// The latest reading of the clock that this state knows of.
    pub(super) fn latest_now(&self) -> i64 {
        self.now
    }

    pub(super) fn read_clock(&mut self, time: &Time) -> i64 {
        self.now = time.now();
        self.now
    }

    /// Takes the head if it is due. Reads the clock if the latest reading does not tell.
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

    /// When to look again, if the head is so near that a consumer had better not lie down: it would take a processor for
    /// longer to fall asleep and be woken. One at a time does so, and nobody while others wait.
    pub(super) fn near_head(&self, time: &Time) -> Option<i64> {
        let head = self.items.next_due()?;
        let is_near = head <= self.now.saturating_add(NEAR_NS) && matches!(time, Time::System);
        if !is_near || self.looking || !self.consumers.is_empty() {
            return None;
        }
        // A put of an earlier head finds nobody to call. It is seen when this is over.
        Some(head.min(self.now.saturating_add(LOOK_NS)))
    }

    pub(super) fn begin_to_look(&mut self) {
        self.looking = true;
    }

    pub(super) fn end_looking(&mut self) {
        self.looking = false;
    }

    /// Brings in what lies in the intake, and supplies it with handles.
    #[cold]
    pub(super) fn bring_in(&mut self, intake: &Intake<T>) {
        let Supply { room, fresh, batch, watch } = &mut self.supply;
        intake.make_room(*watch, self.closed);
        intake.collect(room, fresh, *batch);
        // As many as were used, and as many again in case that more producers come.
        let enough = (2 * room.len()).clamp(*batch, *batch * intake.trays());
        for Left { handle, due, item, .. } in room.drain(..) {
            self.items.insert_reserved(handle, due, item);
        }
        while fresh.len() < enough {
            fresh.push(self.items.reserve());
        }
    }

    /// Prepares a larger batch of handles: a producer found none.
    pub(super) fn supply_more(&mut self) {
        let most = (BATCH_BYTES / size_of::<Left<T>>()).clamp(BATCH_MIN, BATCH_MAX);
        let Supply { fresh, batch, .. } = &mut self.supply;
        *batch = (*batch * 2).clamp(BATCH_MIN, most);
        while fresh.len() < *batch {
            fresh.push(self.items.reserve());
        }
    }

    /// Whether nobody waits and nobody has to be watched out for, which is the case to be fast in: there is nothing
    /// to settle.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.consumers.is_empty() && self.producers.is_empty() && self.supply.watch == NOBODY
    }

    /// Restores the rules; see the head of this file.
    pub(super) fn settle(&mut self, calls: &mut Calls) {
        // Who was called by an earlier round is not woken yet, and may have lost the call already: that one is enough.
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

    /// Sets the watch by who waits. False if there is an item in the intake that has to be brought in first.
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

    /// Closes the queue and takes all who wait, to be woken.
    pub(super) fn close(&mut self) -> impl Iterator<Item = Wake> + use<T> {
        self.closed = true;
        self.leader = None;
        let consumers = self.consumers.lock().dismiss();
        consumers.chain(self.producers.lock().dismiss())
    }

    /// A watch was set that no timer ends.
    pub(super) fn note_watch(&mut self, time: &Time) {
        self.watch_ends = self.watch_ends.or(Some(time.now().saturating_add(GRACE_NS)));
    }

    /// The clock was moved by hand: calls the leader if the head is due, and all whose deadline has passed. Ends watches.
    pub(super) fn clock_moved(&mut self, time: &Time) -> Moved {
        let now = self.read_clock(time);
        let ends_watch = self.watch_ends.take_if(|end| *end <= now).is_some();
        let mut moved = Moved::default();
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

    /// How many consumers wait.
    pub(super) fn waiting(&self) -> usize {
        self.consumers.len()
    }

    /// A consumer begins or goes on to wait; it leads if nobody does, or nobody who wakes in time, or it is a thread and who does
    /// is a task. The moment at which it
    /// wants to be woken, and the way to wake it that is replaced: to be dropped when the lock has been let go.
    ///
    /// It may not let the lock go before the [watch](State::watch) is set.
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

    /// A consumer that waits, or was called, is back.
    pub(super) fn consumer_is_back(&mut self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.consumers.lock().is_back(ticket);
        }
    }

    /// A consumer waits no longer, called or not. The way to wake it, to be dropped without the lock.
    pub(super) fn consumer_leaves(&mut self, ticket: Option<Ticket>) -> Option<Wake> {
        let ticket = ticket?;
        self.leader.take_if(|leader| *leader == ticket);
        self.consumers.lock().leave(ticket)
    }

    /// A producer begins or goes on to wait for room.
    pub(super) fn wait_for_room(&mut self, ticket: &mut Option<Ticket>, wake: Wake) -> Option<Wake> {
        self.producers.lock().wait(ticket, wake, None).1
    }

    /// A producer that waits, or was called, is back.
    pub(super) fn producer_is_back(&mut self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.producers.lock().is_back(ticket);
        }
    }

    /// A producer waits no longer, called or not.
    pub(super) fn producer_leaves(&mut self, ticket: Option<Ticket>) -> Option<Wake> {
        self.producers.lock().leave(ticket?)
    }
}

/// Who leads.
fn leader(leader: Option<Ticket>, consumers: &Waiters) -> Option<Ticket> {
    leader.filter(|leader| consumers.is_waiting(*leader))
}
