//! Why a Redis cannot be used: reported at open, before anything is written.

use std::path::PathBuf;

use thiserror::Error;

/// A Redis that cannot be used, and what to do about it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL names no Redis.
    #[error("'{url}' is not a Redis URL: {reason}")]
    Url {
        /// Its scheme; what follows may have a password in it.
        url: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// No server answers there, or it refuses the login.
    #[error("Redis at {at} cannot be reached: {reason}")]
    Unreachable {
        /// The address without its password.
        at: String,
        /// The error of the connection.
        reason: String,
    },
    /// The server lacks what the scripts need.
    #[error("Redis {version} is too old: {needed} or later is needed for {what}")]
    TooOld {
        /// The version that the server reports.
        version: String,
        /// The earliest version that is supported.
        needed: &'static str,
        /// What needs it.
        what: &'static str,
    },
    /// The server evicts keys when its memory is full: messages, or what makes a repeated call harmless.
    #[error(
        "Redis is set to evict (maxmemory-policy {policy}), which loses messages or lets a repeated call happen twice: \
         set maxmemory-policy noeviction, or use another Redis"
    )]
    Evicts {
        /// The policy in force.
        policy: String,
    },
    /// Messages are spread over another number of partitions than this process would use.
    #[error(
        "queues that do not say otherwise are spread over {there} partitions there, and not over {asked}: \
         open it with that default, or empty the queues first"
    )]
    Partitions {
        /// The default of the earlier processes.
        there: u64,
        /// The default that was requested.
        asked: u16,
    },
    /// The requested options contradict each other.
    #[error("{what} is not possible: {reason}")]
    Unsupported {
        /// What was requested.
        what: &'static str,
        /// Why not, and what to do instead.
        reason: String,
    },
    /// The data under the prefix has a version that this one does not know.
    #[error("{found}; use the version of dwell that wrote it, or another prefix")]
    Layout {
        /// What was found.
        found: String,
    },
    /// Under the prefix lies data that dwell has not written.
    #[error("{found}; remove it, or choose another prefix")]
    Foreign {
        /// What was found: the key, its type, and the one that it should have.
        found: String,
    },
    /// The store's thread cannot be started.
    #[error("the store's thread cannot be started: {reason}")]
    Threads {
        /// The error of the operating system.
        reason: String,
    },
    /// A file of certificates or keys cannot be used.
    #[error("{}: {reason}", file.display())]
    Certificate {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl OpenError {
    /// The stable code of this kind. Each has a page in `docs/errors/`.
    pub fn code(&self) -> &'static str {
        match self {
            OpenError::Url { .. } => "redis_url",
            OpenError::Unreachable { .. } => "unreachable",
            OpenError::TooOld { .. } => "redis_too_old",
            OpenError::Evicts { .. } => "redis_evicts",
            OpenError::Unsupported { .. } => "redis_unsupported",
            OpenError::Partitions { .. } => "setting_fixed",
            OpenError::Layout { .. } => "newer_format",
            OpenError::Foreign { .. } => "foreign_data",
            OpenError::Threads { .. } => "threads",
            OpenError::Certificate { .. } => "tls_invalid",
        }
    }

    /// Whether the same call may succeed later, without any change by the caller.
    pub fn is_retryable(&self) -> bool {
        matches!(self, OpenError::Unreachable { .. })
    }
}
