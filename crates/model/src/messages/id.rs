//! The identity of a message: a 128-bit id, and a number.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::text::excerpt;
use crate::{Invalid, Timestamp};

/// A message's id: an RFC 9562 UUID of version 8.
///
/// | bits | field |
/// |---|---|
/// | 48 | due at put, in milliseconds |
/// | 4 | version, 8 |
/// | 12 | shard |
/// | 2 | variant, binary 10 |
/// | 22 | incarnation of the store |
/// | 40 | counter within the incarnation |
///
/// Ids sort by the due instant at the put, then by shard, then by the order of the puts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(u128);

impl MessageId {
    /// The highest shard.
    pub const MAX_SHARD: u16 = (1 << 12) - 1;
    /// The highest incarnation: a store that has been opened this many times refuses to open again.
    pub const MAX_INCARNATION: u32 = (1 << 22) - 1;
    /// The highest counter: a store that has reached it refuses puts until it is opened again.
    pub const MAX_COUNTER: u64 = (1 << 40) - 1;

    /// Composes an id of its fields.
    ///
    /// # Panics
    /// If a field is over its maximum: exhaustion has to be refused before an id is made.
    pub const fn new(due: Timestamp, shard: u16, incarnation: u32, counter: u64) -> MessageId {
        assert!(shard <= MessageId::MAX_SHARD);
        assert!(incarnation <= MessageId::MAX_INCARNATION);
        assert!(counter <= MessageId::MAX_COUNTER);
        let sequence = ((incarnation as u128) << 40) | counter as u128;
        MessageId(
            ((due.as_ms() as u128) << 80) | (8 << 76) | ((shard as u128) << 64) | (0b10 << 62) | sequence,
        )
    }

    /// The id with these bits.
    ///
    /// # Errors
    /// [`Invalid::MalformedId`] unless version and variant are right and the due instant is in range.
    pub fn from_bits(bits: u128) -> Result<MessageId, Invalid> {
        let id = MessageId(bits);
        let version = (bits >> 76) & 0xf;
        let variant = (bits >> 62) & 0b11;
        if version != 8 || variant != 0b10 || Timestamp::from_ms((bits >> 80) as i64).is_err() {
            return Err(Invalid::MalformedId { text: Uuid::from_u128(bits).to_string().into() });
        }
        Ok(id)
    }

    /// All 128 bits.
    pub const fn as_bits(self) -> u128 {
        self.0
    }

    /// The message's due instant at its put.
    pub fn due_at_put(self) -> Timestamp {
        Timestamp::from_ms((self.0 >> 80) as i64).expect("checked when the id was made")
    }

    /// The shard that the message was put into.
    pub const fn shard(self) -> u16 {
        (self.0 >> 64) as u16 & MessageId::MAX_SHARD
    }

    /// The incarnation of the store that put it.
    pub const fn incarnation(self) -> u32 {
        (self.0 >> 40) as u32 & MessageId::MAX_INCARNATION
    }

    /// Its index among the puts of that incarnation.
    pub const fn counter(self) -> u64 {
        self.0 as u64 & MessageId::MAX_COUNTER
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Uuid::from_u128(self.0), f)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MessageId {
    type Err = Invalid;

    /// Parses the hyphenated form, in either case.
    fn from_str(text: &str) -> Result<MessageId, Invalid> {
        let malformed = || Invalid::MalformedId { text: excerpt(text) };
        if text.len() != uuid::fmt::Hyphenated::LENGTH {
            return Err(malformed());
        }
        let uuid = Uuid::try_parse(text).map_err(|_| malformed())?;
        MessageId::from_bits(uuid.as_u128())
    }
}

/// A message's number: unique in its store, rising, from 1 to 2^53 − 1, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(u64);

impl Number {
    /// The highest number, which a double still represents exactly.
    pub const MAX: Number = Number((1 << 53) - 1);

    /// Checks `number`.
    ///
    /// # Errors
    /// [`Invalid::MalformedNumber`] for 0 and past [`Number::MAX`].
    pub fn new(number: u64) -> Result<Number, Invalid> {
        if (1..=Number::MAX.0).contains(&number) {
            Ok(Number(number))
        } else {
            Err(Invalid::MalformedNumber { text: number.to_string().into() })
        }
    }

    /// The number as an integer.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Number {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Number, Invalid> {
        let malformed = || Invalid::MalformedNumber { text: excerpt(text) };
        text.parse::<u64>()
            .map_err(|_| malformed())
            .and_then(|number| Number::new(number).map_err(|_| malformed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_gives_back_its_fields_and_sorts_by_due() {
        let due = Timestamp::from_ms(1_795_000_000_123).unwrap();
        let id = MessageId::new(due, 4095, MessageId::MAX_INCARNATION, MessageId::MAX_COUNTER);
        assert_eq!(
            (id.due_at_put(), id.shard(), id.incarnation(), id.counter()),
            (due, 4095, MessageId::MAX_INCARNATION, MessageId::MAX_COUNTER)
        );
        let uuid = Uuid::from_u128(id.as_bits());
        assert_eq!(uuid.get_version_num(), 8);
        assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
        let later = MessageId::new(due.after(1).unwrap(), 0, 0, 0);
        assert!(id < later);
        assert_eq!(MessageId::new(Timestamp::MAX, 0, 0, 1).due_at_put(), Timestamp::MAX);
    }

    #[test]
    fn reads_only_its_own_kind_of_uuid() {
        let id = MessageId::new(Timestamp::from_ms(5).unwrap(), 1, 2, 3);
        assert_eq!(id.to_string().parse::<MessageId>().unwrap(), id);
        assert_eq!(id.to_string().to_uppercase().parse::<MessageId>().unwrap(), id);
        for bad in ["", "x", "67e55044-10b1-426f-9247-bb680e5fe0c8", "{00000000-0005-8001-8000-020000000003}"]
        {
            assert!(bad.parse::<MessageId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_stay_below_two_to_the_53() {
        assert!(Number::new(0).is_err());
        assert!(Number::new(1 << 53).is_err());
        assert_eq!("9007199254740991".parse::<Number>().unwrap(), Number::MAX);
        assert!("-1".parse::<Number>().is_err());
    }
}
