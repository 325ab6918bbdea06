//! Why a data directory can not be opened. What a store that is open refuses is [`dwell_store::Error`].

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A refusal to open a data directory. Nothing in it was changed, but where the disk itself failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another engine of this one, has it open.
    #[error("{} is in use by another process; stop that one first, or choose another directory", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// A later version of dwell wrote it.
    #[error(
        "{} has format {found}, and this version reads formats up to {known}; use the version that wrote it, or a later one",
        file.display()
    )]
    NewerFormat {
        /// The file that says so.
        file: PathBuf,
        /// Its format.
        found: u16,
        /// The highest format that is read.
        known: u16,
    },
    /// A later version of dwell wrote something that must not be skipped.
    #[error("{} can not be read by this version at byte {offset}: {reason}; use the version that wrote it", file.display())]
    NewerRecord {
        /// The file.
        file: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// What is new there.
        reason: &'static str,
    },
    /// Something else is in the directory.
    #[error("{} is not a dwell data directory: it holds '{found}'; choose an empty one", dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// A name in it.
        found: String,
    },
    /// A directory that is to be written anew is not empty.
    #[error("{} holds '{found}' already; name one that is empty, or not there yet", dir.display())]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
        /// A name in it.
        found: String,
    },
    /// The path names no directory.
    #[error("{} is not a directory", dir.display())]
    NotADirectory {
        /// The path.
        dir: PathBuf,
    },
    /// The directory can not be made or written.
    #[error("{} can not be written: {source}; look at its owner and mode", dir.display())]
    Unwritable {
        /// The directory.
        dir: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Something that was durable is damaged. Nothing is served from what is left without being asked to.
    #[error(
        "{} is damaged at byte {offset}: {reason}; nothing was changed; look at the disk, then restore a backup, or \
         save what is whole into a new directory with `dwell engine repair`",
        file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// There is no room to open it.
    #[error("there is no room for {}: {source}; free some space", file.display())]
    DiskFull {
        /// The file that could not be written.
        file: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// It was opened as often as it can be.
    #[error("{} was opened {times} times, and can not be opened again; move its messages to a new one", dir.display())]
    Exhausted {
        /// The directory.
        dir: PathBuf,
        /// How often it was opened.
        times: u32,
    },
    /// An option has no sensible meaning.
    #[error("option {option}: {reason}")]
    InvalidOption {
        /// Its name.
        option: &'static str,
        /// What is wrong, and what would be accepted.
        reason: String,
    },
    /// The disk failed.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

impl OpenError {
    /// The stable code of this kind: a word that programs may match on. Each has a page in `docs/errors/`.
    pub fn code(&self) -> &'static str {
        match self {
            OpenError::Locked { .. } => "locked",
            OpenError::NewerFormat { .. } | OpenError::NewerRecord { .. } => "newer_format",
            OpenError::Foreign { .. } => "foreign_directory",
            OpenError::NotEmpty { .. } => "not_empty",
            OpenError::NotADirectory { .. } => "not_a_directory",
            OpenError::Unwritable { .. } => "unwritable",
            OpenError::Damaged { .. } => "damaged",
            OpenError::DiskFull { .. } => "disk_full",
            OpenError::Exhausted { .. } => "exhausted",
            OpenError::InvalidOption { .. } => "invalid_option",
            OpenError::Io { .. } => "io",
        }
    }

    /// Whether opening may succeed later, with nothing in the directory changed by hand.
    pub fn is_retryable(&self) -> bool {
        matches!(self, OpenError::Locked { .. } | OpenError::DiskFull { .. } | OpenError::Io { .. })
    }

    pub(crate) fn damaged(file: &Path, offset: u64, reason: impl Into<String>) -> OpenError {
        OpenError::Damaged { file: file.to_owned(), offset, reason: reason.into() }
    }

    /// What an error of the operating system means for `file`.
    pub(crate) fn io(file: &Path, source: io::Error) -> OpenError {
        let file = file.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => OpenError::DiskFull { file, source },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                OpenError::Unwritable { dir: file, source }
            }
            io::ErrorKind::NotADirectory => OpenError::NotADirectory { dir: file },
            _ => OpenError::Io { file, source },
        }
    }
}
