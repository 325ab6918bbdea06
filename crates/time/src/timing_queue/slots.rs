//! Slots: where the items lie, and what a handle means.
//!
//! Items do not move while the order around them changes; each slot knows the *place* of its entry in that
//! order, so that a handle leads to the entry. A slot that is freed counts its generation up, and a slot whose
//! generations are spent is never used again: a stale handle names nothing, never somebody else's item.

use std::num::NonZeroU32;

/// Names one item of one [`TimingQueue`](super::TimingQueue), for as long as it is in there.
///
/// A handle whose item has left is stale, and every call says so; it never comes to mean another item.
/// A handle of another queue means nothing here: nobody checks that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    slot: u32,
    generation: u32,
}

/// Where the entry of a slot stands in the order. What the number means is the order's affair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(NonZeroU32);

impl Place {
    /// The place with this number, which is below `u32::MAX`.
    pub(super) fn new(number: u32) -> Place {
        Place(NonZeroU32::MIN.checked_add(number).expect("the number of a place is below u32::MAX"))
    }

    pub(super) fn number(self) -> u32 {
        self.0.get() - 1
    }
}

/// The place cannot be zero, which leaves a value to tell the variants apart by: the bookkeeping of
/// a slot takes 8 bytes.
#[derive(Debug)]
enum Slot<T> {
    Taken { generation: u32, place: Place, item: T },
    Free { generation: u32, next: u32 },
}

const _: () = assert!(size_of::<Slot<u64>>() == 16);

/// Slots in a chunk. Chunks keep growth from copying what is there, and from reserving twice what is needed.
const CHUNK: usize = 1024;
/// Ends the list of free slots; no slot has this number.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Slots<T> {
    chunks: Vec<Vec<Slot<T>>>,
    first_free: u32,
    taken: usize,
}

impl<T> Slots<T> {
    pub(super) fn new() -> Slots<T> {
        Slots { chunks: Vec::new(), first_free: NONE, taken: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.taken
    }

    /// Puts `item` into a free slot.
    pub(super) fn insert(&mut self, place: Place, item: T) -> (u32, Handle) {
        self.taken += 1;
        if self.first_free == NONE {
            return self.append(place, item);
        }
        let slot = self.first_free;
        let entry = self.slot_mut(slot);
        let Slot::Free { generation, next } = *entry else {
            unreachable!("the list of free slots holds free slots")
        };
        *entry = Slot::Taken { generation, place, item };
        self.first_free = next;
        (slot, Handle { slot, generation })
    }

    #[cold]
    fn append(&mut self, place: Place, item: T) -> (u32, Handle) {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            // The first chunk grows by doubling: a queue of ten items does not pay for a thousand.
            let room = if self.chunks.is_empty() { 0 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(room));
        }
        let earlier = (self.chunks.len() - 1) * CHUNK;
        let chunk = self.chunks.last_mut().expect("a chunk was just made sure of");
        let slot = u32::try_from(earlier + chunk.len()).expect("a timing queue holds fewer than 2^32 items");
        assert!(slot < NONE - 1, "a timing queue holds fewer than 2^32 items");
        chunk.push(Slot::Taken { generation: 0, place, item });
        (slot, Handle { slot, generation: 0 })
    }

    /// Takes the item out of `slot`, and with it the meaning of its handle.
    pub(super) fn take(&mut self, slot: u32) -> T {
        let next = self.first_free;
        let entry = self.slot_mut(slot);
        let Slot::Taken { generation, .. } = *entry else { unreachable!("the order holds taken slots") };
        // Past its last generation the slot keeps it, but nobody is given the slot again.
        let spent = generation == u32::MAX;
        let freed = Slot::Free { generation: generation.wrapping_add(1), next };
        let Slot::Taken { item, .. } = std::mem::replace(entry, freed) else {
            unreachable!("the slot was taken a moment ago")
        };
        if !spent {
            self.first_free = slot;
        }
        self.taken -= 1;
        item
    }

    /// The slot that `handle` names, with its entry's place; nothing if its item has left.
    pub(super) fn find(&self, handle: Handle) -> Option<(u32, Place)> {
        match self.chunks.get(handle.slot as usize / CHUNK)?.get(handle.slot as usize % CHUNK)? {
            Slot::Taken { generation, place, .. } if *generation == handle.generation => {
                Some((handle.slot, *place))
            }
            _ => None,
        }
    }

    pub(super) fn get(&self, slot: u32) -> &T {
        match &self.chunks[slot as usize / CHUNK][slot as usize % CHUNK] {
            Slot::Taken { item, .. } => item,
            Slot::Free { .. } => unreachable!("the order holds taken slots"),
        }
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> &mut T {
        match self.slot_mut(slot) {
            Slot::Taken { item, .. } => item,
            Slot::Free { .. } => unreachable!("the order holds taken slots"),
        }
    }

    /// Notes that the entry of `slot` stands at `at` now.
    pub(super) fn move_to(&mut self, slot: u32, at: Place) {
        match self.slot_mut(slot) {
            Slot::Taken { place, .. } => *place = at,
            Slot::Free { .. } => unreachable!("the order holds taken slots"),
        }
    }

    fn slot_mut(&mut self, slot: u32) -> &mut Slot<T> {
        &mut self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_whose_generations_are_spent_is_not_used_again() {
        let mut slots = Slots::new();
        let (slot, _) = slots.insert(Place::new(0), 'a');
        slots.take(slot);
        let Slot::Free { generation, .. } = slots.slot_mut(slot) else { panic!("it was freed") };
        *generation = u32::MAX;
        let (again, last) = slots.insert(Place::new(0), 'b');
        assert_eq!((again, last.generation), (slot, u32::MAX));
        assert_eq!(slots.take(slot), 'b');
        assert_eq!(slots.find(last), None);
        let (other, _) = slots.insert(Place::new(0), 'c');
        assert_ne!(other, slot);
        assert_eq!(
            slots.find(Handle { slot, generation: 0 }),
            None,
            "generation 0 was wrapped to, and is free"
        );
    }

    #[test]
    fn bookkeeping_takes_8_bytes_a_slot() {
        assert_eq!(size_of::<Slot<u32>>(), 12);
        assert_eq!(size_of::<Slot<u64>>(), 16);
        assert_eq!(size_of::<Slot<[u64; 4]>>(), 40);
        assert_eq!(size_of::<Option<Place>>(), 4);
    }
}
