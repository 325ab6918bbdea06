//! Messages that were removed with all others of their queue, and are not forgotten yet.
//!
//! A purge is answered in the same time whatever it removes: it takes the orders of the queue away whole, and what lies
//! in them is a *ghost* from then on. Every call after that forgets a few of them, the oldest first, and so does whoever
//! owns the core when [`bury`](Core::bury) is called.
//!
//! # Ground rules
//! 1. A queue counts its purges in an epoch, one for pending messages and one for dead ones. A message has the epoch of
//!    its place; one of another epoch is a ghost. So nothing has to be done to a message to make it one.
//! 2. Ghosts are in the slab, in the tables of numbers and keys, and in the count of bytes, until they are forgotten.
//!    Whoever finds a message there passes ghosts over. They are in no order of a queue, and in none of its counts.
//! 3. A queue's number is not given to another queue while it has ghosts, and an epoch does not come again.
//! 4. A capture that was begun before a purge has its ghosts in it, and one that was begun after it has not.

use std::collections::{BTreeMap, VecDeque};

use dwell_model::Timestamp;

use super::cold::Which;
use super::entry::Place;
use super::queue::Dead;
use super::ready::Ready;
use super::schedule::Schedule;
use super::{Core, StoredBody};

/// What one purge took away.
#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) scheduled: Schedule,
    pub(super) ready: Ready,
    pub(super) dead: Dead,
}

impl Orders {
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

/// Which purge of which queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Purge {
    queue: u32,
    of_dead: bool,
    epoch: u16,
}

/// All ghosts.
#[derive(Debug, Default)]
pub(super) struct Graves {
    oldest_first: VecDeque<(Purge, Orders)>,
    /// For each purge how many captures had been begun.
    captures: BTreeMap<Purge, u64>,
    ghosts: usize,
}

impl Graves {
    pub(super) fn ghosts(&self) -> usize {
        self.ghosts
    }
}

impl<B: StoredBody> Core<B> {
    /// Whether messages are left to be forgotten that are gone: see [`bury`](Core::bury).
    pub fn has_ghosts(&self) -> bool {
        !self.graves.oldest_first.is_empty()
    }

    /// Forgets up to `most` messages that were removed with all others of their queue. Each call does so too; whoever
    /// has time between calls gets their memory back sooner.
    pub fn bury(&mut self, most: usize) {
        for _ in 0..most {
            let Some((purge, orders)) = self.graves.oldest_first.front_mut() else { return };
            let purge = *purge;
            match orders.pop() {
                Some(slot) => {
                    self.forget_purged(slot);
                    self.graves.ghosts -= 1;
                }
                None => {
                    self.graves.oldest_first.pop_front();
                    self.graves.captures.remove(&purge);
                    self.queues.leave_grave(purge.queue);
                }
            }
        }
    }

    /// So many are forgotten by each call.
    pub fn set_buried_a_call(&mut self, most: usize) {
        self.config.buried_a_call = most.max(1);
    }

    /// Forgets a few by the way.
    pub(super) fn bury_some(&mut self) {
        if self.has_ghosts() {
            self.bury(self.config.buried_a_call);
        }
    }

    /// What lies in `orders` is gone; its queue has it in none of its orders any more. Says how many that are.
    pub(super) fn remove_all(&mut self, queue: u32, which: Which, mut orders: Orders) -> u64 {
        let count = orders.len();
        if count <= self.config.buried_a_call {
            while let Some(slot) = orders.pop() {
                self.forget_purged(slot);
            }
            return count as u64;
        }
        let of_dead = which == Which::Dead;
        let found = self.queues.get_mut(queue);
        let now = if of_dead { &mut found.dead_epoch } else { &mut found.epoch };
        let epoch = std::mem::replace(now, now.wrapping_add(1));
        let next = Purge { queue, of_dead, epoch: *now };
        found.graves += 1;
        let purge = Purge { queue, of_dead, epoch };
        self.graves.captures.insert(purge, self.captures);
        self.graves.ghosts += count;
        self.graves.oldest_first.push_back((purge, orders));
        // Each call forgets more than one purge needs to be put here: it takes calls that purge and do nothing else.
        while self.graves.captures.contains_key(&next) {
            self.bury(self.config.buried_a_call);
        }
        count as u64
    }

    /// Forgets a message that its queue has forgotten already.
    fn forget_purged(&mut self, slot: u32) {
        self.capture_before_change(slot);
        self.release_key(slot);
        let entry = self.entries.remove(slot);
        self.strike_off(&entry, slot);
    }

    /// The purge that removed a message; none if it is there.
    fn purge_of(&self, slot: u32) -> Option<Purge> {
        if self.graves.ghosts == 0 {
            return None;
        }
        let entry = self.entries.get(slot);
        let queue = self.queues.get(entry.queue);
        let (of_dead, epoch) = match entry.place {
            Place::Leased(_) => return None,
            Place::Dead => (true, queue.dead_epoch),
            Place::Scheduled(_) | Place::Ready => (false, queue.epoch),
        };
        (entry.epoch != epoch).then_some(Purge { queue: entry.queue, of_dead, epoch: entry.epoch })
    }

    pub(super) fn is_ghost(&self, slot: u32) -> bool {
        self.purge_of(slot).is_some()
    }

    /// Whether a message was there when the capture was begun that is under way.
    pub(super) fn was_there_when_captured(&self, slot: u32) -> bool {
        self.purge_of(slot).is_none_or(|purge| self.graves.captures[&purge] == self.captures)
    }

    /// Verifies what is kept of ghosts.
    ///
    /// # Panics
    /// If it is wrong.
    pub(super) fn check_graves(&self) {
        let ghosts = self.entries.iter().filter(|(slot, _)| self.is_ghost(*slot)).count();
        assert_eq!(self.graves.ghosts, ghosts, "ghosts");
        let buried: usize = self.graves.oldest_first.iter().map(|(_, orders)| orders.len()).sum();
        assert_eq!(buried, ghosts, "ghosts in graves");
        let purges: Vec<Purge> = self.graves.oldest_first.iter().map(|(purge, _)| *purge).collect();
        let mut known = purges.clone();
        known.sort_unstable();
        assert!(known.iter().eq(self.graves.captures.keys()), "each purge is known once");
        let of_queue = |queue| purges.iter().filter(|purge| purge.queue == queue).count() as u32;
        for (queue, found) in self.queues.with_gone() {
            assert_eq!(found.graves, of_queue(queue), "graves of {}", found.name);
        }
    }
}
