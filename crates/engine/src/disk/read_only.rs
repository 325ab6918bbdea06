//! The machine's disk without writes: every change is refused.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use super::{Disk, DiskFile, DiskLock, RealDisk};

/// The machine's disk, where nothing can be changed, not even the text of a lock file.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOnlyDisk;

fn refused<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "this disk is only looked at"))
}

impl Disk for ReadOnlyDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() { Ok(()) } else { refused() }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(dir)
    }

    fn create(&self, _: &Path) -> io::Result<Arc<dyn DiskFile>> {
        refused()
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(ReadOnlyFile(File::open(path)?)))
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }

    fn link(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    /// A missing lock file has no holder: then there is no lock, and none is needed.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some(Box::new(ReadOnlyLock(None))));
            }
            Err(error) => return Err(error),
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(ReadOnlyLock(Some(file))))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        RealDisk.free_space(dir)
    }
}

#[derive(Debug)]
struct ReadOnlyFile(File);

impl DiskFile for ReadOnlyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        refused()
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn data_from(&self, at: u64) -> io::Result<u64> {
        Ok(super::real::data_from(&self.0, at))
    }

    fn will_read(&self, offset: u64, len: u64) {
        super::real::will_read(&self.0, offset, len);
    }

    fn set_size(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn preallocate(&self, _: u64) -> io::Result<()> {
        refused()
    }
}

/// A lock that is held while the file is open.
#[derive(Debug)]
struct ReadOnlyLock(#[expect(dead_code, reason = "closing it lets go")] Option<File>);

impl DiskLock for ReadOnlyLock {}
