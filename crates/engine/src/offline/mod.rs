//! Tools for a data directory that no engine has open: checking, measuring, dumping, copying, repairing it.
//!
//! All of them read through a [`Disk`]; with [`ReadOnlyDisk`](crate::disk::ReadOnlyDisk) nothing in the directory can
//! change. The number of open files is small. A directory that is in use is refused with [`OpenError::Locked`]. A
//! [`CountedDisk`](crate::disk::CountedDisk) shows the progress: each call documents how much it reads in all.
//!
//! # Layout
//! - [`check()`]: every checksum, and the references between files
//! - [`stats()`]: the content of a directory, by kind of file and by queue
//! - [`dump()`]: all messages
//! - [`backup()`]: a copy that can be opened
//! - [`repair()`]: saves what can be saved of a damaged directory, into a new one
//! - `open_file_limit`: a bounded number of open files
//! - `segments`: the journal's batches, also behind damage; `loaded`: a directory as an opening would find it

mod check;
mod copy;
mod dump;
#[cfg(test)]
mod forged_tests;
mod loaded;
mod open_file_limit;
mod repair;
mod segments;
mod stats;

use std::path::Path;

use crate::OpenError;
use crate::disk::{Disk, DiskLock};
use crate::journal::format::SegmentName;
use crate::manifest;
use crate::open::LOCK;
use crate::sealed::FileId;

pub use check::{CheckReport, Flaw, check};
pub use copy::backup;
pub use dump::{Filter, dump};
pub use repair::{Lost, RepairReport, repair};
pub use stats::{DirectoryStats, KindStats, QueueTables, TableStats, sizes, stats};

/// Locks an existing directory, and lists its names.
fn enter(disk: &dyn Disk, dir: &Path) -> Result<(Box<dyn DiskLock>, Vec<String>), OpenError> {
    let names = disk.list(dir).map_err(|error| OpenError::io(dir, error))?;
    let is_ours = |name: &String| {
        name == manifest::FILE || SegmentName::parse(name).is_some() || FileId::parse(name).is_some()
    };
    if !names.iter().any(is_ours) {
        let known = |name: &String| name == LOCK || name == manifest::NEW_FILE;
        return Err(match names.into_iter().find(|name| !known(name)) {
            Some(found) => OpenError::Foreign { dir: dir.to_owned(), found },
            None => OpenError::damaged(&dir.join(manifest::FILE), 0, "the manifest is missing"),
        });
    }
    match disk.lock(&dir.join(LOCK)).map_err(|error| OpenError::io(dir, error))? {
        Some(lock) => Ok((lock, names)),
        None => Err(OpenError::Locked { dir: dir.to_owned() }),
    }
}

/// The length of a file, if it is available.
fn size_of(disk: &dyn Disk, path: &Path) -> Option<u64> {
    disk.open(path).and_then(|file| file.size()).ok()
}
