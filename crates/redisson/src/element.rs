//! The packed element: what Redisson's scripts write for one pending message, in both layouts.
//!
//! ```text
//! new  since 3.21.1   struct.pack('Bc0Lc0', 8, id, #payload, payload)   u8 8 · 8 bytes · u64 length · payload
//! old  up to 3.21.0   struct.pack('dLc0', id, #payload, payload)        f64 · u64 length · payload
//! ```
//!
//! Numbers are little-endian, lengths have 8 bytes, and there is no padding (Redis' `lua_struct.c` on 64-bit Unix). The
//! bytes do not state their layout. It follows from the length, which must match the total size exactly.
//! `lua/element.lua` has the same rule; a test runs both on the same bytes.

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// The layout of an element, which depends on the release of Redisson.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Redisson 2.7.0 to 3.21.0.
    Old,
    /// Redisson 3.21.1 and later.
    New,
}

impl Layout {
    /// `old` or `new`, as used by scripts and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Layout::Old => "old",
            Layout::New => "new",
        }
    }
}

impl serde::Serialize for Layout {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A decoded element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    /// Its layout.
    pub layout: Layout,
    /// The id that distinguishes equal payloads: random bytes, or the bytes of a random double.
    pub id: &'a [u8],
    /// The bytes that the codec wrote.
    pub payload: &'a [u8],
}

/// The bytes are not a packed element. Java's transfer script fails at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{size} bytes that are no packed element of any Redisson layout")]
pub struct Undecodable {
    /// The number of bytes.
    pub size: usize,
}

/// The size of Redisson's ids in bytes.
const ID_SIZE: usize = 8;
const LENGTH_SIZE: usize = 8;

/// Decodes a packed element.
///
/// Where both layouts fit, the double decides: Redisson packed a random 64-bit integer as a double, so its exponent is
/// near 63. One ambiguity remains: a new element with an empty payload whose random id looks like such a double, about
/// one in ten million of these.
///
/// # Errors
/// [`Undecodable`] if neither layout fits exactly.
///
/// ```
/// use dwell_redisson::{Layout, decode_element, encode_element};
///
/// let packed = encode_element(Layout::New, *b"\x01\x02\x03\x04\x05\x06\x07\x08", b"hello");
/// assert_eq!(packed, b"\x08\x01\x02\x03\x04\x05\x06\x07\x08\x05\0\0\0\0\0\0\0hello");
/// assert_eq!(decode_element(&packed).unwrap().payload, b"hello");
/// ```
pub fn decode(packed: &[u8]) -> Result<Element<'_>, Undecodable> {
    match (new(packed), old(packed)) {
        (Some(_), Some(old)) if is_random_long(old.id) => Ok(old),
        (Some(new), _) => Ok(new),
        (None, Some(old)) => Ok(old),
        (None, None) => Err(Undecodable { size: packed.len() }),
    }
}

/// Packs an element as Java does.
pub fn encode(layout: Layout, id: [u8; ID_SIZE], payload: &[u8]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(1 + ID_SIZE + LENGTH_SIZE + payload.len());
    if layout == Layout::New {
        packed.push(ID_SIZE as u8);
    }
    packed.extend_from_slice(&id);
    packed.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    packed.extend_from_slice(payload);
    packed
}

/// Packs a payload in this layout, with a new id.
pub(crate) fn pack(layout: Layout, payload: &[u8]) -> Vec<u8> {
    loop {
        let random = RandomState::new().build_hasher().finish();
        let id = match layout {
            Layout::New => random.to_le_bytes(),
            Layout::Old => (random as i64 as f64).to_le_bytes(),
        };
        let packed = encode(layout, id, payload);
        // Skips an id that would make the element look like one of the other layout.
        if decode(&packed).is_ok_and(|element| element.layout == layout && element.payload == payload) {
            return packed;
        }
    }
}

fn new(packed: &[u8]) -> Option<Element<'_>> {
    let (size, rest) = packed.split_first()?;
    if *size == 0 {
        return None;
    }
    let (id, rest) = rest.split_at_checked(usize::from(*size))?;
    Some(Element { layout: Layout::New, id, payload: exactly(rest)? })
}

fn old(packed: &[u8]) -> Option<Element<'_>> {
    let (id, rest) = packed.split_at_checked(ID_SIZE)?;
    Some(Element { layout: Layout::Old, id, payload: exactly(rest)? })
}

/// The bytes after a length prefix that matches their number exactly.
fn exactly(rest: &[u8]) -> Option<&[u8]> {
    let (length, payload) = rest.split_first_chunk::<LENGTH_SIZE>()?;
    (u64::from_le_bytes(*length) == payload.len() as u64).then_some(payload)
}

/// Whether a double could be a random 64-bit integer: its exponent is between 30 and 63.
fn is_random_long(double: &[u8]) -> bool {
    let exponent = (u16::from(double[7] & 0x7f) << 4 | u16::from(double[6] >> 4)) as i32 - 1023;
    (30..=63).contains(&exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "hello" as packed by real clients: 3.21.0 and 4.7.0.
    const OLD: &[u8] = b"\x79\x09\x89\x2a\xaf\x16\xac\x43\x05\0\0\0\0\0\0\0hello";
    const NEW: &[u8] = b"\x08\x18\x8a\xbb\x3f\x5b\x91\x50\x05\x05\0\0\0\0\0\0\0hello";

    #[test]
    fn elements_of_real_clients_are_read() {
        for (bytes, layout) in [(OLD, Layout::Old), (NEW, Layout::New)] {
            let element = decode(bytes).unwrap();
            assert_eq!((element.layout, element.payload), (layout, b"hello".as_slice()));
            assert_eq!(encode(layout, element.id.try_into().unwrap(), element.payload), bytes);
        }
    }

    #[test]
    fn ids_of_other_lengths_are_read() {
        for size in 1..=255_u8 {
            let mut packed = vec![size];
            packed.extend(std::iter::repeat_n(0xee, usize::from(size)));
            packed.extend_from_slice(&3_u64.to_le_bytes());
            packed.extend_from_slice(b"abc");
            assert_eq!(decode(&packed).unwrap().payload, b"abc", "{size}");
        }
    }

    #[test]
    fn an_old_element_whose_double_begins_like_a_length_stays_old() {
        for first in 0..=255_u8 {
            for payload in [b"".as_slice(), b"\0", b"hello", &[0; 40]] {
                let packed = encode(Layout::Old, [first, 9, 0x89, 0x2a, 0xaf, 0x16, 0xac, 0x43], payload);
                let element = decode(&packed).unwrap();
                assert_eq!(element.payload, payload, "first byte {first}");
                assert_eq!(element.layout, Layout::Old, "first byte {first}");
            }
        }
    }

    #[test]
    fn what_we_pack_is_what_we_read() {
        for layout in [Layout::Old, Layout::New] {
            for size in [0_usize, 1, 2, 7, 8, 9, 100, 70_000] {
                for _ in 0..50 {
                    let payload = vec![0; size];
                    let packed = pack(layout, &payload);
                    let element = decode(&packed).unwrap();
                    assert_eq!((element.layout, element.payload), (layout, payload.as_slice()));
                }
            }
        }
    }

    #[test]
    fn anything_cut_or_longer_is_refused() {
        for whole in [OLD, NEW] {
            for size in 0..whole.len() {
                assert_eq!(decode(&whole[..size]), Err(Undecodable { size }), "{size}");
            }
            let longer = [whole, b"x"].concat();
            assert!(decode(&longer).is_err());
        }
        assert!(decode(b"hello").is_err());
    }
}
