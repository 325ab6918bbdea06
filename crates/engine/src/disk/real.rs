//! The machine's disk: `std::fs`, and rustix for what it lacks.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use super::{Disk, DiskDir, DiskFile, DiskLock};

/// The machine's disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        make_durably(dir, &mut |dir| self.sync_dir(dir))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = fs::read_dir(dir)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<String>>>()?;
        names.sort();
        Ok(names)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn open_dir(&self, dir: &Path) -> io::Result<Arc<dyn DiskDir>> {
        Ok(Arc::new(RealDir(File::open(dir)?)))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The process id is for people; nothing reads it back, so a full disk is no reason to fail.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Some(Box::new(RealLock { _file: file })))
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

#[derive(Debug)]
struct RealDir(File);

impl DiskDir for RealDir {
    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn data_from(&self, at: u64) -> io::Result<u64> {
        Ok(data_from(&self.0, at))
    }

    fn will_read(&self, offset: u64, len: u64) {
        will_read(&self.0, offset, len);
    }

    fn set_size(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    #[cfg(target_os = "linux")]
    fn preallocate(&self, len: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        set_aside(|| fallocate(&self.0, FallocateFlags::empty(), 0, len))
    }

    #[cfg(not(target_os = "linux"))]
    fn preallocate(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Creates a directory and its parents, and syncs the names of all of them: an existing one may have been created, by
/// any process, just before the power fails.
fn make_durably(dir: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    // A relative path of one part has the empty path as its parent.
    let parent = match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        // The root has no name; where `.` leads, a process works already.
        None => return Ok(()),
    };
    if dir == Path::new(".") {
        return Ok(());
    }
    make_durably(parent, sync)?;
    let is_new = match fs::create_dir(dir) {
        Ok(()) => true,
        Err(_) if dir.is_dir() => false,
        Err(error) => return Err(error),
    };
    match sync(parent) {
        // Foreign directories need not be readable, and not every file system can sync one.
        Err(error) if !is_new && is_not_ours_to_sync(&error) => Ok(()),
        done => done,
    }
}

fn is_not_ours_to_sync(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem | InvalidInput | Unsupported)
}

/// Preallocates room where the file system can. An interruption by a signal says nothing about the disk, so it is
/// retried.
#[cfg(target_os = "linux")]
fn set_aside(allocate: impl FnMut() -> rustix::io::Result<()>) -> io::Result<()> {
    use rustix::io::{Errno, retry_on_intr};
    match retry_on_intr(allocate) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        done => Ok(done?),
    }
}

/// Asks the file system for preallocated ranges that were not written (lseek(2), `SEEK_DATA`). That changes the
/// file's position, which nothing uses.
#[cfg(target_os = "linux")]
pub(super) fn data_from(file: &File, at: u64) -> u64 {
    use rustix::fs::{SeekFrom, seek};
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) => data,
        Err(rustix::io::Errno::NXIO) => u64::MAX,
        // Not supported.
        Err(_) => at,
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn data_from(_: &File, at: u64) -> u64 {
    at
}

/// Starts a prefetch by the kernel (posix_fadvise(2), `POSIX_FADV_WILLNEED`), and does not wait for it.
#[cfg(target_os = "linux")]
pub(super) fn will_read(file: &File, offset: u64, len: u64) {
    use rustix::fs::{Advice, fadvise};
    if let Some(len) = std::num::NonZeroU64::new(len) {
        // If it fails, the data is read on demand.
        let _ = fadvise(file, offset, Some(len), Advice::WillNeed);
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn will_read(_: &File, _: u64, _: u64) {}

/// The lock belongs to the open file (`flock`): closing it releases the lock.
#[derive(Debug)]
struct RealLock {
    _file: File,
}

impl DiskLock for RealLock {}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn the_names_of_directories_that_are_there_are_synced_too() {
        let root = std::env::temp_dir().join(format!("dwell-dirs-{}", std::process::id()));
        let dir = root.join("made/before");
        fs::create_dir_all(&dir).unwrap();
        for existing in [true, true, false] {
            let mut synced: Vec<PathBuf> = Vec::new();
            let dir = if existing { dir.clone() } else { dir.join("now") };
            let mut sync = |dir: &Path| {
                synced.push(dir.to_owned());
                Ok(())
            };
            make_durably(&dir, &mut sync).unwrap();
            let parents: Vec<PathBuf> = dir.ancestors().skip(1).map(Path::to_owned).collect();
            synced.reverse();
            assert_eq!(synced, parents);
            assert!(dir.is_dir());
        }
        let refuse = |kind: io::ErrorKind| make_durably(&dir, &mut |_| Err(kind.into()));
        assert!(refuse(io::ErrorKind::PermissionDenied).is_ok(), "it is not known to be anybody's");
        assert!(refuse(io::ErrorKind::Other).is_err());
        let new = dir.join("new");
        let mut refuses_the_last = |parent: &Path| {
            if parent == dir { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
        };
        assert!(make_durably(&new, &mut refuses_the_last).is_err(), "what was made is to be durable");
        fs::write(root.join("file"), "").unwrap();
        let error = make_durably(&root.join("file"), &mut |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        fs::remove_dir_all(root).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_signal_while_room_is_set_aside_is_no_failure_of_the_disk() {
        use rustix::io::Errno;
        let mut answers = vec![Ok(()), Err(Errno::INTR), Err(Errno::INTR)];
        set_aside(|| answers.pop().unwrap()).unwrap();
        assert!(answers.is_empty());
        set_aside(|| Err(Errno::OPNOTSUPP)).unwrap();
        assert_eq!(set_aside(|| Err(Errno::NOSPC)).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn what_is_said_to_hold_nothing_reads_as_zeros() {
        let dir = std::env::temp_dir().join(format!("dwell-real-{}", std::process::id()));
        RealDisk.create_dir(&dir).unwrap();
        let file = RealDisk.create(&dir.join("holes")).unwrap();
        file.preallocate(1 << 20).unwrap();
        file.set_size(1 << 20).unwrap();
        for at in [0, 300_000, 700_000] {
            file.write_at(b"something", at).unwrap();
        }
        file.sync().unwrap();
        for at in (0..1 << 20).step_by(4_099) {
            let end = file.data_from(at).unwrap();
            assert!(end >= at);
            let mut bytes = vec![1; (end.min(1 << 20) - at) as usize];
            file.read_at(&mut bytes, at).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0), "between {at} and {end}");
        }
        for at in [0, 300_000, 700_000] {
            assert!(file.data_from(at).unwrap() <= at + 8);
        }
        fs::remove_dir_all(dir).unwrap();
    }
}
