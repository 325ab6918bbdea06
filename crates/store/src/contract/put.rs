//! The arguments of a put, and its answer.

use std::hash::Hasher as _;

use bytes::Bytes;
use dwell_model::{
    AttemptLimit, DEFAULT_PRIORITY, Headers, IdempotencyKey, Key, MessageId, Number, QueueName, Timestamp,
};
use siphasher::sip::SipHasher24;

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
    /// Its body.
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
    /// The instant, after due, past which it is dead unless it is leased.
    pub expires: Option<Timestamp>,
    /// Repeating a put with the same idempotency key returns the same answer and puts nothing. With another body or key
    /// it is refused.
    pub idempotency_key: Option<IdempotencyKey>,
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
            idempotency_key: None,
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

    /// Sets the caller's own name for it.
    pub fn key(self, key: Key) -> Put {
        Put { key: Some(key), ..self }
    }

    /// Sets what to do if a live message has the key already.
    pub fn on_conflict(self, on_conflict: OnConflict) -> Put {
        Put { on_conflict, ..self }
    }

    /// Sets the priority: smaller first, among messages that are already due.
    pub fn priority(self, priority: u32) -> Put {
        Put { priority, ..self }
    }

    /// Sets the idempotency key, which makes the put safe to repeat.
    pub fn idempotency_key(self, idempotency_key: IdempotencyKey) -> Put {
        Put { idempotency_key: Some(idempotency_key), ..self }
    }

    /// The digest of body and key, for which its idempotency key stands. A repeated put has the same digest, but may
    /// have another instant.
    pub fn digest(&self) -> PutDigest {
        PutDigest::of(self.key.as_ref(), &self.body)
    }
}

/// A 64-bit digest of what the idempotency key of a put stands for. It is stored, and so is the same in every store,
/// process and version.
///
/// SipHash-2-4 under a key of zeros, over the length of the message's key as eight little-endian bytes
/// (`u64::MAX` where it has none), the key, and the body. A collision between two puts of a caller only hides
/// a mistake of that caller, so there is no incentive to search for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PutDigest(pub u64);

impl PutDigest {
    /// Used in place of a digest where an earlier version has stored none: the idempotency key may stand for any put.
    pub const UNKNOWN: PutDigest = PutDigest(0);

    /// Whether a put with the digest `other` may be the one that an idempotency key with this digest stands for.
    pub fn may_be(self, other: PutDigest) -> bool {
        self == PutDigest::UNKNOWN || self == other
    }

    /// The digest of a put with this key and body; never [`UNKNOWN`](PutDigest::UNKNOWN).
    pub fn of(key: Option<&Key>, body: &[u8]) -> PutDigest {
        let mut hasher = SipHasher24::new();
        let len = key.map_or(u64::MAX, |key| key.as_str().len() as u64);
        hasher.write(&len.to_le_bytes());
        hasher.write(key.map_or(&[][..], |key| key.as_str().as_bytes()));
        hasher.write(body);
        PutDigest(hasher.finish().max(1))
    }
}

/// When a message is due. The store's clock converts all but `At` to an instant, at the put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum When {
    /// At once.
    #[default]
    Now,
    /// At this instant; a past one is due now.
    At(Timestamp),
    /// After this delay in ms.
    AfterMs(u64),
    /// After the delay at this level of the queue's table, counted from 1.
    Level(u32),
}

/// What a put does when a live message of the queue has its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnConflict {
    /// Refuse with [`Error::KeyTaken`](crate::Error::KeyTaken), which names the existing message.
    #[default]
    Reject,
    /// Put the new message and remove the old one. If the old one is leased, the key passes to the new one
    /// and the holder settles the old one, which has no key then.
    Replace,
    /// Keep the existing message, id and body; the earlier of the two instants wins. If it is leased, refuse
    /// with [`Error::Leased`](crate::Error::Leased).
    Keep,
}

/// The answer to a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutAnswer {
    /// The message that exists now: the new one, or the one that was kept.
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
    /// The existing message was kept.
    Kept,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored by every store, so no version may change it.
    #[test]
    fn a_digest_is_of_key_and_body_and_stays_what_it_is() {
        let key = |text: &str| Key::new(text).unwrap();
        let of = |of_key: Option<&str>, body: &str| PutDigest::of(of_key.map(key).as_ref(), body.as_bytes());
        let all = [of(None, ""), of(None, "ab"), of(Some("a"), "b"), of(Some("ab"), ""), of(Some("a"), "bc")];
        let distinct: std::collections::BTreeSet<u64> = all.iter().map(|digest| digest.0).collect();
        assert_eq!(distinct.len(), all.len());
        assert!(all[0].may_be(all[0]) && !all[0].may_be(all[1]) && PutDigest::UNKNOWN.may_be(all[0]));
        assert!(!all.contains(&PutDigest::UNKNOWN));
        let put = Put::new("q".parse().unwrap(), "b").key(key("a"));
        assert_eq!(put.clone().after_ms(9).priority(3).digest(), all[2]);
        assert_eq!(Put { queue: "other".parse().unwrap(), ..put }.digest(), all[2]);
    }
}
