//! Ready messages in the order in which they are handed out.
//!
//! Most arrive in that order: those read from files do, a few hundred at a time, and leave again from the
//! front. So they are kept in a row, where arriving and leaving cost one step each; messages before the row's
//! end are kept in a tree.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use super::queue::ReadyKey;

/// The maximum length of the row: a removal from its middle moves half of it at the most.
const ROW: usize = 4096;
/// The capacity that an empty row keeps.
const KEPT: usize = 16;

/// The slots of ready messages, by their keys.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// In rising order.
    row: VecDeque<(ReadyKey, u32)>,
    beside: BTreeMap<ReadyKey, u32>,
}

impl Ready {
    pub(super) fn len(&self) -> usize {
        self.row.len() + self.beside.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.row.is_empty() && self.beside.is_empty()
    }

    /// Inserts a message that is not present.
    pub(super) fn insert(&mut self, key: ReadyKey, slot: u32) {
        if self.row.len() < ROW && self.row.back().is_none_or(|(last, _)| *last < key) {
            self.row.push_back((key, slot));
            return;
        }
        let other = self.beside.insert(key, slot);
        assert!(other.is_none(), "no two messages have one id");
    }

    /// Removes a message that is present.
    pub(super) fn remove(&mut self, key: ReadyKey) {
        if self.row.front().is_some_and(|(first, _)| *first == key) {
            self.row.pop_front();
        } else if let Ok(at) = self.place(key) {
            self.row.remove(at);
        } else {
            self.beside.remove(&key).expect("a ready message is among the ready");
        }
        if self.row.is_empty() {
            self.row.shrink_to(KEPT);
        }
    }

    /// The position of a key in the row, or where it would be.
    fn place(&self, key: ReadyKey) -> Result<usize, usize> {
        self.row.binary_search_by(|(other, _)| other.cmp(&key))
    }

    /// The slot of a key.
    pub(super) fn get(&self, key: ReadyKey) -> Option<u32> {
        let in_row = self.place(key).ok().map(|at| self.row[at].1);
        in_row.or_else(|| self.beside.get(&key).copied())
    }

    pub(super) fn first(&self) -> Option<(ReadyKey, u32)> {
        let beside = self.beside.first_key_value().map(|(key, slot)| (*key, *slot));
        self.row.front().copied().into_iter().chain(beside).min()
    }

    pub(super) fn last(&self) -> Option<(ReadyKey, u32)> {
        let beside = self.beside.last_key_value().map(|(key, slot)| (*key, *slot));
        self.row.back().copied().into_iter().chain(beside).max()
    }

    pub(super) fn pop_first(&mut self) -> Option<(ReadyKey, u32)> {
        let first = self.first()?;
        self.remove(first.0);
        Some(first)
    }

    /// All in order, starting at `from`.
    pub(super) fn range(&self, from: Bound<ReadyKey>) -> impl Iterator<Item = (ReadyKey, u32)> {
        let start = match from {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.place(key).unwrap_or_else(|at| at),
            Bound::Excluded(key) => self.place(key).map_or_else(|at| at, |at| at + 1),
        };
        let mut row = self.row.range(start..).copied().peekable();
        let beside = self.beside.range((from, Bound::Unbounded)).map(|(key, slot)| (*key, *slot));
        let mut beside = beside.peekable();
        std::iter::from_fn(move || match (row.peek(), beside.peek()) {
            (Some(one), Some(other)) if one > other => beside.next(),
            (Some(_), _) => row.next(),
            (None, _) => beside.next(),
        })
    }

    /// All slots in order.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        self.range(Bound::Unbounded).map(|(_, slot)| slot)
    }
}

#[cfg(test)]
mod tests {
    use dwell_model::{MessageId, Timestamp};
    use proptest::prelude::*;

    use super::*;

    fn key(bits: u16) -> ReadyKey {
        let due = Timestamp::from_ms(i64::from(bits >> 2 & 0xff)).unwrap();
        ReadyKey { priority: u32::from(bits >> 13), due, id: MessageId::new(due, 0, 0, u64::from(bits & 3)) }
    }

    #[derive(Clone, Debug)]
    enum Change {
        Insert(u16),
        /// A number of keys in rising order, starting there.
        InsertRow(u16, u16),
        Remove(prop::sample::Index),
        PopFirst(u16),
    }

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let change = prop_oneof![
            4 => any::<u16>().prop_map(Change::Insert),
            1 => (any::<u16>(), 1..5000u16).prop_map(|(from, count)| Change::InsertRow(from, count)),
            4 => any::<prop::sample::Index>().prop_map(Change::Remove),
            2 => (1..200u16).prop_map(Change::PopFirst),
        ];
        prop::collection::vec(change, 0..60)
    }

    #[test]
    fn what_comes_in_order_lies_in_the_row_as_far_as_that_goes() {
        let mut ready = Ready::default();
        let of_priority = |priority| ReadyKey { priority, ..key(0) };
        for priority in 0..ROW as u32 + 3 {
            ready.insert(of_priority(priority + 1), priority);
        }
        assert_eq!((ready.row.len(), ready.beside.len()), (ROW, 3));
        let mut ready = Ready::default();
        for priority in [1, 2, 0, 3] {
            ready.insert(of_priority(priority), priority);
        }
        assert_eq!((ready.row.len(), ready.beside.len()), (3, 1));
        assert!(ready.slots().eq(0..4));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn is_as_a_sorted_map(changes in changes(), from in any::<u16>()) {
            let (mut ready, mut model) = (Ready::default(), BTreeMap::new());
            let mut next = 0;
            for change in changes {
                let (first, count) = match change {
                    Change::Insert(bits) => (bits, 1),
                    Change::InsertRow(bits, count) => (bits, count),
                    Change::Remove(which) => {
                        if !model.is_empty() {
                            let key = *model.keys().nth(which.index(model.len())).unwrap();
                            ready.remove(key);
                            model.remove(&key);
                        }
                        (0, 0)
                    }
                    Change::PopFirst(count) => {
                        for _ in 0..count {
                            prop_assert_eq!(ready.pop_first(), model.pop_first());
                        }
                        (0, 0)
                    }
                };
                let mut keys: Vec<ReadyKey> = (0..count).map(|at| key(first.wrapping_add(at))).collect();
                keys.sort_unstable();
                for key in keys {
                    if let std::collections::btree_map::Entry::Vacant(vacant) = model.entry(key) {
                        ready.insert(key, next);
                        vacant.insert(next);
                        next += 1;
                    }
                }
                prop_assert!(ready.row.len() <= ROW);
                prop_assert_eq!((ready.len(), ready.is_empty()), (model.len(), model.is_empty()));
                let pair = |(key, slot): (&ReadyKey, &u32)| (*key, *slot);
                prop_assert_eq!(ready.first(), model.first_key_value().map(pair));
                prop_assert_eq!(ready.last(), model.last_key_value().map(pair));
            }
            prop_assert!(ready.slots().eq(model.values().copied()));
            let from = key(from);
            prop_assert_eq!(ready.get(from), model.get(&from).copied());
            for bound in [Bound::Included(from), Bound::Excluded(from)] {
                let expected = model.range((bound, Bound::Unbounded)).map(|(key, slot)| (*key, *slot));
                prop_assert!(ready.range(bound).eq(expected));
            }
        }
    }
}
