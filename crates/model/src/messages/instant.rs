//! Instants parsed from text.

use std::str::FromStr;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;

use crate::text::excerpt;
use crate::{Invalid, Timestamp};

/// jiff's instants end some hours before the year 9999 does; its civil date-times do not.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

impl FromStr for Timestamp {
    type Err = Invalid;

    /// Parses RFC 3339 with an offset. A fraction finer than a millisecond is refused, not rounded.
    fn from_str(text: &str) -> Result<Timestamp, Invalid> {
        if has_long_year(text) {
            return Err(Invalid::DueOutOfRange { ms: i64::MAX });
        }
        let malformed = || Invalid::MalformedInstant { text: excerpt(text) };
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

/// A year of five digits or more is not valid RFC 3339, but the error should name the year.
fn has_long_year(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    digits > 4 && text.as_bytes().get(digits) == Some(&b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_lies_outside_1970_to_9999() {
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

    /// One instant of each day, and another one of the next day.
    #[test]
    fn prints_every_day_as_jiff_does() {
        const DAY_MS: i64 = 86_400_000;
        for day in 0..=Timestamp::MAX.as_ms() / DAY_MS {
            let ms = day * DAY_MS + day * 31_415_927 % DAY_MS;
            let jiffs = EPOCH.checked_add(SignedDuration::from_millis(ms)).unwrap();
            assert_eq!(Timestamp::from_ms(ms).unwrap().to_string(), format!("{jiffs:.3}Z"));
        }
        assert_eq!(Timestamp::MAX.to_string(), "9999-12-31T23:59:59.999Z");
    }
}
