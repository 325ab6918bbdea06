//! A slab: values that keep their slot, in chunks that never move.
//!
//! Growing allocates one chunk, so that no call pays for copying all values.

/// The number of values in a chunk.
const CHUNK: usize = 1024;
/// Ends the list of free slots; no value has this number.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) enum SlabSlot<T> {
    Taken(T),
    Free { next: u32 },
}

/// Values by slot number. A number is reused once its value was removed.
#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Vec<SlabSlot<T>>>,
    first_free: u32,
    len: usize,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Slab<T> {
        Slab { chunks: Vec::new(), first_free: NONE, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if self.first_free == NONE {
            return self.append(value);
        }
        let slot = self.first_free;
        let place = self.place_mut(slot);
        let SlabSlot::Free { next } = *place else {
            unreachable!("the list of free places holds free places")
        };
        *place = SlabSlot::Taken(value);
        self.first_free = next;
        slot
    }

    #[cold]
    fn append(&mut self, value: T) -> u32 {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            // The first chunk grows by doubling, so that a small slab does not pay for a whole chunk.
            let room = if self.chunks.is_empty() { 0 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(room));
        }
        let earlier = (self.chunks.len() - 1) * CHUNK;
        let chunk = self.chunks.last_mut().expect("a chunk was just made sure of");
        let slot = u32::try_from(earlier + chunk.len()).expect("a slab holds fewer than 2^32 values");
        assert!(slot < NONE, "a slab holds fewer than 2^32 values");
        chunk.push(SlabSlot::Taken(value));
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) -> T {
        let next = self.first_free;
        let SlabSlot::Taken(value) = std::mem::replace(self.place_mut(slot), SlabSlot::Free { next }) else {
            unreachable!("only what is there is removed")
        };
        self.len -= 1;
        self.first_free = slot;
        if self.len == 0 {
            // One chunk is kept, for a slab that is repeatedly filled and emptied.
            self.chunks.truncate(1);
            self.chunks[0].clear();
            self.first_free = NONE;
        }
        value
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> &T {
        match &self.chunks[slot as usize / CHUNK][slot as usize % CHUNK] {
            SlabSlot::Taken(value) => value,
            SlabSlot::Free { .. } => unreachable!("only what is there is asked for"),
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> &mut T {
        match self.place_mut(slot) {
            SlabSlot::Taken(value) => value,
            SlabSlot::Free { .. } => unreachable!("only what is there is asked for"),
        }
    }

    /// The value at `slot`, if there is one.
    pub(super) fn find(&self, slot: u32) -> Option<&T> {
        match self.chunks.get(slot as usize / CHUNK)?.get(slot as usize % CHUNK)? {
            SlabSlot::Taken(value) => Some(value),
            SlabSlot::Free { .. } => None,
        }
    }

    /// The same, mutable.
    pub(super) fn find_mut(&mut self, slot: u32) -> Option<&mut T> {
        match self.chunks.get_mut(slot as usize / CHUNK)?.get_mut(slot as usize % CHUNK)? {
            SlabSlot::Taken(value) => Some(value),
            SlabSlot::Free { .. } => None,
        }
    }

    /// The number of slots, taken or free: every slot number is below it.
    pub(super) fn places(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    /// All values with their slot numbers, in rising order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0u32..).zip(self.chunks.iter().flatten()).filter_map(|(slot, place)| match place {
            SlabSlot::Taken(value) => Some((slot, value)),
            SlabSlot::Free { .. } => None,
        })
    }

    fn place_mut(&mut self, slot: u32) -> &mut SlabSlot<T> {
        &mut self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_over_all_chunks_and_used_again() {
        let mut slab = Slab::new();
        let count = 2 * CHUNK + 3;
        for at in 0..count {
            assert_eq!(slab.places(), at);
            assert_eq!(slab.insert(at) as usize, at);
        }
        assert_eq!((slab.remove(5), slab.places()), (5, count), "a free place is one still");
        assert_eq!((slab.insert(0), slab.places()), (5, count));
        assert_eq!(slab.iter().count(), count);
    }
}
