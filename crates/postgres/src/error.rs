//! Errors of opening the store, returned before anything is written.

use std::path::PathBuf;

use thiserror::Error;

/// Why a PostgreSQL cannot be used, and what to do about it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL names no PostgreSQL.
    #[error("'{url}' is not a PostgreSQL URL: {reason}")]
    Url {
        /// Its scheme alone; the rest may contain a password.
        url: String,
        /// What is wrong with it, and what is expected.
        reason: String,
    },
    /// No server answers there, it refuses the login, or the TLS handshake fails.
    #[error("PostgreSQL at {at} cannot be reached: {reason}")]
    Unreachable {
        /// The address without its login.
        at: String,
        /// The error of the connection or the server.
        reason: String,
    },
    /// The server is too old for the functions.
    #[error("PostgreSQL {version} is too old: 13 or later is needed")]
    TooOld {
        /// The version that the server reports.
        version: String,
    },
    /// The encoding of the database cannot store all texts.
    #[error(
        "the database has the encoding {encoding}, which has no place for all texts: use one that has UTF8"
    )]
    Encoding {
        /// Its encoding.
        encoding: String,
    },
    /// The server answers commits before they are on disk.
    #[error(
        "PostgreSQL has {setting} = off, which loses what was answered: set it on, or open with unsynced=allow"
    )]
    Unsynced {
        /// The setting.
        setting: &'static str,
    },
    /// The role lacks a right.
    #[error("the role lacks a right: {reason}")]
    NotGranted {
        /// The server's message.
        reason: String,
    },
    /// The layout of the schema is newer than this version supports.
    #[error(
        "schema '{schema}' has layout {found}, and this version of dwell knows up to {known}: use a newer one"
    )]
    Layout {
        /// The schema.
        schema: String,
        /// The layout that was found.
        found: i32,
        /// The newest layout that is supported.
        known: i32,
    },
    /// The schema contains objects that dwell has not created, or only some of those that it has.
    #[error("schema '{schema}': {found}; choose another with schema=")]
    Foreign {
        /// The schema.
        schema: String,
        /// What was found.
        found: String,
    },
    /// The schema has no function of this name, which this version calls.
    #[error(
        "schema '{schema}' lacks the function {missing}: only a part of it is there, or it is of an earlier version, and its owner \
        brings it up to date with `dwell postgres migrate`"
    )]
    Incomplete {
        /// The schema.
        schema: String,
        /// The function.
        missing: String,
    },
    /// There is no schema of this name.
    #[error("there is no schema '{schema}': a server or `dwell postgres migrate` installs it")]
    NotInstalled {
        /// The schema.
        schema: String,
    },
    /// The schema was not removed: something that is not dwell's depends on it.
    #[error("schema '{schema}' stays as it is, since something else needs it: {by}")]
    StillNeeded {
        /// The schema.
        schema: String,
        /// The server's message, which names what depends on what.
        by: String,
    },
    /// An open transaction holds what has to change.
    #[error("an open transaction holds what has to change; try again when it has ended ({reason})")]
    Busy {
        /// The server's message.
        reason: String,
    },
    /// There is no role of this name.
    #[error("there is no role '{role}'; CREATE ROLE makes one")]
    UnknownRole {
        /// The name.
        role: String,
    },
    /// No function of this name is for callers.
    #[error("callers have no function '{name}': there are {}", crate::schema::FOR_CALLERS.join(", "))]
    UnknownFunction {
        /// The name.
        name: String,
    },
    /// A file of certificates or keys cannot be used.
    #[error("{}: {reason}", file.display())]
    Certificate {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no certificate authority to verify the server's certificate with.
    #[error("the system trusts no authority: name a file of them with ca ({reason})")]
    Authorities {
        /// The operating system's error.
        reason: String,
    },
    /// The thread of the store cannot be started.
    #[error("the store's thread cannot be started: {reason}")]
    Threads {
        /// The operating system's error.
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
            OpenError::Foreign { .. } | OpenError::Incomplete { .. } | OpenError::StillNeeded { .. } => {
                "foreign_data"
            }
            OpenError::NotInstalled { .. } => "not_installed",
            OpenError::Busy { .. } => "busy",
            OpenError::UnknownRole { .. } => "unknown_role",
            OpenError::UnknownFunction { .. } => "unknown_function",
            OpenError::Certificate { .. } | OpenError::Authorities { .. } => "tls_invalid",
            OpenError::Threads { .. } => "threads",
        }
    }

    /// Whether the same call may succeed later without a change by the caller.
    pub fn is_retryable(&self) -> bool {
        matches!(self, OpenError::Unreachable { .. } | OpenError::Busy { .. })
    }
}
