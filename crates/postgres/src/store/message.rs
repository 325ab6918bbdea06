//! Conversion of rows into messages.

use std::sync::Arc;

use bytes::Bytes;
use dwell_model::{
    AttemptLimit, Counts, Death, DeathReason, Headers, Holder, Key, Lease, LeaseToken, Message, MessageId,
    Now, Number, QueueName, Receipt, Standing, State, Timestamp,
};
use dwell_store::{Delivery, Error, Result};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::refusal::unreadable;
use crate::values::{Json, Uuid};

/// A column of a row, by name.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> Result<T> {
    row.try_get(name).map_err(|error| unreadable(&format!("{name}: {error}")))
}

pub(super) fn id(bits: Uuid) -> Result<MessageId> {
    MessageId::from_bits(bits.0).map_err(|_| unreadable("an id"))
}

pub(super) fn instant(ms: i64) -> Result<Timestamp> {
    Timestamp::from_ms(ms).map_err(|_| unreadable("an instant"))
}

pub(super) fn number(number: i64) -> Result<Number> {
    let number = u64::try_from(number).ok().and_then(|number| Number::new(number).ok());
    number.ok_or_else(|| unreadable("a number"))
}

/// A stored limit of attempts, of which 0 means no limit. `None` if the value is out of range.
pub(super) fn attempt_limit(stored: i64) -> Option<AttemptLimit> {
    match stored {
        0 => Some(AttemptLimit::Unlimited),
        limit => AttemptLimit::try_from(u32::try_from(limit).ok()?).ok(),
    }
}

/// The inverse of [`attempt_limit`].
pub(super) fn stored_limit(limit: AttemptLimit) -> u32 {
    match limit {
        AttemptLimit::Unlimited => 0,
        AttemptLimit::At(limit) => limit.get(),
    }
}

fn whole<T: TryFrom<i64>>(value: i64, what: &str) -> Result<T> {
    T::try_from(value).map_err(|_| unreadable(what))
}

fn count(row: &Row, name: &str) -> Result<u32> {
    whole(column::<i32>(row, name)?.into(), name)
}

fn headers(row: &Row) -> Result<Headers> {
    let Some(Json(text)) = column::<Option<Json>>(row, "headers")? else { return Ok(Headers::default()) };
    let pairs: std::collections::BTreeMap<String, String> =
        serde_json::from_str(&text).map_err(|_| unreadable("headers"))?;
    let pairs = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    Headers::new(pairs).map_err(|_| unreadable("headers"))
}

fn text(bytes: Option<&[u8]>, what: &str) -> Result<Option<Arc<str>>> {
    let text = bytes.map(|bytes| std::str::from_utf8(bytes).map(Arc::from)).transpose();
    text.map_err(|_| unreadable(what))
}

/// A message from the columns that `taken` and `message_row` have in common, in this state.
fn message(queue: &QueueName, row: &Row, state: State, holder: Option<Holder>) -> Result<Message> {
    let key = text(column(row, "key")?, "a key")?.map(|key| Key::new(&key));
    let lease_ms: Option<i64> = column(row, "lease_own")?;
    let limit: Option<i64> = column(row, "max_attempts")?;
    Ok(Message {
        id: id(column(row, "id")?)?,
        number: number(column(row, "number")?)?,
        queue: queue.clone(),
        body: Bytes::copy_from_slice(column(row, "body")?),
        key: key.transpose().map_err(|_| unreadable("a key"))?,
        headers: headers(row)?,
        created: instant(column(row, "created")?)?,
        lease_ms: lease_ms.map(|ms| whole(ms, "a lease")).transpose()?,
        max_attempts: limit
            .map(|limit| attempt_limit(limit).ok_or_else(|| unreadable("a limit of attempts")))
            .transpose()?,
        standing: Standing {
            state,
            due: instant(column(row, "due")?)?,
            priority: whole(column(row, "priority")?, "a priority")?,
            attempts: count(row, "attempts")?,
            expires: column::<Option<i64>>(row, "expires")?.map(instant).transpose()?,
            keyless: column::<Option<bool>>(row, "keyless")?.unwrap_or(false),
            counts: Counts {
                takes: count(row, "takes")?,
                lapses: count(row, "lapses")?,
                releases: count(row, "releases")?,
                buries: count(row, "buries")?,
                revives: count(row, "revives")?,
            },
            last_error: text(column(row, "last_error")?, "an error text")?,
            holder,
        },
    })
}

/// The lease in a row of a leased message.
fn lease(row: &Row, is_session: bool, now: Now) -> Result<Lease> {
    let Uuid(token) = column(row, "token")?;
    let deadline = instant(column(row, "deadline")?)?;
    let taken_at = instant(column(row, "taken_at")?)?;
    Ok(Lease {
        token: LeaseToken(token),
        lease_ms: whole(column(row, "lease_ms")?, "a lease")?,
        // Deadlines are kept by the server's clock; the remaining time is converted to this process's monotonic clock.
        deadline_mono_ms: now.mono_ms.saturating_add(deadline.ms_since(taken_at)),
        deadline,
        session: is_session,
    })
}

/// Converts a `message_row`.
pub(super) fn shown(queue: &QueueName, row: &Row, now: Now) -> Result<Message> {
    let state = match column::<i16>(row, "state")? {
        1 => State::Scheduled,
        2 => State::Ready,
        3 => State::Leased(lease(row, column::<Option<i64>>(row, "session")?.is_some(), now)?),
        4 => State::Dead(Death {
            reason: reason(column::<i16>(row, "reason")?.into())?,
            at: instant(column(row, "died")?)?,
        }),
        _ => return Err(unreadable("a state")),
    };
    let holder: Option<&str> = column(row, "holder")?;
    let holder = holder.map(Holder::new).transpose().map_err(|_| unreadable("a holder"))?;
    message(queue, row, state, holder)
}

/// A stored reason of a death.
pub(super) fn reason(stored: i64) -> Result<DeathReason> {
    match stored {
        1 => Ok(DeathReason::AttemptsSpent),
        2 => Ok(DeathReason::Buried),
        3 => Ok(DeathReason::Expired),
        _ => Err(unreadable("a reason of a death")),
    }
}

/// Converts a row of a take.
pub(super) fn taken(row: &Row, is_session: bool, holder: Option<&Holder>, now: Now) -> Result<Delivery> {
    let queue = QueueName::new(column(row, "queue")?).map_err(|_| unreadable("a queue"))?;
    let state = State::Leased(lease(row, is_session, now)?);
    delivered(message(&queue, row, state, holder.cloned())?, row)
}

/// The delivery of a leased message.
pub(super) fn delivered(message: Message, row: &Row) -> Result<Delivery> {
    let State::Leased(lease) = message.standing.state else { return Err(unreadable("a lease")) };
    let taken_at = instant(column(row, "taken_at")?)?;
    let since: i64 = column(row, "since")?;
    Ok(Delivery {
        receipt: Receipt { queue: message.queue.clone(), id: message.id, token: lease.token },
        lease_until: lease.deadline,
        taken_at,
        lateness_ms: u64::try_from(taken_at.as_ms() - since).unwrap_or(0),
        message,
    })
}

/// Assigns rows to the items that they answer, counted from 1; items without a row get `missing`.
pub(super) fn by_item<T>(
    items: usize,
    rows: &[Row],
    read: impl Fn(usize, &Row) -> Result<T>,
    missing: impl Fn() -> Error,
) -> Vec<Result<T>> {
    let mut answers: Vec<Option<Result<T>>> = (0..items).map(|_| None).collect();
    for row in rows {
        if let Ok(Some(item)) = column::<Option<i32>>(row, "item")
            && let Some(index) = usize::try_from(item).ok().and_then(|item| item.checked_sub(1))
            && let Some(answer) = answers.get_mut(index)
        {
            *answer = Some(read(index, row));
        }
    }
    answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(missing()))).collect()
}
