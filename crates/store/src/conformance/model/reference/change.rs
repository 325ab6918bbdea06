//! Cancel, reschedule, configure, revive, discard, purge, delete.

use dwell_model::{
    Command, MessageId, QueueName, Refusal, SettingChange, SettingName, State, StateKind, Timestamp,
};

use super::{ModelMessage, Reference};
use crate::{BulkOutcome, Cancelled, Error, QueueStats, Rescheduled, Result, Selection, Target, When};

impl Reference {
    pub(in super::super) fn cancel(&mut self, queue: &QueueName, target: &Target) -> Result<Cancelled> {
        let Some(index) = self.find(queue, target) else { return Ok(Cancelled::NotFound) };
        let id = self.kept[index].message.id;
        Ok(match self.change(index, &Command::Cancel) {
            Ok(_) => Cancelled::Cancelled(id),
            Err(Refusal::Leased) => Cancelled::Leased(id),
            Err(_) => Cancelled::Dead(id),
        })
    }

    pub(in super::super) fn reschedule(
        &mut self,
        queue: &QueueName,
        target: &Target,
        when: When,
    ) -> Result<Rescheduled> {
        let due = self.instant(queue, when)?;
        let Some(index) = self.find(queue, target) else { return Ok(Rescheduled::NotFound) };
        let id = self.kept[index].message.id;
        match self.change(index, &Command::Reschedule(due)) {
            Ok(_) => {
                self.note_ready(index);
                Ok(Rescheduled::Moved(id, due))
            }
            Err(Refusal::Leased) => Ok(Rescheduled::Leased(id)),
            Err(Refusal::Dead) => Ok(Rescheduled::Dead(id)),
            Err(refusal) => Err(self.refused(index, due, refusal)),
        }
    }

    pub(in super::super) fn configure(
        &mut self,
        queue: &QueueName,
        changes: &[SettingChange],
    ) -> Result<QueueStats> {
        for change in changes {
            if let SettingChange::Set(setting) = change {
                setting.check()?;
            }
        }
        let mut own = self.own.get(queue).cloned().unwrap_or_default();
        let (wall, default) = (self.now.wall, self.limits.defaults.pause);
        changes.iter().for_each(|change| own.change(change.clone().as_of(wall, default)));
        let has_messages = self.kept.iter().any(|kept| kept.message.queue == *queue);
        if has_messages && own.over(&self.limits.defaults).partitions != self.settings(queue).partitions {
            return Err(Error::SettingFixed { queue: queue.clone(), setting: SettingName::Partitions });
        }
        let limit = self.limits.queues;
        if !own.is_empty() && !self.is_known(queue) && self.queue_names().len() >= limit {
            return Err(Error::TooManyQueues { limit });
        }
        if own.is_empty() {
            self.own.remove(queue);
        } else {
            self.own.insert(queue.clone(), own);
        }
        self.retain();
        Ok(self.stats_of(queue))
    }

    pub(in super::super) fn revive(
        &mut self,
        queue: &QueueName,
        which: &Selection,
        when: When,
    ) -> Result<BulkOutcome> {
        let due = self.instant(queue, when)?;
        Ok(self.sweep(queue, which, |reference, index| {
            let dead = reference.kept[index].kind() == StateKind::Dead;
            if dead {
                reference.check_key(index)?;
            }
            let revived = reference.change(index, &Command::Revive(due));
            revived.map_err(|refusal| reference.refused(index, due, refusal))?;
            reference.note_ready(index);
            Ok(())
        }))
    }

    pub(in super::super) fn discard(&mut self, queue: &QueueName, which: &Selection) -> BulkOutcome {
        let swept = self.sweep(queue, which, |reference, index| {
            let discarded = reference.change(index, &Command::Discard);
            discarded.map_err(|refusal| reference.refused(index, Timestamp::MIN, refusal))?;
            Ok(())
        });
        self.count_asked(queue, swept.done);
        swept
    }

    fn sweep(
        &mut self,
        queue: &QueueName,
        which: &Selection,
        mut each: impl FnMut(&mut Reference, usize) -> Result<()>,
    ) -> BulkOutcome {
        let ids = match which {
            Selection::Ids(ids) => ids.clone(),
            Selection::Oldest(count) => {
                let dead = self.oldest_dead(queue);
                dead.into_iter().take(usize::try_from(*count).unwrap_or(usize::MAX)).collect()
            }
            Selection::All => self.oldest_dead(queue),
        };
        let mut swept = BulkOutcome::default();
        for id in ids {
            let swept_one = match self.find_id(queue, id) {
                Some(index) => each(self, index),
                None => Err(Error::MessageNotFound { queue: queue.clone() }),
            };
            match swept_one {
                Ok(()) => swept.done += 1,
                Err(refusal) => {
                    swept.refused_in_all += 1;
                    swept.refused.push((id, refusal));
                }
            }
        }
        swept
    }

    fn oldest_dead(&self, queue: &QueueName) -> Vec<MessageId> {
        let death = |kept: &ModelMessage| match kept.message.standing.state {
            State::Dead(death) if kept.message.queue == *queue => Some((death.at, kept.message.id)),
            _ => None,
        };
        let mut dead: Vec<_> = self.kept.iter().filter_map(death).collect();
        dead.sort();
        dead.into_iter().map(|(_, id)| id).collect()
    }

    /// Checks that the key of a dead message, if it has one, is free.
    pub(super) fn check_key(&self, index: usize) -> Result<()> {
        let message = &self.kept[index].message;
        let owner = message.key.as_ref().and_then(|key| self.find_key(&message.queue, key));
        owner.map_or(Ok(()), |owner| Err(Error::KeyTaken { id: self.kept[owner].message.id }))
    }

    pub(in super::super) fn purge(&mut self, queue: &QueueName) -> u64 {
        self.remove_where(queue, ModelMessage::is_pending)
    }

    pub(in super::super) fn delete_queue(&mut self, queue: &QueueName) -> u64 {
        let asked = self.oldest_dead(queue).len() as u64;
        self.count_asked(queue, asked);
        let removed = self.remove_where(queue, |kept| kept.kind() != StateKind::Leased);
        let fixed = self.own.remove(queue).unwrap_or_default().fixed(&self.limits.defaults);
        if !fixed.is_empty() && self.kept.iter().any(|kept| kept.message.queue == *queue) {
            self.own.insert(queue.clone(), fixed);
        }
        removed
    }

    fn remove_where(&mut self, queue: &QueueName, goes: impl Fn(&ModelMessage) -> bool) -> u64 {
        let before = self.kept.len();
        self.kept.retain(|kept| kept.message.queue != *queue || !goes(kept));
        (before - self.kept.len()) as u64
    }
}
