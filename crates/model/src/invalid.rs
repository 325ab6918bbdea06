//! Why a value is refused before it reaches any store.

use thiserror::Error;

/// A value that no store would accept. Each kind has a stable [`code`](Invalid::code).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The instant lies outside 1970-01-01 to 9999-12-31.
    #[error("the instant {ms} ms lies outside 1970-01-01 to 9999-12-31 (UTC)")]
    DueOutOfRange {
        /// Milliseconds since the epoch as asked for; `i64::MAX` where the sum does not fit.
        ms: i64,
    },
    /// The text is not an RFC 3339 instant with an offset and at most millisecond precision.
    #[error(
        "'{text}' is not an instant: write RFC 3339 with an offset and at most milliseconds, such as 2026-11-21T18:00:00Z"
    )]
    MalformedInstant {
        /// The text as given, shortened.
        text: Box<str>,
    },
}

impl Invalid {
    /// The stable code of this kind: a word that programs may match on.
    pub fn code(&self) -> &'static str {
        match self {
            Invalid::DueOutOfRange { .. } => "due_out_of_range",
            Invalid::MalformedInstant { .. } => "malformed_instant",
        }
    }
}
