//! The disk: the only door through which the engine touches files.
//!
//! [`RealDisk`] is the machine's, [`ReadOnlyDisk`] the same for who only looks, [`MemoryDisk`] keeps what was synced
//! apart from what was not and loses the latter on demand. The engine wraps whichever it is given in a pool, so that
//! few files are open at a time, and that in a [`CountedDisk`], so that its reads and writes are counted in calls and
//! bytes.

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

/// A place with directories and files.
///
/// # Contract
/// - What a file held at its last [`DiskFile::sync`] survives a crash. What was written later may survive
///   whole, in part, or not at all, in units of a sector and in any order.
/// - A name made, moved or removed survives once its directory was synced; before that it may or may not.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Makes a directory and those above it, durably. No error if it exists.
    ///
    /// # Errors
    /// The operating system's.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// The names in a directory, in order.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, and the operating system's others.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Opens a file for reading and writing; makes it if it is missing, empties it if it is there.
    ///
    /// # Errors
    /// The operating system's.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file that is there for reading and writing.
    ///
    /// # Errors
    /// `NotFound` and the operating system's others.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives a file another name in the same directory; what had that name is gone. Atomic.
    ///
    /// # Errors
    /// The operating system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name, which may be in another directory. Neither name depends on the other.
    ///
    /// # Errors
    /// The operating system's; `Unsupported` or `CrossesDevices` where the file has to be copied instead.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = (from, to);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes a file's name. Who has it open goes on.
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

    /// Locks a file against every other holder, in this process or another, and makes it if it is missing.
    /// `None` if somebody has it. The lock ends when the returned value is dropped, and with the process.
    ///
    /// # Errors
    /// The operating system's.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>>;

    /// How many bytes an ordinary user may still write where `dir` is.
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

    /// Makes what was written, and what is needed to read it back, durable (`fdatasync`).
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

    /// Before which place nothing but zeros stands from `at` on, as far as that is known without reading: `at` itself
    /// where nothing is, the highest number where nothing else follows.
    ///
    /// # Errors
    /// The operating system's.
    fn data_from(&self, at: u64) -> io::Result<u64> {
        Ok(at)
    }

    /// Says that `len` bytes from `offset` on will be read soon, so that they may be on their way meanwhile. Nothing depends
    /// on it, and nothing fails.
    fn will_read(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Says whether it is to be kept open from now on, whatever else is used: as long as it is, nothing that keeps other files
    /// from being opened keeps this one from being written.
    fn keep_open(&self, keep: bool) {
        let _ = keep;
    }

    /// Cuts or extends it with zeros to `len` bytes.
    ///
    /// # Errors
    /// The operating system's.
    fn set_size(&self, len: u64) -> io::Result<()>;

    /// Reserves room for `len` bytes and extends the file with zeros to that length, where the file system
    /// can; else does nothing.
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
    /// As for [`Disk::sync_dir`], but for want of a file that can be opened.
    fn sync(&self) -> io::Result<()>;
}

/// A lock that is held.
pub trait DiskLock: Debug + Send + Sync {}
