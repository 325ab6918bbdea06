//! The counts of a webhook: deliveries, failures by code, and how late deliveries were confirmed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use hyper::StatusCode;

use super::transport::NoAnswer;
use super::verdict::Verdict;

/// Inclusive upper bounds of the histogram of lateness, in milliseconds. Larger values go to one more bucket.
const BOUNDS_MS: [u64; 14] =
    [5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000];

/// Counts of one webhook over all its queues. Each is exact; they are read at slightly different times.
#[derive(Debug, Default)]
pub struct Meter {
    delivered: AtomicU64,
    uncertain: AtomicU64,
    /// Few: HTTP statuses, and a handful of words.
    failed: Mutex<BTreeMap<Code, u64>>,
    lateness: [AtomicU64; BOUNDS_MS.len() + 1],
    lateness_sum_ms: AtomicU64,
}

/// Why a delivery has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Code {
    /// It was answered with this status.
    Status(u16),
    /// There was no answer, or nothing was sent.
    Word(&'static str),
}

/// Deliveries by the lateness of their confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lateness {
    /// Inclusive upper bounds in milliseconds, rising, and the count of each bucket alone. The last one has no bound.
    pub buckets: Vec<(Option<u64>, u64)>,
    /// The sum of all values, in milliseconds.
    pub sum_ms: u64,
}

impl Meter {
    /// Messages that the destination has confirmed.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Requests that may or may not have arrived: they timed out, or the connection broke before an answer. Their
    /// messages are sent again.
    pub fn uncertain(&self) -> u64 {
        self.uncertain.load(Ordering::Relaxed)
    }

    /// Deliveries that have failed, by code: the status as `http_503`, or `refused`, `broken`, `timed_out`, `not_http`, `refused_address`,
    /// `refused_target`.
    pub fn failed(&self) -> Vec<(String, u64)> {
        let name = |code: &Code| match code {
            Code::Status(status) => format!("http_{status}"),
            Code::Word(word) => (*word).to_owned(),
        };
        // Nothing under the lock can panic.
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.iter().map(|(code, count)| (name(code), *count)).collect()
    }

    /// The lateness of deliveries: from when a message was due to be handed out to when its delivery was confirmed.
    pub fn lateness(&self) -> Lateness {
        let bounds = BOUNDS_MS.iter().copied().map(Some).chain([None]);
        let counts = self.lateness.iter().map(|count| count.load(Ordering::Relaxed));
        Lateness {
            buckets: bounds.zip(counts).collect(),
            sum_ms: self.lateness_sum_ms.load(Ordering::Relaxed),
        }
    }

    /// Records the result of a message. `late_ms` is its lateness now.
    pub(super) fn met(&self, met: &Result<(StatusCode, Verdict), NoAnswer>, late_ms: u64) {
        let code = match met {
            Ok((_, Verdict::Done)) => {
                self.delivered.fetch_add(1, Ordering::Relaxed);
                let at = BOUNDS_MS.partition_point(|bound| *bound < late_ms);
                self.lateness[at].fetch_add(1, Ordering::Relaxed);
                self.lateness_sum_ms.fetch_add(late_ms, Ordering::Relaxed);
                return;
            }
            Ok((status, _)) => Code::Status(status.as_u16()),
            Err(NoAnswer::Refused(_)) => Code::Word("refused"),
            Err(NoAnswer::Cut(_)) => Code::Word("broken"),
            Err(NoAnswer::TimedOut(_)) => Code::Word("timed_out"),
            Err(NoAnswer::NotHttp(_)) => Code::Word("not_http"),
            Err(NoAnswer::Forbidden(error)) => Code::Word(error.code()),
        };
        if matches!(met, Err(NoAnswer::Cut(_) | NoAnswer::TimedOut(_))) {
            self.uncertain.fetch_add(1, Ordering::Relaxed);
        }
        self.fail(code);
    }

    /// Records a failure before anything was sent.
    pub(super) fn fail(&self, code: Code) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        *failed.entry(code).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_is_counted_once_by_its_code() {
        let meter = Meter::default();
        let status = |status: u16| StatusCode::from_u16(status).unwrap();
        let failed = |code: u16| Ok((status(code), Verdict::Failed { error: String::new() }));
        for late_ms in [0, 5, 6, 400_000] {
            meter.met(&Ok((status(204), Verdict::Done)), late_ms);
        }
        meter.met(&failed(500), 1);
        meter.met(&failed(500), 1);
        meter.met(&failed(302), 1);
        meter.met(&Err(NoAnswer::TimedOut(String::new())), 1);
        meter.met(&Err(NoAnswer::Cut(String::new())), 1);
        meter.met(&Err(NoAnswer::Refused(String::new())), 1);
        meter.fail(Code::Word("refused_target"));
        assert_eq!((meter.delivered(), meter.uncertain()), (4, 2));
        let expected = [
            ("http_302", 1),
            ("http_500", 2),
            ("broken", 1),
            ("refused", 1),
            ("refused_target", 1),
            ("timed_out", 1),
        ];
        assert_eq!(meter.failed(), expected.map(|(code, count)| (code.to_owned(), count)));
        let lateness = meter.lateness();
        assert_eq!(lateness.sum_ms, 400_011);
        assert_eq!(lateness.buckets[0], (Some(5), 2));
        assert_eq!(lateness.buckets[1], (Some(10), 1));
        assert_eq!(lateness.buckets[14], (None, 1));
    }
}
