//! Saving what can be saved of a damaged directory, into a new one.
//!
//! Ground rules:
//! 1. The old directory is only read.
//! 2. Every message that comes out was put: each of its bytes is under a valid checksum. A message whose bytes are
//!    whole comes out, whatever beside it is damaged or cannot be read: all reads are through a
//!    [`LenientDisk`](crate::disk::LenientDisk). Where the record that ended it is lost, it comes again.
//! 3. The new directory is written from front to back, and its manifest last. So an unfinished one cannot be opened.
//! 4. It has its own random number, an incarnation that the old one does not reach, and message numbers far above: no
//!    id, number or receipt that the old one issued, or goes on to issue, means another message here.
//!
//! # Layout
//! - `old_manifest`: the old directory's manifest, or what is known without it
//! - `tables`: tables, and rebuilt runs for them
//! - `missing`: which messages tables have lost
//! - `journal`: the journal, record by record, as far as each still has a meaning

mod journal;
mod missing;
mod old_manifest;
mod tables;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dwell_model::{Now, Number};

use self::old_manifest::OldDirectory;
use self::tables::SavedTables;
use super::check::{CheckReport, check};
use super::enter;
use super::open_file_limit::{LimitedDisk, few_of, with_few};
use crate::OpenError;
use crate::backup::{fresh_incarnation, fresh_number, prepare};
use crate::checkpoint::Checkpoint;
use crate::disk::{Disk, PooledDisk};
use crate::manifest::{self, Manifest};
use crate::report::Cut;

/// Data that could not be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The file.
    pub file: PathBuf,
    /// The range of bytes in it; `None` for the whole file.
    pub range: Option<(u64, u64)>,
    /// The number of messages there, if it is known.
    pub messages: Option<u64>,
    /// What is wrong there.
    pub reason: String,
}

/// The result of a repair.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RepairReport {
    /// The number of messages in the new directory.
    pub messages: u64,
    /// The number of entries copied from tables.
    pub entries: u64,
    /// The number of batches read from the journal.
    pub batches: u64,
    /// The number of records copied from them.
    pub records: u64,
    /// What was lost.
    pub lost: Vec<Lost>,
    /// The number of messages lost in tables that were found in the journal, and are saved.
    pub found: u64,
    /// The number of records about messages that do not exist any more: left out.
    pub idle_records: u64,
    /// Messages that lost their key, because it has a new owner, and the record that ended their own claim is lost.
    pub keyless: Vec<Number>,
    /// The manifest could not be read: it is not known what was settled in tables, so settled messages come again.
    pub without_manifest: bool,
    /// Purges and other bulk operations that were left out, since without the manifest it is not known which messages
    /// they affected.
    pub idle_sweeps: u64,
    /// The torn tail: no loss, nothing of it was answered.
    pub cuts: Vec<Cut>,
    /// The new directory's incarnation.
    pub incarnation: u32,
    /// The check of the new directory.
    pub check: CheckReport,
}

impl RepairReport {
    fn lose(
        &mut self,
        file: &Path,
        range: Option<(u64, u64)>,
        messages: Option<u64>,
        reason: impl Into<String>,
    ) {
        self.lost.push(Lost { file: file.to_owned(), range, messages, reason: reason.into() });
    }
}

/// The target of the repair.
#[derive(Clone, Debug)]
struct NewDirectory {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    directory: u64,
}

/// The segment size of the new directory: at most the default of an engine.
const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

/// Saves what can be saved of `dir` into `new_dir`, which has to be empty or missing, and checks that. `seed` is the
/// random seed of the new directory's number. Reads all files once or twice. Uses the memory that an opening without
/// a limit would use for the journal, 16 bytes for each message that tables have lost, and 24 for each message in
/// them if the manifest is lost.
///
/// # Errors
/// [`OpenError`] if `dir` is not a data directory, in use, or of a later format; if nothing in it says which
/// directory it is; if `new_dir` is not empty, or cannot be written.
/// is; if `new_dir` holds something, or cannot be written.
pub fn repair(
    disk: &(impl Disk + Clone),
    dir: &Path,
    new_disk: &Arc<dyn Disk>,
    new_dir: &Path,
    now: Now,
    seed: u64,
) -> Result<RepairReport, OpenError> {
    let new_disk = few_of(Arc::clone(new_disk));
    let mut report = with_few(disk, |few| repaired(few, dir, &new_disk, new_dir, now, seed))?;
    report.check = check(&new_disk, new_dir)?;
    report.messages = report.check.messages.unwrap_or(0);
    Ok(report)
}

/// The same without the check of the new directory.
fn repaired(
    few: &LimitedDisk,
    dir: &Path,
    new_disk: &PooledDisk,
    new_dir: &Path,
    now: Now,
    seed: u64,
) -> Result<RepairReport, OpenError> {
    let disk = few.disk();
    let (_lock, names) = enter(disk, dir)?;
    prepare(new_disk, new_dir)?;
    let mut report = RepairReport::default();
    let origin = OldDirectory::find(disk, dir, &names, &mut report)?;
    // A bad sector should cost no more than that sector.
    let disk = &few.lenient();
    let target = NewDirectory { disk: Arc::new(new_disk.clone()), dir: new_dir.to_owned(), directory: seed };
    let due = SavedTables::save(disk, dir, &origin, &names, &target, &mut report)?;
    let mut manifest = Manifest {
        incarnation: fresh_incarnation(dir, origin.incarnation.max(due.incarnation), seed)?,
        directory: seed,
        made: now.wall,
        newest: 0,
        next_number: origin.next_number.max(due.highest + 1),
        checkpoint: Checkpoint { start: 1, seen: origin.seen(), ..due.checkpoint },
    };
    let lost = missing::lost(disk, dir, &origin, &due.unlost);
    journal::save(disk, dir, &origin, lost, &target, &mut manifest, now, &mut report)?;
    manifest.next_number = fresh_number(manifest.next_number);
    new_disk.sync_dir(new_dir).map_err(|error| OpenError::io(new_dir, error))?;
    // Without its manifest the new directory is invalid: what a limit of open files has left out is not lost.
    few.check()?;
    manifest.write(new_disk, new_dir)?;
    report.incarnation = manifest.incarnation;
    Ok(report)
}

/// The reason of a damaged manifest's error, for the list of what was lost.
fn damage(error: OpenError) -> Result<String, OpenError> {
    match error {
        OpenError::Damaged { reason, .. } => Ok(reason),
        OpenError::Io { source, .. } => Ok(source.to_string()),
        error => Err(error),
    }
}

fn manifest_path(dir: &Path) -> PathBuf {
    dir.join(manifest::FILE)
}
