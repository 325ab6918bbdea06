//! A message as a reader sees it: what was put, and its standing.

use bytes::Bytes;

use crate::{AttemptLimit, Headers, Key, MessageId, Number, QueueName, Standing, Timestamp};

/// The priority of a message that names none. Anything below counts as urgent, as with beanstalkd.
pub const DEFAULT_PRIORITY: u32 = 1_024;

/// A complete message.
///
/// Inside a store, `B` may be a reference to the stored body instead of the body itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<B = Bytes> {
    /// Its identity.
    pub id: MessageId,
    /// Its number, for protocols and users that need one.
    pub number: Number,
    /// The queue it is in.
    pub queue: QueueName,
    /// The payload.
    pub body: B,
    /// The caller's own name for it; `None` also after another message has taken over the key.
    pub key: Option<Key>,
    /// Text that is stored and delivered with the body.
    pub headers: Headers,
    /// When it was put.
    pub created: Timestamp,
    /// Its own lease in milliseconds, which overrides the queue's.
    pub lease_ms: Option<u64>,
    /// Its own limit of attempts, which overrides the queue's.
    pub max_attempts: Option<AttemptLimit>,
    /// Due, priority, attempts, state: the mutable part.
    pub standing: Standing,
}

impl<B> Message<B> {
    /// The same message with another body.
    pub fn with_body<C>(self, body: C) -> Message<C> {
        Message {
            id: self.id,
            number: self.number,
            queue: self.queue,
            body,
            key: self.key,
            headers: self.headers,
            created: self.created,
            lease_ms: self.lease_ms,
            max_attempts: self.max_attempts,
            standing: self.standing,
        }
    }
}
