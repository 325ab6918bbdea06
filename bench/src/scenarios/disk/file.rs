//! A file that was made ready for what comes, and plain writes to it.

use std::fs::{File, OpenOptions};
use std::io::IoSlice;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::{ReadWriteFlags, pwritev2};

use super::Append;
use crate::Result;

/// So long is the file: a segment's length by default.
pub(super) const SET_ASIDE: u64 = 64 << 20;
/// So many zeros are written at a time.
pub(super) const AHEAD: u64 = 512 << 10;

const BLOCK: usize = 4 << 10;

/// What was done to the file before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    /// The file system has set room aside.
    SetAside,
    /// Besides, zeros are written ahead of chunks.
    ZerosAhead,
    /// All of it was written once.
    Written,
}

/// A file of full length.
pub(super) fn make(path: &Path, ready: Ready) -> Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    fallocate(&file, FallocateFlags::empty(), 0, SET_ASIDE)?;
    if ready == Ready::Written {
        let zeros = vec![0; 1 << 20];
        for at in (0..SET_ASIDE).step_by(zeros.len()) {
            file.write_all_at(&zeros, at)?;
        }
    }
    file.sync_all()?;
    Ok(file)
}

/// Through the page cache.
pub(super) fn buffered(path: &Path, ready: Ready, dsync: bool) -> Result<Append> {
    let file = make(path, ready)?;
    let (mut end, mut written) = (0, 0);
    Ok(Box::new(move |chunk| {
        let behind = end + chunk.len() as u64;
        if ready == Ready::ZerosAhead && behind > written {
            let zeros = AHEAD.min(SET_ASIDE.saturating_sub(behind));
            file.write_all_at(&vec![0; usize::try_from(zeros)?], behind)?;
            written = behind + zeros;
        }
        if dsync {
            durable(&file, chunk, end)?;
        } else {
            file.write_all_at(chunk, end)?;
            file.sync_data()?;
        }
        end = behind;
        Ok(())
    }))
}

/// Past the page cache: the blocks that a chunk touches, whole. What stood before the chunk in its first block would
/// have to be kept in memory; here it is overwritten, which costs the same.
pub(super) fn direct(path: &Path) -> Result<Append> {
    drop(make(path, Ready::Written)?);
    let flags = i32::try_from(OFlags::DIRECT.bits())?;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
    let mut memory = Vec::new();
    let mut end = 0;
    Ok(Box::new(move |chunk: &[u8]| {
        let within = end % BLOCK;
        let len = (within + chunk.len()).next_multiple_of(BLOCK);
        memory.resize(len + BLOCK, 0);
        let from = memory.as_ptr().align_offset(BLOCK);
        let blocks = &mut memory[from..from + len];
        blocks[within..within + chunk.len()].copy_from_slice(chunk);
        durable(&file, blocks, (end - within) as u64)?;
        end += chunk.len();
        Ok(())
    }))
}

/// Written and durable in one call.
fn durable(file: &File, bytes: &[u8], at: u64) -> Result<()> {
    let written = pwritev2(file, &[IoSlice::new(bytes)], at, ReadWriteFlags::DSYNC)?;
    if written == bytes.len() { Ok(()) } else { Err("the disk wrote less than it was given".into()) }
}
