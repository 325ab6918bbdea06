//! A disk whose process can die: from one moment on, nothing more reaches it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_engine::disk::{Disk, DiskFile, DiskLock};

#[derive(Clone, Debug)]
pub(crate) struct MortalDisk {
    disk: Arc<dyn Disk>,
    is_dead: Arc<AtomicBool>,
}

impl MortalDisk {
    pub(crate) fn new(disk: impl Disk) -> MortalDisk {
        MortalDisk { disk: Arc::new(disk), is_dead: Arc::default() }
    }

    pub(crate) fn kill(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
    }

    fn living(&self) -> io::Result<&dyn Disk> {
        check(&self.is_dead)?;
        Ok(&*self.disk)
    }

    fn file(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(MortalFile { file, is_dead: Arc::clone(&self.is_dead) })
    }
}

fn check(is_dead: &AtomicBool) -> io::Result<()> {
    if is_dead.load(Ordering::SeqCst) { Err(io::Error::other("the process is dead")) } else { Ok(()) }
}

impl Disk for MortalDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.living()?.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.living()?.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(self.living()?.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(self.living()?.open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.living()?.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.living()?.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.living()?.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.living()?.lock(path)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.living()?.free_space(dir)
    }
}

#[derive(Debug)]
struct MortalFile {
    file: Arc<dyn DiskFile>,
    is_dead: Arc<AtomicBool>,
}

impl MortalFile {
    fn living(&self) -> io::Result<&dyn DiskFile> {
        check(&self.is_dead)?;
        Ok(&*self.file)
    }
}

impl DiskFile for MortalFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.living()?.read_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.living()?.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.living()?.sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.living()?.size()
    }

    fn set_size(&self, len: u64) -> io::Result<()> {
        self.living()?.set_size(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.living()?.preallocate(len)
    }
}
