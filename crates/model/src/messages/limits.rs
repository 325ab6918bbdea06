//! The limits of a whole store.

use crate::{Invalid, Settings};

/// The limits of a whole store.
///
/// Lengths that no store may exceed are constants of their types ([`Key::MAX_LEN`](crate::Key::MAX_LEN),
/// [`Headers::MAX_LEN`](crate::Headers::MAX_LEN) and so on).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum length of a body in bytes: 1 MiB by default, at most [`Limits::MAX_BODY_LEN`].
    pub body_len: usize,
    /// The maximum number of items per call.
    pub batch: usize,
    /// The maximum number of leased messages. At the limit a take waits, or is refused with a retryable error.
    pub leased: usize,
    /// The maximum number of leased messages per queue, so that a consumer that never settles leaves leases for the
    /// other queues.
    pub leased_per_queue: usize,
    /// The maximum number of takes that wait on one queue. At the limit another is refused with a retryable error.
    pub waiting_per_queue: usize,
    /// The maximum number of queues. At the limit a put to a new name is refused with a retryable error.
    pub queues: usize,
    /// The maximum number of idempotency keys that are remembered.
    ///
    /// At the limit a put with a new one is refused with a retryable error.
    ///
    /// An embedded store takes about 72 bytes of memory for each; shared stores have no such limit. 16 million by
    /// default, or 26,000 puts a second at an `idempotency_ms` of ten minutes.
    pub idempotency_keys: usize,
    /// The maximum number of idempotency keys that are remembered per queue, so that one producer leaves room for the
    /// other queues.
    ///
    /// Shared stores have this limit too.
    pub idempotency_keys_per_queue: usize,
    /// The settings of a queue without settings of its own.
    pub defaults: Settings,
}

impl Limits {
    /// The upper bound of [`body_len`](Limits::body_len): 64 MiB.
    pub const MAX_BODY_LEN: usize = 64 * 1024 * 1024;
    /// The maximum length of an error text or reason that a consumer stores with a message, in bytes.
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
            idempotency_keys: 16_000_000,
            idempotency_keys_per_queue: 8_000_000,
            defaults: Settings::default(),
        }
    }
}
