//! Errors of opening a store of any kind: each has a code, and says whether a retry can help.

use thiserror::Error;

/// Why a store cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// An error of the data directory.
    #[cfg(feature = "engine")]
    #[error(transparent)]
    Engine(#[from] dwell_engine::OpenError),
    /// An error of the server's address, token or certificates.
    #[cfg(feature = "http")]
    #[error(transparent)]
    Http(#[from] dwell_client::OpenError),
    /// An error of the PostgreSQL, or of its URL.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Postgres(#[from] dwell_postgres::OpenError),
    /// An error of the Redis, or of its URL.
    #[cfg(feature = "redis")]
    #[error(transparent)]
    Redis(#[from] dwell_redis::OpenError),
}

impl OpenError {
    /// The stable code of this kind: a word that programs may match on. Each has a page in `docs/errors/`.
    pub fn code(&self) -> &'static str {
        match self {
            #[cfg(feature = "engine")]
            OpenError::Engine(error) => error.code(),
            #[cfg(feature = "http")]
            OpenError::Http(error) => error.code(),
            #[cfg(feature = "postgres")]
            OpenError::Postgres(error) => error.code(),
            #[cfg(feature = "redis")]
            OpenError::Redis(error) => error.code(),
        }
    }

    /// Whether the same call may succeed later without a change by the caller.
    pub fn is_retryable(&self) -> bool {
        match self {
            #[cfg(feature = "engine")]
            OpenError::Engine(error) => error.is_retryable(),
            #[cfg(feature = "http")]
            OpenError::Http(error) => error.is_retryable(),
            #[cfg(feature = "postgres")]
            OpenError::Postgres(error) => error.is_retryable(),
            #[cfg(feature = "redis")]
            OpenError::Redis(error) => error.is_retryable(),
        }
    }
}
