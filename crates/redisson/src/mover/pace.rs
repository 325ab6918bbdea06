//! Limits the load on Redis: batch sizes follow their cost, and searches start from the cheaper end.
//!
//! Most of a move's cost is the search for the element in the pending list, or the element's size. It is estimated from
//! the number of entries that searches pass. Where a script takes much longer, or less, than estimated, batch sizes are
//! halved or doubled until it fits. (Not every server's clock advances while a script runs.)

/// The end of the pending list from which it is searched.
///
/// Where offers are due in the order in which they were made, the due ones are near its head; where delays vary widely,
/// they may be near its tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PaceEnd {
    Head,
    Tail,
}

impl PaceEnd {
    /// The sign of the count argument of `LREM`.
    pub(super) fn count(self) -> i64 {
        match self {
            PaceEnd::Head => 1,
            PaceEnd::Tail => -1,
        }
    }

    fn other(self) -> PaceEnd {
        match self {
            PaceEnd::Head => PaceEnd::Tail,
            PaceEnd::Tail => PaceEnd::Head,
        }
    }
}

/// One call in this many tries the other end.
const TRIAL: u32 = 16;
/// One call in this many samples the cost of a search, and so does every trial.
const SAMPLE: u32 = 4;
/// The maximum number of elements moved by a trial, since the other end may be far more expensive.
const TRIAL_SIZE: usize = 8;

/// The costs of a script in µs: per element, per entry that a search passes, per byte, and per script.
///
/// Measured with Redis 7.0 on a slow core: 100-byte elements, 30,000 of them in the list; and 124 of 500 KB in 1.4 s.
const ELEMENT_US: f64 = 10.0;
const ENTRY_US: f64 = 0.03;
const BYTE_US: f64 = 0.02;
const SCRIPT_US: f64 = 50.0;

/// The range of the measured ratio of a script's time to the estimate.
const SLOWNESS: (f64, f64) = (0.25, 64.0);

/// The parameters of one call of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// The maximum number of elements.
    pub(super) size: usize,
    /// The end that they are searched from.
    pub(super) end: PaceEnd,
    /// The maximum size in bytes, not counting the first element.
    pub(super) bytes: usize,
    /// Whether to sample how far a search goes.
    pub(super) sample: bool,
}

/// The measurements of one call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PaceReport {
    /// The number of elements.
    pub(super) count: usize,
    /// Their size in bytes.
    pub(super) bytes: usize,
    /// The number of entries that a search passed, if it was sampled.
    pub(super) passed: Option<u64>,
    /// The time that the script took, in µs; 0 if the server does not report it.
    pub(super) took_us: u64,
}

/// Sizes batches so that one script takes about `budget_us` of Redis' time.
#[derive(Debug)]
pub(super) struct MoverPace {
    budget_us: f64,
    most: usize,
    end: PaceEnd,
    /// The recent number of entries that a search passed, from the head and from the tail.
    passed: [Option<f64>; 2],
    /// The measured ratio of a script's time to the estimate.
    slowness: f64,
    calls: u32,
}

impl MoverPace {
    pub(super) fn new(budget_us: u64, most: usize) -> MoverPace {
        let budget_us = budget_us as f64;
        MoverPace {
            budget_us,
            most: most.max(1),
            end: PaceEnd::Head,
            passed: [None; 2],
            slowness: 1.0,
            calls: 0,
        }
    }

    /// The parameters of the next batch.
    pub(super) fn next(&mut self) -> Batch {
        let call = self.calls;
        self.calls = self.calls.wrapping_add(1);
        let size = self.size(self.end);
        // A fast server does not raise the limit in bytes, since its clients have to receive them too.
        let bytes = (self.budget_us / (BYTE_US * self.slowness.max(1.0))) as usize;
        // With few elements the end makes no difference.
        if call % TRIAL == TRIAL - 1 && size < self.most {
            let end = self.end.other();
            return Batch { size: self.size(end).min(TRIAL_SIZE), end, bytes, sample: true };
        }
        let sample = call.is_multiple_of(SAMPLE) || self.passed[self.end as usize].is_none();
        Batch { size, end: self.end, bytes, sample }
    }

    /// Returns the approximate cost of this batch for Redis, in µs.
    ///
    /// Adapts the size of later batches to the distance of searches, and to the ratio of measured to estimated time.
    pub(super) fn learn(&mut self, batch: Batch, told: PaceReport) -> u64 {
        let known = &mut self.passed[batch.end as usize];
        if let Some(passed) = told.passed {
            let passed = passed as f64;
            *known = Some(known.map_or(passed, |known| known * 0.5 + passed * 0.5));
        }
        let searches = told.count + if told.passed.is_some() { 2 } else { 0 };
        let reckoned_us = SCRIPT_US
            + ELEMENT_US * told.count as f64
            + ENTRY_US * known.unwrap_or(0.0) * searches as f64
            + BYTE_US * told.bytes as f64;
        // An empty script says nothing about speed, and a single slow one says little: the ratio changes by a factor of
        // two at most.
        if told.took_us > 0 && told.count > 0 {
            let found = told.took_us as f64 / reckoned_us;
            if found > 1.5 * self.slowness {
                self.slowness *= 2.0;
            } else if found < 0.5 * self.slowness {
                self.slowness *= 0.5;
            }
            self.slowness = self.slowness.clamp(SLOWNESS.0, SLOWNESS.1);
        }
        if let [Some(head), Some(tail)] = self.passed {
            self.end = if tail < head { PaceEnd::Tail } else { PaceEnd::Head };
        }
        told.took_us.max(reckoned_us as u64)
    }

    fn size(&self, end: PaceEnd) -> usize {
        // The cost is not known yet.
        let first = 1;
        let cost = |passed| (ELEMENT_US + ENTRY_US * passed) * self.slowness;
        let fits = self.passed[end as usize].map_or(first, |passed| (self.budget_us / cost(passed)) as usize);
        fits.clamp(1, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs batches against a list where a search passes this many entries from either end.
    ///
    /// Returns the final pace, and the most expensive batch but the first, in µs.
    fn run(head: u64, tail: u64) -> (MoverPace, u64) {
        let (mut pace, mut dearest) = (MoverPace::new(2_000, 500), 0);
        for call in 0..200 {
            let batch = pace.next();
            let passed = if batch.end == PaceEnd::Head { head } else { tail };
            let spent = (batch.size as f64 * (ELEMENT_US + ENTRY_US * passed as f64)) as u64;
            if call > 0 {
                dearest = dearest.max(spent);
            }
            let passed = batch.sample.then_some(passed);
            pace.learn(batch, PaceReport { count: batch.size, passed, ..PaceReport::default() });
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
        assert_eq!(pace.end, PaceEnd::Tail);
        assert!(dearest <= 2_000 + 8 * 1_000, "{dearest}");
        assert_eq!(run(10, 30_000).0.end, PaceEnd::Head);
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

    /// Runs with elements of 100 bytes on a server where each takes `each_us` µs.
    fn run_taking(pace: &mut MoverPace, each_us: u64) -> usize {
        for _ in 0..40 {
            let batch = pace.next();
            let (bytes, took_us) = (batch.size * 100, SCRIPT_US as u64 + batch.size as u64 * each_us);
            let passed = batch.sample.then_some(0);
            pace.learn(batch, PaceReport { count: batch.size, bytes, passed, took_us });
        }
        pace.next().size
    }

    #[test]
    fn a_server_that_takes_longer_is_asked_for_less_and_for_more_again() {
        let mut pace = MoverPace::new(2_000, 500);
        let usual = run_taking(&mut pace, 12);
        assert_eq!(usual, 200);
        let slow = run_taking(&mut pace, 400);
        assert!((1..=10).contains(&slow), "{slow} elements of 400 us");
        assert!(pace.next().bytes <= 10_000);
        assert!(run_taking(&mut pace, 12) >= usual / 2);
        assert!(run_taking(&mut pace, 2) > usual);
    }

    #[test]
    fn one_slow_script_is_no_slow_server() {
        let mut pace = MoverPace::new(2_000, 500);
        run_taking(&mut pace, 12);
        let batch = pace.next();
        pace.learn(batch, PaceReport { count: batch.size, took_us: 1_000_000, ..PaceReport::default() });
        assert!(pace.next().size >= 100);
    }

    #[test]
    fn bytes_are_bounded_by_the_budget() {
        assert_eq!(MoverPace::new(2_000, 500).next().bytes, 100_000);
    }
}
