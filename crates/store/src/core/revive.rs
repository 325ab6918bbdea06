//! Reviving dead messages, oldest first, and discarding them.

use dwell_model::{MessageId, Now, QueueName};

use super::bulk::{BulkAction, BulkProgress};
use super::deaths::Discarded;
use super::{Core, Durability, Log, Record, StoredBody};
use crate::{BulkOutcome, Error, Result, Selection, When};

impl<B: StoredBody> Core<B> {
    /// See [`Store::revive`](crate::Store::revive). Of many messages it revives a slice; [`Core::go_on`] does
    /// the rest.
    ///
    /// # Errors
    /// [`Error::Invalid`]; refusals of single messages are in the answer. [`Error::Unavailable`] where it is
    /// about all or the oldest ones, while expired messages of the queue cannot be read, or where dead ones
    /// cannot be read.
    pub fn revive(
        &mut self,
        name: &QueueName,
        which: Selection,
        when: When,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<BulkProgress> {
        self.begin(now, log);
        self.check_selection(&which)?;
        let queue = self.touched(name, now, log);
        let settings = queue.map_or(&self.config.limits.defaults, |queue| self.settings(queue));
        let due = self.instant(when, settings, now)?;
        self.bulk(name, queue, which, BulkAction::Revive(due), now, log)
    }

    /// See [`Store::discard`](crate::Store::discard). All messages are removed at once; of many others it
    /// removes a slice, and [`Core::go_on`] does the rest.
    ///
    /// # Errors
    /// As for [`Core::revive`].
    pub fn discard(
        &mut self,
        name: &QueueName,
        which: Selection,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<BulkProgress> {
        self.begin(now, log);
        self.check_selection(&which)?;
        let queue = self.touched(name, now, log);
        if let (Some(queue), Selection::All | Selection::Oldest(_)) = (queue, &which) {
            self.expire_queue(queue, now, log)?;
            // What is past its retention is discarded for that reason, and not for this call.
            let past = self.queues.expects_retention(queue, now.wall.as_ms());
            if self.means_all(queue, &which) && !past {
                return Ok(BulkProgress::Done(self.discard_at_once(queue, log)));
            }
        }
        self.bulk(name, queue, which, BulkAction::Discard, now, log)
    }

    fn discard_at_once(&mut self, queue: u32, log: &mut impl Log<B>) -> BulkOutcome {
        let found = self.queues.get(queue);
        let mut swept = BulkOutcome::default();
        if found.dead() > 0 {
            log.record(&Record::Discarded { queue: found.name.clone() }, Durability::Synced);
            swept.done = self.discard_all(queue, log);
            self.deaths.discarded(&self.queues.get(queue).name, Discarded::Asked, swept.done);
            self.queues.remove_if_bare(queue);
        }
        swept
    }

    fn bulk(
        &mut self,
        name: &QueueName,
        queue: Option<u32>,
        which: Selection,
        action: BulkAction,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<BulkProgress> {
        let mut swept = BulkOutcome::default();
        match (queue, which) {
            (queue, Selection::Ids(ids)) => {
                for id in ids {
                    // Looked up in its turn: an id may be named twice.
                    let found = self.find_dead(name, queue, id, now, log);
                    swept.count(id, found.and_then(|slot| self.bulk_one(slot, action, now, log)));
                }
                queue.into_iter().for_each(|queue| self.queues.remove_if_bare(queue));
            }
            (Some(queue), which) => {
                self.expire_queue(queue, now, log)?;
                return self.begin_bulk(queue, &which, action, now, log);
            }
            (None, _) => {}
        }
        Ok(BulkProgress::Done(swept))
    }

    fn check_selection(&self, which: &Selection) -> Result<()> {
        match which {
            Selection::Ids(ids) => Ok(self.config.limits.check_batch(ids.len())?),
            Selection::Oldest(_) | Selection::All => Ok(()),
        }
    }

    fn means_all(&self, queue: u32, which: &Selection) -> bool {
        let dead = self.queues.get(queue).dead();
        match which {
            Selection::Ids(_) => false,
            Selection::Oldest(count) => *count >= dead,
            Selection::All => true,
        }
    }

    fn find_dead(
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
}
