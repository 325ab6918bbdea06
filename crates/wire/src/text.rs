//! Values that JSON carries as text: durations with units, such as `1h30m`; bytes as base64.

use std::borrow::Cow;

use base64::Engine as _;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use dwell_model::{format_duration_ms, parse_duration_ms};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

/// A length of time.
pub(crate) mod duration {
    use super::*;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub(crate) fn serialize<S: Serializer>(ms: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_duration_ms(*ms))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        parse_duration_ms(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// An optional length of time.
pub(crate) mod option_duration {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(ms: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        ms.map(format_duration_ms).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| parse_duration_ms(&text).map_err(D::Error::custom)).transpose()
    }
}

/// A list of lengths of time.
pub(crate) mod durations {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(all_ms: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(all_ms.iter().map(|ms| format_duration_ms(*ms)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| parse_duration_ms(text).map_err(D::Error::custom)).collect()
    }
}

/// Bytes of a body in standard base64 with padding (RFC 4648 §4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base64<'a>(pub Cow<'a, [u8]>);

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(&self.0, &STANDARD))
    }
}

impl<'de> Deserialize<'de> for Base64<'_> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text.as_bytes());
        let no_base64 = |error| D::Error::custom(format!("body_base64 is not base64 (RFC 4648 §4): {error}"));
        bytes.map(|bytes| Base64(bytes.into())).map_err(no_base64)
    }
}
