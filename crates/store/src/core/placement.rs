//! Inserting, moving and removing messages: every index is maintained here.

use dwell_model::{
    Command, Holder, Invalid, Key, Lease, Message, MessageId, Now, Number, Refusal, Rules, Setting, Settings,
    Standing, State, Timestamp, Transition, apply,
};

use super::cold::{DeadSearch, Died};
use super::deaths::Discarded;
use super::entry::{Entry, LeaseTimer, Position};
use super::queue::{ReadyKey, mono};
use super::{Core, Durability, Log, Record, StoredBody};
use crate::{Error, Result, Target, When};

/// The number of messages that a search for the youngest dead message of a key may always look at, even if
/// the slice is used up.
const LOOKED_AT_AT_LEAST: usize = 4;

/// The result of a search for the youngest dead message that had a key.
pub(super) enum Searched {
    /// It is complete.
    Found(Option<u32>),
    /// It continues in the next slice.
    Unfinished,
}

impl<B: StoredBody> Core<B> {
    /// The message of the queue that has the id, made resident if it is cold.
    pub(super) fn find_id(
        &mut self,
        queue: u32,
        id: MessageId,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Option<u32>> {
        let Some(number) = self.numbering.number(id) else { return Ok(None) };
        let is_cold = self.resident_number(number).is_none();
        let Some(slot) = self.find_identified(queue, id, number, log)? else { return Ok(None) };
        // A message of another queue is not found by this call: expiries there are processed in slices.
        if is_cold && self.entries.get(slot).queue == queue {
            self.expire(queue, now, log);
        }
        // That may have dropped it.
        Ok(self.resident_id(queue, id).filter(|slot| !self.is_past_retention(*slot, now)))
    }

    pub(super) fn resident_id(&self, queue: u32, id: MessageId) -> Option<u32> {
        let slot = self.resident_number(self.numbering.number(id)?)?;
        let entry = self.entries.get(slot);
        (entry.id == id && entry.queue == queue).then_some(slot)
    }

    pub(super) fn resident_number(&self, number: Number) -> Option<u32> {
        let slot = self.by_number.find(number, |slot| self.entries.get(slot).number == number)?;
        (!self.is_unfreed(slot)).then_some(slot)
    }

    /// The live message of the queue that has the key, made resident if it is cold.
    pub(super) fn find_key(
        &mut self,
        queue: u32,
        key: &Key,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Option<u32>> {
        if let Some(slot) = self.resident_key(queue, key) {
            return Ok(Some(slot));
        }
        let found = self.queues.get(queue);
        if found.cold.is_empty() {
            return Ok(None);
        }
        let Some(cold) = log.cold() else { return Ok(None) };
        if let Some(cold) = cold.by_key(&found.name, key)? {
            self.draw(cold, now, log);
        }
        Ok(self.resident_key(queue, key))
    }

    pub(super) fn resident_key(&self, queue: u32, key: &Key) -> Option<u32> {
        self.by_key.find(self.key_hash.key(queue, key), |slot| {
            let entry = self.entries.get(slot);
            entry.queue == queue && entry.live_key() == Some(key) && !self.is_unfreed(slot)
        })
    }

    /// The youngest dead message of the queue that had the key, made resident if it is cold.
    pub(super) fn find_dead_key(
        &mut self,
        queue: u32,
        key: &Key,
        search: &mut DeadSearch,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Searched> {
        let found = self.queues.get(queue);
        if found.cold.dead > 0
            && let Some(cold) = log.cold()
        {
            let youngest = self.resident_dead_key(queue, key).and_then(|slot| self.died(slot));
            if youngest < search.after {
                // It has gone, or is cold again; and others were passed for it.
                *search = DeadSearch { looked_at: search.looked_at, ..DeadSearch::default() };
            }
            search.after = youngest;
            let least = if search.to.is_none() { LOOKED_AT_AT_LEAST } else { 0 };
            let (before, most) = (search.looked_at, self.slice.looked_at.max(least));
            if most == 0 {
                return Ok(Searched::Unfinished);
            }
            let mut drawn = Vec::new();
            let is_over = cold.dead_by_key(&found.name, key, youngest, most, search, &mut drawn)?;
            let looked_at = search.looked_at.saturating_sub(before);
            self.slice.looked_at = self.slice.looked_at.saturating_sub(looked_at);
            if !is_over {
                return Ok(Searched::Unfinished);
            }
            for cold in drawn {
                self.page_in(cold);
            }
        }
        let youngest = self.resident_dead_key(queue, key);
        Ok(Searched::Found(youngest.filter(|slot| !self.is_past_retention(*slot, now))))
    }

    fn resident_dead_key(&self, queue: u32, key: &Key) -> Option<u32> {
        let hash = self.key_hash.key(queue, key);
        let range = (hash, Timestamp::MIN, least_id())..=(hash, Timestamp::MAX, greatest_id());
        let youngest_first = self.queues.get(queue).dead.by_key.range(range).rev();
        youngest_first.map(|(_, slot)| *slot).find(|slot| self.entries.get(*slot).key() == Some(key))
    }

    fn died(&self, slot: u32) -> Option<Died> {
        Some((self.death_of(slot)?, self.entries.get(slot).id))
    }

    pub(super) fn find_target(
        &mut self,
        queue: u32,
        target: &Target,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Option<u32>> {
        match target {
            Target::Id(id) => self.find_id(queue, *id, now, log),
            Target::Key(key) => self.find_key(queue, key, now, log),
        }
    }

    pub(super) fn lease_of(&self, slot: u32) -> Option<Lease> {
        match self.entries.get(slot).place {
            Position::Leased(held) => Some(self.leases.get(held).lease),
            _ => None,
        }
    }

    pub(super) fn standing(&self, slot: u32) -> Standing {
        let entry = self.entries.get(slot);
        let held = match entry.place {
            Position::Leased(held) => Some(self.leases.get(held)),
            _ => None,
        };
        entry.standing(held, self.queues.get(entry.queue).ready_until)
    }

    pub(super) fn message(&self, slot: u32) -> Message<B> {
        self.message_that(slot, self.standing(slot))
    }

    /// The message with this standing.
    pub(super) fn message_that(&self, slot: u32, standing: Standing) -> Message<B> {
        let entry = self.entries.get(slot);
        let rare = entry.rare.as_deref();
        Message {
            id: entry.id,
            number: entry.number,
            queue: self.queues.get(entry.queue).name.clone(),
            body: entry.body.clone(),
            key: entry.key().cloned(),
            headers: rare.map(|rare| rare.headers.clone()).unwrap_or_default(),
            created: entry.created,
            lease_ms: rare.and_then(|rare| rare.lease_ms),
            max_attempts: rare.and_then(|rare| rare.max_attempts),
            standing,
        }
    }

    pub(super) fn settings(&self, queue: u32) -> &Settings {
        self.queues.get(queue).settings(&self.config.limits.defaults)
    }

    /// The rules that follow from a message's own attributes and its queue's settings.
    pub(super) fn rules(&self, slot: u32) -> Rules<'_> {
        let entry = self.entries.get(slot);
        let own_limit = entry.rare.as_deref().and_then(|rare| rare.max_attempts);
        Rules::of(entry.id, own_limit, self.settings(entry.queue))
    }

    /// The state machine's answer; nothing is changed yet.
    pub(super) fn apply(
        &self,
        slot: u32,
        command: &Command,
        now: Now,
    ) -> std::result::Result<Transition, Refusal> {
        apply(&self.standing(slot), command, now, self.rules(slot))
    }

    /// Applies `command`, and records and stores the result.
    pub(super) fn change(
        &mut self,
        slot: u32,
        command: &Command,
        now: Now,
        durability: Durability,
        log: &mut impl Log<B>,
    ) -> std::result::Result<Option<State>, Refusal> {
        let Transition { next, effects } = self.apply(slot, command, now)?;
        let Some(next) = next else {
            if effects.dropped {
                let queue = self.entries.get(slot).queue;
                self.deaths.discarded(&self.queues.get(queue).name, Discarded::OnExpiry, 1);
            }
            self.drop_message(slot, log);
            return Ok(None);
        };
        let state = next.state;
        self.record_standing(slot, next, durability, log);
        Ok(Some(state))
    }

    /// Records and stores a new standing of a message, and returns it.
    pub(super) fn record_standing(
        &mut self,
        slot: u32,
        next: Standing,
        durability: Durability,
        log: &mut impl Log<B>,
    ) -> Standing {
        let entry = self.entries.get(slot);
        if let (State::Dead(death), false) = (next.state, entry.place == Position::Dead) {
            let lapses = entry.rare.as_deref().map_or(0, |rare| rare.lapses);
            let by_lapse = next.counts.lapses > lapses;
            self.deaths.died(&self.queues.get(entry.queue).name, death, by_lapse);
        }
        let record = Record::Stands { number: entry.number, standing: next };
        log.record(&record, durability);
        let Record::Stands { standing, .. } = record else { unreachable!("made two lines above") };
        self.move_to(slot, &standing);
        standing
    }

    /// Records that a message is removed, and removes it.
    pub(super) fn drop_message(&mut self, slot: u32, log: &mut impl Log<B>) {
        let number = self.entries.get(slot).number;
        log.record(&Record::Gone { number }, Durability::Synced);
        self.note_leaves_dead(slot);
        self.remove(slot);
    }

    /// Inserts a message that was just put. Its place is set here, by `state`, which is scheduled or ready.
    pub(super) fn insert(&mut self, entry: Entry<B>, state: State) -> u32 {
        let slot = self.add(entry);
        match state {
            State::Scheduled => {
                let entry = self.entries.get_mut(slot);
                let queue = self.queues.get_mut(entry.queue);
                entry.place =
                    Position::Scheduled(queue.scheduled.insert_put(entry.priority, entry.due, slot));
                entry.epoch = queue.epoch;
            }
            _ => self.place(slot, state, None),
        }
        self.finish_insert(slot);
        slot
    }

    /// Inserts any other message.
    pub(super) fn insert_as(&mut self, entry: Entry<B>, state: State, holder: Option<Holder>) -> u32 {
        let slot = self.add(entry);
        self.place(slot, state, holder);
        self.finish_insert(slot);
        slot
    }

    fn add(&mut self, entry: Entry<B>) -> u32 {
        let number = entry.number;
        self.changed += usize::from(entry.mark.is_changed());
        self.weight += entry.weight();
        let slot = self.entries.insert(entry);
        let entries = &self.entries;
        self.by_number.insert(number, slot, |slot| entries.get(slot).number);
        slot
    }

    fn finish_insert(&mut self, slot: u32) {
        if self.entries.get(slot).rare.is_some() {
            self.claim_key(slot);
            self.time_expiry(slot);
        }
        self.look_at(self.entries.get(slot).queue);
    }

    /// Sets the standing of a message to `next`.
    pub(super) fn move_to(&mut self, slot: u32, next: &Standing) {
        let state = next.state;
        self.mark_changed(slot);
        self.release_key(slot);
        self.note_leaves_dead(slot);
        self.displace(slot);
        let entry = self.entries.get_mut(slot);
        self.weight -= entry.weight();
        entry.set_standing(next);
        if let (State::Dead(_), Some(rare)) = (state, entry.rare.as_deref_mut()) {
            rare.died_in = self.sweeps;
        }
        self.weight += entry.weight();
        let queue = entry.queue;
        self.place(slot, state, next.holder.clone());
        if self.entries.get(slot).rare.is_some() {
            self.claim_key(slot);
            self.time_expiry(slot);
        }
        self.look_at(queue);
    }

    /// Removes a message.
    pub(super) fn remove(&mut self, slot: u32) -> Entry<B> {
        self.snapshot_before_change(slot);
        self.release_key(slot);
        self.displace(slot);
        self.cancel_expiry(slot);
        let entry = self.entries.remove(slot);
        self.strike_off(&entry, slot);
        if entry.place.is_leased() {
            self.look_at_held_up(entry.queue);
        }
        entry
    }

    /// Inserts it into its queue's order for `state`.
    fn place(&mut self, slot: u32, state: State, holder: Option<Holder>) {
        let entry = self.entries.get_mut(slot);
        let (of, id) = (entry.queue, entry.id);
        let queue = self.queues.get_mut(of);
        entry.epoch = if matches!(state, State::Dead(_)) { queue.dead_epoch } else { queue.epoch };
        entry.place = match state {
            State::Scheduled => Position::Scheduled(queue.scheduled.insert(entry.due, slot)),
            State::Ready => {
                queue.insert_ready(ReadyKey::of(entry), slot);
                Position::Ready
            }
            State::Leased(lease) => {
                let timer = queue.leased.insert(mono(lease.deadline_mono_ms), slot);
                self.queues.expect_lapse(entry.queue, mono(lease.deadline_mono_ms));
                let holder = holder.map(|holder| self.holders.count_in(holder));
                Position::Leased(self.leases.insert(LeaseTimer { lease, timer, holder }))
            }
            State::Dead(death) => {
                queue.dead.by_death.insert((death.at, entry.id), slot);
                queue.dead.by_due.insert((entry.due, entry.id), slot);
                if let Some(key) = entry.key() {
                    let hash = self.key_hash.key(entry.queue, key);
                    queue.dead.by_key.insert((hash, death.at, entry.id), slot);
                }
                Position::Dead
            }
        };
        if let State::Dead(death) = state {
            self.expect_end_of_one(of, (death.at, id));
        }
    }

    /// Removes it from its queue's order.
    fn displace(&mut self, slot: u32) {
        let entry = self.entries.get(slot);
        let queue = self.queues.get_mut(entry.queue);
        match entry.place {
            Position::Scheduled(spot) => queue.scheduled.remove(spot),
            Position::Ready => queue.remove_ready(ReadyKey::of(entry)),
            Position::Leased(held) => {
                let LeaseTimer { timer, holder, .. } = self.leases.remove(held);
                // Does nothing if the timer itself has brought the message here.
                queue.leased.cancel(timer);
                if let Some(holder) = holder {
                    self.holders.count_out(&holder);
                }
            }
            Position::Dead => {
                let death = entry.rare.as_deref().and_then(|rare| rare.death);
                let at = death.expect("a dead message knows how it died").at;
                queue.dead.by_death.remove(&(at, entry.id));
                queue.dead.by_due.remove(&(entry.due, entry.id));
                if let Some(key) = entry.key() {
                    queue.dead.by_key.remove(&(self.key_hash.key(entry.queue, key), at, entry.id));
                }
            }
        }
    }

    fn claim_key(&mut self, slot: u32) {
        let entry = self.entries.get(slot);
        let Some(key) = entry.live_key() else { return };
        let hash = self.key_hash.key(entry.queue, key);
        let (entries, key_hash) = (&self.entries, &self.key_hash);
        self.by_key.insert(hash, slot, |slot| {
            let entry = entries.get(slot);
            key_hash.key(entry.queue, entry.live_key().expect("the index holds live keys"))
        });
    }

    pub(super) fn release_key(&mut self, slot: u32) {
        let entry = self.entries.get(slot);
        if let Some(key) = entry.live_key() {
            self.by_key.remove(self.key_hash.key(entry.queue, key), slot);
        }
    }

    /// Sets the timer of its expiry, or clears it while the message is leased or dead.
    fn time_expiry(&mut self, slot: u32) {
        self.cancel_expiry(slot);
        let entry = self.entries.get_mut(slot);
        if let (true, Some(expires), Some(rare)) =
            (entry.place.is_pending(), entry.expires(), entry.rare.as_deref_mut())
        {
            let of = entry.queue;
            rare.expiry = Some(self.queues.get_mut(of).expiries.insert(expires.as_ms(), slot));
            self.expect_expiry(of, expires);
        }
    }

    fn cancel_expiry(&mut self, slot: u32) {
        let entry = self.entries.get_mut(slot);
        if let Some(handle) = entry.rare.as_deref_mut().and_then(|rare| rare.expiry.take()) {
            self.queues.get_mut(entry.queue).expiries.cancel(handle);
        }
    }

    /// The instant that `when` means for a queue at `now`.
    pub(super) fn instant(&self, when: When, settings: &Settings, now: Now) -> Result<Timestamp> {
        let due = match when {
            When::Now => now.wall,
            When::At(due) => due,
            When::AfterMs(delay_ms) => now.wall.after(delay_ms)?,
            When::Level(level) => {
                let place = (level as usize).checked_sub(1);
                // There are at most 100 levels.
                let levels = settings.levels.len() as u32;
                let delay_ms = place
                    .and_then(|place| settings.levels.get(place))
                    .ok_or(Invalid::UnknownLevel { level, levels })?;
                now.wall.after(*delay_ms)?
            }
        };
        Ok(due)
    }

    /// The error of a refused reschedule or revive.
    pub(super) fn refused_instant(&self, slot: u32, due: Timestamp, refusal: Refusal) -> Error {
        let id = self.entries.get(slot).id;
        match refusal {
            Refusal::ExpiresBeforeDue => {
                let expires = self.entries.get(slot).expires().expect("it was refused for its expiry");
                Invalid::ExpiresBeforeDue { expires, due }.into()
            }
            Refusal::DueOutOfRange => Invalid::DueOutOfRange { ms: i64::MAX }.into(),
            Refusal::Leased => Error::Leased { id },
            Refusal::Dead => Error::Dead { id },
            Refusal::NotDead => Error::NotDead { id },
            Refusal::Gone => {
                let queue = self.queues.get(self.entries.get(slot).queue);
                Error::MessageNotFound { queue: queue.name.clone() }
            }
            Refusal::LeaseLost | Refusal::NotReady | Refusal::NotLeased | Refusal::LeaseChanged => {
                unreachable!("no answer to a new instant: {refusal:?}")
            }
        }
    }
}

fn least_id() -> MessageId {
    MessageId::new(Timestamp::MIN, 0, 0, 0)
}

pub(super) fn greatest_id() -> MessageId {
    MessageId::new(Timestamp::MAX, MessageId::MAX_SHARD, MessageId::MAX_INCARNATION, MessageId::MAX_COUNTER)
}

/// Checks the length of a lease that a caller asks for.
pub(super) fn check_lease(lease_ms: Option<u64>) -> Result<()> {
    lease_ms.map_or(Ok(()), |ms| Ok(Setting::LeaseMs(ms).check()?))
}
