//! A backup: a copy of a directory that can be opened, taken while the directory is in use or not.
//!
//! Writers are not blocked by it. Between two turns the shard syncs its journal and lists the files that its manifest
//! names, each of them *open*, so that it can be read even if it is removed meanwhile. Sealed files are linked where
//! the file system supports it, and copied otherwise; segments are copied up to the synced offset. The manifest is
//! written last.
//!
//! A backup is a separate directory from then on: it and the original both go on. So it gets an incarnation that the
//! original does not reach, and message numbers far above; its first opening raises the incarnation once more, since
//! a backup may be opened in several places. The file [`MARKER`] marks a backup that was not opened yet.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dwell_model::{MessageId, Now, Number, Timestamp};
use thiserror::Error;

use crate::OpenError;
use crate::disk::{Disk, DiskFile};
use crate::manifest::Manifest;

/// Present in a backup until it is opened.
pub(crate) const MARKER: &str = "BACKUP";
/// The text of the marker, before the instant.
const TEXT: &str = "a backup of a dwell data directory, taken at ";

/// The number of bytes copied at a time.
const PIECE: usize = 1024 * 1024;
/// The number of message numbers that are skipped after the highest one found.
const SKIPPED_NUMBERS: u64 = 1 << 32;
/// The number of incarnations that are skipped, plus a random number up to as many again: more openings than the
/// original and its other copies are likely to see meanwhile.
const SKIPPED_INCARNATIONS: u32 = 1 << 11;

/// A file as it was at one moment.
#[derive(Debug)]
pub(crate) struct PinnedFile {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) len: u64,
    /// Whether its content is final, so that a hard link is enough.
    pub(crate) is_sealed: bool,
}

/// The files and the state of a directory at one moment, as a manifest needs them.
#[derive(Debug)]
pub(crate) struct BackupFiles {
    pub(crate) manifest: Manifest,
    pub(crate) files: Vec<PinnedFile>,
}

/// The result of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BackupReport {
    /// The number of files that were linked.
    pub linked: u64,
    /// The number of files that were copied.
    pub copied: u64,
    /// The total size of these files in bytes.
    pub bytes: u64,
}

/// Why a backup failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The store cannot serve.
    #[error(transparent)]
    Store(#[from] dwell_store::Error),
    /// The backup's directory cannot be written.
    #[error(transparent)]
    Directory(#[from] OpenError),
}

impl BackupError {
    /// The stable code of this kind.
    pub fn code(&self) -> &'static str {
        match self {
            BackupError::Store(error) => error.code(),
            BackupError::Directory(error) => error.code(),
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            BackupError::Store(error) => error.is_retryable(),
            BackupError::Directory(error) => error.is_retryable(),
        }
    }
}

impl BackupFiles {
    /// Writes the backup into `dir`, which has to be empty or missing. `copies` disables links.
    pub(crate) fn write(
        mut self,
        disk: &dyn Disk,
        dir: &Path,
        now: Now,
        seed: u64,
        copies: bool,
    ) -> Result<BackupReport, OpenError> {
        prepare(disk, dir)?;
        let mut report = BackupReport::default();
        for pinned in &self.files {
            let to = dir.join(&pinned.name);
            if pinned.is_sealed && !copies && disk.link(&pinned.path, &to).is_ok() {
                report.linked += 1;
            } else {
                copy(pinned, disk, &to)?;
                report.copied += 1;
            }
            report.bytes += pinned.len;
        }
        let marker = dir.join(MARKER);
        let text = format!("{TEXT}{}\n", now.wall);
        let written = disk.create(&marker).and_then(|file| {
            file.write_at(text.as_bytes(), 0)?;
            file.sync()
        });
        written.map_err(|error| OpenError::io(&marker, error))?;
        disk.sync_dir(dir).map_err(|error| OpenError::io(dir, error))?;
        self.manifest.incarnation = fresh_incarnation(dir, self.manifest.incarnation, seed)?;
        self.manifest.next_number = fresh_number(self.manifest.next_number);
        self.manifest.write(disk, dir)?;
        Ok(report)
    }
}

fn copy(from: &PinnedFile, disk: &dyn Disk, to: &Path) -> Result<(), OpenError> {
    let read = |error| OpenError::io(&from.path, error);
    let written = |error| OpenError::io(to, error);
    let file = disk.create(to).map_err(written)?;
    let mut bytes = vec![0; PIECE.min(from.len as usize)];
    let mut at = 0;
    while at < from.len {
        let len = (from.len - at).min(PIECE as u64) as usize;
        from.file.read_at(&mut bytes[..len], at).map_err(read)?;
        file.write_at(&bytes[..len], at).map_err(written)?;
        at += len as u64;
    }
    file.sync().map_err(written)
}

/// When the backup was taken, if `dir` is a backup that is opened for the first time; otherwise `None`.
///
/// # Errors
/// Only a missing marker means that the directory is no backup: a marker that cannot be read refuses the opening.
pub(crate) fn taken_at(disk: &dyn Disk, dir: &Path) -> Result<Option<Timestamp>, OpenError> {
    let marker = dir.join(MARKER);
    let read = || {
        let file = disk.open(&marker)?;
        let mut bytes = vec![0; file.size()?.min(1024) as usize];
        file.read_at(&mut bytes, 0)?;
        Ok::<Vec<u8>, io::Error>(bytes)
    };
    let bytes = match read() {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OpenError::io(&marker, error)),
    };
    let text = String::from_utf8_lossy(&bytes);
    let at = text.strip_prefix(TEXT).and_then(|at| at.trim().parse().ok());
    // The marker counts, even if its text cannot be parsed.
    Ok(Some(at.unwrap_or(Timestamp::MIN)))
}

/// Creates a directory that is to be written from scratch, and checks that it is empty.
pub(crate) fn prepare(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    disk.create_dir(dir).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => OpenError::NotADirectory { dir: dir.to_owned() },
        _ => OpenError::io(dir, error),
    })?;
    let names = disk.list(dir).map_err(|error| OpenError::io(dir, error))?;
    match names.into_iter().next() {
        None => Ok(()),
        Some(found) => Err(OpenError::NotEmpty { dir: dir.to_owned(), found }),
    }
}

/// An incarnation that a directory with this one does not reach soon.
pub(crate) fn fresh_incarnation(dir: &Path, incarnation: u32, seed: u64) -> Result<u32, OpenError> {
    let ahead = SKIPPED_INCARNATIONS + (seed >> 32) as u32 % SKIPPED_INCARNATIONS;
    let fresh = incarnation.saturating_add(ahead);
    if fresh >= MessageId::MAX_INCARNATION {
        return Err(OpenError::Exhausted { dir: dir.to_owned(), times: incarnation });
    }
    Ok(fresh)
}

/// A message number that a directory whose next one is `next` does not reach soon.
pub(crate) fn fresh_number(next: u64) -> u64 {
    // Past the last number none is given, not even twice.
    next.saturating_add(SKIPPED_NUMBERS).min(Number::MAX.get() + 1)
}

#[cfg(test)]
mod tests {
    use dwell_store::{Put, Store as _};
    use dwell_time::Clock as _;

    use super::*;
    use crate::disk::MemoryDisk;
    use crate::journal::format::{SegmentHeader, SegmentName};
    use crate::{Engine, Options};

    fn open(disk: &MemoryDisk, dir: &Path) -> (Engine, crate::Driver) {
        let disk = Arc::new(disk.clone());
        let options = Options { disk, segment_bytes: 4096, seed: Some(3), ..Options::default() };
        Engine::open_driven(dir, options).unwrap()
    }

    fn put(disk: &MemoryDisk, dir: &Path) -> Number {
        let (engine, mut driver) = open(disk, dir);
        let put = engine.put(vec![Put::new("q".parse().unwrap(), "body")]);
        let mut put = std::pin::pin!(put);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(put.as_mut().poll(&mut context).is_pending());
        driver.turn();
        let std::task::Poll::Ready(mut answers) = put.as_mut().poll(&mut context) else {
            panic!("no answer")
        };
        answers.pop().unwrap().unwrap().number
    }

    /// The directory of a store, as if it had given `given` more numbers since its manifest was written.
    fn far_behind(dir: &Path, given: u64) -> MemoryDisk {
        let disk = MemoryDisk::new();
        put(&disk, dir);
        drop(open(&disk, dir));
        let directory = Manifest::read(&disk, dir).unwrap().directory;
        let name = SegmentName { directory, shard: 0, segment: 2 };
        let path = dir.join(name.file_name());
        let mut bytes = disk.read_file(&path).unwrap();
        let header = SegmentHeader::decode(bytes.first_chunk().unwrap(), name).unwrap();
        let header = SegmentHeader { next_number: given, ..header };
        bytes[..SegmentHeader::LEN].copy_from_slice(&header.encode());
        disk.put_file(&path, bytes);
        disk
    }

    #[test]
    fn where_all_numbers_are_given_a_copy_gives_none() {
        let used_up = Number::MAX.get() + 1;
        assert_eq!(fresh_number(used_up), used_up);
        assert_eq!(fresh_number(1), 1 + SKIPPED_NUMBERS);
    }

    #[test]
    fn numbers_of_a_copy_go_on_behind_those_of_the_journal_however_many_it_has_given() {
        let (dir, copy, repaired) = (Path::new("/data"), Path::new("/copy"), Path::new("/repaired"));
        let given: u64 = 1 << 40;
        let disk = far_behind(dir, given);
        let now = dwell_time::ManualClock::new(Timestamp::MIN).now();
        crate::offline::backup(&disk, dir, &disk, copy, now, 5, true).unwrap();
        let new_disk: Arc<dyn Disk> = Arc::new(disk.clone());
        crate::offline::repair(&disk, dir, &new_disk, repaired, now, 5).unwrap();
        assert!(put(&disk, dir).get() >= given);
        for copy in [copy, repaired] {
            let copied = put(&disk, copy).get();
            assert!(copied >= given + SKIPPED_NUMBERS, "{}: {copied}", copy.display());
        }
    }
}
