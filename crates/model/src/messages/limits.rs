//! Limits of a whole store: what it accepts at most.

use crate::{Invalid, Settings};

/// What a store accepts at most. Lengths that no store may exceed are constants of their types
/// ([`Key::MAX_LEN`](crate::Key::MAX_LEN), [`Headers::MAX_LEN`](crate::Headers::MAX_LEN) and so on).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest body in bytes: 1 MiB by default, at most [`Limits::MAX_BODY_LEN`].
    pub body_len: usize,
    /// The most items in one call.
    pub batch: usize,
    /// The most messages leased at a time; past it a take is refused, retryably, or waits on.
    pub leased: usize,
    /// The most messages of one queue leased at a time, so that one consumer that never settles leaves leases to the
    /// other queues.
    pub leased_per_queue: usize,
    /// The most takes that wait on one queue at a time; past it another is refused, retryably.
    pub waiting_per_queue: usize,
    /// The most queues at a time; past it a put to a new name is refused, retryably.
    pub queues: usize,
    /// The most put tokens remembered at a time: past it a put with a new one is refused, retryably. An embedded store
    /// takes about 72 bytes of memory for each; one that others share has no such limit. 16 million by default, or
    /// 26,000 puts a second at a `token_ms` of ten minutes.
    pub put_tokens: usize,
    /// The most put tokens of one queue remembered at a time, so that one producer leaves room to the other queues. Stores
    /// that others share have this limit too.
    pub put_tokens_per_queue: usize,
    /// The settings of a queue that has none of its own.
    pub defaults: Settings,
}

impl Limits {
    /// The highest body limit: 64 MiB.
    pub const MAX_BODY_LEN: usize = 64 * 1024 * 1024;
    /// The longest error text or reason that a consumer may leave with a message, in bytes.
    pub const MAX_ERROR_TEXT_LEN: usize = 4 * 1024;

    /// Checks the length of a body.
    ///
    /// # Errors
    /// [`Invalid::BodyTooLarge`].
    pub fn check_body(&self, len: usize) -> Result<(), Invalid> {
        if len <= self.body_len { Ok(()) } else { Err(Invalid::BodyTooLarge { len, limit: self.body_len }) }
    }

    /// Checks the number of items in a call.
    ///
    /// # Errors
    /// [`Invalid::BatchTooLarge`].
    pub fn check_batch(&self, len: usize) -> Result<(), Invalid> {
        if len <= self.batch { Ok(()) } else { Err(Invalid::BatchTooLarge { len, limit: self.batch }) }
    }

    /// Checks the length of an error text or reason.
    ///
    /// # Errors
    /// [`Invalid::ErrorTextTooLong`].
    pub fn check_error_text(text: &str) -> Result<(), Invalid> {
        let limit = Limits::MAX_ERROR_TEXT_LEN;
        if text.len() <= limit { Ok(()) } else { Err(Invalid::ErrorTextTooLong { len: text.len(), limit }) }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_len: 1024 * 1024,
            batch: 16_384,
            leased: 250_000,
            leased_per_queue: 100_000,
            waiting_per_queue: 100_000,
            queues: 1_000_000,
            put_tokens: 16_000_000,
            put_tokens_per_queue: 8_000_000,
            defaults: Settings::default(),
        }
    }
}
