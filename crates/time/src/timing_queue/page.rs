//! A page: the entries of a stretch of time, in the order in which they were put.
//!
//! Entries are not sorted by instant until the page's turn comes. Since they stand in the order of their
//! puts, a sort that keeps equals in place yields (due, sequence) order, and no sequence number is stored.

use super::meter;
use super::run::Entry;
use super::slots::CHUNK_BITS;

/// The most entries of a page, dead ones included.
pub(super) const PAGE_MAX: usize = 8192;
const _: () = assert!(PAGE_MAX / CHUNK <= 1 << CHUNK_BITS, "a place has so many bits for the chunk");
/// How many entries are sorted and served at a time: a page that has twice as many when its turn comes is cut.
pub(super) const PIECE: usize = 256;
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

    fn entries(&self) -> impl Iterator<Item = Entry> {
        // What is not used yet is marked dead too.
        let columns = self.dues.iter().zip(&self.slots).filter(|(_, slot)| **slot != DEAD);
        columns.map(|(due, slot)| Entry { due: *due, slot: *slot })
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

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.len < PAGE_MAX
    }

    /// Whether so many more entries may stand in it, and it stays a page that is served whole.
    pub(super) fn has_room_for(&self, count: usize) -> bool {
        self.len + count <= 2 * PIECE
    }

    /// Whether an entry of `due` would continue an ascending page.
    pub(super) fn is_continued_by(&self, due: i64) -> bool {
        self.ascending && self.last <= due
    }

    #[inline]
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

    /// The chunk that the next entry comes into.
    #[inline]
    pub(super) fn next_chunk(&self) -> usize {
        self.len / CHUNK
    }

    /// The living entries, with the chunk of each.
    pub(super) fn entries_with_chunks(&self) -> impl Iterator<Item = (Entry, usize)> {
        let chunks = self.chunks.iter().enumerate();
        chunks.flat_map(|(at, chunk)| chunk.entries().map(move |entry| (entry, at)))
    }

    /// Marks the entry of `slot` dead, which is in this chunk or an earlier one: an entry that the page kept when it was
    /// parted stands at about half of where it stood.
    pub(super) fn kill(&mut self, slot: u32, chunk: usize) {
        let half = chunk / 2;
        let around_half = (0..=half).flat_map(|distance| [half - distance, half + 1 + distance]);
        let found = std::iter::once(chunk).chain(around_half).find_map(|chunk| {
            meter::touched(1);
            Some((chunk, position(&self.chunks.get(chunk)?.slots, slot)?))
        });
        let (chunk, at) = found.expect("the page holds the slots whose place it is");
        self.chunks[chunk].slots[at] = DEAD;
        self.live -= 1;
    }

    /// Whether most entries are dead.
    pub(super) fn is_sparse(&self) -> bool {
        self.len > 2 * self.live + CHUNK / 4
    }

    /// Drops dead entries and the room that they took. Whether there were any; others stand elsewhere then.
    pub(super) fn purge(&mut self) -> bool {
        if self.live == self.len {
            return false;
        }
        meter::touched(self.len);
        let mut kept = Page::new(self.bound);
        for entry in self.entries() {
            kept.push(entry.due, entry.slot);
        }
        *self = kept;
        true
    }

    /// The living entries, in the order of their puts.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.chunks.iter().flat_map(|chunk| chunk.entries())
    }

    /// Whether [`entries`](Page::entries) come in (due, sequence) order already.
    pub(super) fn is_ascending(&self) -> bool {
        self.ascending
    }

    /// Instants and slots in the order of their puts, part by part. The page is free of dead entries.
    pub(super) fn columns(&self) -> impl Iterator<Item = (&[i64], &[u32])> {
        debug_assert_eq!(self.live, self.len);
        let counts = (0..self.len).step_by(CHUNK).map(|at| CHUNK.min(self.len - at));
        let parts = self.chunks.iter().zip(counts);
        parts.map(|(chunk, count)| (&chunk.dues[..count], &chunk.slots[..count]))
    }

    /// A page of these entries, which are sorted.
    pub(super) fn ascending(entries: &[Entry]) -> Page {
        meter::touched(entries.len());
        let chunks = entries.chunks(CHUNK).map(|part| {
            let mut chunk = Chunk::new();
            let columns = chunk.dues.iter_mut().zip(&mut chunk.slots);
            for ((due, slot), entry) in columns.zip(part) {
                (*due, *slot) = (entry.due, entry.slot);
            }
            chunk
        });
        let (first, last) = (entries.first(), entries.last());
        Page {
            bound: first.map_or(i64::MIN, |first| first.due),
            chunks: chunks.collect(),
            len: entries.len(),
            live: entries.len(),
            last: last.map_or(i64::MIN, |last| last.due),
            ascending: true,
        }
    }

    pub(super) fn from_columns(bound: i64, dues: &[i64], slots: &[u32], ascending: bool) -> Page {
        meter::touched(dues.len());
        let parts = dues.chunks(CHUNK).zip(slots.chunks(CHUNK));
        let chunks = parts.map(|(dues, slots)| {
            let mut chunk = Chunk::new();
            chunk.dues[..dues.len()].copy_from_slice(dues);
            chunk.slots[..slots.len()].copy_from_slice(slots);
            chunk
        });
        let last = dues.last().copied().unwrap_or(i64::MIN);
        Page { bound, chunks: chunks.collect(), len: dues.len(), live: dues.len(), last, ascending }
    }

    /// Parts the entries into two pages; the later one is bounded by its earliest instant, and this one
    /// keeps the others. Neither is empty, if there are two entries at least.
    ///
    /// The page is free of dead entries. The parts are about even where the instants allow. If all are equal, the earlier puts stay.
    pub(super) fn split(&mut self, scratch: &mut Scratch) -> Page {
        let Scratch { all, parts } = scratch;
        meter::touched(self.len);
        all.clear();
        for (dues, slots) in self.columns() {
            all.dues.extend_from_slice(dues);
            all.slots.extend_from_slice(slots);
        }
        let (bound, ascending) = (self.bound, self.ascending);
        match pivot(&all.dues, &mut parts.dues) {
            Some(pivot) => {
                let kept = parts.part(all, pivot);
                let ((dues, later_dues), (slots, later_slots)) =
                    (parts.dues.split_at(kept), parts.slots.split_at(kept));
                *self = Page::from_columns(bound, dues, slots, ascending);
                Page::from_columns(pivot, later_dues, later_slots, ascending)
            }
            None => {
                let half = all.dues.len() / 2;
                let ((dues, later_dues), (slots, later_slots)) =
                    (all.dues.split_at(half), all.slots.split_at(half));
                *self = Page::from_columns(bound, dues, slots, true);
                Page::from_columns(later_dues[0], later_dues, later_slots, true)
            }
        }
    }
}

/// Instants, and at the same places their slots.
#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) dues: Vec<i64>,
    pub(super) slots: Vec<u32>,
}

/// Room to split pages in, kept from one split to the next.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    all: Columns,
    parts: Columns,
}

impl Columns {
    fn clear(&mut self) {
        self.dues.clear();
        self.slots.clear();
    }

    /// Fills itself with what is before `bound`, and behind that with the rest, each in its order; says how many are before.
    ///
    /// Where an entry goes is counted, not branched on: a branch would be mispredicted every other time.
    fn part(&mut self, all: &Columns, bound: i64) -> usize {
        let kept = all.dues.iter().filter(|due| **due < bound).count();
        let count = all.dues.len();
        self.dues.resize(count, 0);
        self.slots.resize(count, 0);
        let (dues, slots) = (&mut self.dues[..count], &mut self.slots[..count]);
        let mut before = 0;
        for (at, (due, slot)) in all.dues.iter().zip(&all.slots).enumerate() {
            let is_before = usize::from(*due < bound);
            let to = if is_before == 1 { before } else { kept + at - before };
            dues[to] = *due;
            slots[to] = *slot;
            before += is_before;
        }
        kept
    }
}

/// An instant with about half of `dues` before it, and at least one. `None` if all are equal.
fn pivot(dues: &[i64], scratch: &mut Vec<i64>) -> Option<i64> {
    const SAMPLES: usize = 63;
    scratch.clear();
    scratch.extend(dues.iter().step_by(dues.len().div_ceil(SAMPLES)));
    scratch.sort_unstable();
    let guess = scratch[scratch.len() / 2];
    let before = dues.iter().filter(|due| **due < guess).count();
    if before >= dues.len() / 8 && before <= dues.len() - dues.len() / 8 {
        return Some(guess);
    }
    // Few distinct instants, or a sample that misleads: the exact median, or the next instant after it if the parts
    // are more even so. All of one instant go to one side.
    scratch.clear();
    scratch.extend_from_slice(dues);
    let (before, &mut median, after) = scratch.select_nth_unstable(dues.len() / 2);
    let below = before.iter().filter(|due| **due < median).count();
    let next = after.iter().copied().filter(|due| *due > median);
    if below > 0 && below >= next.clone().count() { Some(median) } else { next.min() }
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
            assert!(!page.has_room());
            let later = page.split(&mut Scratch::default());
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
        (0..1_000).filter(|n| n % 10 != 0).for_each(|n| page.kill(n, n as usize / CHUNK));
        assert!(page.is_sparse());
        page.purge();
        assert!(page.entries().map(|entry| entry.slot).eq((0..1_000).step_by(10)));
        assert_eq!((page.live(), page.chunks.len()), (100, 1));
    }
}
