//! An instant: UTC milliseconds since the Unix epoch, from 1970 to 9999.

use std::fmt;

use crate::Invalid;

/// An instant in UTC milliseconds since 1970-01-01T00:00:00Z, up to 9999-12-31T23:59:59.999Z.
///
/// Nothing is clamped or rounded: a value out of range is [`Invalid::DueOutOfRange`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const MIN: Timestamp = Timestamp(0);
    /// 9999-12-31T23:59:59.999Z.
    pub const MAX: Timestamp = Timestamp(253_402_300_799_999);

    /// The instant `ms` milliseconds after the epoch.
    ///
    /// # Errors
    /// [`Invalid::DueOutOfRange`] before 1970 or after 9999.
    pub const fn from_ms(ms: i64) -> Result<Timestamp, Invalid> {
        if ms < Timestamp::MIN.0 || ms > Timestamp::MAX.0 {
            return Err(Invalid::DueOutOfRange { ms });
        }
        Ok(Timestamp(ms))
    }

    /// Milliseconds since the epoch.
    pub const fn as_ms(self) -> i64 {
        self.0
    }

    /// The instant `delay_ms` later.
    ///
    /// # Errors
    /// [`Invalid::DueOutOfRange`] past the year 9999.
    pub const fn after(self, delay_ms: u64) -> Result<Timestamp, Invalid> {
        if delay_ms > Timestamp::MAX.0 as u64 {
            return Err(Invalid::DueOutOfRange { ms: i64::MAX });
        }
        Timestamp::from_ms(self.0 + delay_ms as i64)
    }

    /// The instant `delay_ms` later, or the last representable one: for deadlines that the store computes itself.
    pub fn saturating_after(self, delay_ms: u64) -> Timestamp {
        self.after(delay_ms).unwrap_or(Timestamp::MAX)
    }

    /// Milliseconds from `earlier` to `self`; 0 if `earlier` is later.
    pub const fn ms_since(self, earlier: Timestamp) -> u64 {
        if self.0 > earlier.0 { (self.0 - earlier.0) as u64 } else { 0 }
    }
}

impl fmt::Display for Timestamp {
    /// Formats as RFC 3339 in UTC with milliseconds: `2026-11-21T18:00:00.000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.unsigned_abs();
        let (year, month, day) = date(ms / 86_400_000);
        let (hour, minute) = (ms / 3_600_000 % 24, ms / 60_000 % 60);
        let (second, ms) = (ms / 1_000 % 60, ms % 1_000);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }
}

/// Year, month and day of the Gregorian calendar, `days` days after 1970-01-01.
///
/// This is `civil_from_days` of <https://howardhinnant.github.io/date_algorithms.html>: its years begin in March, so
/// that a leap day is the last day of its year. jiff has this too, but everything that prints an instant would then
/// depend on it.
const fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_IN_400_YEARS: u64 = 146_097;
    let since_march_0000 = days + 719_468;
    let (era, of_era) = (since_march_0000 / DAYS_IN_400_YEARS, since_march_0000 % DAYS_IN_400_YEARS);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let (month, next_year) =
        if month_from_march < 10 { (month_from_march + 3, 0) } else { (month_from_march - 9, 1) };
    (400 * era + year_of_era + next_year, month, day)
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One reading of a clock: wall time and monotonic time, read together.
///
/// Due, expiry and pause ends are compared with `wall`; lease deadlines and waits use `mono_ms`, which steps of the
/// wall clock do not affect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Wall time, which may step in either direction between two readings.
    pub wall: Timestamp,
    /// Milliseconds since a point fixed for the life of the process; never goes back.
    pub mono_ms: u64,
}

/// The deadline of a sleep: whichever of the two comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Wake {
    /// Wake when wall time reaches this instant.
    pub wall: Option<Timestamp>,
    /// Wake when monotonic time reaches this many milliseconds.
    pub mono_ms: Option<u64>,
}

impl Wake {
    /// Whether either deadline is reached.
    pub fn is_reached(&self, now: Now) -> bool {
        self.wall.is_some_and(|at| at <= now.wall) || self.mono_ms.is_some_and(|at| at <= now.mono_ms)
    }

    /// Moves the wall deadline to `at`, if that is earlier.
    pub fn by_wall(&mut self, at: Timestamp) {
        self.wall = Some(self.wall.map_or(at, |old| old.min(at)));
    }

    /// Moves the monotonic deadline to `at_ms`, if that is earlier.
    pub fn by_mono(&mut self, at_ms: u64) {
        self.mono_ms = Some(self.mono_ms.map_or(at_ms, |old| old.min(at_ms)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_lies_outside_1970_to_9999() {
        assert!(Timestamp::from_ms(-1).is_err());
        assert!(Timestamp::from_ms(Timestamp::MAX.as_ms() + 1).is_err());
        assert!(Timestamp::MAX.after(1).is_err());
        assert!(Timestamp::MIN.after(u64::MAX).is_err());
    }
}
