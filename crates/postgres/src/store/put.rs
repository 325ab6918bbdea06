//! Puts: a batch is one statement.

use dwell_model::{Invalid, MessageId, QueueName};
use dwell_store::{Error, OnConflict, Put, PutAnswer, PutOutcome, Result, When};
use serde_json::{Map, Value, json};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Inner;
use super::message::{by_item, column, id, instant, number, stored_limit};
use super::refusal::{expires_before_due, failed, refusal, unreadable};
use crate::link::Failure;
use crate::values::{Json, Uuid};

/// How SQL is told an instant: its kind and a number.
pub(super) fn when(when: When) -> (i16, Option<i64>) {
    // A number that is too large is refused there, as any that lies outside.
    let clamped = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    match when {
        When::Now => (0, None),
        When::At(due) => (1, Some(due.as_ms())),
        When::AfterMs(ms) => (2, Some(clamped(ms))),
        When::Level(level) => (3, Some(level.into())),
    }
}

impl Inner {
    /// See [`Store::put`](dwell_store::Store::put).
    pub(super) async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        if puts.is_empty() {
            return Vec::new();
        }
        let answers = match self.put_rows(&puts).await {
            Ok(rows) => {
                let read = |index: usize, row: &Row| match puts.get(index) {
                    Some(put) => answer(put, row),
                    None => Err(unreadable("an item")),
                };
                by_item(puts.len(), &rows, read, || unreadable("no answer to an item"))
            }
            Err(failure) => {
                let error = failed(failure, None);
                vec![Err(error); puts.len()]
            }
        };
        for (put, answer) in puts.iter().zip(&answers) {
            match answer {
                Ok(answer) => self.waiters.hint_due(&put.queue, answer.due),
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
        let tokens: Vec<Option<&[u8]>> =
            puts.iter().map(|put| put.token.as_ref().map(|token| token.as_str().as_bytes())).collect();
        // Nothing but queues, instants and bodies: SQL writes them as one.
        let is_plain = options.iter().all(Option::is_none)
            && keys.iter().all(Option::is_none)
            && tokens.iter().all(Option::is_none);
        let (options, keys, tokens) = match is_plain {
            true => (None, None, None),
            false => (Some(options), Some(keys), Some(tokens)),
        };
        let is_harmless = puts.iter().all(|put| put.token.is_some());
        let call = "put_1($1, $2, $3, $4, $5, $6, $7, $8)";
        let arguments = [
            (&queues as _, Type::TEXT_ARRAY),
            (&kinds as _, Type::INT2_ARRAY),
            (&values as _, Type::INT8_ARRAY),
            (&bodies as _, Type::BYTEA_ARRAY),
            (&options as _, Type::JSONB_ARRAY),
            (&keys as _, Type::BYTEA_ARRAY),
            (&tokens as _, Type::BYTEA_ARRAY),
            (&self.defaults as _, Type::JSONB),
        ];
        self.rows(call, &arguments, is_harmless).await
    }
}

/// What a put says beyond queue, instant, body, key and token.
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

/// The queue has so many levels, and not this one.
pub(super) fn unknown_level(when: When, levels: &str) -> Option<Error> {
    let When::Level(level) = when else { return None };
    Some(Invalid::UnknownLevel { level, levels: levels.parse().unwrap_or(0) }.into())
}

/// An id or a key each, for functions that are given a target.
pub(super) fn targets(targets: &[dwell_store::Target]) -> (Vec<Option<Uuid>>, Vec<Option<&[u8]>>) {
    use dwell_store::Target;
    let both = targets.iter().map(|target| match target {
        Target::Id(id) => (Some(Uuid(id.as_bits())), None),
        Target::Key(key) => (None, Some(key.as_str().as_bytes())),
    });
    both.unzip()
}

/// Ids as SQL has them.
pub(super) fn uuids<'a>(ids: impl IntoIterator<Item = &'a MessageId>) -> Vec<Uuid> {
    ids.into_iter().map(|id| Uuid(id.as_bits())).collect()
}

/// Names as SQL has them.
pub(super) fn names<'a>(queues: impl IntoIterator<Item = &'a QueueName>) -> Vec<&'a str> {
    queues.into_iter().map(QueueName::as_str).collect()
}
