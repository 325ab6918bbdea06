//! Puts: one statement per batch, or several where its bodies are large.

use std::sync::atomic::Ordering;

use dwell_model::{Invalid, MessageId, QueueName};
use dwell_store::{Error, OnConflict, Put, PutAnswer, PutOutcome, Result, When};
use serde_json::{Map, Value, json};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Inner;
use super::message::{by_item, column, id, instant, number, stored_limit};
use super::refusal::{expires_before_due, failed, refusal, unreadable};
use super::settings;
use crate::link::Failure;
use crate::values::{Json, Uuid};

/// An instant as an argument of a SQL function: its kind and a number.
pub(super) fn when(when: When) -> (i16, Option<i64>) {
    // SQL refuses a clamped number as out of range, like any other that is too large.
    let clamped = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    match when {
        When::Now => (0, None),
        When::At(due) => (1, Some(due.as_ms())),
        When::AfterMs(ms) => (2, Some(clamped(ms))),
        When::Level(level) => (3, Some(level.into())),
    }
}

/// Bodies of one statement, in bytes, but for a single one: it is held whole in memory here and there.
const MOST_STATEMENT_BYTES: usize = 16 * 1024 * 1024;

/// How many of these puts go into one statement: at least one.
fn statement_len(puts: &[Put]) -> usize {
    let mut bytes = 0_usize;
    let fits = |put: &&Put| {
        bytes = bytes.saturating_add(put.body.len());
        bytes <= MOST_STATEMENT_BYTES
    };
    puts.iter().take_while(fits).count().max(1).min(puts.len())
}

/// The error of the puts whose statement failed, and that of those after them: they were not sent, so that none of them comes before
/// one that was put earlier.
fn failed_puts(failure: Failure) -> (Error, Error) {
    let error = failed(failure, None);
    let later = match &error {
        Error::OutcomeUnknown { reason, .. } => Error::Unavailable { reason: reason.clone() },
        other => other.clone(),
    };
    (error, later)
}

impl Inner {
    /// See [`Store::put`](dwell_store::Store::put).
    pub(super) async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        let mut answers = Vec::with_capacity(puts.len());
        let mut left = &puts[..];
        while !left.is_empty() {
            let (now, later) = left.split_at(statement_len(left));
            let answered = match self.put_rows(now).await {
                Ok(rows) => {
                    let read = |index: usize, row: &Row| match now.get(index) {
                        Some(put) => answer(put, row),
                        None => Err(unreadable("an item")),
                    };
                    by_item(now.len(), &rows, read, || unreadable("no answer to an item"))
                }
                Err(failure) => {
                    let (of_these, of_later) = failed_puts(failure);
                    answers.extend(now.iter().map(|_| Err(of_these.clone())));
                    answers.extend(later.iter().map(|_| Err(of_later.clone())));
                    break;
                }
            };
            answers.extend(answered);
            left = later;
        }
        for (put, answer) in puts.iter().zip(&answers) {
            match answer {
                Ok(answer) => {
                    self.has_seen(answer.number);
                    self.waiters.hint_due(&put.queue, answer.due);
                    self.notify_due(&put.queue, answer.due);
                }
                Err(Error::OutcomeUnknown { .. }) => self.waiters.hint(&put.queue),
                Err(_) => {}
            }
        }
        answers
    }

    async fn put_rows(&self, puts: &[Put]) -> std::result::Result<Vec<Row>, Failure> {
        let queues: Vec<&str> = puts.iter().map(|put| put.queue.as_str()).collect();
        let (kinds, values): (Vec<i16>, Vec<Option<i64>>) = puts.iter().map(|put| when(put.when)).unzip();
        let bodies: Vec<&[u8]> = puts.iter().map(|put| &put.body[..]).collect();
        let options: Vec<Option<Json>> = puts.iter().map(options).collect();
        let keys: Vec<Option<&[u8]>> =
            puts.iter().map(|put| put.key.as_ref().map(|key| key.as_str().as_bytes())).collect();
        let idempotency_keys: Vec<Option<&[u8]>> =
            puts.iter().map(|put| put.idempotency_key.as_ref().map(|key| key.as_str().as_bytes())).collect();
        // Puts of only a queue, an instant and a body: SQL writes them in one statement.
        let is_plain = options.iter().all(Option::is_none)
            && keys.iter().all(Option::is_none)
            && idempotency_keys.iter().all(Option::is_none);
        let (options, keys, idempotency_keys) = match is_plain {
            true => (None, None, None),
            false => (Some(options), Some(keys), Some(idempotency_keys)),
        };
        let is_harmless = puts.iter().all(|put| put.idempotency_key.is_some());
        // A copy of the server's disk may go on in its place, behind the numbers that this process has.
        let defaults = settings::with_highest(&self.defaults, self.highest.load(Ordering::Relaxed));
        let call = "put_1($1, $2, $3, $4, $5, $6, $7, $8)";
        let arguments = [
            (&queues as _, Type::TEXT_ARRAY),
            (&kinds as _, Type::INT2_ARRAY),
            (&values as _, Type::INT8_ARRAY),
            (&bodies as _, Type::BYTEA_ARRAY),
            (&options as _, Type::JSONB_ARRAY),
            (&keys as _, Type::BYTEA_ARRAY),
            (&idempotency_keys as _, Type::BYTEA_ARRAY),
            (&defaults as _, Type::JSONB),
        ];
        self.rows(call, &arguments, is_harmless).await
    }
}

/// The options of a put besides queue, instant, body, key and idempotency key.
fn options(put: &Put) -> Option<Json> {
    let mut options = Map::new();
    let mut say = |name: &str, value: Value| options.insert(name.to_owned(), value);
    if put.priority != dwell_model::DEFAULT_PRIORITY {
        say("priority", json!(put.priority));
    }
    if let Some(ms) = put.lease_ms {
        say("lease", json!(ms.min(i64::MAX as u64)));
    }
    if let Some(limit) = put.max_attempts {
        say("attempts", json!(stored_limit(limit)));
    }
    if let Some(expires) = put.expires {
        say("expires", json!(expires.as_ms()));
    }
    match put.on_conflict {
        OnConflict::Reject => None,
        OnConflict::Replace => say("conflict", json!(1)),
        OnConflict::Keep => say("conflict", json!(2)),
    };
    if !put.headers.is_empty() {
        let headers = put.headers.iter().map(|(name, value)| (name.to_owned(), json!(value)));
        say("headers", Value::Object(headers.collect()));
    }
    (!options.is_empty()).then(|| Json(Value::Object(options).to_string()))
}

fn answer(put: &Put, row: &Row) -> Result<PutAnswer> {
    let code: &str = column(row, "code")?;
    if !code.is_empty() {
        let info: Option<&str> = column(row, "info")?;
        return Err(refused(put, code, info.unwrap_or_default()));
    }
    let outcome = match column::<i16>(row, "outcome")? {
        0 => PutOutcome::Created,
        1 => PutOutcome::Replaced(id(column::<Uuid>(row, "replaced")?)?),
        2 => PutOutcome::Kept,
        _ => return Err(unreadable("the outcome of a put")),
    };
    Ok(PutAnswer {
        id: id(column::<Uuid>(row, "id")?)?,
        number: number(column(row, "number")?)?,
        due: instant(column(row, "due")?)?,
        outcome,
    })
}

fn refused(put: &Put, code: &str, info: &str) -> Error {
    let invalid = match code {
        "unknown_level" => unknown_level(put.when, info),
        "expires_before_due" => put.expires.map(|expires| expires_before_due(expires, info)),
        "body_too_large" => {
            let limit = info.parse().unwrap_or(usize::MAX);
            Some(Invalid::BodyTooLarge { len: put.body.len(), limit }.into())
        }
        "invalid_setting" => {
            let checked = put.lease_ms.map(|ms| dwell_model::Setting::LeaseMs(ms).check());
            checked.and_then(std::result::Result::err).map(Error::from)
        }
        _ => None,
    };
    invalid.unwrap_or_else(|| refusal(code, info, &put.queue))
}

/// The error for a level that the queue does not have.
pub(super) fn unknown_level(when: When, levels: &str) -> Option<Error> {
    let When::Level(level) = when else { return None };
    Some(Invalid::UnknownLevel { level, levels: levels.parse().unwrap_or(0) }.into())
}

/// Ids and keys of targets, one of the two each, as arguments.
pub(super) fn targets(targets: &[dwell_store::Target]) -> (Vec<Option<Uuid>>, Vec<Option<&[u8]>>) {
    use dwell_store::Target;
    let both = targets.iter().map(|target| match target {
        Target::Id(id) => (Some(Uuid(id.as_bits())), None),
        Target::Key(key) => (None, Some(key.as_str().as_bytes())),
    });
    both.unzip()
}

/// Ids as arguments.
pub(super) fn uuids<'a>(ids: impl IntoIterator<Item = &'a MessageId>) -> Vec<Uuid> {
    ids.into_iter().map(|id| Uuid(id.as_bits())).collect()
}

/// Names as arguments.
pub(super) fn names<'a>(queues: impl IntoIterator<Item = &'a QueueName>) -> Vec<&'a str> {
    queues.into_iter().map(QueueName::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_has_bodies_of_so_many_bytes_and_at_least_one() {
        let put = |len: usize| Put::new("q".parse().unwrap(), vec![0_u8; len]);
        let half = MOST_STATEMENT_BYTES / 2;
        assert_eq!(statement_len(&[put(0), put(1), put(half)]), 3);
        assert_eq!(statement_len(&[put(half), put(half), put(1)]), 2);
        assert_eq!(statement_len(&[put(MOST_STATEMENT_BYTES + 1), put(1)]), 1);
        assert_eq!(statement_len(&[put(1), put(MOST_STATEMENT_BYTES)]), 1);
    }

    #[test]
    fn puts_after_a_statement_whose_outcome_is_unknown_are_known_not_to_be_put() {
        let (these, later) = failed_puts(Failure::Unknown { reason: "lost".into() });
        assert_eq!((these.code(), later.code()), ("outcome_unknown", "unavailable"));
    }
}
