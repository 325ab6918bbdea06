//! The disk: all file access of the engine.
//!
//! [`RealDisk`] is the machine's disk, [`ReadOnlyDisk`] the same without writes, [`MemoryDisk`] tracks what was
//! synced and loses the rest on demand. The engine wraps the disk in a pool, which bounds the number of open files,
//! and that in a [`CountedDisk`], which counts its calls and bytes.

mod counted;
pub(crate) mod failure;
mod lenient;
mod memory;
mod pooled;
mod read_only;
mod real;
mod sizes;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use counted::{CountedDisk, DiskCounts};
pub(crate) use lenient::LenientDisk;
pub use memory::{Calls, Crash, Fault, MemoryDisk};
pub(crate) use pooled::PooledDisk;
pub use read_only::ReadOnlyDisk;
pub use real::RealDisk;
pub(crate) use sizes::SizeTally;
pub use sizes::Sizes;

/// A file system with directories and files.
///
/// # Contract
/// - What a file held at its last [`DiskFile::sync`] survives a crash. What was written later may survive
///   whole, in part, or not at all, in units of a sector and in any order.
/// - A name that is created, moved or removed is durable once its directory was synced; before that it may survive or
///   not.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Creates a directory and its parents, durably. No error if it exists.
    ///
    /// # Errors
    /// The operating system's.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// The names in a directory, in order.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, and the operating system's others.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Opens a file for reading and writing; creates it if it is missing, truncates it if it exists.
    ///
    /// # Errors
    /// The operating system's.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `NotFound` and the operating system's others.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file within the same directory; an existing file of the new name is replaced. Atomic.
    ///
    /// # Errors
    /// The operating system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Creates a hard link, which may be in another directory. Neither name depends on the other.
    ///
    /// # Errors
    /// The operating system's; `Unsupported` or `CrossesDevices` where the file has to be copied instead.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = (from, to);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes a file's name. Open handles stay valid.
    ///
    /// # Errors
    /// The operating system's.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// The operating system's. After an error nothing is known about any change since the last success.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Opens a directory, so that its names can be made durable though no further file may be opened.
    ///
    /// # Errors
    /// The operating system's; `Unsupported` where [`sync_dir`](Disk::sync_dir) has to do.
    fn open_dir(&self, dir: &Path) -> io::Result<Arc<dyn DiskDir>> {
        let _ = dir;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Locks a file against every other holder, in this process or another, and creates it if it is missing. `None`
    /// if it is locked. The lock ends when the returned value is dropped, and with the process.
    ///
    /// # Errors
    /// The operating system's.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>>;

    /// The free space in bytes for an ordinary user on the file system of `dir`.
    ///
    /// # Errors
    /// The operating system's.
    fn free_space(&self, dir: &Path) -> io::Result<u64>;
}

/// An open file. All calls may be made from several threads at once.
pub trait DiskFile: Debug + Send + Sync {
    /// Fills `buf` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before, and the operating system's others.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`. After an error any part of it may have been written.
    ///
    /// # Errors
    /// `StorageFull` and the operating system's others.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes the data written so far durable, with the metadata needed to read it back (`fdatasync`).
    ///
    /// # Errors
    /// The operating system's. After an error nothing is known about any write since the last success, and a
    /// second call may succeed without having written them: the kernel drops what it could not write
    /// (<https://wiki.postgresql.org/wiki/Fsync_Errors>).
    fn sync(&self) -> io::Result<()>;

    /// Its length in bytes.
    ///
    /// # Errors
    /// The operating system's.
    fn size(&self) -> io::Result<u64>;

    /// The next offset from `at` on that may hold data, as far as known without reading: everything between is zeros.
    /// `at` itself if nothing is known, the highest number if no data follows.
    ///
    /// # Errors
    /// The operating system's.
    fn data_from(&self, at: u64) -> io::Result<u64> {
        Ok(at)
    }

    /// Announces that `len` bytes from `offset` on will be read soon, so that they can be prefetched. A hint that
    /// never fails.
    fn will_read(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Sets whether the file stays open from now on, however many others are used: while it does, a limit of open
    /// files cannot prevent writes to it.
    fn keep_open(&self, keep: bool) {
        let _ = keep;
    }

    /// Truncates the file, or extends it with zeros, to `len` bytes.
    ///
    /// # Errors
    /// The operating system's.
    fn set_size(&self, len: u64) -> io::Result<()>;

    /// Reserves room for `len` bytes and extends the file with zeros to that length, if the file system supports it;
    /// otherwise does nothing.
    ///
    /// # Errors
    /// `StorageFull` and the operating system's others.
    fn preallocate(&self, len: u64) -> io::Result<()>;
}

/// An open directory.
pub trait DiskDir: Debug + Send + Sync {
    /// Makes the names in it durable.
    ///
    /// # Errors
    /// As for [`Disk::sync_dir`], except for a limit of open files.
    fn sync(&self) -> io::Result<()>;
}

/// A lock that is held.
pub trait DiskLock: Debug + Send + Sync {}
