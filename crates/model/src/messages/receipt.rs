//! Receipts: the proof of a lease.

use std::fmt;
use std::str::FromStr;

use super::base64;
use crate::text::excerpt;
use crate::{Invalid, MessageId, QueueName};

/// A lease's token, which a store never issues twice: not across restart, failover or give-back.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseToken(pub u128);

impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// Proof of a lease, with which a consumer settles a message.
///
/// Its text is opaque to consumers and safe as one path segment of a URL: base64url (RFC 4648 §5, no padding) of
///
/// | bytes | field |
/// |---|---|
/// | 1 | version, 1 |
/// | 16 | message id, big-endian |
/// | 16 | lease token, big-endian |
/// | 1–200 | queue name |
/// | 4 | CRC-32 (IEEE) of all before it, little-endian |
///
/// To change the format: raise the version, and keep reading the old one for as long as leases may last.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The queue that the message is in.
    pub queue: QueueName,
    /// The message.
    pub id: MessageId,
    /// The lease.
    pub token: LeaseToken,
}

const VERSION: u8 = 1;

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(37 + self.queue.as_str().len());
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.id.as_bits().to_be_bytes());
        bytes.extend_from_slice(&self.token.0.to_be_bytes());
        bytes.extend_from_slice(self.queue.as_str().as_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        f.write_str(&base64::encode(&bytes))
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{:?}", self.queue, self.id, self.token)
    }
}

impl FromStr for Receipt {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Receipt, Invalid> {
        parse(text).ok_or_else(|| Invalid::MalformedReceipt { text: excerpt(text) })
    }
}

fn parse(text: &str) -> Option<Receipt> {
    let bytes = base64::decode(text)?;
    let (payload, crc) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(payload) != u32::from_le_bytes(*crc) {
        return None;
    }
    let (&version, rest) = payload.split_first()?;
    let (id, rest) = rest.split_first_chunk::<16>()?;
    let (token, queue) = rest.split_first_chunk::<16>()?;
    if version != VERSION {
        return None;
    }
    Some(Receipt {
        queue: QueueName::new(std::str::from_utf8(queue).ok()?).ok()?,
        id: MessageId::from_bits(u128::from_be_bytes(*id)).ok()?,
        token: LeaseToken(u128::from_be_bytes(*token)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    #[test]
    fn a_receipt_survives_its_text_and_any_damage_is_noticed() {
        let receipt = Receipt {
            queue: QueueName::new("orders/eu;1").unwrap(),
            id: MessageId::new(Timestamp::from_ms(77).unwrap(), 3, 2, 1),
            token: LeaseToken(u128::MAX - 5),
        };
        let text = receipt.to_string();
        assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'), "{text}");
        assert_eq!(text.parse::<Receipt>().unwrap(), receipt);
        for at in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
            let damaged = String::from_utf8(damaged).unwrap();
            assert!(damaged.parse::<Receipt>().is_err(), "{damaged}");
            assert!(text[..at].parse::<Receipt>().is_err());
        }
    }
}
