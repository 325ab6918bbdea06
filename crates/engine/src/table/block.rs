//! Blocks: entries that are read together. A header, the sections and the heads of all entries, then all their bodies.
//! Little-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 0–3 | CRC-32 of bytes 4 up to the end of the heads, salted |
//! | 4–7 | ordinal of the first entry |
//! | 8–11 | number of entries |
//! | 12–15 | length of sections and heads |
//! | 16–19 | length of the bodies |
//! | 20– | sections, heads, then for each entry the checksum of its body (4 bytes, as in the journal) and its body |
//!
//! These sections are the parts of the table's sections that are in the block: see [`section`](super::section). The
//! index has the same: if that is lost, the intact blocks can still be [saved](super::salvage()).
//!
//! A block has at most [`BLOCK_BYTES`] bytes, unless it holds a single entry. So heads can be read without large
//! bodies, and heads with small bodies in one read.

use bytes::Bytes;

use super::entry::Entry;
use super::entry_head::{self, PreviousHead};
use super::index::BlockPlace;
use super::section::{self, Section, SectionShare};
use crate::journal::encoding::{ByteCursor, Unreadable};
use crate::journal::format::{Salt, u32_at};

/// A block is closed before an entry that would make it longer than this.
pub(super) const BLOCK_BYTES: usize = 32 * 1024;
/// The length of a block's header in bytes.
pub(super) const HEADER_LEN: usize = 20;

/// A block that is being filled.
#[derive(Debug, Default)]
pub(super) struct BlockBuilder {
    shares: Vec<SectionShare>,
    /// The maximum length of these in bytes.
    shares_len: usize,
    heads: Vec<u8>,
    bodies: Vec<u8>,
    count: u32,
    before: PreviousHead,
    /// A head that may belong to the next block.
    scratch: Vec<u8>,
}

impl BlockBuilder {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The length of its bodies so far, with their checksums.
    pub(super) fn bodies_len(&self) -> usize {
        self.bodies.len()
    }

    /// Its length so far.
    pub(super) fn len(&self) -> usize {
        HEADER_LEN + self.shares_len + self.heads.len() + self.bodies.len()
    }

    /// Adds an entry and its body with its checksum, if the block has room for it; an empty block has room for any.
    pub(super) fn add(&mut self, shard: u16, entry: &Entry, checksum: u32, body: &[u8]) -> bool {
        let mut before = self.before;
        self.scratch.clear();
        entry_head::put(&mut self.scratch, &mut before, shard, entry, body.len());
        let is_known = self.shares.last().is_some_and(|share| share.takes(entry));
        let share_len = if is_known { 0 } else { SectionShare::MOST + entry.queue.as_str().len() };
        if !self.is_empty() && self.len() + share_len + self.scratch.len() + 4 + body.len() > BLOCK_BYTES {
            return false;
        }
        match self.shares.last_mut().filter(|_| is_known) {
            Some(share) => share.count += 1,
            None => self.shares.push(SectionShare::beginning_with(entry)),
        }
        self.shares_len += share_len;
        self.before = before;
        self.heads.extend_from_slice(&self.scratch);
        self.bodies.extend_from_slice(&checksum.to_le_bytes());
        self.bodies.extend_from_slice(body);
        self.count += 1;
        true
    }

    /// Writes the block, whose first entry has the ordinal `first`, to `out`, and begins the next.
    pub(super) fn close(&mut self, salt: Salt, first: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_LEN]);
        section::put_shares(out, &self.shares);
        out.extend_from_slice(&self.heads);
        let heads_len = (out.len() - start - HEADER_LEN) as u32;
        let header = [first, self.count, heads_len, self.bodies.len() as u32];
        for (number, at) in header.into_iter().zip((start + 4..).step_by(4)) {
            out[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        let checksum = salt.checksum(&out[start + 4..]);
        out[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&self.bodies);
        self.shares.clear();
        self.shares_len = 0;
        self.heads.clear();
        self.bodies.clear();
        // The buffer of a large body is not kept for the next block.
        self.bodies.shrink_to(BLOCK_BYTES);
        (self.count, self.before) = (0, PreviousHead::default());
    }
}

/// Where a body lies in its file: its checksum (4 bytes), then the body. The same as in a segment of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyPlace {
    /// The offset of the checksum.
    pub(crate) at: u32,
    /// The length of the body.
    pub(crate) len: u32,
}

/// An entry that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableEntry {
    pub(crate) ordinal: u32,
    pub(crate) entry: Entry,
    pub(crate) body: BodyPlace,
}

/// The position in the file of an error in a block, and the error.
pub(super) type BadBlock = (u64, Unreadable);

/// The number of bytes from the start of a block to the end of its heads.
pub(super) fn heads_end(header: &[u8]) -> usize {
    HEADER_LEN + u32_at(header, 12) as usize
}

/// A position in the entries of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockPosition {
    position: usize,
    before: PreviousHead,
    ordinal: u32,
    next_body: u64,
}

impl BlockPosition {
    /// The ordinal of the entry that is read next.
    pub(super) fn ordinal(&self) -> u32 {
        self.ordinal
    }
}

/// Iterates over the entries of a block.
#[derive(Debug)]
pub(super) struct Heads<'a> {
    spot: BlockPlace,
    /// Ends at the end of the heads.
    cursor: ByteCursor<'a>,
    before: PreviousHead,
    shard: u16,
    sections: &'a [Section],
    ordinal: u32,
    bodies_end: u64,
    next_body: u64,
}

impl<'a> Heads<'a> {
    /// Reads the header of the block at `spot`, and verifies the heads. `bytes` are the block from its start, at least
    /// up to the end of its heads.
    pub(super) fn open(
        spot: BlockPlace,
        bytes: &'a [u8],
        salt: Salt,
        shard: u16,
        sections: &'a [Section],
    ) -> Result<Heads<'a>, BadBlock> {
        let bad = |reason| (u64::from(spot.at), Unreadable::Malformed(reason));
        if bytes.len() < HEADER_LEN || bytes.len() < heads_end(bytes) {
            return Err(bad("a block is shorter than its heads"));
        }
        let heads_end = heads_end(bytes);
        if salt.checksum(&bytes[4..heads_end]) != u32_at(bytes, 0) {
            return Err(bad("a block fails its checksum"));
        }
        let bodies_len = u32_at(bytes, 16);
        let fits = u32_at(bytes, 4) == spot.first
            && u32_at(bytes, 8) == spot.count
            && heads_end as u64 + u64::from(bodies_len) == u64::from(spot.len);
        if !fits {
            return Err(bad("a block is not the one that the index has there"));
        }
        let sections = &sections[section_of(sections, spot.first)..];
        let mut cursor = ByteCursor::new(&bytes[HEADER_LEN..heads_end]);
        section::check_shares(&mut cursor, spot.first..spot.first + spot.count, sections)
            .map_err(|why| (u64::from(spot.at), why))?;
        let next_body = u64::from(spot.at) + heads_end as u64;
        Ok(Heads {
            spot,
            cursor,
            before: PreviousHead::default(),
            shard,
            sections,
            ordinal: spot.first,
            bodies_end: next_body + u64::from(bodies_len),
            next_body,
        })
    }

    /// The current position.
    pub(super) fn mark(&self) -> BlockPosition {
        let Heads { before, ordinal, next_body, .. } = *self;
        BlockPosition { position: self.cursor.position(), before, ordinal, next_body }
    }

    /// Continues from `mark`, which was made in these bytes: they were verified then.
    pub(super) fn resume(
        spot: BlockPlace,
        bytes: &'a [u8],
        shard: u16,
        sections: &'a [Section],
        mark: BlockPosition,
    ) -> Heads<'a> {
        let BlockPosition { position, before, ordinal, next_body } = mark;
        let heads_end = heads_end(bytes);
        let mut cursor = ByteCursor::new(&bytes[HEADER_LEN..heads_end]);
        cursor.take(position).expect("a mark lies in the block that it was made in");
        let bodies_end = u64::from(spot.at) + heads_end as u64 + u64::from(u32_at(bytes, 16));
        let sections = &sections[section_of(sections, ordinal)..];
        Heads { spot, cursor, before, shard, sections, ordinal, bodies_end, next_body }
    }

    /// The next entry, or `None` after the last.
    pub(super) fn next(&mut self) -> Result<Option<TableEntry>, BadBlock> {
        let bad = |at, why| (u64::from(self.spot.at) + (HEADER_LEN + at) as u64, why);
        let at = self.cursor.position();
        if self.ordinal == self.spot.first + self.spot.count {
            if !self.cursor.is_at_end() || self.next_body != self.bodies_end {
                return Err(bad(at, Unreadable::Malformed("a block holds more than its entries")));
            }
            return Ok(None);
        }
        while self.ordinal >= self.sections[0].range().end {
            self.sections = &self.sections[1..];
        }
        let read = entry_head::read(&mut self.cursor, &mut self.before, self.shard, &self.sections[0]);
        let (entry, len) = read.map_err(|why| bad(at, why))?;
        let body = BodyPlace { at: self.next_body as u32, len };
        self.next_body += 4 + u64::from(len);
        if self.next_body > self.bodies_end {
            return Err(bad(at, Unreadable::Malformed("a body is longer than its block")));
        }
        let found = TableEntry { ordinal: self.ordinal, entry, body };
        self.ordinal += 1;
        Ok(Some(found))
    }
}

/// The index of the section that contains an ordinal.
pub(super) fn section_of(sections: &[Section], ordinal: u32) -> usize {
    sections.partition_point(|section| section.range().end <= ordinal)
}

/// The verified body at `place`, from bytes that begin at `start` in the file and contain it.
pub(super) fn cut_body(
    bytes: &Bytes,
    start: u64,
    place: BodyPlace,
    number: u64,
    salt: Salt,
) -> Result<Bytes, BadBlock> {
    let from = (u64::from(place.at) - start) as usize;
    let body = bytes.slice(from + 4..from + 4 + place.len as usize);
    if salt.body_checksum(number, &body) != u32_at(bytes, from) {
        return Err((u64::from(place.at), Unreadable::Malformed("the body of a message fails its checksum")));
    }
    Ok(body)
}
