//! A message as the server shows it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dwell_model::{AttemptLimit, DeathReason, MessageId, QueueName, State, StateKind, Timestamp};
use serde::{Deserialize, Serialize};

use crate::text;

/// A message. It serialises to the JSON that it came as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Its identity.
    #[serde(with = "text")]
    pub id: MessageId,
    /// Its number.
    pub number: u64,
    /// The queue it is in.
    #[serde(with = "text")]
    pub queue: QueueName,
    /// Where it stands.
    #[serde(with = "text::state")]
    pub state: StateKind,
    // The body is one of these two, or neither where it was left out.
    #[serde(rename = "body", default, skip_serializing_if = "Option::is_none")]
    body_text: Option<String>,
    #[serde(default, with = "option_base64", skip_serializing_if = "Option::is_none")]
    body_base64: Option<Vec<u8>>,
    /// Bytes of the body, also where the body was left out.
    pub size: u64,
    /// The instant before which it is not handed out.
    #[serde(with = "text")]
    pub due: Timestamp,
    /// When it was put.
    #[serde(with = "text")]
    pub created: Timestamp,
    /// The instant past which it is dead, if nobody holds it.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// The caller's own name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Text that travels with the body.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Smaller first, among due messages.
    pub priority: u32,
    /// The attempt under way, or how many are spent.
    pub attempt: u32,
    /// Its own limit of attempts.
    #[serde(default, with = "text::option_attempts", skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<AttemptLimit>,
    /// Its own lease in milliseconds.
    #[serde(
        rename = "lease",
        default,
        with = "text::option_duration",
        skip_serializing_if = "Option::is_none"
    )]
    pub lease_ms: Option<u64>,
    /// Until when it is held, by the store's wall clock.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<Timestamp>,
    /// Why it is dead.
    #[serde(default, with = "text::option_death", skip_serializing_if = "Option::is_none")]
    pub dead_reason: Option<DeathReason>,
    /// Since when it is dead.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    pub dead_at: Option<Timestamp>,
    /// The error of its last failed attempt, or the reason it was buried with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// How often each thing happened to it.
    pub counts: Counts,
}

impl Message {
    /// Its body; empty where the body was left out.
    pub fn body(&self) -> &[u8] {
        match (&self.body_text, &self.body_base64) {
            (Some(text), _) => text.as_bytes(),
            (None, Some(bytes)) => bytes,
            (None, None) => &[],
        }
    }

    /// Its body as text, if it is UTF-8.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(self.body()).ok()
    }
}

impl From<&dwell_model::Message> for Message {
    /// As a server would show it.
    fn from(message: &dwell_model::Message) -> Message {
        let standing = &message.standing;
        let text = std::str::from_utf8(&message.body).ok().map(str::to_owned);
        let death = match standing.state {
            State::Dead(death) => Some(death),
            _ => None,
        };
        let lease_until = match standing.state {
            State::Leased(lease) => Some(lease.deadline),
            _ => None,
        };
        let headers = message.headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let dwell_model::Counts { takes, lapses, releases, buries, revives } = standing.counts;
        Message {
            id: message.id,
            number: message.number.get(),
            queue: message.queue.clone(),
            state: standing.state.kind(),
            body_base64: text.is_none().then(|| message.body.to_vec()),
            body_text: text,
            size: message.body.len() as u64,
            due: standing.due,
            created: message.created,
            expires: standing.expires,
            key: message.key.as_ref().map(|key| key.as_str().to_owned()),
            headers: headers.collect(),
            priority: standing.priority,
            attempt: standing.attempt(),
            max_attempts: message.max_attempts,
            lease_ms: message.lease_ms,
            lease_until,
            dead_reason: death.map(|death| death.reason),
            dead_at: death.map(|death| death.at),
            last_error: standing.last_error.as_deref().map(str::to_owned),
            counts: Counts { takes, lapses, releases, buries, revives },
        }
    }
}

mod option_base64 {
    use serde::de::Error as _;
    use serde::{Deserializer, Serializer};

    use super::*;

    pub(super) fn serialize<S: Serializer>(
        bytes: &Option<Vec<u8>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        bytes.as_ref().map(|bytes| STANDARD.encode(bytes)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<u8>>, D::Error> {
        Option::<String>::deserialize(deserializer)?
            .map(|text| STANDARD.decode(text).map_err(D::Error::custom))
            .transpose()
    }
}

/// How often each thing happened to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Times it was handed out.
    pub takes: u32,
    /// Times its lease ran out.
    pub lapses: u32,
    /// Times it was given back without spending an attempt.
    pub releases: u32,
    /// Times it was buried.
    pub buries: u32,
    /// Times it was revived.
    pub revives: u32,
}
