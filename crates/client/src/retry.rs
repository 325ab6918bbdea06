//! What may be sent twice, for how long, and with what pauses.

use std::time::Duration;

use dwell_model::Wake;
use dwell_store::{Error, Result};
use dwell_time::{Clock, SystemClock};

/// Whether a call may be sent twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Twice is as good as once: reads, settings, puts with tokens.
    Harmless,
    /// The second one could do more than the first, or answer untruthfully.
    Never,
}

/// The first pause in milliseconds, and the longest.
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
    /// Pauses for at most `patience_ms` in all, from now on.
    pub fn within_ms(patience_ms: u64) -> Pauses {
        let clock = SystemClock::new();
        let deadline_mono_ms = clock.now().mono_ms.saturating_add(patience_ms);
        Pauses { clock, next_ms: FIRST_MS, deadline_mono_ms }
    }

    /// Sleeps on this thread, and says whether there is still time for an attempt.
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

/// Makes an attempt, and further ones while the answer is lost, the call is harmless to repeat, and `patience_ms` are not over.
/// A server that could not be reached the first time is not waited for.
pub(crate) async fn with_patience<T>(
    repeat: Repeat,
    patience_ms: u64,
    mut attempt: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let first = match attempt().await {
        Err(error @ Error::OutcomeUnknown { .. }) if repeat == Repeat::Harmless => error,
        answer => return answer,
    };
    let mut pauses = Pauses::within_ms(patience_ms);
    while let Some(pause_ms) = pauses.next_ms(pauses.clock.now().mono_ms) {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        match attempt().await {
            // That it cannot be done now, say while the server opens its store, says nothing of what was done before.
            Err(error) if error.is_retryable() => {}
            answer => return answer,
        }
    }
    Err(first)
}
