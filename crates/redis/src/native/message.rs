//! Reading a message's record: `lua/record.lua` defines its fields.

use std::sync::Arc;

use bytes::Bytes;
use dwell_model::{
    AttemptLimit, Counts, Cursor, DEFAULT_PRIORITY, Death, DeathReason, Headers, Holder, Key, Lease,
    LeaseToken, Message, MessageId, Number, QueueName, Standing, State, Timestamp,
};
use dwell_store::Error;

use super::layout::{HELD, id_of, number_of};
use super::pack::PackReply;
use super::script_call::foreign;

/// A message as a script returns it.
pub(super) struct ScriptMessage {
    pub(super) message: Message,
    /// When it was last made ready other than by its instant.
    pub(super) made_ready: Option<Timestamp>,
}

/// Reads record, body and headers.
pub(super) fn shown(queue: &QueueName, reply: &PackReply, now: Timestamp) -> Result<ScriptMessage, Error> {
    read(queue, reply, now).ok_or_else(|| unknown(queue))
}

/// Reads a message that was handed out: its record of form 4, or record, body and headers, packed.
pub(super) fn held(queue: &QueueName, reply: &PackReply, now: Timestamp) -> Result<ScriptMessage, Error> {
    let record = reply.bytes().ok_or_else(|| unknown(queue))?;
    match record.first() {
        Some(&HELD) => read_held(queue, record).ok_or_else(|| unknown(queue)),
        _ => shown(queue, &PackReply::decode(record).ok_or_else(|| unknown(queue))?, now),
    }
}

fn unknown(queue: &QueueName) -> Error {
    foreign(&format!("a message of queue '{queue}' is stored in a form that this version does not know"))
}

/// Reads a record of form 4: `lua/record.lua` has its bytes.
fn read_held(queue: &QueueName, record: &Bytes) -> Option<ScriptMessage> {
    let rest = record.as_ref().strip_prefix(&[HELD])?;
    let (token, rest) = rest.split_first_chunk::<16>()?;
    let (id, rest) = rest.split_first_chunk::<16>()?;
    let id = id_of(id)?;
    let (body, rest) = rest.split_at_checked(rest.len().checked_sub(26)?)?;
    let (created, rest) = number_in::<6>(rest)?;
    let (deadline, rest) = number_in::<6>(rest)?;
    let (lease_ms, rest) = number_in::<6>(rest)?;
    let (process, _) = number_in::<8>(rest)?;
    let instant = |ms: u64| Timestamp::from_ms(i64::try_from(ms).ok()?).ok();
    let lease = Lease {
        token: LeaseToken(u128::from_be_bytes(*token)),
        lease_ms,
        deadline_mono_ms: deadline,
        deadline: instant(deadline)?,
        session: process != 0,
    };
    let standing = Standing {
        state: State::Leased(lease),
        due: id.due_at_put(),
        priority: DEFAULT_PRIORITY,
        attempts: 0,
        expires: None,
        keyless: false,
        counts: Counts { takes: 1, ..Counts::default() },
        last_error: None,
        holder: None,
    };
    let message = Message {
        id,
        number: Number::new(number_of(id)).ok()?,
        queue: queue.clone(),
        body: record.slice_ref(body),
        key: None,
        headers: Headers::default(),
        created: instant(created)?,
        lease_ms: None,
        max_attempts: None,
        standing,
    };
    Some(ScriptMessage { message, made_ready: None })
}

/// The number in the first `N` bytes, and the rest of the bytes.
fn number_in<const N: usize>(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    Some((first.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)), rest))
}

fn read(queue: &QueueName, reply: &PackReply, now: Timestamp) -> Option<ScriptMessage> {
    let record = PackReply::decode(reply.at(0).bytes()?)?;
    let id = id_of(record.get("i").bytes()?)?;
    let due = instant(record.get("d"))?;
    let count = |name| record.get(name).uint().map_or(0, |count| u32::try_from(count).unwrap_or(u32::MAX));
    let state = match record.get("s").int() {
        None if due <= now => State::Ready,
        None => State::Scheduled,
        Some(2) => State::Leased(lease(&record)?),
        Some(3) => {
            State::Dead(Death { reason: reason(record.get("R").int()?)?, at: instant(record.get("A"))? })
        }
        Some(_) => return None,
    };
    let standing = Standing {
        state,
        due,
        priority: optional(record.get("p").uint())?.unwrap_or(DEFAULT_PRIORITY),
        attempts: count("a"),
        expires: optional_instant(record.get("x"))?,
        keyless: record.get("K").is_set(),
        counts: Counts {
            takes: count("t"),
            lapses: count("l"),
            releases: count("r"),
            buries: count("b"),
            revives: count("v"),
        },
        last_error: record.get("e").text().map(Arc::from),
        holder: record.get("o").text().map(Holder::new).transpose().ok()?,
    };
    let message = Message {
        id,
        number: Number::new(number_of(id)).ok()?,
        queue: queue.clone(),
        body: reply.at(1).bytes()?.clone(),
        key: record.get("k").text().map(Key::new).transpose().ok()?,
        headers: headers(reply.at(2))?,
        created: instant(record.get("c"))?,
        lease_ms: record.get("L").uint(),
        max_attempts: record.get("M").uint().map(attempt_limit),
        standing,
    };
    Some(ScriptMessage { message, made_ready: optional_instant(record.get("y"))? })
}

/// The place of a record in (due, id) order, though the rest of its message cannot be read.
pub(super) fn place_of_record(reply: &PackReply) -> Option<Cursor> {
    let record = PackReply::decode(reply.at(0).bytes()?)?;
    Some(Cursor { due: instant(record.get("d"))?, id: id(record.get("i"))? })
}

fn lease(record: &PackReply) -> Option<Lease> {
    let deadline = instant(record.get("D"))?;
    Some(Lease {
        token: LeaseToken(u128::from_be_bytes(record.get("T").bytes()?.as_ref().try_into().ok()?)),
        lease_ms: record.get("w").uint()?,
        // Redis has one clock, and leases run on it.
        deadline_mono_ms: deadline.as_ms().unsigned_abs(),
        deadline,
        session: record.get("B").is_set(),
    })
}

pub(super) fn reason(code: i64) -> Option<DeathReason> {
    match code {
        1 => Some(DeathReason::AttemptsSpent),
        2 => Some(DeathReason::Buried),
        3 => Some(DeathReason::Expired),
        _ => None,
    }
}

pub(super) fn instant(reply: &PackReply) -> Option<Timestamp> {
    Timestamp::from_ms(reply.int()?).ok()
}

fn optional_instant(reply: &PackReply) -> Option<Option<Timestamp>> {
    match reply {
        PackReply::Nil => Some(None),
        other => instant(other).map(Some),
    }
}

fn optional(value: Option<u64>) -> Option<Option<u32>> {
    value.map(u32::try_from).transpose().ok()
}

/// 0 stands for no limit.
pub(super) fn attempt_limit(limit: u64) -> AttemptLimit {
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    limit.try_into().map_or(AttemptLimit::Unlimited, AttemptLimit::At)
}

pub(super) fn attempt_number(limit: AttemptLimit) -> u32 {
    match limit {
        AttemptLimit::Unlimited => 0,
        AttemptLimit::At(limit) => limit.get(),
    }
}

/// Names and values, each behind its length in two bytes.
pub(super) fn packed_headers(headers: &Headers) -> Option<Bytes> {
    if headers.is_empty() {
        return None;
    }
    let mut packed = Vec::with_capacity(headers.size() + 64);
    for (name, value) in headers.iter() {
        for text in [name, value] {
            // All headers together have at most 16 KiB.
            packed.extend_from_slice(&(text.len() as u16).to_be_bytes());
            packed.extend_from_slice(text.as_bytes());
        }
    }
    Some(packed.into())
}

fn headers(reply: &PackReply) -> Option<Headers> {
    let Some(packed) = reply.bytes() else { return Some(Headers::default()) };
    let mut rest = packed.as_ref();
    let mut texts = Vec::new();
    while let Some((len, after)) = rest.split_first_chunk::<2>() {
        let (text, after) = after.split_at_checked(u16::from_be_bytes(*len).into())?;
        texts.push(std::str::from_utf8(text).ok()?);
        rest = after;
    }
    let pairs = texts.chunks_exact(2).map(|pair| (pair[0], pair[1]));
    Headers::new(pairs).ok()
}

pub(super) fn id(reply: &PackReply) -> Option<MessageId> {
    id_of(reply.bytes()?)
}
