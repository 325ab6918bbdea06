//! Removing messages that are scheduled or ready.

use dwell_model::{Now, QueueName};

use super::entry::Position;
use super::{Core, Log, StoredBody};
use crate::{Cancelled, Result, Target};

impl<B: StoredBody> Core<B> {
    /// See [`Store::cancel`](crate::Store::cancel).
    pub fn cancel(
        &mut self,
        queue: &QueueName,
        targets: Vec<Target>,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Vec<Result<Cancelled>> {
        self.begin(now, log);
        self.each(targets, |core, target| {
            // Looked up for each item: removing the last message of a queue removes the queue too.
            let Some(queue) = core.touched(queue, now, log) else { return Ok(Cancelled::NotFound) };
            let Some(slot) = core.find_target(queue, &target, now, log)? else {
                return Ok(Cancelled::NotFound);
            };
            let entry = core.entries.get(slot);
            let id = entry.id;
            Ok(match entry.place {
                Position::Leased(_) => Cancelled::Leased(id),
                Position::Dead => Cancelled::Dead(id),
                Position::Scheduled(_) | Position::Ready => {
                    core.drop_message(slot, log);
                    core.queues.remove_if_bare(queue);
                    Cancelled::Cancelled(id)
                }
            })
        })
    }
}
