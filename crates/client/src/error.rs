//! Errors of making a client. The calls of a client fail with [`dwell_store::Error`].

use thiserror::Error;

/// Why a client cannot be made. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address is not one that this client can connect to.
    #[error("'{url}' is not a server's address: {reason}; write http://host:port")]
    BadServer {
        /// The address as it was given.
        url: Box<str>,
        /// What is wrong with it.
        reason: Box<str>,
    },
    /// The token, or what TLS needs, cannot be used.
    #[error("{reason}")]
    BadCredentials {
        /// What is wrong, without the secret itself.
        reason: Box<str>,
    },
    /// The operating system refuses a thread for the connections.
    #[error("the thread for connections cannot be started: {reason}; raise the limit of threads")]
    Threads {
        /// The operating system's error.
        reason: Box<str>,
    },
}

impl OpenError {
    /// The stable code of this kind. Each has a page in `docs/errors/`.
    pub fn code(&self) -> &'static str {
        match self {
            OpenError::BadServer { .. } => "bad_server",
            OpenError::BadCredentials { .. } => "bad_credentials",
            OpenError::Threads { .. } => "threads",
        }
    }

    /// Whether the same call may succeed later without a change by the caller.
    pub fn is_retryable(&self) -> bool {
        false
    }
}
