//! The run: the earliest entries of all, sorted, from which the queue is served.

use std::collections::VecDeque;

use super::meter;
use super::page::PIECE;

/// An instant and the slot of the item that is due then.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunEntry {
    pub(super) due: i64,
    pub(super) slot: u32,
}

/// The number of entries that may be inserted into the run, beyond those that it was filled with, before it gives up
/// its later half.
///
/// This bounds the number of entries that an insert moves.
const GROWTH: usize = PIECE / 2;

/// Entries in (due, sequence) order. A ring buffer, since entries come and go at both ends.
#[derive(Debug, Default)]
pub(super) struct SortedRun {
    entries: VecDeque<RunEntry>,
    /// The number of entries that the run was last filled with.
    filled: usize,
}

impl SortedRun {
    #[inline]
    pub(super) fn first(&self) -> Option<RunEntry> {
        self.entries.front().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn count_due(&self, now: i64) -> usize {
        self.entries.partition_point(|entry| entry.due <= now)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= self.filled + GROWTH
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<RunEntry> {
        self.entries.pop_front()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = RunEntry> {
        self.entries.iter().copied()
    }

    /// Inserts `entry` behind all entries of its instant.
    pub(super) fn insert(&mut self, entry: RunEntry) {
        if self.entries.back().is_none_or(|last| last.due <= entry.due) {
            self.entries.push_back(entry);
        } else if self.entries.front().is_some_and(|first| entry.due < first.due) {
            self.entries.push_front(entry);
        } else {
            let at = self.entries.partition_point(|other| other.due <= entry.due);
            // A ring buffer moves the shorter side.
            meter::touched(at.min(self.entries.len() - at));
            self.entries.insert(at, entry);
        }
    }

    pub(super) fn remove(&mut self, slot: u32) {
        if self.entries.front().is_some_and(|first| first.slot == slot) {
            self.entries.pop_front();
            return;
        }
        meter::touched(self.entries.len());
        let at = self.entries.iter().position(|entry| entry.slot == slot);
        self.entries.remove(at.expect("the run holds the slots whose place it is"));
    }

    /// Fills an empty run with `entries`, which are sorted.
    pub(super) fn fill(&mut self, entries: impl Iterator<Item = RunEntry>) {
        self.entries.extend(entries);
        self.filled = self.entries.len();
    }

    /// Takes out the later half.
    pub(super) fn split(&mut self) -> Vec<RunEntry> {
        self.filled = 0;
        meter::touched(self.entries.len() / 2);
        self.entries.drain(self.entries.len() / 2..).collect()
    }

    /// The allocated bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<RunEntry>()
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.filled = 0;
    }
}
