//! Writing a sealed file: from front to back, in large pieces.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::header_footer::{FOOTER_LEN, Footer, header};
use super::{FileId, OpenedFile, PIECE};
use crate::disk::{Disk, DiskFile};
use crate::journal::format::Salt;

/// The end of a sealed file that is being written.
#[derive(Debug)]
pub(crate) struct Appender {
    name: FileId,
    salt: Salt,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    /// The buffered bytes.
    pending: Vec<u8>,
    written: u64,
}

impl Appender {
    /// Creates an empty file of that name in `dir`; replaces an existing one.
    pub(crate) fn create(disk: &dyn Disk, dir: &Path, name: FileId) -> io::Result<Appender> {
        let path = dir.join(name.file_name());
        let file = disk.create(&path)?;
        let pending = header(name).to_vec();
        Ok(Appender { name, salt: name.salt(), path, file, pending, written: 0 })
    }

    pub(crate) fn name(&self) -> FileId {
        self.name
    }

    pub(crate) fn salt(&self) -> Salt {
        self.salt
    }

    /// The offset of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    /// Appends `bytes`. After an error the file is unusable.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() >= PIECE {
            self.flush()?;
            self.file.write_at(bytes, self.written)?;
            self.written += bytes.len() as u64;
            return Ok(());
        }
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(&self.pending, self.written)?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Appends index and footer, and syncs. Returns the file opened as if it had been read back.
    pub(crate) fn finish(mut self, index: Vec<u8>) -> io::Result<OpenedFile> {
        let index_at = self.position();
        let footer = Footer {
            index_at,
            file_len: index_at + (index.len() + FOOTER_LEN) as u64,
            index_checksum: self.salt.checksum(&index),
        };
        self.append(&index)?;
        self.append(&footer.encode(self.name))?;
        self.flush()?;
        self.file.sync()?;
        Ok(OpenedFile {
            name: self.name,
            salt: self.salt,
            path: self.path,
            file: self.file,
            size: footer.file_len,
            index,
            index_at,
        })
    }
}
