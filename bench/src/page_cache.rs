//! Drops the kernel's cache of a folder's files, so that a read phase reads from the disk.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

use crate::Result;

/// Drops the cached pages of every file below `folder`.
///
/// Dirty pages would stay, so each file is synced first. A file that an active engine removes meanwhile has no pages.
pub(crate) fn drop_caches(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            drop_caches(&path)?;
        } else {
            let file = match File::open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                file => file?,
            };
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}
