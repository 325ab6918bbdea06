//! The index of a table: the part of it that is in memory while it is open, and its stored form.
//!
//! Varints, one after the other: sections (see [`section`](super::section)); lowest and highest number; the number of
//! blocks, then for each: its length, its count of entries, the due of its first entry (zigzag from that of the
//! previous block, at first from 0), the id of its first entry (16 bytes); the number of expiries; for each chunk of
//! expiries, if there are any: its length, its first expiry, its first ordinal, the last one followed by length 0; then
//! tagged fields, all of which a reader may skip: 1 the maximum number of times that bodies in the file have been
//! written (if more than twice).

use dwell_model::{Number, Timestamp};

use super::expiry_chunk::Expiry;
use super::section::{self, Section};
use crate::journal::encoding::{
    ByteCursor, Read, Unreadable, end_fields, put_optional_int_field, put_varint, put_zigzag,
};
use crate::sealed::HEADER_LEN;

/// The highest number of a field at the end.
const FIELDS: u64 = 1;
/// The minimum length of a block's part of the index in bytes.
const LEAST: u64 = 19;
/// How often bodies have been written when they are in their first table: to the journal, and to it.
pub(super) const FIRST_WRITES: u32 = 2;

/// A block, as described by the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockPlace {
    /// Its offset in the file.
    pub(super) at: u32,
    pub(super) len: u32,
    /// The ordinal of its first entry.
    pub(super) first: u32,
    pub(super) count: u32,
}

/// The blocks of a file, 32 bytes each, with one allocation per field.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BlockIndex {
    at: Vec<u32>,
    first: Vec<u32>,
    /// Due and id of the first entry.
    due: Vec<i64>,
    id: Vec<u128>,
    /// The offset at which the last one ends.
    end: u32,
    entries: u32,
}

impl BlockIndex {
    pub(super) fn new() -> BlockIndex {
        BlockIndex { end: HEADER_LEN as u32, ..BlockIndex::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.at.len()
    }

    /// The offset at which the last one ends, and the next part of the file begins.
    pub(super) fn end(&self) -> u32 {
        self.end
    }

    /// Reserves room for exactly this number of blocks.
    fn expect(&mut self, blocks: usize) {
        self.at.reserve_exact(blocks);
        self.first.reserve_exact(blocks);
        self.due.reserve_exact(blocks);
        self.id.reserve_exact(blocks);
    }

    fn shrink(&mut self) {
        self.at.shrink_to_fit();
        self.first.shrink_to_fit();
        self.due.shrink_to_fit();
        self.id.shrink_to_fit();
    }

    fn memory(&self) -> usize {
        (self.at.capacity() + self.first.capacity()) * 4 + self.due.capacity() * 8 + self.id.capacity() * 16
    }

    /// Adds the next block; false if it exceeds the range of offsets and ordinals.
    pub(super) fn push(&mut self, len: u32, count: u32, key: (i64, u128)) -> bool {
        let (Some(end), Some(entries)) = (self.end.checked_add(len), self.entries.checked_add(count)) else {
            return false;
        };
        self.at.push(self.end);
        self.first.push(self.entries);
        self.due.push(key.0);
        self.id.push(key.1);
        (self.end, self.entries) = (end, entries);
        true
    }

    pub(super) fn spot(&self, block: usize) -> BlockPlace {
        let (at, first) = (self.at[block], self.first[block]);
        let end = self.at.get(block + 1).copied().unwrap_or(self.end);
        let next = self.first.get(block + 1).copied().unwrap_or(self.entries);
        BlockPlace { at, len: end - at, first, count: next - first }
    }

    /// The index of the block that holds `ordinal`.
    pub(super) fn of(&self, ordinal: u32) -> usize {
        assert!(ordinal < self.entries, "ordinal {ordinal} of a file of {} entries", self.entries);
        self.first.partition_point(|first| *first <= ordinal) - 1
    }

    /// Due and id of the first entry of a block.
    pub(super) fn key(&self, block: usize) -> (i64, u128) {
        (self.due[block], self.id[block])
    }

    /// The block where `key` belongs in `section`: the last that begins with an entry of the section below `key`, or
    /// else the one that the section begins in.
    pub(super) fn holding(&self, section: &Section, key: (i64, u128)) -> usize {
        let beginning = self.of(section.first);
        let (mut low, mut high) = (beginning + 1, self.of(section.range().end - 1) + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(middle) < key { low = middle + 1 } else { high = middle }
        }
        low - 1
    }
}

/// A chunk of expiries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpiryChunk {
    pub(super) at: u32,
    pub(super) len: u32,
    pub(super) first: Expiry,
}

/// Everything of a file that is in memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TableIndex {
    pub(super) sections: Vec<Section>,
    pub(super) entries: u32,
    pub(super) lowest: Number,
    pub(super) highest: Number,
    pub(super) blocks: BlockIndex,
    pub(super) expiries: u32,
    pub(super) expiry_chunks: Vec<ExpiryChunk>,
    /// The maximum number of times that bodies in it have been written, to the journal and to files, if their messages
    /// have not changed; at least twice.
    pub(super) writes: u32,
}

impl TableIndex {
    /// Frees unused capacity once nothing more will be added.
    pub(super) fn shrink(&mut self) {
        self.sections.shrink_to_fit();
        self.blocks.shrink();
        self.expiry_chunks.shrink_to_fit();
    }

    /// The memory in bytes, without the names of queues.
    pub(super) fn memory(&self) -> usize {
        self.sections.capacity() * size_of::<Section>()
            + self.blocks.memory()
            + self.expiry_chunks.capacity() * size_of::<ExpiryChunk>()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        section::put(&mut out, &self.sections);
        put_varint(&mut out, self.lowest.get());
        put_varint(&mut out, self.highest.get());
        put_varint(&mut out, self.blocks.len() as u64);
        let mut before = 0;
        for block in 0..self.blocks.len() {
            let BlockPlace { len, count, .. } = self.blocks.spot(block);
            let (due, id) = self.blocks.key(block);
            put_varint(&mut out, u64::from(len));
            put_varint(&mut out, u64::from(count));
            put_zigzag(&mut out, due - before);
            out.extend_from_slice(&id.to_le_bytes());
            before = due;
        }
        put_varint(&mut out, u64::from(self.expiries));
        for ExpiryChunk { at: _, len, first: (expires, ordinal) } in &self.expiry_chunks {
            put_varint(&mut out, u64::from(*len));
            put_varint(&mut out, expires.as_ms() as u64);
            put_varint(&mut out, u64::from(*ordinal));
        }
        put_varint(&mut out, 0);
        if self.writes > FIRST_WRITES {
            put_optional_int_field(&mut out, 1, u64::from(self.writes));
        }
        end_fields(&mut out);
        out
    }

    /// Reads the index of a file whose blocks and expiries end at `end`.
    pub(super) fn decode(cursor: &mut ByteCursor<'_>, end: u64) -> Read<TableIndex> {
        let malformed = Unreadable::Malformed;
        let int = |value: u64| u32::try_from(value).map_err(|_| malformed("a number is out of range"));
        let number = |value| Number::new(value).map_err(|_| malformed("a message's number is out of range"));
        let (sections, entries) = section::read(cursor)?;
        let (lowest, highest) = (number(cursor.varint()?)?, number(cursor.varint()?)?);
        let mut blocks = BlockIndex::new();
        let mut due: i64 = 0;
        let count = cursor.varint()?;
        blocks.expect(count.min(cursor.left() as u64 / LEAST) as usize);
        for _ in 0..count {
            let (len, count) = (int(cursor.varint()?)?, int(cursor.varint()?)?);
            due = due.checked_add(cursor.zigzag()?).ok_or(malformed("an instant is out of range"))?;
            let id = u128::from_le_bytes(cursor.take(16)?.try_into().expect("sixteen bytes were taken"));
            if len == 0 || count == 0 || !blocks.push(len, count, (due, id)) {
                return Err(malformed("a block is empty, or lies beyond 4 GiB"));
            }
        }
        if blocks.entries != entries || entries == 0 {
            return Err(malformed("blocks and sections do not have the same entries"));
        }
        let expiries = int(cursor.varint()?)?;
        let mut expiry_chunks: Vec<ExpiryChunk> = Vec::new();
        let mut at = blocks.end;
        loop {
            let len = int(cursor.varint()?)?;
            if len == 0 {
                break;
            }
            let expires = i64::try_from(cursor.varint()?).ok().and_then(|ms| Timestamp::from_ms(ms).ok());
            let expires = expires.ok_or(malformed("an expiry is out of range"))?;
            let first = (expires, int(cursor.varint()?)?);
            if expiry_chunks.last().is_some_and(|before| before.first >= first) {
                return Err(malformed("expiries are out of order"));
            }
            expiry_chunks.push(ExpiryChunk { at, len, first });
            at = at.checked_add(len).ok_or(malformed("expiries lie beyond 4 GiB"))?;
        }
        if u64::from(at) != end || (expiries == 0) != expiry_chunks.is_empty() {
            return Err(malformed("blocks and expiries do not fill the file"));
        }
        let mut writes = FIRST_WRITES;
        while let Some((_, value)) = cursor.field(FIELDS)? {
            writes = value.u32()?;
            if writes <= FIRST_WRITES {
                return Err(malformed("bodies were written more seldom than they can have been"));
            }
        }
        if !cursor.is_at_end() {
            return Err(malformed("the index is longer than what it says"));
        }
        Ok(TableIndex { sections, entries, lowest, highest, blocks, expiries, expiry_chunks, writes })
    }
}
