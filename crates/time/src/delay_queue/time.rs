//! Instants inside the queue: 64-bit nanoseconds since the program's first reading of the clock.

use std::sync::atomic::{AtomicI64, Ordering};
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

    /// A number greater than that of every call that returned before this one began.
    ///
    /// `now` is this call's reading of the clock, if it has one. A manual clock stands still between calls, so a
    /// counter is used there.
    pub(super) fn stamp(&self, now: Option<i64>) -> i64 {
        static COUNT: AtomicI64 = AtomicI64::new(0);
        match self {
            Time::System => now.unwrap_or_else(system_now),
            Time::Manual(_) => COUNT.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The current time, and the time `delay` from now. `None` if that is out of the range of 64-bit nanoseconds.
    pub(super) fn now_and_after(&self, delay: Duration) -> Option<(i64, i64)> {
        let now = self.now();
        Some((now, now.checked_add(nanoseconds(delay)?)?))
    }

    /// The time `delay` from now. `None` if it is out of the range of 64-bit nanoseconds.
    pub(super) fn after(&self, delay: Duration) -> Option<i64> {
        self.now_and_after(delay).map(|(_, after)| after)
    }
}

pub(super) fn system_now() -> i64 {
    let (origin, now) = (clock::process_start(), clock::instant_now());
    nanoseconds(now.duration_since(origin)).unwrap_or(i64::MAX)
}

/// `None` if it exceeds 64 bits.
fn nanoseconds(duration: Duration) -> Option<i64> {
    let seconds = i64::try_from(duration.as_secs()).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(i64::from(duration.subsec_nanos()))
}

/// `None` if it is out of the range of 64-bit nanoseconds.
pub(super) fn from_instant(at: Instant) -> Option<i64> {
    let origin = clock::process_start();
    match at.checked_duration_since(origin) {
        Some(after) => nanoseconds(after),
        None => nanoseconds(origin.duration_since(at)).map(|before| -before),
    }
}

/// The instant of a time that came from [`from_instant`] or [`Time`].
pub(super) fn to_instant(ns: i64) -> Instant {
    let origin = clock::process_start();
    let distance = Duration::from_nanos(ns.unsigned_abs());
    let at = if ns < 0 { origin.checked_sub(distance) } else { origin.checked_add(distance) };
    at.expect("the operating system counts further than 292 years")
}
