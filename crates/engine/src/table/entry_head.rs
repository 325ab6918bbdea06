//! The *head* of an entry: the entry without queue, state and priority, which its section has, and without its body.
//!
//! Numbers are differences from the previous entry in the block, zigzag, the first from 0; see
//! [`wire`](crate::journal::encoding) for these terms and for fields.
//!
//! | part | from |
//! |---|---|
//! | due | the previous due |
//! | number | the previous number |
//! | id counter − number | the same of the previous entry |
//! | created | the previous created |
//! | fields | |
//! | length of the body, varint | |
//!
//! Fields: 1 key, 2 headers (pairs of texts), 3 lease in ms, 4 limit of attempts (0 for none), 5 expiry (zigzag from
//! due), 6 attempts spent, 7 keyless, 8 takes, 9 lapses, 10 releases, 11 buries, 12 revives, 13 last error, 14 reason
//! of death (0 attempts spent, 1 buried, 2 expired), 15 time of death (zigzag from due), 16 ready since (zigzag from
//! created), 17 the id's incarnation, if not that of the previous entry, at first 0; 18 the id's due at put (zigzag
//! from due), if not due; 19 the id's shard, if not the file's. Counts that are 0 and flags that are false are left
//! out.

use std::sync::Arc;

use dwell_model::{
    Counts, Death, DeathReason, Headers, Key, MessageId, Number, QueueName, Standing, State, Timestamp,
};

use super::entry::Entry;
use super::order::SectionState;
use super::section::Section;
use crate::journal::encoding::{
    ByteCursor, Read, Unreadable, end_fields, put_bytes_field, put_int_field, put_varint, put_zigzag,
    unzigzag,
};
use crate::journal::record::{attempts_from_int, attempts_to_int, put_headers, read_headers};

/// The highest field number.
const FIELDS: u64 = 19;

/// The values from which the next head of a block is a difference.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PreviousHead {
    due: i64,
    number: i64,
    skew: i64,
    created: i64,
    incarnation: u32,
}

impl PreviousHead {
    fn after(entry: &Entry) -> PreviousHead {
        let number = entry.number.get() as i64;
        PreviousHead {
            due: entry.standing.due.as_ms(),
            number,
            skew: entry.id.counter() as i64 - number,
            created: entry.created.as_ms(),
            incarnation: entry.id.incarnation(),
        }
    }
}

/// A signed difference as an integer, for fields.
fn zigzag(ms: i64) -> u64 {
    ((ms << 1) ^ (ms >> 63)) as u64
}

/// Writes the head of `entry`.
pub(super) fn put(out: &mut Vec<u8>, before: &mut PreviousHead, shard: u16, entry: &Entry, body_len: usize) {
    let Entry {
        id,
        number: _,
        queue: _,
        created,
        key,
        headers,
        lease_ms,
        max_attempts,
        standing,
        ready_since,
    } = entry;
    let Standing { state, due, priority: _, attempts, expires, keyless, counts, last_error, holder: _ } =
        standing;
    let Counts { takes, lapses, releases, buries, revives } = *counts;
    let this = PreviousHead::after(entry);
    put_zigzag(out, this.due - before.due);
    put_zigzag(out, this.number - before.number);
    put_zigzag(out, this.skew - before.skew);
    put_zigzag(out, this.created - before.created);
    if let Some(key) = key {
        put_bytes_field(out, 1, key.as_str().as_bytes());
    }
    if !headers.is_empty() {
        put_bytes_field(out, 2, &put_headers(headers));
    }
    if let Some(lease_ms) = lease_ms {
        put_int_field(out, 3, *lease_ms);
    }
    if let Some(limit) = max_attempts {
        put_int_field(out, 4, attempts_to_int(*limit));
    }
    if let Some(expires) = expires {
        put_int_field(out, 5, zigzag(expires.as_ms() - this.due));
    }
    let counted = [(6, *attempts), (7, u32::from(*keyless)), (8, takes), (9, lapses), (10, releases)];
    for (field, count) in counted.into_iter().chain([(11, buries), (12, revives)]) {
        if count != 0 {
            put_int_field(out, field, u64::from(count));
        }
    }
    if let Some(error) = last_error {
        put_bytes_field(out, 13, error.as_bytes());
    }
    if let State::Dead(Death { reason, at }) = state {
        let reason = match reason {
            DeathReason::AttemptsSpent => 0,
            DeathReason::Buried => 1,
            DeathReason::Expired => 2,
        };
        put_int_field(out, 14, reason);
        put_int_field(out, 15, zigzag(at.as_ms() - this.due));
    }
    if *ready_since != Timestamp::MIN {
        put_int_field(out, 16, zigzag(ready_since.as_ms() - created.as_ms()));
    }
    if this.incarnation != before.incarnation {
        put_int_field(out, 17, u64::from(this.incarnation));
    }
    if id.due_at_put() != *due {
        put_int_field(out, 18, zigzag(id.due_at_put().as_ms() - this.due));
    }
    if id.shard() != shard {
        put_int_field(out, 19, u64::from(id.shard()));
    }
    end_fields(out);
    put_varint(out, body_len as u64);
    *before = this;
}

fn malformed(what: &'static str) -> Unreadable {
    Unreadable::Malformed(what)
}

/// The instant `difference` after `from`.
fn instant(from: i64, difference: i64) -> Read<Timestamp> {
    let ms = from.checked_add(difference).and_then(|ms| Timestamp::from_ms(ms).ok());
    ms.ok_or(malformed("an instant is out of range"))
}

fn reason(value: u64) -> Read<DeathReason> {
    match value {
        0 => Ok(DeathReason::AttemptsSpent),
        1 => Ok(DeathReason::Buried),
        2 => Ok(DeathReason::Expired),
        _ => Err(malformed("a reason of death that there is not")),
    }
}

/// Reads the next head, of a message in `section`; and the length of its body.
pub(super) fn read(
    cursor: &mut ByteCursor<'_>,
    before: &mut PreviousHead,
    shard: u16,
    section: &Section,
) -> Read<(Entry, u32)> {
    let due = instant(before.due, cursor.zigzag()?)?;
    let number = before.number.checked_add(cursor.zigzag()?);
    let number = number.and_then(|number| Number::new(u64::try_from(number).ok()?).ok());
    let number = number.ok_or(malformed("a message's number is out of range"))?;
    let skew = before.skew.checked_add(cursor.zigzag()?);
    let counter = skew.and_then(|skew| u64::try_from(skew.checked_add(number.get() as i64)?).ok());
    let created = instant(before.created, cursor.zigzag()?)?;
    let mut standing = Standing {
        state: State::Scheduled,
        due,
        priority: section.priority,
        attempts: 0,
        expires: None,
        keyless: false,
        counts: Counts::default(),
        last_error: None,
        holder: None,
    };
    let (mut key, mut headers, mut lease_ms, mut max_attempts) = (None, Headers::default(), None, None);
    let (mut died_of, mut died_at, mut ready_since) = (None, None, Timestamp::MIN);
    let (mut incarnation, mut due_at_put, mut id_shard) = (before.incarnation, due, shard);
    let from_due = |zigzag: u64| instant(due.as_ms(), unzigzag(zigzag));
    while let Some((field, value)) = cursor.field(FIELDS)? {
        match field {
            1 => key = Some(Key::new(value.text()?).map_err(|_| malformed("a key that can be none"))?),
            2 => headers = read_headers(value.bytes()?)?,
            3 => lease_ms = Some(value.int()?),
            4 => max_attempts = Some(attempts_from_int(value.int()?)?),
            5 => standing.expires = Some(from_due(value.int()?)?),
            6 => standing.attempts = value.u32()?,
            7 => standing.keyless = value.int()? == 1,
            8 => standing.counts.takes = value.u32()?,
            9 => standing.counts.lapses = value.u32()?,
            10 => standing.counts.releases = value.u32()?,
            11 => standing.counts.buries = value.u32()?,
            12 => standing.counts.revives = value.u32()?,
            13 => standing.last_error = Some(Arc::from(value.text()?)),
            14 => died_of = Some(reason(value.int()?)?),
            15 => died_at = Some(from_due(value.int()?)?),
            16 => ready_since = instant(created.as_ms(), unzigzag(value.int()?))?,
            17 => incarnation = value.u32()?,
            18 => due_at_put = from_due(value.int()?)?,
            19 => id_shard = u16::try_from(value.int()?).unwrap_or(u16::MAX),
            _ => return Err(malformed("a field that there is not")),
        }
    }
    let body_len =
        u32::try_from(cursor.varint()?).map_err(|_| malformed("a body is longer than its block"))?;
    standing.state = match (section.state, died_of, died_at) {
        (SectionState::Ready, None, None) => State::Ready,
        (SectionState::Scheduled, None, None) => State::Scheduled,
        (SectionState::Dead, Some(reason), Some(at)) => State::Dead(Death { reason, at }),
        _ => return Err(malformed("a message that is dead in another section, or knows not how it died")),
    };
    let counter = counter.filter(|counter| *counter <= MessageId::MAX_COUNTER);
    let in_range = incarnation <= MessageId::MAX_INCARNATION && id_shard <= MessageId::MAX_SHARD;
    let counter = counter.filter(|_| in_range).ok_or(malformed("a message's id is out of range"))?;
    let entry = Entry {
        id: MessageId::new(due_at_put, id_shard, incarnation, counter),
        number,
        queue: QueueName::clone(&section.queue),
        created,
        key,
        headers,
        lease_ms,
        max_attempts,
        standing,
        ready_since,
    };
    *before = PreviousHead::after(&entry);
    Ok((entry, body_len))
}
