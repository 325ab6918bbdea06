//! Merges the pairs of several index runs in order.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::reader::RunIter;
use super::unreadable_keys::UnreadableKeys;
use super::value::IndexValue;
use crate::sealed::Result;

/// A pair, and the index of its run in the argument of [`merge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MergedPair<V> {
    pub(crate) key: u64,
    pub(crate) value: V,
    pub(crate) run: usize,
}

impl<V: IndexValue> MergedPair<V> {
    /// Whether only the newer one of both counts.
    fn is_same(&self, other: &MergedPair<V>) -> bool {
        self.key == other.key && (V::IS_UNIQUE || self.value == other.value)
    }
}

impl<V: IndexValue> Ord for MergedPair<V> {
    fn cmp(&self, other: &MergedPair<V>) -> Ordering {
        let by_value = || if V::IS_UNIQUE { Ordering::Equal } else { self.value.cmp(&other.value) };
        self.key.cmp(&other.key).then_with(by_value).then(self.run.cmp(&other.run))
    }
}

impl<V: IndexValue> PartialOrd for MergedPair<V> {
    fn partial_cmp(&self, other: &MergedPair<V>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The pairs of several index runs in order. After an error it ends.
#[derive(Debug)]
pub(crate) struct RunMerge<V> {
    runs: Vec<RunIter<V>>,
    heads: BinaryHeap<Reverse<MergedPair<V>>>,
    /// The index runs whose next pair is not among the heads yet.
    wanting: Vec<usize>,
    last: Option<MergedPair<V>>,
}

/// Merges index runs. If keys are unique, the value of the newest index run comes out, otherwise every value once.
pub(crate) fn merge<V: IndexValue>(newest_first: Vec<RunIter<V>>) -> RunMerge<V> {
    let wanting = (0..newest_first.len()).collect();
    RunMerge { runs: newest_first, heads: BinaryHeap::new(), wanting, last: None }
}

impl<V: IndexValue> RunMerge<V> {
    /// The keys whose pairs may have been left out so far because they could not be read.
    pub(crate) fn lost(&self) -> UnreadableKeys {
        UnreadableKeys::of(self.runs.iter().flat_map(|run| run.lost().iter().cloned()).collect())
    }
}

impl<V: IndexValue> Iterator for RunMerge<V> {
    type Item = Result<MergedPair<V>>;

    fn next(&mut self) -> Option<Result<MergedPair<V>>> {
        loop {
            while let Some(run) = self.wanting.pop() {
                match self.runs[run].next() {
                    Some(Ok((key, value))) => self.heads.push(Reverse(MergedPair { key, value, run })),
                    Some(Err(error)) => {
                        self.heads.clear();
                        self.wanting.clear();
                        return Some(Err(error));
                    }
                    None => {}
                }
            }
            let Reverse(head) = self.heads.pop()?;
            self.wanting.push(head.run);
            if self.last.is_none_or(|last| !last.is_same(&head)) {
                self.last = Some(head);
                return Some(Ok(head));
            }
        }
    }
}
