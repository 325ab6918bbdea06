//! Writing records, straight into the bytes of a batch.

use std::collections::HashMap;

use dwell_model::{
    Counts, DEFAULT_PRIORITY, Death, DeathReason, Headers, Lease, MessageId, QueueName, Standing, State,
};
use dwell_store::PutOutcome;
use dwell_store::core::{IdempotencyRecord, PutRecord, Record};

use super::super::encoding::{end_fields, put_bytes_field, put_int_field, put_text, put_varint, put_zigzag};
use super::super::setting;
use super::{
    ANSWERED, BatchContext, CLOSED, CONFIGURED, DELETED, DISCARDED, GONE, PURGED, PUT, REVIVED, RIPE, STANDS,
    attempts_to_int, difference, put_instant,
};

/// Writes the records of batches.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    names: BatchNames,
    last_number: u64,
    last_counter: u64,
}

/// The queue names of a batch so far. Most batches have few, which are compared; more are looked up.
#[derive(Debug, Default)]
struct BatchNames {
    listed: Vec<QueueName>,
    places: HashMap<QueueName, u64>,
}

impl BatchNames {
    const FEW: usize = 8;

    fn clear(&mut self) {
        self.listed.clear();
        self.places.clear();
    }

    /// The index of a name, from 1.
    fn find(&self, name: &QueueName) -> Option<u64> {
        if self.listed.len() <= BatchNames::FEW {
            let at = self.listed.iter().rposition(|listed| listed == name)?;
            return Some(at as u64 + 1);
        }
        self.places.get(name).copied()
    }

    fn add(&mut self, name: &QueueName) {
        self.listed.push(name.clone());
        if self.listed.len() == BatchNames::FEW + 1 {
            self.places = self.listed.iter().cloned().zip(1..).collect();
        } else if self.listed.len() > BatchNames::FEW {
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

    /// Writes a put and its body; returns the offset of the body's checksum in `out`.
    pub(crate) fn put(
        &mut self,
        out: &mut Vec<u8>,
        context: BatchContext,
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
            idempotency_key,
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
            put_bytes_field(out, 3, &put_headers(headers));
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
        // The digest follows from key and body.
        if let Some(IdempotencyRecord { idempotency_key, until, digest: _ }) = idempotency_key {
            let mut bytes = Vec::with_capacity(10 + idempotency_key.as_str().len());
            put_instant(&mut bytes, *until, context.now);
            bytes.extend_from_slice(idempotency_key.as_str().as_bytes());
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

    pub(crate) fn record(&mut self, out: &mut Vec<u8>, context: BatchContext, record: &Record) {
        match record {
            Record::Stands { number, standing } => {
                out.push(STANDS);
                put_varint(out, number.get());
                put_standing(out, standing, context);
            }
            Record::Gone { number } => {
                out.push(GONE);
                put_varint(out, number.get());
            }
            Record::Answered {
                queue,
                idempotency_key: IdempotencyRecord { idempotency_key, until, digest },
                answer,
            } => {
                out.push(ANSWERED);
                self.queue(out, queue);
                put_text(out, idempotency_key.as_str().as_bytes());
                out.extend_from_slice(&digest.0.to_le_bytes());
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

/// Headers as pairs of texts.
pub(crate) fn put_headers(headers: &Headers) -> Vec<u8> {
    let mut pairs = Vec::new();
    for (name, value) in headers.iter() {
        put_text(&mut pairs, name.as_bytes());
        put_text(&mut pairs, value.as_bytes());
    }
    pairs
}

fn put_standing(out: &mut Vec<u8>, standing: &Standing, context: BatchContext) {
    let now = context.now;
    let Standing { state, due, priority, attempts, expires, keyless, counts, last_error, holder } = standing;
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
        // The monotonic deadline is meaningless to the next process; it uses the wall deadline.
        State::Leased(Lease { token, lease_ms, deadline_mono_ms: _, deadline, session }) => {
            // Most records of a drain are leases that were just granted: half of their bytes follow from the batch.
            let count = u64::try_from(token.0 ^ context.lease_tokens()).ok();
            if count.is_none() {
                put_bytes_field(out, 11, &token.0.to_le_bytes());
            }
            put_int_field(out, 12, *lease_ms);
            // Versions that do not know field 17 need the deadline with each token that they can read.
            if count.is_none() || *deadline != now.saturating_after(*lease_ms) {
                put_int_field(out, 13, difference(*deadline, now));
            }
            if *session {
                put_int_field(out, 14, 1);
            }
            if let Some(count) = count {
                put_int_field(out, 17, count);
            }
            if let Some(holder) = holder {
                put_bytes_field(out, 18, holder.as_str().as_bytes());
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
