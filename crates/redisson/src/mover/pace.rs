//! How much a mover asks of Redis at once: batches sized by what they cost, searches from the cheaper end.
//!
//! Most of a move's cost is the search for the element in the pending list, or the element's bytes. It is reckoned from
//! how many entries searches pass; and where a script takes much longer, or less, than that, batches get smaller or
//! bigger by halves until it fits. (Not every server's clock runs while a script does.)

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

/// What an element costs Redis, in µs, how much each entry adds that the search for it passes, and each of its bytes;
/// and what a script costs without any. Measured with Redis 7.0 on a slow core: 100-byte elements, 30,000 of them in the
/// list; and 124 of 500 KB in 1.4 s.
const ELEMENT_US: f64 = 10.0;
const ENTRY_US: f64 = 0.03;
const BYTE_US: f64 = 0.02;
const SCRIPT_US: f64 = 50.0;

/// How many times as long as reckoned a script may be found to take.
const SLOWNESS: (f64, f64) = (0.25, 64.0);

/// One call of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// How many elements at most.
    pub(super) size: usize,
    /// Where they are searched from.
    pub(super) end: End,
    /// How many bytes they may have, but for the first.
    pub(super) bytes: usize,
    /// Whether to sample how far a search goes.
    pub(super) sample: bool,
}

/// What a call has told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// How many elements there were.
    pub(super) count: usize,
    /// How many bytes they had.
    pub(super) bytes: usize,
    /// How many entries a search passed, if that was sampled.
    pub(super) passed: Option<u64>,
    /// How long the script took, in µs; 0 if the server does not tell.
    pub(super) took_us: u64,
}

/// Sizes batches so that one script takes about `budget_us` of Redis' time.
#[derive(Debug)]
pub(super) struct Pace {
    budget_us: f64,
    most: usize,
    end: End,
    /// How many entries a search passed lately, from the head and from the tail.
    passed: [Option<f64>; 2],
    /// How many times as long as reckoned scripts take.
    slowness: f64,
    calls: u32,
}

impl Pace {
    pub(super) fn new(budget_us: u64, most: usize) -> Pace {
        let budget_us = budget_us as f64;
        Pace { budget_us, most: most.max(1), end: End::Head, passed: [None; 2], slowness: 1.0, calls: 0 }
    }

    /// The next batch.
    pub(super) fn next(&mut self) -> Batch {
        let call = self.calls;
        self.calls = self.calls.wrapping_add(1);
        let size = self.size(self.end);
        // What a fast server could do is not asked of it in bytes: its clients have to take them too.
        let bytes = (self.budget_us / (BYTE_US * self.slowness.max(1.0))) as usize;
        // With few elements it makes no difference.
        if call % TRIAL == TRIAL - 1 && size < self.most {
            let end = self.end.other();
            return Batch { size: self.size(end).min(TRIAL_SIZE), end, bytes, sample: true };
        }
        let sample = call.is_multiple_of(SAMPLE) || self.passed[self.end as usize].is_none();
        Batch { size, end: self.end, bytes, sample }
    }

    /// About what this batch cost Redis, in µs. Later batches are sized by it: by how far searches go, and by how long
    /// scripts take beside what was reckoned.
    pub(super) fn learn(&mut self, batch: Batch, told: Told) -> u64 {
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
        // A script that did nothing tells nothing, and one that was held up once by others little.
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
            self.end = if tail < head { End::Tail } else { End::Head };
        }
        told.took_us.max(reckoned_us as u64)
    }

    fn size(&self, end: End) -> usize {
        // What it costs is not known yet.
        let first = 1;
        let cost = |passed| (ELEMENT_US + ENTRY_US * passed) * self.slowness;
        let fits = self.passed[end as usize].map_or(first, |passed| (self.budget_us / cost(passed)) as usize);
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
            let passed = batch.sample.then_some(passed);
            pace.learn(batch, Told { count: batch.size, passed, ..Told::default() });
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

    /// Elements of 100 bytes on a server where each takes so many µs.
    fn run_taking(pace: &mut Pace, each_us: u64) -> usize {
        for _ in 0..40 {
            let batch = pace.next();
            let (bytes, took_us) = (batch.size * 100, SCRIPT_US as u64 + batch.size as u64 * each_us);
            let passed = batch.sample.then_some(0);
            pace.learn(batch, Told { count: batch.size, bytes, passed, took_us });
        }
        pace.next().size
    }

    #[test]
    fn a_server_that_takes_longer_is_asked_for_less_and_for_more_again() {
        let mut pace = Pace::new(2_000, 500);
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
        let mut pace = Pace::new(2_000, 500);
        run_taking(&mut pace, 12);
        let batch = pace.next();
        pace.learn(batch, Told { count: batch.size, took_us: 1_000_000, ..Told::default() });
        assert!(pace.next().size >= 100);
    }

    #[test]
    fn bytes_are_bounded_by_the_budget() {
        assert_eq!(Pace::new(2_000, 500).next().bytes, 100_000);
    }
}
