//! All queues, by name.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use dwell_model::QueueName;
use dwell_time::TimingQueue;

use super::index::{SlotTable, TextHash};
use super::queue::Queue;
use super::slab::Slab;

/// The queues that have messages, waiters or settings of their own.
#[derive(Debug)]
pub(super) struct Queues {
    hash: TextHash,
    slots: Slab<Queue>,
    by_hash: SlotTable,
    by_name: BTreeMap<QueueName, u32>,
    /// The queues with leases, by a lower bound of the end of these, in monotonic milliseconds: made exact
    /// when it is reached.
    lapses: TimingQueue<u32>,
    /// The queues with a retention, by a lower bound of the instant at which one of their dead messages is
    /// discarded, in milliseconds of the wall clock: made exact when it is reached.
    retentions: TimingQueue<u32>,
    /// The last queue found: the items of a call are mostly of one queue.
    last: Cell<u32>,
    /// Removed queues whose numbers are still used by messages that were removed with them.
    gone: BTreeSet<u32>,
}

impl Queues {
    pub(super) fn new() -> Queues {
        Queues {
            hash: TextHash::default(),
            slots: Slab::new(),
            by_hash: SlotTable::new(),
            by_name: BTreeMap::new(),
            lapses: TimingQueue::new(),
            retentions: TimingQueue::new(),
            last: Cell::new(0),
            gone: BTreeSet::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    #[inline]
    pub(super) fn find(&self, name: &QueueName) -> Option<u32> {
        let last = self.last.get();
        if self.slots.find(last).is_some_and(|queue| queue.name == *name) {
            return Some(last);
        }
        let found = self.by_hash.find(self.hash.queue(name), |queue| self.slots.get(queue).name == *name);
        found.inspect(|queue| self.last.set(*queue))
    }

    pub(super) fn find_or_insert(&mut self, name: &QueueName) -> u32 {
        if let Some(queue) = self.find(name) {
            return queue;
        }
        let hash = self.hash.queue(name);
        let queue = self.slots.insert(Queue::new(name.clone()));
        self.by_hash.insert(hash, queue, |queue| self.hash.queue(&self.slots.get(queue).name));
        self.by_name.insert(name.clone(), queue);
        queue
    }

    /// Removes a queue that nothing keeps.
    #[inline]
    pub(super) fn remove_if_bare(&mut self, queue: u32) {
        if self.slots.get(queue).is_bare() {
            self.remove_bare(queue);
        }
    }

    fn remove_bare(&mut self, queue: u32) {
        if self.gone.contains(&queue) {
            return;
        }
        let found = self.slots.get_mut(queue);
        if let Some((_, alarm)) = found.lapse.take() {
            self.lapses.cancel(alarm);
        }
        if let Some((_, alarm)) = found.retention.take() {
            self.retentions.cancel(alarm);
        }
        self.by_hash.remove(self.hash.queue(&found.name), queue);
        self.by_name.remove(&found.name);
        if found.lazy_free == 0 {
            self.slots.remove(queue);
        } else {
            self.gone.insert(queue);
            // Its number may be given to another queue from now on.
            self.last.set(u32::MAX);
        }
    }

    /// Counts one removal whose messages are all freed.
    pub(super) fn leave_unfreed(&mut self, queue: u32) {
        let found = self.slots.get_mut(queue);
        found.lazy_free -= 1;
        if found.lazy_free == 0 && self.gone.remove(&queue) {
            self.slots.remove(queue);
        }
    }

    /// All queues, and those removed and not freed yet.
    pub(super) fn with_gone(&self) -> impl Iterator<Item = (u32, &Queue)> {
        self.slots.iter()
    }

    #[inline]
    pub(super) fn get(&self, queue: u32) -> &Queue {
        self.slots.get(queue)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, queue: u32) -> &mut Queue {
        self.slots.get_mut(queue)
    }

    /// The queue with this number, if there is one.
    pub(super) fn find_mut(&mut self, queue: u32) -> Option<&mut Queue> {
        self.slots.find_mut(queue)
    }

    /// Notes that a lease of a queue ends at `deadline`.
    pub(super) fn expect_lapse(&mut self, queue: u32, deadline: i64) {
        let found = self.slots.get_mut(queue);
        match found.lapse {
            Some((at, _)) if at <= deadline => {}
            Some((_, alarm)) => {
                self.lapses.reschedule(alarm, deadline);
                found.lapse = Some((deadline, alarm));
            }
            None => found.lapse = Some((deadline, self.lapses.insert(deadline, queue))),
        }
    }

    /// Notes that a dead message of a queue may be past its retention at `at`.
    pub(super) fn expect_retention(&mut self, queue: u32, at: i64) {
        let found = self.slots.get_mut(queue);
        match found.retention {
            Some((earlier, _)) if earlier <= at => {}
            Some((_, alarm)) => {
                self.retentions.reschedule(alarm, at);
                found.retention = Some((at, alarm));
            }
            None => found.retention = Some((at, self.retentions.insert(at, queue))),
        }
    }

    /// Notes that no dead message of a queue will be past its retention, as it is now.
    pub(super) fn forget_retention(&mut self, queue: u32) {
        if let Some((_, alarm)) = self.slots.get_mut(queue).retention.take() {
            self.retentions.cancel(alarm);
        }
    }

    /// A lower bound of the instant at which a dead message of any queue is past its retention.
    pub(super) fn next_retention(&self) -> Option<i64> {
        self.retentions.next_due()
    }

    /// Removes and returns a queue with dead messages that may be past their retention at `now`; its lower
    /// bound is dropped.
    pub(super) fn pop_retention(&mut self, now: i64) -> Option<u32> {
        let (_, queue) = self.retentions.pop_due(now)?;
        self.slots.get_mut(queue).retention = None;
        Some(queue)
    }

    /// The same for this queue; false if none of its dead messages is past its retention.
    pub(super) fn take_retention(&mut self, queue: u32, now: i64) -> bool {
        let Some(found) = self.slots.find_mut(queue) else { return false };
        let Some((_, alarm)) = found.retention.take_if(|(at, _)| *at <= now) else { return false };
        self.retentions.cancel(alarm);
        true
    }

    /// Whether it is known that none of a queue's dead messages is past its retention before this.
    pub(super) fn expects_retention(&self, queue: u32, at: i64) -> bool {
        let retention = self.slots.get(queue).retention;
        retention.is_some_and(|(earlier, alarm)| earlier <= at && self.retentions.get(alarm) == Some(&queue))
    }

    /// A lower bound of the end of all leases, if there are any.
    pub(super) fn next_lapse(&self) -> Option<i64> {
        self.lapses.next_due()
    }

    /// Removes and returns a queue whose leases may have ended by `now`; its lower bound is dropped.
    pub(super) fn pop_lapsed(&mut self, now: i64) -> Option<u32> {
        let (_, queue) = self.lapses.pop_due(now)?;
        self.slots.get_mut(queue).lapse = None;
        Some(queue)
    }

    /// Whether it is known that none of a queue's leases ends before this.
    pub(super) fn expects_lapse(&self, queue: u32, deadline: i64) -> bool {
        let lapse = self.slots.get(queue).lapse;
        lapse.is_some_and(|(at, alarm)| at <= deadline && self.lapses.get(alarm) == Some(&queue))
    }

    /// Up to `max` queues by name, starting with the first after `after`.
    pub(super) fn page(&self, after: Option<&QueueName>, max: usize) -> Vec<u32> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_name.range((from, Bound::Unbounded)).take(max).map(|(_, queue)| *queue).collect()
    }

    /// All queues, by name.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        self.by_name.values().copied()
    }
}
