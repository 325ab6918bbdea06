//! Opening a sealed file: header, footer and index, verified.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::header_footer::{BadFrame, FOOTER_LEN, Footer, HEADER_LEN, check_header};
use super::{FileId, FileKind, ReadError, Result};
use crate::disk::{Disk, DiskFile};
use crate::journal::format::Salt;

/// An open sealed file whose index is not decoded yet.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    pub(crate) name: FileId,
    pub(crate) salt: Salt,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) size: u64,
    pub(crate) index: Vec<u8>,
    /// The offset of the index, which is the end of the blocks.
    pub(crate) index_at: u64,
}

/// An open sealed file of which nothing was read yet.
#[derive(Debug)]
pub(super) struct UnreadFile {
    name: FileId,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    size: u64,
    /// The offset from which the end is read in one call.
    tail_at: u64,
}

/// The number of bytes read from the end of a file, in addition to the estimated size of its index.
const TAIL: u64 = 4 * 1024;
/// The maximum of that read; a longer index is read separately.
const MOST: u64 = 256 * 1024;

/// The number of bytes of blocks for one byte of index, for most files at least: 32 bytes for a block of 32 KiB; for
/// one of 4 KiB, 5 bytes if its keys are numbers, and 12 if they are hashes.
fn one_in(kind: FileKind) -> u64 {
    match kind {
        FileKind::Table => 1_024,
        FileKind::Numbers => 800,
        FileKind::Keys => 340,
    }
}

impl UnreadFile {
    /// Opens the file of that name in `dir`, and starts a prefetch of what is read first.
    pub(super) fn open(disk: &dyn Disk, dir: &Path, name: FileId) -> Result<UnreadFile> {
        let path = dir.join(name.file_name());
        let io = |error| ReadError::io(&path, 0, error);
        let file = disk.open(&path).map_err(io)?;
        let size = file.size().map_err(io)?;
        if size < (HEADER_LEN + FOOTER_LEN) as u64 {
            return Err(ReadError::damaged(&path, size, "the file is shorter than header and footer"));
        }
        let tail = (TAIL + size / one_in(name.kind)).min(MOST);
        let tail_at = size.saturating_sub(tail).max(HEADER_LEN as u64);
        file.will_read(tail_at, size - tail_at);
        file.will_read(0, HEADER_LEN as u64);
        Ok(UnreadFile { name, path, file, size, tail_at })
    }
}

impl OpenedFile {
    /// Opens the file of that name in `dir`, and reads header, footer and index.
    pub(crate) fn open(disk: &dyn Disk, dir: &Path, name: FileId) -> Result<OpenedFile> {
        OpenedFile::read(UnreadFile::open(disk, dir, name)?)
    }

    /// Reads header, footer and index: two reads, or three if the index is longer than usual.
    pub(super) fn read(found: UnreadFile) -> Result<OpenedFile> {
        let UnreadFile { name, path, file, size, tail_at } = found;
        let io = |offset| {
            let path = &path;
            move |error| ReadError::io(path, offset, error)
        };
        let mut header = [0; HEADER_LEN];
        file.read_at(&mut header, 0).map_err(io(0))?;
        check_header(&header, name).map_err(|bad| match bad {
            BadFrame::Damaged(reason) => ReadError::damaged(&path, 0, reason),
            BadFrame::Newer(found) => ReadError::Newer { file: path.clone(), found },
        })?;
        let footer_at = size - FOOTER_LEN as u64;
        let mut tail = vec![0; (size - tail_at) as usize];
        file.read_at(&mut tail, tail_at).map_err(io(tail_at))?;
        let footer = tail.last_chunk().expect("the file is longer than header and footer");
        let footer = Footer::decode(footer, name, size)
            .map_err(|reason| ReadError::damaged(&path, footer_at, reason))?;
        let index = match footer.index_at.checked_sub(tail_at) {
            Some(before) => {
                tail.truncate(tail.len() - FOOTER_LEN);
                tail.drain(..before as usize);
                tail
            }
            None => {
                let mut index = vec![0; (footer_at - footer.index_at) as usize];
                file.read_at(&mut index, footer.index_at).map_err(io(footer.index_at))?;
                index
            }
        };
        let salt = name.salt();
        if salt.checksum(&index) != footer.index_checksum {
            return Err(ReadError::damaged(&path, footer.index_at, "the index fails its checksum"));
        }
        Ok(OpenedFile { name, salt, path, file, size, index, index_at: footer.index_at })
    }
}
