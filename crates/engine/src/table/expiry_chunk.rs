//! Expiries: the entries of a file that expire, by (expires, ordinal), in chunks between the blocks and the index.
//!
//! | bytes of a chunk | field |
//! |---|---|
//! | 0–3 | CRC-32 of the rest, salted |
//! | 4–7 | number of pairs |
//! | 8– | pairs: expires (varint, less that of the pair before), ordinal (varint) |

use dwell_model::Timestamp;

use crate::journal::encoding::{ByteCursor, Read, Unreadable, put_varint};
use crate::journal::format::{Salt, u32_at};

/// The maximum number of pairs in a chunk.
pub(super) const CHUNK: usize = 1024;
const HEADER_LEN: usize = 8;

/// An expiry, and the ordinal of its entry.
pub(super) type Expiry = (Timestamp, u32);

/// Writes one chunk.
pub(super) fn put(out: &mut Vec<u8>, salt: Salt, pairs: &[Expiry]) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(pairs.len() as u32).to_le_bytes());
    let mut before = Timestamp::MIN;
    for (expires, ordinal) in pairs {
        put_varint(out, expires.ms_since(before));
        put_varint(out, u64::from(*ordinal));
        before = *expires;
    }
    let checksum = salt.checksum(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// Reads a chunk that begins with `first`; entries have ordinals below `len`.
pub(super) fn read(bytes: &[u8], salt: Salt, first: Expiry, len: u32) -> Read<Vec<Expiry>> {
    let malformed = Unreadable::Malformed;
    if bytes.len() < HEADER_LEN || salt.checksum(&bytes[4..]) != u32_at(bytes, 0) {
        return Err(malformed("a chunk of expiries fails its checksum"));
    }
    let mut cursor = ByteCursor::new(&bytes[HEADER_LEN..]);
    let mut pairs: Vec<Expiry> = Vec::new();
    let mut before = Timestamp::MIN;
    for _ in 0..u32_at(bytes, 4) {
        let expires = before.after(cursor.varint()?);
        let expires = expires.map_err(|_| malformed("an expiry is out of range"))?;
        let ordinal = u32::try_from(cursor.varint()?).ok().filter(|ordinal| *ordinal < len);
        let pair = (expires, ordinal.ok_or(malformed("an expiry of no entry"))?);
        if pairs.last().is_some_and(|before| *before >= pair) {
            return Err(malformed("expiries are out of order"));
        }
        before = expires;
        pairs.push(pair);
    }
    if !cursor.is_at_end() || pairs.first() != Some(&first) {
        return Err(malformed("a chunk of expiries is not the one that the index has there"));
    }
    Ok(pairs)
}
