//! Why a PostgreSQL cannot be used: said at open, before anything is written.

use thiserror::Error;

/// A PostgreSQL that cannot be used, and what to do about it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL names no PostgreSQL.
    #[error("'{url}' is not a PostgreSQL URL: {reason}")]
    Url {
        /// Its scheme; what follows may have a password in it.
        url: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// Nobody answers there, or the login is refused.
    #[error("PostgreSQL at {at} cannot be reached: {reason}")]
    Unreachable {
        /// The address without its login.
        at: String,
        /// What the connection or the server said.
        reason: String,
    },
    /// The server lacks what the functions need.
    #[error("PostgreSQL {version} is too old: 13 or later is needed")]
    TooOld {
        /// What the server says it is.
        version: String,
    },
    /// The database cannot hold all texts.
    #[error(
        "the database has the encoding {encoding}, which has no place for all texts: use one that has UTF8"
    )]
    Encoding {
        /// Its encoding.
        encoding: String,
    },
    /// The server answers commits before they are on its disk.
    #[error(
        "PostgreSQL has {setting} = off, which loses what was answered: set it on, or open with unsynced=allow"
    )]
    Unsynced {
        /// Which setting.
        setting: &'static str,
    },
    /// The role may not do what is needed.
    #[error("the role lacks a right: {reason}")]
    NotGranted {
        /// What the server says.
        reason: String,
    },
    /// The schema has a layout that this version does not know.
    #[error(
        "schema '{schema}' has layout {found}, and this version of dwell knows up to {known}: use a newer one"
    )]
    Layout {
        /// The schema.
        schema: String,
        /// Its layout.
        found: i32,
        /// The newest that is known.
        known: i32,
    },
    /// In the schema lies what dwell has not put there, or not all that it has.
    #[error("schema '{schema}': {found}; choose another with schema=")]
    Foreign {
        /// The schema.
        schema: String,
        /// What was found.
        found: String,
    },
    /// The store's thread cannot be started.
    #[error("the store's thread cannot be started: {reason}")]
    Threads {
        /// What the operating system says.
        reason: String,
    },
}

impl OpenError {
    /// The stable code of this kind.
    pub fn code(&self) -> &'static str {
        match self {
            OpenError::Url { .. } => "postgres_url",
            OpenError::Unreachable { .. } => "unreachable",
            OpenError::TooOld { .. } => "postgres_too_old",
            OpenError::Encoding { .. } => "postgres_encoding",
            OpenError::Unsynced { .. } => "postgres_unsynced",
            OpenError::NotGranted { .. } => "not_granted",
            OpenError::Layout { .. } => "newer_format",
            OpenError::Foreign { .. } => "foreign_data",
            OpenError::Threads { .. } => "threads",
        }
    }

    /// Whether the same may succeed later, with nothing else changed by the caller.
    pub fn is_retryable(&self) -> bool {
        matches!(self, OpenError::Unreachable { .. })
    }
}
