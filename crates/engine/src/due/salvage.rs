//! What can be read of a due file that is damaged, for who saves it into another one.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::block::{self, HEADER_LEN, Heads, TARGET};
use super::entry::Entry;
use super::file::File;
use super::index::BlockSpot;
use super::lane;
use crate::disk::{Disk, DiskFile};
use crate::journal::format::{Salt, u32_at};
use crate::journal::wire::Cursor;
use crate::sealed::{Name, PIECE, ReadError, Result};

/// Something of a due file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Salvaged {
    /// A message, whole.
    Message { ordinal: u32, entry: Entry, body: Bytes },
    /// A message whose body is damaged.
    Bodiless { ordinal: u32, entry: Entry, len: u32 },
    /// Bytes in which there is no whole block. If the index is whole, it says how many messages were there.
    Lost { from: u64, to: u64, entries: Option<u32> },
}

/// Reads all that is whole in the file of that name in `dir`, in order, and says what is not.
///
/// With the index every whole block is found. Without it, and without header and footer if need be, blocks are looked
/// for at every byte; what follows the last one is [`Salvaged::Lost`] then, index and all.
///
/// # Errors
/// [`ReadError::Io`] if the file can not be opened. What can not be read of it counts as lost.
pub(crate) fn salvage(disk: &dyn Disk, dir: &Path, name: Name, each: &mut dyn FnMut(Salvaged)) -> Result<()> {
    if let Ok(file) = File::open(disk, dir, name) {
        for block in 0..file.index.blocks.len() {
            let spot = file.index.blocks.spot(block);
            let from = u64::from(spot.at);
            let read = file.read_bytes(from, spot.len as usize).ok();
            let saved = read.and_then(|bytes| {
                let heads = Heads::open(spot, &bytes, file.salt(), name.shard, file.lanes()).ok()?;
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
    let io = |error| ReadError::io(&path, 0, error);
    let file = disk.open(&path).map_err(io)?;
    let size = file.size().map_err(io)?;
    let mut search = Search { file, size, name, window: Vec::new(), window_at: 0 };
    let (mut at, mut lost_from) = (0, 0);
    while at < size {
        match search.block(at) {
            Some((messages, len)) => {
                if lost_from < at {
                    each(Salvaged::Lost { from: lost_from, to: at, entries: None });
                }
                messages.into_iter().for_each(&mut *each);
                at += len;
                lost_from = at;
            }
            None => at += 1,
        }
    }
    // A file that was cut off where a block ends has lost what came then all the same.
    each(Salvaged::Lost { from: lost_from, to: size, entries: None });
    Ok(())
}

/// The messages of a block that was read from `start` on; `None` if its heads can not be read.
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

/// Looks for blocks without an index.
struct Search {
    file: Arc<dyn DiskFile>,
    size: u64,
    name: Name,
    window: Vec<u8>,
    window_at: u64,
}

impl Search {
    /// The messages of the block at `at`, and its length, if there is one.
    fn block(&mut self, at: u64) -> Option<(Vec<Salvaged>, u64)> {
        let header = self.header(at)?;
        let number = |field: usize| u32_at(&header, field);
        let (first, count) = (number(4), number(8));
        let len = (HEADER_LEN as u64) + u64::from(number(12)) + u64::from(number(16));
        // Few places look like a header by chance: only there a checksum is made.
        let is_likely = count > 0 && count <= number(12) && (count == 1 || len <= TARGET as u64);
        if !is_likely || len > self.size - at || at > u64::from(u32::MAX) {
            return None;
        }
        let spot = BlockSpot { at: at as u32, len: u32::try_from(len).ok()?, first, count };
        let salt = self.name.salt();
        let mut bytes = vec![0; len as usize];
        self.file.read_at(&mut bytes, at).ok()?;
        let heads_end = block::heads_end(&bytes);
        if salt.checksum(&bytes[4..heads_end]) != number(0) {
            return None;
        }
        let lanes = lane::read_shares(&mut Cursor::new(&bytes[HEADER_LEN..heads_end]), first).ok()?;
        let last = lanes.last()?;
        if last.range().end != first.checked_add(count)? {
            return None;
        }
        let bytes = Bytes::from(bytes);
        let heads = Heads::open(spot, &bytes, salt, self.name.shard, &lanes).ok()?;
        Some((messages(heads, bytes.clone(), at, salt)?, len))
    }

    /// So many bytes as a header has.
    fn header(&mut self, at: u64) -> Option<[u8; HEADER_LEN]> {
        let has = self.window_at..self.window_at + self.window.len() as u64;
        if !has.contains(&at) || at + HEADER_LEN as u64 > has.end {
            let len = (self.size - at).min(PIECE as u64) as usize;
            self.window.resize(len, 0);
            self.window_at = at;
            if self.file.read_at(&mut self.window, at).is_err() {
                self.window.clear();
            }
        }
        self.window.get((at - self.window_at) as usize..)?.first_chunk().copied()
    }
}
