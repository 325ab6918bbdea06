//! A bounded number of open files, however many files are held.
//!
//! The least recently used file is closed, and opened again by its path when it is used. So it costs a descriptor
//! only while it is in use. What stays open:
//! 1. Files with unsynced writes: a writeback error is reported only to handles that were open then
//!    (<https://wiki.postgresql.org/wiki/Fsync_Errors>).
//! 2. Held files that were removed or renamed: they could not be found again.
//! 3. Files to be [kept open](DiskFile::keep_open), such as the segment that is being written: if it could not be
//!    opened again, a write would fail.
//! 4. Files that a call is using.
//! 5. The directory of the files, from the first sync of its names on: a checkpoint that was renamed into place could
//!    otherwise neither be taken back nor be made durable.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};

use super::{Disk, DiskDir, DiskFile, DiskLock};

/// A disk with a maximum number of open files, except for those that the module names.
#[derive(Clone, Debug)]
pub(crate) struct PooledDisk {
    pool: Arc<Pool>,
    home: Option<Arc<PinnedDir>>,
}

/// A directory that is kept open.
#[derive(Debug)]
struct PinnedDir {
    dir: PathBuf,
    names: OnceLock<Arc<dyn DiskDir>>,
}

#[derive(Debug)]
struct Pool {
    disk: Arc<dyn Disk>,
    most: usize,
    /// A logical clock, incremented with each use of a file.
    uses: AtomicU64,
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    /// Files with a descriptor. At most `most` of them may be closable.
    open: Vec<Weak<PooledFile>>,
    /// Files that are held, by their current names.
    held: HashMap<PathBuf, Weak<PooledFile>>,
}

#[derive(Debug)]
struct PooledFile {
    pool: Arc<Pool>,
    path: PathBuf,
    /// When it was last used.
    used: AtomicU64,
    handle: Mutex<Handle>,
}

#[derive(Debug)]
struct Handle {
    file: Option<Arc<dyn DiskFile>>,
    unsynced: bool,
    nameless: bool,
    kept: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PooledDisk {
    pub(crate) fn new(disk: Arc<dyn Disk>, most: usize) -> PooledDisk {
        let (uses, state) = (AtomicU64::new(0), Mutex::default());
        PooledDisk { pool: Arc::new(Pool { disk, most: most.max(1), uses, state }), home: None }
    }

    /// The same disk, keeping this directory open.
    pub(crate) fn at_home_in(self, dir: &Path) -> PooledDisk {
        let home = PinnedDir { dir: dir.to_owned(), names: OnceLock::new() };
        PooledDisk { home: Some(Arc::new(home)), ..self }
    }

    fn pooled(&self, path: &Path, file: Arc<dyn DiskFile>) -> Arc<PooledFile> {
        let handle = Handle { file: Some(file), unsynced: false, nameless: false, kept: false };
        Arc::new(PooledFile {
            pool: Arc::clone(&self.pool),
            path: path.to_owned(),
            used: AtomicU64::new(self.pool.use_now()),
            handle: Mutex::new(handle),
        })
    }

    /// The held file with that name.
    fn held(&self, path: &Path) -> Option<Arc<PooledFile>> {
        lock(&self.pool.state).held.get(path).and_then(Weak::upgrade)
    }

    /// The file loses its name and cannot be opened by it any more: if it is held, it stays open.
    fn unname(&self, path: &Path) -> io::Result<()> {
        let Some(held) = self.held(path) else { return Ok(()) };
        let mut handle = lock(&held.handle);
        if handle.file.is_none() {
            handle.file = Some(self.pool.disk.open(path)?);
        }
        handle.nameless = true;
        drop(handle);
        let mut state = lock(&self.pool.state);
        if state.held.get(path).is_some_and(|named| std::ptr::eq(named.as_ptr(), Arc::as_ptr(&held))) {
            state.held.remove(path);
        }
        // Dropped before the file, whose drop takes the lock.
        drop(state);
        Ok(())
    }
}

impl Pool {
    fn use_now(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    /// A file was opened: closes the least recently used others, if there are too many.
    fn admit(&self, new: &Arc<PooledFile>) {
        // Dropped after the lock is released: a drop of the last owner takes the lock.
        let mut open: Vec<(u64, Arc<PooledFile>)> = Vec::new();
        let mut state = lock(&self.state);
        state.open.retain(|file| file.strong_count() > 0);
        state.open.push(Arc::downgrade(new));
        if state.open.len() <= self.most {
            return;
        }
        let with_use = |file: &Weak<PooledFile>| {
            let file = file.upgrade()?;
            Some((file.used.load(Ordering::Relaxed), file))
        };
        open.extend(state.open.iter().filter_map(with_use));
        open.sort_unstable_by_key(|(used, _)| *used);
        let mut too_many = open.len().saturating_sub(self.most);
        for (_, file) in &open {
            if too_many == 0 {
                break;
            }
            if !Arc::ptr_eq(file, new) && file.close() {
                too_many -= 1;
                state.open.retain(|open| !std::ptr::eq(open.as_ptr(), Arc::as_ptr(file)));
            }
        }
    }
}

impl PooledFile {
    /// The open file.
    fn open(self: &Arc<Self>) -> io::Result<Arc<dyn DiskFile>> {
        self.open_to(false)
    }

    fn open_to(self: &Arc<Self>, write: bool) -> io::Result<Arc<dyn DiskFile>> {
        self.used.store(self.pool.use_now(), Ordering::Relaxed);
        let mut handle = lock(&self.handle);
        handle.unsynced |= write;
        if let Some(file) = &handle.file {
            return Ok(Arc::clone(file));
        }
        let file = self.pool.disk.open(&self.path)?;
        handle.file = Some(Arc::clone(&file));
        drop(handle);
        self.pool.admit(self);
        Ok(file)
    }

    /// Closes it; false if it has to stay open, or is about to be used.
    fn close(&self) -> bool {
        let mut handle = match self.handle.try_lock() {
            Ok(handle) => handle,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let may_close = !handle.unsynced && !handle.nameless && !handle.kept;
        if may_close {
            handle.file = None;
        }
        may_close
    }
}

impl Drop for PooledFile {
    fn drop(&mut self) {
        let mut state = lock(&self.pool.state);
        // Another file may have the name by now.
        if state.held.get(&self.path).is_some_and(|held| held.strong_count() == 0) {
            state.held.remove(&self.path);
        }
    }
}

impl Disk for PooledDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.pool.disk.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.pool.disk.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let made = self.pooled(path, self.pool.disk.create(path)?);
        lock(&self.pool.state).held.insert(path.to_owned(), Arc::downgrade(&made));
        self.pool.admit(&made);
        Ok(Arc::new(Owner(made)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        // A second opening shares the held file: a name refers to one held file at most.
        if let Some(held) = self.held(path) {
            return Ok(Arc::new(Owner(held)));
        }
        let opened = self.pooled(path, self.pool.disk.open(path)?);
        let mut state = lock(&self.pool.state);
        // Another thread may have opened it meanwhile.
        if let Some(held) = state.held.get(path).and_then(Weak::upgrade) {
            drop(state);
            return Ok(Arc::new(Owner(held)));
        }
        state.held.insert(path.to_owned(), Arc::downgrade(&opened));
        drop(state);
        self.pool.admit(&opened);
        Ok(Arc::new(Owner(opened)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.unname(from)?;
        self.unname(to)?;
        self.pool.disk.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.pool.disk.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.unname(path)?;
        self.pool.disk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let Some(home) = self.home.as_ref().filter(|home| home.dir == dir) else {
            return self.pool.disk.sync_dir(dir);
        };
        if let Some(names) = home.names.get() {
            return names.sync();
        }
        match self.pool.disk.open_dir(dir) {
            Ok(names) => home.names.get_or_init(|| names).sync(),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => self.pool.disk.sync_dir(dir),
            Err(error) => Err(error),
        }
    }

    fn open_dir(&self, dir: &Path) -> io::Result<Arc<dyn DiskDir>> {
        self.pool.disk.open_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.pool.disk.lock(path)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.pool.disk.free_space(dir)
    }
}

/// The handle that the pool returns: its owners count the uses of the file.
#[derive(Debug)]
struct Owner(Arc<PooledFile>);

impl DiskFile for Owner {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.open()?.read_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.open_to(true)?.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.open()?.sync()?;
        lock(&self.0.handle).unsynced = false;
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        self.0.open()?.size()
    }

    fn data_from(&self, at: u64) -> io::Result<u64> {
        self.0.open()?.data_from(at)
    }

    fn will_read(&self, offset: u64, len: u64) {
        // If it cannot be opened, the read will return the error.
        if let Ok(file) = self.0.open() {
            file.will_read(offset, len);
        }
    }

    fn keep_open(&self, keep: bool) {
        lock(&self.0.handle).kept = keep;
    }

    fn set_size(&self, len: u64) -> io::Result<()> {
        self.0.open()?.set_size(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.0.open_to(true)?.preallocate(len)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;
    use crate::disk::MemoryDisk;

    /// Counts open files.
    #[derive(Clone, Debug)]
    struct Watched {
        disk: MemoryDisk,
        open: Arc<AtomicUsize>,
        /// Threads that open a file wait here for each other.
        meeting: Option<Arc<Barrier>>,
    }

    #[derive(Debug)]
    struct WatchedFile {
        file: Arc<dyn DiskFile>,
        open: Arc<AtomicUsize>,
    }

    impl Watched {
        fn new() -> Watched {
            let watched = Watched { disk: MemoryDisk::new(), open: Arc::default(), meeting: None };
            watched.create_dir(Path::new("/d")).unwrap();
            watched
        }

        fn open_files(&self) -> usize {
            self.open.load(Ordering::Relaxed)
        }

        fn watched(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
            self.open.fetch_add(1, Ordering::Relaxed);
            Arc::new(WatchedFile { file, open: Arc::clone(&self.open) })
        }
    }

    impl Drop for WatchedFile {
        fn drop(&mut self) {
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    impl Disk for Watched {
        fn create_dir(&self, dir: &Path) -> io::Result<()> {
            self.disk.create_dir(dir)
        }
        fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
            self.disk.list(dir)
        }
        fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
            Ok(self.watched(self.disk.create(path)?))
        }
        fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
            self.meeting.as_ref().map(|meeting| meeting.wait());
            Ok(self.watched(self.disk.open(path)?))
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.disk.rename(from, to)
        }
        fn remove(&self, path: &Path) -> io::Result<()> {
            self.disk.remove(path)
        }
        fn sync_dir(&self, dir: &Path) -> io::Result<()> {
            self.disk.sync_dir(dir)
        }
        fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
            self.disk.lock(path)
        }
        fn free_space(&self, dir: &Path) -> io::Result<u64> {
            self.disk.free_space(dir)
        }
    }

    impl DiskFile for WatchedFile {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
            self.file.read_at(buf, offset)
        }
        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            self.file.write_at(bytes, offset)
        }
        fn sync(&self) -> io::Result<()> {
            self.file.sync()
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

    fn path(number: u8) -> PathBuf {
        format!("/d/{number}").into()
    }

    fn written(disk: &PooledDisk, number: u8) -> Arc<dyn DiskFile> {
        let file = disk.create(&path(number)).unwrap();
        file.write_at(&[number; 8], 0).unwrap();
        file.sync().unwrap();
        file
    }

    fn reads(file: &Arc<dyn DiskFile>, number: u8) {
        let mut bytes = [0; 8];
        file.read_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [number; 8]);
    }

    #[test]
    fn few_are_open_however_many_are_held() {
        let watched = Watched::new();
        let disk = PooledDisk::new(Arc::new(watched.clone()), 4);
        let files: Vec<_> = (0..100).map(|number| written(&disk, number)).collect();
        assert_eq!(watched.open_files(), 4);
        for (file, number) in files.iter().zip(0..) {
            reads(file, number);
            assert_eq!(watched.open_files(), 4, "file {number}");
        }
        drop(files);
        assert_eq!(watched.open_files(), 0);
        assert!(lock(&disk.pool.state).held.is_empty());
    }

    #[test]
    fn what_is_used_most_stays_open() {
        let watched = Watched::new();
        let disk = PooledDisk::new(Arc::new(watched.clone()), 2);
        let files: Vec<_> = (0..4).map(|number| written(&disk, number)).collect();
        for number in 0..4 {
            reads(&files[0], 0);
            reads(&files[usize::from(number)], number);
        }
        // It cannot be found by its name: it was never closed.
        watched.remove(&path(0)).unwrap();
        reads(&files[0], 0);
    }

    #[test]
    fn what_is_not_synced_or_has_no_name_stays_open() {
        let watched = Watched::new();
        let disk = PooledDisk::new(Arc::new(watched.clone()), 1);
        let unsynced = disk.create(&path(0)).unwrap();
        unsynced.write_at(&[0; 8], 0).unwrap();
        let removed = written(&disk, 1);
        let other = written(&disk, 2);
        reads(&other, 2);
        disk.remove(&path(1)).unwrap();
        let anew = written(&disk, 1);
        anew.write_at(&[7; 8], 0).unwrap();
        anew.sync().unwrap();
        for _ in 0..3 {
            reads(&other, 2);
            reads(&removed, 1);
            reads(&anew, 7);
        }
        watched.remove(&path(0)).unwrap();
        reads(&unsynced, 0);
        drop(removed);
        // It is opened for a moment, and stays held.
        drop(disk.open(&path(1)).unwrap());
        disk.remove(&path(1)).unwrap();
        reads(&other, 2);
        reads(&anew, 7);
        unsynced.sync().unwrap();
        drop(anew);
        // The next opened file finds none that has to stay open.
        let last = written(&disk, 3);
        reads(&last, 3);
        assert_eq!(watched.open_files(), 1);
    }

    #[test]
    fn what_is_to_be_kept_open_is_until_that_ends() {
        let watched = Watched::new();
        let disk = PooledDisk::new(Arc::new(watched.clone()), 2);
        let kept = written(&disk, 0);
        kept.keep_open(true);
        let files: Vec<_> = (1..6).map(|number| written(&disk, number)).collect();
        for _ in 0..3 {
            (1..6).zip(&files).for_each(|(number, file)| reads(file, number));
        }
        assert_eq!(watched.open_files(), 2, "it is one of them");
        // It cannot be found by its name: it was never closed.
        watched.remove(&path(0)).unwrap();
        reads(&kept, 0);
        kept.keep_open(false);
        (1..6).zip(&files).for_each(|(number, file)| reads(file, number));
        assert!(kept.read_at(&mut [0; 8], 0).is_err());
    }

    #[test]
    fn of_two_that_open_a_file_at_once_both_hold_the_same() {
        let watched = Watched::new();
        drop(written(&PooledDisk::new(Arc::new(watched.clone()), 4), 1));
        let meeting = Some(Arc::new(Barrier::new(2)));
        let disk = PooledDisk::new(Arc::new(Watched { meeting, ..watched.clone() }), 4);
        let open = || disk.open(&path(1)).unwrap();
        let files = thread::scope(|scope| {
            let threads = [scope.spawn(open), scope.spawn(open)];
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(watched.open_files(), 1);
        // Without a name it cannot be opened, and both handles read it.
        disk.remove(&path(1)).unwrap();
        files.iter().for_each(|file| reads(file, 1));
        drop(files);
        assert_eq!(watched.open_files(), 0);
    }

    #[test]
    fn threads_share_it() {
        let watched = Watched::new();
        let disk = PooledDisk::new(Arc::new(watched.clone()), 3);
        let files: Vec<_> = (0..16).map(|number| written(&disk, number)).collect();
        thread::scope(|scope| {
            for start in 0..4 {
                let files = &files;
                scope.spawn(move || {
                    for round in 0..2_000usize {
                        let at = (start * 5 + round * 7) % files.len();
                        reads(&files[at], at as u8);
                    }
                });
            }
        });
        reads(&files[0], 0);
        assert!(watched.open_files() <= 4, "{} are open", watched.open_files());
    }
}
