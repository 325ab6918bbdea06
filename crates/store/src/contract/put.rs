//! What a put asks for, and its answer.

use bytes::Bytes;
use dwell_model::{
    AttemptLimit, DEFAULT_PRIORITY, Headers, Key, MessageId, Number, PutToken, QueueName, Timestamp,
};

/// A message to be put.
///
/// ```
/// use dwell_store::Put;
/// let put = Put::new("orders".parse().unwrap(), "close order 7").after_ms(30 * 60 * 1000);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The queue it goes to.
    pub queue: QueueName,
    /// What it carries.
    pub body: Bytes,
    /// When it is due.
    pub when: When,
    /// The caller's own name for it.
    pub key: Option<Key>,
    /// What to do if a live message has the key already.
    pub on_conflict: OnConflict,
    /// Text that travels with the body.
    pub headers: Headers,
    /// Smaller first, among messages that are already due.
    pub priority: u32,
    /// Its own lease in milliseconds, over the queue's; bounds as [`dwell_model::Setting::LeaseMs`].
    pub lease_ms: Option<u64>,
    /// Its own limit of attempts, over the queue's.
    pub max_attempts: Option<AttemptLimit>,
    /// The instant, after due, past which it is dead if nobody holds it.
    pub expires: Option<Timestamp>,
    /// Repeating a put with the same token gives the same answer and puts nothing.
    pub token: Option<PutToken>,
}

impl Put {
    /// A message that is due at once, with defaults for all else.
    pub fn new(queue: QueueName, body: impl Into<Bytes>) -> Put {
        Put {
            queue,
            body: body.into(),
            when: When::Now,
            key: None,
            on_conflict: OnConflict::default(),
            headers: Headers::default(),
            priority: DEFAULT_PRIORITY,
            lease_ms: None,
            max_attempts: None,
            expires: None,
            token: None,
        }
    }

    /// Due at `due`; a past instant is due now.
    pub fn at(self, due: Timestamp) -> Put {
        Put { when: When::At(due), ..self }
    }

    /// Due `delay_ms` after the put, by the store's clock.
    pub fn after_ms(self, delay_ms: u64) -> Put {
        Put { when: When::AfterMs(delay_ms), ..self }
    }

    /// Under the caller's own name.
    pub fn key(self, key: Key) -> Put {
        Put { key: Some(key), ..self }
    }

    /// What to do if a live message has the key already.
    pub fn on_conflict(self, on_conflict: OnConflict) -> Put {
        Put { on_conflict, ..self }
    }

    /// Smaller first, among messages that are already due.
    pub fn priority(self, priority: u32) -> Put {
        Put { priority, ..self }
    }

    /// Made harmless to repeat.
    pub fn token(self, token: PutToken) -> Put {
        Put { token: Some(token), ..self }
    }
}

/// When a message is due. The store's clock turns all but `At` into an instant, at the put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum When {
    /// At once.
    #[default]
    Now,
    /// At this instant; a past one is due now.
    At(Timestamp),
    /// So many milliseconds later.
    AfterMs(u64),
    /// After the delay that the queue's table has at this place, counted from 1.
    Level(u32),
}

/// What a put does when a live message of the queue has its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnConflict {
    /// Refuse with [`Error::KeyTaken`](crate::Error::KeyTaken), which names the message that stands.
    #[default]
    Reject,
    /// Put the new message; the old one is gone. If the old one is leased, the key passes to the new one
    /// and the holder settles the old one, keyless.
    Replace,
    /// Keep the standing message, id and body; the earlier of the two instants wins. If it is leased,
    /// refuse with [`Error::Leased`](crate::Error::Leased).
    Keep,
}

/// The answer to a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutAnswer {
    /// The message that stands.
    pub id: MessageId,
    /// Its number.
    pub number: Number,
    /// When it is due.
    pub due: Timestamp,
    /// What the put did.
    pub outcome: PutOutcome,
}

/// What a put did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// A new message.
    Created,
    /// A new message, in place of this one.
    Replaced(MessageId),
    /// The standing message was kept.
    Kept,
}
