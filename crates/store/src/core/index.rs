//! Indexes from names to slots: hash tables that hold four bytes a message and compare with the message
//! itself.
//!
//! A table is split into parts, so that it grows in small steps. Nothing here is ever iterated, so the order
//! of a hash table cannot be observed.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use dwell_model::{Key, MessageId, Number, QueueName};
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

const PARTS: usize = 64;

/// Slots by the hash of a value in the slot.
#[derive(Debug)]
pub(super) struct SlotTable {
    parts: Vec<HashTable<u32>>,
}

impl SlotTable {
    pub(super) fn new() -> SlotTable {
        SlotTable { parts: (0..PARTS).map(|_| HashTable::new()).collect() }
    }

    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.parts[part(hash)].find(hash, |slot| is_it(*slot)).copied()
    }

    pub(super) fn insert(&mut self, hash: u64, slot: u32, hash_of: impl Fn(u32) -> u64) {
        self.parts[part(hash)].insert_unique(hash, slot, |slot| hash_of(*slot));
    }

    /// Inserts a slot; returns false and does nothing if the table has a slot that `is_it` accepts.
    pub(super) fn insert_new(
        &mut self,
        hash: u64,
        slot: u32,
        is_it: impl Fn(u32) -> bool,
        hash_of: impl Fn(u32) -> u64,
    ) -> bool {
        match self.parts[part(hash)].entry(hash, |slot| is_it(*slot), |slot| hash_of(*slot)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(slot);
                true
            }
        }
    }

    /// Removes `slot`, which is in the table.
    pub(super) fn remove(&mut self, hash: u64, slot: u32) {
        match self.parts[part(hash)].find_entry(hash, |other| *other == slot) {
            Ok(entry) => drop(entry.remove()),
            Err(_) => unreachable!("only what is in the table is taken out"),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(HashTable::len).sum()
    }
}

/// The table itself uses the lowest and the highest bits.
fn part(hash: u64) -> usize {
    (hash >> 44) as usize % PARTS
}

/// Numbers are generated here, and need no protection against chosen collisions.
pub(super) fn mix(bits: u64) -> u64 {
    let product = u128::from(bits ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    (product >> 64) as u64 ^ product as u64
}

/// Maps ids to numbers: within an incarnation both rise together with each put.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    /// For each incarnation, the number that belongs to counter 0.
    starts: BTreeMap<u32, u64>,
    step: u64,
}

impl Numbering {
    pub(super) fn new(step: u64) -> Numbering {
        Numbering { starts: BTreeMap::new(), step }
    }

    /// Notes that `id` and `number` belong together; false if that contradicts others of the incarnation.
    pub(super) fn note(&mut self, id: MessageId, number: Number) -> bool {
        let passed = id.counter().checked_mul(self.step);
        let start = passed.and_then(|passed| number.get().checked_sub(passed));
        start.is_some_and(|start| *self.starts.entry(id.incarnation()).or_insert(start) == start)
    }

    /// For each incarnation, the number that belongs to counter 0.
    pub(super) fn starts(&self) -> impl Iterator<Item = (u32, u64)> {
        self.starts.iter().map(|(incarnation, start)| (*incarnation, *start))
    }

    /// Sets where an incarnation began.
    pub(super) fn set(&mut self, incarnation: u32, start: u64) {
        self.starts.insert(incarnation, start);
    }

    /// The number that belongs to `id`, if there is one.
    pub(super) fn number(&self, id: MessageId) -> Option<Number> {
        let start = self.starts.get(&id.incarnation())?;
        Number::new(start.checked_add(id.counter().checked_mul(self.step)?)?).ok()
    }
}

/// Hashes values chosen by callers, under a secret of the process.
#[derive(Clone, Debug, Default)]
pub(super) struct TextHash(DefaultHashBuilder);

impl TextHash {
    pub(super) fn queue(&self, name: &QueueName) -> u64 {
        self.0.hash_one(name)
    }

    pub(super) fn key(&self, queue: u32, key: &Key) -> u64 {
        self.0.hash_one((queue, key))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_are_spread_evenly_over_the_parts() {
        let mut counts = [0; PARTS];
        (0..64 * PARTS as u64).for_each(|number| counts[part(mix(number))] += 1);
        assert!(counts.iter().all(|count| (48..=80).contains(count)), "64 are to be in each: {counts:?}");
    }

    #[test]
    fn names_and_keys_are_spread_over_the_parts() {
        let hash = TextHash::default();
        let parts =
            |hash_of: &dyn Fn(u32) -> u64| (0..1_000).map(|at| part(hash_of(at))).collect::<BTreeSet<_>>();
        let name = |at: u32| hash.queue(&format!("queue-{at}").parse().unwrap());
        let key = |at: u32| hash.key(7, &format!("key-{at}").parse().unwrap());
        for partitions in [parts(&name), parts(&key)] {
            assert!(partitions.len() > PARTS / 2, "a thousand are in {} parts", partitions.len());
        }
    }
}
