//! Conversions of instants from and to those of the standard library and of jiff. No clock is read here.

use std::time::{Duration, SystemTime};

use crate::{Invalid, Timestamp};

impl From<Timestamp> for SystemTime {
    fn from(at: Timestamp) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(at.as_ms().unsigned_abs())
    }
}

impl TryFrom<SystemTime> for Timestamp {
    type Error = Invalid;

    /// The first millisecond that is not before `at`, so that nothing is due early.
    fn try_from(at: SystemTime) -> Result<Timestamp, Invalid> {
        let out_of_range = |ms| Invalid::DueOutOfRange { ms };
        let since = at.duration_since(SystemTime::UNIX_EPOCH).map_err(|_| out_of_range(-1))?;
        let ms = i64::try_from(since.as_nanos().div_ceil(1_000_000)).map_err(|_| out_of_range(i64::MAX))?;
        Timestamp::from_ms(ms)
    }
}

#[cfg(feature = "jiff")]
impl TryFrom<jiff::Timestamp> for Timestamp {
    type Error = Invalid;

    /// The first millisecond that is not before `at`, so that nothing is due early.
    fn try_from(at: jiff::Timestamp) -> Result<Timestamp, Invalid> {
        // Rounding the negated value down and negating again rounds up.
        let ms = -(-at.as_nanosecond()).div_euclid(1_000_000);
        let ms = i64::try_from(ms).map_err(|_| Invalid::DueOutOfRange { ms: i64::MAX })?;
        Timestamp::from_ms(ms)
    }
}

#[cfg(feature = "jiff")]
impl TryFrom<&jiff::Zoned> for Timestamp {
    type Error = Invalid;

    /// The first millisecond that is not before `at`, so that nothing is due early.
    fn try_from(at: &jiff::Zoned) -> Result<Timestamp, Invalid> {
        at.timestamp().try_into()
    }
}

#[cfg(feature = "jiff")]
impl TryFrom<jiff::Zoned> for Timestamp {
    type Error = Invalid;

    /// The first millisecond that is not before `at`, so that nothing is due early.
    fn try_from(at: jiff::Zoned) -> Result<Timestamp, Invalid> {
        at.timestamp().try_into()
    }
}

#[cfg(feature = "jiff")]
impl TryFrom<Timestamp> for jiff::Timestamp {
    type Error = jiff::Error;

    /// Fails within the last 26 hours of the year 9999, which are beyond the range of jiff's instants.
    fn try_from(at: Timestamp) -> Result<jiff::Timestamp, jiff::Error> {
        jiff::Timestamp::from_millisecond(at.as_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_into_the_standard_librarys_instants_and_back() {
        for ms in [0, 1, 1_795_000_000_123, Timestamp::MAX.as_ms()] {
            let at = Timestamp::from_ms(ms).unwrap();
            let std = SystemTime::from(at);
            assert_eq!(Timestamp::try_from(std).unwrap(), at);
            if at < Timestamp::MAX {
                let next = Timestamp::from_ms(ms + 1).unwrap();
                assert_eq!(
                    Timestamp::try_from(std + Duration::from_nanos(100)).unwrap(),
                    next,
                    "never early"
                );
            }
        }
        let before = SystemTime::UNIX_EPOCH - Duration::from_millis(1);
        assert_eq!(Timestamp::try_from(before).unwrap_err().code(), "due_out_of_range");
        let after = SystemTime::from(Timestamp::MAX) + Duration::from_millis(1);
        assert_eq!(Timestamp::try_from(after).unwrap_err().code(), "due_out_of_range");
    }

    #[cfg(feature = "jiff")]
    #[test]
    fn goes_into_jiffs_instants_and_back() {
        let at = Timestamp::from_ms(1_795_000_000_123).unwrap();
        let jiffs = jiff::Timestamp::try_from(at).unwrap();
        assert_eq!(Timestamp::try_from(jiffs).unwrap(), at);
        let zoned = jiffs.to_zoned(jiff::tz::TimeZone::UTC);
        assert_eq!((Timestamp::try_from(&zoned).unwrap(), Timestamp::try_from(zoned).unwrap()), (at, at));
        let finer = jiff::Timestamp::from_nanosecond(jiffs.as_nanosecond() + 1).unwrap();
        assert_eq!(Timestamp::try_from(finer).unwrap().as_ms(), at.as_ms() + 1, "never early");
        assert!(jiff::Timestamp::try_from(Timestamp::MAX).is_err());
    }
}
