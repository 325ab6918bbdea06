//! The index of a run: the part of it that is in memory while it is open, and its stored form.
//!
//! Varints, one after the other: the number of pairs; the number of blocks, then for each: its length, its first key
//! (less that of the previous block, at first from 0); the last key of all; the number of words of the filter, 0 for no
//! filter; then tagged fields, of which there are none yet.

use std::ops::{Range, RangeInclusive};

use super::block::HARD;
use super::filter::Filter;
use crate::journal::encoding::{ByteCursor, Read, Unreadable, end_fields, put_varint};
use crate::sealed::HEADER_LEN;

/// The highest number of a field at the end.
const FIELDS: u64 = 0;
/// The minimum length of a block's part of the index in bytes.
const LEAST: u64 = 2;

/// Blocks, 12 bytes each.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RunIndex {
    pub(super) len: u64,
    at: Vec<u32>,
    first: Vec<u64>,
    /// The offset at which the last block ends, and the filter begins.
    pub(super) end: u32,
    pub(super) last: u64,
}

impl RunIndex {
    pub(super) fn new() -> RunIndex {
        RunIndex { len: 0, at: Vec::new(), first: Vec::new(), end: HEADER_LEN as u32, last: 0 }
    }

    pub(super) fn blocks(&self) -> usize {
        self.at.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.at.capacity() * 4 + self.first.capacity() * 8
    }

    pub(super) fn shrink(&mut self) {
        self.at.shrink_to_fit();
        self.first.shrink_to_fit();
    }

    /// Adds a block; false if it exceeds the range of offsets.
    pub(super) fn push(&mut self, len: u32, first: u64) -> bool {
        let Some(end) = self.end.checked_add(len) else { return false };
        self.at.push(self.end);
        self.first.push(first);
        self.end = end;
        true
    }

    /// The lowest and the highest key.
    pub(super) fn range(&self) -> Option<(u64, u64)> {
        self.first.first().map(|first| (*first, self.last))
    }

    pub(super) fn first(&self, block: usize) -> u64 {
        self.first[block]
    }

    /// The range of the keys that a block may have pairs of.
    pub(super) fn keys(&self, block: usize) -> RangeInclusive<u64> {
        // The next one may begin with the key that this one ends with.
        self.first[block]..=self.first.get(block + 1).copied().unwrap_or(self.last)
    }

    /// The range of a block's bytes in the file.
    pub(super) fn place(&self, block: usize) -> Range<u32> {
        self.at[block]..self.at.get(block + 1).copied().unwrap_or(self.end)
    }

    /// The blocks that may hold `key`: one, unless it has very many values.
    pub(super) fn holding(&self, key: u64) -> Range<usize> {
        let end = self.first.partition_point(|first| *first <= key);
        let mut start = self.first.partition_point(|first| *first < key).min(end.saturating_sub(1));
        // The previous block can end with the same key only if it was closed for its length.
        while start > 0 && self.first[start] == key && self.place(start - 1).len() >= HARD {
            start -= 1;
        }
        start..end
    }

    pub(super) fn encode(&self, filter: Option<&Filter>) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.len);
        put_varint(&mut out, self.blocks() as u64);
        let mut before = 0;
        for block in 0..self.blocks() {
            put_varint(&mut out, self.place(block).len() as u64);
            put_varint(&mut out, self.first[block] - before);
            before = self.first[block];
        }
        put_varint(&mut out, self.last);
        put_varint(&mut out, filter.map_or(0, Filter::len) as u64);
        end_fields(&mut out);
        out
    }

    /// Reads the index of a run whose blocks and filter end at `end`; and the number of words of the filter.
    pub(super) fn decode(cursor: &mut ByteCursor<'_>, end: u64) -> Read<(RunIndex, u64)> {
        let malformed = Unreadable::Malformed;
        let mut index = RunIndex::new();
        index.len = cursor.varint()?;
        let mut first: u64 = 0;
        let blocks = cursor.varint()?;
        let room = blocks.min(cursor.left() as u64 / LEAST) as usize;
        index.at.reserve_exact(room);
        index.first.reserve_exact(room);
        for _ in 0..blocks {
            let len = u32::try_from(cursor.varint()?).ok().filter(|len| *len > 0);
            let len = len.ok_or(malformed("a block's length is out of range"))?;
            first = first.checked_add(cursor.varint()?).ok_or(malformed("a key is out of range"))?;
            if !index.push(len, first) {
                return Err(malformed("a block lies beyond 4 GiB"));
            }
        }
        index.last = cursor.varint()?;
        let words = cursor.varint()?;
        let filter = Filter::size(words).filter(|_| Filter::is_length(words));
        let filled = filter.and_then(|filter| u64::from(index.end).checked_add(filter));
        if filled != Some(end) {
            return Err(malformed("blocks and filter do not fill the file"));
        }
        let is_empty = index.len == 0;
        if is_empty != (index.blocks() == 0) || index.last < first {
            return Err(malformed("a run's pairs are not in its blocks"));
        }
        if cursor.field(FIELDS)?.is_some() || !cursor.is_at_end() {
            return Err(malformed("the index is longer than what it says"));
        }
        Ok((index, words))
    }
}
