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

impl Opened {
    /// Opens the file of that name in `dir`: three reads.
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
        let mut footer = [0; FOOTER_LEN];
        file.read_at(&mut footer, footer_at).map_err(io(footer_at))?;
        let footer = Footer::decode(&footer, name, size)
            .map_err(|reason| ReadError::damaged(&path, footer_at, reason))?;
        let mut index = vec![0; (footer_at - footer.index_at) as usize];
        file.read_at(&mut index, footer.index_at).map_err(io(footer.index_at))?;
        let salt = name.salt();
        if salt.checksum(&index) != footer.index_checksum {
            return Err(ReadError::damaged(&path, footer.index_at, "the index fails its checksum"));
        }
        Ok(Opened { name, salt, path, file, size, index, index_at: footer.index_at })
    }
}
