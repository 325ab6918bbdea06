//! Durations in nanoseconds, and the wall clock in microseconds.
//!
//! The project's own clock counts milliseconds, which is what dwell promises; the measurements here are finer.
#![expect(clippy::disallowed_methods, reason = "a bench measures the machine's time")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Measures the time since it was created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// The rate per second, if `count` things were done since the start.
    pub(crate) fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.elapsed().as_secs_f64()
    }
}

/// The current instant, for peers that take instants.
#[cfg(feature = "peers")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Microseconds since the epoch.
pub(crate) fn wall_us() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX)
}

/// Blocks the thread for this time.
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
