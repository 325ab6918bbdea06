//! A set of messages, by their numbers.

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};

/// The number of words in a page.
const WORDS: usize = 1024;
/// The number of numbers in a page.
const PAGE: u64 = WORDS as u64 * 64;
/// A page with more numbers than this is a bitmap: a list of them would be as large.
const FEW: usize = 2_048;
/// The maximum memory of a page without its numbers, in bytes.
const PAGE_BYTES: u64 = 128;

/// A set of message numbers. Where they are close together it takes a bit for each number between the lowest and the
/// highest, and where they are far apart a few bytes for each.
#[derive(Debug, Default)]
pub(crate) struct NumberSet {
    pages: HashMap<u64, NumberPage>,
}

/// The numbers of a page, counted from its start.
#[derive(Debug)]
enum NumberPage {
    /// In order.
    Few(Vec<u16>),
    Many(Box<[u64; WORDS]>),
}

impl NumberPage {
    fn add(&mut self, at: u16) {
        match self {
            NumberPage::Few(few) => {
                let Err(place) = few.binary_search(&at) else { return };
                if few.len() < FEW {
                    few.insert(place, at);
                    return;
                }
                let mut bits = Box::new([0; WORDS]);
                few.iter().chain([&at]).for_each(|at| set(&mut bits, *at));
                *self = NumberPage::Many(bits);
            }
            NumberPage::Many(bits) => set(bits, at),
        }
    }

    fn has(&self, at: u16) -> bool {
        match self {
            NumberPage::Few(few) => few.binary_search(&at).is_ok(),
            NumberPage::Many(bits) => bits[usize::from(at / 64)] >> (at % 64) & 1 == 1,
        }
    }

    fn has_any(&self, range: RangeInclusive<u16>) -> bool {
        let (from, to) = range.into_inner();
        match self {
            NumberPage::Few(few) => few.get(few.partition_point(|at| *at < from)).is_some_and(|at| *at <= to),
            NumberPage::Many(bits) => {
                let words = usize::from(from / 64)..=usize::from(to / 64);
                words.clone().any(|word| {
                    let mut bits = bits[word];
                    if word == *words.start() {
                        bits &= u64::MAX << (from % 64);
                    }
                    if word == *words.end() {
                        bits &= u64::MAX >> (63 - to % 64);
                    }
                    bits != 0
                })
            }
        }
    }
}

fn set(bits: &mut [u64; WORDS], at: u16) {
    bits[usize::from(at / 64)] |= 1 << (at % 64);
}

/// The page that contains a number, and the position in it.
fn place(number: u64) -> (u64, u16) {
    (number / PAGE, (number % PAGE) as u16)
}

impl NumberSet {
    /// Adds a number.
    pub(crate) fn add(&mut self, number: u64) {
        let (page, at) = place(number);
        self.pages.entry(page).or_insert_with(|| NumberPage::Few(Vec::new())).add(at);
    }

    /// Whether nothing was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The maximum memory in bytes of a set of `count` numbers between these two.
    pub(crate) fn most_memory(count: u64, (first, last): (u64, u64)) -> u64 {
        let pages = (last / PAGE - first / PAGE + 1).min(count);
        // A list may have twice the capacity that it needs.
        let numbers = count.saturating_mul(4).min(pages.saturating_mul(WORDS as u64 * 8));
        numbers.saturating_add(pages.saturating_mul(PAGE_BYTES))
    }

    /// Whether it has one of them; may be true although it has none, if the range spans more pages than the set has.
    pub(crate) fn may_have(&self, numbers: Range<u64>) -> bool {
        let Some(last) = numbers.end.checked_sub(1).filter(|last| *last >= numbers.start) else {
            return false;
        };
        let ((first_page, from), (last_page, to)) = (place(numbers.start), place(last));
        let pages = first_page..=last_page;
        if last_page - first_page > self.pages.len() as u64 {
            return self.pages.keys().any(|page| pages.contains(page));
        }
        (first_page..=last_page).any(|number| {
            let from = if number == first_page { from } else { 0 };
            let to = if number == last_page { to } else { u16::MAX };
            self.pages.get(&number).is_some_and(|page| page.has_any(from..=to))
        })
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        self.look_up()(number)
    }

    /// A lookup for callers whose numbers are mostly close to the previous one.
    pub(crate) fn look_up(&self) -> impl FnMut(u64) -> bool {
        let mut last = None;
        move |number| {
            let (number, at) = place(number);
            let page = match last {
                Some((last, page)) if last == number => page,
                _ => self.pages.get(&number),
            };
            last = Some((number, page));
            page.is_some_and(|page| page.has(at))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Its memory in bytes.
    fn memory(set: &NumberSet) -> u64 {
        let pages = set.pages.values().map(|page| match page {
            NumberPage::Few(few) => few.capacity() * 2,
            NumberPage::Many(_) => WORDS * 8,
        });
        // A map has an eighth more slots than its capacity, and a byte for each.
        let table = set.pages.capacity() * 8 / 7 * (size_of::<(u64, NumberPage)>() + 1);
        (pages.sum::<usize>() + table) as u64
    }

    /// Crash story: 1. A few old messages of each of many pages of numbers are cancelled. 2. When the store is opened
    /// each page takes 8 KiB: a gigabyte for 130,000 of them.
    #[test]
    fn numbers_that_are_far_apart_take_little() {
        let (mut far, mut near) = (NumberSet::default(), NumberSet::default());
        (0..20_000).for_each(|at| far.add(at * PAGE + at));
        (0..10_000).for_each(|number| near.add(number));
        assert!(memory(&far) < 4_000_000, "{} bytes", memory(&far));
        assert!(memory(&far) <= NumberSet::most_memory(20_000, (0, 19_999 * PAGE + 19_999)));
        assert!(memory(&near) < 9_000, "{} bytes", memory(&near));
        assert!(memory(&near) <= NumberSet::most_memory(10_000, (0, 9_999)));
        assert!((0..20_000).all(|at| far.has(at * PAGE + at) && !far.has(at * PAGE + at + 1)));
    }

    #[test]
    fn a_page_has_the_same_numbers_when_it_has_many_of_them() {
        let (mut set, mut beside) = (NumberSet::default(), BTreeSet::new());
        for turn in 0..FEW as u64 + 40 {
            // In no order, each once, and some of them twice.
            let number = 3 * PAGE + turn * 40_503 % PAGE;
            set.add(number);
            set.add(3 * PAGE + turn / 2 * 40_503 % PAGE);
            beside.insert(number);
            if turn % 500 != 0 && turn.abs_diff(FEW as u64) > 2 {
                continue;
            }
            assert!((2 * PAGE..5 * PAGE).all(|number| set.has(number) == beside.contains(&number)), "{turn}");
            for from in (3 * PAGE - 50..4 * PAGE + 50).step_by(13) {
                for len in [0, 1, 5, 64, 200] {
                    let range = from..from + len;
                    let has = beside.range(range.clone()).next().is_some();
                    assert_eq!(set.may_have(range.clone()), has, "{turn}: {range:?}");
                }
            }
        }
    }

    #[test]
    fn has_what_was_added_and_nothing_else() {
        let mut set = NumberSet::default();
        let numbers = [1, 63, 64, PAGE - 1, PAGE, 5 * PAGE + 7, (1 << 53) - 1];
        numbers.iter().for_each(|number| set.add(*number));
        for number in numbers {
            assert!(set.has(number), "{number}");
            assert!(number == 63 || number == PAGE - 1 || !set.has(number + 1), "{number} + 1");
        }
        assert!(!set.has(0) && !set.has(2) && !set.has(4 * PAGE + 7));
        for range in [1..2, 0..64, 60..64, 64..65, 65..PAGE, PAGE..u64::MAX, 2 * PAGE..6 * PAGE, 0..u64::MAX]
        {
            assert!(set.may_have(range.clone()), "{range:?}");
        }
        for range in [0..1, 2..63, 65..PAGE - 1, PAGE + 1..2 * PAGE, 5 * PAGE + 8..6 * PAGE, 7..7] {
            assert!(!set.may_have(range.clone()), "{range:?}");
        }
    }
}
