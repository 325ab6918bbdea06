//! How much a mover asks of Redis at once: batches sized by what they cost, searches from the cheaper end.
//!
//! Most of a move's cost is the search for the element in the pending list. A script can not time itself, so the
//! cost is reckoned from how many entries searches pass.

/// The pending list is searched from one of its ends. Where offers are due in the order in which they were made,
/// the due ones are at its head; where delays differ a lot they may be near its tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Head,
    Tail,
}

impl End {
    /// As `LREM` names it.
    pub(super) fn count(self) -> i64 {
        match self {
            End::Head => 1,
            End::Tail => -1,
        }
    }

    fn other(self) -> End {
        match self {
            End::Head => End::Tail,
            End::Tail => End::Head,
        }
    }
}

/// One call in so many tries the other end.
const TRIAL: u32 = 16;
/// A trial moves so many at most: the other end may be much dearer.
const TRIAL_SIZE: usize = 8;

/// What an element costs Redis, in µs, and how much each entry adds that the search for it passes. Measured with
/// Redis 7.0 on a slow core: 100-byte elements, 30,000 of them in the list.
const ELEMENT_US: f64 = 10.0;
const ENTRY_US: f64 = 0.03;

/// What a batch of `count` elements costs Redis, in µs, where a search passes so many entries.
pub(super) fn cost_us(count: usize, passed: u64) -> u64 {
    (count as f64 * (ELEMENT_US + ENTRY_US * passed as f64)) as u64
}

/// Sizes batches so that one script takes about `budget_us` of Redis' time.
#[derive(Debug)]
pub(super) struct Pace {
    budget_us: f64,
    most: usize,
    end: End,
    /// What an element cost lately, in µs, from the head and from the tail.
    costs: [Option<f64>; 2],
    calls: u32,
}

impl Pace {
    pub(super) fn new(budget_us: u64, most: usize) -> Pace {
        Pace { budget_us: budget_us as f64, most: most.max(1), end: End::Head, costs: [None; 2], calls: 0 }
    }

    /// The next batch: how many elements at most, searched from which end.
    pub(super) fn next(&mut self) -> (usize, End) {
        self.calls = self.calls.wrapping_add(1);
        let size = self.size(self.end);
        // With few elements it makes no difference.
        if self.calls.is_multiple_of(TRIAL) && size < self.most {
            return (self.size(self.end.other()).min(TRIAL_SIZE), self.end.other());
        }
        (size, self.end)
    }

    /// What a batch of `count` elements cost.
    pub(super) fn learn(&mut self, end: End, count: usize, spent_us: u64) {
        if count == 0 {
            return;
        }
        let cost = spent_us as f64 / count as f64;
        let known = &mut self.costs[end as usize];
        *known = Some(known.map_or(cost, |known| known * 0.7 + cost * 0.3));
        if let [Some(head), Some(tail)] = self.costs {
            self.end = if tail < head { End::Tail } else { End::Head };
        }
    }

    fn size(&self, end: End) -> usize {
        let first = 50;
        let fits = self.costs[end as usize].map_or(first, |cost| (self.budget_us / cost.max(0.1)) as usize);
        fits.clamp(1, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a hundred batches against a list where a search costs this much from either end.
    fn run(head_us: u64, tail_us: u64) -> (Pace, u64) {
        let (mut pace, mut dearest) = (Pace::new(2_000, 500), 0);
        for call in 0..100 {
            let (size, end) = pace.next();
            let spent = size as u64 * if end == End::Head { head_us } else { tail_us };
            if call > 0 {
                dearest = dearest.max(spent);
            }
            pace.learn(end, size, spent);
        }
        (pace, dearest)
    }

    #[test]
    fn a_batch_costs_about_the_budget() {
        let (mut pace, dearest) = run(100, 100);
        assert_eq!(pace.next().0, 20);
        assert!(dearest <= 2_000, "{dearest}");
    }

    #[test]
    fn the_cheaper_end_is_found() {
        let (pace, dearest) = run(1_000, 10);
        assert_eq!(pace.end, End::Tail);
        assert!(dearest <= 2_000 + 8 * 1_000, "{dearest}");
        assert_eq!(run(10, 1_000).0.end, End::Head);
    }

    #[test]
    fn one_element_is_always_moved() {
        let (mut pace, _) = run(1_000_000, 1_000_000);
        assert_eq!(pace.next().0, 1);
    }
}
