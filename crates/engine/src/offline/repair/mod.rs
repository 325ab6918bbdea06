//! Saving what can be saved of a damaged directory, into a new one.
//!
//! Ground rules:
//! 1. The old directory is only read.
//! 2. What comes out was put: every byte of it is under a checksum that is right. A message whose bytes are whole comes
//!    out, whatever is damaged beside it, or cannot be read: all is read through a
//!    [`LenientDisk`](crate::disk::LenientDisk). Where the record that ended it is lost, it comes again.
//! 3. The new directory is written from front to back, and its manifest last. So one that is not finished is not
//!    opened by anybody.
//! 4. It has a number of its own, an incarnation that the old one does not come to, and numbers of messages from far
//!    behind: no id, number or receipt that the old one gave, or goes on to give, means another message here.
//!
//! # Layout
//! - `origin`: the old directory's manifest, or what can be known without it
//! - `due`: due files, and runs made anew for them
//! - `lost`: which messages due files have lost
//! - `journal`: the journal, record by record, as far as each still says something

mod due;
mod journal;
mod lost;
mod origin;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dwell_model::{Now, Number};

use self::due::DueFiles;
use self::origin::Origin;
use super::check::{CheckReport, check};
use super::enter;
use super::few::{Few, few_of, with_few};
use crate::OpenError;
use crate::backup::{fresh_incarnation, fresh_number, prepare};
use crate::checkpoint::Checkpoint;
use crate::disk::{Disk, PooledDisk};
use crate::manifest::{self, Manifest};
use crate::report::Cut;

/// Something that could not be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The file.
    pub file: PathBuf,
    /// From where to where in it, in bytes; nothing if all of it is meant.
    pub range: Option<(u64, u64)>,
    /// How many messages were there, where that is known.
    pub messages: Option<u64>,
    /// What is wrong there.
    pub reason: String,
}

/// What a repair has saved, and what not.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RepairReport {
    /// How many messages the new directory holds.
    pub messages: u64,
    /// How many entries of due files were taken over.
    pub entries: u64,
    /// How many batches of the journal were read.
    pub batches: u64,
    /// How many records of them were taken over.
    pub records: u64,
    /// What was lost.
    pub lost: Vec<Lost>,
    /// How many of the messages that due files have lost were found in the journal, and are saved.
    pub found: u64,
    /// How many records are about messages that are not there any more: left out.
    pub idle_records: u64,
    /// Messages that lost their key, because it has a new owner, and what ended their own claim is lost.
    pub keyless: Vec<Number>,
    /// The manifest could not be read: what was settled in due files is not known, and comes again.
    pub without_manifest: bool,
    /// Purges and the like that were left out, since without the manifest it is not known what they met.
    pub idle_sweeps: u64,
    /// What was being written when the machine stopped: no loss, nothing of it was answered.
    pub cuts: Vec<Cut>,
    /// The new directory's incarnation.
    pub incarnation: u32,
    /// The new directory, checked.
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

/// Where it goes.
#[derive(Clone, Debug)]
struct Target {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    directory: u64,
}

/// How the new directory's segments are: no longer than those that an engine writes by default.
const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

/// Saves what can be saved of `dir` into `new_dir`, which has to be empty or not there, and checks that. `seed` is where
/// chance begins: the new directory's number. Reads all files once or twice. In memory is what an opening without a
/// limit would hold of the journal, 16 bytes for each message that due files have lost, and 24 for each in them if the
/// manifest is lost.
///
/// # Errors
/// [`OpenError`] if `dir` is not a data directory, in use, or of a later format; if nothing in it says which directory it
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

/// The same, but for the check of the new directory.
fn repaired(
    few: &Few,
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
    let origin = Origin::find(disk, dir, &names, &mut report)?;
    // What one bad sector costs is that sector.
    let disk = &few.lenient();
    let target = Target { disk: Arc::new(new_disk.clone()), dir: new_dir.to_owned(), directory: seed };
    let due = DueFiles::save(disk, dir, &origin, &names, &target, &mut report)?;
    let mut manifest = Manifest {
        incarnation: fresh_incarnation(dir, origin.incarnation.max(due.incarnation), seed)?,
        directory: seed,
        made: now.wall,
        newest: 0,
        next_number: origin.next_number.max(due.highest + 1),
        checkpoint: Checkpoint { start: 1, seen: origin.seen(), ..due.checkpoint },
    };
    let lost = lost::lost(disk, dir, &origin, &due.unlost);
    journal::save(disk, dir, &origin, lost, &target, &mut manifest, now, &mut report)?;
    manifest.next_number = fresh_number(manifest.next_number);
    new_disk.sync_dir(new_dir).map_err(|error| OpenError::io(new_dir, error))?;
    // Without its manifest the new directory is none: what was left out for want of files is not lost.
    few.check()?;
    manifest.write(new_disk, new_dir)?;
    report.incarnation = manifest.incarnation;
    Ok(report)
}

/// What a damaged manifest's error says, for the list of what was lost.
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
