//! Waiting takes, and the moment at which one of them may have to be answered.
//!
//! A queue on which takes wait has two alarms, one on each clock: when its earliest message becomes due or
//! its pause ends, and when its earliest lease runs out. Queues that have changed are on a list of those to
//! be looked at. So `serve` costs nothing where nothing happened, however many takes wait.
//!
//! A queue that has messages and may grant no lease is held up: its takes continue to wait. It is looked at
//! again when one of its leases ends or, where the cap is the store's, when any lease does; then the held-up
//! queue whose first take came earliest is served first.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dwell_model::{Now, Pause, QueueName, Receipt, Timestamp, Wake};
use dwell_time::{Handle, TimingQueue};

use super::placement::check_lease;
use super::queue::{CapReached, mono};
use super::{Core, Log, StoredBody};
use crate::{Delivery, Error, Result, Take};

/// The owner's id of a waiting take; not used for two at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// The answer to a waiting take: messages, nothing because its wait timed out, or a refusal.
pub type TakeAnswer<B> = (WaiterId, Result<Vec<Delivery<B>>>);

/// All waiting takes.
#[derive(Debug)]
pub(super) struct Waiters<B> {
    /// By the order of their arrival.
    by_turn: BTreeMap<u64, Waiter>,
    turns: HashMap<WaiterId, u64>,
    next_turn: u64,
    /// The ends of their waits, in monotonic milliseconds.
    ends: TimingQueue<u64>,
    wall_alarms: TimingQueue<u32>,
    mono_alarms: TimingQueue<u32>,
    to_look_at: Vec<u32>,
    /// Queues that are unfinished: more leases have to run out than the slice allows, their own or of another
    /// queue of the first take; the first message of another of its queues cannot be determined yet; or
    /// enough was handed out. They are put on that list when all others were served.
    to_go_on: Vec<u32>,
    /// Queues that the store's cap of leases holds up, by the first turns that waited on them then.
    held_up: BTreeSet<(u64, u32)>,
    answers: Vec<TakeAnswer<B>>,
    /// The number of messages in the answers.
    handed_out: usize,
}

#[derive(Debug)]
struct Waiter {
    id: WaiterId,
    take: Take,
    queues: Vec<u32>,
    end: Handle,
}

impl<B> Waiters<B> {
    pub(super) fn new() -> Waiters<B> {
        Waiters {
            by_turn: BTreeMap::new(),
            turns: HashMap::new(),
            next_turn: 0,
            ends: TimingQueue::new(),
            wall_alarms: TimingQueue::new(),
            mono_alarms: TimingQueue::new(),
            to_look_at: Vec::new(),
            to_go_on: Vec::new(),
            held_up: BTreeSet::new(),
            answers: Vec::new(),
            handed_out: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_turn.len()
    }
}

impl<B: StoredBody> Core<B> {
    /// Makes a take wait that was just answered with nothing, for `take.wait_ms`.
    ///
    /// # Errors
    /// [`Error::TooManyWaiting`], [`Error::TooManyQueues`], [`Error::Invalid`]; it does not wait then.
    ///
    /// # Panics
    /// If another take of this id waits.
    pub fn wait(&mut self, id: WaiterId, take: Take, now: Now, log: &mut impl Log<B>) -> Result<()> {
        self.begin(now, log);
        check_lease(take.lease_ms)?;
        self.config.limits.check_batch(take.queues.len())?;
        let limit = self.config.waiting_limit;
        if self.waiters.len() >= limit {
            return Err(Error::TooManyWaiting { limit });
        }
        if take.max == 0 || take.queues.is_empty() || take.wait_ms == 0 {
            self.waiters.answers.push((id, Ok(Vec::new())));
            return Ok(());
        }
        self.check_room_to_wait(&take.queues)?;
        let turn = self.waiters.next_turn;
        self.waiters.next_turn += 1;
        let mut queues: Vec<u32> = take.queues.iter().map(|name| self.queues.find_or_insert(name)).collect();
        queues.sort_unstable();
        queues.dedup();
        for queue in &queues {
            self.queues.get_mut(*queue).watch.get_or_insert_default().waiting.insert(turn);
            self.look_at(*queue);
        }
        let end = self.waiters.ends.insert(mono(now.mono_ms.saturating_add(take.wait_ms)), turn);
        let before = self.waiters.turns.insert(id, turn);
        assert!(before.is_none(), "{id:?} waits already");
        self.waiters.by_turn.insert(turn, Waiter { id, take, queues, end });
        Ok(())
    }

    /// Checks that one take more may wait on each of these queues, and that there may be as many queues.
    fn check_room_to_wait(&self, names: &[QueueName]) -> Result<()> {
        let limits = &self.config.limits;
        let mut new: Vec<&QueueName> = Vec::new();
        for name in names {
            let Some(queue) = self.queues.find(name) else {
                new.push(name);
                continue;
            };
            let waiting = self.queues.get(queue).watch.as_ref().map_or(0, |watch| watch.waiting.len());
            if waiting >= limits.waiting_per_queue {
                return Err(Error::TooManyWaiting { limit: limits.waiting_per_queue });
            }
        }
        new.sort_unstable();
        new.dedup();
        if !new.is_empty() && self.queues.len() + new.len() > limits.queues {
            return Err(Error::TooManyQueues { limit: limits.queues });
        }
        Ok(())
    }

    /// Forgets a take whose caller has disconnected; the messages of an answer not yet handed over are given
    /// back. False if there is none: it was answered, and the owner has to [give back](Core::give_back) the
    /// messages.
    pub fn forget(&mut self, id: WaiterId, now: Now, log: &mut impl Log<B>) -> bool {
        if let Some(at) = self.waiters.answers.iter().position(|(other, _)| *other == id) {
            let (_, answer) = self.waiters.answers.remove(at);
            let receipts: Vec<Receipt> =
                answer.into_iter().flatten().map(|delivery| delivery.receipt).collect();
            self.give_back(&receipts, now, log);
            return true;
        }
        let Some(turn) = self.waiters.turns.get(&id).copied() else { return false };
        self.stop_waiting(turn);
        true
    }

    /// Answers all waiting takes with nothing, since the store closes.
    pub fn dismiss_all(&mut self) -> Vec<TakeAnswer<B>> {
        let mut answers = std::mem::take(&mut self.waiters.answers);
        while let Some((turn, _)) = self.waiters.by_turn.first_key_value() {
            let waiter = self.stop_waiting(*turn);
            answers.push((waiter.id, Ok(Vec::new())));
        }
        answers
    }

    /// Whether any take waits, or has an answer that [`serve`](Core::serve) has not returned yet.
    pub fn has_waiters(&self) -> bool {
        self.waiters.len() > 0 || !self.waiters.answers.is_empty()
    }

    /// Answers the takes that have messages now, in the order of their arrival on each queue, and those whose
    /// wait has timed out. Of several queues that have messages, the one whose first take came earliest is
    /// served first. When as many messages were handed out as one call may have items, or as many queues were
    /// released by timed-out waits, or a slice of leases has run out, the next call continues.
    pub fn serve(&mut self, now: Now, log: &mut impl Log<B>) -> Vec<TakeAnswer<B>> {
        // Earlier calls had a slice of their own: waiting takes get a whole one.
        self.renew_slice();
        if !self.has_waiters() {
            // Queues on the lists were waited on when they changed, and no longer are.
            self.waiters.to_look_at.clear();
            self.waiters.to_go_on.clear();
            return Vec::new();
        }
        self.begin(now, log);
        while let Some((_, queue)) = self.waiters.wall_alarms.pop_due(now.wall.as_ms()) {
            self.look_at(queue);
        }
        while let Some((_, queue)) = self.waiters.mono_alarms.pop_due(mono(now.mono_ms)) {
            self.look_at(queue);
        }
        loop {
            self.serve_looked_at(now, log);
            let held_up = self.waiters.held_up.first().copied();
            let Some((_, queue)) = held_up.filter(|_| self.check_leased(now, log).is_ok()) else { break };
            self.look_at(queue);
        }
        let Waiters { to_look_at, to_go_on, .. } = &mut self.waiters;
        to_look_at.append(to_go_on);
        to_look_at.sort_unstable();
        to_look_at.dedup();
        self.end_waits(now, log);
        self.renew_slice();
        self.waiters.handed_out = 0;
        std::mem::take(&mut self.waiters.answers)
    }

    /// Answers takes whose wait has timed out with nothing, but not before it is known that there is nothing.
    /// If they wait on more queues in all than one call may name, the next serve continues.
    fn end_waits(&mut self, now: Now, log: &mut impl Log<B>) {
        let (mut unknown, mut names) = (Vec::new(), 0);
        while names < self.config.limits.batch
            && let Some((_, turn)) = self.waiters.ends.pop_due(mono(now.mono_ms))
        {
            names += self.waiters.by_turn.get(&turn).map_or(0, |waiter| waiter.queues.len());
            if self.lapses_for(turn, now, log) || self.is_unserved_for(turn) || self.is_given_up_for(turn) {
                unknown.push(turn);
                continue;
            }
            let waiter = self.stop_waiting(turn);
            self.waiters.answers.push((waiter.id, Ok(Vec::new())));
        }
        for turn in unknown {
            let Waiters { by_turn, ends, .. } = &mut self.waiters;
            if let Some(waiter) = by_turn.get_mut(&turn) {
                waiter.end = ends.insert(mono(now.mono_ms), turn);
            }
        }
    }

    /// Whether the first message of a queue that this take waits on was not determined yet.
    fn is_given_up_for(&mut self, turn: u64) -> bool {
        self.is_behind() && self.queues_of(turn).into_iter().any(|queue| self.is_given_up(queue))
    }

    /// Whether the first message of a queue that this take waits on cannot be determined yet.
    fn gives_up_on_waiter(&mut self, turn: u64, now: Now, log: &mut impl Log<B>) -> bool {
        if self.cold == 0 {
            return false;
        }
        let queues = self.queues_of(turn);
        // A single queue is known to have something.
        queues.len() > 1 && self.gives_up_on_any(&queues, now, log)
    }

    /// Whether more leases have to run out in the queues that this take waits on than the slice allows.
    fn lapses_for(&mut self, turn: u64, now: Now, log: &mut impl Log<B>) -> bool {
        let waiter = self.waiters.by_turn.get(&turn);
        let has_lapsed = waiter.is_some_and(|waiter| self.has_lapsed_in_any(&waiter.queues, now));
        has_lapsed && self.lapse_slice_of(&self.queues_of(turn), now, log)
    }

    /// Whether a queue that this take waits on has still to be looked at.
    fn is_unserved_for(&mut self, turn: u64) -> bool {
        self.queues_of(turn).into_iter().any(|queue| self.is_dirty(queue))
    }

    fn queues_of(&self, turn: u64) -> Vec<u32> {
        self.waiters.by_turn.get(&turn).map(|waiter| waiter.queues.clone()).unwrap_or_default()
    }

    /// Whether the oldest take that waits on one of these queues has to wait until the first messages of its
    /// other queues are known.
    pub(super) fn gives_up_on_earlier(&mut self, queues: &[u32]) -> bool {
        queues.iter().any(|queue| {
            let turn = self.first_turn(*queue);
            turn.is_some_and(|turn| self.is_given_up_for(turn))
        })
    }

    /// Serves the queues on the list of those to be looked at.
    fn serve_looked_at(&mut self, now: Now, log: &mut impl Log<B>) {
        while !self.waiters.to_look_at.is_empty() {
            // Takes of one queue that receive messages of others put these on the list again.
            let mut round = std::mem::take(&mut self.waiters.to_look_at);
            // Why a queue is looked at, and when it was put on the list, depends on where its messages are
            // stored; the order of service must not.
            round.sort_by_cached_key(|queue| self.first_turn(*queue));
            for queue in round {
                self.serve_queue(queue, now, log);
            }
        }
    }

    /// Whether the last [`serve`](Core::serve) did not finish: another has to follow at once.
    pub fn is_unserved(&self) -> bool {
        !self.waiters.to_look_at.is_empty()
    }

    /// When [`serve`](Core::serve) may next have an answer if nothing is called until then. To be called
    /// after `serve`. Without waiting takes there is no such moment.
    pub fn next_wake(&self) -> Wake {
        let waiters = &self.waiters;
        let mut wake = Wake::default();
        if !waiters.to_look_at.is_empty() || !waiters.answers.is_empty() {
            wake.by_wall(Timestamp::MIN);
        }
        if let Some(due) = waiters.wall_alarms.next_due() {
            wake.by_wall(Timestamp::from_ms(due).expect("alarms are set to timestamps"));
        }
        for deadline in [waiters.mono_alarms.next_due(), waiters.ends.next_due()].into_iter().flatten() {
            wake.by_mono(deadline.unsigned_abs());
        }
        if !waiters.held_up.is_empty() {
            // Any lease that ends makes room; leases of queues without waiting takes have no alarm.
            let has_room = self.leases.len() < self.config.limits.leased;
            let lapse = self.queues.next_lapse().map_or(u64::MAX, i64::unsigned_abs);
            wake.by_mono(if has_room { 0 } else { lapse });
        }
        wake
    }

    /// Serves the takes that already wait on these queues. False if some that may get something are not
    /// served yet.
    pub(super) fn serve_earlier(&mut self, queues: &[QueueName], now: Now, log: &mut impl Log<B>) -> bool {
        let mut is_done = true;
        for name in queues {
            if let Some(queue) = self.queues.find(name) {
                self.touch(queue, now, log);
                self.look_at(queue);
                is_done &= self.serve_queue(queue, now, log);
            }
        }
        is_done
    }

    /// Whether takes wait on a queue and it has to be looked at.
    fn is_dirty(&mut self, queue: u32) -> bool {
        // A queue on the list may have lost its waiters since, and its number may have been given to another
        // queue.
        let watch = self.queues.find_mut(queue).and_then(|found| found.watch.as_deref());
        watch.is_some_and(|watch| watch.dirty)
    }

    /// Serves the takes that wait on a queue, for as long as it has messages for them. False if it has to
    /// continue: it stays dirty until then.
    fn serve_queue(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) -> bool {
        if !self.is_dirty(queue) {
            return true;
        }
        // What holds it up is determined again: a queue that has to continue is not held up.
        self.hold_up(queue, None);
        if self.lapse_slice(queue, now, log) {
            // Its order is known when all leases have run out.
            self.waiters.to_go_on.push(queue);
            return false;
        }
        self.touch(queue, now, log);
        while let Some((turn, has_head)) = self.next_served(queue, now, log) {
            // A message of another of its queues may come first.
            let is_unknown = self.lapses_for(turn, now, log) || self.gives_up_on_waiter(turn, now, log);
            if is_unknown || self.waiters.handed_out >= self.config.limits.batch {
                self.waiters.to_go_on.push(queue);
                return false;
            }
            let Waiter { id, take, queues, .. } = self.unlist(turn);
            let answer = match has_head {
                Ok(()) => self.hand_out(&queues, &take, now, log),
                // The queue is skipped. If the others hand out nothing, the take is answered with its error.
                Err(error) if queues.len() > 1 => {
                    let others = self.hand_out(&queues, &take, now, log);
                    if others.as_ref().is_ok_and(Vec::is_empty) { Err(error) } else { others }
                }
                Err(error) => Err(error),
            };
            self.waiters.handed_out += answer.as_ref().map_or(0, Vec::len);
            self.waiters.answers.push((id, answer));
            self.let_go(&queues);
        }
        if self.is_dirty(queue) && self.has_more_over(queue) {
            self.waiters.to_go_on.push(queue);
            return false;
        }
        if let Some(found) = self.queues.find_mut(queue)
            && let Some(watch) = found.watch.as_deref_mut()
        {
            watch.dirty = false;
        }
        self.set_alarms(queue, now);
        true
    }

    /// The oldest take that waits on a queue, if the queue may hand out a message, or has an error to report.
    fn next_served(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) -> Option<(u64, Result<()>)> {
        let found = self.queues.find_mut(queue)?;
        let turn = *found.watch.as_ref()?.waiting.first()?;
        if self.is_at_max_leased(queue) {
            // Regardless of its messages, a lease has to end first.
            self.hold_up(queue, Some(CapReached::ByQueue));
            return None;
        }
        match self.head(queue, now, log) {
            Ok(None) => None,
            Ok(Some(_)) => {
                let held_up = if self.check_leased_of(queue).is_err() {
                    CapReached::ByQueue
                } else if self.check_leased(now, log).is_err() {
                    CapReached::ByStore(turn)
                } else {
                    return Some((turn, Ok(())));
                };
                self.hold_up(queue, Some(held_up));
                None
            }
            Err(error) => Some((turn, Err(error))),
        }
    }

    /// Notes what holds up a queue on which takes wait.
    fn hold_up(&mut self, queue: u32, by: Option<CapReached>) {
        let Some(watch) = self.queues.get_mut(queue).watch.as_deref_mut() else { return };
        let before = std::mem::replace(&mut watch.held_up, by);
        self.waiters.note_held_up(queue, before, by);
    }

    /// Notes that a lease of a queue has ended: there is room in it, if its own cap holds it up.
    pub(super) fn look_at_held_up(&mut self, queue: u32) {
        let watch = self.queues.get(queue).watch.as_deref();
        if watch.is_some_and(|watch| watch.held_up == Some(CapReached::ByQueue)) {
            self.look_at(queue);
        }
    }

    /// The turn of the oldest take that waits on a queue.
    fn first_turn(&mut self, queue: u32) -> Option<u64> {
        self.queues.find_mut(queue)?.watch.as_ref()?.waiting.first().copied()
    }

    fn stop_waiting(&mut self, turn: u64) -> Waiter {
        let waiter = self.unlist(turn);
        self.let_go(&waiter.queues);
        waiter
    }

    /// Removes a waiter from the list.
    fn unlist(&mut self, turn: u64) -> Waiter {
        let waiter = self.waiters.by_turn.remove(&turn).expect("the turn is one that waits");
        self.waiters.turns.remove(&waiter.id);
        self.waiters.ends.cancel(waiter.end);
        for queue in &waiter.queues {
            let watch = self.queues.get_mut(*queue).watch.as_deref_mut();
            watch.expect("a queue that is waited on is watched").waiting.remove(&turn);
        }
        waiter
    }

    /// Releases queues on which no take waits any more.
    fn let_go(&mut self, queues: &[u32]) {
        for queue in queues {
            let found = self.queues.get_mut(*queue);
            let Some(watch) = found.watch.take_if(|watch| watch.waiting.is_empty()) else { continue };
            watch.wall_alarm.map(|alarm| self.waiters.wall_alarms.cancel(alarm));
            watch.mono_alarm.map(|alarm| self.waiters.mono_alarms.cancel(alarm));
            self.waiters.note_held_up(*queue, watch.held_up, None);
            self.queues.remove_if_bare(*queue);
        }
    }

    /// Puts a queue on the list of those to be looked at, if takes wait on it.
    pub(super) fn look_at(&mut self, queue: u32) {
        if let Some(watch) = self.queues.get_mut(queue).watch.as_deref_mut()
            && !watch.dirty
        {
            watch.dirty = true;
            self.waiters.to_look_at.push(queue);
        }
    }

    /// Looks at all queues with waiting takes: after a step of the clock back, a pause in the defaults of all
    /// queues may hold again.
    pub(super) fn look_at_all_waited_on(&mut self) {
        let queues: Vec<u32> =
            self.waiters.by_turn.values().flat_map(|waiter| waiter.queues.iter().copied()).collect();
        for queue in queues {
            self.look_at(queue);
        }
    }

    /// Sets the alarms of a queue to the moments at which it may have something for waiting takes.
    fn set_alarms(&mut self, queue: u32, now: Now) {
        let waiters = &mut self.waiters;
        let Some(found) = self.queues.find_mut(queue) else { return };
        let pause = found.settings(&self.config.limits.defaults).pause;
        let (wall, lapse) = match pause {
            Pause::Indefinite => (None, None),
            Pause::Until(end) if now.wall < end => (Some(end.as_ms()), None),
            Pause::Until(_) | Pause::Running => {
                // A held-up queue waits for a lease to end, and for nothing else.
                let is_held_up = found.watch.as_deref().is_some_and(|watch| watch.held_up.is_some());
                let due = found.scheduled.next_due().into_iter().chain(found.cold.next_due()).min();
                (due.filter(|_| !is_held_up).map(Timestamp::as_ms), found.leased.next_due())
            }
        };
        let Some(watch) = found.watch.as_deref_mut() else { return };
        set_alarm(&mut waiters.wall_alarms, &mut watch.wall_alarm, queue, wall);
        set_alarm(&mut waiters.mono_alarms, &mut watch.mono_alarm, queue, lapse);
    }
}

fn set_alarm(alarms: &mut TimingQueue<u32>, alarm: &mut Option<Handle>, queue: u32, at: Option<i64>) {
    let Some(at) = at else {
        alarm.take().map(|alarm| alarms.cancel(alarm));
        return;
    };
    // An alarm that has fired cannot be moved.
    if !alarm.is_some_and(|alarm| alarms.reschedule(alarm, at)) {
        *alarm = Some(alarms.insert(at, queue));
    }
}

impl<B> Waiters<B> {
    fn note_held_up(&mut self, queue: u32, before: Option<CapReached>, by: Option<CapReached>) {
        if let Some(CapReached::ByStore(turn)) = before {
            self.held_up.remove(&(turn, queue));
        }
        if let Some(CapReached::ByStore(turn)) = by {
            self.held_up.insert((turn, queue));
        }
    }

    /// Whether the store's cap holds a queue up.
    pub(super) fn is_held_up(&self, queue: u32, turn: u64) -> bool {
        self.held_up.contains(&(turn, queue))
    }

    /// The turns of the takes that wait on a queue, in order.
    pub(super) fn turns_on(&self, queue: u32) -> Vec<u64> {
        let waits = |waiter: &Waiter| waiter.queues.contains(&queue);
        self.by_turn.iter().filter(|(_, waiter)| waits(waiter)).map(|(turn, _)| *turn).collect()
    }
}
