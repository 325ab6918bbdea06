//! Which calls are retried, for how long, and with what pauses.

use std::ops::ControlFlow;
use std::time::Duration;

use dwell_model::Wake;
use dwell_store::{Error, Result};
use dwell_time::{Clock, SystemClock};

/// Whether a call may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// A repeat has no further effect: reads, settings, puts with idempotency keys.
    Harmless,
    /// A repeat could do more than the first call, or return a wrong answer.
    Never,
}

/// The first and the longest pause, in milliseconds.
const FIRST_MS: u64 = 50;
const LONGEST_MS: u64 = 1_000;

/// Pauses between attempts: 50 ms, doubling to 1 s.
#[derive(Debug)]
pub struct Pauses {
    clock: SystemClock,
    next_ms: u64,
    deadline_mono_ms: u64,
}

impl Pauses {
    /// Pauses of at most `patience_ms` in total, from now on.
    pub fn within_ms(patience_ms: u64) -> Pauses {
        let clock = SystemClock::new();
        let deadline_mono_ms = clock.now().mono_ms.saturating_add(patience_ms);
        Pauses { clock, next_ms: FIRST_MS, deadline_mono_ms }
    }

    /// Sleeps on this thread, and returns whether there is time for another attempt.
    pub fn pause(&mut self) -> bool {
        let now_ms = self.clock.now().mono_ms;
        let Some(pause_ms) = self.next_ms(now_ms) else { return false };
        self.clock.sleeper().sleep(Wake { wall: None, mono_ms: Some(now_ms + pause_ms) });
        true
    }

    /// The length of the next pause; `None` if there is no time for an attempt after it.
    fn next_ms(&mut self, now_ms: u64) -> Option<u64> {
        let pause_ms = self.next_ms;
        if now_ms + pause_ms > self.deadline_mono_ms {
            return None;
        }
        self.next_ms = (pause_ms * 2).min(LONGEST_MS);
        Some(pause_ms)
    }
}

/// The attempts of one call. A retry is made only if an answer was lost, the call is harmless to repeat, and there is
/// time left. If the server could not be reached the first time, there is none.
pub(crate) struct Attempts {
    repeat: Repeat,
    patience_ms: u64,
    /// The error of the first attempt, whose answer was lost, and the pauses since then.
    lost: Option<(Error, Pauses)>,
}

impl Attempts {
    pub(crate) fn new(repeat: Repeat, patience_ms: u64) -> Attempts {
        Attempts { repeat, patience_ms, lost: None }
    }

    /// Handles the answer to an attempt: returns the call's answer, or the pause before the next attempt.
    pub(crate) fn after<T>(&mut self, answer: Result<T>) -> ControlFlow<Result<T>, Duration> {
        let (first, mut pauses) = match (self.lost.take(), answer) {
            (None, Err(error @ Error::OutcomeUnknown { .. })) if self.repeat == Repeat::Harmless => {
                (error, Pauses::within_ms(self.patience_ms))
            }
            // A retryable error, say while the server opens its store, says
            // nothing about whether the first attempt took effect.
            (Some(lost), Err(error)) if error.is_retryable() => lost,
            (_, answer) => return ControlFlow::Break(answer),
        };
        match pauses.next_ms(pauses.clock.now().mono_ms) {
            Some(pause_ms) => {
                self.lost = Some((first, pauses));
                ControlFlow::Continue(Duration::from_millis(pause_ms))
            }
            None => ControlFlow::Break(Err(first)),
        }
    }
}
