//! Opening a sealed file: header, footer and index, checked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{BadFrame, FOOTER_LEN, Footer, HEADER_LEN, check_header};
use super::{Name, ReadError, Result};
use crate::disk::{Disk, DiskFile};
use crate::journal::format::Salt;

/// An open sealed file whose kind has still to make sense of the index.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) name: Name,
    pub(crate) salt: Salt,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) size: u64,
    pub(crate) index: Vec<u8>,
    /// Where the index stands, and so where the blocks end.
    pub(crate) index_at: u64,
}

/// So many bytes are read from the end of a file: the index of most files is among them.
const TAIL: usize = 32 * 1024;

impl Opened {
    /// Opens the file of that name in `dir`: two reads, or three if the index is long.
    pub(crate) fn open(disk: &dyn Disk, dir: &Path, name: Name) -> Result<Opened> {
        let path = dir.join(name.file_name());
        let io = |offset| {
            let path = &path;
            move |error| ReadError::io(path, offset, error)
        };
        let file = disk.open(&path).map_err(io(0))?;
        let size = file.size().map_err(io(0))?;
        if size < (HEADER_LEN + FOOTER_LEN) as u64 {
            return Err(ReadError::damaged(&path, size, "the file is shorter than header and footer"));
        }
        let mut header = [0; HEADER_LEN];
        file.read_at(&mut header, 0).map_err(io(0))?;
        check_header(&header, name).map_err(|bad| match bad {
            BadFrame::Damaged(reason) => ReadError::damaged(&path, 0, reason),
            BadFrame::Newer(found) => ReadError::Newer { file: path.clone(), found },
        })?;
        let footer_at = size - FOOTER_LEN as u64;
        let tail_at = size.saturating_sub(TAIL as u64).max(HEADER_LEN as u64);
        let mut tail = vec![0; (size - tail_at) as usize];
        file.read_at(&mut tail, tail_at).map_err(io(tail_at))?;
        let footer = tail.last_chunk().expect("the file is longer than header and footer");
        let footer = Footer::decode(footer, name, size)
            .map_err(|reason| ReadError::damaged(&path, footer_at, reason))?;
        let index = match footer.index_at.checked_sub(tail_at) {
            Some(before) => tail[before as usize..tail.len() - FOOTER_LEN].to_vec(),
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
        Ok(Opened { name, salt, path, file, size, index, index_at: footer.index_at })
    }
}
