//! Writing a table.

use std::io;
use std::path::Path;

use dwell_model::{MessageId, Number, Timestamp};

use super::block::{BlockBuilder, BodyPlace};
use super::entry::Entry;
use super::expiry_chunk::{self, CHUNK, Expiry};
use super::index::{BlockIndex, ExpiryChunk, FIRST_WRITES, TableIndex};
use super::reader::Table;
use super::section::Section;
use crate::disk::Disk;
use crate::sealed::{Appender, FileId};

/// A table that is being written, from its first entry to its last.
///
/// In memory are the last 256 KiB of it, its index, 8 bytes for each entry, and 16 for each that expires.
#[derive(Debug)]
pub(crate) struct TableWriter {
    out: Appender,
    block: BlockBuilder,
    /// Due and id of the block's first entry.
    block_key: (i64, u128),
    /// Due and id of the last entry.
    last: Option<(Timestamp, MessageId)>,
    sections: Vec<Section>,
    blocks: BlockIndex,
    entries: u32,
    numbers: Option<(Number, Number)>,
    expiries: Vec<Expiry>,
    writes: u32,
    /// The places of bodies; for the block that is being filled they count from its first body.
    bodies: Vec<BodyPlace>,
    scratch: Vec<u8>,
}

impl TableWriter {
    /// The length from which a file takes no more entries: offsets in it are 32-bit numbers.
    pub(crate) const MOST: u64 = 3 * 1024 * 1024 * 1024;

    /// Begins the file of that name in `dir`, and replaces one that may be there.
    ///
    /// # Errors
    /// Those of the disk, here and in all that follows. After one the file is unusable.
    pub(crate) fn create(disk: &dyn Disk, dir: &Path, name: FileId) -> io::Result<TableWriter> {
        Ok(TableWriter {
            out: Appender::create(disk, dir, name)?,
            block: BlockBuilder::default(),
            block_key: (0, 0),
            last: None,
            sections: Vec::new(),
            blocks: BlockIndex::new(),
            entries: 0,
            numbers: None,
            expiries: Vec::new(),
            writes: 0,
            bodies: Vec::new(),
            scratch: Vec::new(),
        })
    }

    /// Adds an entry with its body; returns its ordinal.
    ///
    /// # Panics
    /// If the entry is leased, or does not come after the previous one, or if the file has [`TableWriter::MOST`] bytes.
    pub(crate) fn push(&mut self, entry: &Entry, body: &[u8]) -> io::Result<u32> {
        let checksum = self.out.salt().body_checksum(entry.number.get(), body);
        self.push_with(entry, checksum, body)
    }

    /// The same for a body that failed its checksum where it was: it fails it here too.
    pub(crate) fn push_damaged(&mut self, entry: &Entry, body: &[u8]) -> io::Result<u32> {
        let checksum = !self.out.salt().body_checksum(entry.number.get(), body);
        self.push_with(entry, checksum, body)
    }

    fn push_with(&mut self, entry: &Entry, checksum: u32, body: &[u8]) -> io::Result<u32> {
        assert!(self.bytes() < TableWriter::MOST, "places in a table are 32-bit numbers");
        let ordinal = self.entries;
        let key = (entry.standing.due, entry.id);
        let shard = self.out.name().shard;
        match self.sections.last_mut().filter(|section| section.takes(entry)) {
            Some(section) => {
                assert!(self.last < Some(key), "message {} is out of order", entry.number);
                section.add(entry, body.len());
            }
            None => {
                let section = Section::beginning_with(entry, ordinal, body.len());
                let is_next = self.sections.last().is_none_or(|before| before.is_before(&section));
                assert!(is_next, "message {} is out of order", entry.number);
                self.sections.push(section);
            }
        }
        if !self.block.add(shard, entry, checksum, body) {
            self.close_block()?;
            let added = self.block.add(shard, entry, checksum, body);
            assert!(added, "an empty block takes any entry");
        }
        let len = u32::try_from(body.len()).expect("bodies have at most 64 MiB");
        let at = self.block.bodies_len() - (4 + body.len());
        self.bodies.push(BodyPlace { at: at as u32, len });
        if self.block.count() == 1 {
            self.block_key = (entry.standing.due.as_ms(), entry.id.as_bits());
        }
        if let Some(expires) = entry.standing.expires {
            self.expiries.push((expires, ordinal));
        }
        let (lowest, highest) = self.numbers.unwrap_or((entry.number, entry.number));
        self.numbers = Some((lowest.min(entry.number), highest.max(entry.number)));
        self.last = Some(key);
        self.entries += 1;
        Ok(ordinal)
    }

    /// Records how often a body in it has been written, to the journal, to files before this one, and to this one.
    pub(crate) fn note_writes(&mut self, writes: u32) {
        self.writes = self.writes.max(writes);
    }

    /// The length so far, without the index.
    pub(crate) fn bytes(&self) -> u64 {
        self.out.position() + self.block.len() as u64
    }

    fn close_block(&mut self) -> io::Result<()> {
        let count = self.block.count();
        self.scratch.clear();
        let bodies_len = self.block.bodies_len();
        self.block.close(self.out.salt(), self.entries - count, &mut self.scratch);
        let bodies_at = self.out.position() + (self.scratch.len() - bodies_len) as u64;
        let bodies_at = u32::try_from(bodies_at).expect("places in a table are 32-bit numbers");
        let first = self.bodies.len() - count as usize;
        self.bodies[first..].iter_mut().for_each(|body| body.at += bodies_at);
        self.out.append(&self.scratch)?;
        let pushed = self.blocks.push(self.scratch.len() as u32, count, self.block_key);
        assert!(pushed, "places in a table are 32-bit numbers");
        // The buffer of a large body is not kept in memory.
        self.scratch.shrink_to(64 * 1024);
        Ok(())
    }

    /// Adds the index, and syncs the file; its name is durable when the directory is synced. Returns the open file.
    ///
    /// # Panics
    /// If nothing was pushed.
    pub(crate) fn finish(self) -> io::Result<Table> {
        Ok(self.finish_with_bodies()?.0)
    }

    /// The same, with the place of each entry's body.
    pub(crate) fn finish_with_bodies(mut self) -> io::Result<(Table, Vec<BodyPlace>)> {
        let (lowest, highest) = self.numbers.expect("a table has entries");
        self.close_block()?;
        self.expiries.sort_unstable();
        let mut expiry_chunks = Vec::new();
        for pairs in self.expiries.chunks(CHUNK) {
            let at = u32::try_from(self.out.position()).expect("places in a table are 32-bit numbers");
            self.scratch.clear();
            expiry_chunk::put(&mut self.scratch, self.out.salt(), pairs);
            self.out.append(&self.scratch)?;
            expiry_chunks.push(ExpiryChunk { at, len: self.scratch.len() as u32, first: pairs[0] });
        }
        let mut index = TableIndex {
            sections: self.sections,
            entries: self.entries,
            lowest,
            highest,
            blocks: self.blocks,
            expiries: self.expiries.len() as u32,
            expiry_chunks,
            writes: self.writes.max(FIRST_WRITES),
        };
        index.shrink();
        let mut opened = self.out.finish(index.encode())?;
        opened.index = Vec::new();
        Ok((Table::new(opened, index), self.bodies))
    }
}
