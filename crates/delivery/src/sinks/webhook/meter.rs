//! What a webhook has met at its destination: deliveries, failures by code, and how late deliveries were confirmed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use hyper::StatusCode;

use super::transport::Broken;
use super::verdict::Verdict;

/// Upper bounds of the histogram of latenesses, in milliseconds, each included. What is later is in one more bucket.
const BOUNDS_MS: [u64; 14] =
    [5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000];

/// Counts of one webhook, all its queues together. Each is exact; together they are of about one moment.
#[derive(Debug, Default)]
pub struct Meter {
    delivered: AtomicU64,
    uncertain: AtomicU64,
    /// Few: statuses of HTTP, and a handful of words.
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

/// Deliveries by how late they were confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lateness {
    /// Upper bounds in milliseconds, rising, each included, and how many are in each bucket alone. The last one has no bound.
    pub buckets: Vec<(Option<u64>, u64)>,
    /// The sum of all, in milliseconds.
    pub sum_ms: u64,
}

impl Meter {
    /// Messages that the destination has confirmed.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Requests of which nobody knows whether they arrived: no answer came in time, or the connection broke before it. Their messages go
    /// out again.
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
        // Nothing that can panic runs under the lock.
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.iter().map(|(code, count)| (name(code), *count)).collect()
    }

    /// From when a message was to be handed out to when its delivery was confirmed.
    pub fn lateness(&self) -> Lateness {
        let bounds = BOUNDS_MS.iter().copied().map(Some).chain([None]);
        let counts = self.lateness.iter().map(|count| count.load(Ordering::Relaxed));
        Lateness {
            buckets: bounds.zip(counts).collect(),
            sum_ms: self.lateness_sum_ms.load(Ordering::Relaxed),
        }
    }

    /// A message has come to this. `late_ms` is how late it is now.
    pub(super) fn met(&self, met: &Result<(StatusCode, Verdict), Broken>, late_ms: u64) {
        let code = match met {
            Ok((_, Verdict::Done)) => {
                self.delivered.fetch_add(1, Ordering::Relaxed);
                let at = BOUNDS_MS.partition_point(|bound| *bound < late_ms);
                self.lateness[at].fetch_add(1, Ordering::Relaxed);
                self.lateness_sum_ms.fetch_add(late_ms, Ordering::Relaxed);
                return;
            }
            Ok((status, _)) => Code::Status(status.as_u16()),
            Err(Broken::Refused(_)) => Code::Word("refused"),
            Err(Broken::Cut(_)) => Code::Word("broken"),
            Err(Broken::TimedOut(_)) => Code::Word("timed_out"),
            Err(Broken::NotHttp(_)) => Code::Word("not_http"),
            Err(Broken::Forbidden(error)) => Code::Word(error.code()),
        };
        if matches!(met, Err(Broken::Cut(_) | Broken::TimedOut(_))) {
            self.uncertain.fetch_add(1, Ordering::Relaxed);
        }
        self.fail(code);
    }

    /// A message has failed before anything was sent.
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
        meter.met(&Err(Broken::TimedOut(String::new())), 1);
        meter.met(&Err(Broken::Cut(String::new())), 1);
        meter.met(&Err(Broken::Refused(String::new())), 1);
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
