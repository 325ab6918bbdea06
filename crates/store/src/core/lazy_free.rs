//! Lazy free: messages that were removed with all others of their queue, and are not freed yet.
//!
//! A purge takes the same time whatever it removes: it detaches the orders of the queue, and the messages in
//! them are *ghosts* from then on. Every later call frees a few of them, the oldest first, and so does
//! [`bury`](Core::bury), which the owner of the core may call.
//!
//! # Ground rules
//! 1. A queue counts its purges in an epoch, one for pending messages and one for dead ones. A message has
//!    the epoch of its place; one of another epoch is a ghost. So a message becomes a ghost without being
//!    touched.
//! 2. Ghosts stay in the slab, in the tables of numbers and keys, and in the count of bytes, until they are
//!    freed. A look-up there skips ghosts. They are in no order of a queue, and in none of its counts.
//! 3. A queue's number is not reused while the queue has ghosts, and an epoch is not repeated.
//! 4. A capture that began before a purge includes its ghosts; one that began after it does not.

use std::collections::{BTreeMap, VecDeque};

use dwell_model::Timestamp;

use super::cold::QueuePart;
use super::entry::Position;
use super::queue::DeadOrders;
use super::ready::Ready;
use super::schedule::Schedule;
use super::{Core, StoredBody};

/// The messages that one purge removed.
#[derive(Debug, Default)]
pub(super) struct PurgedOrders {
    pub(super) scheduled: Schedule,
    pub(super) ready: Ready,
    pub(super) dead: DeadOrders,
}

impl PurgedOrders {
    pub(super) fn len(&self) -> usize {
        self.scheduled.len() + self.ready.len() + self.dead.by_death.len()
    }

    fn pop(&mut self) -> Option<u32> {
        let pending = self.scheduled.pop(Timestamp::MAX);
        if let Some(slot) = pending.or_else(|| self.ready.pop_first().map(|(_, slot)| slot)) {
            return Some(slot);
        }
        self.dead.by_due.pop_first();
        self.dead.by_key.pop_first();
        self.dead.by_death.pop_first().map(|(_, slot)| slot)
    }
}

/// A purge of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PurgeId {
    queue: u32,
    of_dead: bool,
    epoch: u16,
}

/// All ghosts.
#[derive(Debug, Default)]
pub(super) struct LazyFree {
    oldest_first: VecDeque<(PurgeId, PurgedOrders)>,
    /// For each purge, the number of captures that had begun.
    snapshots: BTreeMap<PurgeId, u64>,
    unfreed: usize,
}

impl LazyFree {
    pub(super) fn unfreed(&self) -> usize {
        self.unfreed
    }
}

impl<B: StoredBody> Core<B> {
    /// Whether removed messages are still to be freed: see [`free_purged`](Core::free_purged).
    pub fn has_unfreed(&self) -> bool {
        !self.lazy_free.oldest_first.is_empty()
    }

    /// Frees up to `most` messages that were removed with all others of their queue. Each call frees some
    /// too; calling this in idle time returns their memory sooner.
    pub fn free_purged(&mut self, most: usize) {
        for _ in 0..most {
            let Some((purge, orders)) = self.lazy_free.oldest_first.front_mut() else { return };
            let purge = *purge;
            match orders.pop() {
                Some(slot) => {
                    self.forget_purged(slot);
                    self.lazy_free.unfreed -= 1;
                }
                None => {
                    self.lazy_free.oldest_first.pop_front();
                    self.lazy_free.snapshots.remove(&purge);
                    self.queues.leave_unfreed(purge.queue);
                }
            }
        }
    }

    /// Sets the maximum number of messages that each call frees.
    pub fn set_freed_per_call(&mut self, most: usize) {
        self.config.freed_per_call = most.max(1);
    }

    /// Frees a few messages as part of a call.
    pub(super) fn free_a_few(&mut self) {
        if self.has_unfreed() {
            self.free_purged(self.config.freed_per_call);
        }
    }

    /// Makes the messages in `orders` ghosts; the queue has already detached these orders. Returns their
    /// number.
    pub(super) fn remove_all(&mut self, queue: u32, which: QueuePart, mut orders: PurgedOrders) -> u64 {
        let count = orders.len();
        if count <= self.config.freed_per_call {
            while let Some(slot) = orders.pop() {
                self.forget_purged(slot);
            }
            return count as u64;
        }
        let of_dead = which == QueuePart::Dead;
        let found = self.queues.get_mut(queue);
        let now = if of_dead { &mut found.dead_epoch } else { &mut found.epoch };
        let epoch = std::mem::replace(now, now.wrapping_add(1));
        let next = PurgeId { queue, of_dead, epoch: *now };
        found.lazy_free += 1;
        let purge = PurgeId { queue, of_dead, epoch };
        self.lazy_free.snapshots.insert(purge, self.snapshots);
        self.lazy_free.unfreed += count;
        self.lazy_free.oldest_first.push_back((purge, orders));
        // Each call frees more than one purge adds here, so this happens only if calls purge and do nothing
        // else.
        while self.lazy_free.snapshots.contains_key(&next) {
            self.free_purged(self.config.freed_per_call);
        }
        count as u64
    }

    /// Frees a message that its queue has dropped already.
    fn forget_purged(&mut self, slot: u32) {
        self.snapshot_before_change(slot);
        self.release_key(slot);
        let entry = self.entries.remove(slot);
        self.strike_off(&entry, slot);
    }

    /// The purge that removed a message; `None` if the message exists.
    fn purge_of(&self, slot: u32) -> Option<PurgeId> {
        if self.lazy_free.unfreed == 0 {
            return None;
        }
        let entry = self.entries.get(slot);
        let queue = self.queues.get(entry.queue);
        let (of_dead, epoch) = match entry.place {
            Position::Leased(_) => return None,
            Position::Dead => (true, queue.dead_epoch),
            Position::Scheduled(_) | Position::Ready => (false, queue.epoch),
        };
        (entry.epoch != epoch).then_some(PurgeId { queue: entry.queue, of_dead, epoch: entry.epoch })
    }

    pub(super) fn is_unfreed(&self, slot: u32) -> bool {
        self.purge_of(slot).is_some()
    }

    /// Whether a message existed when the capture in progress began.
    pub(super) fn was_there_at_snapshot(&self, slot: u32) -> bool {
        self.purge_of(slot).is_none_or(|purge| self.lazy_free.snapshots[&purge] == self.snapshots)
    }

    /// Verifies the records of ghosts.
    ///
    /// # Panics
    /// If they are wrong.
    pub(super) fn check_lazy_free(&self) {
        let unfreed = self.entries.iter().filter(|(slot, _)| self.is_unfreed(*slot)).count();
        assert_eq!(self.lazy_free.unfreed, unfreed, "ghosts");
        let buried: usize = self.lazy_free.oldest_first.iter().map(|(_, orders)| orders.len()).sum();
        assert_eq!(buried, unfreed, "ghosts in graves");
        let purges: Vec<PurgeId> = self.lazy_free.oldest_first.iter().map(|(purge, _)| *purge).collect();
        let mut known = purges.clone();
        known.sort_unstable();
        assert!(known.iter().eq(self.lazy_free.snapshots.keys()), "each purge is known once");
        let of_queue = |queue| purges.iter().filter(|purge| purge.queue == queue).count() as u32;
        for (queue, found) in self.queues.with_gone() {
            assert_eq!(found.lazy_free, of_queue(queue), "graves of {}", found.name);
        }
    }
}
