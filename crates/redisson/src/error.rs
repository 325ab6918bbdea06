//! The errors of calls on a shared queue.

use dwell_model::Invalid;
use dwell_redis::Said;
use redis::{ErrorKind, RedisError, RetryMethod};
use thiserror::Error as ThisError;

/// The error codes of a server that has done nothing, and may do it later.
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

/// An error of a call. Nothing was changed, except where the outcome is stated to be unknown.
#[derive(Clone, Debug, PartialEq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The name cannot be shared with Redisson.
    #[error("'{name}' cannot name a delayed queue: {reason}")]
    Name {
        /// The name, with the prefix of a name mapper.
        name: String,
        /// The reason.
        reason: &'static str,
    },
    /// The codec cannot write the value, or cannot read the bytes.
    #[error("the {codec} codec {reason}")]
    Value {
        /// The codec's name.
        codec: &'static str,
        /// Its error message.
        reason: String,
    },
    /// An instant or a delay out of range.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A key holds a value that Redisson would not have put there.
    #[error("a key of queue '{name}' has another type than Redisson gives it: {detail}")]
    WrongType {
        /// The queue's name.
        name: String,
        /// The error message of Redis.
        detail: String,
    },
    /// The request may or may not have been executed.
    #[error("the outcome is unknown: {reason}")]
    OutcomeUnknown {
        /// The cause.
        reason: String,
    },
    /// Redis cannot be reached, or cannot serve the call now. Nothing was done.
    #[error("Redis is unavailable: {reason}")]
    Unavailable {
        /// The cause.
        reason: String,
    },
    /// Redis refuses the call permanently: permissions, configuration, version.
    #[error("Redis refuses: {reason}")]
    Refused {
        /// The error message of Redis.
        reason: String,
    },
}

impl Error {
    /// The stable code of this kind of error. Each has a page in `docs/errors/`.
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

    /// Whether the same call may succeed later without any change by the caller.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::OutcomeUnknown { .. } | Error::Unavailable { .. })
    }

    /// Converts an error of the client library for a call on queue `name`.
    pub(crate) fn of(name: &str, error: &RedisError) -> Error {
        let reason = error.to_string();
        let said = Said::of(error);
        let code = said.as_ref().map(|said| said.code);
        // A script that would compute an instant past the year 9999 returns this error before it writes.
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
