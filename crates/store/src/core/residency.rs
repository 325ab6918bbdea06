//! Making cold messages resident, and evicting resident ones that are equal to their copies.

use dwell_model::{Message, MessageId, Now, Number, OnExpiry, State, StateKind, Timestamp};

use super::cold::{Cold, ColdHead, ColdMessage, CopyAt, DeadProgress, DeadReader, Died};
use super::entry::{ChangeMark, Entry, Position, RareFields};
use super::queue::ReadyKey;
use super::{Core, Log, StoredBody};
use crate::Result;

impl<B: StoredBody> Core<B> {
    /// Adds a message that was leased when everything was captured and has a copy at `copy`.
    ///
    /// # Panics
    /// If it is resident.
    pub fn hold(&mut self, message: Message<B>, copy: CopyAt) {
        let ready_since = Timestamp::MIN;
        let slot =
            self.make_resident(ColdMessage { message, ready_since, copy, over_by: None, died_unread: false });
        self.mark_changed(slot);
    }

    /// Evicts clean messages until at most `keep` are resident, or none of those looked at is clean. Looks at
    /// `most` at a time; the next call continues from there.
    pub fn evict(&mut self, keep: usize, most: usize, cold: &mut dyn Cold<B>) -> usize {
        let mut evicted = 0;
        let swept = self.oldest_bulk();
        let room = self.entries.places();
        for _ in 0..most.min(room) {
            if self.entries.len() <= keep {
                break;
            }
            self.hand = if self.hand + 1 < room as u32 { self.hand + 1 } else { 0 };
            let slot = self.hand;
            if self.entries.find_mut(slot).is_none() || self.is_unfreed(slot) {
                continue;
            }
            let entry = self.entries.get(slot);
            let (Some(copy), ChangeMark::Captured, false) = (entry.copy, entry.mark, entry.place.is_leased())
            else {
                continue;
            };
            // Notes that a sweep in progress does not include it: once it is evicted, nothing else would record that.
            // Sweeps that have ended are not considered.
            let name = &self.queues.get(entry.queue).name;
            let has_expired = entry.place.is_pending() && entry.expires().is_some_and(|at| at <= self.seen);
            if has_expired && self.settings(entry.queue).on_expiry == OnExpiry::Drop {
                // It is removed when time acts on its queue, and must not count as dead until then.
                continue;
            }
            let since = match (swept, entry.rare.as_deref()) {
                (Some(_), Some(rare)) if entry.place == Position::Dead => {
                    self.bulk_in_progress.last_to(name, rare.died_in)
                }
                // Time has not acted on it yet. It had not expired when the clock last stepped back: that
                // expires all messages.
                (Some(_), Some(RareFields { expires: Some(expires), .. }))
                    if entry.place.is_pending() && *expires <= self.seen =>
                {
                    self.bulk_in_progress.last_before(name, *expires, Timestamp::MIN)
                }
                _ => 0,
            };
            self.note_late_death(entry.number, since);
            let died = self.evict_one(slot);
            cold.put_back(copy, died);
            evicted += 1;
        }
        evicted
    }

    /// Returns when it died, if it is dead.
    fn evict_one(&mut self, slot: u32) -> Option<Died> {
        let seen = self.seen;
        let entry = self.remove(slot);
        // Time has not acted on its queue since, and need not: a cold message dies in place.
        if let (true, Some(expires)) = (entry.place.is_pending(), entry.expires().filter(|at| *at <= seen)) {
            let found = self.queues.get_mut(entry.queue);
            found.cold.dead += 1;
            self.cold += 1;
            self.deaths.expired(&found.name, 1);
            self.expect_end_of_expired(entry.queue);
            return Some((expires, entry.id));
        }
        let found = self.queues.get_mut(entry.queue);
        let view = &mut found.cold;
        let rare = entry.rare.as_deref();
        match entry.place {
            Position::Dead => view.dead += 1,
            Position::Ready => {
                let key = ReadyKey::of(&entry);
                view.head = Some(view.head.map_or(key, |head| head.min(key)));
                view.pending += 1;
            }
            Position::Scheduled(_) => {
                view.next = Some(view.next.map_or(entry.due, |next| next.min(entry.due)));
                view.pending += 1;
            }
            Position::Leased(_) => unreachable!("what is leased is not evicted"),
        }
        self.cold += 1;
        rare.and_then(|rare| rare.death).map(|death| (death.at, entry.id))
    }

    /// Makes a cold message resident. If it died during a sweep, the position of its death among the sweeps
    /// is kept.
    pub(super) fn page_in(&mut self, cold: ColdMessage<B>) -> u32 {
        let Message { number, queue, standing, .. } = &cold.message;
        let (was_dead, died_unread) = (cold.counts_as_dead(), cold.died_unread);
        let is_dead = matches!(standing.state, State::Dead(_));
        let late = if is_dead { self.late.take(*number) } else { None };
        let over = cold.over_by.zip(standing.expires);
        let died_in = late.or_else(|| {
            over.map(|(ready_until, expires)| self.bulk_in_progress.last_before(queue, expires, ready_until))
        });
        let slot = self.make_resident(cold);
        let entry = self.entries.get_mut(slot);
        if let (Some(sweeps), Some(rare)) = (died_in, entry.rare.as_deref_mut()) {
            rare.died_in = sweeps;
        }
        let queue = entry.queue;
        self.count_out(queue, was_dead, 1);
        if died_unread {
            self.deaths.expired(&self.queues.get(queue).name, 1);
            self.expect_end_of_expired(queue);
        }
        slot
    }

    /// Subtracts `count` from a queue's cold messages.
    pub(super) fn count_out(&mut self, queue: u32, dead: bool, count: u64) {
        let view = &mut self.queues.get_mut(queue).cold;
        let counted = if dead { &mut view.dead } else { &mut view.pending };
        *counted = counted.checked_sub(count).expect("what was cold was counted");
        self.cold -= count;
    }

    pub(super) fn make_resident(&mut self, cold: ColdMessage<B>) -> u32 {
        let ColdMessage { message, ready_since, copy, .. } = cold;
        let queue = self.queues.find_or_insert(&message.queue);
        let Message { id, number, body, key, headers, created, lease_ms, max_attempts, standing, .. } =
            message;
        let plain = key.is_none()
            && headers.is_empty()
            && lease_ms.is_none()
            && max_attempts.is_none()
            && ready_since == Timestamp::MIN;
        let rare = (!plain).then(|| {
            Box::new(RareFields {
                key,
                headers,
                lease_ms,
                max_attempts,
                ready_since,
                ..RareFields::default()
            })
        });
        let mut entry = Entry {
            id,
            number,
            due: standing.due,
            created,
            body,
            rare,
            copy: Some(copy),
            queue,
            priority: standing.priority,
            attempts: 0,
            takes: 0,
            mark: ChangeMark::Captured,
            place: Position::Ready,
            epoch: 0,
        };
        let is_ripe = standing.due <= self.queues.get(queue).ready_until;
        let state = match standing.state {
            State::Scheduled if is_ripe => State::Ready,
            state => state,
        };
        let holder = standing.holder.clone();
        entry.set_standing(&standing);
        self.insert_as(entry, state, holder)
    }

    /// Makes a cold message resident and lets time act on it. Its queue was touched before.
    pub(super) fn draw(&mut self, cold: ColdMessage<B>, now: Now, log: &mut impl Log<B>) {
        let (is_over, died_unread) = (cold.expires_by(now), cold.died_unread);
        let slot = self.page_in(cold);
        let queue = self.entries.get(slot).queue;
        if died_unread {
            self.count_drawn_dead(queue);
            self.trim_dead(slot, now, log);
            self.note_bare(queue);
        }
        if is_over {
            self.expire_drawn(queue, now, log);
        }
    }

    /// Makes the next due cold messages of a queue resident. Returns true if there were any and all of them
    /// have expired.
    pub(super) fn feed(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) -> Result<bool> {
        let found = self.queues.get(queue);
        let (name, ready_until) = (found.name.clone(), found.ready_until);
        let mut drawn = Vec::new();
        let Some(cold) = log.cold() else {
            unreachable!("only a log that has cold messages makes them so");
        };
        cold.due(&name, ready_until, &mut drawn)?;
        let all_over = !drawn.is_empty() && drawn.iter().all(|cold| cold.dies_by(now));
        for cold in drawn {
            self.draw(cold, now, log);
        }
        let Some(cold) = log.cold() else { return Ok(all_over) };
        let ColdHead { first, next } = cold.head(&name, ready_until)?;
        assert!(next.is_none_or(|next| next > ready_until), "what is due is not next");
        let view = &mut self.queues.get_mut(queue).cold;
        view.head = first.map(|(priority, due, id)| ReadyKey { priority, due, id });
        view.next = next;
        Ok(all_over)
    }

    /// Makes the messages resident that a page of a list may show. False if there were too few, since some
    /// had expired.
    pub(super) fn page_in_list(
        &mut self,
        queue: u32,
        state: StateKind,
        after: Option<(Timestamp, MessageId)>,
        count: usize,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<bool> {
        let found = self.queues.get(queue);
        if found.cold.is_empty() || state == StateKind::Leased {
            return Ok(true);
        }
        let (name, ready_until) = (found.name.clone(), found.ready_until);
        let mut drawn = Vec::new();
        if let Some(cold) = log.cold() {
            cold.page(&name, state, ready_until, after, count, &mut drawn)?;
        }
        let is_enough = !drawn.iter().any(|cold| cold.dies_by(now));
        drawn.into_iter().for_each(|cold| self.draw(cold, now, log));
        Ok(is_enough)
    }

    /// Makes up to `most` of the next dead messages of a queue resident, those that died after `after`. For
    /// those that expired while they were cold, the position of the death among the sweeps is kept.
    pub(super) fn page_in_dead(
        &mut self,
        queue: u32,
        reader: DeadReader,
        after: Option<Died>,
        anew: bool,
        most: usize,
        log: &mut impl Log<B>,
    ) -> Result<DeadProgress> {
        let found = self.queues.get(queue);
        if found.cold.dead == 0 {
            return Ok(DeadProgress::All);
        }
        let mut drawn = Vec::new();
        let Some(cold) = log.cold() else { return Ok(DeadProgress::All) };
        let handed_over = cold.dead(&found.name, reader, after, anew, most, &mut drawn)?;
        for cold in drawn {
            self.page_in(cold);
        }
        Ok(handed_over)
    }

    /// The message with this number, made resident if it is cold.
    pub(super) fn find_number(&mut self, number: Number, log: &mut impl Log<B>) -> Result<Option<u32>> {
        if let Some(slot) = self.resident_number(number) {
            return Ok(Some(slot));
        }
        if self.cold == 0 {
            return Ok(None);
        }
        let Some(cold) = log.cold() else { return Ok(None) };
        let found = cold.by_number(number)?;
        Ok(found.map(|cold| self.page_in(cold)))
    }

    /// The message with this number, made resident if it is cold. If it is in this queue, it has this id.
    pub(super) fn find_identified(
        &mut self,
        queue: u32,
        id: MessageId,
        number: Number,
        log: &mut impl Log<B>,
    ) -> Result<Option<u32>> {
        if let Some(slot) = self.resident_number(number) {
            return Ok(Some(slot));
        }
        if self.cold == 0 {
            return Ok(None);
        }
        let Some(cold) = log.cold() else { return Ok(None) };
        let found = cold.by_id(&self.queues.get(queue).name, id, number)?;
        Ok(found.map(|cold| self.page_in(cold)))
    }
}
