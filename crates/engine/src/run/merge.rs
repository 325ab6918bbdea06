//! Merges the pairs of several runs in order.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::file::Iter;
use super::lost::Lost;
use super::value::Value;
use crate::sealed::Result;

/// A pair, and the index of its run in the argument of [`merge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Merged<V> {
    pub(crate) key: u64,
    pub(crate) value: V,
    pub(crate) run: usize,
}

impl<V: Value> Merged<V> {
    /// Whether only the newer one of both counts.
    fn is_same(&self, other: &Merged<V>) -> bool {
        self.key == other.key && (V::IS_UNIQUE || self.value == other.value)
    }
}

impl<V: Value> Ord for Merged<V> {
    fn cmp(&self, other: &Merged<V>) -> Ordering {
        let by_value = || if V::IS_UNIQUE { Ordering::Equal } else { self.value.cmp(&other.value) };
        self.key.cmp(&other.key).then_with(by_value).then(self.run.cmp(&other.run))
    }
}

impl<V: Value> PartialOrd for Merged<V> {
    fn partial_cmp(&self, other: &Merged<V>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The pairs of several runs in order. After an error it ends.
#[derive(Debug)]
pub(crate) struct Merge<V> {
    runs: Vec<Iter<V>>,
    heads: BinaryHeap<Reverse<Merged<V>>>,
    /// The runs whose next pair is not among the heads yet.
    wanting: Vec<usize>,
    last: Option<Merged<V>>,
}

/// Merges runs. If keys are unique, the value of the newest run comes out, otherwise every value once.
pub(crate) fn merge<V: Value>(newest_first: Vec<Iter<V>>) -> Merge<V> {
    let wanting = (0..newest_first.len()).collect();
    Merge { runs: newest_first, heads: BinaryHeap::new(), wanting, last: None }
}

impl<V: Value> Merge<V> {
    /// The keys whose pairs may have been left out so far because they could not be read.
    pub(crate) fn lost(&self) -> Lost {
        Lost::of(self.runs.iter().flat_map(|run| run.lost().iter().cloned()).collect())
    }
}

impl<V: Value> Iterator for Merge<V> {
    type Item = Result<Merged<V>>;

    fn next(&mut self) -> Option<Result<Merged<V>>> {
        loop {
            while let Some(run) = self.wanting.pop() {
                match self.runs[run].next() {
                    Some(Ok((key, value))) => self.heads.push(Reverse(Merged { key, value, run })),
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
