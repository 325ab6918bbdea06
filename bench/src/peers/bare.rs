//! A plain file: the limit of the disk itself, without an index, a checksum or an order.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use crate::Result;
use crate::page_cache::drop_caches;
use crate::workload::{BATCH, BODY_BYTES, Item, Tally};

/// The minimum size of a settlement in bytes.
const SETTLEMENT_BYTES: usize = 16;

/// Appends to one file and syncs each append.
#[derive(Debug)]
pub(crate) struct Appender {
    file: File,
}

impl Appender {
    pub(crate) fn create(folder: &Path) -> Result<Appender> {
        let file = OpenOptions::new().create(true).append(true).open(folder.join("bare.log"))?;
        Ok(Appender { file })
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes)?;
        Ok(self.file.sync_data()?)
    }

    /// Writes the bodies alone, one after the other.
    pub(crate) fn put(&mut self, items: &[Item]) -> Result<()> {
        let bytes: Vec<u8> = items.iter().flat_map(|item| item.body).collect();
        self.append(&bytes)
    }
}

/// Reads bodies that are already stored in due order, and appends a settlement for each: the lower bound for a drain.
#[derive(Debug)]
pub(crate) struct Drain {
    bodies: File,
    settlements: Appender,
    batch: Vec<u8>,
}

impl Drain {
    /// Writes the bodies in due order, and drops them from the page cache.
    pub(crate) fn prepare(folder: &Path, items: impl Iterator<Item = Item>) -> Result<Drain> {
        let mut items: Vec<Item> = items.collect();
        items.sort_unstable_by_key(Item::key);
        let path = folder.join("in-due-order");
        let mut file = File::create(&path)?;
        for chunk in items.chunks(BATCH) {
            file.write_all(&chunk.iter().flat_map(|item| item.body).collect::<Vec<u8>>())?;
        }
        drop(file);
        drop_caches(folder)?;
        Ok(Drain {
            bodies: File::open(&path)?,
            settlements: Appender::create(folder)?,
            batch: vec![0; BATCH * BODY_BYTES],
        })
    }

    /// Takes one batch. Returns the number of bodies.
    pub(crate) fn take(&mut self, tally: &mut Tally) -> Result<usize> {
        let mut filled = 0;
        while filled < self.batch.len() {
            match self.bodies.read(&mut self.batch[filled..])? {
                0 => break,
                bytes => filled += bytes,
            }
        }
        let count = filled / BODY_BYTES;
        if count > 0 {
            self.batch[..filled].chunks_exact(BODY_BYTES).for_each(|body| tally.add(body));
            self.settlements.append(&vec![0; count * SETTLEMENT_BYTES])?;
        }
        Ok(count)
    }
}
