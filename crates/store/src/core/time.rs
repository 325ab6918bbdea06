//! Time acting on messages (due, lapsed, expired) and on pauses.
//!
//! Once a message is ready it stays so even if the clock steps back. Messages become ready only when their
//! queue is touched; so when the clock steps back, all messages that were due by the last time seen are
//! promoted first. Messages that had expired by then die before that: a cold message whose file could not be
//! read in time must not come back to life.

use dwell_model::{Now, State, Timestamp, as_of};

use super::deaths::Discarded;
use super::entry::Position;
use super::queue::ReadyKey;
use super::{Core, Durability, Log, Record, StoredBody};

impl<B: StoredBody> Core<B> {
    /// Begins a call.
    pub(super) fn begin(&mut self, now: Now, log: &mut impl Log<B>) {
        self.call += 1;
        self.free_a_few();
        self.remove_bare();
        if now.wall < self.seen {
            let wall = self.seen;
            self.expire_all(Now { wall, ..now }, log);
            self.promote_all(wall);
            if let Some(cold) = log.cold() {
                cold.promote(wall);
            }
            log.record(&Record::Ripe { wall }, Durability::Written);
            self.look_at_all_waited_on();
            self.look_at_all_retention(now.wall);
        }
        self.seen = now.wall;
        self.gave_up = false;
        self.end_pauses(now.wall, log);
        self.retain(now, log);
    }

    /// Notes that time has removed a message of a queue, which nothing may keep now. The queue stays until
    /// the next call begins, since this call refers to it by its slot.
    pub(super) fn note_bare(&mut self, queue: u32) {
        if self.queues.get(queue).is_bare() {
            self.maybe_bare.push(queue);
        }
    }

    /// Removes queues that nothing keeps, since time has removed their messages. Returns whether there were
    /// any.
    pub(super) fn remove_bare(&mut self) -> bool {
        let mut were_some = false;
        for queue in std::mem::take(&mut self.maybe_bare) {
            if self.queues.find_mut(queue).is_some_and(|found| found.is_bare()) {
                self.queues.remove_if_bare(queue);
                were_some = true;
            }
        }
        were_some
    }

    /// Lets time act on a queue, once a call. Returns whether this was the first time in it.
    #[inline]
    pub(super) fn touch(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) -> bool {
        let is_first = self.queues.get(queue).touched != self.call;
        if is_first {
            self.touch_first(queue, now, log);
        }
        is_first
    }

    fn touch_first(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) {
        self.queues.get_mut(queue).touched = self.call;
        self.promote(queue, now.wall);
        self.lapse(queue, now, log);
        self.expire(queue, now, log);
    }

    /// Expires messages whose expiry has passed, in all queues: at once, since they could not be distinguished from
    /// others later. A message that cannot be read now dies when it can: it had expired when it was promoted.
    pub(super) fn expire_all(&mut self, now: Now, log: &mut impl Log<B>) {
        self.expire_cold(now, log);
        let queues: Vec<u32> = self.queues.all().collect();
        for queue in queues {
            let _unread = self.expire_unread(queue, now, log);
            self.expire(queue, now, log);
        }
    }

    /// Makes messages that are due at `wall` ready: those in the lanes in their place, those beside them by
    /// moving them.
    pub(super) fn promote(&mut self, queue: u32, wall: Timestamp) {
        self.promote_some(queue, wall, usize::MAX);
    }

    /// The same, moving `most` at most. Returns how many were moved.
    pub(super) fn promote_some(&mut self, queue: u32, wall: Timestamp, most: usize) -> usize {
        let found = self.queues.get_mut(queue);
        found.ready_until = wall;
        let mut moved = 0;
        while moved < most
            && let Some(slot) = found.scheduled.pop_timed(wall)
        {
            let entry = self.entries.get_mut(slot);
            entry.place = Position::Ready;
            found.insert_ready(ReadyKey::of(entry), slot);
            moved += 1;
        }
        if found.watch.is_some() && found.has_ready() {
            self.look_at(queue);
        }
        moved
    }

    /// Moves messages that are due at `wall` to the ready ones, in all queues: after a step of the clock back
    /// they would not be due.
    pub(super) fn promote_all(&mut self, wall: Timestamp) {
        let queues: Vec<u32> = self.queues.all().collect();
        for queue in queues {
            let found = self.queues.get_mut(queue);
            found.ready_until = Timestamp::MIN;
            found.cold.look_again();
            while let Some(slot) = found.scheduled.pop(wall) {
                let entry = self.entries.get_mut(slot);
                entry.place = Position::Ready;
                found.insert_ready(ReadyKey::of(entry), slot);
            }
        }
    }

    pub(super) fn let_time_act(
        &mut self,
        slot: u32,
        now: Now,
        ready_since: Timestamp,
        log: &mut impl Log<B>,
    ) {
        let next = as_of(&self.standing(slot), now, self.rules(slot));
        let entry = self.entries.get(slot);
        let (queue, number) = (entry.queue, entry.number);
        match next {
            Some(next) => {
                let state = next.state;
                self.record_standing(slot, next, Durability::Written, log);
                self.note_ready(slot, ready_since);
                if matches!(state, State::Dead(_)) {
                    self.trim_changed(slot, Some(state), now, log);
                    self.note_bare(queue);
                }
            }
            None => {
                self.deaths.discarded(&self.queues.get(queue).name, Discarded::OnExpiry, 1);
                log.record(&Record::Gone { number }, Durability::Written);
                self.remove(slot);
                self.note_bare(queue);
            }
        }
    }

    /// Notes since when a message has been ready, if it is ready, as the base of lateness.
    pub(super) fn note_ready(&mut self, slot: u32, since: Timestamp) {
        let entry = self.entries.get_mut(slot);
        if entry.place == Position::Ready && since > entry.ready_since() {
            self.weight -= entry.weight();
            entry.rare.get_or_insert_default().ready_since = since;
            self.weight += entry.weight();
        }
    }
}
