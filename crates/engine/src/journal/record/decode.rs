//! Reading records.

use std::sync::Arc;

use dwell_model::{
    Counts, DEFAULT_PRIORITY, Death, DeathReason, Headers, Holder, IdempotencyKey, Key, Lease, LeaseToken,
    MessageId, Number, QueueName, Standing, State, Timestamp,
};
use dwell_store::core::{IdempotencyRecord, PutRecord, Record};
use dwell_store::{PutAnswer, PutDigest, PutOutcome};

use super::super::encoding::{ByteCursor, Read, Unreadable};
use super::super::setting;
use super::{
    ANSWERED, BatchContext, CLOSED, CONFIGURED, DELETED, DISCARDED, Fact, GONE, OLD_ANSWERED, PURGED, PUT,
    PUT_FIELDS, REVIVED, RIPE, STANDING_FIELDS, STANDS, attempts_from_int, instant, malformed,
};

/// Reads the records of one batch.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    cursor: ByteCursor<'a>,
    context: BatchContext,
    names: Vec<QueueName>,
    last_number: u64,
    last_counter: u64,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(records: &'a [u8], context: BatchContext) -> Decoder<'a> {
        Decoder {
            cursor: ByteCursor::new(records),
            context,
            names: Vec::new(),
            last_number: 0,
            last_counter: 0,
        }
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
            ANSWERED => self.answered(true)?,
            OLD_ANSWERED => self.answered(false)?,
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
        let BatchContext { now, shard, incarnation, .. } = self.context;
        if incarnation > MessageId::MAX_INCARNATION {
            return Err(bad_id());
        }
        let (mut id, mut idempotency_key) = (None, None);
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
            idempotency_key: None,
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
                7 => idempotency_key = Some(read_idempotency_key(value.bytes()?, now)?),
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
        let body = self.cursor.take(4 + body_len as usize)?.get(4..).unwrap_or_default();
        record.idempotency_key = idempotency_key.map(|(idempotency_key, until)| {
            let digest = PutDigest::of(record.key.as_ref(), body);
            IdempotencyRecord { idempotency_key, until, digest }
        });
        Ok(Fact::Put { record, body_at, body_len })
    }

    fn answered(&mut self, has_digest: bool) -> Read<Record> {
        let queue = self.queue()?;
        let idempotency_key = read_idempotency_key_text(self.cursor.text()?)?;
        let digest = if has_digest { read_digest(self.cursor.take(8)?)? } else { PutDigest::UNKNOWN };
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
        let idempotency_key = IdempotencyRecord { idempotency_key, until, digest };
        Ok(Record::Answered { queue, idempotency_key, answer: PutAnswer { id, number, due, outcome } })
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
            holder: None,
        };
        let mut token = None;
        let (mut lease_ms, mut deadline, mut session) = (None, None, false);
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
                14 => session = value.int()? == 1,
                15 => {
                    reason = Some(match value.int()? {
                        0 => DeathReason::AttemptsSpent,
                        1 => DeathReason::Buried,
                        2 => DeathReason::Expired,
                        _ => return Err(malformed("a reason of death")),
                    });
                }
                16 => at = Some(instant(value.int()?, now)?),
                17 => token = Some(LeaseToken(self.context.lease_tokens() ^ u128::from(value.int()?))),
                18 => {
                    let holder = Holder::new(value.text()?).map_err(|_| malformed("a holder"))?;
                    standing.holder = Some(holder);
                }
                _ => return Err(malformed("a field of a standing")),
            }
        }
        standing.state = match state {
            0 => State::Scheduled,
            1 => State::Ready,
            2 => {
                let (Some(token), Some(lease_ms)) = (token, lease_ms) else {
                    return Err(malformed("a lease without token or length"));
                };
                let deadline = deadline.unwrap_or(now.saturating_after(lease_ms));
                State::Leased(Lease { token, lease_ms, deadline_mono_ms: 0, deadline, session })
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

fn sixteen(bytes: &[u8]) -> Read<[u8; 16]> {
    bytes.try_into().map_err(|_| malformed("an id or a lease token has not 16 bytes"))
}

fn id_from(bytes: &[u8]) -> Read<MessageId> {
    MessageId::from_bits(u128::from_le_bytes(sixteen(bytes)?)).map_err(|_| malformed("a message's id"))
}

pub(crate) fn read_headers(bytes: &[u8]) -> Read<Headers> {
    let mut pairs = Vec::new();
    let mut cursor = ByteCursor::new(bytes);
    while !cursor.is_at_end() {
        let mut text = || std::str::from_utf8(cursor.text()?).map_err(|_| malformed("a header is not UTF-8"));
        pairs.push((text()?, text()?));
    }
    Headers::new(pairs).map_err(|_| malformed("a header"))
}

fn read_idempotency_key(bytes: &[u8], now: Timestamp) -> Read<(IdempotencyKey, Timestamp)> {
    let mut cursor = ByteCursor::new(bytes);
    let until = instant(cursor.varint()?, now)?;
    Ok((read_idempotency_key_text(&bytes[cursor.position()..])?, until))
}

fn read_digest(bytes: &[u8]) -> Read<PutDigest> {
    let bytes = bytes.try_into().map_err(|_| malformed("a digest has not 8 bytes"))?;
    Ok(PutDigest(u64::from_le_bytes(bytes)))
}

fn read_idempotency_key_text(bytes: &[u8]) -> Read<IdempotencyKey> {
    let text = std::str::from_utf8(bytes).ok().and_then(|text| IdempotencyKey::new(text).ok());
    text.ok_or(malformed("the idempotency key of a put"))
}
