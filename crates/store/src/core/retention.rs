//! Retention: how long messages stay dead, and how many. The oldest deaths are discarded first.
//!
//! # Ground rules
//! 1. A queue has one alarm, among the alarms of all queues, if it limits the time of its dead messages, has
//!    more of them than it keeps, or drops what expires and has messages that expire. Nothing has to be
//!    discarded in the queue before its alarm, which is made exact when it is reached. A queue without
//!    retention has none.
//! 2. Calls discard at their beginning, before they have looked up any queue or message: together one slice
//!    until the next [`serve`](Core::serve). In idle time [`retain_some`](Core::retain_some) discards more.
//! 3. A death that leaves more than the queue keeps discards the oldest in the same step; where that is cold,
//!    the next slice does.
//! 4. A call that names a message does not find it once its retention is over, whether it was discarded or
//!    not.
//! 5. Discards are recorded one by one, and no answer waits for them: if a crash loses some, those messages
//!    are still past their retention.
//! 6. Alarms are of the wall clock. When it steps back they are all set anew: those from before the step lie
//!    ahead by as much as it was.

use dwell_model::{Now, OnExpiry, State, Timestamp};

use super::cold::{DeadProgress, DeadReader, Died};
use super::deaths::Discarded;
use super::entry::Position;
use super::placement::greatest_id;
use super::{Core, Durability, Log, Record, StoredBody};

/// The progress in the queue whose dead messages were last read for retention. Kept while the queue stays the
/// same, so that [`Cold`](super::Cold) continues with what it has read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retaining {
    queue: u32,
    /// All that died up to this one was discarded.
    after: Option<Died>,
    /// Whether more has to be read before anything after `after` is handed over.
    is_reading: bool,
    /// Whether cold messages have died since the reading began, which it may not include.
    is_stale: bool,
}

/// The number of dead messages that are read at a time: if cold ones are among them, more are made resident
/// than are discarded.
const READ: usize = 64;
/// The delay in ms after which a queue is looked at again, so that lists show within a minute what is past
/// its retention.
const SOON_MS: u64 = 30_000;
/// The delay in ms after which messages that could not be read are retried,
const AGAIN_MS: u64 = 10_000;
/// and the one where the rest could be read, since that is read again too.
const PASSED_OVER_MS: u64 = 600_000;

impl<B: StoredBody> Core<B> {
    /// Discards one slice of the dead messages that are past their queues' retention; true if there are more.
    /// All calls between two [serves](Core::serve) also discard one; calling this in idle time frees memory
    /// and disk sooner.
    pub fn retain_some(&mut self, now: Now, log: &mut impl Log<B>) -> bool {
        self.slice.retained = self.config.bulk_per_call;
        self.begin(now, log);
        self.has_past_retention(now)
    }

    /// When dead messages of any queue may next be past its retention, by the wall clock; `None` if none will
    /// be.
    pub fn next_retention(&self) -> Option<Timestamp> {
        let at = self.queues.next_retention()?;
        Some(Timestamp::from_ms(at).unwrap_or(Timestamp::MIN))
    }

    fn has_past_retention(&self, now: Now) -> bool {
        self.queues.next_retention().is_some_and(|at| at <= now.wall.as_ms())
    }

    /// Discards what is left of the slice, as part of a call.
    pub(super) fn retain(&mut self, now: Now, log: &mut impl Log<B>) {
        let mut left = self.slice.retained;
        while left > 0
            && let Some(queue) = self.next_to_retain(now)
        {
            self.retain_in(queue, &mut left, now, log);
            self.queues.remove_if_bare(queue);
        }
        self.slice.retained = left;
    }

    /// The next queue to discard in. The queue that is being read comes first, until it is finished: only one
    /// reading is kept, and if the queues took turns, none would be finished.
    fn next_to_retain(&mut self, now: Now) -> Option<u32> {
        let now_ms = now.wall.as_ms();
        let last = self.retaining.map(|at| at.queue);
        last.filter(|queue| self.queues.take_retention(*queue, now_ms))
            .or_else(|| self.queues.pop_retention(now_ms))
    }

    /// Discards messages of a queue that are past its retention, `left` at most, and sets the queue's alarm
    /// again.
    pub(super) fn retain_in(&mut self, queue: u32, left: &mut usize, now: Now, log: &mut impl Log<B>) {
        self.queues.forget_retention(queue);
        self.take_up_passed_over(queue, now, log);
        self.expire_dropped(queue, left, now, log);
        loop {
            let (ttl, most) = (self.settings(queue).dead_ttl_ms, self.settings(queue).dead_max);
            let dead = self.queues.get(queue).dead();
            if dead == 0 || ttl.is_none() && most.is_none_or(|most| dead <= most) {
                return;
            }
            if *left == 0 {
                self.queues.expect_retention(queue, Timestamp::MIN.as_ms());
                return;
            }
            // Where only their number is limited, no more are made resident than are discarded.
            let over = most.map_or(0, |most| dead.saturating_sub(most));
            let needed = if ttl.is_some() { READ } else { usize::try_from(over).unwrap_or(READ) };
            let asked = READ.min(*left).min(needed);
            // A reading of another queue cannot be continued. Messages that died after a reading began wait
            // until it has handed something over: otherwise it would never end where messages expire all the
            // time.
            let goes_on = |last: &Retaining| last.queue == queue && (last.is_reading || !last.is_stale);
            let last = self.retaining.filter(goes_on);
            let anew = last.is_none();
            let mut at = last.unwrap_or(Retaining { queue, after: None, is_reading: false, is_stale: false });
            // Messages that died later are not past their retention, and there are not too many.
            let until = if over == 0 { self.last_past_retention(queue, now) } else { None };
            if let Some(cold) = log.cold() {
                cold.retain_until(until);
            }
            let read = self.page_in_dead(queue, DeadReader::Retention, at.after, anew, asked, log);
            let Ok(handed_over) = read else {
                self.queues.expect_retention(queue, now.wall.saturating_after(AGAIN_MS).as_ms());
                return;
            };
            let mut to = at.after;
            let oldest = self.oldest(queue, &mut to, handed_over, asked);
            let is_through = match handed_over {
                DeadProgress::All => true,
                DeadProgress::To(to) => until.is_some() && until <= to,
            };
            at.is_reading = oldest.is_empty() && !is_through;
            let passed_over = if at.is_reading { None } else { self.expect_passed_over(queue, now, log) };
            if oldest.is_empty() {
                let again = if at.is_reading {
                    // Each call reads a part: reading uses the slice up too.
                    *left = left.saturating_sub(READ);
                    Timestamp::MIN
                } else if handed_over == DeadProgress::All {
                    passed_over.unwrap_or(now.wall.saturating_after(AGAIN_MS))
                } else {
                    // The end of the next message's retention was not read.
                    self.expect_end_of_first(queue);
                    now.wall.saturating_after(SOON_MS)
                };
                at.after = to;
                // Where only what was passed over is left, what dies later is behind it, and none of it is read for that.
                let goes_on = handed_over != DeadProgress::All || passed_over.is_some();
                self.retaining = Some(at).filter(|_| goes_on);
                self.queues.expect_retention(queue, again.as_ms());
                return;
            }
            self.retaining = Some(at);
            // What was passed over has died before some of these, and would go in their place: it is not counted.
            let name = &self.queues.get(queue).name;
            let passed_over = log.cold().and_then(|cold| cold.passed_over(name)).unwrap_or(0);
            let most = most.map(|most| most.saturating_add(passed_over));
            for ((death, id), slot) in oldest {
                let settings = self.settings(queue);
                let why = if settings.is_past_retention(death, now.wall) {
                    Discarded::Ttl
                } else if most.is_some_and(|most| self.queues.get(queue).dead() > most) {
                    Discarded::Max
                } else {
                    return self.expect_end_of(queue, death);
                };
                *left -= 1;
                self.discard_dead(slot, why, log);
                if let Some(retaining) = &mut self.retaining {
                    retaining.after = Some((death, id));
                }
            }
        }
    }

    /// If dead messages of a queue were passed over, since they cannot be read: when they are tried again.
    fn expect_passed_over(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) -> Option<Timestamp> {
        let found = self.queues.get_mut(queue);
        log.cold()?.passed_over(&found.name)?;
        let later = now.wall.saturating_after(PASSED_OVER_MS);
        let again = *found.passed_over_again.get_or_insert(later);
        self.queues.expect_retention(queue, again.as_ms());
        Some(again)
    }

    /// Begins anew in a queue if it is time to try again what was passed over. A reading comes to its end first: else it might never.
    fn take_up_passed_over(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) {
        let Some(again) = self.queues.get(queue).passed_over_again else { return };
        if again > now.wall {
            return self.queues.expect_retention(queue, again.as_ms());
        }
        if self.retaining.is_some_and(|at| at.queue == queue && at.is_reading) {
            return;
        }
        self.retaining = self.retaining.filter(|at| at.queue != queue);
        let found = self.queues.get_mut(queue);
        found.passed_over_again = None;
        if let Some(cold) = log.cold() {
            cold.try_passed_over(&found.name);
        }
    }

    /// Expires messages of a queue that drops them, `left` at most: if no call touches the queue, they would
    /// keep memory, and the queue itself.
    fn expire_dropped(&mut self, queue: u32, left: &mut usize, now: Now, log: &mut impl Log<B>) {
        if self.settings(queue).on_expiry != OnExpiry::Drop {
            return;
        }
        while *left > 0 && self.expire_next(queue, now, log).is_some() {
            *left -= 1;
        }
        self.expect_dropped(queue);
    }

    /// Sets the alarm of a queue that drops what expires to its first expiry in memory.
    fn expect_dropped(&mut self, queue: u32) {
        if let (OnExpiry::Drop, Some(next)) =
            (self.settings(queue).on_expiry, self.queues.get(queue).expiries.next_due())
        {
            self.queues.expect_retention(queue, next);
        }
    }

    /// Notes the expiry of a message that is not leased.
    pub(super) fn expect_expiry(&mut self, queue: u32, expires: Timestamp) {
        if self.settings(queue).on_expiry == OnExpiry::Drop {
            self.queues.expect_retention(queue, expires.as_ms());
        }
    }

    /// The last of a queue's dead messages, by (death, id), whose retention is over, if there is one.
    pub(super) fn last_past_retention(&self, queue: u32, now: Now) -> Option<Died> {
        let ttl_ms = i64::try_from(self.settings(queue).dead_ttl_ms?).unwrap_or(i64::MAX);
        let at = Timestamp::from_ms(now.wall.as_ms().saturating_sub(ttl_ms)).ok()?;
        Some((at, greatest_id()))
    }

    /// Notes that a queue may have dead messages past its retention: its settings have changed, or its
    /// messages were not known.
    pub(super) fn look_at_retention(&mut self, queue: u32) {
        self.expect_dropped(queue);
        let settings = self.settings(queue);
        if (settings.dead_ttl_ms.is_some() || settings.dead_max.is_some())
            && self.queues.get(queue).dead() > 0
        {
            self.queues.expect_retention(queue, Timestamp::MIN.as_ms());
        }
    }

    /// The same for all queues after a step of the clock back to `wall`, or a replay of one.
    pub(super) fn look_at_all_retention(&mut self, wall: Timestamp) {
        let latest = wall.saturating_after(PASSED_OVER_MS);
        let queues: Vec<u32> = self.queues.all().collect();
        for queue in queues {
            let found = self.queues.get_mut(queue);
            found.passed_over_again = found.passed_over_again.map(|again| again.min(latest));
            self.look_at_retention(queue);
        }
    }

    /// Notes that cold messages of a queue have expired in place, at instants that are not known here.
    pub(super) fn expect_end_of_expired(&mut self, queue: u32) {
        if let Some(retaining) = self.retaining.as_mut().filter(|retaining| retaining.queue == queue) {
            retaining.is_stale = true;
        }
        let settings = self.settings(queue);
        let is_over = settings.dead_max.is_some_and(|most| self.queues.get(queue).dead() > most);
        let ttl_ms = settings.dead_ttl_ms.map(|ttl_ms| ttl_ms.min(SOON_MS));
        if is_over {
            self.queues.expect_retention(queue, Timestamp::MIN.as_ms());
        } else if let Some(ttl_ms) = ttl_ms {
            self.queues.expect_retention(queue, self.seen.saturating_after(ttl_ms).as_ms());
        }
    }

    /// Notes that a message was added to the dead of a queue.
    pub(super) fn expect_end_of_one(&mut self, queue: u32, died: Died) {
        let is_before = |at: &Retaining| at.queue == queue && at.after.is_some_and(|after| died <= after);
        if self.retaining.as_ref().is_some_and(is_before) {
            // The reading would skip it.
            self.retaining = None;
        }
        self.expect_end_of(queue, died.0);
    }

    fn expect_end_of(&mut self, queue: u32, death: Timestamp) {
        if let Some(ttl_ms) = self.settings(queue).dead_ttl_ms {
            self.queues.expect_retention(queue, death.saturating_after(ttl_ms).as_ms());
        }
    }

    /// Sets the alarm of a queue to the end of the retention of the first dead message in memory.
    fn expect_end_of_first(&mut self, queue: u32) {
        let first = self.queues.get(queue).dead.by_death.first_key_value();
        if let Some(death) = first.map(|((death, _), _)| *death) {
            self.expect_end_of(queue, death);
        }
    }

    /// Trims a queue to its limit after a message has changed, if that made it dead. The message may have
    /// been removed afterwards.
    pub(super) fn trim_changed(&mut self, slot: u32, state: Option<State>, now: Now, log: &mut impl Log<B>) {
        if matches!(state, Some(State::Dead(_))) {
            self.trim_dead(slot, now, log);
        }
    }

    /// Trims a queue after a message has died: discards one message if there are too many, or the message
    /// itself if its retention is over already.
    pub(super) fn trim_dead(&mut self, slot: u32, now: Now, log: &mut impl Log<B>) {
        let Some(death) = self.death_of(slot) else { return };
        let queue = self.entries.get(slot).queue;
        let settings = self.settings(queue);
        if settings.is_past_retention(death, now.wall) {
            return self.discard_dead(slot, Discarded::Ttl, log);
        }
        let found = self.queues.get(queue);
        if settings.dead_max.is_none_or(|most| found.dead() <= most) {
            return;
        }
        if found.cold.dead > 0 {
            // The oldest may be one of those.
            return self.queues.expect_retention(queue, Timestamp::MIN.as_ms());
        }
        if let Some((_, oldest)) = found.dead.by_death.first_key_value() {
            let oldest = *oldest;
            self.discard_dead(oldest, Discarded::Max, log);
        }
    }

    /// When a message died, if it is dead.
    pub(super) fn death_of(&self, slot: u32) -> Option<Timestamp> {
        let entry = self.entries.get(slot);
        let rare = entry.rare.as_deref().filter(|_| entry.place == Position::Dead)?;
        rare.death.map(|death| death.at)
    }

    /// Whether a message is dead and its retention is over.
    pub(super) fn is_past_retention(&self, slot: u32, now: Now) -> bool {
        let settings = self.settings(self.entries.get(slot).queue);
        self.death_of(slot).is_some_and(|death| settings.is_past_retention(death, now.wall))
    }

    /// Removes a dead message that no call has asked to remove. Its queue stays, even if nothing keeps it.
    pub(super) fn discard_dead(&mut self, slot: u32, why: Discarded, log: &mut impl Log<B>) {
        let entry = self.entries.get(slot);
        self.deaths.discarded(&self.queues.get(entry.queue).name, why, 1);
        log.record(&Record::Gone { number: entry.number }, Durability::Written);
        self.note_leaves_dead(slot);
        self.remove(slot);
    }
}
