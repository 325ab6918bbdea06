//! Removing a queue's messages at once.

use std::mem;

use dwell_model::{Now, QueueName};

use super::cold::Which;
use super::{Core, Durability, Log, Record, StoredBody};

impl<B: StoredBody> Core<B> {
    /// See [`Store::purge`](crate::Store::purge).
    pub fn purge(&mut self, name: &QueueName, now: Now, log: &mut impl Log<B>) -> u64 {
        self.begin(now, log);
        let Some(queue) = self.touched(name, now, log) else { return 0 };
        let purged = self.queues.get(queue).pending();
        if purged > 0 {
            log.record(&Record::Purged { queue: name.clone() }, Durability::Synced);
            self.purge_all(queue, log);
            self.queues.remove_if_bare(queue);
        }
        purged
    }

    /// See [`Store::delete_queue`](crate::Store::delete_queue).
    pub fn delete_queue(&mut self, name: &QueueName, now: Now, log: &mut impl Log<B>) -> u64 {
        self.begin(now, log);
        let Some(queue) = self.touched(name, now, log) else { return 0 };
        let found = self.queues.get(queue);
        if found.pending() == 0 && found.dead() == 0 && found.own.is_none() {
            return 0;
        }
        log.record(&Record::Deleted { queue: name.clone() }, Durability::Synced);
        self.delete_all(queue, log)
    }

    /// Removes scheduled and ready messages.
    pub(super) fn purge_all(&mut self, queue: u32, log: &mut impl Log<B>) -> u64 {
        let cold = self.forget_cold(queue, Which::Pending, log);
        let found = self.queues.get_mut(queue);
        let scheduled = mem::take(&mut found.scheduled);
        let ready = mem::take(&mut found.ready);
        found.ready_urgent = 0;
        found.expiries.clear();
        let purged = (scheduled.len() + ready.len()) as u64;
        for slot in scheduled.iter() {
            self.purge_one(slot);
        }
        for slot in ready.into_values() {
            self.purge_one(slot);
        }
        self.look_at(queue);
        purged + cold
    }

    /// Removes dead messages.
    pub(super) fn discard_all(&mut self, queue: u32, log: &mut impl Log<B>) -> u64 {
        let cold = self.forget_cold(queue, Which::Dead, log);
        let dead = mem::take(&mut self.queues.get_mut(queue).dead);
        let discarded = dead.by_death.len() as u64;
        for slot in dead.by_death.into_values() {
            self.purge_one(slot);
        }
        discarded + cold
    }

    /// Removes all messages but the leased, and the settings. The queue may be gone after it.
    pub(super) fn delete_all(&mut self, queue: u32, log: &mut impl Log<B>) -> u64 {
        let deleted = self.purge_all(queue, log) + self.discard_all(queue, log);
        self.set_own(queue, Default::default());
        self.queues.remove_if_bare(queue);
        deleted
    }

    /// Forgets a message that its queue has forgotten already.
    fn purge_one(&mut self, slot: u32) {
        self.capture_before_change(slot);
        self.release_key(slot);
        let entry = self.entries.remove(slot);
        self.strike_off(&entry, slot);
    }
}
