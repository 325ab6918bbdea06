//! Shared by the tests of the delay queue.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::time::Duration;

use dwell_model::Timestamp;
use dwell_time::{Clock, DelayQueue, ManualClock, SystemClock};

/// Longer than any operation here takes, and short enough for a test that hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A queue on a clock that the test moves.
pub(crate) fn hand_driven<T: Send + 'static>() -> (DelayQueue<T>, ManualClock) {
    let clock = ManualClock::new(Timestamp::MIN);
    (DelayQueue::builder().clock(&clock).build(), clock)
}

/// Waits until `count` consumers wait.
pub(crate) fn await_waiting<T>(queue: &DelayQueue<T>, count: usize) {
    await_that("consumers to wait", || queue.waiting() == count);
}

/// Waits until `is_so` holds. There is no event to block on here, so it yields the processor between checks.
pub(crate) fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    let give_up_ms = clock.now().mono_ms + PATIENCE.as_millis() as u64;
    while !is_so() {
        assert!(clock.now().mono_ms < give_up_ms, "waited {PATIENCE:?} for {what}");
        std::thread::yield_now();
    }
}

/// xorshift64: a seeded stream, the same on every machine.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
