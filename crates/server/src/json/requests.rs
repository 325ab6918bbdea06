//! Requests, as JSON or with the same names in a query, converted to a store's arguments.
//!
//! A malformed instant or duration has a separate error code, so these texts are parsed here and not by serde.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use dwell_delivery::schedule::Dialect;
use dwell_model::{
    DEFAULT_PRIORITY, Holder, IdempotencyKey, Key, MessageId, Pause, QueueName, Receipt, Timestamp,
};
use dwell_store::{Action, LeaseRef, LeaseTerms, OnConflict, Put, Selection, Settle, Target, When};
use dwell_wire::{
    LeaseItem, PutItem, RescheduleItem, ReviveFields, ScheduleFields, SelectFields, SettleItem, TargetFields,
    WhenFields, schema,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::parse::{either_ms, items};
use crate::delivery::{Definition, word};
use crate::http::{HttpRefusal, Problem};
use crate::query::Query;

/// A request whose fields may be given in the query instead.
pub(crate) trait FromQuery: Sized {
    /// Takes them out of `query`.
    fn from_query(query: &mut Query) -> Result<Self, Problem>;
}

fn missing(what: &str) -> Problem {
    Problem::new(HttpRefusal::MissingField, format!("{what} is required"))
}

fn conflict(what: &str) -> Problem {
    Problem::new(HttpRefusal::ConflictingFields, what.to_owned())
}

/// When a message is to be due; `None` if no field is given.
pub(crate) fn when(fields: WhenFields<'_>) -> Result<Option<When>, Problem> {
    let delay_ms = either_ms("delay", fields.delay.as_deref(), fields.delay_ms)?;
    match (delay_ms, fields.due, fields.level) {
        (None, None, None) => Ok(None),
        (Some(ms), None, None) => Ok(Some(When::AfterMs(ms))),
        (None, Some(due), None) => Ok(Some(When::At(due.parse()?))),
        (None, None, Some(level)) => Ok(Some(When::Level(level))),
        _ => Err(conflict("give at most one of delay, due and level")),
    }
}

/// When a message is to be due, where a field is required.
pub(crate) fn required_when(fields: WhenFields<'_>) -> Result<When, Problem> {
    when(fields)?.ok_or_else(|| missing("one of due, delay and level"))
}

impl FromQuery for WhenFields<'static> {
    fn from_query(query: &mut Query) -> Result<WhenFields<'static>, Problem> {
        Ok(WhenFields {
            delay: query.text("delay")?.map(Cow::Owned),
            delay_ms: None,
            due: query.text("due")?.map(Cow::Owned),
            level: query.number("level")?,
        })
    }
}

/// The put of an item; `queue` is the path's, if the path has one.
pub(crate) fn put(item: PutItem<'_>, queue: Option<&QueueName>) -> Result<Put, Problem> {
    let queue = match (item.queue, queue) {
        (None, None) => return Err(missing("queue")),
        (None, Some(queue)) => queue.clone(),
        (Some(named), None) => named.parse()?,
        (Some(named), Some(queue)) if named == queue.as_str() => queue.clone(),
        (Some(_), Some(_)) => return Err(conflict("the item names another queue than the path does")),
    };
    let body = match (item.body, item.body_base64) {
        (Some(text), None) => Bytes::from(text.into_owned()),
        (None, Some(bytes)) => Bytes::from(bytes.0.into_owned()),
        (None, None) => return Err(missing("one of body and body_base64")),
        (Some(_), Some(_)) => return Err(conflict("give one of body and body_base64, not both")),
    };
    let due = WhenFields { delay: item.delay, delay_ms: item.delay_ms, due: item.due, level: item.level };
    Ok(Put {
        queue,
        body,
        when: when(due)?.unwrap_or_default(),
        key: item.key.map(|key| Key::new(&key)).transpose()?,
        on_conflict: item.on_conflict.unwrap_or(OnConflict::Reject),
        headers: item.headers.headers()?,
        priority: item.priority.unwrap_or(DEFAULT_PRIORITY),
        lease_ms: either_ms("lease", item.lease.as_deref(), item.lease_ms)?,
        max_attempts: item.max_attempts,
        expires: item.expires.map(|expires| expires.parse::<Timestamp>()).transpose()?,
        idempotency_key: item
            .idempotency_key
            .map(|idempotency_key| IdempotencyKey::new(&idempotency_key))
            .transpose()?,
    })
}

/// A message by its id or its key: exactly one of the two.
pub(crate) fn target(fields: TargetFields<'_>) -> Result<Target, Problem> {
    match (fields.id, fields.key) {
        (Some(id), None) => Ok(Target::Id(id.parse()?)),
        (None, Some(key)) => Ok(Target::Key(key.parse()?)),
        (None, None) => Err(missing("one of id and key")),
        (Some(_), Some(_)) => Err(conflict("give one of id and key, not both")),
    }
}

/// Which message to move, and its new instant.
pub(crate) fn reschedule(item: RescheduleItem<'_>) -> Result<(Target, When), Problem> {
    let RescheduleItem { id, key, delay, delay_ms, due, level } = item;
    Ok((target(TargetFields { id, key })?, required_when(WhenFields { delay, delay_ms, due, level })?))
}

/// A schedule's definition.
pub(crate) fn schedule(fields: ScheduleFields<'_>) -> Result<Definition, Problem> {
    let invalid = |name: &str, detail: String| {
        Problem::new(HttpRefusal::InvalidField, format!("field '{name}': {detail}"))
    };
    let body = match (fields.body, fields.body_base64) {
        (Some(text), None) => Bytes::from(text.into_owned()),
        (None, Some(bytes)) => Bytes::from(bytes.0.into_owned()),
        (None, None) => Bytes::new(),
        (Some(_), Some(_)) => return Err(conflict("give one of body and body_base64, not both")),
    };
    let dialects = [Dialect::Unix, Dialect::Spring, Dialect::Quartz];
    let dialect = fields.dialect.map(|text| word(&text, &dialects, Dialect::as_str)).transpose();
    let mut definition = Definition {
        queue: fields.queue.map(Cow::into_owned),
        cron: fields.cron.map(Cow::into_owned),
        dialect: dialect.map_err(|detail| invalid("dialect", detail))?,
        zone: fields.zone.map(Cow::into_owned),
        every_ms: either_ms("every", fields.every.as_deref(), fields.every_ms)?,
        body,
        headers: fields.headers.headers()?,
        jitter_ms: either_ms("jitter", fields.jitter.as_deref(), fields.jitter_ms)?.unwrap_or(0),
        ..Definition::default()
    };
    if let Some(missed) = fields.missed {
        definition.missed(&missed).map_err(|detail| invalid("missed", detail))?;
    }
    if let Some(overlap) = fields.overlap {
        definition.overlap(&overlap).map_err(|detail| invalid("overlap", detail))?;
    }
    Ok(definition)
}

/// A request that has no fields.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "NoFields")]
#[serde(deny_unknown_fields)]
pub(crate) struct NoFieldsIn {}

impl FromQuery for NoFieldsIn {
    fn from_query(_: &mut Query) -> Result<NoFieldsIn, Problem> {
        Ok(NoFieldsIn {})
    }
}

/// The lease terms of a message that is taken by its id.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "LeaseFields")]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseIn {
    #[schemars(with = "Option<schema::Duration>")]
    lease: Option<String>,
    lease_ms: Option<u64>,
    #[schemars(with = "Option<Holder>")]
    holder: Option<String>,
}

impl LeaseIn {
    /// Converts them to the store's terms.
    pub(crate) fn terms(self) -> Result<LeaseTerms, Problem> {
        Ok(LeaseTerms {
            lease_ms: either_ms("lease", self.lease.as_deref(), self.lease_ms)?,
            session: false,
            holder: self.holder.map(|holder| Holder::new(&holder)).transpose()?,
        })
    }
}

impl FromQuery for LeaseIn {
    fn from_query(query: &mut Query) -> Result<LeaseIn, Problem> {
        Ok(LeaseIn { lease: query.text("lease")?, lease_ms: None, holder: query.text("holder")? })
    }
}

/// The fields that the five settlements may have in addition to the receipt.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "SettleFields")]
#[serde(deny_unknown_fields)]
pub(crate) struct SettleFieldsIn {
    #[schemars(with = "Option<schema::Duration>")]
    after: Option<String>,
    after_ms: Option<u64>,
    error: Option<String>,
    reason: Option<String>,
    priority: Option<u32>,
    #[schemars(with = "Option<schema::Duration>")]
    lease: Option<String>,
    lease_ms: Option<u64>,
}

impl FromQuery for SettleFieldsIn {
    fn from_query(query: &mut Query) -> Result<SettleFieldsIn, Problem> {
        Ok(SettleFieldsIn {
            after: query.text("after")?,
            after_ms: None,
            error: query.text("error")?,
            reason: query.text("reason")?,
            priority: query.number("priority")?,
            lease: query.text("lease")?,
            lease_ms: None,
        })
    }
}

impl SettleFieldsIn {
    /// The action with this name, if these fields belong to it; `unknown` is the refusal of other names.
    pub(crate) fn action(self, action: &str, unknown: HttpRefusal) -> Result<Action, Problem> {
        let given = [
            ("after", self.after.is_some() || self.after_ms.is_some()),
            ("error", self.error.is_some()),
            ("reason", self.reason.is_some()),
            ("priority", self.priority.is_some()),
            ("lease", self.lease.is_some() || self.lease_ms.is_some()),
        ];
        let only = |known: &[&str]| match given.iter().find(|(name, given)| *given && !known.contains(name)) {
            None => Ok(()),
            Some((name, _)) => {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(Problem::new(unknown, format!("{action} has no '{name}'; known are: {known}")))
            }
        };
        let after_ms = either_ms("after", self.after.as_deref(), self.after_ms)?;
        let lease_ms = either_ms("lease", self.lease.as_deref(), self.lease_ms)?;
        match action {
            "ack" => only(&[]).map(|()| Action::Ack),
            "retry" => only(&["after", "error", "priority"]).map(|()| Action::Retry {
                after_ms,
                error: self.error.map(Arc::from),
                priority: self.priority,
            }),
            "release" => {
                only(&["after", "priority"]).map(|()| Action::Release { after_ms, priority: self.priority })
            }
            "bury" => only(&["reason", "priority"])
                .map(|()| Action::Bury { reason: self.reason.map(Arc::from), priority: self.priority }),
            "extend" => only(&["lease"]).map(|()| Action::Extend { lease_ms }),
            _ => Err(Problem::new(
                HttpRefusal::InvalidField,
                "action is one of ack, retry, release, bury, extend",
            )),
        }
    }
}

/// The settlement of an item.
pub(crate) fn settle(item: SettleItem<'_>) -> Result<Settle, Problem> {
    let receipt: Receipt = item.receipt.parse()?;
    let owned = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned);
    let fields = SettleFieldsIn {
        after: owned(item.after),
        after_ms: item.after_ms,
        error: owned(item.error),
        reason: owned(item.reason),
        priority: item.priority,
        lease: owned(item.lease),
        lease_ms: item.lease_ms,
    };
    Ok(Settle { receipt, action: fields.action(&item.action, HttpRefusal::UnknownField)? })
}

/// The lease that an item ends.
pub(crate) fn lease(item: &LeaseItem<'_>) -> Result<LeaseRef, Problem> {
    Ok(LeaseRef { id: item.id.parse()?, takes: item.takes })
}

/// How long a queue is to be paused.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "PauseFields")]
#[serde(deny_unknown_fields)]
pub(crate) struct PauseIn {
    #[schemars(with = "Option<schema::Duration>")]
    r#for: Option<String>,
    for_ms: Option<u64>,
    #[schemars(with = "Option<Timestamp>")]
    until: Option<String>,
}

impl FromQuery for PauseIn {
    fn from_query(query: &mut Query) -> Result<PauseIn, Problem> {
        Ok(PauseIn { r#for: query.text("for")?, for_ms: None, until: query.text("until")? })
    }
}

impl PauseIn {
    /// The pause, from `now`.
    pub(crate) fn pause(self, now: Timestamp) -> Result<Pause, Problem> {
        match (either_ms("for", self.r#for.as_deref(), self.for_ms)?, self.until) {
            (None, None) => Ok(Pause::Indefinite),
            (Some(ms), None) => Ok(Pause::Until(now.after(ms)?)),
            (None, Some(until)) => Ok(Pause::Until(until.parse()?)),
            (Some(_), Some(_)) => Err(conflict("give one of for and until, not both")),
        }
    }
}

impl FromQuery for SelectFields {
    fn from_query(query: &mut Query) -> Result<SelectFields, Problem> {
        Ok(SelectFields { ids: None, oldest: query.number("oldest")?, all: query.flag("all")? })
    }
}

/// The selection of dead messages: exactly one of the three fields; named messages are a batch of at most `limit`.
pub(crate) fn selection(fields: SelectFields, limit: usize) -> Result<Selection, Problem> {
    match (fields.ids, fields.oldest, fields.all.filter(|all| *all)) {
        (Some(ids), None, None) => {
            let ids: Vec<Cow<'_, str>> = items(ids.get(), limit)?;
            let ids = ids.iter().map(|id| id.parse::<MessageId>()).collect::<Result<_, _>>()?;
            Ok(Selection::Ids(ids))
        }
        (None, Some(oldest), None) => Ok(Selection::Oldest(oldest)),
        (None, None, Some(_)) => Ok(Selection::All),
        (None, None, None) => Err(missing("one of ids, oldest and all=true")),
        _ => Err(conflict("give one of ids, oldest and all, not several")),
    }
}

impl FromQuery for ReviveFields<'static> {
    fn from_query(query: &mut Query) -> Result<ReviveFields<'static>, Problem> {
        let SelectFields { ids, oldest, all } = SelectFields::from_query(query)?;
        let WhenFields { delay, delay_ms, due, level } = WhenFields::from_query(query)?;
        Ok(ReviveFields { ids, oldest, all, delay, delay_ms, due, level })
    }
}

/// The dead messages to revive, at most `limit` if they are named, and when they are due; at once by default.
pub(crate) fn revive(fields: ReviveFields<'_>, limit: usize) -> Result<(Selection, When), Problem> {
    let ReviveFields { ids, oldest, all, delay, delay_ms, due, level } = fields;
    let due = when(WhenFields { delay, delay_ms, due, level })?.unwrap_or_default();
    Ok((selection(SelectFields { ids, oldest, all }, limit)?, due))
}

#[cfg(test)]
mod tests {
    use dwell_model::Headers;
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::*;
    use crate::json::object;

    /// What a client has serialized, as the server parses it.
    fn sent<T: Serialize, U: DeserializeOwned>(item: T) -> U {
        object(&serde_json::to_string(&item).unwrap()).unwrap()
    }

    #[test]
    fn a_put_is_read_as_it_was_meant() {
        let at = Timestamp::from_ms(1_795_000_000_000).unwrap();
        let plain = Put::new("q".parse().unwrap(), "x");
        let mut full = Put::new("a/b".parse().unwrap(), vec![0xff, 0x00]);
        full.key = Some("k\"".parse().unwrap());
        full.headers = Headers::new([("a", "b"), ("content-type", "text/plain")]).unwrap();
        full.priority = 7;
        full.lease_ms = Some(5);
        full.max_attempts = Some(3_u32.try_into().unwrap());
        full.expires = Some(Timestamp::MAX);
        full.idempotency_key = Some("t".parse().unwrap());
        let mut puts = vec![plain, full.clone()];
        for when in [When::At(at), When::AfterMs(0), When::AfterMs(u64::MAX), When::Level(1)] {
            puts.push(Put { when, ..full.clone() });
        }
        for on_conflict in [OnConflict::Replace, OnConflict::Keep] {
            puts.push(Put { on_conflict, ..full.clone() });
        }
        for meant in puts {
            assert_eq!(put(sent(PutItem::from(&meant)), None).unwrap(), meant);
        }
    }

    #[test]
    fn settlements_and_changes_are_read_as_they_were_meant() {
        let id = MessageId::new(Timestamp::MIN, 0, 0, 1);
        let receipt = Receipt { queue: "q".parse().unwrap(), id, token: dwell_model::LeaseToken(3) };
        for action in [
            Action::Ack,
            Action::Retry { after_ms: Some(1), error: Some("no luck".into()), priority: Some(2) },
            Action::Retry { after_ms: None, error: None, priority: None },
            Action::Release { after_ms: Some(1), priority: Some(2) },
            Action::Bury { reason: Some("broken".into()), priority: Some(2) },
            Action::Extend { lease_ms: Some(1) },
        ] {
            let meant = Settle { receipt: receipt.clone(), action };
            assert_eq!(settle(sent(SettleItem::from(&meant))).unwrap(), meant);
        }
        for meant in [Target::Id(id), Target::Key("k".parse().unwrap())] {
            assert_eq!(target(sent(TargetFields::from(&meant))).unwrap(), meant);
            for when in [When::At(Timestamp::MIN), When::AfterMs(3), When::Level(1)] {
                let meant = (meant.clone(), when);
                assert_eq!(reschedule(sent(RescheduleItem::from(&meant))).unwrap(), meant);
            }
            let now = (meant.clone(), When::Now);
            assert_eq!(reschedule(sent(RescheduleItem::from(&now))).unwrap(), (meant, When::AfterMs(0)));
        }
        let meant = LeaseRef { id, takes: 7 };
        assert_eq!(lease(&sent::<_, LeaseItem<'_>>(LeaseItem::from(&meant))).unwrap(), meant);
        for meant in [Selection::Ids(vec![id]), Selection::Oldest(3), Selection::All] {
            assert_eq!(selection(sent(SelectFields::from(&meant)), 1).unwrap(), meant);
            for when in [When::Now, When::At(Timestamp::MIN), When::AfterMs(3), When::Level(1)] {
                let both = (meant.clone(), when);
                assert_eq!(revive(sent(ReviveFields::new(&meant, when)), 1).unwrap(), both);
            }
        }
    }
}
