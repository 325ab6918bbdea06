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
/// One call in so many samples what a search costs, and so does every trial.
const SAMPLE: u32 = 4;
/// A trial moves so many at most: the other end may be much dearer.
const TRIAL_SIZE: usize = 8;

/// What an element costs Redis, in µs, and how much each entry adds that the search for it passes. Measured with
/// Redis 7.0 on a slow core: 100-byte elements, 30,000 of them in the list.
const ELEMENT_US: f64 = 10.0;
const ENTRY_US: f64 = 0.03;

/// One call of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// How many elements at most.
    pub(super) size: usize,
    /// Where they are searched from.
    pub(super) end: End,
    /// Whether to sample how far a search goes.
    pub(super) sample: bool,
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

    /// The next batch.
    pub(super) fn next(&mut self) -> Batch {
        let call = self.calls;
        self.calls = self.calls.wrapping_add(1);
        let size = self.size(self.end);
        // With few elements it makes no difference.
        if call % TRIAL == TRIAL - 1 && size < self.most {
            let end = self.end.other();
            return Batch { size: self.size(end).min(TRIAL_SIZE), end, sample: true };
        }
        let sample = call.is_multiple_of(SAMPLE) || self.costs[self.end as usize].is_none();
        Batch { size, end: self.end, sample }
    }

    /// About what `count` elements of this batch cost Redis, in µs. With a sample, a search for one of them passed
    /// so many entries, and later batches are sized by that.
    pub(super) fn learn(&mut self, batch: Batch, count: usize, passed: Option<u64>) -> u64 {
        let known = &mut self.costs[batch.end as usize];
        if let Some(passed) = passed {
            let cost = ELEMENT_US + ENTRY_US * passed as f64;
            *known = Some(known.map_or(cost, |known| known * 0.5 + cost * 0.5));
        }
        let spent_us = known.unwrap_or(ELEMENT_US) * count as f64;
        if let [Some(head), Some(tail)] = self.costs {
            self.end = if tail < head { End::Tail } else { End::Head };
        }
        spent_us as u64
    }

    fn size(&self, end: End) -> usize {
        // What it costs is not known yet.
        let first = 1;
        let fits = self.costs[end as usize].map_or(first, |cost| (self.budget_us / cost.max(0.1)) as usize);
        fits.clamp(1, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs batches against a list where a search passes so many entries from either end: what is left of it is
    /// the pace, and the dearest batch but the first, in µs.
    fn run(head: u64, tail: u64) -> (Pace, u64) {
        let (mut pace, mut dearest) = (Pace::new(2_000, 500), 0);
        for call in 0..200 {
            let batch = pace.next();
            let passed = if batch.end == End::Head { head } else { tail };
            let spent = (batch.size as f64 * (ELEMENT_US + ENTRY_US * passed as f64)) as u64;
            if call > 0 {
                dearest = dearest.max(spent);
            }
            pace.learn(batch, batch.size, batch.sample.then_some(passed));
        }
        (pace, dearest)
    }

    #[test]
    fn a_batch_costs_about_the_budget() {
        let (mut pace, dearest) = run(3_000, 3_000);
        assert_eq!(pace.next().size, 20);
        assert!(dearest <= 2_000, "{dearest}");
    }

    #[test]
    fn the_cheaper_end_is_found() {
        let (pace, dearest) = run(30_000, 10);
        assert_eq!(pace.end, End::Tail);
        assert!(dearest <= 2_000 + 8 * 1_000, "{dearest}");
        assert_eq!(run(10, 30_000).0.end, End::Head);
    }

    #[test]
    fn one_element_is_always_moved() {
        let (mut pace, _) = run(100_000_000, 100_000_000);
        assert_eq!(pace.next().size, 1);
    }

    #[test]
    fn few_batches_pay_for_a_sample() {
        let (mut pace, _) = run(30_000, 30_000);
        let samples = (0..160).filter(|_| pace.next().sample).count();
        assert!(samples <= 50, "{samples}");
    }
}
