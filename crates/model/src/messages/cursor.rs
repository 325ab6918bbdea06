//! The position in a list at which the next page begins.

use std::fmt;
use std::str::FromStr;

use super::base64;
use crate::text::excerpt;
use crate::{Invalid, MessageId, Timestamp};

/// The last message of a page, by (due, id): the next page begins after it.
///
/// Its text is opaque: base64url of due (8 bytes) and id (16 bytes), big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// Its due instant.
    pub due: Timestamp,
    /// Its id.
    pub id: MessageId,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.due.as_ms().to_be_bytes());
        bytes[8..].copy_from_slice(&self.id.as_bits().to_be_bytes());
        f.write_str(&base64::encode(&bytes))
    }
}

impl FromStr for Cursor {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Cursor, Invalid> {
        parse(text).ok_or_else(|| Invalid::MalformedCursor { text: excerpt(text) })
    }
}

fn parse(text: &str) -> Option<Cursor> {
    let bytes: [u8; 24] = base64::decode(text)?.try_into().ok()?;
    let (due, id) = bytes.split_first_chunk::<8>()?;
    Some(Cursor {
        due: Timestamp::from_ms(i64::from_be_bytes(*due)).ok()?,
        id: MessageId::from_bits(u128::from_be_bytes(id.try_into().ok()?)).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_its_text() {
        let due = Timestamp::from_ms(42).unwrap();
        let cursor = Cursor { due, id: MessageId::new(due, 1, 2, 3) };
        assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
        assert!("".parse::<Cursor>().is_err());
        assert!("AAAA".parse::<Cursor>().is_err());
    }
}
