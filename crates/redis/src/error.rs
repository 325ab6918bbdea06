//! Why a Redis can not be used: said at open, before anything is written.

use std::path::PathBuf;

use thiserror::Error;

/// A Redis that can not be used, and what to do about it.
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
    /// Nobody answers there, or the login is refused.
    #[error("Redis at {at} can not be reached: {reason}")]
    Unreachable {
        /// The address without its password.
        at: String,
        /// What the connection said.
        reason: String,
    },
    /// The server lacks what the scripts need.
    #[error("Redis {version} is too old: {needed} or later is needed for {what}")]
    TooOld {
        /// What the server says it is.
        version: String,
        /// The earliest version that will do.
        needed: &'static str,
        /// What needs it.
        what: &'static str,
    },
    /// The server throws keys away when its memory is full: messages, or what makes a repeated call harmless.
    #[error(
        "Redis is set to evict (maxmemory-policy {policy}), which loses messages or lets a repeated call happen twice: \
         set maxmemory-policy noeviction, or use another Redis"
    )]
    Evicts {
        /// The policy in force.
        policy: String,
    },
    /// Messages lie on another number of partitions than this process would look at.
    #[error(
        "queues that do not say otherwise are spread over {there} partitions there, and not over {asked}: \
         open it with that default, or empty the queues first"
    )]
    Spread {
        /// The default of the processes that were there before.
        there: u64,
        /// The default that was asked for.
        asked: u16,
    },
    /// What is asked for does not go together.
    #[error("{what} is not possible: {reason}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// Why not, and what to do instead.
        reason: String,
    },
    /// What lies under the prefix is of a version that this one does not know.
    #[error("{found}; use the version of dwell that wrote it, or another prefix")]
    Layout {
        /// What was found.
        found: String,
    },
    /// Under the prefix lies what dwell has not put there.
    #[error("{found}; remove it, or choose another prefix")]
    Foreign {
        /// What was found: the key, its type, and the one that it should have.
        found: String,
    },
    /// The store's thread cannot be started.
    #[error("the store's thread cannot be started: {reason}")]
    Threads {
        /// What the operating system says.
        reason: String,
    },
    /// A file of certificates or keys can not be used.
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
            OpenError::Spread { .. } => "setting_fixed",
            OpenError::Layout { .. } => "newer_format",
            OpenError::Foreign { .. } => "foreign_data",
            OpenError::Threads { .. } => "threads",
            OpenError::Certificate { .. } => "tls_invalid",
        }
    }

    /// Whether the same may succeed later, with nothing else changed by the caller.
    pub fn is_retryable(&self) -> bool {
        matches!(self, OpenError::Unreachable { .. })
    }
}
