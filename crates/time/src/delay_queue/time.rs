//! Instants inside the queue: nanoseconds from the first time that the program asked, in 64 bits.

use std::time::{Duration, Instant};

use crate::clock::{self, Clock, ManualClock};

/// What the queue reads the time from.
#[derive(Debug)]
pub(super) enum Time {
    System,
    /// Moved by a test, in milliseconds.
    Manual(ManualClock),
}

impl Time {
    pub(super) fn now(&self) -> i64 {
        match self {
            Time::System => system_now(),
            Time::Manual(clock) => {
                i64::try_from(clock.now().mono_ms.saturating_mul(1_000_000)).unwrap_or(i64::MAX)
            }
        }
    }

    /// The moment `delay` from now. `None` if nanoseconds in 64 bits do not reach there.
    pub(super) fn after(&self, delay: Duration) -> Option<i64> {
        self.now().checked_add(i64::try_from(delay.as_nanos()).ok()?)
    }
}

pub(super) fn system_now() -> i64 {
    let (origin, now) = (clock::process_start(), clock::instant_now());
    i64::try_from(now.duration_since(origin).as_nanos()).unwrap_or(i64::MAX)
}

/// `None` if nanoseconds in 64 bits do not reach there.
pub(super) fn from_instant(at: Instant) -> Option<i64> {
    let origin = clock::process_start();
    match at.checked_duration_since(origin) {
        Some(after) => i64::try_from(after.as_nanos()).ok(),
        None => i64::try_from(origin.duration_since(at).as_nanos()).ok().map(|before| -before),
    }
}

/// The instant of a moment that came from [`from_instant`] or [`Time`].
pub(super) fn to_instant(ns: i64) -> Instant {
    let origin = clock::process_start();
    let distance = Duration::from_nanos(ns.unsigned_abs());
    let at = if ns < 0 { origin.checked_sub(distance) } else { origin.checked_add(distance) };
    at.expect("the operating system counts further than 292 years")
}
