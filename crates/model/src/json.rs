//! The JSON form of the model's values: most are their own text, each parsed by its own rules.
//!
//! This is the form of the HTTP interface (`docs/http.md`); the stored formats are independent of it.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::str::FromStr;

use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    AttemptLimit, Cursor, DeathReason, Headers, Holder, Key, LapseBackoff, MessageId, OnExpiry, QueueName,
    Receipt, StateKind, Timestamp,
};

/// Parses a text by its type's own rules, without keeping it.
struct Text<T>(PhantomData<T>);

impl<T: FromStr<Err: Display>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! as_text {
    ($($type:ident),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                deserializer.deserialize_str(Text(PhantomData))
            }
        }
    )*};
}

as_text!(Cursor, Holder, Key, MessageId, QueueName, Receipt, Timestamp);

/// Parses one of a fixed set of words.
struct Word<T: 'static>(&'static [T], fn(T) -> &'static str);

impl<T: Copy + 'static> Visitor<'_> for Word<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Word(all, word) = self;
        write!(f, "one of {}", all.iter().map(|value| word(*value)).collect::<Vec<_>>().join(", "))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        let found = self.0.iter().find(|value| (self.1)(**value) == text);
        found.copied().ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

macro_rules! as_word {
    ($($type:ident: $all:expr;)*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                deserializer.deserialize_str(Word($all, $type::as_str))
            }
        }
    )*};
}

as_word! {
    LapseBackoff: &LapseBackoff::ALL;
    OnExpiry: &OnExpiry::ALL;
    StateKind: &StateKind::ALL;
    DeathReason: &[DeathReason::AttemptsSpent, DeathReason::Buried, DeathReason::Expired];
}

impl Serialize for AttemptLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            AttemptLimit::Unlimited => serializer.serialize_str("unlimited"),
            AttemptLimit::At(limit) => serializer.serialize_u32(limit.get()),
        }
    }
}

impl<'de> Deserialize<'de> for AttemptLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AttemptLimit, D::Error> {
        struct Limit;
        impl Visitor<'_> for Limit {
            type Value = AttemptLimit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 1 to 4294967295, or \"unlimited\"")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<AttemptLimit, E> {
                let limit = u32::try_from(number).ok().and_then(NonZeroU32::new);
                limit
                    .map(AttemptLimit::At)
                    .ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<AttemptLimit, E> {
                match text {
                    "unlimited" => Ok(AttemptLimit::Unlimited),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(Limit)
    }
}

impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Headers {
    /// Collects all pairs in memory before they are checked.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Headers, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Headers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut pairs: Vec<(String, String)> = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Headers::new(pairs.iter().map(|(name, value)| (&**name, &**value))).map_err(A::Error::custom)
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(feature = "schemars")]
mod schema {
    use std::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::*;
    use crate::IdempotencyKey;

    macro_rules! schema {
        ($($type:ident $name:literal = $schema:tt;)*) => {$(
            impl JsonSchema for $type {
                fn schema_name() -> Cow<'static, str> {
                    $name.into()
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    json_schema!($schema)
                }
            }
        )*};
    }

    schema! {
        Timestamp "Instant" = {
            "description": "An instant, RFC 3339 with an offset and at most milliseconds; answers are in UTC",
            "type": "string",
            "format": "date-time"
        };
        MessageId "Id" = {
            "description": "A message's id: a UUID of version 8",
            "type": "string",
            "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
        };
        QueueName "QueueName" = {
            "description": "A queue's name; not `.` or `..`",
            "type": "string",
            "pattern": "^[A-Za-z0-9+/;.$_():@][-A-Za-z0-9+/;.$_():@]*$",
            "minLength": 1,
            "maxLength": 200
        };
        Key "Key" = { "description": "1 to 512 bytes of UTF-8", "type": "string", "minLength": 1, "maxLength": 512 };
        Holder "Holder" = {
            "description": "1 to 128 bytes of UTF-8 without control characters",
            "type": "string",
            "minLength": 1,
            "maxLength": 128
        };
        OnExpiry "OnExpiry" = { "type": "string", "enum": ["dead", "drop"] };
        LapseBackoff "LapseBackoff" = { "type": "string", "enum": ["never", "second", "first"] };
        IdempotencyKey "IdempotencyKey" = { "type": "string", "pattern": "^[!-~]+$", "minLength": 1, "maxLength": 256 };
        Receipt "Receipt" = {
            "description": "Opaque: it comes with a taken message",
            "type": "string",
            "pattern": "^[A-Za-z0-9_-]+$"
        };
        Cursor "Next" = { "description": "Opaque: pass it back as `cursor`", "type": "string" };
        DeathReason "DeadReason" = { "type": "string", "enum": ["attempts_spent", "buried", "expired"] };
        AttemptLimit "Attempts" = {
            "anyOf": [
                { "type": "integer", "minimum": 1, "maximum": 4294967295_u32 },
                { "type": "string", "enum": ["unlimited"] }
            ]
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back<T: Serialize + for<'de> Deserialize<'de>>(value: &T) -> (String, T) {
        let json = serde_json::to_string(value).unwrap();
        let read = serde_json::from_str(&json).unwrap();
        (json, read)
    }

    #[test]
    fn what_is_written_is_read_again() {
        let at: Timestamp = "2026-11-21T18:00:00.000Z".parse().unwrap();
        assert_eq!(there_and_back(&at), (r#""2026-11-21T18:00:00.000Z""#.to_owned(), at));
        let key = Key::new("a\"b").unwrap();
        assert_eq!(there_and_back(&key), (r#""a\"b""#.to_owned(), key));
        for state in StateKind::ALL {
            assert_eq!(there_and_back(&state), (format!("\"{state}\""), state));
        }
        assert_eq!(there_and_back(&DeathReason::Buried), ("\"buried\"".to_owned(), DeathReason::Buried));
        let three = AttemptLimit::try_from(3_u32).unwrap();
        assert_eq!(there_and_back(&three), ("3".to_owned(), three));
        assert_eq!(there_and_back(&AttemptLimit::Unlimited).0, "\"unlimited\"");
        let headers = Headers::new([("a", "b"), ("content-type", "text/plain")]).unwrap();
        assert_eq!(
            there_and_back(&headers),
            (r#"{"a":"b","content-type":"text/plain"}"#.to_owned(), headers)
        );
    }

    #[test]
    fn what_is_none_is_refused() {
        for bad in ["0", "\"3\"", "-1", "4294967296", "1.5", "\"many\"", "null"] {
            assert!(serde_json::from_str::<AttemptLimit>(bad).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<Timestamp>("\"yesterday\"").is_err());
        assert!(serde_json::from_str::<QueueName>("\"-\"").is_err());
        assert!(
            serde_json::from_str::<StateKind>("\"gone\"")
                .unwrap_err()
                .to_string()
                .contains("scheduled, ready")
        );
        assert!(serde_json::from_str::<Headers>(r#"{"a b":"c"}"#).is_err());
    }
}
