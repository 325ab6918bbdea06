//! The end of the journal that may be in the page cache alone: written anew, before anything is answered from it.
//!
//! What a failed sync should have written stays in the cache, readable and clean: a process that opens the directory in
//! the same boot reads it as if it were there, and a sync of its own succeeds and writes nothing
//! (<https://wiki.postgresql.org/wiki/Fsync_Errors>). So recovery takes over what a mark says was synced, and all else in
//! the newest segment is written again: its pages are dirty then, and the sync that follows is one.
//!
//! In place, since checksums are salted with the segment's name. Crash story: 1. batch 40 was synced and answered, and no
//! batch after it says so. 2. It is written anew, the power fails, and of its sectors some are as they were and some as
//! they are written: the same bytes. 3. Had its sync failed, it would be torn now, and cut: then nobody was answered.
//!
//! What is written is what has just passed its checksums once more, in memory: a clean page may go at any moment, and read
//! otherwise the next time.

use std::io;
use std::sync::Arc;

use crate::journal::format::{BatchHeader, SegmentHeader};
use crate::journal::reader::{Found, SegmentReader};
use crate::journal::segment::Segment;

/// The end of the newest segment of which no mark says that it was synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unproven {
    /// Where it begins: with a batch, or with the header.
    pub(crate) from: u64,
    /// The sequence of the first batch there.
    pub(crate) sequence: u64,
    pub(crate) incarnation: u32,
}

/// So many bytes are written at a time.
const PIECE: usize = 1024 * 1024;

impl Unproven {
    /// Writes it anew, up to `end`, and syncs it.
    ///
    /// # Errors
    /// The disk's; also if something else is read now than a moment ago.
    pub(crate) fn write_anew(self, segment: &Segment, end: u64) -> io::Result<()> {
        let Unproven { from, mut sequence, incarnation } = self;
        let file = Arc::clone(&segment.file);
        let mut reader = SegmentReader::new(file, segment.salt, Some(incarnation))?;
        let changed = || io::Error::other("what was read a moment ago reads as something else now");
        let (mut at, mut start, mut bytes) = (from, from, Vec::new());
        if at == 0 {
            let header = reader.bytes(0, SegmentHeader::LEN)?.and_then(|bytes| bytes.first_chunk()).copied();
            let header = header.filter(|bytes| SegmentHeader::decode(bytes, segment.name).is_ok());
            bytes.extend_from_slice(&header.ok_or_else(changed)?);
            at = SegmentHeader::LEN as u64;
        }
        while at < end {
            let Found::Batch(header, records) = reader.find(at, sequence)? else { return Err(changed()) };
            bytes.extend_from_slice(&header.encode(segment.salt));
            bytes.extend_from_slice(records);
            at += (BatchHeader::LEN + records.len()) as u64;
            sequence += 1;
            if bytes.len() >= PIECE {
                segment.file.write_at(&bytes, start)?;
                start = at;
                bytes.clear();
            }
        }
        segment.file.write_at(&bytes, start)?;
        segment.file.sync()
    }
}
