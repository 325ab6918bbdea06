//! Lists of messages in a state, by (due, id).
//!
//! Dead messages, and ready ones of a single priority, lie in that order. Of others a page is selected by looking
//! at all of them.

use std::collections::BinaryHeap;
use std::ops::Bound;

use dwell_model::{Cursor, MessageId, Now, QueueName, StateKind, Timestamp};

use super::queue::{Queue, ReadyKey};
use super::{Core, Log, StoredBody};
use crate::{Page, Result};

type Place = (Timestamp, MessageId);

impl<B: StoredBody> Core<B> {
    /// See [`Store::list`](crate::Store::list). At most as many messages as one call may have items.
    ///
    /// # Errors
    /// [`Error::UnknownQueue`](crate::Error::UnknownQueue).
    pub fn list(
        &mut self,
        queue: &QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Page<B>> {
        self.begin(now, log);
        let queue = self.known(queue, now, log)?;
        let max = max.min(self.config.limits.batch);
        if max == 0 {
            return Ok(Page { messages: Vec::new(), next: after });
        }
        let after = after.map(|cursor| (cursor.due, cursor.id));
        let mut slots = self.first_after(self.queues.get(queue), state, after, max + 1);
        let mut more = slots.len() > max;
        slots.truncate(max);
        let mut bytes: usize = 0;
        let too_many = slots.iter().position(|slot| {
            bytes = bytes.saturating_add(self.entries.get(*slot).body.body_len());
            bytes > Page::MAX_BYTES
        });
        // One message goes in, whatever its size.
        if let Some(fits) = too_many.map(|fits| fits.max(1)).filter(|fits| *fits < slots.len()) {
            slots.truncate(fits);
            more = true;
        }
        let next = slots.last().filter(|_| more).map(|slot| {
            let entry = self.entries.get(*slot);
            Cursor { due: entry.due, id: entry.id }
        });
        Ok(Page { messages: slots.into_iter().map(|slot| self.message(slot)).collect(), next })
    }

    /// The first `count` messages of a queue in a state, after `after`.
    fn first_after(&self, queue: &Queue, state: StateKind, after: Option<Place>, count: usize) -> Vec<u32> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        match state {
            StateKind::Scheduled => self.select(queue.scheduled.iter().map(|(_, slot)| *slot), after, count),
            StateKind::Leased => self.select(queue.leased.iter().map(|(_, slot)| *slot), after, count),
            StateKind::Dead => {
                let range = queue.dead.by_due.range((from, Bound::Unbounded));
                range.take(count).map(|(_, slot)| *slot).collect()
            }
            StateKind::Ready => match only_priority(queue) {
                Some(priority) => {
                    let from = from.map(|(due, id)| ReadyKey { priority, due, id });
                    let range = queue.ready.range((from, Bound::Unbounded));
                    range.take(count).map(|(_, slot)| *slot).collect()
                }
                None => self.select(queue.ready.values().copied(), after, count),
            },
        }
    }

    /// The least `count` of `slots` by (due, id) after `after`, in that order.
    fn select(&self, slots: impl Iterator<Item = u32>, after: Option<Place>, count: usize) -> Vec<u32> {
        let mut least = BinaryHeap::new();
        for slot in slots {
            let entry = self.entries.get(slot);
            let place = (entry.due, entry.id);
            if after.is_some_and(|after| place <= after) {
                continue;
            }
            if least.len() < count {
                least.push((place, slot));
            } else if let Some(mut greatest) = least.peek_mut()
                && place < greatest.0
            {
                *greatest = (place, slot);
            }
        }
        least.into_sorted_vec().into_iter().map(|(_, slot)| slot).collect()
    }
}

/// The priority of all ready messages, if they have the same.
fn only_priority(queue: &Queue) -> Option<u32> {
    let (first, _) = queue.ready.first_key_value()?;
    let (last, _) = queue.ready.last_key_value()?;
    (first.priority == last.priority).then_some(first.priority)
}
