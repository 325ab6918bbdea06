//! Reading messages, by id or key or as the first of their state, and finding them by number.

use dwell_model::{Message, MessageId, Now, Number, QueueName, StateKind, Timestamp};

use super::cold::HandedOver;
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

    /// See [`Store::peek`](crate::Store::peek).
    ///
    /// # Errors
    /// [`Error::UnknownQueue`], [`Error::Unavailable`].
    pub fn peek(
        &mut self,
        queue: &QueueName,
        state: StateKind,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Option<Message<B>>> {
        match state {
            StateKind::Scheduled | StateKind::Leased => {
                Ok(self.list(queue, state, None, 1, now, log)?.messages.pop())
            }
            StateKind::Ready => {
                self.begin(now, log);
                let found = self.known(queue, now, log)?;
                let first = self.first_ready(found, now, log)?;
                Ok(first.map(|(_, _, slot)| self.message(slot)))
            }
            StateKind::Dead => {
                self.begin(now, log);
                let found = self.known(queue, now, log)?;
                let (mut after, mut anew) = (None, true);
                loop {
                    let handed_over =
                        self.page_in_dead(found, after, (std::mem::take(&mut anew), Timestamp::MAX), 1, log)?;
                    if let Some((_, slot)) = self.oldest(found, &mut after, handed_over, 1).first() {
                        return Ok(Some(self.message(*slot)));
                    }
                    if handed_over == HandedOver::All {
                        return Ok(None);
                    }
                }
            }
        }
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
