//! What a put asks for, and its answer.

use std::hash::Hasher as _;

use bytes::Bytes;
use dwell_model::{
    AttemptLimit, DEFAULT_PRIORITY, Headers, Key, MessageId, Number, PutToken, QueueName, Timestamp,
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
    /// Repeating a put with the same token gives the same answer and puts nothing. With another body or key it is refused.
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

    /// What its token stands for: body and key. A repeated put has the same, though its instant may be another.
    pub fn digest(&self) -> PutDigest {
        PutDigest::of(self.key.as_ref(), &self.body)
    }
}

/// 64 bits of what a put's token stands for. The same in every store, process and version: it is stored.
///
/// SipHash-2-4 under a key of zeros, over the length of the message's key as eight little-endian bytes (`u64::MAX` where it has
/// none), the key, and the body. Two puts of a caller that are taken for one only leave a mistake of its own unnoticed, so nobody
/// gains by looking for such.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PutDigest(pub u64);

impl PutDigest {
    /// In place of a digest where an earlier version has kept none: any put may be what the token stands for.
    pub const UNKNOWN: PutDigest = PutDigest(0);

    /// Whether a put with the digest `other` may be what a token with this one stands for.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored by every store: no version may change it.
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
