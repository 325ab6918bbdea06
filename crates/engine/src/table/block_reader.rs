//! A block that is kept in memory as it was read. Its entries are decoded one at a time, so that entries read in order
//! cost only their own decoding, and those not asked for cost nothing.

use bytes::Bytes;
use dwell_model::{Number, Timestamp};

use super::block::{BlockPosition, BodyPlace, Heads, TableEntry};
use super::index::BlockPlace;
use super::reader::Table;
use crate::sealed::Result;

/// A block whose heads were verified, and the position up to which it was decoded.
#[derive(Debug)]
pub(crate) struct BlockReader {
    spot: BlockPlace,
    bytes: Bytes,
    start: BlockPosition,
    next: BlockPosition,
    last: Option<TableEntry>,
}

impl BlockReader {
    /// A block of which nothing was decoded yet: `start` is the position before its first entry.
    pub(super) fn new(spot: BlockPlace, bytes: Bytes, start: BlockPosition) -> BlockReader {
        BlockReader { spot, bytes, start, next: start, last: None }
    }

    /// An entry of the block, without its body; `file` is the one that it was read from.
    pub(crate) fn entry(&mut self, file: &Table, ordinal: u32) -> Result<&TableEntry> {
        let range = self.spot.first..self.spot.first + self.spot.count;
        assert!(range.contains(&ordinal), "entry {ordinal} does not lie in the block of {range:?}");
        let is_last = self.last.as_ref().is_some_and(|last| last.ordinal == ordinal);
        if !is_last {
            self.last = None;
            if self.next.ordinal() > ordinal {
                self.next = self.start;
            }
            let (shard, sections) = (file.name().shard, file.sections());
            let mut heads = Heads::resume(self.spot, &self.bytes, shard, sections, self.next);
            let found = loop {
                let found =
                    file.sound(heads.next())?.expect("a block holds the ordinals that its header says");
                if found.ordinal == ordinal {
                    break found;
                }
            };
            self.next = heads.mark();
            self.last = Some(found);
        }
        Ok(self.last.as_ref().expect("it was just read"))
    }

    /// The same, for an entry that is not asked for again.
    pub(crate) fn take(&mut self, file: &Table, ordinal: u32) -> Result<TableEntry> {
        self.entry(file, ordinal)?;
        Ok(self.last.take().expect("it was just read"))
    }

    /// The body of message `number` at `place`, if the block was read with its bodies, and the checksum is right.
    pub(crate) fn body(&self, file: &Table, place: BodyPlace, number: Number) -> Option<Bytes> {
        let (start, bytes) = self.whole()?;
        file.cut(&bytes, start, place, number).ok()
    }

    /// The ordinal of the entry that has this due and id (its bits).
    pub(crate) fn find(&mut self, file: &Table, key: (Timestamp, u128)) -> Result<Option<u32>> {
        for ordinal in self.spot.first..self.spot.first + self.spot.count {
            let entry = &self.entry(file, ordinal)?.entry;
            if (entry.standing.due, entry.id.as_bits()) == key {
                return Ok(Some(ordinal));
            }
        }
        Ok(None)
    }

    /// The offset of the block in the file, and its bytes, if they were all read: those of a block with a large body
    /// are not.
    pub(crate) fn whole(&self) -> Option<(u64, Bytes)> {
        let is_whole = self.bytes.len() == self.spot.len as usize;
        is_whole.then(|| (u64::from(self.spot.at), self.bytes.clone()))
    }

    /// Its memory in bytes, without keys and headers.
    pub(crate) fn memory(&self) -> usize {
        size_of::<BlockReader>() + self.bytes.len()
    }
}
