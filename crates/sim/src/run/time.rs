//! Movements of the clocks between ticks: mostly small, sometimes a
//! leap, sometimes a step that the monotonic clock does not have.

use dwell_model::Timestamp;
use dwell_testkit::Random;
use dwell_time::{Clock as _, ManualClock};

/// The initial reading of the wall clock: 2026-01-01.
pub(super) const START_MS: i64 = 1_767_225_600_000;

/// Moves the clocks by up to `most` milliseconds; not at all if they would move further.
pub(super) fn pass(clock: &ManualClock, rng: &mut Random, most: i64) {
    let advance = |ms: u64| {
        if i64::try_from(ms).is_ok_and(|ms| ms <= most) {
            clock.advance(ms);
        }
    };
    match rng.below(1_000) {
        0..450 => {}
        450..800 => advance(rng.between(1, 60)),
        800..950 => advance(rng.between(60, 6_000)),
        950..985 => advance(rng.between(6_000, 90_000)),
        985..990 => advance(rng.between(90_000, 400 * 86_400_000)),
        _ => step(clock, rng, most),
    }
}

/// Steps the wall clock, as an administrator or NTP does: forward or back, by little or by much.
fn step(clock: &ManualClock, rng: &mut Random, most: i64) {
    let by = *rng.pick(&[5, 1_000, 60_000, 3_600_000, 86_400_000]) * rng.between(1, 5) as i64;
    let by = if rng.percent(50) { by } else { -by };
    if by.abs() > most {
        return;
    }
    let wall = clock.now().wall.as_ms() + by;
    // Staying a year away from the limits keeps the instants of all puts within 1970 and 9999.
    clock.step_wall(Timestamp::from_ms(wall.max(START_MS - 10 * 365 * 86_400_000)).unwrap_or(Timestamp::MAX));
}
