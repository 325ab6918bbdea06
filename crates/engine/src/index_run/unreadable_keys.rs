//! Keys of unreadable blocks, for which a run gives no answer.

use std::ops::RangeInclusive;

/// Ranges of keys. Other index runs may have some of them all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnreadableKeys {
    /// In order, and disjoint.
    ranges: Vec<RangeInclusive<u64>>,
}

impl UnreadableKeys {
    /// All keys of these ranges, which may overlap and be in any order.
    pub(crate) fn of(mut ranges: Vec<RangeInclusive<u64>>) -> UnreadableKeys {
        ranges.sort_unstable_by_key(|range| *range.start());
        let mut apart: Vec<RangeInclusive<u64>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match apart.last_mut().filter(|last| last.end() >= range.start()) {
                Some(last) => *last = *last.start()..=*last.end().max(range.end()),
                None => apart.push(range),
            }
        }
        UnreadableKeys { ranges: apart }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn has(&self, key: u64) -> bool {
        self.has_any(key..=key)
    }

    /// Whether one of these keys is among them.
    pub(crate) fn has_any(&self, keys: RangeInclusive<u64>) -> bool {
        let at = self.ranges.partition_point(|range| range.end() < keys.start());
        self.ranges.get(at).is_some_and(|range| range.start() <= keys.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_the_keys_of_its_ranges_and_no_others() {
        let lost = UnreadableKeys::of(vec![30..=40, 5..=9, 35..=50, 50..=52, u64::MAX..=u64::MAX, 9..=9]);
        assert_eq!(lost.ranges, [5..=9, 30..=52, u64::MAX..=u64::MAX]);
        for key in [5, 9, 30, 45, 52, u64::MAX] {
            assert!(lost.has(key), "{key}");
        }
        for key in [0, 4, 10, 29, 53, u64::MAX - 1] {
            assert!(!lost.has(key), "{key}");
        }
        assert!(lost.has_any(0..=5) && lost.has_any(52..=60) && lost.has_any(10..=30) && lost.has_any(6..=7));
        assert!(!lost.has_any(0..=4) && !lost.has_any(10..=29) && !lost.has_any(53..=u64::MAX - 1));
        assert!(
            UnreadableKeys::default().is_empty()
                && !UnreadableKeys::default().has_any(0..=u64::MAX)
                && !lost.is_empty()
        );
    }
}
