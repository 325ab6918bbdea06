//! Changing a queue's settings, and the end of a pause.

use dwell_model::{Now, OwnSettings, Pause, QueueName, Setting, SettingChange, SettingName, Timestamp};

use super::queue::OwnValues;
use super::{Core, Durability, Log, Record, StoredBody};
use crate::{Error, QueueStats, Result, StateCounts};

impl<B: StoredBody> Core<B> {
    /// See [`Store::configure`](crate::Store::configure).
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::SettingFixed`], [`Error::TooManyQueues`].
    pub fn configure(
        &mut self,
        name: &QueueName,
        changes: Vec<SettingChange>,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<QueueStats> {
        self.begin(now, log);
        self.config.limits.check_batch(changes.len())?;
        for change in &changes {
            if let SettingChange::Set(setting) = change {
                setting.check()?;
            }
        }
        let default = self.config.limits.defaults.pause;
        let changes: Vec<_> = changes.into_iter().map(|change| change.as_of(now.wall, default)).collect();
        let queue = self.touched(name, now, log);
        let mut own = queue.map(|queue| self.own(queue)).unwrap_or_default();
        changes.iter().for_each(|change| own.change(change.clone()));
        let defaults = &self.config.limits.defaults;
        let in_force = own.over(defaults);
        if let Some(queue) = queue
            && self.queues.get(queue).has_messages()
            && self.settings(queue).partitions != in_force.partitions
        {
            return Err(Error::SettingFixed { queue: name.clone(), setting: SettingName::Partitions });
        }
        if queue.is_none() && own.is_empty() {
            let counts = StateCounts::default();
            let name = name.clone();
            let settings = in_force;
            return Ok(QueueStats { name, counts, waiting: 0, next_due: None, settings, own, unread: None });
        }
        if queue.is_none() && self.queues.len() >= self.config.limits.queues {
            return Err(Error::TooManyQueues { limit: self.config.limits.queues });
        }
        if let Some(queue) = queue
            && self.settings(queue).on_expiry != in_force.on_expiry
        {
            self.notice_expired(queue, now, log)?;
        }
        // If the counts cannot be read, nothing is changed.
        let cold = queue.map(|queue| self.cold_counts(queue, log)).transpose()?;
        for change in changes {
            log.record(&Record::Configured { queue: name.clone(), change }, Durability::Synced);
        }
        let queue = queue.unwrap_or_else(|| self.queues.find_or_insert(name));
        self.set_own(queue, own);
        self.retain_in(queue, &mut self.config.bulk_per_call.clone(), now, log);
        // Messages past their retention may have been cold.
        let cold = self.cold_counts(queue, log).unwrap_or_else(|_| cold.unwrap_or_default());
        let stats = self.stats_with(queue, cold);
        self.queues.remove_if_bare(queue);
        Ok(stats)
    }

    /// Applies the present setting to all messages of a queue that have expired by now. That messages died
    /// while they were cold is stored only as the time to which they were promoted, also for those made
    /// resident since. All files are promoted here, and to a replay everything that has expired by then
    /// is dead. So the expired messages of other queues are processed first, in memory too: some of these
    /// queues may drop them.
    fn notice_expired(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) -> Result<()> {
        self.expire_queue(queue, now, log)?;
        if log.cold().is_some() {
            self.expire_all(now, log);
            self.promote_cold(now, log);
            log.record(&Record::Ripe { wall: now.wall }, Durability::Synced);
        }
        Ok(())
    }

    pub(super) fn own(&self, queue: u32) -> OwnSettings {
        self.queues.get(queue).own.as_ref().map(|own| own.own.clone()).unwrap_or_default()
    }

    /// Ends the pauses whose end has passed, for good: they are removed from the settings of their queues,
    /// and do not resume if the clock steps back.
    pub(super) fn end_pauses(&mut self, wall: Timestamp, log: &mut impl Log<B>) {
        while let Some(&(end, queue)) = self.pauses.first()
            && end <= wall
        {
            let pause = SettingChange::Set(Setting::Pause(Pause::Until(end)));
            let change = pause.as_of(wall, self.config.limits.defaults.pause);
            let name = self.queues.get(queue).name.clone();
            log.record(&Record::Configured { queue: name, change: change.clone() }, Durability::Written);
            let mut own = self.own(queue);
            own.change(change);
            self.set_own(queue, own);
            self.queues.remove_if_bare(queue);
        }
    }

    pub(super) fn set_own(&mut self, queue: u32, own: OwnSettings) {
        if let Some(end) = self.queues.get(queue).pause_end() {
            self.pauses.remove(&(end, queue));
        }
        if let Some(end) = own.pause_end() {
            self.pauses.insert((end, queue));
        }
        let in_force = own.over(&self.config.limits.defaults);
        let own = (!own.is_empty()).then(|| Box::new(OwnValues { own, in_force }));
        self.queues.get_mut(queue).own = own;
        self.look_at(queue);
        self.look_at_retention(queue);
    }
}
