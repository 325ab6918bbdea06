//! Why a call on a shared queue fails.

use dwell_model::Invalid;
use dwell_redis::Said;
use redis::{ErrorKind, RedisError, RetryMethod};
use thiserror::Error as ThisError;

/// The codes of a server that has done nothing, and may do it later.
const FOR_NOW: [&str; 11] = [
    "OOM",
    "LOADING",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "READONLY",
    "MOVED",
    "ASK",
    "BUSY",
    "MISCONF",
    "NOREPLICAS",
];

/// A refusal or a failure. Nothing was changed, except where it says that the outcome is unknown.
#[derive(Clone, Debug, PartialEq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// A name that can not be shared with Redisson.
    #[error("'{name}' can not name a delayed queue: {reason}")]
    Name {
        /// The name, with a mapper's prefix.
        name: String,
        /// Why.
        reason: &'static str,
    },
    /// A value that the codec can not write, or bytes that it can not read.
    #[error("the {codec} codec {reason}")]
    Value {
        /// Which codec.
        codec: &'static str,
        /// What it says.
        reason: String,
    },
    /// An instant or a delay out of range.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A key holds something else than Redisson would have put there.
    #[error("a key of queue '{name}' has another type than Redisson gives it: {detail}")]
    WrongType {
        /// The queue.
        name: String,
        /// What Redis says.
        detail: String,
    },
    /// The request may or may not have been carried out.
    #[error("the outcome is unknown: {reason}")]
    OutcomeUnknown {
        /// What broke.
        reason: String,
    },
    /// Redis can not be reached, or can not serve now. Nothing was done.
    #[error("Redis is unavailable: {reason}")]
    Unavailable {
        /// What is wrong.
        reason: String,
    },
    /// Redis refuses for good: rights, configuration, version.
    #[error("Redis refuses: {reason}")]
    Refused {
        /// What it says.
        reason: String,
    },
}

impl Error {
    /// The stable code of this kind. Each has a page in `docs/errors/`.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Name { .. } => "redisson_name",
            Error::Value { .. } => "redisson_value",
            Error::Invalid(invalid) => invalid.code(),
            Error::WrongType { .. } => "redisson_wrong_type",
            Error::OutcomeUnknown { .. } => "outcome_unknown",
            Error::Unavailable { .. } => "unavailable",
            Error::Refused { .. } => "redis_refused",
        }
    }

    /// Whether the same call may succeed later, with nothing else changed by the caller.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::OutcomeUnknown { .. } | Error::Unavailable { .. })
    }

    /// What an error of the client library means for a call on queue `name`.
    pub(crate) fn of(name: &str, error: &RedisError) -> Error {
        let reason = error.to_string();
        let said = Said::of(error);
        let code = said.as_ref().map(|said| said.code);
        // A script that would make an instant past the year 9999 says so before it writes.
        if let Some(Said { code: "DUE", text }) = said {
            let ms = text.split('.').next().and_then(|ms| ms.trim().parse().ok());
            return Error::Invalid(Invalid::DueOutOfRange { ms: ms.unwrap_or(i64::MAX) });
        }
        if code == Some("WRONGTYPE") {
            return Error::WrongType { name: name.to_owned(), detail: reason };
        }
        let is_for_now = code.is_some_and(|code| FOR_NOW.contains(&code));
        match error.kind() {
            _ if is_for_now || error.is_connection_refusal() => Error::Unavailable { reason },
            _ if error.is_timeout() || error.is_connection_dropped() || error.is_io_error() => {
                Error::OutcomeUnknown { reason }
            }
            ErrorKind::ClusterConnectionNotFound => Error::Unavailable { reason },
            _ if !matches!(error.retry_method(), RetryMethod::NoRetry) => Error::OutcomeUnknown { reason },
            _ => Error::Refused { reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Error;

    #[test]
    fn what_passes_by_itself_is_no_refusal_for_good() {
        for line in [
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
            "NOREPLICAS Not enough good replicas to write.",
            "LOADING Redis is loading the dataset in memory",
        ] {
            let said = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
            let error = Error::of("orders", &said.extract_error().unwrap_err());
            assert!(matches!(error, Error::Unavailable { .. }) && error.is_retryable(), "{line}: {error:?}");
        }
    }
}
