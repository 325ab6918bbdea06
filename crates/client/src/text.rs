//! Values that JSON carries as text: ids, instants, receipts, durations, and the words of enums.

use std::fmt::Display;
use std::num::NonZeroU32;
use std::str::FromStr;

use dwell_model::{AttemptLimit, DeathReason, StateKind, format_duration_ms, parse_duration_ms};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{SerializeSeq as _, Serializer};

pub(crate) fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// The same for what may be left out.
pub(crate) mod option {
    use super::*;

    pub(crate) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        Option::<String>::deserialize(deserializer)?
            .map(|text| text.parse().map_err(D::Error::custom))
            .transpose()
    }
}

/// Milliseconds as `1h30m`.
pub(crate) mod duration {
    use super::*;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub(crate) fn serialize<S: Serializer>(ms: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_duration_ms(*ms))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        parse_duration_ms(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Milliseconds as `1h30m`, or nothing.
pub(crate) mod option_duration {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(ms: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        match ms {
            Some(ms) => serializer.collect_str(&format_duration_ms(*ms)),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        Option::<String>::deserialize(deserializer)?
            .map(|text| parse_duration_ms(&text).map_err(D::Error::custom))
            .transpose()
    }
}

/// A list of durations.
pub(crate) mod durations {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(all_ms: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(Some(all_ms.len()))?;
        for ms in all_ms {
            seq.serialize_element(&format_duration_ms(*ms))?;
        }
        seq.end()
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
        Vec::<String>::deserialize(deserializer)?
            .iter()
            .map(|text| parse_duration_ms(text).map_err(D::Error::custom))
            .collect()
    }
}

/// A limit of attempts: a number or `"unlimited"`.
#[derive(Clone, Copy)]
pub(crate) struct Attempts(pub(crate) AttemptLimit);

impl serde::Serialize for Attempts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            AttemptLimit::Unlimited => serializer.serialize_str("unlimited"),
            AttemptLimit::At(limit) => serializer.serialize_u32(limit.get()),
        }
    }
}

impl<'de> Deserialize<'de> for Attempts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Attempts, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Wire {
            Number(NonZeroU32),
            Word(String),
        }
        match Wire::deserialize(deserializer)? {
            Wire::Number(limit) => Ok(Attempts(AttemptLimit::At(limit))),
            Wire::Word(word) if word == "unlimited" => Ok(Attempts(AttemptLimit::Unlimited)),
            Wire::Word(word) => Err(D::Error::custom(format!("'{word}' is no limit of attempts"))),
        }
    }
}

/// [`Attempts`] around [`AttemptLimit`].
pub(crate) mod attempts {
    use super::*;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub(crate) fn serialize<S: Serializer>(limit: &AttemptLimit, serializer: S) -> Result<S::Ok, S::Error> {
        serde::Serialize::serialize(&Attempts(*limit), serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<AttemptLimit, D::Error> {
        Ok(Attempts::deserialize(deserializer)?.0)
    }
}

/// [`Attempts`], or nothing.
pub(crate) mod option_attempts {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        limit: &Option<AttemptLimit>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serde::Serialize::serialize(&limit.map(Attempts), serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<AttemptLimit>, D::Error> {
        Ok(Option::<Attempts>::deserialize(deserializer)?.map(|limit| limit.0))
    }
}

/// A state's word.
pub(crate) mod state {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(state: &StateKind, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(state.as_str())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StateKind, D::Error> {
        let word = String::deserialize(deserializer)?;
        let known = StateKind::ALL.into_iter().find(|state| state.as_str() == word);
        known.ok_or_else(|| D::Error::custom(format!("'{word}' is no state")))
    }
}

/// The word of a reason to be dead, or nothing.
pub(crate) mod option_death {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        reason: &Option<DeathReason>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serde::Serialize::serialize(&reason.map(DeathReason::as_str), serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<DeathReason>, D::Error> {
        Option::<String>::deserialize(deserializer)?
            .map(|word| death(&word).map_err(D::Error::custom))
            .transpose()
    }

    fn death(word: &str) -> Result<DeathReason, String> {
        [DeathReason::AttemptsSpent, DeathReason::Buried, DeathReason::Expired]
            .into_iter()
            .find(|reason| reason.as_str() == word)
            .ok_or_else(|| format!("'{word}' is no reason to be dead"))
    }
}
