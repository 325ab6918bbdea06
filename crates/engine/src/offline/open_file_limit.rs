//! A disk for the tools: it has few open files, however many files a directory has.
//!
//! The tools report or repair what they cannot read as damage. A limit of open files or of memory is no damage:
//! whatever a tool makes of such an error, it fails with the error itself.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use crate::OpenError;
use crate::disk::{Disk, DiskFile, DiskLock, LenientDisk, PooledDisk};

/// The maximum number of open files. The tools read most of them once and from front to back, so that few are enough;
/// and a process with a limit of 64 can run them.
const OPEN_FILES: usize = 32;

/// The disk for one run of a tool.
pub(super) struct LimitedDisk {
    disk: PooledDisk,
    refused: Arc<FirstRefusal>,
}

/// The first call that failed for lack of a resource of the process.
#[derive(Debug, Default)]
struct FirstRefusal(Mutex<Option<(PathBuf, io::Error)>>);

/// Runs a tool on `disk`.
pub(super) fn with_few<T>(
    disk: &(impl Disk + Clone),
    tool: impl FnOnce(&LimitedDisk) -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let refused = Arc::<FirstRefusal>::default();
    let watched = RefusalDisk { disk: Arc::new(disk.clone()), refused: Arc::clone(&refused) };
    let few = LimitedDisk { disk: few_of(Arc::new(watched)), refused };
    let done = tool(&few);
    few.check()?;
    done
}

/// The same disk, with few open files.
pub(super) fn few_of(disk: Arc<dyn Disk>) -> PooledDisk {
    PooledDisk::new(disk, OPEN_FILES)
}

impl LimitedDisk {
    /// The disk.
    pub(super) fn disk(&self) -> &dyn Disk {
        &self.disk
    }

    /// The same disk for saving what can be read: see [`LenientDisk`].
    pub(super) fn lenient(&self) -> LenientDisk {
        LenientDisk::new(Arc::new(self.disk.clone()))
    }

    /// Fails if a call was refused for lack of a resource.
    pub(super) fn check(&self) -> Result<(), OpenError> {
        match self.refused.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some((file, source)) => Err(OpenError::Io { file, source }),
            None => Ok(()),
        }
    }
}

/// Whether the process lacks a resource, and nothing is wrong with the file.
fn is_want(error: &io::Error) -> bool {
    let wants = [Errno::MFILE, Errno::NFILE, Errno::NOMEM].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| wants.contains(&code))
}

/// Records refused calls.
#[derive(Clone, Debug)]
struct RefusalDisk {
    disk: Arc<dyn Disk>,
    refused: Arc<FirstRefusal>,
}

#[derive(Debug)]
struct RefusalFile {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    refused: Arc<FirstRefusal>,
}

impl FirstRefusal {
    fn look<T>(&self, path: &Path, answer: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &answer
            && is_want(error)
        {
            let again =
                error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
            let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| (path.to_owned(), again));
        }
        answer
    }
}

impl RefusalDisk {
    fn file(&self, path: &Path, file: io::Result<Arc<dyn DiskFile>>) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.refused.look(path, file)?;
        Ok(Arc::new(RefusalFile { file, path: path.to_owned(), refused: Arc::clone(&self.refused) }))
    }
}

impl Disk for RefusalDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.refused.look(dir, self.disk.create_dir(dir))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.refused.look(dir, self.disk.list(dir))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.file(path, self.disk.create(path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.file(path, self.disk.open(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.refused.look(from, self.disk.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.refused.look(from, self.disk.link(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.refused.look(path, self.disk.remove(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.refused.look(dir, self.disk.sync_dir(dir))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.refused.look(path, self.disk.lock(path))
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.refused.look(dir, self.disk.free_space(dir))
    }
}

impl DiskFile for RefusalFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.refused.look(&self.path, self.file.read_at(buf, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.refused.look(&self.path, self.file.write_at(bytes, offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.refused.look(&self.path, self.file.sync())
    }

    fn size(&self) -> io::Result<u64> {
        self.refused.look(&self.path, self.file.size())
    }

    fn data_from(&self, at: u64) -> io::Result<u64> {
        self.refused.look(&self.path, self.file.data_from(at))
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.file.will_read(offset, len);
    }

    fn set_size(&self, len: u64) -> io::Result<()> {
        self.refused.look(&self.path, self.file.set_size(len))
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.refused.look(&self.path, self.file.preallocate(len))
    }
}
