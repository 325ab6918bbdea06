//! Changing a queue's settings.

use dwell_model::{Now, OwnSettings, QueueName, SettingChange, SettingName};

use super::queue::Own;
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
        let queue = self.touched(name, now, log);
        let mut own = queue.map(|queue| self.own(queue)).unwrap_or_default();
        changes.iter().for_each(|change| own.change(change.clone()));
        let defaults = &self.config.limits.defaults;
        let in_force = own.over(defaults);
        if let Some(queue) = queue
            && self.queues.get(queue).has_messages()
            && self.settings(queue).spread != in_force.spread
        {
            return Err(Error::SettingFixed { queue: name.clone(), setting: SettingName::Spread });
        }
        if queue.is_none() && own.is_empty() {
            let counts = StateCounts::default();
            let name = name.clone();
            return Ok(QueueStats { name, counts, waiting: 0, next_due: None, settings: in_force, own });
        }
        if queue.is_none() && self.queues.len() >= self.config.limits.queues {
            return Err(Error::TooManyQueues { limit: self.config.limits.queues });
        }
        // What can not be told is not changed either.
        let cold = queue.map(|queue| self.cold_counts(queue, log)).transpose()?;
        for change in changes {
            log.record(&Record::Configured { queue: name.clone(), change }, Durability::Synced);
        }
        let queue = queue.unwrap_or_else(|| self.queues.find_or_insert(name));
        self.set_own(queue, own);
        let stats = self.stats_with(queue, cold.unwrap_or_default());
        self.queues.remove_if_bare(queue);
        Ok(stats)
    }

    pub(super) fn own(&self, queue: u32) -> OwnSettings {
        self.queues.get(queue).own.as_ref().map(|own| own.own.clone()).unwrap_or_default()
    }

    pub(super) fn set_own(&mut self, queue: u32, own: OwnSettings) {
        let in_force = own.over(&self.config.limits.defaults);
        let own = (!own.is_empty()).then(|| Box::new(Own { own, in_force }));
        self.queues.get_mut(queue).own = own;
        self.look_at(queue);
    }
}
