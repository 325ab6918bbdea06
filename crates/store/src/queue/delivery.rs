//! Accessors of a message that was handed to a consumer.

use std::time::Duration;

use bytes::Bytes;
use dwell_model::{Headers, Key, MessageId, Number, QueueName, Timestamp};

use super::body::CONTENT_TYPE;
use crate::{Delivery, Error, Result};

impl Delivery {
    /// The message's id. It stays the same if the message is handed out again, so it identifies a repeat.
    pub fn id(&self) -> MessageId {
        self.message.id
    }

    /// The message's number.
    pub fn number(&self) -> Number {
        self.message.number
    }

    /// The queue that the message is in.
    pub fn queue(&self) -> &QueueName {
        &self.message.queue
    }

    /// The caller's own name for the message, if it has one.
    pub fn key(&self) -> Option<&Key> {
        self.message.key.as_ref()
    }

    /// The body.
    pub fn body(&self) -> &Bytes {
        &self.message.body
    }

    /// The body as text.
    ///
    /// # Errors
    /// [`Error::MalformedBody`] if it is not UTF-8.
    pub fn text(&self) -> Result<&str> {
        std::str::from_utf8(&self.message.body)
            .map_err(|error| Error::MalformedBody { form: "UTF-8 text", reason: error.to_string().into() })
    }

    /// The value of the header `name`, if there is one. Names are case-sensitive, except `content-type`.
    pub fn header(&self, name: &str) -> Option<&str> {
        let headers = &self.message.headers;
        if !name.eq_ignore_ascii_case(CONTENT_TYPE) {
            return headers.get(name);
        }
        let any_case = || headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(CONTENT_TYPE));
        headers.get(CONTENT_TYPE).or_else(|| any_case().map(|(_, value)| value))
    }

    /// All headers.
    pub fn headers(&self) -> &Headers {
        &self.message.headers
    }

    /// When the message was put, by the store's clock.
    pub fn created(&self) -> Timestamp {
        self.message.created
    }

    /// The instant past which the message is dead unless it is leased, if it has one.
    pub fn expires(&self) -> Option<Timestamp> {
        self.message.standing.expires
    }

    /// The priority among messages that are due: smaller first.
    pub fn priority(&self) -> u32 {
        self.message.standing.priority
    }

    /// The number of this attempt, counted from 1.
    pub fn attempt(&self) -> u32 {
        self.message.standing.attempt()
    }

    /// The error of the last attempt that failed, if one has.
    pub fn last_error(&self) -> Option<&str> {
        self.message.standing.last_error.as_deref()
    }

    /// The instant at which the message was due.
    pub fn due(&self) -> Timestamp {
        self.message.standing.due
    }

    /// How late it was handed out: from the latest of due, put answered and last made ready until the take,
    /// in whole milliseconds.
    pub fn lateness(&self) -> Duration {
        Duration::from_millis(self.lateness_ms)
    }
}
