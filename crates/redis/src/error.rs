//! Why a Redis can not be used: said at open, before anything is written.

use thiserror::Error;

/// A Redis that can not be used, and what to do about it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL names no Redis.
    #[error("'{url}' is not a Redis URL: {reason}")]
    Url {
        /// The URL without its password.
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
    /// The server throws keys away when its memory is full, and messages with them.
    #[error(
        "Redis is set to evict (maxmemory-policy {policy}), which loses messages: \
         set maxmemory-policy noeviction, or use another Redis"
    )]
    Evicts {
        /// The policy in force.
        policy: String,
    },
    /// What is asked for does not go together.
    #[error("{what} is not possible: {reason}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// Why not, and what to do instead.
        reason: String,
    },
}
