//! Records: the facts that the core passes to its log, as bytes. `encode` writes them, `decode` reads them.
//!
//! A record is a kind (one byte), its fixed values in order, and where the table says so tagged fields with what only
//! some of them have (see [`wire`](super::encoding)). Instants are zigzag differences from the batch's wall clock.
//! Within a batch a queue's name is written once: `queue` is 0 and a text for a new name, or *n* for the *n*-th name of
//! the batch. Messages are named by their numbers.
//!
//! | kind | record | values |
//! |---|---|---|
//! | 1 | put | number and id counter (zigzag differences from the put before in this batch, at first from 0), due, queue, fields, body length, body checksum (4 bytes), body |
//! | 2 | stands | number, state (0 scheduled, 1 ready, 2 leased, 3 dead), due, fields |
//! | 3 | gone | number |
//! | 4 | answered | queue, idempotency key, id (16 bytes), number, due, until, outcome (0 created, 1 replaced and id, 2 kept); read, and not written any more: what the idempotency key stands for is not known |
//! | 5 | configured | queue, setting, 0 (follows the default) or 1 and its value |
//! | 6 | purged | queue |
//! | 7 | discarded | queue |
//! | 8 | revived | queue, due, wall clock; read, and not written any more |
//! | 9 | deleted | queue |
//! | 10 | ripe | wall clock |
//! | 11 | closed | nothing |
//! | 12 | answered | as 4, with the digest (8 bytes) of what the idempotency key stands for behind it |
//!
//! Fields of a put: 1 priority (if not 1,024), 2 key, 3 headers (pairs of texts), 4 lease in ms, 5 limit of
//! attempts (0 for none), 6 expiry, 7 idempotency key's end and idempotency key (varint, text to the end; what it
//! stands for follows from key and body), 8 id replaced (16 bytes),
//! 9 created (if not the batch's clock), 10 id (16 bytes, if it does not follow from due, shard, incarnation
//! and counter).
//!
//! Fields of a standing: 1 priority (if not 1,024), 2 attempts spent, 3 expiry, 4 keyless, 5 takes, 6 lapses,
//! 7 releases, 8 buries, 9 revives, 10 last error, 11 lease token (16 bytes), 12 lease in ms, 13 lease
//! deadline (with 17 only if it is not the batch's wall clock and the length of the lease), 14 session lease, 15 reason
//! of death (0 attempts spent, 1 buried, 2 expired), 16 time of death, 17 the lease token's low 64 bits, in place of 11
//! where the bits above are the batch's incarnation and shard, 18 holder. Counts that are 0 and flags that are false
//! are left out.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use std::num::NonZeroU32;

use dwell_model::{AttemptLimit, Timestamp};
use dwell_store::core::{PutRecord, Record};

use super::encoding::{Read, Unreadable, put_zigzag, unzigzag};
use super::format::Salt;

pub(crate) use decode::{Decoder, read_headers};
pub(crate) use encode::{Encoder, put_headers};

pub(super) const PUT: u8 = 1;
pub(super) const STANDS: u8 = 2;
pub(super) const GONE: u8 = 3;
pub(super) const OLD_ANSWERED: u8 = 4;
pub(super) const CONFIGURED: u8 = 5;
pub(super) const PURGED: u8 = 6;
pub(super) const DISCARDED: u8 = 7;
pub(super) const REVIVED: u8 = 8;
pub(super) const DELETED: u8 = 9;
pub(super) const RIPE: u8 = 10;
pub(super) const CLOSED: u8 = 11;
pub(super) const ANSWERED: u8 = 12;

/// The highest field number of a put.
pub(super) const PUT_FIELDS: u64 = 10;
/// The highest field number of a standing.
pub(super) const STANDING_FIELDS: u64 = 18;

/// The context that all records of a batch share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchContext {
    pub(crate) shard: u16,
    pub(crate) incarnation: u32,
    pub(crate) now: Timestamp,
    pub(crate) salt: Salt,
}

impl BatchContext {
    /// The base of the lease tokens that the core grants in this incarnation: it counts them in the low 64 bits.
    pub(super) fn lease_tokens(self) -> u128 {
        u128::from(self.incarnation) << 80 | u128::from(self.shard) << 64
    }
}

/// A decoded record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    Put {
        record: PutRecord,
        /// The offset of the body's checksum, followed by the body, among the batch's records.
        body_at: u32,
        body_len: u32,
    },
    Record(Record),
    /// The store was closed: nothing follows in this incarnation.
    Closed,
}

pub(super) fn put_instant(out: &mut Vec<u8>, at: Timestamp, now: Timestamp) {
    put_zigzag(out, at.as_ms() - now.as_ms());
}

/// The zigzag difference as an integer, for fields.
fn difference(at: Timestamp, now: Timestamp) -> u64 {
    let ms = at.as_ms() - now.as_ms();
    ((ms << 1) ^ (ms >> 63)) as u64
}

fn instant(zigzag: u64, now: Timestamp) -> Read<Timestamp> {
    let ms = now.as_ms().checked_add(unzigzag(zigzag));
    ms.and_then(|ms| Timestamp::from_ms(ms).ok()).ok_or(Unreadable::Malformed("an instant is out of range"))
}

pub(crate) fn attempts_to_int(limit: AttemptLimit) -> u64 {
    match limit {
        AttemptLimit::Unlimited => 0,
        AttemptLimit::At(limit) => u64::from(limit.get()),
    }
}

pub(crate) fn attempts_from_int(value: u64) -> Read<AttemptLimit> {
    let value =
        u32::try_from(value).map_err(|_| Unreadable::Malformed("a limit of attempts is out of range"))?;
    Ok(NonZeroU32::new(value).map_or(AttemptLimit::Unlimited, AttemptLimit::At))
}

/// The error for a value that no version writes.
pub(super) fn malformed(what: &'static str) -> Unreadable {
    Unreadable::Malformed(what)
}
