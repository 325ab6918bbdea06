//! A page: the entries of a stretch of time, in the order in which they were put.
//!
//! Entries are not sorted by instant until the page's turn comes. Since they stand in the order of their
//! puts, a sort that keeps equals in place yields (due, sequence) order, and no sequence number is stored.

use super::run::Entry;

/// The most entries of a page, dead ones included, in a queue of so many. Many pages would not fit into
/// the processor's cache, of which each put touches another; large ones would make a short queue coarse.
pub(super) fn room_for(queue_len: usize) -> usize {
    (queue_len / 64).clamp(PAGE_MIN, PAGE_MAX)
}

pub(super) const PAGE_MIN: usize = 256;
const PAGE_MAX: usize = 2048;
/// Entries are allocated so many at a time: what a page reserves and does not use is below that, and nothing
/// is copied when it grows.
const CHUNK: usize = 128;
/// Marks an entry whose item has left; no slot has this number.
const DEAD: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Chunk {
    dues: [i64; CHUNK],
    /// `slots[i]` belongs to `dues[i]`, or is `DEAD`.
    slots: [u32; CHUNK],
}

impl Chunk {
    fn new() -> Box<Chunk> {
        Box::new(Chunk { dues: [0; CHUNK], slots: [DEAD; CHUNK] })
    }
}

#[derive(Debug)]
pub(super) struct Page {
    /// Entries before this instant belong elsewhere.
    pub(super) bound: i64,
    /// All full but the last.
    #[expect(clippy::vec_box, reason = "a page that grows does not copy its entries")]
    chunks: Vec<Box<Chunk>>,
    len: usize,
    live: usize,
    last: i64,
    /// Whether the instants never fall from one entry to the next.
    ascending: bool,
}

impl Page {
    pub(super) fn new(bound: i64) -> Page {
        Page { bound, chunks: Vec::new(), len: 0, live: 0, last: i64::MIN, ascending: true }
    }

    /// How many entries are not dead.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    pub(super) fn has_room(&self, room: usize) -> bool {
        self.len < room
    }

    /// Whether an entry of `due` would continue an ascending page.
    pub(super) fn is_continued_by(&self, due: i64) -> bool {
        self.ascending && self.last <= due
    }

    pub(super) fn push(&mut self, due: i64, slot: u32) {
        let at = self.len % CHUNK;
        if at == 0 {
            self.chunks.push(Chunk::new());
        }
        let chunk = self.chunks.last_mut().expect("there is a chunk for the next entry");
        chunk.dues[at] = due;
        chunk.slots[at] = slot;
        self.len += 1;
        self.live += 1;
        self.ascending &= self.last <= due;
        self.last = due;
    }

    /// Marks the entry of `slot` dead.
    pub(super) fn kill(&mut self, slot: u32) {
        let found = self.chunks.iter_mut().find_map(|chunk| {
            let at = position(&chunk.slots, slot)?;
            Some(&mut chunk.slots[at])
        });
        *found.expect("the page holds the slots whose place it is") = DEAD;
        self.live -= 1;
    }

    /// Whether most entries are dead.
    pub(super) fn is_sparse(&self) -> bool {
        self.len > 2 * self.live + CHUNK / 4
    }

    /// Drops dead entries and the room that they took.
    pub(super) fn purge(&mut self) {
        if self.live == self.len {
            return;
        }
        let mut kept = Page::new(self.bound);
        for entry in self.entries() {
            kept.push(entry.due, entry.slot);
        }
        *self = kept;
    }

    /// The living entries, in the order of their puts.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        // What a chunk does not use yet is marked dead too.
        let columns = self.chunks.iter().flat_map(|chunk| chunk.dues.iter().zip(&chunk.slots));
        columns.filter(|(_, slot)| **slot != DEAD).map(|(due, slot)| Entry { due: *due, slot: *slot })
    }

    /// Whether [`entries`](Page::entries) come in (due, sequence) order already.
    pub(super) fn is_ascending(&self) -> bool {
        self.ascending
    }

    /// Parts the living entries into two pages; the later one is bounded by its earliest instant, and this one
    /// keeps the others. Neither is empty, if there are two entries at least.
    ///
    /// The parts are as even as the instants allow. If all instants are equal, the earlier puts stay.
    pub(super) fn split(&mut self, scratch: &mut Vec<i64>) -> Page {
        scratch.clear();
        scratch.extend(self.entries().map(|entry| entry.due));
        let half = scratch.len() / 2;
        let (before, &mut median, after) = scratch.select_nth_unstable(half);
        let below = before.iter().filter(|due| **due < median).count();
        let next = after.iter().copied().filter(|due| *due > median);
        let above = next.clone().count();
        if below == 0 && above == 0 {
            return self.part(median, |at, _| at < half);
        }
        // The whole of one instant goes to one side; to the side that leaves the parts more even.
        let bound = if below >= above { median } else { next.min().expect("some are above the median") };
        self.part(bound, |_, due| due < bound)
    }

    fn part(&mut self, bound: i64, stays: impl Fn(usize, i64) -> bool) -> Page {
        let mut parts = [Page::new(self.bound), Page::new(bound)];
        for (at, entry) in self.entries().enumerate() {
            parts[usize::from(!stays(at, entry.due))].push(entry.due, entry.slot);
        }
        let [kept, later] = parts;
        *self = kept;
        later
    }
}

/// Where `slot` is in `slots`. Looks at whole chunks at a time, which compiles to vector instructions.
fn position(slots: &[u32], slot: u32) -> Option<usize> {
    const LANES: usize = 32;
    let (chunks, rest) = slots.as_chunks::<LANES>();
    for (chunk_at, chunk) in chunks.iter().enumerate() {
        if chunk.iter().fold(false, |found, other| found | (*other == slot)) {
            return chunk.iter().position(|other| *other == slot).map(|at| chunk_at * LANES + at);
        }
    }
    rest.iter().position(|other| *other == slot).map(|at| chunks.len() * LANES + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_slot_wherever_it_is() {
        let slots: Vec<u32> = (0..200).map(|n| n * 3).collect();
        for (at, slot) in slots.iter().enumerate() {
            assert_eq!(position(&slots, *slot), Some(at));
        }
        assert_eq!(position(&slots, 1), None);
    }

    #[test]
    fn a_split_leaves_neither_part_empty_and_keeps_the_order_of_puts() {
        let patterns: [fn(i64) -> i64; 6] =
            [|_| 7, |n| n, |n| -n, |n| i64::from(n == 0), |n| i64::from(n != 0), |n| n * 7919 % 512];
        for pattern in patterns {
            let mut page = Page::new(i64::MIN);
            for n in 0..PAGE_MAX {
                page.push(pattern(n as i64), n as u32);
            }
            assert!(!page.has_room(PAGE_MAX));
            let later = page.split(&mut Vec::new());
            assert!(page.live() > 0 && later.live() > 0);
            assert_eq!(page.live() + later.live(), PAGE_MAX);
            for part in [&page, &later] {
                let slots: Vec<u32> = part.entries().map(|entry| entry.slot).collect();
                assert!(slots.is_sorted());
                assert_eq!(part.chunks.len(), part.live().div_ceil(CHUNK));
            }
            assert!(page.entries().all(|entry| entry.due <= later.bound));
            assert!(later.entries().all(|entry| entry.due >= later.bound));
        }
    }

    #[test]
    fn dead_entries_are_gone_and_their_room_with_them() {
        let mut page = Page::new(0);
        (0..1_000).for_each(|n| page.push(i64::from(n), n));
        (0..1_000).filter(|n| n % 10 != 0).for_each(|n| page.kill(n));
        assert!(page.is_sparse());
        page.purge();
        assert!(page.entries().map(|entry| entry.slot).eq((0..1_000).step_by(10)));
        assert_eq!((page.live(), page.chunks.len()), (100, 1));
    }
}
