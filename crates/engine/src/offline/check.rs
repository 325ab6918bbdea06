//! Checking a directory: every checksum, and the references between files.
//!
//! 1. The manifest is whole, and every file that it names exists.
//! 2. Every block of every table and run is as it was written; each live message is found by its number and key.
//! 3. Every batch of every segment is whole, and none is missing before the torn tail.
//! 4. Manifest and journal together give a state: the one that an opening would find.

use std::path::{Path, PathBuf};

use super::loaded::LoadedDirectory;
use super::open_file_limit::with_few;
use super::segments::{SegmentPiece, SegmentWalk, missing, segments};
use super::{enter, size_of};
use crate::OpenError;
use crate::check as sealed;
use crate::checkpoint::Checkpoint;
use crate::disk::Disk;
use crate::manifest::{self, Manifest};
use crate::report::Cut;
use crate::sealed::{FileId, FileKind, ReadError};

/// A flaw that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The file.
    pub file: PathBuf,
    /// The offset in it, in bytes; `None` if the flaw concerns the file as a whole, or its relation to others.
    pub offset: Option<u64>,
    /// What is wrong.
    pub reason: String,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CheckReport {
    /// Files that were read whole, with valid checksums; the manifest counts.
    pub files: u64,
    /// The total size of these files in bytes.
    pub bytes: u64,
    /// Entries of tables.
    pub entries: u64,
    /// Entries of tables that are not settled.
    pub live: u64,
    /// Pairs of runs, which locate messages.
    pub pairs: u64,
    /// Batches of the journal.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// The number of messages that an opening would find; `None` if it would fail.
    pub messages: Option<u64>,
    /// The flaws: the first 1,000 of them.
    pub flaws: Vec<Flaw>,
    /// The number of all flaws.
    pub flaws_in_all: u64,
    /// The torn tail: no damage. The next opening cuts it off.
    pub cuts: Vec<Cut>,
    /// Files that are not needed. The next opening removes them.
    pub leftovers: Vec<String>,
}

impl CheckReport {
    const MOST: usize = 1_000;

    /// Whether there are no flaws.
    pub fn is_sound(&self) -> bool {
        self.flaws_in_all == 0
    }

    fn note(&mut self, file: &Path, offset: Option<u64>, reason: impl Into<String>) {
        // The same flaw may be found again in another way.
        let is_here = |flaw: &Flaw| flaw.file.as_os_str() == file.as_os_str();
        let is_known = |flaw: &Flaw| flaw.offset == offset && offset.is_some() && is_here(flaw);
        if self.flaws.iter().any(is_known) {
            return;
        }
        self.flaws_in_all += 1;
        if self.flaws.len() < CheckReport::MOST {
            self.flaws.push(Flaw { file: file.to_owned(), offset, reason: reason.into() });
        }
    }

    /// Records an error of opening something, if it is damage; returns other errors.
    fn note_error(&mut self, error: OpenError) -> Result<(), OpenError> {
        match error {
            OpenError::Damaged { file, offset, reason } => self.note(&file, Some(offset), reason),
            OpenError::Io { file, source } => self.note(&file, None, source.to_string()),
            error => return Err(error),
        }
        Ok(())
    }
}

/// Checks the directory; changes nothing. Reads tables and segments once or twice, and runs twice.
///
/// # Errors
/// [`OpenError`] if it is not a data directory, in use, or of a later format, or if the process cannot open the few
/// files that it needs at a time. Damage is no error; it is in the report.
pub fn check(disk: &(impl Disk + Clone), dir: &Path) -> Result<CheckReport, OpenError> {
    with_few(disk, |few| checked(few.disk(), dir))
}

fn checked(disk: &dyn Disk, dir: &Path) -> Result<CheckReport, OpenError> {
    let (_lock, names) = enter(disk, dir)?;
    let mut report = CheckReport::default();
    let manifest = match Manifest::read(disk, dir) {
        Ok(manifest) => manifest,
        Err(error) => {
            // Without it it is not known which files count.
            report.note_error(error)?;
            return Ok(report);
        }
    };
    report.files += 1;
    report.bytes += size_of(disk, &dir.join(manifest::FILE)).unwrap_or(0);
    check_sealed(disk, dir, &manifest, &names, &mut report)?;
    check_journal(disk, dir, &manifest, &mut report)?;
    match LoadedDirectory::read(disk, dir) {
        Ok(stored) => {
            report.messages = Some(stored.messages());
            report.cuts = stored.report.cuts;
        }
        Err(error) => report.note_error(error)?,
    }
    let new = names.iter().filter(|name| *name == manifest::NEW_FILE);
    report.leftovers.extend(new.cloned());
    Ok(report)
}

fn check_sealed(
    disk: &dyn Disk,
    dir: &Path,
    manifest: &Manifest,
    names: &[String],
    report: &mut CheckReport,
) -> Result<(), OpenError> {
    let Checkpoint { files, numbers, keys, .. } = &manifest.checkpoint;
    let named = sealed::NamedFiles {
        directory: manifest.directory,
        shard: 0,
        due: files.iter().map(|file| (file.number, &file.settled)).collect(),
        numbers: numbers.clone(),
        keys: keys.clone(),
    };
    let found = sealed::check(disk, dir, &named, &mut |_| ());
    report.files += found.files;
    report.bytes += found.bytes;
    (report.entries, report.live, report.pairs) = (found.entries, found.live, found.pairs);
    let unnamed = found.flaws.in_all - found.flaws.named.len() as u64;
    for flaw in found.flaws.named {
        let text = flaw.to_string();
        match flaw {
            sealed::FileFlaw::Unreadable(ReadError::Damaged { file, offset, reason }) => {
                report.note(&file, Some(offset), reason);
            }
            sealed::FileFlaw::Unreadable(ReadError::Io { file, source }) => {
                report.note(&file, None, source.to_string());
            }
            sealed::FileFlaw::Unreadable(newer) => return Err(newer.into()),
            sealed::FileFlaw::Miscounted { file, .. }
            | sealed::FileFlaw::NotFoundByNumber { file, .. }
            | sealed::FileFlaw::NotFoundByKey { file, .. } => {
                report.note(&dir.join(file.file_name()), None, text);
            }
        }
    }
    report.flaws_in_all += unnamed;
    let leftovers = sealed::unnamed(names, &named).into_iter().map(str::to_owned);
    report.leftovers.extend(leftovers);
    for held in &manifest.checkpoint.held {
        if !files.iter().any(|file| {
            file.number == held.copy.file.get()
                && held.copy.ordinal < file.settled.len()
                && file.settled.has(held.copy.ordinal)
        }) {
            let name = FileId { directory: 0, shard: 0, kind: FileKind::Table, number: held.copy.file.get() };
            let reason = format!("the leased message {} lies nowhere", held.number);
            report.note(&dir.join(name.file_name()), None, reason);
        }
    }
    Ok(())
}

fn check_journal(
    disk: &dyn Disk,
    dir: &Path,
    manifest: &Manifest,
    report: &mut CheckReport,
) -> Result<(), OpenError> {
    let mut segments = segments(disk, dir, manifest.directory)?;
    let oldest = segments.iter().rev().find_map(|found| found.header.ok()).map_or(0, |header| header.oldest);
    let stale = segments.partition_point(|found| found.segment.name.segment < oldest);
    let stale = segments.drain(..stale).map(|found| found.segment.name.file_name());
    report.leftovers.extend(stale);
    for path in missing(&segments, dir, manifest.directory, manifest.newest) {
        report.note(&path, Some(0), "the segment is missing");
    }
    let mut walk = SegmentWalk::over(&segments);
    for at in 0..segments.len() {
        let segment = &segments[at].segment;
        let mut is_whole = segments[at].header.is_ok();
        let noted = walk.read(&segments, at, &mut |piece| {
            match piece {
                SegmentPiece::Batch { at, header, records } => {
                    report.records += u64::from(header.records);
                    if segment.salt.checksum(records) != header.checksum {
                        is_whole = false;
                        report.note(&segment.path, Some(at), "a batch's records fail their checksum");
                    }
                }
                SegmentPiece::Lost { from, reason, .. } => {
                    is_whole = false;
                    report.note(&segment.path, Some(from), reason);
                }
                SegmentPiece::Torn { .. } => {}
            }
            Ok(())
        });
        noted?;
        if is_whole {
            report.files += 1;
            report.bytes += segments[at].size;
        }
    }
    report.batches = walk.batches;
    Ok(())
}
