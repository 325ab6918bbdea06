//! Why a sealed file cannot be read.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::FORMAT_VERSION;
use crate::OpenError;
use crate::journal::encoding::Unreadable;

/// A failed read.
#[derive(Debug, Error)]
pub(crate) enum ReadError {
    /// The file differs from what was written.
    #[error("{} is damaged at byte {offset}: {reason}", file.display())]
    Damaged { file: PathBuf, offset: u64, reason: String },
    /// A later version wrote the file.
    #[error("{} has format {found}, and this version reads formats up to {FORMAT_VERSION}", file.display())]
    Newer { file: PathBuf, found: u16 },
    /// A later version wrote something that must not be skipped.
    #[error("{} cannot be read by this version at byte {offset}: {reason}", file.display())]
    NewerRecord { file: PathBuf, offset: u64, reason: &'static str },
    /// The disk failed.
    #[error("{}: {source}", file.display())]
    Io { file: PathBuf, source: io::Error },
}

/// ENFILE and EMFILE, of which std knows no kind.
const NO_DESCRIPTORS: [i32; 2] = [23, 24];

pub(crate) type Result<T> = std::result::Result<T, ReadError>;

impl ReadError {
    pub(crate) fn damaged(file: &Path, offset: u64, reason: impl Into<String>) -> ReadError {
        ReadError::Damaged { file: file.to_owned(), offset, reason: reason.into() }
    }

    pub(crate) fn unreadable(file: &Path, offset: u64, why: Unreadable) -> ReadError {
        match why {
            Unreadable::Malformed(reason) => ReadError::damaged(file, offset, reason),
            Unreadable::Newer(reason) => ReadError::NewerRecord { file: file.to_owned(), offset, reason },
        }
    }

    /// Whether the bytes that were read are damaged, so that their content must come from elsewhere: not if the file
    /// cannot be opened just now, or was written by a later version.
    pub(crate) fn is_of_the_place(&self) -> bool {
        use io::ErrorKind::{Interrupted, NotFound, OutOfMemory, PermissionDenied, WouldBlock};
        match self {
            ReadError::Damaged { .. } => true,
            ReadError::Newer { .. } | ReadError::NewerRecord { .. } => false,
            ReadError::Io { source, .. } => {
                !matches!(source.kind(), Interrupted | NotFound | OutOfMemory | PermissionDenied | WouldBlock)
                    && !source.raw_os_error().is_some_and(|code| NO_DESCRIPTORS.contains(&code))
            }
        }
    }

    /// A read at `offset` failed. A file that ends early is damaged: its length was checked when it was opened.
    pub(crate) fn io(file: &Path, offset: u64, source: io::Error) -> ReadError {
        if source.kind() == io::ErrorKind::UnexpectedEof {
            return ReadError::damaged(file, offset, "the file ends here");
        }
        ReadError::Io { file: file.to_owned(), source }
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> io::Error {
        match &error {
            ReadError::Io { source, .. } => io::Error::new(source.kind(), error.to_string()),
            _ => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
        }
    }
}

impl From<ReadError> for OpenError {
    fn from(error: ReadError) -> OpenError {
        match error {
            ReadError::Damaged { file, offset, reason } => OpenError::Damaged { file, offset, reason },
            ReadError::Newer { file, found } => OpenError::NewerFormat { file, found, known: FORMAT_VERSION },
            ReadError::NewerRecord { file, offset, reason } => {
                OpenError::NewerRecord { file, offset, reason }
            }
            ReadError::Io { file, source } => OpenError::io(&file, source),
        }
    }
}
