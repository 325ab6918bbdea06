//! An instant: UTC milliseconds since the Unix epoch, from 1970 to 9999.

use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;

use crate::Invalid;

/// An instant in UTC milliseconds since 1970-01-01T00:00:00Z, up to 9999-12-31T23:59:59.999Z.
///
/// Nothing is clamped or rounded: what lies outside is [`Invalid::DueOutOfRange`].
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

    /// The instant `delay_ms` later, or the last representable one: for deadlines of our own making.
    pub fn saturating_after(self, delay_ms: u64) -> Timestamp {
        self.after(delay_ms).unwrap_or(Timestamp::MAX)
    }

    /// Milliseconds from `earlier` to `self`; 0 if `earlier` is not earlier.
    pub const fn ms_since(self, earlier: Timestamp) -> u64 {
        if self.0 > earlier.0 { (self.0 - earlier.0) as u64 } else { 0 }
    }
}

/// jiff's own instants end some hours before 9999 does, its civil date-times do not.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds: `2026-11-21T18:00:00.000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = EPOCH
            .checked_add(SignedDuration::from_millis(self.0))
            .expect("every timestamp lies within jiff's civil years");
        write!(f, "{at:.3}Z")
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = Invalid;

    /// Reads RFC 3339 with an offset. A finer fraction than a millisecond is refused, not rounded.
    fn from_str(text: &str) -> Result<Timestamp, Invalid> {
        if has_long_year(text) {
            return Err(Invalid::DueOutOfRange { ms: i64::MAX });
        }
        let malformed = || Invalid::MalformedInstant { text: crate::text::excerpt(text) };
        let pieces = Pieces::parse(text).map_err(|_| malformed())?;
        let (Some(time), Some(offset), None) =
            (pieces.time(), pieces.to_numeric_offset(), pieces.time_zone_annotation())
        else {
            return Err(malformed());
        };
        let utc = SignedDuration::from_secs(i64::from(offset.seconds()));
        let since = pieces.date().to_datetime(time).duration_since(EPOCH) - utc;
        if since.subsec_nanos() % 1_000_000 != 0 {
            return Err(malformed());
        }
        let ms = i64::try_from(since.as_millis()).map_err(|_| malformed())?;
        Timestamp::from_ms(ms)
    }
}

/// A year of five digits or more: no instant of RFC 3339, but what is wrong with it is the year.
fn has_long_year(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    digits > 4 && text.as_bytes().get(digits) == Some(&b'-')
}

/// One reading of a clock: wall time and monotonic time, taken together.
///
/// Due, expiry and pause ends compare with `wall`; lease deadlines and waits run on `mono_ms`,
/// which no step of the wall clock moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Wall time, which may step in either direction between two readings.
    pub wall: Timestamp,
    /// Milliseconds since some moment fixed for the life of the process; never goes back.
    pub mono_ms: u64,
}

/// The moment at which a sleeper wants to be woken: whichever of the two comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Wake {
    /// Wake when wall time reaches this instant.
    pub wall: Option<Timestamp>,
    /// Wake when monotonic time reaches this many milliseconds.
    pub mono_ms: Option<u64>,
}

impl Wake {
    /// Whether either moment has come.
    pub fn is_reached(&self, now: Now) -> bool {
        self.wall.is_some_and(|at| at <= now.wall) || self.mono_ms.is_some_and(|at| at <= now.mono_ms)
    }

    /// Brings the wall moment forward to `at`, if that is earlier.
    pub fn by_wall(&mut self, at: Timestamp) {
        self.wall = Some(self.wall.map_or(at, |old| old.min(at)));
    }

    /// Brings the monotonic moment forward to `at_ms`, if that is earlier.
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
        let past_9999 = "10000-01-01T00:00:00Z".parse::<Timestamp>().unwrap_err();
        assert_eq!(past_9999.code(), "due_out_of_range");
        assert!("1969-12-31T23:59:59.999Z".parse::<Timestamp>().is_err());
    }

    #[test]
    fn prints_and_reads_rfc_3339() {
        for ms in [0, 1, 1_795_000_000_123, Timestamp::MAX.as_ms()] {
            let at = Timestamp::from_ms(ms).unwrap();
            assert_eq!(at.to_string().parse::<Timestamp>().unwrap(), at);
        }
        let offset: Timestamp = "2026-11-21T19:00:00+01:00".parse().unwrap();
        assert_eq!(offset.to_string(), "2026-11-21T18:00:00.000Z");
        assert!("2026-11-21T18:00:00".parse::<Timestamp>().is_err(), "no offset");
        assert!("2026-11-21T18:00:00.0001Z".parse::<Timestamp>().is_err(), "finer than a millisecond");
        assert!("tomorrow".parse::<Timestamp>().is_err());
    }
}
