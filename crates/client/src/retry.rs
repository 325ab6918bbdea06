//! What may be repeated, for how long, and with what pauses.

use dwell_model::Wake;
use dwell_time::{Clock, SystemClock};

use crate::{Client, Error, Result};

/// Whether a call may be sent twice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Twice is as good as once: reads, settings, puts with tokens.
    Harmless,
    /// The second one could do more than the first, or answer untruthfully.
    Never,
}

/// Pauses between attempts: 50 ms, doubling to 1 s.
#[derive(Debug)]
pub struct Pauses {
    clock: SystemClock,
    next_ms: u64,
    deadline_mono_ms: u64,
}

impl Pauses {
    /// Pauses for at most `patience_ms` in all, from now on.
    pub fn within_ms(patience_ms: u64) -> Pauses {
        let clock = SystemClock::new();
        let deadline_mono_ms = clock.now().mono_ms.saturating_add(patience_ms);
        Pauses { clock, next_ms: 50, deadline_mono_ms }
    }

    /// Sleeps, and says whether there is still time for an attempt.
    pub fn pause(&mut self) -> bool {
        let now_ms = self.clock.now().mono_ms;
        let until_ms = now_ms + self.next_ms;
        if until_ms > self.deadline_mono_ms {
            return false;
        }
        self.clock.sleeper().sleep(Wake { wall: None, mono_ms: Some(until_ms) });
        self.next_ms = (self.next_ms * 2).min(1_000);
        true
    }
}

impl Client {
    /// Calls, and calls again while the answer is lost, the call is harmless to repeat and there is patience.
    /// A server that could not be reached the first time is not waited for.
    pub(crate) fn call<T>(&self, repeat: Repeat, attempt: impl Fn() -> Result<T>) -> Result<T> {
        let first = match attempt() {
            Err(error @ Error::OutcomeUnknown { .. }) if repeat == Repeat::Harmless => error,
            answer => return answer,
        };
        let mut pauses = Pauses::within_ms(self.patience_ms());
        while pauses.pause() {
            match attempt() {
                Err(Error::OutcomeUnknown { .. } | Error::Unreachable { .. }) => {}
                // That it cannot be done now, say while the server opens its store, tells nothing of what was done before.
                Err(Error::Refused(problem)) if problem.retryable => {}
                answer => return answer,
            }
        }
        Err(first)
    }
}
