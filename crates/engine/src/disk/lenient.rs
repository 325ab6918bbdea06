//! A disk for saving what can be read: a bad sector does not affect its neighbours.
//!
//! A large read fails as a whole for one bad sector. Here a read that the medium refuses is repeated sector by
//! sector, and what cannot be read is filled with ones: they are not zeros, which could pass for room that was never
//! written, and not a valid checksum, marker or length. Each bad sector is requested once, since a disk may take
//! seconds to give up on it; [`LenientDisk::is_bad`] reports where they are.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Disk, DiskDir, DiskFile, DiskLock, failure};

/// The smallest unit of a read. On a disk with larger sectors each part of one fails separately.
const SECTOR: u64 = 512;
/// The byte that replaces what cannot be read.
const FILLING: u8 = 0xFF;

/// A lenient disk. Clones share the known bad sectors.
#[derive(Clone, Debug)]
pub(crate) struct LenientDisk {
    disk: Arc<dyn Disk>,
    files: Arc<Mutex<HashMap<PathBuf, Arc<BadRanges>>>>,
}

/// The bad ranges of a file: their starts, and their ends. They do not touch.
#[derive(Debug, Default)]
struct BadRanges(Mutex<BTreeMap<u64, u64>>);

impl BadRanges {
    /// The first bad range that overlaps `range`, clipped to it.
    fn first_in(&self, range: Range<u64>) -> Option<Range<u64>> {
        let gaps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = gaps.range(..=range.start).next_back().filter(|(_, end)| **end > range.start);
        let (start, end) = before.or_else(|| gaps.range(range.clone()).next())?;
        Some(range.start.max(*start)..range.end.min(*end))
    }

    fn add(&self, gap: Range<u64>) {
        let mut gaps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut gap = gap;
        let before = gaps.range(..gap.start).next_back().filter(|(_, end)| **end >= gap.start);
        gap.start = before.map_or(gap.start, |(start, _)| *start);
        while let Some((start, end)) = gaps.range(gap.start..=gap.end).next_back() {
            let (start, end) = (*start, *end);
            gap.end = gap.end.max(end);
            gaps.remove(&start);
        }
        gaps.insert(gap.start, gap.end);
    }
}

impl LenientDisk {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> LenientDisk {
        LenientDisk { disk, files: Arc::default() }
    }

    /// Whether any of these bytes of a file was requested and cannot be read.
    pub(crate) fn is_bad(&self, path: &Path, bytes: Range<u64>) -> bool {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(path).is_some_and(|gaps| gaps.first_in(bytes).is_some())
    }

    fn lenient(&self, path: &Path, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let gaps = Arc::clone(files.entry(path.to_owned()).or_default());
        Arc::new(LenientFile { file, gaps })
    }
}

impl Disk for LenientDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.lenient(path, self.disk.open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn open_dir(&self, dir: &Path) -> io::Result<Arc<dyn DiskDir>> {
        self.disk.open_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.disk.lock(path)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.disk.free_space(dir)
    }
}

/// Whether the medium refused the read; reading past the end of a file is a different error.
fn is_bad(error: &io::Error) -> bool {
    failure::is_of_medium(error) && error.kind() != io::ErrorKind::UnexpectedEof
}

#[derive(Debug)]
struct LenientFile {
    file: Arc<dyn DiskFile>,
    gaps: Arc<BadRanges>,
}

impl LenientFile {
    /// Reads a range that has no known bad sector.
    fn read_unknown(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match self.file.read_at(buf, offset) {
            Err(error) if is_bad(&error) => {}
            read => return read,
        }
        let end = offset + buf.len() as u64;
        let mut at = offset;
        while at < end {
            let sector = at / SECTOR * SECTOR..(at / SECTOR + 1) * SECTOR;
            let next = sector.end.min(end);
            let part = &mut buf[(at - offset) as usize..(next - offset) as usize];
            // If this is the whole range, it was refused already.
            let is_all = at == offset && next == end;
            let read = if is_all { Err(io::ErrorKind::Other.into()) } else { self.file.read_at(part, at) };
            match read {
                Err(error) if is_bad(&error) => {
                    part.fill(FILLING);
                    self.gaps.add(sector);
                }
                read => read?,
            }
            at = next;
        }
        Ok(())
    }
}

impl DiskFile for LenientFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset + buf.len() as u64;
        if self.gaps.first_in(offset..end).is_some() && end > self.file.size()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut at = offset;
        while at < end {
            let gap = self.gaps.first_in(at..end).unwrap_or(end..end);
            let (whole, rest) = buf[(at - offset) as usize..].split_at_mut((gap.start - at) as usize);
            if !whole.is_empty() {
                self.read_unknown(whole, at)?;
            }
            rest[..(gap.end - gap.start) as usize].fill(FILLING);
            at = gap.end;
        }
        Ok(())
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

    fn data_from(&self, at: u64) -> io::Result<u64> {
        self.file.data_from(at)
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.file.will_read(offset, len);
    }

    fn keep_open(&self, keep: bool) {
        self.file.keep_open(keep);
    }

    fn set_size(&self, len: u64) -> io::Result<()> {
        self.file.set_size(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.file.preallocate(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Calls, CountedDisk, Fault, MemoryDisk};

    #[test]
    fn a_bad_sector_costs_itself_alone_and_is_asked_for_once() {
        let (memory, path) = (MemoryDisk::new(), Path::new("/d/f"));
        let bytes: Vec<u8> = (0..5_000_u32).map(|at| (at % 251) as u8).collect();
        memory.put_file(path, bytes.clone());
        for (at, len) in [(1_030, 1), (1_540, 600), (4_999, 1)] {
            memory.unreadable_at(path, at, len);
        }
        let counted = CountedDisk::new(Arc::new(memory));
        let disk = LenientDisk::new(Arc::new(counted.clone()));
        let mut expected = bytes;
        for gap in [1_024..1_536, 1_536..2_560, 4_608..5_000] {
            expected[gap].fill(FILLING);
        }
        let read = |at: usize, len: usize| {
            let mut buf = vec![0; len];
            disk.open(path).unwrap().read_at(&mut buf, at as u64).map(|()| buf)
        };
        assert_eq!(read(0, 5_000).unwrap(), expected);
        assert_eq!(counted.counts().reads, 11, "all of it, and each sector");
        for (at, len) in [(0, 5_000), (1_000, 30), (1_100, 10), (2_550, 20), (4_600, 400), (3_000, 0)] {
            assert_eq!(read(at, len).unwrap(), expected[at..at + len], "{at} {len}");
        }
        assert_eq!(counted.counts().reads, 11 + 2 + 1 + 1 + 1, "what lies beside the gaps");
        assert_eq!(read(4_900, 101).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(read(5_001, 1).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(disk.is_bad(path, 2_559..2_561) && disk.is_bad(path, 0..1_025));
        assert!(!disk.is_bad(path, 2_560..4_608) && !disk.is_bad(Path::new("/d/g"), 0..9));
    }

    #[test]
    fn what_is_not_of_the_medium_is_an_error() {
        let (memory, path) = (MemoryDisk::new(), Path::new("/d/f"));
        memory.put_file(path, vec![1; 2_000]);
        let disk = LenientDisk::new(Arc::new(memory.clone()));
        let file = disk.open(path).unwrap();
        memory.fail(Fault { calls: Calls::Reads, after: 0, times: 1, error: io::ErrorKind::OutOfMemory });
        let mut buf = [0; 2_000];
        assert_eq!(file.read_at(&mut buf, 0).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        file.read_at(&mut buf, 0).unwrap();
        assert!(buf == [1; 2_000] && !disk.is_bad(path, 0..2_000));
        assert_eq!(file.read_at(&mut buf, 1).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(!disk.is_bad(path, 0..u64::MAX));
    }
}
