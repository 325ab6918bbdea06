//! A page: the entries of a span of time, in the order in which they were inserted.
//!
//! Entries are not sorted by instant until the page is about to be served. Since they are stored in insertion order, a
//! stable sort yields (due, sequence) order, and no sequence number is stored.
//!
//! The entry of an item that leaves, or is moved, is not searched for: it stays where it is, dead. When the page is
//! purged, dead entries are recognised by their slot, which knows where its item stands now ([`EntryPosition`]).

use super::meter;
use super::run::RunEntry;
use super::slots::{EntryPosition, Slots};
use std::collections::HashSet;
use std::mem;

/// The maximum number of entries of a page, dead ones included.
pub(super) const PAGE_MAX: usize = 8192;
/// The number of entries that are served at a time, if their page has twice as many.
pub(super) const PIECE: usize = 256;
const _: () = assert!(PIECE.is_multiple_of(CHUNK), "pieces are chunks of their page");
/// The number of entries per allocation. A page reserves less than this in excess, and copies nothing when it grows.
const CHUNK: usize = 128;
/// Marks a dead entry, and room that is not used yet. No slot has this number.
const DEAD: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct PageChunk {
    dues: [i64; CHUNK],
    /// `slots[i]` belongs to `dues[i]`, or is `DEAD`.
    slots: [u32; CHUNK],
}

impl PageChunk {
    fn new() -> Box<PageChunk> {
        Box::new(PageChunk { dues: [0; CHUNK], slots: [DEAD; CHUNK] })
    }

    fn entries(&self) -> impl Iterator<Item = RunEntry> {
        // Unused room is marked dead too.
        let columns = self.dues.iter().zip(&self.slots).filter(|(_, slot)| **slot != DEAD);
        columns.map(|(due, slot)| RunEntry { due: *due, slot: *slot })
    }
}

#[derive(Debug)]
pub(super) struct Page {
    /// Entries before this instant belong to other pages.
    pub(super) bound: i64,
    /// All chunks but the last are full.
    #[expect(clippy::vec_box, reason = "a page that grows does not copy its entries")]
    chunks: Vec<Box<PageChunk>>,
    len: usize,
    live: usize,
    /// Entries may be appended while there are fewer than this.
    room: usize,
    last: i64,
    /// Whether the instants never decrease from one entry to the next.
    ascending: bool,
}

/// The earliest entries of a page, in order.
#[derive(Debug)]
pub(super) struct PageHead {
    #[expect(clippy::vec_box, reason = "they come from a page")]
    chunks: Vec<Box<PageChunk>>,
}

impl PageHead {
    pub(super) fn entries(&self) -> impl Iterator<Item = RunEntry> {
        self.chunks.iter().flat_map(|chunk| chunk.entries())
    }
}

impl Page {
    pub(super) fn new(bound: i64) -> Page {
        Page { bound, chunks: Vec::new(), len: 0, live: 0, room: PAGE_MAX, last: i64::MIN, ascending: true }
    }

    /// The number of entries that are not dead.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Whether no entry is dead.
    pub(super) fn is_clean(&self) -> bool {
        self.live == self.len
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.len < self.room
    }

    /// Whether the page stays small enough to be served whole with `count` more entries.
    pub(super) fn has_room_for(&self, count: usize) -> bool {
        self.len + count < 2 * PIECE && !self.is_served()
    }

    /// Whether a piece of it was already [taken out](Page::take_piece).
    pub(super) fn is_served(&self) -> bool {
        self.room == 0
    }

    /// Takes out the earliest entries: a piece, or all if there are not many more.
    ///
    /// The page is sorted and has no dead entries. The remaining entries stay sorted, so the page accepts no others
    /// until it is [cut](Page::cut).
    pub(super) fn take_piece(&mut self) -> PageHead {
        debug_assert!(self.ascending && self.is_clean());
        let count = if self.len < 2 * PIECE { self.len } else { PIECE };
        self.len -= count;
        self.live -= count;
        self.room = 0;
        PageHead { chunks: self.chunks.drain(..count.div_ceil(CHUNK)).collect() }
    }

    /// Makes the page accept entries again after a piece was [taken out](Page::take_piece): keeps one piece here, and
    /// returns the rest as pages of a piece each, latest first.
    ///
    /// The page is sorted and has no dead entries.
    pub(super) fn cut(&mut self) -> Vec<Page> {
        debug_assert!(self.ascending && self.is_clean());
        let (mut chunks, mut end) = (mem::take(&mut self.chunks), self.len);
        let pages = std::iter::from_fn(move || {
            let from = end.checked_sub(1)? / PIECE * PIECE;
            let (chunks, len) = (chunks.split_off(from / CHUNK), end - from);
            end = from;
            let last = chunks.last()?.dues[(len - 1) % CHUNK];
            Some(Page {
                bound: chunks[0].dues[0],
                chunks,
                len,
                live: len,
                room: PAGE_MAX,
                last,
                ascending: true,
            })
        });
        let mut pages: Vec<Page> = pages.collect();
        if let Some(first) = pages.pop() {
            *self = Page { bound: self.bound, ..first };
        }
        pages
    }

    /// Makes the page accept entries in any order.
    pub(super) fn open(&mut self) {
        self.room = PAGE_MAX;
    }

    /// The earliest instant of a sorted page.
    pub(super) fn first_due(&self) -> Option<i64> {
        self.chunks.first().map(|chunk| chunk.dues[0])
    }

    /// Rewrites the page with `entries`, in order.
    pub(super) fn put_in_order(&mut self, mut entries: impl Iterator<Item = RunEntry>) {
        for chunk in &mut self.chunks {
            for ((due, slot), entry) in chunk.dues.iter_mut().zip(&mut chunk.slots).zip(&mut entries) {
                (*due, *slot) = (entry.due, entry.slot);
                self.last = entry.due;
            }
        }
        self.ascending = true;
    }

    /// Whether an entry of `due` may be appended even though the page [is served](Page::is_served).
    pub(super) fn has_room_behind(&self, due: i64) -> bool {
        self.len < PAGE_MAX && self.is_continued_by(due)
    }

    /// Whether an entry of `due` would continue an ascending page.
    pub(super) fn is_continued_by(&self, due: i64) -> bool {
        self.ascending && self.last <= due
    }

    /// The bound of a page that continues this ascending one with an entry of `due`.
    pub(super) fn bound_behind(&self, due: i64) -> i64 {
        if due > self.last { self.last + 1 } else { due }
    }

    #[inline]
    pub(super) fn push(&mut self, due: i64, slot: u32) {
        let at = self.len % CHUNK;
        if at == 0 {
            self.chunks.push(PageChunk::new());
        }
        let chunk = self.chunks.last_mut().expect("there is a chunk for the next entry");
        chunk.dues[at] = due;
        chunk.slots[at] = slot;
        self.len += 1;
        self.live += 1;
        self.ascending &= self.last <= due;
        self.last = due;
    }

    /// Counts one more dead entry: its slot no longer stands here.
    #[inline]
    pub(super) fn one_has_left(&mut self) {
        self.live -= 1;
    }

    /// Whether most entries are dead.
    pub(super) fn is_sparse(&self) -> bool {
        self.len > 2 * self.live + CHUNK / 4
    }

    /// Drops dead entries and frees their room. `number` is that of the page.
    pub(super) fn purge<T>(&mut self, number: u32, slots: &mut Slots<T>) {
        if self.is_clean() {
            return;
        }
        meter::touched(2 * self.len);
        let here = EntryPosition::page(number);
        // From the last insert to the first: of the entries of one slot, the last one counts, and the earlier ones are
        // dead.
        for slot in self.chunks.iter_mut().rev().flat_map(|chunk| chunk.slots.iter_mut().rev()) {
            if *slot == DEAD {
                continue;
            }
            if slots.stands_at(*slot, here) {
                slots.move_to(*slot, EntryPosition::RUN);
            } else {
                *slot = DEAD;
            }
        }
        let mut kept = Page { room: self.room, ..Page::new(self.bound) };
        for entry in self.entries() {
            slots.move_to(entry.slot, here);
            kept.push(entry.due, entry.slot);
        }
        assert_eq!(kept.live, self.live, "a page counts its living entries");
        *self = kept;
    }

    /// All entries in insertion order. These are the live ones if the page [is clean](Page::is_clean).
    pub(super) fn entries(&self) -> impl Iterator<Item = RunEntry> {
        self.chunks.iter().flat_map(|chunk| chunk.entries())
    }

    /// The live entries in insertion order. `number` is that of the page.
    pub(super) fn living<T>(&self, number: u32, slots: &Slots<T>) -> impl Iterator<Item = RunEntry> {
        let mut dead = HashSet::new();
        if !self.is_clean() {
            let (here, mut met) = (EntryPosition::page(number), HashSet::new());
            let all: Vec<RunEntry> = self.entries().collect();
            let from_the_last = all.iter().enumerate().rev();
            let found = from_the_last
                .filter(|(_, entry)| !slots.stands_at(entry.slot, here) || !met.insert(entry.slot));
            dead.extend(found.map(|(at, _)| at));
        }
        let entries = self.entries().enumerate().filter(move |(at, _)| !dead.contains(at));
        entries.map(|(_, entry)| entry)
    }

    /// Whether [`entries`](Page::entries) are already in (due, sequence) order.
    pub(super) fn is_ascending(&self) -> bool {
        self.ascending
    }

    /// Instants and slots in insertion order, chunk by chunk. The page has no dead entries.
    pub(super) fn columns(&self) -> impl Iterator<Item = (&[i64], &[u32])> {
        debug_assert!(self.is_clean());
        let counts = (0..self.len).step_by(CHUNK).map(|at| CHUNK.min(self.len - at));
        let parts = self.chunks.iter().zip(counts);
        parts.map(|(chunk, count)| (&chunk.dues[..count], &chunk.slots[..count]))
    }

    /// Creates a page of `entries`, which are sorted.
    pub(super) fn ascending(entries: &[RunEntry]) -> Page {
        meter::touched(entries.len());
        let chunks = entries.chunks(CHUNK).map(|part| {
            let mut chunk = PageChunk::new();
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
            room: PAGE_MAX,
            last: last.map_or(i64::MIN, |last| last.due),
            ascending: true,
        }
    }

    pub(super) fn from_columns(bound: i64, dues: &[i64], slots: &[u32], ascending: bool) -> Page {
        meter::touched(dues.len());
        let parts = dues.chunks(CHUNK).zip(slots.chunks(CHUNK));
        let chunks = parts.map(|(dues, slots)| {
            let mut chunk = PageChunk::new();
            chunk.dues[..dues.len()].copy_from_slice(dues);
            chunk.slots[..slots.len()].copy_from_slice(slots);
            chunk
        });
        let last = dues.last().copied().unwrap_or(i64::MIN);
        let len = dues.len();
        Page { bound, chunks: chunks.collect(), len, live: len, room: PAGE_MAX, last, ascending }
    }

    /// The allocated bytes, without the page itself.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * size_of::<PageChunk>() + self.chunks.capacity() * size_of::<Box<PageChunk>>()
    }

    /// Splits the page in two by instant: the returned page has the later entries, and this one keeps the others.
    ///
    /// Neither is empty, if there are at least two entries. The page has no dead entries. The halves are about even
    /// where the instants allow it. If all instants are equal, the earlier inserts stay.
    ///
    /// The gap between the two belongs to the page with fewer entries. Where most entries are of one instant, the split
    /// is uneven, and each insert into the larger page would soon split it again. Without the gaps on both sides it
    /// receives only entries of that same instant, which need no split.
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
                let last = dues.iter().max().filter(|_| kept > later_dues.len());
                let later_bound = last.map_or(pivot, |last| last + 1);
                *self = Page::from_columns(bound, dues, slots, ascending);
                Page::from_columns(later_bound, later_dues, later_slots, ascending)
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

/// Instants, and at the same indexes their slots.
#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) dues: Vec<i64>,
    pub(super) slots: Vec<u32>,
}

/// Buffers for splitting pages, reused from one split to the next.
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

    /// Fills itself with the entries before `bound`, followed by the rest, each in their order.
    ///
    /// Returns the number of those before `bound`.
    ///
    /// The target index is computed without a branch, which would be mispredicted every other time.
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

/// An instant with about half of `dues`, and at least one, before it. `None` if all are equal.
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
    // Few distinct instants, or a misleading sample: use the exact median, or the next greater instant if that makes
    // the halves more even. All entries of one instant go to one side.
    scratch.clear();
    scratch.extend_from_slice(dues);
    let (before, &mut median, after) = scratch.select_nth_unstable(dues.len() / 2);
    let below = before.iter().filter(|due| **due < median).count();
    let next = after.iter().copied().filter(|due| *due > median);
    if below > 0 && below >= next.clone().count() { Some(median) } else { next.min() }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        const NUMBER: u32 = 3;
        let (mut page, mut slots) = (Page::new(0), Slots::new());
        let handles: Vec<_> = (0..1_000).map(|n| slots.insert(EntryPosition::page(NUMBER), n)).collect();
        handles.iter().zip(0..).for_each(|(handle, n)| page.push(n, handle.slot));
        // Of each ten, the first stays, the second is moved to another page, and the others leave.
        for (n, handle) in handles.iter().enumerate().filter(|(n, _)| n % 10 != 0) {
            match n % 10 {
                1 => slots.move_to(handle.slot, EntryPosition::page(NUMBER + 1)),
                _ => drop(slots.take(handle.slot)),
            }
            page.one_has_left();
        }
        // Ten are moved within the page, and freed slots are used again.
        for (handle, due) in handles.iter().step_by(100).zip(2_000..) {
            page.one_has_left();
            page.push(due, handle.slot);
        }
        let again = slots.insert(EntryPosition::page(NUMBER), 1_000);
        page.push(3_000, again.slot);
        assert!(page.is_sparse() && handles.iter().any(|handle| handle.slot == again.slot));

        let dues = |page: &Page| page.entries().map(|entry| entry.due).collect::<Vec<_>>();
        let expected: Vec<i64> =
            (0..1_000).step_by(10).filter(|n| n % 100 != 0).chain(2_000..2_010).chain([3_000]).collect();
        let living: Vec<i64> = page.living(NUMBER, &slots).map(|entry| entry.due).collect();
        assert_eq!(living, expected);
        page.purge(NUMBER, &mut slots);
        assert_eq!(dues(&page), expected);
        assert!(page.entries().all(|entry| slots.stands_at(entry.slot, EntryPosition::page(NUMBER))));
        assert_eq!((page.live(), page.chunks.len(), page.is_clean()), (101, 1, true));
    }
}
