//! The records that the core writes to its log: facts, enough of them to rebuild the same core.
//!
//! Ground rules:
//! 1. A record says what a message has become, never how: replaying needs no transition logic, so that a
//!    later version of the state machine reads an old log as it was meant.
//! 2. Every change is recorded as it is made, in order, with two exceptions: that a scheduled message became
//!    ready, and that a cold one expired. The log keeps the wall time of each batch instead (that of its last
//!    call); at replay, messages that are due by it become ready, and cold ones that expire by it die. When
//!    the wall clock steps back, the core records the last time before the step.
//! 3. Settings, purges and the like are one record each, whatever their size; replayed at the same place
//!    among the other records, they apply to the same messages.

use bytes::Bytes;
use dwell_model::{
    AttemptLimit, Headers, IdempotencyKey, Key, MessageId, Number, QueueName, SettingChange, Standing,
    Timestamp,
};

use super::Cold;
use crate::{PutAnswer, PutDigest};

/// A message that was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutRecord {
    /// Its identity.
    pub id: MessageId,
    /// Its number.
    pub number: Number,
    /// The queue it went to.
    pub queue: QueueName,
    /// When it is due.
    pub due: Timestamp,
    /// Its priority.
    pub priority: u32,
    /// When it was put.
    pub created: Timestamp,
    /// The caller's own name for it.
    pub key: Option<Key>,
    /// Text that travels with the body.
    pub headers: Headers,
    /// Its own lease in milliseconds.
    pub lease_ms: Option<u64>,
    /// Its own limit of attempts.
    pub max_attempts: Option<AttemptLimit>,
    /// Its expiry.
    pub expires: Option<Timestamp>,
    /// The put's idempotency key, and what is remembered with it.
    pub idempotency_key: Option<IdempotencyRecord>,
    /// The message whose key it took over. A record of what happened to that message precedes this one.
    pub replaces: Option<MessageId>,
}

/// The idempotency key of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyRecord {
    /// The idempotency key.
    pub idempotency_key: IdempotencyKey,
    /// Until when it is remembered.
    pub until: Timestamp,
    /// What it stands for.
    pub digest: PutDigest,
}

/// Any other fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The present standing of a message.
    Stands {
        /// The message.
        number: Number,
        /// Its mutable part, whole.
        standing: Standing,
    },
    /// A message was removed.
    Gone {
        /// The message.
        number: Number,
    },
    /// A put that put nothing was answered under an idempotency key.
    Answered {
        /// The queue.
        queue: QueueName,
        /// The put's idempotency key, and what is remembered with it.
        idempotency_key: IdempotencyRecord,
        /// The answer, which is repeated for the idempotency key.
        answer: PutAnswer,
    },
    /// The wall clock stepped back. Every message due by `wall`, in any queue, is ready and stays so.
    Ripe {
        /// The last reading before the step.
        wall: Timestamp,
    },
    /// A setting of a queue was changed.
    Configured {
        /// The queue.
        queue: QueueName,
        /// The change.
        change: SettingChange,
    },
    /// All scheduled and ready messages of a queue were removed.
    Purged {
        /// The queue.
        queue: QueueName,
    },
    /// All dead messages of a queue were removed.
    Discarded {
        /// The queue.
        queue: QueueName,
    },
    /// All dead messages of a queue, oldest first, were revived, except those whose key had a new owner. No
    /// longer recorded: each [stands](Record::Stands) for itself. Old logs have it.
    Revived {
        /// The queue.
        queue: QueueName,
        /// Their instant.
        due: Timestamp,
        /// The wall time of the revival: it decides which expiries had passed.
        wall: Timestamp,
    },
    /// All messages of a queue but the leased were removed, and its own settings.
    Deleted {
        /// The queue.
        queue: QueueName,
    },
}

/// Whether an answer has to wait until a record is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It has to wait.
    Synced,
    /// It is enough that the operating system has it: a lease, its end without a consumer, or a change by
    /// time alone. After a power failure the message is there again as it was before.
    Written,
}

/// What the core keeps of a body: the bytes themselves, or their location.
pub trait StoredBody: Clone {
    /// The length of the body in bytes.
    fn body_len(&self) -> usize;
}

impl StoredBody for Bytes {
    fn body_len(&self) -> usize {
        self.len()
    }
}

/// The destination of the core's records. Nothing is durable when these return: the owner of the log makes it
/// durable before the answers are sent.
pub trait Log<B> {
    /// Writes a put and its body; returns the body's location. Always [`Durability::Synced`].
    fn put(&mut self, record: &PutRecord, body: &Bytes) -> B;

    /// Writes any other fact.
    fn record(&mut self, record: &Record, durability: Durability);

    /// Requests that the wall time of the batch is kept, even if nothing else is in it: answers depended on
    /// the clock without a record. [`Durability::Written`].
    fn keep_time(&mut self) {}

    /// Whether this is a replay of a log, which records nothing.
    fn is_replay(&self) -> bool {
        false
    }

    /// The store of messages that are not in memory; `None` if all are in memory.
    fn cold(&mut self) -> Option<&mut dyn Cold<B>> {
        None
    }
}

/// A log that keeps nothing: bodies stay in memory.
#[derive(Debug, Default)]
pub struct NoLog;

impl Log<Bytes> for NoLog {
    fn put(&mut self, _: &PutRecord, body: &Bytes) -> Bytes {
        body.clone()
    }

    fn record(&mut self, _: &Record, _: Durability) {}
}
