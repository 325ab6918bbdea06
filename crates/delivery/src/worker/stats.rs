//! The counts of a lane, and its present state.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Counters and gauges of one lane. Each is exact; they are read at slightly different times.
#[derive(Debug, Default)]
pub struct Stats {
    pub(super) taken: AtomicU64,
    pub(super) done: AtomicU64,
    pub(super) retried: AtomicU64,
    pub(super) released: AtomicU64,
    pub(super) buried: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) panicked: AtomicU64,
    pub(super) timed_out: AtomicU64,
    pub(super) running: AtomicU64,
    pub(super) stuck: AtomicU64,
    pub(super) breaker: AtomicU8,
}

/// The names of the breaker's states, by their numbers here.
const BREAKER: [&str; 3] = ["closed", "half_open", "open"];

impl Stats {
    /// Messages that were handed to this lane.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Messages that are done.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Attempts that have failed.
    pub fn retried(&self) -> u64 {
        self.retried.load(Ordering::Relaxed)
    }

    /// Messages that were given back with no attempt spent.
    pub fn released(&self) -> u64 {
        self.released.load(Ordering::Relaxed)
    }

    /// Messages that were buried.
    pub fn buried(&self) -> u64 {
        self.buried.load(Ordering::Relaxed)
    }

    /// Outcomes that were discarded because the lease was over.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Handlers that have panicked.
    pub fn panicked(&self) -> u64 {
        self.panicked.load(Ordering::Relaxed)
    }

    /// Handlers that have timed out.
    pub fn timed_out(&self) -> u64 {
        self.timed_out.load(Ordering::Relaxed)
    }

    /// Messages that are being handled or settled now.
    pub fn running(&self) -> u64 {
        self.running.load(Ordering::Relaxed)
    }

    /// Blocking handlers that have timed out and still occupy their slots.
    pub fn stuck(&self) -> u64 {
        self.stuck.load(Ordering::Relaxed)
    }

    /// The state of the breaker: `closed`, `half_open`, `open`.
    pub fn breaker(&self) -> &'static str {
        BREAKER[usize::from(self.breaker.load(Ordering::Relaxed)).min(BREAKER.len() - 1)]
    }

    pub(super) fn set_breaker(&self, state: &str) {
        let number = BREAKER.iter().position(|word| *word == state).unwrap_or_default();
        self.breaker.store(number as u8, Ordering::Relaxed);
    }
}

/// Increments a counter.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Decrements a gauge.
pub(super) fn uncount(gauge: &AtomicU64) {
    gauge.fetch_sub(1, Ordering::Relaxed);
}
