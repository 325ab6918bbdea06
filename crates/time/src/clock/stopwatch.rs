//! Measures elapsed time for reports and diagnostics, never for a decision.

use std::time::Instant;

use super::instant_now;

/// Measures the time since it was created.
///
/// It is finer than a [`Clock`](super::Clock) and always reads the machine's clock: a test cannot move it, so its
/// reading must not change what a program does.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts the stopwatch.
    pub fn start() -> Stopwatch {
        Stopwatch(instant_now())
    }

    /// Microseconds since it was started.
    pub fn elapsed_us(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
