//! Lists of messages in a state, by (due, id).
//!
//! Scheduled and dead messages are kept in the order of due, and so are ready messages of a single priority:
//! a page is found there without a walk over the earlier ones. For other ready messages, and for leased ones,
//! which are capped, all are looked at.

use std::collections::BinaryHeap;
use std::ops::Bound;

use dwell_model::{Cursor, MessageId, Now, QueueName, StateKind, Timestamp};

use super::queue::{Queue, ReadyKey};
use super::{Core, Log, StoredBody};
use crate::{Page, Result};

type ListPosition = (Timestamp, MessageId);

impl<B: StoredBody> Core<B> {
    /// See [`Store::list`](crate::Store::list). Returns at most as many messages as one call may have items.
    /// Where many have expired that could not be read in time, it may have [given up](Core::gave_up).
    ///
    /// # Errors
    /// [`Error::UnknownQueue`](crate::Error::UnknownQueue), [`Error::Unavailable`](crate::Error::Unavailable).
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
            return Ok(Page { messages: Vec::new(), unread: Vec::new(), next: after });
        }
        let cursor = after;
        let after = cursor.map(|cursor| (cursor.due, cursor.id));
        if self.queues.get(queue).cold.pending > 0 {
            self.expire_cold_of(queue, now, log);
        }
        // Messages that could not be read when they expired are found here, and would leave the page short.
        while !self.page_in_list(queue, state, after, max + 1, now, log)? {
            if self.has_more_over(queue) {
                self.gave_up = true;
                return Ok(Page { messages: Vec::new(), unread: Vec::new(), next: cursor });
            }
        }
        let mut slots = self.first_after(self.queues.get(queue), state, after, max + 1);
        let mut more = slots.len() > max;
        slots.truncate(max);
        let last = slots.last().copied();
        if state == StateKind::Dead {
            // Time has removed these; they are discarded soon.
            slots.retain(|slot| !self.is_past_retention(*slot, now));
        }
        let mut bytes: usize = 0;
        let too_many = slots.iter().position(|slot| {
            bytes = bytes.saturating_add(self.entries.get(*slot).body.body_len());
            bytes > Page::MAX_BYTES
        });
        // One message is included, whatever its size.
        let last = if let Some(fits) = too_many.map(|fits| fits.max(1)).filter(|fits| *fits < slots.len()) {
            slots.truncate(fits);
            more = true;
            slots.last().copied()
        } else {
            last
        };
        let next = last.filter(|_| more).map(|slot| {
            let entry = self.entries.get(slot);
            Cursor { due: entry.due, id: entry.id }
        });
        let messages = slots.into_iter().map(|slot| self.message(slot)).collect();
        Ok(Page { messages, unread: Vec::new(), next })
    }

    /// The first `count` messages of a queue in a state, after `after`.
    fn first_after(
        &self,
        queue: &Queue,
        state: StateKind,
        after: Option<ListPosition>,
        count: usize,
    ) -> Vec<u32> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let from_due = after.map_or(Timestamp::MIN, |(due, _)| due);
        let mut page = Selection { after, count, least: BinaryHeap::new() };
        match state {
            StateKind::Scheduled => {
                // The instant after the last one that has passed; there may be no later one.
                let unripe = queue.ready_until.saturating_after(1).max(from_due);
                for part in queue.scheduled.parts_from(unripe) {
                    let unripe = part.filter(|(due, _)| *due > queue.ready_until.as_ms());
                    self.select_ascending(&mut page, unripe);
                }
            }
            StateKind::Ready => {
                for part in queue.scheduled.parts_from(from_due) {
                    self.select_ascending(
                        &mut page,
                        part.take_while(|(due, _)| *due <= queue.ready_until.as_ms()),
                    );
                }
                match only_priority(queue) {
                    Some(priority) => {
                        let from = from.map(|(due, id)| ReadyKey { priority, due, id });
                        self.select(&mut page, queue.ready.range(from).take(count).map(|(_, slot)| slot));
                    }
                    None => self.select(&mut page, queue.ready.slots()),
                }
            }
            StateKind::Leased => {
                self.select(&mut page, queue.leased.iter_from(i64::MIN).map(|(_, slot)| slot));
            }
            StateKind::Dead => {
                let range = queue.dead.by_due.range((from, Bound::Unbounded)).take(count);
                return range.map(|(_, slot)| *slot).collect();
            }
        }
        page.least.into_sorted_vec().into_iter().map(|(_, slot)| slot).collect()
    }

    fn select(&self, page: &mut Selection, slots: impl Iterator<Item = u32>) {
        for slot in slots {
            let entry = self.entries.get(slot);
            page.offer((entry.due, entry.id), slot);
        }
    }

    /// The same for messages in rising order of their instants: none later than the page can hold is looked
    /// at.
    fn select_ascending(&self, page: &mut Selection, slots: impl Iterator<Item = (i64, u32)>) {
        let full = |page: &Selection, due: i64| {
            page.least.len() == page.count
                && page.least.peek().is_some_and(|((last, _), _)| last.as_ms() < due)
        };
        for (due, slot) in slots {
            if full(page, due) {
                return;
            }
            page.offer((Timestamp::from_ms(due).unwrap_or(Timestamp::MAX), self.entries.get(slot).id), slot);
        }
    }
}

/// The first `count` of the offered messages after `after`.
struct Selection {
    after: Option<ListPosition>,
    count: usize,
    least: BinaryHeap<(ListPosition, u32)>,
}

impl Selection {
    fn offer(&mut self, place: ListPosition, slot: u32) {
        if self.after.is_some_and(|after| place <= after) {
            return;
        }
        if self.least.len() < self.count {
            self.least.push((place, slot));
        } else if let Some(mut greatest) = self.least.peek_mut()
            && place < greatest.0
        {
            *greatest = (place, slot);
        }
    }
}

/// The priority of all ready messages, if it is the same.
fn only_priority(queue: &Queue) -> Option<u32> {
    let (first, _) = queue.ready.first()?;
    let (last, _) = queue.ready.last()?;
    (first.priority == last.priority).then_some(first.priority)
}
