//! Counting the calls and bytes of a disk.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dwell_time::Stopwatch;

use super::sizes::{SizeTally, Sizes};
use super::{Disk, DiskFile, DiskLock};

/// A disk that counts its calls, whether they succeed or not. Clones share their counters.
#[derive(Clone, Debug)]
pub struct CountedDisk {
    disk: Arc<dyn Disk>,
    tally: Arc<DiskTally>,
}

#[derive(Debug, Default)]
struct DiskTally {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    syncs: AtomicU64,
    dir_syncs: AtomicU64,
    others: AtomicU64,
    sync_us: SizeTally,
    write_sizes: SizeTally,
}

/// The counters of a [`CountedDisk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DiskCounts {
    /// Reads from files.
    pub reads: u64,
    /// Bytes requested by these reads.
    pub read_bytes: u64,
    /// Writes to files.
    pub writes: u64,
    /// Bytes passed to these writes.
    pub written_bytes: u64,
    /// Syncs of files.
    pub syncs: u64,
    /// Syncs of directories.
    pub dir_syncs: u64,
    /// All other calls: opening, listing, renaming, removing, resizing, locking, querying free space.
    pub others: u64,
}

fn add(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

impl CountedDisk {
    /// Counts the calls to `disk`.
    pub fn new(disk: Arc<dyn Disk>) -> CountedDisk {
        CountedDisk { disk, tally: Arc::default() }
    }

    /// The current counters.
    pub fn counts(&self) -> DiskCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DiskCounts {
            reads: read(&self.tally.reads),
            read_bytes: read(&self.tally.read_bytes),
            writes: read(&self.tally.writes),
            written_bytes: read(&self.tally.written_bytes),
            syncs: read(&self.tally.syncs),
            dir_syncs: read(&self.tally.dir_syncs),
            others: read(&self.tally.others),
        }
    }

    /// The durations of file syncs, in microseconds.
    pub fn sync_us(&self) -> Sizes {
        self.tally.sync_us.read()
    }

    /// The sizes of writes, in bytes.
    pub fn write_sizes(&self) -> Sizes {
        self.tally.write_sizes.read()
    }

    fn counted(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(CountedFile { file, tally: Arc::clone(&self.tally) })
    }
}

impl Disk for CountedDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        add(&self.tally.others, 1);
        self.disk.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        add(&self.tally.others, 1);
        self.disk.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        add(&self.tally.others, 1);
        Ok(self.counted(self.disk.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        add(&self.tally.others, 1);
        Ok(self.counted(self.disk.open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        add(&self.tally.others, 1);
        self.disk.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        add(&self.tally.others, 1);
        self.disk.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        add(&self.tally.others, 1);
        self.disk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        add(&self.tally.dir_syncs, 1);
        self.disk.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        add(&self.tally.others, 1);
        self.disk.lock(path)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        add(&self.tally.others, 1);
        self.disk.free_space(dir)
    }
}

#[derive(Debug)]
struct CountedFile {
    file: Arc<dyn DiskFile>,
    tally: Arc<DiskTally>,
}

impl DiskFile for CountedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        add(&self.tally.reads, 1);
        add(&self.tally.read_bytes, buf.len());
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        add(&self.tally.writes, 1);
        add(&self.tally.written_bytes, bytes.len());
        self.tally.write_sizes.record(bytes.len() as u64);
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        add(&self.tally.syncs, 1);
        let watch = Stopwatch::start();
        let synced = self.file.sync();
        self.tally.sync_us.record(watch.elapsed_us());
        synced
    }

    fn size(&self) -> io::Result<u64> {
        add(&self.tally.others, 1);
        self.file.size()
    }

    fn data_from(&self, at: u64) -> io::Result<u64> {
        add(&self.tally.others, 1);
        self.file.data_from(at)
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.file.will_read(offset, len);
    }

    fn keep_open(&self, keep: bool) {
        self.file.keep_open(keep);
    }

    fn set_size(&self, len: u64) -> io::Result<()> {
        add(&self.tally.others, 1);
        self.file.set_size(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        add(&self.tally.others, 1);
        self.file.preallocate(len)
    }
}
