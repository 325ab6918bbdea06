//! The reasons why a value is refused before it reaches a store.

use std::convert::Infallible;

use thiserror::Error;

use crate::Timestamp;

/// A value that no store would accept. Each kind has a stable [`code`](Invalid::code).
///
/// Text from outside is shortened to 80 characters.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The instant lies outside 1970-01-01 to 9999-12-31.
    #[error("the instant {ms} ms lies outside 1970-01-01 to 9999-12-31 (UTC)")]
    DueOutOfRange {
        /// The requested milliseconds since the epoch; `i64::MAX` if the sum does not fit.
        ms: i64,
    },
    /// The text is not an RFC 3339 instant with an offset and at most millisecond precision.
    #[error(
        "'{text}' is not an instant: write RFC 3339 with an offset and at most milliseconds, \
         such as 2026-11-21T18:00:00Z"
    )]
    MalformedInstant {
        /// The text as given.
        text: Box<str>,
    },
    /// The text is not a duration with units.
    #[error("'{text}' is not a duration: write whole numbers with units ms, s, m, h or d, such as 1h30m")]
    MalformedDelay {
        /// The text as given.
        text: Box<str>,
    },
    /// A delay below zero.
    #[error("the delay '{text}' is negative; a message cannot be due before it is put")]
    NegativeDelay {
        /// The text as given.
        text: Box<str>,
    },
    /// The queue has no such delay level.
    #[error("level {level} is unknown: the queue has {levels} levels, counted from 1")]
    UnknownLevel {
        /// The requested level.
        level: u32,
        /// The number of levels in the queue's table.
        levels: u32,
    },
    /// The expiry is not after the due instant.
    #[error("expires {expires} does not lie after due {due}")]
    ExpiresBeforeDue {
        /// The requested expiry.
        expires: Timestamp,
        /// The due instant that it was put with.
        due: Timestamp,
    },
    /// The text is not a message id.
    #[error("'{text}' is not a message id: a UUID of version 8 is expected")]
    MalformedId {
        /// The text as given.
        text: Box<str>,
    },
    /// The number lies outside 1 to 2^53 − 1.
    #[error("'{text}' is not a message number: a whole number from 1 to 9007199254740991 is expected")]
    MalformedNumber {
        /// The text as given.
        text: Box<str>,
    },
    /// The text is not a receipt, or is a damaged one.
    #[error("'{text}' is not a receipt: pass it back exactly as take gave it")]
    MalformedReceipt {
        /// The text as given.
        text: Box<str>,
    },
    /// The text is not a cursor of a list's page.
    #[error("'{text}' is not a cursor: pass back the one that the page before gave")]
    MalformedCursor {
        /// The text as given.
        text: Box<str>,
    },
    /// The name is not a valid queue name.
    #[error(
        "'{name}' cannot name a queue: 1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( ) : @, \
         not starting with '-', and neither '.' nor '..'"
    )]
    InvalidQueueName {
        /// The name as given.
        name: Box<str>,
    },
    /// The key is empty or too long.
    #[error("a key has 1 to {limit} bytes of UTF-8, not {len}")]
    InvalidKey {
        /// Its length in bytes.
        len: usize,
        /// The maximum length in bytes.
        limit: usize,
    },
    /// The idempotency key is empty, too long or not visible ASCII.
    #[error("an idempotency key has 1 to {limit} characters of visible ASCII, not '{text}'")]
    InvalidIdempotencyKey {
        /// The idempotency key as given.
        text: Box<str>,
        /// The maximum length in bytes.
        limit: usize,
    },
    /// The holder named by a take is empty, too long, or has control characters.
    #[error("a holder has 1 to {limit} bytes of UTF-8 without control characters, not '{text}'")]
    InvalidHolder {
        /// The holder as given.
        text: Box<str>,
        /// The maximum length in bytes.
        limit: usize,
    },
    /// A header's name or value contains bytes that are not allowed there.
    #[error(
        "header '{name}': a name is 1 to 200 of the characters of an HTTP token, \
         a value has no control characters"
    )]
    InvalidHeader {
        /// The name as given.
        name: Box<str>,
    },
    /// Header names and values together are too long.
    #[error("headers have at most {limit} bytes in all, not {len}")]
    HeadersTooLarge {
        /// The length of all names and values in bytes.
        len: usize,
        /// The maximum length in bytes.
        limit: usize,
    },
    /// The body is too long.
    #[error("a body has at most {limit} bytes here, not {len}; the limit can be raised to 64 MiB")]
    BodyTooLarge {
        /// Its length in bytes.
        len: usize,
        /// The maximum length in bytes.
        limit: usize,
    },
    /// A consumer's error text or reason is too long.
    #[error("an error text has at most {limit} bytes, not {len}")]
    ErrorTextTooLong {
        /// Its length in bytes.
        len: usize,
        /// The maximum length in bytes.
        limit: usize,
    },
    /// One call has too many items.
    #[error("one call takes at most {limit} items, not {len}; split it")]
    BatchTooLarge {
        /// The number of items given.
        len: usize,
        /// The maximum number of items.
        limit: usize,
    },
    /// The value is not valid for this setting.
    #[error("setting {setting}: {reason}")]
    InvalidSetting {
        /// The setting's name.
        setting: &'static str,
        /// What is wrong, and which values are accepted.
        reason: Box<str>,
    },
}

impl From<Infallible> for Invalid {
    /// Lets one function accept both values and what can be converted into them.
    fn from(never: Infallible) -> Invalid {
        match never {}
    }
}

impl Invalid {
    /// The stable code of this kind of error: a word that programs may match on.
    pub fn code(&self) -> &'static str {
        match self {
            Invalid::DueOutOfRange { .. } => "due_out_of_range",
            Invalid::MalformedInstant { .. } => "malformed_instant",
            Invalid::MalformedDelay { .. } => "malformed_delay",
            Invalid::NegativeDelay { .. } => "negative_delay",
            Invalid::UnknownLevel { .. } => "unknown_level",
            Invalid::ExpiresBeforeDue { .. } => "expires_before_due",
            Invalid::MalformedId { .. } => "malformed_id",
            Invalid::MalformedNumber { .. } => "malformed_number",
            Invalid::MalformedReceipt { .. } => "malformed_receipt",
            Invalid::MalformedCursor { .. } => "malformed_cursor",
            Invalid::InvalidQueueName { .. } => "invalid_queue_name",
            Invalid::InvalidKey { .. } => "invalid_key",
            Invalid::InvalidIdempotencyKey { .. } => "invalid_idempotency_key",
            Invalid::InvalidHolder { .. } => "invalid_holder",
            Invalid::InvalidHeader { .. } => "invalid_header",
            Invalid::HeadersTooLarge { .. } => "headers_too_large",
            Invalid::BodyTooLarge { .. } => "body_too_large",
            Invalid::ErrorTextTooLong { .. } => "error_text_too_long",
            Invalid::BatchTooLarge { .. } => "batch_too_large",
            Invalid::InvalidSetting { .. } => "invalid_setting",
        }
    }
}
