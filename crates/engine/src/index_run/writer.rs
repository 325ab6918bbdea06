//! Writing a run.

use std::io;
use std::path::Path;

use super::block::BlockBuilder;
use super::filter::Filter;
use super::index::RunIndex;
use super::reader::IndexRun;
use super::value::IndexValue;
use crate::disk::Disk;
use crate::sealed::{Appender, FileId};

/// An index run that is being written, from its lowest key to its highest.
///
/// In memory are the last 256 KiB of it, its index, and its filter.
#[derive(Debug)]
pub(crate) struct RunWriter<V> {
    out: Appender,
    block: BlockBuilder,
    block_key: u64,
    last: Option<(u64, V)>,
    index: RunIndex,
    filter: Option<Filter>,
    scratch: Vec<u8>,
}

impl<V: IndexValue> RunWriter<V> {
    /// The length from which an index run takes no more pairs: offsets in it are 32-bit numbers.
    pub(crate) const MOST: u64 = 3 * 1024 * 1024 * 1024;

    /// Begins the index run of that name in `dir`, and replaces one that may be there. If `filter_for` is not 0, it
    /// gets a filter for this number of pairs; with more than that the filter becomes less effective, not wrong.
    ///
    /// # Errors
    /// Those of the disk, here and in all that follows. After one the file is unusable.
    pub(crate) fn create(
        disk: &dyn Disk,
        dir: &Path,
        name: FileId,
        filter_for: u64,
    ) -> io::Result<RunWriter<V>> {
        assert_eq!(name.kind, V::KIND, "the kind of a run is that of its values");
        Ok(RunWriter {
            out: Appender::create(disk, dir, name)?,
            block: BlockBuilder::default(),
            block_key: 0,
            last: None,
            index: RunIndex::new(),
            filter: (filter_for > 0).then(|| Filter::for_keys(filter_for, V::FILTER_BITS)),
            scratch: Vec::new(),
        })
    }

    /// Adds a pair.
    ///
    /// # Errors
    /// Those of the disk, and one if the file has [`RunWriter::MOST`] bytes.
    ///
    /// # Panics
    /// If it does not come after the previous one.
    pub(crate) fn push(&mut self, key: u64, value: V) -> io::Result<()> {
        let is_next = match self.last {
            Some((last, _)) if V::IS_UNIQUE => last < key,
            last => last < Some((key, value)),
        };
        assert!(is_next, "{key} {value:?} is out of order");
        if self.bytes() >= RunWriter::<V>::MOST {
            return Err(too_long());
        }
        if self.block.is_full(key) {
            self.close_block()?;
        }
        if self.block.is_empty() {
            self.block_key = key;
        }
        self.block.add(key, value);
        if let Some(filter) = &mut self.filter {
            filter.insert(key);
        }
        self.last = Some((key, value));
        self.index.len += 1;
        Ok(())
    }

    /// The length so far, without filter and index, and without the block that is being filled.
    pub(crate) fn bytes(&self) -> u64 {
        self.out.position()
    }

    /// The length of the pairs in the block that is being filled.
    pub(super) fn pending(&self) -> u64 {
        self.block.len() as u64
    }

    fn close_block(&mut self) -> io::Result<()> {
        self.scratch.clear();
        self.block.close(self.out.salt(), &mut self.scratch);
        self.out.append(&self.scratch)?;
        let pushed = self.index.push(self.scratch.len() as u32, self.block_key);
        if pushed { Ok(()) } else { Err(too_long()) }
    }

    /// Adds filter and index, and syncs the file; its name is durable when the directory is synced. Returns the open
    /// run.
    pub(crate) fn finish(mut self) -> io::Result<IndexRun<V>> {
        if !self.block.is_empty() {
            self.close_block()?;
        }
        self.index.last = self.last.map_or(0, |(key, _)| key);
        let salt = self.out.salt();
        for piece in self.filter.iter().flat_map(|filter| filter.pieces(salt)) {
            self.out.append(&piece)?;
        }
        self.index.shrink();
        let mut opened = self.out.finish(self.index.encode(self.filter.as_ref()))?;
        opened.index = Vec::new();
        Ok(IndexRun::new(opened, self.index, self.filter))
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "places in a run are 32-bit numbers")
}
