//! Why a data directory cannot be opened. Errors of an open store are [`dwell_store::Error`].

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A refusal to open a data directory. The directory was not changed, unless the disk itself failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another engine in this one, has it open.
    #[error("{} is in use by another process; stop that one first, or choose another directory", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// It was written by a later version of dwell.
    #[error(
        "{} has format {found}, and this version reads formats up to {known}; use the version that wrote it, or a later one",
        file.display()
    )]
    NewerFormat {
        /// The file with that format.
        file: PathBuf,
        /// Its format.
        found: u16,
        /// The highest format that this version reads.
        known: u16,
    },
    /// A later version of dwell wrote something that must not be skipped.
    #[error("{} cannot be read by this version at byte {offset}: {reason}; use the version that wrote it", file.display())]
    NewerRecord {
        /// The file.
        file: PathBuf,
        /// The offset in it, in bytes.
        offset: u64,
        /// What is new there.
        reason: &'static str,
    },
    /// The directory holds something else.
    #[error("{} is not a dwell data directory: it holds '{found}'; choose an empty one", dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// A name in it.
        found: String,
    },
    /// The target directory is not empty.
    #[error("{} holds '{found}' already; name one that is empty, or not there yet", dir.display())]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
        /// A name in it.
        found: String,
    },
    /// The path is not a directory.
    #[error("{} is not a directory", dir.display())]
    NotADirectory {
        /// The path.
        dir: PathBuf,
    },
    /// The directory cannot be created or written.
    #[error("{} cannot be written: {source}; look at its owner and mode", dir.display())]
    Unwritable {
        /// The directory.
        dir: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Durable data is damaged. The rest is not served unless this is requested.
    #[error(
        "{} is damaged at byte {offset}: {reason}; nothing was changed; look at the disk, then restore a backup, or \
         save what is whole into a new directory with `dwell engine repair`",
        file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The offset in it, in bytes.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// There is no room to open it.
    #[error("there is no room for {}: {source}; free some space", file.display())]
    DiskFull {
        /// The file that could not be written.
        file: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The directory was opened as often as possible.
    #[error("{} was opened {times} times, and cannot be opened again; move its messages to a new one", dir.display())]
    Exhausted {
        /// The directory.
        dir: PathBuf,
        /// How often it was opened.
        times: u32,
    },
    /// An option has an invalid value.
    #[error("option {option}: {reason}")]
    InvalidOption {
        /// Its name.
        option: &'static str,
        /// What is wrong, and what is accepted.
        reason: String,
    },
    /// The disk failed.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl OpenError {
    /// The stable code of this kind: a word for programs to match on. Each has a page in `docs/errors/`.
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

    /// Whether opening may succeed later without a manual change of the directory.
    pub fn is_retryable(&self) -> bool {
        matches!(self, OpenError::Locked { .. } | OpenError::DiskFull { .. } | OpenError::Io { .. })
    }

    pub(crate) fn damaged(file: &Path, offset: u64, reason: impl Into<String>) -> OpenError {
        OpenError::Damaged { file: file.to_owned(), offset, reason: reason.into() }
    }

    /// Maps an error of the operating system for `file`.
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
