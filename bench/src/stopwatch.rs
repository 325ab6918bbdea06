//! Durations to the nanosecond, and the wall clock to the microsecond.
//!
//! The project's own clock counts milliseconds, which is what dwell promises; what is measured here is finer.
#![expect(clippy::disallowed_methods, reason = "a bench measures the machine's time")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Runs from the moment it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// How many of `count` things a second, if all of them were done since the start.
    pub(crate) fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.elapsed().as_secs_f64()
    }
}

/// The present instant, for peers that are given instants.
#[cfg(feature = "peers")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Microseconds since the epoch.
pub(crate) fn wall_us() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX)
}

/// Does nothing for so long.
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
