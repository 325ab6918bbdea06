//! Reading messages, by id or key, and finding them by number.

use dwell_model::{Message, MessageId, Now, Number, QueueName};

use super::{Core, Log, StoredBody};
use crate::{Error, Result, Target};

impl<B: StoredBody> Core<B> {
    /// See [`Store::get`](crate::Store::get).
    pub fn get(
        &mut self,
        queue: &QueueName,
        targets: Vec<Target>,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Vec<Result<Message<B>>> {
        self.begin(now, log);
        self.each(targets, |core, target| {
            let found = core.known(queue, now, log)?;
            let slot = core.find_target(found, &target, now, log)?;
            let slot = slot.ok_or_else(|| Error::MessageNotFound { queue: queue.clone() })?;
            Ok(core.message(slot))
        })
    }

    /// See [`Store::locate`](crate::Store::locate).
    ///
    /// # Errors
    /// [`Error::Invalid`] for too many numbers, [`Error::Unavailable`].
    pub fn locate(
        &mut self,
        numbers: &[Number],
        log: &mut impl Log<B>,
    ) -> Result<Vec<Option<(QueueName, MessageId)>>> {
        self.config.limits.check_batch(numbers.len())?;
        let find = |number: &Number| {
            let slot = self.find_number(*number, log)?;
            Ok(slot.map(|slot| {
                let entry = self.entries.get(slot);
                (self.queues.get(entry.queue).name.clone(), entry.id)
            }))
        };
        numbers.iter().map(find).collect()
    }
}
