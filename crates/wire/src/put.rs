//! Puts: one item of a batch, whose texts the server parses and reports errors of; and the answer.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use dwell_model::{AttemptLimit, DEFAULT_PRIORITY, Headers, Invalid, MessageId, Timestamp};
#[cfg(feature = "schema")]
use dwell_model::{IdempotencyKey, Key, QueueName};
use dwell_store::{OnConflict, Put};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::message::number;
#[cfg(feature = "schema")]
use crate::schema;
use crate::{Base64, Unreadable, WhenFields};

/// One item of a batch of puts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PutItem<'a> {
    /// The queue, if the path names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<QueueName>"))]
    pub queue: Option<Cow<'a, str>>,
    /// The body as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Cow<'a, str>>,
    /// The body as bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Base64>"))]
    pub body_base64: Option<Base64<'a>>,
    /// Due after this delay, from the put.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Duration>"))]
    pub delay: Option<Cow<'a, str>>,
    /// The delay in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Due at this instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Timestamp>"))]
    pub due: Option<Cow<'a, str>>,
    /// Due after this delay level of the queue, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<u32>,
    /// The caller's own key for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Key>"))]
    pub key: Option<Cow<'a, str>>,
    /// What to do if a live message has the same key.
    #[serde(default, with = "on_conflict", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::OnConflict>"))]
    pub on_conflict: Option<OnConflict>,
    /// Text headers, stored with the body.
    #[serde(default, skip_serializing_if = "HeaderFields::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, String>"))]
    pub headers: HeaderFields,
    /// The priority among due messages, smaller first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// The instant past which it is dead unless it is leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Timestamp>"))]
    pub expires: Option<Cow<'a, str>>,
    /// Its own limit of attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<AttemptLimit>,
    /// Its own lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Duration>"))]
    pub lease: Option<Cow<'a, str>>,
    /// Its own lease in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// The idempotency key, which makes a repeated put harmless.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<IdempotencyKey>"))]
    pub idempotency_key: Option<Cow<'a, str>>,
}

impl<'a> From<&'a Put> for PutItem<'a> {
    fn from(put: &'a Put) -> PutItem<'a> {
        let body = std::str::from_utf8(&put.body).ok();
        let when = WhenFields::from(put.when);
        PutItem {
            queue: Some(put.queue.as_str().into()),
            body: body.map(Cow::Borrowed),
            body_base64: body.is_none().then_some(Base64((&*put.body).into())),
            delay: when.delay,
            delay_ms: when.delay_ms,
            due: when.due,
            level: when.level,
            key: put.key.as_ref().map(|key| key.as_str().into()),
            on_conflict: Some(put.on_conflict).filter(|on_conflict| *on_conflict != OnConflict::Reject),
            headers: HeaderFields::Checked(put.headers.clone()),
            priority: Some(put.priority).filter(|priority| *priority != DEFAULT_PRIORITY),
            expires: put.expires.map(|expires| expires.to_string().into()),
            max_attempts: put.max_attempts,
            lease: None,
            lease_ms: put.lease_ms,
            idempotency_key: put
                .idempotency_key
                .as_ref()
                .map(|idempotency_key| idempotency_key.as_str().into()),
        }
    }
}

/// The values for a conflict of keys.
pub const ON_CONFLICT: [(&str, OnConflict); 3] =
    [("reject", OnConflict::Reject), ("replace", OnConflict::Replace), ("keep", OnConflict::Keep)];

mod on_conflict {
    use serde::de::Error as _;

    use super::*;

    pub(super) fn serialize<S: Serializer>(
        given: &Option<OnConflict>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let word = ON_CONFLICT.iter().find(|(_, known)| Some(*known) == *given).map(|(word, _)| word);
        word.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<OnConflict>, D::Error> {
        let Some(given) = Option::<Cow<'de, str>>::deserialize(deserializer)? else { return Ok(None) };
        match ON_CONFLICT.iter().find(|(word, _)| *word == given) {
            Some((_, on_conflict)) => Ok(Some(*on_conflict)),
            None => Err(D::Error::custom(format!("'{given:.80}' is none of reject, replace, keep"))),
        }
    }
}

/// Headers of a put.
#[derive(Clone, Debug)]
pub enum HeaderFields {
    /// Checked headers of a message.
    Checked(Headers),
    /// Headers as they were read: kept up to the limit of a message, and counted to the end.
    Read {
        /// Names and values.
        pairs: BTreeMap<String, String>,
        /// The total length in bytes of all names and values that were given.
        bytes: usize,
    },
}

impl Default for HeaderFields {
    fn default() -> HeaderFields {
        HeaderFields::Checked(Headers::default())
    }
}

impl HeaderFields {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            HeaderFields::Checked(headers) => headers.is_empty(),
            HeaderFields::Read { bytes, .. } => *bytes == 0,
        }
    }

    /// A message's headers.
    ///
    /// # Errors
    /// [`Invalid::HeadersTooLarge`], [`Invalid::InvalidHeader`].
    pub fn headers(self) -> Result<Headers, Invalid> {
        match self {
            HeaderFields::Checked(headers) => Ok(headers),
            HeaderFields::Read { bytes, .. } if bytes > Headers::MAX_LEN => {
                Err(Invalid::HeadersTooLarge { len: bytes, limit: Headers::MAX_LEN })
            }
            HeaderFields::Read { pairs, .. } => {
                Headers::new(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())))
            }
        }
    }
}

impl Serialize for HeaderFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            HeaderFields::Checked(headers) => headers.serialize(serializer),
            HeaderFields::Read { pairs, .. } => pairs.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for HeaderFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HeaderFields, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = HeaderFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HeaderFields, A::Error> {
                let (mut pairs, mut bytes) = (BTreeMap::new(), 0);
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    bytes += name.len() + value.len();
                    if bytes > Headers::MAX_LEN {
                        continue;
                    }
                    // Of equal names the last one wins.
                    let len = name.len();
                    if let Some(before) = pairs.insert(name, value) {
                        bytes -= len + before.len();
                    }
                }
                Ok(HeaderFields::Read { pairs, bytes })
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// The answer to a put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct PutAnswer {
    /// The message that is stored now.
    pub id: MessageId,
    /// Its number.
    pub number: u64,
    /// When it is due.
    pub due: Timestamp,
    /// What the put did.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", extend("enum" = ["created", "replaced", "kept"]))
    )]
    pub outcome: PutOutcome,
    /// The message that was replaced, or has lost its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<MessageId>,
}

/// What a put did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PutOutcome {
    /// A new message.
    Created,
    /// A new message, in place of another.
    Replaced,
    /// The existing message was kept.
    Kept,
}

impl From<dwell_store::PutAnswer> for PutAnswer {
    fn from(answer: dwell_store::PutAnswer) -> PutAnswer {
        let (outcome, replaced) = match answer.outcome {
            dwell_store::PutOutcome::Created => (PutOutcome::Created, None),
            dwell_store::PutOutcome::Replaced(id) => (PutOutcome::Replaced, Some(id)),
            dwell_store::PutOutcome::Kept => (PutOutcome::Kept, None),
        };
        PutAnswer { id: answer.id, number: answer.number.get(), due: answer.due, outcome, replaced }
    }
}

impl TryFrom<PutAnswer> for dwell_store::PutAnswer {
    type Error = Unreadable;

    /// The answer of the store.
    fn try_from(answer: PutAnswer) -> Result<dwell_store::PutAnswer, Unreadable> {
        let outcome = match (answer.outcome, answer.replaced) {
            (PutOutcome::Created, _) => dwell_store::PutOutcome::Created,
            (PutOutcome::Kept, _) => dwell_store::PutOutcome::Kept,
            (PutOutcome::Replaced, Some(id)) => dwell_store::PutOutcome::Replaced(id),
            (PutOutcome::Replaced, None) => return Err(Unreadable("what was replaced is not named")),
        };
        Ok(dwell_store::PutAnswer { id: answer.id, number: number(answer.number)?, due: answer.due, outcome })
    }
}
