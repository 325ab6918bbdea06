//! The number of times that each body is written: a disk that searches all writes for marked bodies.
//!
//! The marks are those of a mix ([`MARK`]): one message in [`MARKED`] has one, preceded by its number. The counts
//! continue over several openings, in a file with one byte per marked message.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use dwell_engine::disk::{Disk, DiskFile, DiskLock, RealDisk};
use memchr::memmem::Finder;

use crate::Result;
use crate::mix::{MARK, MARKED};

/// The length of a number and a mark.
const MARKING: usize = 8 + MARK.len();

/// The number of times that the body of each marked message was written.
#[derive(Clone, Debug)]
pub(crate) struct BodyWrites(Arc<Mutex<Vec<u8>>>);

impl BodyWrites {
    /// Counts for this many messages, marked or not. Continues with the counts in `file`, if it exists.
    pub(crate) fn go_on(file: &Path, messages: u64) -> Result<BodyWrites> {
        let marked = usize::try_from(messages.div_ceil(MARKED))?;
        let counts = if file.exists() { fs::read(file)? } else { vec![0; marked] };
        if counts.len() != marked {
            return Err("the counts of body writes are of another number of messages".into());
        }
        Ok(BodyWrites(Arc::new(Mutex::new(counts))))
    }

    pub(crate) fn keep(&self, file: &Path) -> Result<()> {
        Ok(fs::write(file, &*self.0.lock().unwrap_or_else(PoisonError::into_inner))?)
    }

    /// The mean and maximum over the marked messages that `wanted` selects.
    pub(crate) fn mean_and_most(&self, wanted: impl Fn(u64) -> bool) -> (f64, u8) {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let picked: Vec<u8> = counts
            .iter()
            .zip(0..)
            .filter(|(_, place)| wanted(place * MARKED))
            .map(|(count, _)| *count)
            .collect();
        let sum: u64 = picked.iter().map(|count| u64::from(*count)).sum();
        (sum as f64 / picked.len() as f64, picked.iter().copied().max().unwrap_or_default())
    }

    /// The machine's disk, with all writes searched.
    pub(crate) fn disk(&self) -> Arc<dyn Disk> {
        Arc::new(WatchedDisk(self.clone()))
    }

    fn see(&self, number: u64) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = usize::try_from(number / MARKED).ok().filter(|_| number.is_multiple_of(MARKED));
        if let Some(count) = place.and_then(|place| counts.get_mut(place)) {
            *count = count.saturating_add(1);
        }
    }

    /// Counts the bodies whose number and mark are in `bytes` and end after the first `known` of them.
    fn look(&self, bytes: &[u8], known: usize) {
        for mark in Finder::new(&MARK).find_iter(bytes) {
            if mark + MARK.len() > known
                && let Some(number) = mark.checked_sub(8).and_then(|from| bytes[from..].first_chunk::<8>())
            {
                self.see(u64::from_le_bytes(*number));
            }
        }
    }
}

#[derive(Debug)]
struct WatchedDisk(BodyWrites);

impl WatchedDisk {
    fn watched(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(WatchedFile { file, seen: self.0.clone(), tail: Mutex::default() })
    }
}

impl Disk for WatchedDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.watched(RealDisk.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.watched(RealDisk.open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        RealDisk.lock(path)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        RealDisk.free_space(dir)
    }
}

/// The end of the last write to a file: its offset, and its last bytes, fewer than a number and a mark.
#[derive(Debug, Default)]
struct Tail {
    end: u64,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn DiskFile>,
    seen: BodyWrites,
    tail: Mutex<Tail>,
}

impl DiskFile for WatchedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        // A number and mark may span consecutive writes. Of the new bytes, fewer than their length are searched here,
        // so that none is counted twice.
        let mut seam = if tail.end == offset { std::mem::take(&mut tail.bytes) } else { Vec::new() };
        let known = seam.len();
        seam.extend_from_slice(&bytes[..bytes.len().min(MARKING - 1)]);
        if known > 0 {
            self.seen.look(&seam, known);
        }
        self.seen.look(bytes, 0);
        let last = if bytes.len() < MARKING { &seam } else { bytes };
        let from = last.len().saturating_sub(MARKING - 1);
        *tail = Tail { end: offset + bytes.len() as u64, bytes: last[from..].to_vec() };
        drop(tail);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::Mix;

    /// However a stream of bodies is cut into writes, each marked body counts once per write.
    #[test]
    fn every_marked_body_counts_however_it_is_cut() {
        let dir = std::env::temp_dir().join(format!("dwell-bench-bodies-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let messages = 3 * MARKED;
        let stream: Vec<u8> = (0..messages).flat_map(Mix::body).collect();
        for cut in [1, 7, 15, 16, 17, 100, 4_096, stream.len()] {
            let writes = BodyWrites::go_on(&dir.join("missing"), messages).unwrap();
            let file = writes.disk().create(&dir.join("stream")).unwrap();
            for _ in 0..2 {
                let mut at = 0;
                for piece in stream.chunks(cut) {
                    file.write_at(piece, at).unwrap();
                    at += piece.len() as u64;
                }
            }
            assert_eq!(writes.mean_and_most(|_| true), (2.0, 2), "cut at {cut}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
