//! The run: the earliest entries of all, sorted, of which the queue is served.

use std::collections::VecDeque;

use super::meter;
use super::page::{Columns, PAGE_MIN, Page};

/// An instant and the slot of what is due then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) due: i64,
    pub(super) slot: u32,
}

/// How many entries may be put into the run, beyond those that it was filled with, before it gives its later half
/// away: what a put has to move stays short.
const GROWTH: usize = PAGE_MIN / 2;

/// Entries in (due, sequence) order. A ring, since both ends are where entries come and go.
#[derive(Debug, Default)]
pub(super) struct Run {
    entries: VecDeque<Entry>,
    /// How many entries the run was last filled with.
    filled: usize,
    /// Room to sort in.
    keys: Vec<u64>,
    columns: Columns,
}

impl Run {
    pub(super) fn first(&self) -> Option<Entry> {
        self.entries.front().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn count_due(&self, now: i64) -> usize {
        self.entries.partition_point(|entry| entry.due <= now)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= self.filled + GROWTH
    }

    pub(super) fn pop(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> {
        self.entries.iter().copied()
    }

    /// Puts `entry` behind all entries of its instant.
    pub(super) fn insert(&mut self, entry: Entry) {
        if self.entries.back().is_none_or(|last| last.due <= entry.due) {
            self.entries.push_back(entry);
        } else if self.entries.front().is_some_and(|first| entry.due < first.due) {
            self.entries.push_front(entry);
        } else {
            let at = self.entries.partition_point(|other| other.due <= entry.due);
            // A ring moves the shorter side.
            meter::touched(at.min(self.entries.len() - at));
            self.entries.insert(at, entry);
        }
    }

    pub(super) fn remove(&mut self, slot: u32) {
        meter::touched(self.entries.len());
        let at = self.entries.iter().position(|entry| entry.slot == slot);
        self.entries.remove(at.expect("the run holds the slots whose place it is"));
    }

    /// Fills an empty run with the entries of a page.
    ///
    /// Numbers are sorted rather than entries: the instant counted from the first one, and behind it the position,
    /// which keeps equals in the order of their puts. That takes half as long as a stable sort, which is for
    /// instants too far apart to be counted so.
    pub(super) fn fill(&mut self, page: &Page) {
        self.filled = page.live();
        page.copy_to(&mut self.columns);
        let Columns { dues, slots } = &self.columns;
        let (Some(first), Some(last)) = (dues.iter().min(), dues.iter().max()) else { return };
        let position_bits = usize::BITS - dues.len().leading_zeros();
        if page.is_ascending() || last.abs_diff(*first).leading_zeros() < position_bits {
            let entries = dues.iter().zip(slots).map(|(due, slot)| Entry { due: *due, slot: *slot });
            self.entries.extend(entries);
            if !page.is_ascending() {
                self.entries.make_contiguous().sort_by_key(|entry| entry.due);
            }
            return;
        }
        self.keys.clear();
        self.keys
            .extend(dues.iter().zip(0_u64..).map(|(due, at)| due.abs_diff(*first) << position_bits | at));
        self.keys.sort_unstable();
        let position = (1_u64 << position_bits) - 1;
        self.entries.extend(self.keys.iter().map(|key| Entry {
            due: first.wrapping_add_unsigned(key >> position_bits),
            slot: slots[(key & position) as usize],
        }));
    }

    /// Takes out the later half.
    pub(super) fn split(&mut self) -> Vec<Entry> {
        self.filled = 0;
        meter::touched(self.entries.len() / 2);
        self.entries.drain(self.entries.len() / 2..).collect()
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.filled = 0;
    }
}
