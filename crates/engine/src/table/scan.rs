//! Sequential reading of a table: entries with their bodies, to be written elsewhere.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::block::TableEntry;
use super::reader::Table;
use crate::sealed::Result;

/// Entries with their bodies, in order, read ahead by 256 KiB, or by a block that is larger. After an error it ends.
#[derive(Debug)]
pub(crate) struct TableScan {
    file: Arc<Table>,
    ordinals: Range<u32>,
    read: VecDeque<(TableEntry, Bytes)>,
}

impl Table {
    /// The entries of `ordinals` with their bodies.
    pub(crate) fn scan(self: &Arc<Self>, ordinals: Range<u32>) -> TableScan {
        assert!(ordinals.end <= self.len(), "a scan to {} of {} entries", ordinals.end, self.len());
        TableScan { file: Arc::clone(self), ordinals, read: VecDeque::new() }
    }

    /// Reads whole blocks from `block` on, with their bodies: as many as are read at a time. Returns where it ended.
    pub(super) fn read_through(
        &self,
        block: usize,
        each: &mut dyn FnMut(TableEntry, Bytes) -> Result<()>,
    ) -> Result<usize> {
        let blocks = &self.index.blocks;
        let run = self.run(block, blocks.len());
        let (first, last) = (blocks.spot(run.start), blocks.spot(run.end - 1));
        let start = u64::from(first.at);
        let bytes = Bytes::from(self.read_bytes(start, (last.at - first.at + last.len) as usize)?);
        for block in run.clone() {
            let spot = blocks.spot(block);
            let mut heads = self.heads(spot, &bytes[(spot.at - first.at) as usize..])?;
            while let Some(found) = self.sound(heads.next())? {
                let body = self.cut(&bytes, start, found.body, found.entry.number)?;
                each(found, body)?;
            }
        }
        Ok(run.end)
    }
}

impl Iterator for TableScan {
    type Item = Result<(TableEntry, Bytes)>;

    fn next(&mut self) -> Option<Result<(TableEntry, Bytes)>> {
        while self.read.is_empty() && !self.ordinals.is_empty() {
            let block = self.file.index.blocks.of(self.ordinals.start);
            let (read, ordinals) = (&mut self.read, &mut self.ordinals);
            let through = self.file.read_through(block, &mut |found, body| {
                if ordinals.contains(&found.ordinal) {
                    ordinals.start = found.ordinal + 1;
                    read.push_back((found, body));
                }
                Ok(())
            });
            if let Err(error) = through {
                *ordinals = 0..0;
                read.clear();
                return Some(Err(error));
            }
        }
        self.read.pop_front().map(Ok)
    }
}
