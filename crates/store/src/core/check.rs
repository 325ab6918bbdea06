//! The invariants: every index against the messages themselves.

use std::collections::{BTreeMap, BTreeSet};

use dwell_model::{Now, OnExpiry};

use super::entry::Position;
use super::queue::{CapReached, Queue, ReadyKey, is_urgent, mono};
use super::{Core, StoredBody};
use crate::StateCounts;

impl<B: StoredBody> Core<B> {
    /// Verifies all indexes against the messages. It looks at everything, and is meant for tests and the
    /// simulator.
    ///
    /// # Panics
    /// If an index is wrong; the message says which.
    pub fn check(&self) {
        let mut counts: BTreeMap<u32, StateCounts> = BTreeMap::new();
        let (mut keyed, mut expiring): (usize, BTreeMap<u32, usize>) = (0, BTreeMap::new());
        for (slot, entry) in self.entries.iter() {
            if self.is_unfreed(slot) {
                assert_eq!(self.resident_number(entry.number), None, "{:?} is gone", entry.id);
                keyed += usize::from(entry.live_key().is_some());
                continue;
            }
            let queue = self.queues.get(entry.queue);
            assert_eq!(self.resident_id(entry.queue, entry.id), Some(slot), "{:?} by id", entry.id);
            assert_eq!(self.resident_number(entry.number), Some(slot), "{:?} by number", entry.id);
            if let Some(key) = entry.live_key() {
                assert_eq!(self.resident_key(entry.queue, key), Some(slot), "{:?} by key", entry.id);
                keyed += 1;
            }
            let counts = counts.entry(entry.queue).or_default();
            match entry.place {
                Position::Scheduled(spot) => {
                    assert_eq!(queue.scheduled.get(spot), Some(slot), "{:?} is scheduled", entry.id);
                    let due = u64::from(spot.is_in_row() && entry.due <= queue.ready_until);
                    counts.scheduled += 1 - due;
                    counts.ready += due;
                    counts.ready_urgent += if is_urgent(entry.priority) { due } else { 0 };
                }
                Position::Ready => {
                    assert_eq!(queue.ready.get(ReadyKey::of(entry)), Some(slot), "{:?} is ready", entry.id);
                    counts.ready += 1;
                    counts.ready_urgent += u64::from(is_urgent(entry.priority));
                }
                Position::Leased(held) => {
                    assert_eq!(
                        queue.leased.get(self.leases.get(held).timer),
                        Some(slot),
                        "{:?} is held",
                        entry.id
                    );
                    counts.leased += 1;
                }
                Position::Dead => {
                    self.check_dead(queue, slot);
                    counts.dead += 1;
                }
            }
            let timer = entry.rare.as_deref().and_then(|rare| rare.expiry);
            assert_eq!(
                timer.is_some(),
                entry.place.is_pending() && entry.expires().is_some(),
                "{:?} expires",
                entry.id
            );
            if let Some(timer) = timer {
                assert_eq!(queue.expiries.get(timer), Some(slot), "{:?} has its timer", entry.id);
                *expiring.entry(entry.queue).or_default() += 1;
            }
        }
        self.check_lazy_free();
        let named = self.leases.iter().filter(|(_, held)| held.holder.is_some()).count();
        assert_eq!(self.holders.leases(), named, "leases with a holder");
        assert_eq!(self.by_number.len(), self.entries.len(), "numbers");
        assert_eq!(self.by_key.len(), keyed, "live keys");
        let changed = self.entries.iter().filter(|(_, entry)| entry.mark.is_changed()).count();
        assert_eq!(self.changed, changed, "changed messages");
        let weight: usize = self.entries.iter().map(|(_, entry)| entry.weight()).sum();
        assert_eq!(self.weight, weight, "what all messages weigh");
        for queue in self.queues.all() {
            let found = self.queues.get(queue);
            found.scheduled.check(&self.entries);
            assert!(
                !found.is_bare() || self.maybe_bare.contains(&queue),
                "{} is kept for nothing",
                found.name
            );
            assert_eq!(found.counts(), counts.remove(&queue).unwrap_or_default(), "counts of {}", found.name);
            assert_eq!(found.dead.by_due.len(), found.dead.by_death.len(), "dead of {}", found.name);
            let slots = found.dead.by_death.values();
            let keyed_dead = slots.filter(|slot| self.entries.get(**slot).key().is_some()).count();
            assert_eq!(found.dead.by_key.len(), keyed_dead, "dead of {} with a key", found.name);
            self.check_retention(queue, found);
            let expiries = expiring.remove(&queue).unwrap_or_default();
            assert_eq!(found.expiries.len(), expiries, "expiries of {}", found.name);
            let expects = |head| self.queues.expects_lapse(queue, head);
            assert!(
                found.leased.next_due().is_none_or(expects),
                "leases of {} run out some time",
                found.name
            );
            self.check_waiting(queue, found);
        }
        let pauses = self.queues.all().filter_map(|queue| Some((self.queues.get(queue).pause_end()?, queue)));
        assert_eq!(pauses.collect::<BTreeSet<_>>(), self.pauses, "pauses that end");
        assert!(counts.is_empty(), "messages of queues that are gone");
    }

    fn check_dead(&self, queue: &Queue, slot: u32) {
        let entry = self.entries.get(slot);
        let death = entry.rare.as_deref().and_then(|rare| rare.death).expect("the dead know how they died");
        assert_eq!(queue.dead.by_death.get(&(death.at, entry.id)), Some(&slot), "{:?} is dead", entry.id);
        assert_eq!(queue.dead.by_due.get(&(entry.due, entry.id)), Some(&slot), "{:?} is dead", entry.id);
        if let Some(key) = entry.key() {
            let place = (self.key_hash.key(entry.queue, key), death.at, entry.id);
            assert_eq!(queue.dead.by_key.get(&place), Some(&slot), "{:?} is dead with its key", entry.id);
        }
    }

    /// Checks that messages past their retention are scheduled to be discarded.
    fn check_retention(&self, queue: u32, found: &Queue) {
        let settings = self.settings(queue);
        if let (OnExpiry::Drop, Some(next)) = (settings.on_expiry, found.expiries.next_due()) {
            assert!(self.queues.expects_retention(queue, next), "what {} drops goes some time", found.name);
        }
        let is_over = settings.dead_max.is_some_and(|most| found.dead() > most);
        assert!(!is_over || found.retention.is_some(), "{} keeps too many dead", found.name);
        if let (Some(ttl_ms), Some(((death, _), _))) =
            (settings.dead_ttl_ms, found.dead.by_death.first_key_value())
        {
            let end = death.saturating_after(ttl_ms).as_ms();
            assert!(self.queues.expects_retention(queue, end), "the dead of {} go some time", found.name);
        }
    }

    fn check_waiting(&self, queue: u32, found: &Queue) {
        let waiting = self.waiters.turns_on(queue);
        let listed = found.watch.as_deref().map(|watch| watch.waiting.iter().copied().collect::<Vec<u64>>());
        assert_eq!(listed.unwrap_or_default(), waiting, "takes that wait on {}", found.name);
    }

    /// Verifies what holds once [`serve`](Core::serve) has been called at `now`: no take waits while a
    /// message is available to it.
    ///
    /// # Panics
    /// If one does.
    pub fn check_served(&self, now: Now) {
        assert!(!self.next_wake().is_reached(now), "{:?} is reached at {now:?}", self.next_wake());
        for queue in self.queues.all() {
            let found = self.queues.get(queue);
            if found.watch.is_none() || self.settings(queue).pause.is_paused_at(now.wall) {
                continue;
            }
            if let Some(held_up) = found.watch.as_deref().and_then(|watch| watch.held_up) {
                match held_up {
                    CapReached::ByQueue => assert!(
                        self.check_leased_of(queue).is_err() || self.is_at_max_leased(queue),
                        "{} has room for a lease, messages and waiters",
                        found.name
                    ),
                    CapReached::ByStore(turn) => {
                        assert!(self.waiters.is_held_up(queue, turn), "{} is forgotten", found.name);
                        let limit = self.config.limits.leased;
                        assert!(self.leases.len() >= limit, "{} might have a lease", found.name);
                    }
                }
                continue;
            }
            let due = found.scheduled.next_due().is_some_and(|due| due <= now.wall);
            assert!(found.ready.is_empty() && !due, "{} has messages and waiters", found.name);
            let lapsed = found.leased.next_due().is_some_and(|head| head <= mono(now.mono_ms));
            assert!(!lapsed, "{} has a lapsed lease and waiters", found.name);
        }
    }
}
