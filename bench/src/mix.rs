//! Messages of several queues, some with keys, some with priorities. Each is derived from its index in the stream, so
//! that nothing has to be stored for a hundred million of them.

use std::ops::Range;

use bytes::Bytes;
use dwell_model::{DEFAULT_PRIORITY, Key, MessageId, QueueName, Timestamp};
use dwell_store::{Put, Target};
use dwell_testkit::Random;
use serde_json::{Value, json};

use crate::Result;
use crate::ours::start;
use crate::own_process::count;
use crate::workload::{BODY_BYTES, Tally};

/// The parameters of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mix {
    pub(crate) count: u64,
    /// The number of queues that they are spread over.
    pub(crate) queues: u64,
    /// They are due at random within this many milliseconds.
    pub(crate) span_ms: u64,
    /// One in this many has a key; 0: none.
    pub(crate) keyed: u64,
    /// One in this many is due at one common millisecond, in the middle of the span; 0: none.
    pub(crate) at_once: u64,
    /// The number of priorities.
    pub(crate) priorities: u64,
    /// All expire this many milliseconds after the first instant; 0: never.
    pub(crate) expires_ms: u64,
}

/// Combined with a message's index, it seeds the random values of that message.
const SEED: u64 = 0x6477_656C_6C21;

/// One message in this many has a mark in its body, by which it is recognised on its way to the disk.
pub(crate) const MARKED: u64 = 251;
/// The mark, which follows the message's number.
pub(crate) const MARK: [u8; 8] = [0xD5, 0x1E, 0xB0, 0xD7, 0x9A, 0x3C, 0xE2, 0x61];

impl Mix {
    /// `count` messages in one queue, due within `span_ms`.
    pub(crate) fn plain(count: u64, span_ms: u64) -> Mix {
        Mix { count, queues: 1, span_ms, keyed: 0, at_once: 0, priorities: 1, expires_ms: 0 }
    }

    fn random(number: u64) -> Random {
        let mut spread = Random::new(SEED ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Random::new(spread.next())
    }

    /// The index of a message's queue.
    pub(crate) fn queue(&self, number: u64) -> usize {
        (Mix::random(number).next() % self.queues) as usize
    }

    /// The name of a queue.
    pub(crate) fn queue_name(&self, queue: usize) -> QueueName {
        format!("bench-{queue:02}").parse().expect("it is a queue's name")
    }

    pub(crate) fn queue_names(&self) -> Vec<QueueName> {
        (0..self.queues as usize).map(|queue| self.queue_name(queue)).collect()
    }

    /// A message's due instant.
    pub(crate) fn due(&self, number: u64) -> Timestamp {
        let mut random = Mix::random(number);
        random.next();
        let drawn = random.next();
        let is_at_once = self.at_once > 0 && number.is_multiple_of(self.at_once);
        start().saturating_after(if is_at_once { self.span_ms / 2 } else { drawn % self.span_ms })
    }

    /// The due instant of a message after it is moved.
    pub(crate) fn moved_due(&self, number: u64) -> Timestamp {
        let mut random = Mix::random(!number);
        start().saturating_after(random.next() % self.span_ms)
    }

    pub(crate) fn key(&self, number: u64) -> Option<Key> {
        let is_keyed = self.keyed > 0 && number.is_multiple_of(self.keyed);
        is_keyed.then(|| format!("order-{number:012}").parse().expect("it is a key"))
    }

    fn priority(&self, number: u64) -> u32 {
        let rank = (Mix::random(number).next() >> 40) % self.priorities;
        DEFAULT_PRIORITY - (self.priorities / 2) as u32 + rank as u32
    }

    /// A message's body: its number, then random bytes; one in [`MARKED`] has a mark in between.
    pub(crate) fn body(number: u64) -> [u8; BODY_BYTES] {
        let mut body = [0; BODY_BYTES];
        let mut random = Mix::random(number);
        for word in body.chunks_exact_mut(8) {
            word.copy_from_slice(&random.next().to_le_bytes());
        }
        body[..8].copy_from_slice(&number.to_le_bytes());
        if number.is_multiple_of(MARKED) {
            body[8..16].copy_from_slice(&MARK);
        }
        body
    }

    /// Puts of these messages. Their bodies share one buffer, as when a server has read them.
    pub(crate) fn puts(&self, numbers: Range<u64>) -> Vec<Put> {
        let bodies: Bytes = numbers.clone().flat_map(Mix::body).collect();
        let names = self.queue_names();
        let put = |(number, place): (u64, usize)| {
            let body = bodies.slice(place * BODY_BYTES..(place + 1) * BODY_BYTES);
            let put = Put::new(names[self.queue(number)].clone(), body).at(self.due(number));
            let expires = (self.expires_ms > 0).then(|| start().saturating_after(self.expires_ms));
            Put { key: self.key(number), priority: self.priority(number), expires, ..put }
        };
        numbers.zip(0..).map(put).collect()
    }

    /// The sum of the bodies of the messages that `wanted` selects.
    pub(crate) fn tally(&self, wanted: impl Fn(u64) -> bool) -> Tally {
        let mut tally = Tally::default();
        (0..self.count).filter(|number| wanted(*number)).for_each(|number| tally.add(&Mix::body(number)));
        tally
    }

    pub(crate) fn json(&self) -> Value {
        let Mix { count, queues, span_ms, keyed, at_once, priorities, expires_ms } = self;
        json!({ "count": count, "queues": queues, "span_ms": span_ms, "keyed": keyed, "at_once": at_once,
            "priorities": priorities, "expires_ms": expires_ms })
    }

    pub(crate) fn parse(value: &Value) -> Result<Mix> {
        let field = |name| count(value, name);
        Ok(Mix {
            count: field("count")?,
            queues: field("queues")?,
            span_ms: field("span_ms")?,
            keyed: field("keyed")?,
            at_once: field("at_once")?,
            priorities: field("priorities")?,
            expires_ms: field("expires_ms")?,
        })
    }
}

/// The ids of messages that were put one after the other since an opening. They follow from any one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ids(u128);

impl Ids {
    /// The part of an id that does not depend on the due; the counter is its low end.
    const SEQUENCE: u128 = (1 << 80) - 1;

    /// Derives the ids of all messages from that of message `number`.
    pub(crate) fn from_one(id: MessageId, number: u64) -> Ids {
        Ids((id.as_bits() & Ids::SEQUENCE).wrapping_sub(u128::from(number)))
    }

    /// The id of message `number`, which was put with this due instant.
    pub(crate) fn id(&self, number: u64, due: Timestamp) -> Result<MessageId> {
        let due = u128::from(due.as_ms().unsigned_abs()) << 80;
        Ok(MessageId::from_bits(due | self.0.wrapping_add(u128::from(number)))?)
    }

    /// Names a message in a call: by its key if it has one, otherwise by its id.
    pub(crate) fn target(&self, mix: &Mix, number: u64) -> Result<Target> {
        match mix.key(number) {
            Some(key) => Ok(Target::Key(key)),
            None => Ok(Target::Id(self.id(number, mix.due(number))?)),
        }
    }

    pub(crate) fn json(&self) -> Value {
        self.0.to_string().into()
    }

    pub(crate) fn parse(value: &Value) -> Result<Ids> {
        Ok(Ids(value.as_str().ok_or("`ids` is missing")?.parse()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_as_it_is_described_and_survives_a_process() {
        let mix = Mix {
            count: 9_000,
            queues: 7,
            span_ms: 1_000,
            keyed: 3,
            at_once: 2,
            priorities: 3,
            expires_ms: 2_000,
        };
        assert_eq!(Mix::parse(&mix.json()).unwrap(), mix);
        let puts: Vec<Put> = mix.puts(0..mix.count);
        let queues: std::collections::BTreeSet<_> = puts.iter().map(|put| put.queue.clone()).collect();
        let priorities: std::collections::BTreeSet<_> = puts.iter().map(|put| put.priority).collect();
        assert_eq!((queues.len(), priorities), (7, [1_023, 1_024, 1_025].into()));
        assert_eq!(puts.iter().filter(|put| put.key.is_some()).count(), 3_000);
        let at_once = (0..mix.count).filter(|number| mix.due(*number) == start().saturating_after(500));
        assert!((4_500..4_600).contains(&at_once.count()));
        let mut tally = Tally::default();
        puts.iter().for_each(|put| tally.add(&put.body));
        assert_eq!(tally, mix.tally(|_| true));
        assert!(puts.iter().all(|put| put.expires == Some(start().saturating_after(2_000))));
        assert_eq!(puts[77].body[..], Mix::body(77));
    }

    #[test]
    fn ids_follow_from_one_of_them() {
        let mix = Mix::plain(10, 1_000);
        let ids = Ids::from_one(MessageId::new(mix.due(2), 3, 2, 42), 2);
        assert_eq!(Ids::parse(&ids.json()).unwrap(), ids);
        assert_eq!(ids.id(5, mix.due(5)).unwrap(), MessageId::new(mix.due(5), 3, 2, 45));
    }
}
