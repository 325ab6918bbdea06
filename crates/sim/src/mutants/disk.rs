//! Disks with a fault.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dwell_engine::disk::{Disk, DiskFile, DiskLock, MemoryDisk};
use dwell_engine::fuzzing::forge::{self, Forgery};

use super::DiskFault;

/// A disk with a fault, on top of one without.
#[derive(Clone, Debug)]
pub(crate) struct MutantDisk {
    disk: MemoryDisk,
    fault: DiskFault,
    calls: Arc<AtomicU64>,
    /// Whether the manifest has been written once.
    has_manifest: Arc<Mutex<bool>>,
    /// Files whose sync was postponed.
    owed: Arc<Mutex<Vec<Arc<dyn DiskFile>>>>,
    /// Whether a manifest has been published since one of them was written.
    published: Arc<Mutex<bool>>,
}

impl MutantDisk {
    /// `disk` with `fault`.
    pub(crate) fn new(disk: MemoryDisk, fault: DiskFault) -> MutantDisk {
        MutantDisk {
            disk,
            fault,
            calls: Arc::default(),
            has_manifest: Arc::default(),
            owed: Arc::default(),
            published: Arc::default(),
        }
    }

    /// The number of the next call of the kind that the fault affects, from 1.
    fn call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn wrap(&self, path: &Path, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let is_journal = name.starts_with("journal-");
        let is_sealed = ["table-", "numbers-", "keys-"].iter().any(|kind| name.starts_with(kind));
        Arc::new(MutantFile {
            file,
            is_journal,
            is_sealed,
            manifest_of: (name == "MANIFEST.new").then(|| path.parent().map(Path::to_owned)).flatten(),
            disk: self.clone(),
            owes_sync: Mutex::new(false),
        })
    }

    /// The manifest that is written instead of `bytes`; other effects of the fault happen here too.
    fn forged(&self, dir: &Path, bytes: &[u8]) -> Option<Vec<u8>> {
        let forgery = match self.fault {
            DiskFault::SettledBitDropped => Forgery::SettledBit,
            DiskFault::RedirectLost => Forgery::NewestRun,
            DiskFault::HoldLost => Forgery::Held,
            DiskFault::SegmentRemovedEarly => {
                let start = forge::start(bytes)?;
                for name in self.disk.list(dir).ok()? {
                    let number = name.strip_prefix("journal-000-").and_then(|number| number.parse().ok());
                    if number.is_some_and(|number: u64| number < start) {
                        // If the file cannot be removed, the disk reports it elsewhere.
                        let _ = self.disk.remove(&dir.join(name));
                    }
                }
                return None;
            }
            _ => return None,
        };
        forge::forge(bytes, forgery)
    }

    fn published(&self) -> std::sync::MutexGuard<'_, bool> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owed(&self) -> std::sync::MutexGuard<'_, Vec<Arc<dyn DiskFile>>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the fault to the journal before the store is opened again.
    pub(crate) fn before_opening(&self, dir: &Path) {
        let lost = match self.fault {
            DiskFault::TailCutShort => 1,
            DiskFault::LastSectorLost => 512,
            _ => return,
        };
        let Some(path) = self.last_journal(dir) else { return };
        let Some(mut bytes) = self.disk.read_file(&path) else { return };
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        bytes[end.saturating_sub(lost)..end].fill(0);
        self.disk.put_file(&path, bytes);
    }

    fn last_journal(&self, dir: &Path) -> Option<PathBuf> {
        let names = self.disk.list(dir).ok()?;
        let last = names.into_iter().filter(|name| name.starts_with("journal-")).max()?;
        Some(dir.join(last))
    }
}

impl Disk for MutantDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        // Only once a manifest names them: then no sync is postponed when the next flush begins.
        let is_sealed = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("table-");
        if path.file_name().is_some_and(is_sealed) && std::mem::take(&mut *self.published()) {
            // Syncs postponed since before a power failure cannot be made up for.
            self.owed().drain(..).for_each(|file| drop(file.sync()));
        }
        Ok(self.wrap(path, self.disk.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(path, self.disk.open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut has_manifest = self.has_manifest.lock().unwrap_or_else(PoisonError::into_inner);
        if self.fault == DiskFault::ManifestKept && std::mem::replace(&mut *has_manifest, true) {
            return Ok(());
        }
        *self.published() = true;
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if self.fault == DiskFault::DirectorySyncSkipped {
            return Ok(());
        }
        self.disk.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.disk.lock(path)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.disk.free_space(dir)
    }
}

#[derive(Debug)]
struct MutantFile {
    file: Arc<dyn DiskFile>,
    is_journal: bool,
    is_sealed: bool,
    /// The directory, if this file is its next manifest.
    manifest_of: Option<PathBuf>,
    disk: MutantDisk,
    owes_sync: Mutex<bool>,
}

impl DiskFile for MutantFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buf, offset)?;
        let flips = self.is_sealed && self.disk.fault == DiskFault::ReadFlipped;
        if flips && self.disk.call().is_multiple_of(23) {
            let middle = buf.len() / 2;
            buf[middle] ^= 1;
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let forged = self.manifest_of.as_ref().and_then(|dir| self.disk.forged(dir, bytes));
        if let Some(forged) = forged {
            return self.file.write_at(&forged, offset);
        }
        match self.disk.fault {
            DiskFault::WriteFailureIgnored => {
                // The write may have failed, and no error is returned.
                let _ = self.file.write_at(bytes, offset);
                Ok(())
            }
            DiskFault::WriteLost if self.is_journal && offset > 0 && self.disk.call().is_multiple_of(23) => {
                Ok(())
            }
            DiskFault::SealedWriteLost if self.is_sealed && self.disk.call().is_multiple_of(23) => Ok(()),
            _ => self.file.write_at(bytes, offset),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self.disk.fault {
            DiskFault::SyncSkipped => Ok(()),
            DiskFault::SealedSyncSkipped if self.is_sealed => Ok(()),
            DiskFault::SealedSyncLate if self.is_sealed => {
                self.disk.owed().push(Arc::clone(&self.file));
                Ok(())
            }
            DiskFault::SyncSometimesSkipped if self.disk.call().is_multiple_of(3) => Ok(()),
            DiskFault::SyncLate => {
                let mut owes = self.owes_sync.lock().unwrap_or_else(PoisonError::into_inner);
                if std::mem::replace(&mut *owes, true) { self.file.sync() } else { Ok(()) }
            }
            DiskFault::SyncFailureIgnored => {
                // The sync failed, and no error is returned.
                let _ = self.file.sync();
                Ok(())
            }
            _ => self.file.sync(),
        }
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn set_size(&self, len: u64) -> io::Result<()> {
        self.file.set_size(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.file.preallocate(len)
    }
}
