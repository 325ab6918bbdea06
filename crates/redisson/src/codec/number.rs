//! Numbers in decimal, as `Long.toString`, `Integer.toString` and `Double.toString` write them.

use std::str::FromStr;

use super::{Codec, Error, java_double};

/// `LongCodec`: 64 bits, in decimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Long;

/// `IntegerCodec`: 32 bits, in decimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Integer;

/// `DoubleCodec`: as Java 19 and later print a double.
///
/// Older versions print some doubles as a longer, equally exact text (`2.0E23` as `1.9999999999999998E23`): those
/// decode to the same double, but Java's `remove` compares bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Double;

impl Codec for Long {
    type Value = i64;

    fn encode(&self, value: &i64) -> Result<Vec<u8>, Error> {
        Ok(value.to_string().into_bytes())
    }

    fn decode(&self, bytes: &[u8]) -> Result<i64, Error> {
        parse("long", bytes)
    }
}

impl Codec for Integer {
    type Value = i32;

    fn encode(&self, value: &i32) -> Result<Vec<u8>, Error> {
        Ok(value.to_string().into_bytes())
    }

    fn decode(&self, bytes: &[u8]) -> Result<i32, Error> {
        parse("integer", bytes)
    }
}

impl Codec for Double {
    type Value = f64;

    fn encode(&self, value: &f64) -> Result<Vec<u8>, Error> {
        Ok(java_double::text(*value).into_bytes())
    }

    fn decode(&self, bytes: &[u8]) -> Result<f64, Error> {
        parse("double", bytes)
    }
}

fn parse<T: FromStr<Err: ToString>>(codec: &'static str, bytes: &[u8]) -> Result<T, Error> {
    let refuse = |reason: String| Error::Value { codec, reason };
    let text = std::str::from_utf8(bytes).map_err(|error| refuse(error.to_string()))?;
    text.parse().map_err(|error: T::Err| refuse(format!("cannot read '{text}': {}", error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_text() {
        assert_eq!(Long.encode(&i64::MIN).unwrap(), b"-9223372036854775808");
        assert_eq!(Integer.decode(b"-7").unwrap(), -7);
        assert_eq!(Double.encode(&1e10).unwrap(), b"1.0E10");
        assert!(Double.decode(b"NaN").unwrap().is_nan());
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for bytes in [b"".as_slice(), b"1.5", b"9223372036854775808", b"\xff", b"abc"] {
            assert!(matches!(Long.decode(bytes), Err(Error::Value { codec: "long", .. })), "{bytes:?}");
        }
        assert!(Integer.decode(b"2147483648").is_err());
    }
}
