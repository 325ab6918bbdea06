//! A set of messages, by their numbers.

use std::collections::HashMap;
use std::ops::Range;

/// Words of a page.
const WORDS: usize = 1024;
/// Numbers of a page.
const PAGE: u64 = WORDS as u64 * 64;

/// A set of message numbers. Numbers are given one after the other, so that it takes little more than a bit for each of
/// those between the lowest and the highest.
#[derive(Debug, Default)]
pub(crate) struct NumberSet {
    pages: HashMap<u64, Box<[u64; WORDS]>>,
}

impl NumberSet {
    /// Adds a number.
    pub(crate) fn add(&mut self, number: u64) {
        let page = self.pages.entry(number / PAGE).or_insert_with(|| Box::new([0; WORDS]));
        let at = number % PAGE;
        page[(at / 64) as usize] |= 1 << (at % 64);
    }

    /// Whether nothing was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Whether it has one of them; it may say so though it has none, of more numbers than it has room for.
    pub(crate) fn may_have(&self, numbers: Range<u64>) -> bool {
        let Some(last) = numbers.end.checked_sub(1).filter(|last| *last >= numbers.start) else {
            return false;
        };
        let pages = numbers.start / PAGE..=last / PAGE;
        if last / PAGE - numbers.start / PAGE > self.pages.len() as u64 {
            return self.pages.keys().any(|page| pages.contains(page));
        }
        for number in pages {
            let Some(page) = self.pages.get(&number) else { continue };
            let (low, high) = (number * PAGE, number * PAGE + (PAGE - 1));
            let (from, to) = (numbers.start.max(low) - low, last.min(high) - low);
            let words = (from / 64) as usize..=(to / 64) as usize;
            let has_any = words.clone().any(|word| {
                let mut bits = page[word];
                if word == *words.start() {
                    bits &= u64::MAX << (from % 64);
                }
                if word == *words.end() {
                    bits &= u64::MAX >> (63 - to % 64);
                }
                bits != 0
            });
            if has_any {
                return true;
            }
        }
        false
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        self.look_up()(number)
    }

    /// Whether it has a number, for who asks for one that is near the one before again and again.
    pub(crate) fn look_up(&self) -> impl FnMut(u64) -> bool {
        let mut last = None;
        move |number| {
            let (page, at) = (number / PAGE, number % PAGE);
            let bits = match last {
                Some((last, bits)) if last == page => bits,
                _ => self.pages.get(&page),
            };
            last = Some((page, bits));
            bits.is_some_and(|bits| bits[(at / 64) as usize] >> (at % 64) & 1 == 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
