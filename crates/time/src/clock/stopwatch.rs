//! Measuring how long something took: for people to look at, never for a decision.

use std::time::Instant;

use super::instant_now;

/// Runs from the moment it is made. Finer than a [`Clock`](super::Clock), and always the machine's: no test moves
/// it, and nothing that it says may change what a program does.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Begins now.
    pub fn start() -> Stopwatch {
        Stopwatch(instant_now())
    }

    /// Microseconds since it was started.
    pub fn elapsed_us(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
