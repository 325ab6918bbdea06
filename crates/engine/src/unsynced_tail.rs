//! The end of the journal that may be in the page cache alone: rewritten before anything is answered from it.
//!
//! What a failed sync should have written stays in the cache, readable and clean: a process that opens the directory
//! in the same boot reads it as if it were on the disk, and its own sync succeeds and writes nothing
//! (<https://wiki.postgresql.org/wiki/Fsync_Errors>). So recovery accepts what a mark proves to be synced, and
//! rewrites everything else in the newest segment: its pages are dirty then, and the following sync writes them.
//!
//! The rewrite is in place, since checksums are salted with the segment's name. Crash story: 1. batch 40 was synced
//! and answered, and no batch after it says so. 2. It is rewritten, the power fails, and some of its sectors are old
//! and some new: the same bytes. 3. Had its sync failed, it would be torn now, and cut: then it was never answered.
//!
//! What is written is what has just passed its checksums again, in memory: a clean page may be evicted at any moment,
//! and read differently the next time.

use std::io;
use std::sync::Arc;

use crate::journal::format::{BatchHeader, SegmentHeader};
use crate::journal::reader::{ReadBatch, SegmentReader};
use crate::journal::segment::Segment;

/// The end of the newest segment that no mark proves to be synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnsyncedTail {
    /// Where it begins: at a batch, or at the header.
    pub(crate) from: u64,
    /// The sequence of the first batch there.
    pub(crate) sequence: u64,
    pub(crate) incarnation: u32,
}

/// The number of bytes written at a time.
const PIECE: usize = 1024 * 1024;

impl UnsyncedTail {
    /// Rewrites it, up to `end`, and syncs it.
    ///
    /// # Errors
    /// The disk's; also if a second read gives other bytes than the first.
    pub(crate) fn write_anew(self, segment: &Segment, end: u64) -> io::Result<()> {
        let UnsyncedTail { from, mut sequence, incarnation } = self;
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
            let ReadBatch::Batch(header, records) = reader.find(at, sequence)? else { return Err(changed()) };
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
