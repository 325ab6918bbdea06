//! Dead messages: bringing them back, oldest first, and removing them.

use dwell_model::{Command, MessageId, Now, QueueName, Timestamp};

use super::{Core, Durability, Log, Record, StoredBody};
use crate::{Error, Result, Selection, Swept, When};

impl<B: StoredBody> Core<B> {
    /// See [`Store::revive`](crate::Store::revive).
    ///
    /// # Errors
    /// [`Error::Invalid`]; what is refused singly is in the answer. [`Error::Unavailable`] where it is about all or the
    /// oldest ones, while messages of the queue have expired that can not be read.
    pub fn revive(
        &mut self,
        name: &QueueName,
        which: Selection,
        when: When,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Swept> {
        self.begin(now, log);
        self.check_selection(&which)?;
        let queue = self.touched(name, now, log);
        let settings = queue.map_or(&self.config.limits.defaults, |queue| self.settings(queue));
        let due = self.instant(when, settings, now)?;
        if let (Some(queue), Selection::All | Selection::Oldest(_)) = (queue, &which) {
            self.expire_unread(queue, now, log)?;
            self.page_in_dead(queue, log)?;
        }
        if self.means_all(queue, &which) {
            let Some(queue) = queue.filter(|queue| self.has_dead(*queue)) else {
                return Ok(Swept::default());
            };
            self.page_in_owners(queue, log)?;
            log.record(&Record::Revived { queue: name.clone(), due, wall: now.wall }, Durability::Synced);
            return Ok(self.revive_all(queue, due, now));
        }
        let mut swept = Swept::default();
        for id in self.selected(queue, which) {
            let revived = self.find_selected(name, queue, id, now, log).and_then(|slot| {
                self.check_key(slot, now, log)?;
                self.change(slot, &Command::Revive(due), now, Durability::Synced, log)
                    .map_err(|refusal| self.refused_instant(slot, due, refusal))?;
                self.note_ready(slot, now.wall);
                Ok(())
            });
            swept.count(id, revived);
        }
        Ok(swept)
    }

    /// Makes the messages resident that have a key of a dead message of the queue. What can not be read is known before
    /// anything is recorded: a replay that could read it would come to something else.
    pub(super) fn page_in_owners(&mut self, queue: u32, log: &mut impl Log<B>) -> Result<()> {
        // Time has acted before the record, and must not act behind it.
        let before_time = Now { wall: Timestamp::MIN, mono_ms: 0 };
        for slot in self.oldest(queue, usize::MAX) {
            if let Some(key) = self.entries.get(slot).key().cloned() {
                self.find_key(queue, &key, before_time, log)?;
            }
        }
        Ok(())
    }

    /// Revives all dead messages of a queue whose keys are free, oldest first. Nothing is recorded singly. Whoever has
    /// one of the keys [is resident](Core::page_in_owners).
    pub(super) fn revive_all(&mut self, queue: u32, due: Timestamp, now: Now) -> Swept {
        let mut swept = Swept::default();
        for slot in self.oldest(queue, usize::MAX) {
            let entry = self.entries.get(slot);
            let (id, key) = (entry.id, entry.key());
            let owner = key.and_then(|key| self.resident_key(queue, key));
            let revived = match owner {
                Some(owner) => Err(Error::KeyTaken { id: self.entries.get(owner).id }),
                None => {
                    let revived = self.apply(slot, &Command::Revive(due), now);
                    let next = revived.expect("a dead message can be revived").next;
                    self.restand(slot, next.expect("a revived message is there"));
                    self.note_ready(slot, now.wall);
                    Ok(())
                }
            };
            swept.count(id, revived);
        }
        swept
    }

    /// See [`Store::discard`](crate::Store::discard).
    ///
    /// # Errors
    /// [`Error::Invalid`]; what is refused singly is in the answer. [`Error::Unavailable`] where it is about all or the
    /// oldest ones, while messages of the queue have expired that can not be read.
    pub fn discard(
        &mut self,
        name: &QueueName,
        which: Selection,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Swept> {
        self.begin(now, log);
        self.check_selection(&which)?;
        let queue = self.touched(name, now, log);
        if let (Some(queue), Selection::All | Selection::Oldest(_)) = (queue, &which) {
            self.expire_unread(queue, now, log)?;
        }
        let mut swept = Swept::default();
        if self.means_all(queue, &which) {
            let Some(queue) = queue.filter(|queue| self.has_dead(*queue)) else { return Ok(swept) };
            log.record(&Record::Discarded { queue: name.clone() }, Durability::Synced);
            swept.done = self.discard_all(queue, log);
            self.queues.remove_if_bare(queue);
            return Ok(swept);
        }
        if let (Some(queue), Selection::Oldest(_)) = (queue, &which) {
            self.page_in_dead(queue, log)?;
        }
        for id in self.selected(queue, which) {
            let discarded = self.find_selected(name, queue, id, now, log).and_then(|slot| {
                self.change(slot, &Command::Discard, now, Durability::Synced, log)
                    .map_err(|refusal| self.refused_instant(slot, now.wall, refusal))?;
                Ok(())
            });
            swept.count(id, discarded);
        }
        queue.into_iter().for_each(|queue| self.queues.remove_if_bare(queue));
        Ok(swept)
    }

    fn check_selection(&self, which: &Selection) -> Result<()> {
        match which {
            Selection::Ids(ids) => Ok(self.config.limits.check_batch(ids.len())?),
            Selection::Oldest(_) | Selection::All => Ok(()),
        }
    }

    fn has_dead(&self, queue: u32) -> bool {
        self.queues.get(queue).dead() > 0
    }

    fn means_all(&self, queue: Option<u32>, which: &Selection) -> bool {
        let dead = queue.map_or(0, |queue| self.queues.get(queue).dead());
        match which {
            Selection::Ids(_) => false,
            Selection::Oldest(count) => *count >= dead,
            Selection::All => true,
        }
    }

    /// The messages that a selection other than all of them means.
    fn selected(&self, queue: Option<u32>, which: Selection) -> Vec<MessageId> {
        match which {
            Selection::Ids(ids) => ids,
            Selection::Oldest(count) => {
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                let oldest = queue.map(|queue| self.oldest(queue, count)).unwrap_or_default();
                oldest.into_iter().map(|slot| self.entries.get(slot).id).collect()
            }
            Selection::All => unreachable!("all are swept in one record"),
        }
    }

    /// Looked up when its turn comes: an id may be named twice.
    fn find_selected(
        &mut self,
        name: &QueueName,
        queue: Option<u32>,
        id: MessageId,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<u32> {
        let found = match queue {
            Some(queue) => self.find_id(queue, id, now, log)?,
            None => None,
        };
        found.ok_or_else(|| Error::MessageNotFound { queue: name.clone() })
    }

    fn oldest(&self, queue: u32, count: usize) -> Vec<u32> {
        self.queues.get(queue).dead.by_death.values().take(count).copied().collect()
    }

    /// Whether the key of a dead message, if it has one, is free.
    fn check_key(&mut self, slot: u32, now: Now, log: &mut impl Log<B>) -> Result<()> {
        let entry = self.entries.get(slot);
        let (Some(key), queue) = (entry.key().cloned(), entry.queue) else { return Ok(()) };
        match self.find_key(queue, &key, now, log)? {
            Some(owner) if owner != slot => Err(Error::KeyTaken { id: self.entries.get(owner).id }),
            _ => Ok(()),
        }
    }
}

impl Swept {
    fn count(&mut self, id: MessageId, outcome: Result<()>) {
        match outcome {
            Ok(()) => self.done += 1,
            Err(refusal) => {
                self.refused_in_all += 1;
                if self.refused.len() < Swept::MAX_REFUSED {
                    self.refused.push((id, refusal));
                }
            }
        }
    }
}
