//! A cache of blocks that were read recently: cursors and readers of bodies use them again.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use dwell_model::Timestamp;

use super::ColdTable;
use crate::journal::segment::Segment;
use crate::sealed;
use crate::table::{BlockReader, Section, TableEntry};

/// The minimum number of blocks. Fewer are of no use: messages of a queue are merged out of several files.
const MIN_BLOCKS: usize = 12;

/// A cache of a few blocks, in the form in which they were read.
#[derive(Debug)]
pub(super) struct BlockCache {
    most: usize,
    most_bytes: usize,
    /// By file and block.
    kept: HashMap<(u32, u32), CachedBlock>,
    /// Incremented with each use.
    uses: u64,
    bytes: usize,
}

#[derive(Debug)]
struct CachedBlock {
    reading: BlockReader,
    used: u64,
    /// The segment that remembers the block's bytes for reads of bodies, and the offset at which they begin.
    remembered: Option<(Weak<Segment>, u64)>,
}

impl Drop for CachedBlock {
    fn drop(&mut self) {
        if let Some((segment, at)) = self.remembered.take()
            && let Some(segment) = segment.upgrade()
        {
            segment.forget(at);
        }
    }
}

impl BlockCache {
    /// A cache of at most `most` blocks and `most_bytes` bytes, but of [`MIN_BLOCKS`] blocks in any case.
    pub(super) fn keeping(most: usize, most_bytes: usize) -> BlockCache {
        BlockCache { most: most.max(1), most_bytes, kept: HashMap::new(), uses: 0, bytes: 0 }
    }

    /// Whether a read-ahead of this number of sections at a time may keep as many blocks in memory on top of the cache.
    pub(super) fn can_spare(&self, sections: usize) -> bool {
        sections <= self.most / 2
    }

    /// An entry; at most one read, or two if its body is large.
    pub(super) fn entry(&mut self, cold: &ColdTable, ordinal: u32) -> sealed::Result<&TableEntry> {
        let block = cold.file.block_of(ordinal);
        self.block(cold, block)?.entry(&cold.file, ordinal)
    }

    /// The ordinal of the entry of a block that has this due and id (its bits).
    pub(super) fn find(
        &mut self,
        cold: &ColdTable,
        block: u32,
        key: (Timestamp, u128),
    ) -> sealed::Result<Option<u32>> {
        self.block(cold, block)?.find(&cold.file, key)
    }

    /// The ordinal of the first entry of `section` whose due and id (its bits) are `from` or later, which is not before
    /// `start`; the end of the section if there is none. At most one read, and none if the block is cached.
    pub(super) fn lower_bound(
        &mut self,
        cold: &ColdTable,
        section: &Section,
        start: u32,
        from: (Timestamp, u128),
    ) -> sealed::Result<u32> {
        let range = section.range();
        if from <= (section.min_due, 0) {
            return Ok(range.start);
        }
        if from.0 > section.max_due {
            return Ok(range.end);
        }
        let block = cold.file.holding(section, from);
        let ordinals = cold.file.ordinals_of(block);
        let ordinals = ordinals.start.max(range.start).max(start)..ordinals.end.min(range.end);
        let reading = self.block(cold, block)?;
        for ordinal in ordinals.clone() {
            let entry = &reading.entry(&cold.file, ordinal)?.entry;
            if (entry.standing.due, entry.id.as_bits()) >= from {
                return Ok(ordinal);
            }
        }
        Ok(ordinals.end)
    }

    fn block(&mut self, cold: &ColdTable, block: u32) -> sealed::Result<&mut BlockReader> {
        let place = (cold.file.name().number, block);
        self.uses += 1;
        if !self.kept.contains_key(&place) {
            let reading = cold.file.open_block(block)?;
            let remembered = reading.whole().map(|(at, bytes)| {
                cold.segment.remember(at, bytes);
                (Arc::downgrade(&cold.segment), at)
            });
            self.make_room();
            self.bytes += reading.memory();
            self.kept.insert(place, CachedBlock { reading, used: 0, remembered });
        }
        let kept = self.kept.get_mut(&place).expect("it was just made sure of");
        kept.used = self.uses;
        Ok(&mut kept.reading)
    }

    /// Evicts the least recently used blocks until there is room for one more.
    fn make_room(&mut self) {
        while self.kept.len() >= self.most || self.kept.len() >= MIN_BLOCKS && self.bytes >= self.most_bytes {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(place, _)| *place);
            let oldest = oldest.expect("there is one if there are enough");
            let gone = self.kept.remove(&oldest).expect("it was just there");
            self.bytes -= gone.reading.memory();
        }
    }

    /// The memory of the blocks in bytes, without keys and headers.
    pub(super) fn memory(&self) -> usize {
        self.bytes
    }

    /// Drops the blocks of a file that was removed.
    pub(super) fn forget(&mut self, file: u32) {
        self.kept.retain(|(number, _), _| *number != file);
        self.bytes = self.kept.values().map(|kept| kept.reading.memory()).sum();
    }
}
