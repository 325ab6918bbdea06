//! An open table: reads by ordinal.

use std::cmp::Ordering;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dwell_model::{Number, QueueName, Timestamp};

use super::block::{self, BadBlock, BodyPlace, Heads, TableEntry};
use super::block_reader::BlockReader;
use super::expiry_chunk::{self, Expiry};
use super::index::{BlockPlace, ExpiryChunk, TableIndex};
use super::section::Section;
use crate::disk::{Disk, DiskFile};
use crate::journal::encoding::ByteCursor;
use crate::journal::format::Salt;
use crate::sealed::{FileId, FileKind, OpenedFile, PIECE, ReadError, Result};

/// An open table. It never changes, and may be read by several threads at once.
///
/// In memory are its sections (56 bytes each, and each queue's name once), 32 bytes per block (of 32 KiB or more,
/// except the last one and those before a large body), and 24 bytes per 1,024 expiries.
#[derive(Debug)]
pub(crate) struct Table {
    pub(super) opened: OpenedFile,
    pub(super) index: TableIndex,
}

/// The number of bytes read to get the entry of a block that is longer, and then has a single entry.
const GLANCE: usize = 64 * 1024;

/// The entries of a section between which an instant lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Between {
    /// Entries below this ordinal are due by the instant.
    pub(crate) low: u32,
    /// Entries from this ordinal on are due later; those in between may be due before or after.
    pub(crate) high: u32,
    /// The due of the last entry below `low`, if there are entries in between: the instant or before.
    pub(crate) from: Timestamp,
    /// The due of the entry at `high`, if there are entries in between: after the instant.
    pub(crate) to: Timestamp,
}

impl Table {
    pub(super) fn new(opened: OpenedFile, index: TableIndex) -> Table {
        assert_eq!(opened.name.kind, FileKind::Table);
        Table { opened, index }
    }

    /// Opens the file of that name in `dir`: two reads, or three if the index is long. Header, index and footer are
    /// verified; blocks are verified when they are read.
    pub(crate) fn open(disk: &dyn Disk, dir: &Path, name: FileId) -> Result<Table> {
        Table::of(OpenedFile::open(disk, dir, name)?)
    }

    /// Decodes the index of a file.
    pub(crate) fn of(mut opened: OpenedFile) -> Result<Table> {
        let bytes = std::mem::take(&mut opened.index);
        let mut cursor = ByteCursor::new(&bytes);
        let mut index = TableIndex::decode(&mut cursor, opened.index_at).map_err(|why| {
            ReadError::unreadable(&opened.path, opened.index_at + cursor.position() as u64, why)
        })?;
        index.shrink();
        Ok(Table::new(opened, index))
    }

    pub(crate) fn name(&self) -> FileId {
        self.opened.name
    }

    pub(crate) fn path(&self) -> &Path {
        &self.opened.path
    }

    pub(crate) fn salt(&self) -> Salt {
        self.opened.salt
    }

    /// The underlying file, for readers of bodies.
    pub(crate) fn handle(&self) -> &Arc<dyn DiskFile> {
        &self.opened.file
    }

    /// Its size on disk in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.opened.size
    }

    /// Its memory in bytes, without the names of queues.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Table>() + self.index.memory()
    }

    /// The number of its entries: at least one.
    pub(crate) fn len(&self) -> u32 {
        self.index.entries
    }

    /// The maximum number of times that bodies in it have been written, to this file and the journal included, if their
    /// messages have not changed since they were put.
    pub(crate) fn writes(&self) -> u32 {
        self.index.writes
    }

    /// All sections, in order.
    pub(crate) fn sections(&self) -> &[Section] {
        &self.index.sections
    }

    /// The sections of a queue, in order.
    pub(crate) fn sections_of(&self, queue: &QueueName) -> &[Section] {
        let sections = self.sections();
        let first = sections.partition_point(|section| section.queue < *queue);
        let count = sections[first..].partition_point(|section| section.queue == *queue);
        &sections[first..first + count]
    }

    /// The index in [`Table::sections`] of the section that contains an ordinal.
    pub(crate) fn section_of(&self, ordinal: u32) -> usize {
        assert!(ordinal < self.len(), "ordinal {ordinal} of a file of {} entries", self.len());
        block::section_of(self.sections(), ordinal)
    }

    /// The earliest and the latest due.
    pub(crate) fn due_range(&self) -> (Timestamp, Timestamp) {
        let sections = self.sections();
        let earliest = sections.iter().map(|section| section.min_due).min();
        let latest = sections.iter().map(|section| section.max_due).max();
        earliest.zip(latest).expect("a file has sections")
    }

    /// The lowest and the highest number.
    pub(crate) fn number_range(&self) -> (Number, Number) {
        (self.index.lowest, self.index.highest)
    }

    /// The end of the piece that is read at a time from `ordinal` on.
    pub(crate) fn piece_end(&self, ordinal: u32) -> u32 {
        let blocks = &self.index.blocks;
        let last = blocks.spot(self.run(blocks.of(ordinal), blocks.len()).end - 1);
        last.first + last.count
    }

    /// The ordinal of the first entry of `section` whose due and id (its bits) are `from` or later; the end of the
    /// section if there is none. At most one read.
    pub(crate) fn lower_bound(&self, section: &Section, from: (Timestamp, u128)) -> Result<u32> {
        let range = section.range();
        if from <= (section.min_due, 0) {
            return Ok(range.start);
        }
        if from.0 > section.max_due {
            return Ok(range.end);
        }
        let blocks = &self.index.blocks;
        let key = (from.0.as_ms(), from.1);
        let holding = blocks.holding(section, key);
        let next = (holding + 1 < blocks.len()).then(|| blocks.spot(holding + 1).first);
        if next.is_some_and(|next| next < range.end && blocks.key(holding + 1) == key) {
            return Ok(next.unwrap_or(range.end));
        }
        let spot = blocks.spot(holding);
        let bytes = self.glance(spot)?;
        let mut heads = self.heads(spot, &bytes)?;
        while let Some(found) = self.sound(heads.next())? {
            let key = (found.entry.standing.due, found.entry.id.as_bits());
            if found.ordinal >= range.end || found.ordinal >= range.start && key >= from {
                return Ok(found.ordinal.min(range.end));
            }
        }
        Ok((spot.first + spot.count).min(range.end))
    }

    /// The first entry of `section` that is due after `at`, as exactly as the index has it: to less than a block. No
    /// I/O.
    pub(crate) fn due_after(&self, section: &Section, at: Timestamp) -> Between {
        let range = section.range();
        let exact = |ordinal| Between { low: ordinal, high: ordinal, from: at, to: at };
        if at < section.min_due {
            return exact(range.start);
        }
        if section.max_due <= at {
            return exact(range.end);
        }
        // The index has the dues of the section's first and last entries, and of those that its blocks begin with.
        let blocks = &self.index.blocks;
        let due = |block: usize| Timestamp::from_ms(blocks.key(block).0).ok();
        let holding = blocks.holding(section, (at.as_ms() + 1, 0));
        let first = blocks.spot(holding).first;
        let (before, from) = match due(holding) {
            Some(due) if first >= range.start => (first, due),
            _ => (range.start, section.min_due),
        };
        let next = (holding + 1 < blocks.len()).then(|| blocks.spot(holding + 1).first);
        let last = (range.end - 1, Some(section.max_due));
        let behind = next.filter(|next| *next < last.0).map_or(last, |next| (next, due(holding + 1)));
        Between { low: before + 1, high: behind.0, from, to: behind.1.unwrap_or(section.max_due) }
    }

    /// The ordinals of the block with this index.
    pub(crate) fn ordinals_of(&self, block: u32) -> Range<u32> {
        let spot = self.index.blocks.spot(block as usize);
        spot.first..spot.first + spot.count
    }

    /// The end of the block that holds `ordinal`: to read up to here costs no more I/O.
    pub(crate) fn block_end(&self, ordinal: u32) -> u32 {
        let spot = self.index.blocks.spot(self.index.blocks.of(ordinal));
        spot.first + spot.count
    }

    /// The ordinals of a section in ranges of blocks, with the length of these: of all blocks for whose first and last
    /// due, or a later one, `has_any` returns true. No I/O.
    pub(crate) fn blocks_with(
        &self,
        section: &Section,
        has_any: impl Fn(Timestamp, Timestamp) -> bool,
    ) -> Vec<(Range<u32>, u64)> {
        let blocks = &self.index.blocks;
        let all = section.range();
        let (first, last) = (blocks.of(all.start), blocks.of(all.end - 1));
        let mut found: Vec<(Range<u32>, u64)> = Vec::new();
        for block in first..=last {
            let spot = blocks.spot(block);
            let due = |block: usize| Timestamp::from_ms(blocks.key(block).0).ok();
            let from = if block == first { Some(section.min_due) } else { due(block) };
            let to = if block == last { Some(section.max_due) } else { due(block + 1) };
            if !has_any(from.unwrap_or(section.min_due), to.unwrap_or(section.max_due)) {
                continue;
            }
            let ordinals = spot.first.max(all.start)..(spot.first + spot.count).min(all.end);
            match found.last_mut().filter(|(before, _)| before.end == ordinals.start) {
                Some((before, bytes)) => {
                    before.end = ordinals.end;
                    *bytes += u64::from(spot.len);
                }
                None => found.push((ordinals, u64::from(spot.len))),
            }
        }
        found
    }

    /// Appends the entries of `ordinals`, without their bodies. Adjacent blocks are read together, up to 256 KiB at a
    /// time, which are in memory during the read.
    pub(crate) fn read(&self, ordinals: Range<u32>, out: &mut Vec<TableEntry>) -> Result<()> {
        if ordinals.is_empty() {
            return Ok(());
        }
        let blocks = &self.index.blocks;
        let (mut next, end) = (blocks.of(ordinals.start), blocks.of(ordinals.end - 1) + 1);
        while next < end {
            let run = self.run(next, end);
            let bytes = self.read_run(run.clone())?;
            let start = blocks.spot(run.start).at;
            for block in run.clone() {
                let spot = blocks.spot(block);
                let mut heads = self.heads(spot, &bytes[(spot.at - start) as usize..])?;
                while let Some(found) = self.sound(heads.next())? {
                    if ordinals.contains(&found.ordinal) {
                        out.push(found);
                    }
                }
            }
            next = run.end;
        }
        Ok(())
    }

    /// Prefetches the blocks of these entries.
    pub(crate) fn will_read(&self, ordinals: Range<u32>) {
        if ordinals.is_empty() {
            return;
        }
        let blocks = &self.index.blocks;
        let (first, last) =
            (blocks.spot(blocks.of(ordinals.start)), blocks.spot(blocks.of(ordinals.end - 1)));
        let end = last.at + last.len;
        self.handle().will_read(u64::from(first.at), u64::from(end - first.at));
    }

    /// The index of the block that holds `ordinal`.
    pub(crate) fn block_of(&self, ordinal: u32) -> u32 {
        self.index.blocks.of(ordinal) as u32
    }

    /// Due and id (its bits) of an entry of `section`, or lower ones; and whether they are exact. No I/O.
    pub(crate) fn bound(&self, section: &Section, ordinal: u32) -> ((Timestamp, u128), bool) {
        let blocks = &self.index.blocks;
        let block = blocks.of(ordinal);
        let first = blocks.spot(block).first;
        let (due_ms, id) = blocks.key(block);
        match Timestamp::from_ms(due_ms) {
            Ok(due) if first >= section.first => ((due, id), first == ordinal),
            _ => ((section.min_due, 0), false),
        }
    }

    /// The index of the block that contains the entry of `section` with this due and id (its bits), if there is one;
    /// otherwise of the block that ends where it would be, or of the first one of the section.
    pub(crate) fn holding(&self, section: &Section, key: (Timestamp, u128)) -> u32 {
        let blocks = &self.index.blocks;
        let (holding, key) = (blocks.holding(section, (key.0.as_ms(), key.1)), (key.0.as_ms(), key.1));
        // The entry that a block begins with is not after it. The block after the section's last one belongs to another
        // section, whose first entry may have this key all the same: a search for what comes after an id looks for the
        // next id.
        let next = holding + 1;
        let is_next =
            next < blocks.len() && blocks.spot(next).first < section.range().end && blocks.key(next) == key;
        if is_next { next as u32 } else { holding as u32 }
    }

    /// Reads the block with this index: one read, or two if a body is large.
    pub(crate) fn open_block(&self, block: u32) -> Result<BlockReader> {
        let spot = self.index.blocks.spot(block as usize);
        let mut bytes = self.glance(spot)?;
        let start = self.heads(spot, &bytes)?.mark();
        if bytes.len() < spot.len as usize {
            // A part of a large body is of no use.
            bytes.truncate(block::heads_end(&bytes));
            bytes.shrink_to_fit();
        }
        Ok(BlockReader::new(spot, bytes.into(), start))
    }

    /// Appends the entries of `ordinals`, which rise, without their bodies: one read for each block that holds any.
    pub(crate) fn read_at(&self, ordinals: &[u32], out: &mut Vec<TableEntry>) -> Result<()> {
        assert!(ordinals.is_sorted(), "ordinals rise");
        let mut rest = ordinals;
        while let Some(first) = rest.first() {
            let spot = self.index.blocks.spot(self.index.blocks.of(*first));
            let here = rest.partition_point(|ordinal| *ordinal < spot.first + spot.count);
            let bytes = self.glance(spot)?;
            let mut heads = self.heads(spot, &bytes)?;
            while let Some(found) = self.sound(heads.next())? {
                if rest[..here].binary_search(&found.ordinal).is_ok() {
                    out.push(found);
                }
            }
            rest = &rest[here..];
        }
        Ok(())
    }

    /// An entry with its body: one read, or two if the body is large.
    pub(crate) fn get(&self, ordinal: u32) -> Result<(TableEntry, Bytes)> {
        let spot = self.index.blocks.spot(self.index.blocks.of(ordinal));
        let bytes = Bytes::from(self.glance(spot)?);
        let mut heads = self.heads(spot, &bytes)?;
        let found = loop {
            let found = self.sound(heads.next())?.expect("a block holds the ordinals that its header says");
            if found.ordinal == ordinal {
                break found;
            }
        };
        let body = if bytes.len() == spot.len as usize {
            // A copy: a small body should not keep a block in memory.
            let body = self.cut(&bytes, u64::from(spot.at), found.body, found.entry.number)?;
            Bytes::copy_from_slice(&body)
        } else {
            self.body(found.entry.number, found.body)?
        };
        Ok((found, body))
    }

    /// The body of message `number` at `place`, verified.
    pub(crate) fn body(&self, number: Number, place: BodyPlace) -> Result<Bytes> {
        let bytes = Bytes::from(self.read_bytes(u64::from(place.at), 4 + place.len as usize)?);
        self.cut(&bytes, u64::from(place.at), place, number)
    }

    /// The earliest expiry, if any entry has one.
    pub(crate) fn first_expiry(&self) -> Option<Timestamp> {
        self.index.expiry_chunks.first().map(|chunk| chunk.first.0)
    }

    /// The number of entries that expire.
    pub(crate) fn expiry_count(&self) -> u32 {
        self.index.expiries
    }

    /// Expiries with their ordinals, in order: those behind `after`, up to `until`, at most `most`. A read for each
    /// 1,024, and one more.
    pub(crate) fn expiries(
        &self,
        after: Option<Expiry>,
        until: Timestamp,
        most: usize,
    ) -> Result<Vec<Expiry>> {
        let chunks = &self.index.expiry_chunks;
        let first = chunks.partition_point(|chunk| Some(chunk.first) <= after).saturating_sub(1);
        let mut wanted: Vec<Expiry> = Vec::new();
        for chunk in chunks[first..].iter().take_while(|chunk| chunk.first.0 <= until) {
            if wanted.len() >= most {
                break;
            }
            let pairs = self.read_chunk(chunk)?;
            let ours = pairs.into_iter().filter(|pair| Some(*pair) > after && pair.0 <= until);
            wanted.extend(ours.take(most - wanted.len()));
        }
        Ok(wanted)
    }

    /// The earliest expiry of the chunk with this index; `None` if there are no more chunks. No I/O.
    pub(crate) fn expiry_chunk_from(&self, chunk: u32) -> Option<Timestamp> {
        self.index.expiry_chunks.get(chunk as usize).map(|chunk| chunk.first.0)
    }

    /// The expiries of the chunk with this index and their ordinals, in order: one read.
    pub(crate) fn expiry_chunk(&self, chunk: u32) -> Result<Vec<Expiry>> {
        self.read_chunk(&self.index.expiry_chunks[chunk as usize])
    }

    fn read_chunk(&self, chunk: &ExpiryChunk) -> Result<Vec<Expiry>> {
        let bytes = self.read_bytes(u64::from(chunk.at), chunk.len as usize)?;
        let pairs = expiry_chunk::read(&bytes, self.salt(), chunk.first, self.len());
        self.sound(pairs.map_err(|why| (u64::from(chunk.at), why)))
    }

    /// The blocks from `next` on, and before `end`, that are read at a time: as many as fit, or one.
    pub(super) fn run(&self, next: usize, end: usize) -> Range<usize> {
        let blocks = &self.index.blocks;
        let start = blocks.spot(next).at;
        let fits = |block: &usize| {
            let spot = blocks.spot(*block);
            (spot.at - start) as usize + spot.len as usize <= PIECE
        };
        next..next + (next..end).take_while(fits).count().max(1)
    }

    /// The bytes of adjacent blocks; of a single large one as many as contain its heads.
    fn read_run(&self, run: Range<usize>) -> Result<Vec<u8>> {
        let (first, last) = (self.index.blocks.spot(run.start), self.index.blocks.spot(run.end - 1));
        if run.len() == 1 {
            return self.glance(first);
        }
        self.read_bytes(u64::from(first.at), (last.at - first.at + last.len) as usize)
    }

    /// The bytes of a block; of a large one as many as contain its heads.
    fn glance(&self, spot: BlockPlace) -> Result<Vec<u8>> {
        let mut bytes = self.read_bytes(u64::from(spot.at), (spot.len as usize).min(GLANCE))?;
        if bytes.len() < spot.len as usize {
            let heads_end = block::heads_end(&bytes).min(spot.len as usize);
            if heads_end.cmp(&bytes.len()) == Ordering::Greater {
                bytes = self.read_bytes(u64::from(spot.at), heads_end)?;
            }
        }
        Ok(bytes)
    }

    pub(super) fn read_bytes(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.handle().read_at(&mut bytes, at).map_err(|error| ReadError::io(self.path(), at, error))?;
        Ok(bytes)
    }

    pub(super) fn heads<'a>(&'a self, spot: BlockPlace, bytes: &'a [u8]) -> Result<Heads<'a>> {
        self.sound(Heads::open(spot, bytes, self.salt(), self.name().shard, self.sections()))
    }

    pub(super) fn cut(&self, bytes: &Bytes, start: u64, place: BodyPlace, number: Number) -> Result<Bytes> {
        self.sound(block::cut_body(bytes, start, place, number.get(), self.salt()))
    }

    /// Adds the name of this file to an error of a block.
    pub(super) fn sound<T>(&self, read: std::result::Result<T, BadBlock>) -> Result<T> {
        read.map_err(|(at, why)| ReadError::unreadable(self.path(), at, why))
    }
}
