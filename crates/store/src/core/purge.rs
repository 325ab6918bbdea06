//! Removing a queue's messages at once, in constant time: see [`super::lazy_free`].

use std::mem;

use dwell_model::{Now, OwnSettings, QueueName, SettingChange};

use super::cold::QueuePart;
use super::deaths::Discarded;
use super::lazy_free::PurgedOrders;
use super::schedule::Timers;
use super::{Core, Durability, Log, Record, StoredBody};
use crate::Result;

impl<B: StoredBody> Core<B> {
    /// See [`Store::purge`](crate::Store::purge).
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable) while expired messages of the queue cannot be read.
    pub fn purge(&mut self, name: &QueueName, now: Now, log: &mut impl Log<B>) -> Result<u64> {
        self.begin(now, log);
        let Some(queue) = self.touched(name, now, log) else { return Ok(0) };
        self.expire_queue(queue, now, log)?;
        let purged = self.queues.get(queue).pending();
        if purged > 0 {
            log.record(&Record::Purged { queue: name.clone() }, Durability::Synced);
            self.purge_all(queue, log);
        }
        self.queues.remove_if_bare(queue);
        Ok(purged)
    }

    /// See [`Store::delete_queue`](crate::Store::delete_queue).
    pub fn delete_queue(&mut self, name: &QueueName, now: Now, log: &mut impl Log<B>) -> u64 {
        self.begin(now, log);
        let Some(queue) = self.touched(name, now, log) else { return 0 };
        let found = self.queues.get(queue);
        if found.pending() == 0 && found.dead() == 0 && found.own.is_none() {
            return 0;
        }
        self.deaths.discarded(name, Discarded::Asked, found.dead());
        log.record(&Record::Deleted { queue: name.clone() }, Durability::Synced);
        let deleted = self.delete_all(queue, log);
        // A log that keeps settings apart from messages has dropped all of them with that record.
        let kept = self.queues.find(name).map(|queue| self.own(queue)).unwrap_or_default();
        for value in kept.iter() {
            let change = SettingChange::Set(value.clone());
            log.record(&Record::Configured { queue: name.clone(), change }, Durability::Synced);
        }
        deleted
    }

    /// Removes scheduled and ready messages.
    pub(super) fn purge_all(&mut self, queue: u32, log: &mut impl Log<B>) -> u64 {
        let cold = self.forget_cold(queue, QueuePart::Pending, log);
        let found = self.queues.get_mut(queue);
        let (scheduled, ready) = (mem::take(&mut found.scheduled), mem::take(&mut found.ready));
        found.ready_urgent = 0;
        found.expiries = Timers::default();
        let orders = PurgedOrders { scheduled, ready, ..PurgedOrders::default() };
        let purged = self.remove_all(queue, QueuePart::Pending, orders);
        self.look_at(queue);
        purged + cold
    }

    /// Removes dead messages.
    pub(super) fn discard_all(&mut self, queue: u32, log: &mut impl Log<B>) -> u64 {
        self.bulk_in_progress.all_went(&self.queues.get(queue).name);
        let cold = self.forget_cold(queue, QueuePart::Dead, log);
        let dead = mem::take(&mut self.queues.get_mut(queue).dead);
        cold + self.remove_all(queue, QueuePart::Dead, PurgedOrders { dead, ..PurgedOrders::default() })
    }

    /// Removes all messages but the leased, and the settings except those that are fixed while there are
    /// messages. The queue may have been removed afterwards.
    pub(super) fn delete_all(&mut self, queue: u32, log: &mut impl Log<B>) -> u64 {
        let deleted = self.purge_all(queue, log) + self.discard_all(queue, log);
        let has_messages = self.queues.get(queue).has_messages();
        let kept = if has_messages {
            self.own(queue).fixed(&self.config.limits.defaults)
        } else {
            OwnSettings::default()
        };
        self.set_own(queue, kept);
        self.queues.remove_if_bare(queue);
        deleted
    }
}
