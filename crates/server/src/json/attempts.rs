//! Limits of attempts on the wire: a number, or the word `unlimited`.

use std::num::NonZeroU32;

use dwell_model::AttemptLimit;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::schema;

/// A whole number from 1, or `unlimited`.
pub(crate) fn parse_attempts(text: &str) -> Option<AttemptLimit> {
    if text == "unlimited" {
        return Some(AttemptLimit::Unlimited);
    }
    let number: NonZeroU32 = text.parse().ok().filter(|_| !text.starts_with('+'))?;
    Some(AttemptLimit::At(number))
}

/// [`AttemptLimit`] as a JSON number or `"unlimited"`.
#[derive(Clone, Copy, Debug, schemars::JsonSchema)]
#[schemars(with = "schema::Attempts")]
pub(crate) struct AttemptsIn(pub(crate) AttemptLimit);

impl<'de> Deserialize<'de> for AttemptsIn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AttemptsIn, D::Error> {
        struct Attempts;
        impl Visitor<'_> for Attempts {
            type Value = AttemptsIn;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number from 1 to 4294967295, or \"unlimited\"")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<AttemptsIn, E> {
                u32::try_from(number)
                    .ok()
                    .and_then(NonZeroU32::new)
                    .map(|number| AttemptsIn(AttemptLimit::At(number)))
                    .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Unsigned(number), &self))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<AttemptsIn, E> {
                match text {
                    "unlimited" => Ok(AttemptsIn(AttemptLimit::Unlimited)),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(Attempts)
    }
}

/// A number of attempts as JSON: a number or `"unlimited"`.
#[derive(Debug, schemars::JsonSchema)]
#[schemars(with = "schema::Attempts")]
pub(crate) struct AttemptsOut(pub(crate) AttemptLimit);

impl Serialize for AttemptsOut {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            AttemptLimit::Unlimited => serializer.serialize_str("unlimited"),
            AttemptLimit::At(limit) => serializer.serialize_u32(limit.get()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_in_a_query_are_numbers_or_unlimited() {
        assert_eq!(parse_attempts("unlimited"), Some(AttemptLimit::Unlimited));
        assert!(parse_attempts("3").is_some());
        for bad in ["0", "-1", "+1", "1.5", "", "many"] {
            assert_eq!(parse_attempts(bad), None, "{bad}");
        }
    }
}
