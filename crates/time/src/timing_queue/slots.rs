//! Slots: where the items are stored, and what a handle means.
//!
//! Items do not move while the order around them changes. Each slot knows the *place* of its entry in that order, so
//! that a handle leads to the entry. Freeing a slot increments its generation, and a slot whose generations are
//! exhausted is never used again: a stale handle names no item, and never one of another caller.

use std::num::NonZeroU32;

/// Names one item of one [`TimingQueue`](super::TimingQueue), for as long as the item is in the queue.
///
/// A handle whose item has left is stale, and every call reports so; it never comes to name another item. A handle of
/// another queue has no meaning here, and this is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    pub(super) slot: u32,
    generation: u32,
}

/// Where the entry of a slot stands: in the run, or in the page with a certain number.
///
/// Any other entry under that slot is dead: a page keeps the entries of items that have left or were moved until it is
/// purged. A slot may return to a page where it stood before. Then the last of its entries there is the live one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryPosition(NonZeroU32);

impl EntryPosition {
    /// In the run at the head of the queue.
    pub(super) const RUN: EntryPosition = EntryPosition(NonZeroU32::MIN);

    /// In the page of this number, which is below [`PAGES`].
    #[inline]
    pub(super) fn page(number: u32) -> EntryPosition {
        debug_assert!(number < PAGES);
        EntryPosition(NonZeroU32::MIN.saturating_add(number + 1))
    }

    /// The number of the page, if it is in one.
    #[inline]
    pub(super) fn in_page(self) -> Option<u32> {
        self.0.get().checked_sub(2)
    }
}

/// Page numbers are below this, so that they fit in a place.
pub(super) const PAGES: u32 = u32::MAX - 2;

/// The place cannot be zero, which leaves a niche to tell the variants apart: the bookkeeping of a slot takes 8 bytes.
#[derive(Debug)]
enum Slot<T> {
    Taken { generation: u32, place: EntryPosition, item: T },
    Free { generation: u32 },
}

const _: () = assert!(size_of::<Slot<u64>>() == 16);

/// The number of slots per chunk. Chunks avoid copying when the storage grows, and reserving twice what is needed.
const CHUNK: usize = 1024;
/// The number of slots per word of the free bitmap.
///
/// New items fill one group after the other, wherever the old items were. Reusing the slot that was freed last would
/// access memory in the random order of the instants.
const GROUP: usize = u64::BITS as usize;

#[derive(Debug)]
pub(super) struct Slots<T> {
    chunks: Vec<Vec<Slot<T>>>,
    /// For each group, a bitmap of its free slots.
    free: Vec<u64>,
    /// The groups with a free slot, in no particular order.
    open: Vec<u32>,
    taken: usize,
}

impl<T> Slots<T> {
    pub(super) fn new() -> Slots<T> {
        Slots { chunks: Vec::new(), free: Vec::new(), open: Vec::new(), taken: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.taken
    }

    /// Stores `item` in a free slot.
    #[inline]
    pub(super) fn insert(&mut self, place: EntryPosition, item: T) -> Handle {
        let handle = self.reserve();
        self.fill(handle, place, item);
        handle
    }

    /// Reserves a free slot. Its handle names no item until the slot is filled.
    #[inline]
    pub(super) fn reserve(&mut self) -> Handle {
        let Some(&group) = self.open.last() else { return self.append() };
        let free = &mut self.free[group as usize];
        let slot = group * GROUP as u32 + free.trailing_zeros();
        *free &= *free - 1;
        if *free == 0 {
            self.open.pop();
        }
        let Slot::Free { generation } = *self.slot_mut(slot) else {
            unreachable!("a slot marked free is free")
        };
        Handle { slot, generation }
    }

    /// Stores `item` in a slot that was reserved.
    #[inline]
    pub(super) fn fill(&mut self, handle: Handle, place: EntryPosition, item: T) {
        self.taken += 1;
        let slot = self.slot_mut(handle.slot);
        debug_assert!(matches!(slot, Slot::Free { generation } if *generation == handle.generation));
        *slot = Slot::Taken { generation: handle.generation, place, item };
    }

    #[cold]
    fn append(&mut self) -> Handle {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            // The first chunk grows by doubling: a queue of ten items does not pay for a thousand.
            let room = if self.chunks.is_empty() { 0 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(room));
        }
        let earlier = (self.chunks.len() - 1) * CHUNK;
        let chunk = self.chunks.last_mut().expect("a chunk was just made sure of");
        // The last two numbers stay unused, as callers use them as markers.
        let slot = u32::try_from(earlier + chunk.len()).ok().filter(|slot| *slot < u32::MAX - 1);
        let slot = slot.expect("a timing queue holds fewer than 2^32 - 2 items");
        chunk.push(Slot::Free { generation: 0 });
        if (slot as usize).is_multiple_of(GROUP) {
            self.free.push(0);
        }
        Handle { slot, generation: 0 }
    }

    /// Takes the item out of `slot`, which makes its handle stale.
    pub(super) fn take(&mut self, slot: u32) -> T {
        let entry = self.slot_mut(slot);
        let Slot::Taken { generation, .. } = *entry else { unreachable!("the order holds taken slots") };
        let freed = Slot::Free { generation: generation.wrapping_add(1) };
        let Slot::Taken { item, .. } = std::mem::replace(entry, freed) else {
            unreachable!("the slot was taken a moment ago")
        };
        self.taken -= 1;
        // After its last generation the slot is not marked free, so it is never used again.
        if generation != u32::MAX {
            let group = slot as usize / GROUP;
            let free = &mut self.free[group];
            if *free == 0 {
                self.open.push(group as u32);
            }
            *free |= 1 << (slot as usize % GROUP);
        }
        item
    }

    /// The slot of `handle`, with the place of its entry. `None` if its item has left.
    pub(super) fn find(&self, handle: Handle) -> Option<(u32, EntryPosition)> {
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

    /// Whether the entry of `slot` stands at `at`.
    #[inline]
    pub(super) fn stands_at(&self, slot: u32, at: EntryPosition) -> bool {
        matches!(&self.chunks[slot as usize / CHUNK][slot as usize % CHUNK], Slot::Taken { place, .. } if *place == at)
    }

    /// Drops all items. Reserved slots stay reserved. If a drop panics, the others are dropped all the same.
    pub(super) fn clear(&mut self) {
        struct Clearing<'a, T> {
            slots: &'a mut Slots<T>,
            next: usize,
        }

        impl<T> Iterator for Clearing<'_, T> {
            type Item = T;

            fn next(&mut self) -> Option<T> {
                loop {
                    let at = self.next;
                    let chunk = self.slots.chunks.get(at / CHUNK)?;
                    let is_taken = matches!(chunk.get(at % CHUNK), Some(Slot::Taken { .. }));
                    self.next += 1;
                    if is_taken {
                        return Some(self.slots.take(at as u32));
                    }
                }
            }
        }

        impl<T> Drop for Clearing<'_, T> {
            fn drop(&mut self) {
                self.for_each(drop);
            }
        }

        Clearing { slots: self, next: 0 }.by_ref().for_each(drop);
    }

    /// Records that the entry of `slot` now stands at `at`.
    pub(super) fn move_to(&mut self, slot: u32, at: EntryPosition) {
        match self.slot_mut(slot) {
            Slot::Taken { place, .. } => *place = at,
            Slot::Free { .. } => unreachable!("the order holds taken slots"),
        }
    }

    /// The allocated bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(Vec::capacity).sum();
        chunks * size_of::<Slot<T>>()
            + self.chunks.capacity() * size_of::<Vec<Slot<T>>>()
            + self.free.capacity() * size_of::<u64>()
            + self.open.capacity() * size_of::<u32>()
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
        let Handle { slot, .. } = slots.insert(EntryPosition::RUN, 'a');
        slots.take(slot);
        let Slot::Free { generation } = slots.slot_mut(slot) else { panic!("it was freed") };
        *generation = u32::MAX;
        let last = slots.insert(EntryPosition::RUN, 'b');
        assert_eq!((last.slot, last.generation), (slot, u32::MAX));
        assert_eq!(slots.take(slot), 'b');
        assert_eq!(slots.find(last), None);
        let other = slots.insert(EntryPosition::RUN, 'c');
        assert_ne!(other.slot, slot);
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
        assert_eq!(size_of::<Option<EntryPosition>>(), 4);
    }
}
