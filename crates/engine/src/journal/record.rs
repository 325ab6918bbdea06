//! Records: the facts that the core tells its log, as bytes.
//!
//! A record is a kind (one byte), its fixed values in order, and where the table says so tagged fields with
//! what only some of them have (see [`wire`](super::wire)). Instants are zigzag differences from the batch's
//! wall clock. Within a batch a queue's name is written once: `queue` is 0 and a text for a new name, or *n*
//! for the *n*-th name of the batch. Messages are named by their numbers.
//!
//! | kind | record | values |
//! |---|---|---|
//! | 1 | put | number and id counter (zigzag differences from the put before in this batch, at first from 0), due, queue, fields, body length, body checksum (4 bytes), body |
//! | 2 | stands | number, state (0 scheduled, 1 ready, 2 leased, 3 dead), due, fields |
//! | 3 | gone | number |
//! | 4 | answered | queue, token, id (16 bytes), number, due, until, outcome (0 created, 1 replaced and id, 2 kept) |
//! | 5 | configured | queue, setting, 0 (follows the default) or 1 and its value |
//! | 6 | purged | queue |
//! | 7 | discarded | queue |
//! | 8 | revived | queue, due, wall clock |
//! | 9 | deleted | queue |
//! | 10 | ripe | wall clock |
//! | 11 | closed | nothing |
//!
//! Fields of a put: 1 priority (if not 1,024), 2 key, 3 headers (pairs of texts), 4 lease in ms, 5 limit of
//! attempts (0 for none), 6 expiry, 7 token's end and token (varint, text to the end), 8 id replaced (16 bytes),
//! 9 created (if not the batch's clock), 10 id (16 bytes, if it does not follow from due, shard, incarnation
//! and counter).
//!
//! Fields of a standing: 1 priority (if not 1,024), 2 attempts spent, 3 expiry, 4 keyless, 5 takes, 6 lapses,
//! 7 releases, 8 buries, 9 revives, 10 last error, 11 lease token (16 bytes), 12 lease in ms, 13 lease
//! deadline, 14 bound, 15 reason of death (0 attempts spent, 1 buried, 2 expired), 16 time of death. Counts
//! that are 0 and flags that are false are left out.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use dwell_model::{
    AttemptLimit, Counts, DEFAULT_PRIORITY, Death, DeathReason, Headers, Key, Lease, LeaseToken, MessageId,
    Number, PutToken, QueueName, Standing, State, Timestamp,
};
use dwell_store::core::{PutRecord, Record};
use dwell_store::{PutAnswer, PutOutcome};

use super::format::Salt;
use super::setting;
use super::wire::{
    Cursor, Read, Unreadable, end_fields, put_bytes_field, put_int_field, put_text, put_varint, put_zigzag,
    unzigzag,
};

const PUT: u8 = 1;
const STANDS: u8 = 2;
const GONE: u8 = 3;
const ANSWERED: u8 = 4;
const CONFIGURED: u8 = 5;
const PURGED: u8 = 6;
const DISCARDED: u8 = 7;
const REVIVED: u8 = 8;
const DELETED: u8 = 9;
const RIPE: u8 = 10;
const CLOSED: u8 = 11;

/// The highest field number of a put.
const PUT_FIELDS: u64 = 10;
/// The highest field number of a standing.
const STANDING_FIELDS: u64 = 16;

/// What all records of a batch have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub(crate) shard: u16,
    pub(crate) incarnation: u32,
    pub(crate) now: Timestamp,
    pub(crate) salt: Salt,
}

/// A record as it is read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    Put {
        record: PutRecord,
        /// Where the body's checksum and then the body stand among the batch's records.
        body_at: u32,
        body_len: u32,
    },
    Record(Record),
    /// The store was closed: nothing follows in this incarnation.
    Closed,
}

/// Writes the records of one batch after the other.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    names: Names,
    last_number: u64,
    last_counter: u64,
}

/// The names that a batch has so far. Most batches have few: those are compared, more are looked up.
#[derive(Debug, Default)]
struct Names {
    listed: Vec<QueueName>,
    places: HashMap<QueueName, u64>,
}

impl Names {
    const FEW: usize = 8;

    fn clear(&mut self) {
        self.listed.clear();
        self.places.clear();
    }

    /// The place of a name, from 1.
    fn find(&self, name: &QueueName) -> Option<u64> {
        if self.listed.len() <= Names::FEW {
            let at = self.listed.iter().rposition(|listed| listed == name)?;
            return Some(at as u64 + 1);
        }
        self.places.get(name).copied()
    }

    fn add(&mut self, name: &QueueName) {
        self.listed.push(name.clone());
        if self.listed.len() == Names::FEW + 1 {
            self.places = self.listed.iter().cloned().zip(1..).collect();
        } else if self.listed.len() > Names::FEW {
            self.places.insert(name.clone(), self.listed.len() as u64);
        }
    }
}

impl Encoder {
    pub(crate) fn begin_batch(&mut self) {
        self.names.clear();
        (self.last_number, self.last_counter) = (0, 0);
    }

    fn queue(&mut self, out: &mut Vec<u8>, name: &QueueName) {
        match self.names.find(name) {
            Some(place) => put_varint(out, place),
            None => {
                put_varint(out, 0);
                put_text(out, name.as_str().as_bytes());
                self.names.add(name);
            }
        }
    }

    /// Writes a put and its body; says where in `out` the body's checksum stands.
    pub(crate) fn put(
        &mut self,
        out: &mut Vec<u8>,
        context: Context,
        record: &PutRecord,
        body: &[u8],
    ) -> usize {
        let PutRecord {
            id,
            number,
            queue,
            due,
            priority,
            created,
            key,
            headers,
            lease_ms,
            max_attempts,
            expires,
            token,
            replaces,
        } = record;
        out.push(PUT);
        put_zigzag(out, number.get() as i64 - self.last_number as i64);
        put_zigzag(out, id.counter() as i64 - self.last_counter as i64);
        (self.last_number, self.last_counter) = (number.get(), id.counter());
        put_instant(out, *due, context.now);
        self.queue(out, queue);
        if *priority != DEFAULT_PRIORITY {
            put_int_field(out, 1, u64::from(*priority));
        }
        if let Some(key) = key {
            put_bytes_field(out, 2, key.as_str().as_bytes());
        }
        if !headers.is_empty() {
            let mut pairs = Vec::new();
            for (name, value) in headers.iter() {
                put_text(&mut pairs, name.as_bytes());
                put_text(&mut pairs, value.as_bytes());
            }
            put_bytes_field(out, 3, &pairs);
        }
        if let Some(lease_ms) = lease_ms {
            put_int_field(out, 4, *lease_ms);
        }
        if let Some(limit) = max_attempts {
            put_int_field(out, 5, attempts_to_int(*limit));
        }
        if let Some(expires) = expires {
            put_int_field(out, 6, difference(*expires, context.now));
        }
        if let Some((token, until)) = token {
            let mut bytes = Vec::with_capacity(10 + token.as_str().len());
            put_instant(&mut bytes, *until, context.now);
            bytes.extend_from_slice(token.as_str().as_bytes());
            put_bytes_field(out, 7, &bytes);
        }
        if let Some(replaced) = replaces {
            put_bytes_field(out, 8, &replaced.as_bits().to_le_bytes());
        }
        if *created != context.now {
            put_int_field(out, 9, difference(*created, context.now));
        }
        if *id != MessageId::new(*due, context.shard, context.incarnation, id.counter()) {
            put_bytes_field(out, 10, &id.as_bits().to_le_bytes());
        }
        end_fields(out);
        put_varint(out, body.len() as u64);
        let body_at = out.len();
        out.extend_from_slice(&context.salt.body_checksum(number.get(), body).to_le_bytes());
        out.extend_from_slice(body);
        body_at
    }

    pub(crate) fn record(&mut self, out: &mut Vec<u8>, context: Context, record: &Record) {
        match record {
            Record::Stands { number, standing } => {
                out.push(STANDS);
                put_varint(out, number.get());
                put_standing(out, standing, context.now);
            }
            Record::Gone { number } => {
                out.push(GONE);
                put_varint(out, number.get());
            }
            Record::Answered { queue, token, answer, until } => {
                out.push(ANSWERED);
                self.queue(out, queue);
                put_text(out, token.as_str().as_bytes());
                out.extend_from_slice(&answer.id.as_bits().to_le_bytes());
                put_varint(out, answer.number.get());
                put_instant(out, answer.due, context.now);
                put_instant(out, *until, context.now);
                match answer.outcome {
                    PutOutcome::Created => out.push(0),
                    PutOutcome::Replaced(id) => {
                        out.push(1);
                        out.extend_from_slice(&id.as_bits().to_le_bytes());
                    }
                    PutOutcome::Kept => out.push(2),
                }
            }
            Record::Configured { queue, change } => {
                out.push(CONFIGURED);
                self.queue(out, queue);
                setting::put_change(out, change, context.now);
            }
            Record::Purged { queue } => {
                out.push(PURGED);
                self.queue(out, queue);
            }
            Record::Discarded { queue } => {
                out.push(DISCARDED);
                self.queue(out, queue);
            }
            Record::Revived { queue, due, wall } => {
                out.push(REVIVED);
                self.queue(out, queue);
                put_instant(out, *due, context.now);
                put_instant(out, *wall, context.now);
            }
            Record::Deleted { queue } => {
                out.push(DELETED);
                self.queue(out, queue);
            }
            Record::Ripe { wall } => {
                out.push(RIPE);
                put_instant(out, *wall, context.now);
            }
        }
    }

    pub(crate) fn closed(&mut self, out: &mut Vec<u8>) {
        out.push(CLOSED);
    }
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

pub(super) fn attempts_to_int(limit: AttemptLimit) -> u64 {
    match limit {
        AttemptLimit::Unlimited => 0,
        AttemptLimit::At(limit) => u64::from(limit.get()),
    }
}

pub(super) fn attempts_from_int(value: u64) -> Read<AttemptLimit> {
    let value =
        u32::try_from(value).map_err(|_| Unreadable::Malformed("a limit of attempts is out of range"))?;
    Ok(NonZeroU32::new(value).map_or(AttemptLimit::Unlimited, AttemptLimit::At))
}

fn put_standing(out: &mut Vec<u8>, standing: &Standing, now: Timestamp) {
    let Standing { state, due, priority, attempts, expires, keyless, counts, last_error } = standing;
    let Counts { takes, lapses, releases, buries, revives } = *counts;
    out.push(match state {
        State::Scheduled => 0,
        State::Ready => 1,
        State::Leased(_) => 2,
        State::Dead(_) => 3,
    });
    put_instant(out, *due, now);
    if *priority != DEFAULT_PRIORITY {
        put_int_field(out, 1, u64::from(*priority));
    }
    if *attempts != 0 {
        put_int_field(out, 2, u64::from(*attempts));
    }
    if let Some(expires) = expires {
        put_int_field(out, 3, difference(*expires, now));
    }
    for (number, count) in
        [(4, u32::from(*keyless)), (5, takes), (6, lapses), (7, releases), (8, buries), (9, revives)]
    {
        if count != 0 {
            put_int_field(out, number, u64::from(count));
        }
    }
    if let Some(error) = last_error {
        put_bytes_field(out, 10, error.as_bytes());
    }
    match state {
        State::Scheduled | State::Ready => {}
        // The monotonic deadline means nothing to the next process; the wall deadline is what it gets.
        State::Leased(Lease { token, lease_ms, deadline_mono_ms: _, deadline, bound }) => {
            put_bytes_field(out, 11, &token.0.to_le_bytes());
            put_int_field(out, 12, *lease_ms);
            put_int_field(out, 13, difference(*deadline, now));
            if *bound {
                put_int_field(out, 14, 1);
            }
        }
        State::Dead(Death { reason, at }) => {
            let reason = match reason {
                DeathReason::AttemptsSpent => 0,
                DeathReason::Buried => 1,
                DeathReason::Expired => 2,
            };
            put_int_field(out, 15, reason);
            put_int_field(out, 16, difference(*at, now));
        }
    }
    end_fields(out);
}

/// Reads the records of one batch.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    cursor: Cursor<'a>,
    context: Context,
    names: Vec<QueueName>,
    last_number: u64,
    last_counter: u64,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(records: &'a [u8], context: Context) -> Decoder<'a> {
        Decoder { cursor: Cursor::new(records), context, names: Vec::new(), last_number: 0, last_counter: 0 }
    }

    /// The next record, or nothing at the end.
    pub(crate) fn next(&mut self) -> Read<Option<Fact>> {
        if self.cursor.is_at_end() {
            return Ok(None);
        }
        let record = match self.cursor.byte()? {
            PUT => return self.put().map(Some),
            CLOSED => return Ok(Some(Fact::Closed)),
            STANDS => Record::Stands { number: self.number()?, standing: self.standing()? },
            GONE => Record::Gone { number: self.number()? },
            ANSWERED => self.answered()?,
            CONFIGURED => Record::Configured {
                queue: self.queue()?,
                change: setting::read_change(&mut self.cursor, self.context.now)?,
            },
            PURGED => Record::Purged { queue: self.queue()? },
            DISCARDED => Record::Discarded { queue: self.queue()? },
            REVIVED => Record::Revived { queue: self.queue()?, due: self.instant()?, wall: self.instant()? },
            DELETED => Record::Deleted { queue: self.queue()? },
            RIPE => Record::Ripe { wall: self.instant()? },
            0 => return Err(Unreadable::Malformed("a record has no kind")),
            _ => return Err(Unreadable::Newer("a record is of a kind that this version does not know")),
        };
        Ok(Some(Fact::Record(record)))
    }

    fn number(&mut self) -> Read<Number> {
        let number = self.cursor.varint()?;
        Number::new(number).map_err(|_| Unreadable::Malformed("a message's number is out of range"))
    }

    fn instant(&mut self) -> Read<Timestamp> {
        instant(self.cursor.varint()?, self.context.now)
    }

    fn id(&mut self) -> Read<MessageId> {
        id_from(self.cursor.take(16)?)
    }

    fn queue(&mut self) -> Read<QueueName> {
        let place = self.cursor.varint()?;
        if let Some(at) = place.checked_sub(1) {
            let at = usize::try_from(at).ok();
            let name = at.and_then(|at| self.names.get(at));
            return name.cloned().ok_or(Unreadable::Malformed("a queue was not named before"));
        }
        let name = std::str::from_utf8(self.cursor.text()?).ok();
        let name = name.and_then(|name| QueueName::new(name).ok());
        let name = name.ok_or(Unreadable::Malformed("a queue's name is none"))?;
        self.names.push(name.clone());
        Ok(name)
    }

    fn put(&mut self) -> Read<Fact> {
        let bad_id = || Unreadable::Malformed("a message's id is out of range");
        let number = (self.last_number as i64).checked_add(self.cursor.zigzag()?);
        let number = number.and_then(|number| Number::new(u64::try_from(number).ok()?).ok());
        let number = number.ok_or(Unreadable::Malformed("a message's number is out of range"))?;
        let counter = (self.last_counter as i64).checked_add(self.cursor.zigzag()?);
        let counter = counter.and_then(|counter| u64::try_from(counter).ok()).ok_or_else(bad_id)?;
        (self.last_number, self.last_counter) = (number.get(), counter);
        let due = self.instant()?;
        let queue = self.queue()?;
        let Context { now, shard, incarnation, .. } = self.context;
        let mut id = None;
        let mut record = PutRecord {
            id: MessageId::new(due, shard, incarnation, 0),
            number,
            queue,
            due,
            priority: DEFAULT_PRIORITY,
            created: now,
            key: None,
            headers: Headers::default(),
            lease_ms: None,
            max_attempts: None,
            expires: None,
            token: None,
            replaces: None,
        };
        while let Some((field, value)) = self.cursor.field(PUT_FIELDS)? {
            match field {
                1 => record.priority = value.u32()?,
                2 => record.key = Some(Key::new(value.text()?).map_err(|_| malformed("a key"))?),
                3 => record.headers = read_headers(value.bytes()?)?,
                4 => record.lease_ms = Some(value.int()?),
                5 => record.max_attempts = Some(attempts_from_int(value.int()?)?),
                6 => record.expires = Some(instant(value.int()?, now)?),
                7 => record.token = Some(read_token(value.bytes()?, now)?),
                8 => record.replaces = Some(id_from(value.bytes()?)?),
                9 => record.created = instant(value.int()?, now)?,
                10 => id = Some(id_from(value.bytes()?)?),
                _ => return Err(malformed("a field of a put")),
            }
        }
        record.id = match id {
            Some(id) => id,
            None if counter <= MessageId::MAX_COUNTER => MessageId::new(due, shard, incarnation, counter),
            None => return Err(bad_id()),
        };
        let too_long = || Unreadable::Malformed("a body is longer than its batch");
        let body_len = u32::try_from(self.cursor.varint()?).map_err(|_| too_long())?;
        let body_at = u32::try_from(self.cursor.position()).map_err(|_| too_long())?;
        self.cursor.take(4 + body_len as usize)?;
        Ok(Fact::Put { record, body_at, body_len })
    }

    fn answered(&mut self) -> Read<Record> {
        let queue = self.queue()?;
        let token = read_token_text(self.cursor.text()?)?;
        let id = self.id()?;
        let number = self.number()?;
        let due = self.instant()?;
        let until = self.instant()?;
        let outcome = match self.cursor.byte()? {
            0 => PutOutcome::Created,
            1 => PutOutcome::Replaced(self.id()?),
            2 => PutOutcome::Kept,
            _ => return Err(malformed("the outcome of a put")),
        };
        Ok(Record::Answered { queue, token, answer: PutAnswer { id, number, due, outcome }, until })
    }

    fn standing(&mut self) -> Read<Standing> {
        let now = self.context.now;
        let state = self.cursor.byte()?;
        let due = self.instant()?;
        let mut standing = Standing {
            state: State::Scheduled,
            due,
            priority: DEFAULT_PRIORITY,
            attempts: 0,
            expires: None,
            keyless: false,
            counts: Counts::default(),
            last_error: None,
        };
        let mut token = None;
        let (mut lease_ms, mut deadline, mut bound) = (None, None, false);
        let (mut reason, mut at) = (None, None);
        while let Some((field, value)) = self.cursor.field(STANDING_FIELDS)? {
            match field {
                1 => standing.priority = value.u32()?,
                2 => standing.attempts = value.u32()?,
                3 => standing.expires = Some(instant(value.int()?, now)?),
                4 => standing.keyless = value.int()? == 1,
                5 => standing.counts.takes = value.u32()?,
                6 => standing.counts.lapses = value.u32()?,
                7 => standing.counts.releases = value.u32()?,
                8 => standing.counts.buries = value.u32()?,
                9 => standing.counts.revives = value.u32()?,
                10 => standing.last_error = Some(Arc::from(value.text()?)),
                11 => token = Some(LeaseToken(u128::from_le_bytes(sixteen(value.bytes()?)?))),
                12 => lease_ms = Some(value.int()?),
                13 => deadline = Some(instant(value.int()?, now)?),
                14 => bound = value.int()? == 1,
                15 => {
                    reason = Some(match value.int()? {
                        0 => DeathReason::AttemptsSpent,
                        1 => DeathReason::Buried,
                        2 => DeathReason::Expired,
                        _ => return Err(malformed("a reason of death")),
                    });
                }
                16 => at = Some(instant(value.int()?, now)?),
                _ => return Err(malformed("a field of a standing")),
            }
        }
        standing.state = match state {
            0 => State::Scheduled,
            1 => State::Ready,
            2 => {
                let (Some(token), Some(lease_ms), Some(deadline)) = (token, lease_ms, deadline) else {
                    return Err(malformed("a lease without token, length or deadline"));
                };
                State::Leased(Lease { token, lease_ms, deadline_mono_ms: 0, deadline, bound })
            }
            3 => {
                let (Some(reason), Some(at)) = (reason, at) else {
                    return Err(malformed("a death without reason or time"));
                };
                State::Dead(Death { reason, at })
            }
            _ => return Err(malformed("a state")),
        };
        Ok(standing)
    }
}

/// A value that nobody writes.
pub(super) fn malformed(what: &'static str) -> Unreadable {
    Unreadable::Malformed(what)
}

fn sixteen(bytes: &[u8]) -> Read<[u8; 16]> {
    bytes.try_into().map_err(|_| malformed("an id or a lease token has not 16 bytes"))
}

fn id_from(bytes: &[u8]) -> Read<MessageId> {
    MessageId::from_bits(u128::from_le_bytes(sixteen(bytes)?)).map_err(|_| malformed("a message's id"))
}

fn read_headers(bytes: &[u8]) -> Read<Headers> {
    let mut pairs = Vec::new();
    let mut cursor = Cursor::new(bytes);
    while !cursor.is_at_end() {
        let mut text = || std::str::from_utf8(cursor.text()?).map_err(|_| malformed("a header is not UTF-8"));
        pairs.push((text()?, text()?));
    }
    Headers::new(pairs).map_err(|_| malformed("a header"))
}

fn read_token(bytes: &[u8], now: Timestamp) -> Read<(PutToken, Timestamp)> {
    let mut cursor = Cursor::new(bytes);
    let until = instant(cursor.varint()?, now)?;
    Ok((read_token_text(&bytes[cursor.position()..])?, until))
}

fn read_token_text(bytes: &[u8]) -> Read<PutToken> {
    let text = std::str::from_utf8(bytes).ok().and_then(|text| PutToken::new(text).ok());
    text.ok_or(malformed("a put's token"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::format::SegmentName;
    use dwell_model::{Backoff, Pause, Setting, SettingChange, SettingName};

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms).unwrap()
    }

    fn context() -> Context {
        let salt = SegmentName { directory: 1, shard: 2, segment: 3 }.salt();
        Context { shard: 2, incarnation: 7, now: at(1_795_000_000_000), salt }
    }

    fn plain_put(number: u64, due: Timestamp) -> PutRecord {
        PutRecord {
            id: MessageId::new(due, 2, 7, number + 100),
            number: Number::new(number).unwrap(),
            queue: "orders".parse().unwrap(),
            due,
            priority: DEFAULT_PRIORITY,
            created: context().now,
            key: None,
            headers: Headers::default(),
            lease_ms: None,
            max_attempts: None,
            expires: None,
            token: None,
            replaces: None,
        }
    }

    fn full_put(number: u64) -> PutRecord {
        PutRecord {
            id: MessageId::new(at(5), 4, 3, number),
            queue: format!("q{number}").parse().unwrap(),
            priority: 0,
            created: at(77),
            key: Some(Key::new("ключ").unwrap()),
            headers: Headers::new([("content-type", "text/plain"), ("x", "é")]).unwrap(),
            lease_ms: Some(Setting::MAX_LEASE_MS),
            max_attempts: Some(AttemptLimit::Unlimited),
            expires: Some(Timestamp::MAX),
            token: Some((PutToken::new("t:1").unwrap(), at(9))),
            replaces: Some(MessageId::new(at(6), 1, 1, 1)),
            ..plain_put(number, Timestamp::MIN)
        }
    }

    fn standing(state: State) -> Standing {
        Standing {
            state,
            due: at(123),
            priority: u32::MAX,
            attempts: 3,
            expires: Some(at(456)),
            keyless: true,
            counts: Counts { takes: 1, lapses: 2, releases: 3, buries: 4, revives: u32::MAX },
            last_error: Some("no luck".into()),
        }
    }

    fn lease() -> Lease {
        Lease {
            token: LeaseToken(u128::MAX - 1),
            lease_ms: 30_000,
            deadline_mono_ms: 0,
            deadline: at(1),
            bound: true,
        }
    }

    fn all_records() -> Vec<Record> {
        let queue: QueueName = "orders".parse().unwrap();
        let number = Number::MAX;
        let plain =
            Standing::put(at(0), DEFAULT_PRIORITY, None, dwell_model::Now { wall: at(0), mono_ms: 0 });
        let death = |reason| State::Dead(Death { reason, at: at(99) });
        let mut records = vec![
            Record::Stands { number, standing: standing(State::Scheduled) },
            Record::Stands { number, standing: plain },
            Record::Stands { number, standing: standing(State::Leased(lease())) },
            Record::Stands { number, standing: standing(death(DeathReason::AttemptsSpent)) },
            Record::Stands { number, standing: standing(death(DeathReason::Buried)) },
            Record::Stands { number, standing: standing(death(DeathReason::Expired)) },
            Record::Gone { number },
            Record::Purged { queue: queue.clone() },
            Record::Discarded { queue: queue.clone() },
            Record::Revived { queue: queue.clone(), due: at(8), wall: at(9) },
            Record::Deleted { queue: "other".parse().unwrap() },
            Record::Ripe { wall: at(7) },
        ];
        let id = MessageId::new(at(1), 0, 1, 2);
        for outcome in [PutOutcome::Created, PutOutcome::Replaced(id), PutOutcome::Kept] {
            let answer = PutAnswer { id, number, due: at(4), outcome };
            let token = PutToken::new("x").unwrap();
            records.push(Record::Answered { queue: queue.clone(), token, answer, until: at(10) });
        }
        let backoff =
            Backoff { base_ms: 1, factor_percent: 200, cap_ms: u64::MAX >> 20, jitter_percent: 100 };
        for setting in [
            Setting::LeaseMs(1),
            Setting::MaxAttempts(AttemptLimit::At(NonZeroU32::MAX)),
            Setting::MaxAttempts(AttemptLimit::Unlimited),
            Setting::Backoff(backoff),
            Setting::MaxPending(u64::MAX),
            Setting::Pause(Pause::Running),
            Setting::Pause(Pause::Until(at(3))),
            Setting::Pause(Pause::Indefinite),
            Setting::Levels(vec![0, 5_000]),
            Setting::Levels(Vec::new()),
            Setting::Spread(1_024),
            Setting::TokenMs(0),
        ] {
            records.push(Record::Configured { queue: queue.clone(), change: SettingChange::Set(setting) });
        }
        for name in SettingName::ALL {
            records.push(Record::Configured { queue: queue.clone(), change: SettingChange::Reset(name) });
        }
        records
    }

    /// Puts, all other records and a close, as one batch.
    fn batch() -> (Vec<u8>, Vec<PutRecord>) {
        let mut out = Vec::new();
        let mut encoder = Encoder::default();
        encoder.begin_batch();
        let mut puts = vec![plain_put(9, at(1_795_000_060_000)), plain_put(10, at(3))];
        puts.extend((11..31).map(full_put));
        puts.push(plain_put(31, Timestamp::MAX));
        for put in &puts {
            encoder.put(&mut out, context(), put, b"body");
        }
        for record in all_records() {
            encoder.record(&mut out, context(), &record);
        }
        encoder.closed(&mut out);
        (out, puts)
    }

    #[test]
    fn every_record_survives_with_all_that_it_says() {
        let (bytes, puts) = batch();
        let mut decoder = Decoder::new(&bytes, context());
        for put in puts {
            let Some(Fact::Put { record, body_at, body_len }) = decoder.next().unwrap() else {
                panic!("a put was written");
            };
            assert_eq!(record, put);
            let stored = &bytes[body_at as usize..][..4 + body_len as usize];
            assert_eq!(&stored[4..], b"body");
            let checksum = context().salt.body_checksum(put.number.get(), b"body");
            assert_eq!(stored[..4], checksum.to_le_bytes());
        }
        for record in all_records() {
            assert_eq!(decoder.next(), Ok(Some(Fact::Record(record))));
        }
        assert_eq!(decoder.next(), Ok(Some(Fact::Closed)));
        assert_eq!(decoder.next(), Ok(None));
    }

    #[test]
    fn a_plain_put_costs_few_bytes() {
        let mut encoder = Encoder::default();
        let mut out = Vec::new();
        encoder.put(&mut out, context(), &plain_put(1_000_000, at(1_795_086_400_000)), &[0; 128]);
        out.clear();
        encoder.put(&mut out, context(), &plain_put(1_000_001, at(1_795_086_400_000)), &[0; 128]);
        assert_eq!(out.len() - 128, 15);
    }

    #[test]
    fn nothing_read_from_damaged_bytes_panics() {
        let (bytes, _) = batch();
        let read = |bytes: &[u8]| {
            let mut decoder = Decoder::new(bytes, context());
            while let Ok(Some(_)) = decoder.next() {}
        };
        for at in 0..bytes.len() {
            read(&bytes[..at]);
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                read(&damaged);
            }
        }
    }

    #[test]
    fn a_kind_from_the_future_is_no_damage() {
        assert!(matches!(Decoder::new(&[200], context()).next(), Err(Unreadable::Newer(_))));
        assert!(matches!(Decoder::new(&[0], context()).next(), Err(Unreadable::Malformed(_))));
    }
}
