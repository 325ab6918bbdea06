//! A backup of a directory that is not open.

use std::path::Path;

use dwell_model::Now;

use super::enter;
use super::open_file_limit::with_few;
use super::segments::segments;
use crate::OpenError;
use crate::backup::{BackupFiles, BackupReport, PinnedFile};
use crate::disk::{Disk, DiskLock};
use crate::manifest::Manifest;

/// Copies the files that the manifest of `dir` names into `new_dir`, which has to be empty or missing; see
/// [`Engine::backup`](crate::Engine::backup). `copies` disables links. Nothing is verified: [`check`](super::check())
/// does that.
///
/// # Errors
/// [`OpenError`] if `dir` is not a data directory, in use, of a later format, or lacks a file that its manifest
/// names; if `new_dir` is not empty, or cannot be written.
pub fn backup(
    disk: &(impl Disk + Clone),
    dir: &Path,
    new_disk: &dyn Disk,
    new_dir: &Path,
    now: Now,
    seed: u64,
    copies: bool,
) -> Result<BackupReport, OpenError> {
    with_few(disk, |few| {
        let (_lock, snapshot) = snapshot(few.disk(), dir)?;
        snapshot.write(new_disk, new_dir, now, seed, copies)
    })
}

/// The files that the manifest of a directory names, and the lock of the directory.
fn snapshot(disk: &dyn Disk, dir: &Path) -> Result<(Box<dyn DiskLock>, BackupFiles), OpenError> {
    let (lock, _) = enter(disk, dir)?;
    let manifest = Manifest::read(disk, dir)?;
    let mut files = Vec::new();
    for name in manifest.checkpoint.names(manifest.directory) {
        let name = name.file_name();
        let path = dir.join(&name);
        let file = disk.open(&path).map_err(|error| OpenError::io(&path, error))?;
        let len = file.size().map_err(|error| OpenError::io(&path, error))?;
        files.push(PinnedFile { name, path, file, len, is_sealed: true });
    }
    for found in segments(disk, dir, manifest.directory)? {
        let (name, path) = (found.segment.name.file_name(), found.segment.path.clone());
        let file = std::sync::Arc::clone(&found.segment.file);
        files.push(PinnedFile { name, path, file, len: found.size, is_sealed: false });
    }
    Ok((lock, BackupFiles { manifest, files }))
}
