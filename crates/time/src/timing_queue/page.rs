//! A page: some hundred entries of a stretch of time, in the order in which they were put.
//!
//! Entries are not sorted by instant until the page's turn comes. Since they stand in the order of their
//! puts, a sort that keeps equals in place yields (due, sequence) order, and no sequence number is stored.

use super::run::Entry;

/// The most entries of a page, dead ones included.
pub(super) const PAGE: usize = 256;
/// By how many entries a page's room grows: what a page reserves and does not use is below that.
const STEP: usize = 32;
/// Marks an entry whose item has left; no slot has this number.
const DEAD: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Page {
    /// Entries before this instant belong elsewhere.
    pub(super) bound: i64,
    dues: Vec<i64>,
    /// `slots[i]` belongs to `dues[i]`, or is `DEAD`.
    slots: Vec<u32>,
    live: usize,
    /// Whether the instants never fall from one entry to the next.
    ascending: bool,
}

/// Room to work in, kept from one split to the next.
#[derive(Debug)]
pub(super) struct Scratch {
    dues: Box<[i64; PAGE]>,
    slots: Box<[u32; PAGE]>,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch { dues: Box::new([0; PAGE]), slots: Box::new([0; PAGE]) }
    }
}

impl Page {
    pub(super) fn new(bound: i64) -> Page {
        Page { bound, dues: Vec::new(), slots: Vec::new(), live: 0, ascending: true }
    }

    /// How many entries are not dead.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    pub(super) fn is_full(&self) -> bool {
        self.dues.len() >= PAGE
    }

    /// Whether an entry of `due` would continue an ascending page.
    pub(super) fn is_continued_by(&self, due: i64) -> bool {
        self.ascending && self.dues.last().is_none_or(|last| *last <= due)
    }

    pub(super) fn push(&mut self, due: i64, slot: u32) {
        if self.dues.len() == self.dues.capacity() {
            self.dues.reserve_exact(STEP);
            self.slots.reserve_exact(STEP);
        }
        self.ascending = self.is_continued_by(due);
        self.dues.push(due);
        self.slots.push(slot);
        self.live += 1;
    }

    /// Marks the entry of `slot` dead.
    pub(super) fn kill(&mut self, slot: u32) {
        let at = position(&self.slots, slot).expect("the page holds the slots whose place it is");
        self.slots[at] = DEAD;
        self.live -= 1;
    }

    /// Whether most entries are dead.
    pub(super) fn is_sparse(&self) -> bool {
        self.dues.len() > 2 * self.live + STEP / 2
    }

    /// Drops dead entries and the room that they took.
    pub(super) fn purge(&mut self) {
        if self.live == self.dues.len() {
            return;
        }
        let slots = &self.slots;
        let mut at = 0;
        self.dues.retain(|_| {
            at += 1;
            slots[at - 1] != DEAD
        });
        self.slots.retain(|slot| *slot != DEAD);
        self.trim();
    }

    fn trim(&mut self) {
        let room = (self.dues.len() + STEP).min(PAGE);
        self.dues.shrink_to(room);
        self.slots.shrink_to(room);
    }

    /// The living entries, in the order of their puts.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.dues
            .iter()
            .zip(&self.slots)
            .filter(|(_, slot)| **slot != DEAD)
            .map(|(due, slot)| Entry { due: *due, slot: *slot })
    }

    /// Instants and slots of all entries, the dead ones included.
    pub(super) fn columns(&self) -> (&[i64], &[u32]) {
        (&self.dues, &self.slots)
    }

    /// Whether [`entries`](Page::entries) come in (due, sequence) order already.
    pub(super) fn is_ascending(&self) -> bool {
        self.ascending
    }

    /// Moves the later part of a page without dead entries into a new one, bounded by its
    /// earliest instant. Neither part is empty.
    ///
    /// The parts are as even as the instants allow. If all instants are equal, the earlier puts stay.
    pub(super) fn split(&mut self, scratch: &mut Scratch) -> Page {
        let count = self.dues.len();
        let dues = &mut scratch.dues[..count];
        dues.copy_from_slice(&self.dues);
        let (before, &mut median, after) = dues.select_nth_unstable(count / 2);
        let below = before.iter().filter(|due| **due < median).count();
        let next = after.iter().copied().filter(|due| *due > median);
        let above = next.clone().count();
        if below == 0 && above == 0 {
            return self.split_off(median, count / 2);
        }
        // The whole of one instant goes to one side; to the side that leaves the parts more even.
        let bound = if below >= above { median } else { next.min().expect("some are above the median") };
        let kept = self.part(bound, scratch);
        self.split_off(bound, kept)
    }

    /// Cuts the page after `kept` entries; what follows becomes a page of that bound.
    fn split_off(&mut self, bound: i64, kept: usize) -> Page {
        let room = (self.dues.len() - kept + STEP).min(PAGE);
        let mut later = Page::new(bound);
        later.ascending = self.ascending;
        later.live = self.live - kept;
        later.dues.reserve_exact(room);
        later.dues.extend_from_slice(&self.dues[kept..]);
        later.slots.reserve_exact(room);
        later.slots.extend_from_slice(&self.slots[kept..]);
        self.live = kept;
        self.dues.truncate(kept);
        self.slots.truncate(kept);
        self.trim();
        later
    }

    /// Moves the entries before `bound` to the front, in their order, and the others behind; says how many are before.
    /// Each entry is written to both and counted in one, since a branch would be mispredicted every other time.
    fn part(&mut self, bound: i64, later: &mut Scratch) -> usize {
        let mut kept = 0;
        for at in 0..self.dues.len() {
            let (due, slot) = (self.dues[at], self.slots[at]);
            (self.dues[kept], self.slots[kept]) = (due, slot);
            (later.dues[at - kept], later.slots[at - kept]) = (due, slot);
            kept += usize::from(due < bound);
        }
        let count = self.dues.len() - kept;
        self.dues[kept..].copy_from_slice(&later.dues[..count]);
        self.slots[kept..].copy_from_slice(&later.slots[..count]);
        kept
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
            for n in 0..PAGE {
                page.push(pattern(n as i64), n as u32);
            }
            assert!(page.is_full());
            let later = page.split(&mut Scratch::default());
            assert!(page.live() > 0 && later.live() > 0);
            assert_eq!(page.live() + later.live(), PAGE);
            for part in [&page, &later] {
                let slots: Vec<u32> = part.entries().map(|entry| entry.slot).collect();
                assert!(slots.is_sorted());
                assert!(part.dues.capacity() < part.live() + 2 * STEP);
            }
            assert!(page.entries().all(|entry| entry.due <= later.bound));
            assert!(later.entries().all(|entry| entry.due >= later.bound));
        }
    }
}
