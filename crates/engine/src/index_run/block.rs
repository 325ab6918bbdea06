//! Blocks of a run: pairs that are read together. Little-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 0–3 | CRC-32 of the rest, salted |
//! | 4–7 | number of pairs |
//! | 8– | pairs: key (varint, less that of the previous pair, the first from 0), value |
//!
//! A block is closed when it has [`TARGET`] bytes, before the next key that differs; with [`HARD`] bytes it is closed
//! even if the next key is the same. So the values of a key are in one block unless there are very many.

use std::ops::ControlFlow;

use super::value::IndexValue;
use crate::journal::encoding::{ByteCursor, Read, Unreadable, put_varint};
use crate::journal::format::{Salt, u32_at};

pub(super) const TARGET: usize = 4 * 1024;
pub(super) const HARD: usize = 64 * 1024;
const HEADER_LEN: usize = 8;

/// A block that is being filled.
#[derive(Debug, Default)]
pub(super) struct BlockBuilder {
    bytes: Vec<u8>,
    count: u32,
    last: u64,
}

impl BlockBuilder {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The length of its pairs in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it is closed before a pair with this key.
    pub(super) fn is_full(&self, key: u64) -> bool {
        let len = HEADER_LEN + self.bytes.len();
        !self.is_empty() && (len >= HARD || len >= TARGET && key != self.last)
    }

    pub(super) fn add<V: IndexValue>(&mut self, key: u64, value: V) {
        put_varint(&mut self.bytes, key - self.last);
        value.put(&mut self.bytes);
        (self.count, self.last) = (self.count + 1, key);
    }

    /// Writes the block to `out`, and begins the next.
    pub(super) fn close(&mut self, salt: Salt, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.bytes);
        let checksum = salt.checksum(&out[start + 4..]);
        out[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
        self.bytes.clear();
        (self.count, self.last) = (0, 0);
    }
}

/// Reads a block that begins with the key `first`: all pairs, in order, until `each` breaks off.
pub(super) fn read<V: IndexValue>(
    bytes: &[u8],
    salt: Salt,
    first: u64,
    mut each: impl FnMut(u64, V) -> ControlFlow<()>,
) -> Read<()> {
    let malformed = Unreadable::Malformed;
    if bytes.len() < HEADER_LEN || salt.checksum(&bytes[4..]) != u32_at(bytes, 0) {
        return Err(malformed("a block fails its checksum"));
    }
    let mut cursor = ByteCursor::new(&bytes[HEADER_LEN..]);
    let mut before: Option<(u64, V)> = None;
    for _ in 0..u32_at(bytes, 4) {
        let key = before.map_or(0, |(key, _)| key).checked_add(cursor.varint()?);
        let key = key.ok_or(malformed("a key is out of range"))?;
        let value = V::read(&mut cursor)?;
        let is_next = match before {
            None => key == first,
            Some(_) if V::IS_UNIQUE => before.is_some_and(|(before, _)| before < key),
            Some(before) => before < (key, value),
        };
        if !is_next {
            return Err(malformed("a block is out of order, or not the one that the index has there"));
        }
        if each(key, value).is_break() {
            return Ok(());
        }
        before = Some((key, value));
    }
    if before.is_none() || !cursor.is_at_end() {
        return Err(malformed("a block is empty, or longer than its pairs"));
    }
    Ok(())
}
