//! Why a client cannot be made. What the calls of a client fail with is [`dwell_store::Error`].

use thiserror::Error;

/// A client that cannot be made; nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address is not one that this client can speak to.
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
    /// The operating system gives no thread for the connections.
    #[error("the thread for connections cannot be started: {reason}; raise the limit of threads")]
    Threads {
        /// What the operating system says.
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

    /// Whether the same may succeed later, with nothing else changed by the caller.
    pub fn is_retryable(&self) -> bool {
        false
    }
}
