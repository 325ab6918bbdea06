//! Putting messages.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dwell_model::{DEFAULT_PRIORITY, MessageId, Timestamp};
use dwell_store::{OnConflict, Put, When};
use serde::{Deserialize, Serialize};

use crate::answers::Answer;
use crate::path::Path;
use crate::transport::{Call, Payload};
use crate::{Client, Error, Result, text};

/// One request carries at most so many items.
const CHUNK_ITEMS: usize = 1_000;
/// One request carries at most so many bytes, but always one item.
const CHUNK_BYTES: usize = 1024 * 1024;

/// The answer to a put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutAnswer {
    /// The message that stands.
    #[serde(with = "text")]
    pub id: MessageId,
    /// Its number.
    pub number: u64,
    /// When it is due.
    #[serde(with = "text")]
    pub due: Timestamp,
    /// What the put did.
    pub outcome: PutOutcome,
    /// The message that is gone or has lost its key.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
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
    /// The standing message was kept.
    Kept,
}

impl Client {
    /// Puts messages, each of which is answered by itself, in order. A put without a token is given one, so
    /// that it can be repeated.
    ///
    /// # Errors
    /// Per item. Where a whole request failed, each of its items fails with the request's error.
    pub fn put(&self, puts: &[Put]) -> Vec<Result<PutAnswer>> {
        let mut answers = Vec::with_capacity(puts.len());
        let mut chunk = Vec::new();
        let mut items = 0;
        for put in puts {
            serde_json::to_writer(&mut chunk, &Item::from(put)).expect("our own types are JSON");
            chunk.push(b'\n');
            items += 1;
            if items == CHUNK_ITEMS || chunk.len() >= CHUNK_BYTES {
                answers.extend(self.put_chunk(std::mem::take(&mut chunk), std::mem::take(&mut items)));
            }
        }
        if items > 0 {
            answers.extend(self.put_chunk(chunk, items));
        }
        answers
    }

    /// Puts one message. See [`Client::put`].
    ///
    /// # Errors
    /// The item's.
    pub fn put_one(&self, put: Put) -> Result<PutAnswer> {
        self.put(&[put]).pop().expect("each item is answered")
    }

    fn put_chunk(&self, lines: Vec<u8>, items: usize) -> Vec<Result<PutAnswer>> {
        match self.put_lines(lines, items) {
            Ok(answers) => answers,
            Err(error) => vec![Err(error); items],
        }
    }

    /// Puts items that are written already: `items` lines of JSON as `POST /v1/messages:batch` takes them,
    /// **each with a token**, at most some thousand of them.
    ///
    /// # Errors
    /// If the request as a whole failed. Then each item may or may not have been put, unless the error is
    /// [`Error::Unreachable`] or a refusal; repeating them is harmless.
    pub fn put_lines(&self, lines: Vec<u8>, items: usize) -> Result<Vec<Result<PutAnswer>>> {
        let path = Path::v1().plus("messages:batch");
        let call = Call::change("POST", path).harmless().payload(Payload::Lines(lines));
        let bytes = self.send_for_bytes(&call)?;
        let answers = bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| match serde_json::from_slice::<Answer<PutAnswer>>(line) {
                Ok(answer) => Ok(Answer::into(answer)),
                Err(error) => Err(self.bad_answer(&error.to_string())),
            })
            .collect::<Result<Vec<_>>>()?;
        if answers.len() == items {
            Ok(answers)
        } else {
            let reason = format!("{} answers came to {items} items", answers.len());
            Err(Error::OutcomeUnknown { reason: reason.into() })
        }
    }
}

/// An item as the batch route takes it.
#[derive(Serialize)]
struct Item<'a> {
    queue: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_conflict: Option<&'static str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<text::Attempts>,
    token: String,
}

impl<'a> From<&'a Put> for Item<'a> {
    fn from(put: &'a Put) -> Item<'a> {
        let body = std::str::from_utf8(&put.body).ok();
        let (delay_ms, due, level) = match put.when {
            When::Now => (None, None, None),
            When::At(due) => (None, Some(due.to_string()), None),
            When::AfterMs(delay_ms) => (Some(delay_ms), None, None),
            When::Level(level) => (None, None, Some(level)),
        };
        Item {
            queue: put.queue.as_str(),
            body,
            body_base64: body.is_none().then(|| STANDARD.encode(&put.body)),
            delay_ms,
            due,
            level,
            key: put.key.as_ref().map(|key| key.as_str()),
            on_conflict: match put.on_conflict {
                OnConflict::Reject => None,
                OnConflict::Replace => Some("replace"),
                OnConflict::Keep => Some("keep"),
            },
            headers: put.headers.iter().collect(),
            priority: (put.priority != DEFAULT_PRIORITY).then_some(put.priority),
            expires: put.expires.map(|expires| expires.to_string()),
            lease_ms: put.lease_ms,
            max_attempts: put.max_attempts.map(text::Attempts),
            token: match &put.token {
                Some(token) => token.to_string(),
                None => format!("once-{}", uuid::Uuid::new_v4()),
            },
        }
    }
}
