//! Why a store cannot be opened: whichever it is, with a code, and whether trying again can help.

use thiserror::Error;

/// A store that cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory.
    #[cfg(feature = "engine")]
    #[error(transparent)]
    Engine(#[from] dwell_engine::OpenError),
    /// The address of the server, or the token or certificates for it.
    #[cfg(feature = "http")]
    #[error(transparent)]
    Http(#[from] dwell_client::OpenError),
    /// The PostgreSQL, or its URL.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Postgres(#[from] dwell_postgres::OpenError),
    /// The Redis, or its URL.
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

    /// Whether the same may succeed later, with nothing else changed by the caller.
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
