//! From numbers to slots: pages for recent numbers, a hash table for the few old ones that are left.
//!
//! Numbers rise with each put, so puts fill one page after another, in memory that is in the processor's
//! cache, and nothing is ever moved to make room for more. A page that is no longer the newest and has lost
//! three quarters of its messages moves the rest to the table: a message costs at most sixteen bytes here,
//! however long it stays. Nothing here is ever iterated, so the order of a hash table cannot be observed.

use dwell_model::Number;
use hashbrown::HashMap;

use super::index::{SlotTable, mix};

/// The number of numbers in a page.
const PAGE: usize = 1024;
/// A page with fewer messages is given up.
const SPARSE: u32 = PAGE as u32 / 4;
/// A place without a message; no slot has this number.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct NumberPage {
    slots: Box<[u32; PAGE]>,
    len: u32,
}

/// The slots of all resident messages, by their numbers.
#[derive(Debug)]
pub(super) struct Numbers {
    pages: HashMap<u64, NumberPage>,
    /// The page of the highest number so far: it is kept even if it is sparse.
    newest: u64,
    /// Messages whose page was given up, or that came back after that.
    strays: SlotTable,
    len: usize,
}

impl Numbers {
    pub(super) fn new() -> Numbers {
        Numbers { pages: HashMap::new(), newest: 0, strays: SlotTable::new(), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The slot of a number. `is_it` returns whether a slot has it.
    pub(super) fn find(&self, number: Number, is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let (page, place) = split(number);
        match self.pages.get(&page) {
            Some(page) => Some(page.slots[place]).filter(|slot| *slot != NONE),
            None => self.strays.find(hash(number), is_it),
        }
    }

    /// Whether the number has a message on a page. Reads what [`find`](Numbers::find) would read.
    pub(super) fn is_on_page(&self, number: Number) -> bool {
        let (page, place) = split(number);
        self.pages.get(&page).is_some_and(|page| page.slots[place] != NONE)
    }

    /// Inserts a message that is not present. `number_of` returns the number of a slot.
    pub(super) fn insert(&mut self, number: Number, slot: u32, number_of: impl Fn(u32) -> Number) {
        self.len += 1;
        let (page, place) = split(number);
        if page > self.newest || self.pages.is_empty() && page == self.newest {
            let before = std::mem::replace(&mut self.newest, page);
            self.pages.insert(page, NumberPage { slots: Box::new([NONE; PAGE]), len: 0 });
            self.give_up_if_sparse(before, &number_of);
        }
        match self.pages.get_mut(&page) {
            Some(page) => {
                let other = std::mem::replace(&mut page.slots[place], slot);
                assert_eq!(other, NONE, "no two messages have one number");
                page.len += 1;
            }
            None => {
                let is_it = |slot| number_of(slot) == number;
                let is_new = self.strays.insert_new(hash(number), slot, is_it, |slot| hash(number_of(slot)));
                assert!(is_new, "no two messages have one number");
            }
        }
    }

    /// Removes a message that is present.
    pub(super) fn remove(&mut self, number: Number, slot: u32, number_of: impl Fn(u32) -> Number) {
        self.len -= 1;
        let (page, place) = split(number);
        let Some(found) = self.pages.get_mut(&page) else {
            return self.strays.remove(hash(number), slot);
        };
        let there = std::mem::replace(&mut found.slots[place], NONE);
        assert_eq!(there, slot, "only what is in is taken out");
        found.len -= 1;
        self.give_up_if_sparse(page, &number_of);
    }

    /// Moves the messages of a page to the table, if they are few and no more will come.
    fn give_up_if_sparse(&mut self, page: u64, number_of: &impl Fn(u32) -> Number) {
        if page == self.newest || self.pages.get(&page).is_none_or(|page| page.len >= SPARSE) {
            return;
        }
        let Some(page) = self.pages.remove(&page) else { return };
        for slot in page.slots.into_iter().filter(|slot| *slot != NONE) {
            self.strays.insert(hash(number_of(slot)), slot, |slot| hash(number_of(slot)));
        }
    }
}

fn split(number: Number) -> (u64, usize) {
    (number.get() / PAGE as u64, (number.get() % PAGE as u64) as usize)
}

fn hash(number: Number) -> u64 {
    mix(number.get())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Change {
        /// The next number, after a gap.
        Put { gap: u64 },
        /// A lower number, as of a message that comes back from a file.
        Back(u64),
        /// One of the messages present.
        Remove(prop::sample::Index),
        /// All messages present but a few of the newest.
        RemoveMost(usize),
    }

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let change = prop_oneof![
            8 => prop_oneof![30 => Just(0), 1 => 1..3000u64].prop_map(|gap| Change::Put { gap }),
            1 => (1..40_000u64).prop_map(Change::Back),
            4 => any::<prop::sample::Index>().prop_map(Change::Remove),
        ];
        let change = prop_oneof![200 => change, 1 => (0..9usize).prop_map(Change::RemoveMost)];
        prop::collection::vec(change, 0..6000)
    }

    #[test]
    fn no_two_numbers_near_each_other_have_one_hash() {
        let hashes = (1..10_000).map(|number| hash(Number::new(number).unwrap()));
        assert_eq!(hashes.collect::<std::collections::BTreeSet<u64>>().len(), 9_999);
    }

    /// The slot of each number is the number.
    #[test]
    fn a_page_is_given_up_when_it_is_sparse_and_not_the_newest() {
        let number = |slot: u32| Number::new(u64::from(slot)).unwrap();
        let mut numbers = Numbers::new();
        let (first, newest, sparse) = (1..PAGE as u32, PAGE as u32..PAGE as u32 + 10, SPARSE as usize);
        first.clone().chain(newest.clone()).for_each(|slot| numbers.insert(number(slot), slot, number));
        numbers.remove(number(newest.start), newest.start, number);
        let is_on_page = |numbers: &Numbers, slot: u32| {
            assert_eq!(numbers.find(number(slot), |other| other == slot), Some(slot));
            numbers.is_on_page(number(slot))
        };
        assert!(is_on_page(&numbers, newest.end - 1), "more come to the newest");
        let last = first.end - 1;
        for slot in first.clone().take(first.len() - sparse) {
            numbers.remove(number(slot), slot, number);
            assert!(is_on_page(&numbers, last), "it holds enough");
        }
        let next = last + 1 - SPARSE;
        numbers.remove(number(next), next, number);
        assert!(!is_on_page(&numbers, last), "it holds too few");
        assert!(is_on_page(&numbers, newest.end - 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn finds_what_a_sorted_map_finds(changes in changes()) {
            let (mut numbers, mut model) = (Numbers::new(), BTreeMap::new());
            let (mut next, mut of_slot) = (1, Vec::new());
            let known = |of_slot: &[u64], slot: u32| Number::new(of_slot[slot as usize]).unwrap();
            for change in changes {
                let (put, removed): (Option<u64>, Vec<u64>) = match change {
                    Change::Put { gap } => {
                        next += gap + 1;
                        (Some(next), Vec::new())
                    }
                    Change::Back(number) => ((number < next).then_some(number), Vec::new()),
                    Change::Remove(which) if model.is_empty() => { let _ = which; (None, Vec::new()) }
                    Change::Remove(which) => (None, vec![*which.get(&model.keys().copied().collect::<Vec<_>>())]),
                    Change::RemoveMost(stay) => (None, model.keys().rev().skip(stay).copied().collect()),
                };
                if let Some(number) = put.filter(|number| !model.contains_key(number)) {
                    let slot = of_slot.len() as u32;
                    of_slot.push(number);
                    numbers.insert(Number::new(number).unwrap(), slot, |slot| known(&of_slot, slot));
                    model.insert(number, slot);
                }
                for number in removed {
                    let slot = model.remove(&number).unwrap();
                    numbers.remove(Number::new(number).unwrap(), slot, |slot| known(&of_slot, slot));
                }
                prop_assert_eq!(numbers.len(), model.len());
                prop_assert!(numbers.pages.len() * PAGE <= (4 * model.len()).max(PAGE) + PAGE);
            }
            for number in 1..next + 2 {
                let wanted = Number::new(number).unwrap();
                let found = numbers.find(wanted, |slot| of_slot[slot as usize] == number);
                prop_assert_eq!(found, model.get(&number).copied());
            }
        }
    }
}
