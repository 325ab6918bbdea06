//! Reads what is readable of a damaged table, to be saved into another one.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dwell_model::Limits;

use super::block::{self, BLOCK_BYTES, HEADER_LEN, Heads};
use super::entry::Entry;
use super::index::BlockPlace;
use super::reader::Table;
use super::section;
use crate::disk::{Disk, DiskFile};
use crate::journal::encoding::ByteCursor;
use crate::journal::format::{Salt, u32_at};
use crate::sealed::{FileId, PIECE, ReadError, Result};

/// A part of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Salvaged {
    /// An intact message.
    Message { ordinal: u32, entry: Entry, body: Bytes },
    /// A message whose body is damaged.
    Bodiless { ordinal: u32, entry: Entry, len: u32 },
    /// Bytes in which there is no intact block. If the index is intact, it has the number of messages that were there.
    Lost { from: u64, to: u64, entries: Option<u32> },
}

/// Reads all intact parts of the file of that name in `dir`, in order, and reports the others.
///
/// With the index every intact block is found. Without it, and without header and footer if need be, blocks are
/// searched for at every byte; everything behind the last one is then [`Salvaged::Lost`], including the index.
///
/// # Errors
/// [`ReadError::Io`] if the file cannot be opened. An unreadable part counts as lost: a whole block, or without the
/// index everything from there on, unless `disk` is a [`LenientDisk`](crate::disk::LenientDisk).
pub(crate) fn salvage(
    disk: &dyn Disk,
    dir: &Path,
    name: FileId,
    each: &mut dyn FnMut(Salvaged),
) -> Result<()> {
    if let Ok(file) = Table::open(disk, dir, name) {
        for block in 0..file.index.blocks.len() {
            let spot = file.index.blocks.spot(block);
            let from = u64::from(spot.at);
            let read = file.read_bytes(from, spot.len as usize).ok();
            let saved = read.and_then(|bytes| {
                let heads = Heads::open(spot, &bytes, file.salt(), name.shard, file.sections()).ok()?;
                messages(heads, Bytes::from(bytes.clone()), from, file.salt())
            });
            match saved {
                Some(messages) => messages.into_iter().for_each(&mut *each),
                None => {
                    each(Salvaged::Lost { from, to: from + u64::from(spot.len), entries: Some(spot.count) })
                }
            }
        }
        return Ok(());
    }
    let path = dir.join(name.file_name());
    let failed = |error| ReadError::io(&path, 0, error);
    let file = disk.open(&path).map_err(failed)?;
    let size = file.size().map_err(failed)?;
    let mut search = BlockSearch { file, size, name, window: Vec::new(), window_at: 0 };
    let (mut at, mut lost_from) = (0, 0);
    while at < size {
        match search.block(at) {
            Ok(Some((messages, len))) => {
                if lost_from < at {
                    each(Salvaged::Lost { from: lost_from, to: at, entries: None });
                }
                messages.into_iter().for_each(&mut *each);
                at += len;
                lost_from = at;
            }
            Ok(None) => at += 1,
            // The bytes that follow cannot be read either, one after the other.
            Err(_) => break,
        }
    }
    // A file that was cut off at the end of a block has lost what followed all the same.
    each(Salvaged::Lost { from: lost_from, to: size, entries: None });
    Ok(())
}

/// The messages of a block that was read from `start` on; `None` if its heads cannot be read.
fn messages(mut heads: Heads<'_>, bytes: Bytes, start: u64, salt: Salt) -> Option<Vec<Salvaged>> {
    let mut messages = Vec::new();
    while let Some(found) = heads.next().ok()? {
        let (ordinal, entry, place) = (found.ordinal, found.entry, found.body);
        messages.push(match block::cut_body(&bytes, start, place, entry.number.get(), salt) {
            Ok(body) => Salvaged::Message { ordinal, entry, body },
            Err(_) => Salvaged::Bodiless { ordinal, entry, len: place.len },
        });
    }
    Some(messages)
}

/// An upper bound of the length of the section and the head of one message: 16 KiB of headers, as much again if they
/// are many and short, and 4 KiB of an error.
const LONGEST_HEADS: u32 = 64 * 1024;
/// The length of the longest body, with its checksum.
const LONGEST_BODY: u32 = Limits::MAX_BODY_LEN as u32 + 4;

/// Searches for blocks without an index.
struct BlockSearch {
    file: Arc<dyn DiskFile>,
    size: u64,
    name: FileId,
    window: Vec<u8>,
    window_at: u64,
}

impl BlockSearch {
    /// The messages of the block at `at`, and its length, if there is one.
    fn block(&mut self, at: u64) -> io::Result<Option<(Vec<Salvaged>, u64)>> {
        let left = self.size - at;
        let Some(header) = self.bytes(at, HEADER_LEN as u64)? else { return Ok(None) };
        let number = |field: usize| u32_at(header, field);
        let (checksum, first, count) = (number(0), number(4), number(8));
        let (heads_len, bodies_len) = (number(12), number(16));
        let heads_end = HEADER_LEN as u64 + u64::from(heads_len);
        let len = heads_end + u64::from(bodies_len);
        // Few places look like a header by chance: a checksum is computed only there. A body may consist of such
        // places, so no extra read is made for any of them.
        let is_of_one = heads_len <= LONGEST_HEADS && bodies_len <= LONGEST_BODY;
        let is_likely = match count {
            0 => false,
            1 => is_of_one,
            _ => count <= heads_len && len <= BLOCK_BYTES as u64,
        };
        if !is_likely || len > left || at > u64::from(u32::MAX) {
            return Ok(None);
        }
        let salt = self.name.salt();
        let Some(heads) = self.bytes(at, heads_end)? else { return Ok(None) };
        if salt.checksum(&heads[4..]) != checksum {
            return Ok(None);
        }
        let mut bytes = vec![0; len as usize];
        self.file.read_at(&mut bytes, at)?;
        Ok(self.messages(at, Bytes::from(bytes), first, count).map(|messages| (messages, len)))
    }

    /// The messages of a block with this header.
    fn messages(&self, at: u64, bytes: Bytes, first: u32, count: u32) -> Option<Vec<Salvaged>> {
        let spot =
            BlockPlace { at: u32::try_from(at).ok()?, len: u32::try_from(bytes.len()).ok()?, first, count };
        let heads = bytes.get(HEADER_LEN..block::heads_end(&bytes))?;
        let sections = section::read_shares(&mut ByteCursor::new(heads), first).ok()?;
        let last = sections.last()?;
        if last.range().end != first.checked_add(count)? {
            return None;
        }
        let heads = Heads::open(spot, &bytes, self.name.salt(), self.name.shard, &sections).ok()?;
        messages(heads, bytes.clone(), at, self.name.salt())
    }

    /// `len` bytes from `at` on, which are fewer than a window has; `None` if the file ends before.
    fn bytes(&mut self, at: u64, len: u64) -> io::Result<Option<&[u8]>> {
        if len > self.size - at {
            return Ok(None);
        }
        let end = self.window_at + self.window.len() as u64;
        if at < self.window_at || at + len > end {
            let wanted = (self.size - at).min(PIECE as u64) as usize;
            self.window.resize(wanted, 0);
            self.window_at = at;
            self.file.read_at(&mut self.window, at)?;
        }
        let from = (at - self.window_at) as usize;
        Ok(self.window.get(from..from + len as usize))
    }
}
