//! Requests: what callers send as JSON, or, by the same names, in a query.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use dwell_model::{
    DEFAULT_PRIORITY, Headers, Invalid, Key, MessageId, Pause, PutToken, QueueName, Receipt, Timestamp,
};
use dwell_store::{Action, OnConflict, Put, Selection, Settle, Target, When};
use schemars::JsonSchema;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::attempts::AttemptsIn;
use super::parse::{base64, either_ms, items};
use super::schema;
use crate::http::{Problem, Refusal};
use crate::query::Query;

/// A request whose fields may come in the query instead.
pub(crate) trait FromQuery: Sized {
    /// Takes them out of `query`.
    fn from_query(query: &mut Query) -> Result<Self, Problem>;
}

fn missing(what: &str) -> Problem {
    Problem::new(Refusal::MissingField, format!("{what} is required"))
}

fn conflict(what: &str) -> Problem {
    Problem::new(Refusal::ConflictingFields, what.to_owned())
}

/// The words of `on_conflict`.
pub(crate) fn on_conflict_words() -> [(&'static str, OnConflict); 3] {
    [("reject", OnConflict::Reject), ("replace", OnConflict::Replace), ("keep", OnConflict::Keep)]
}

/// When a message is to be due: at most one of these.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "When")]
#[serde(deny_unknown_fields)]
pub(crate) struct WhenIn {
    #[schemars(with = "Option<schema::Duration>")]
    delay: Option<String>,
    delay_ms: Option<u64>,
    #[schemars(with = "Option<schema::Instant>")]
    due: Option<String>,
    level: Option<u32>,
}

impl WhenIn {
    /// `None` if nothing was given.
    pub(crate) fn when(self) -> Result<Option<When>, Problem> {
        let delay_ms = either_ms("delay", self.delay.as_deref(), self.delay_ms)?;
        match (delay_ms, self.due, self.level) {
            (None, None, None) => Ok(None),
            (Some(ms), None, None) => Ok(Some(When::AfterMs(ms))),
            (None, Some(due), None) => Ok(Some(When::At(due.parse()?))),
            (None, None, Some(level)) => Ok(Some(When::Level(level))),
            _ => Err(conflict("give at most one of delay, due and level")),
        }
    }

    /// Something must have been given.
    pub(crate) fn required(self) -> Result<When, Problem> {
        self.when()?.ok_or_else(|| missing("one of due, delay and level"))
    }
}

impl FromQuery for WhenIn {
    fn from_query(query: &mut Query) -> Result<WhenIn, Problem> {
        Ok(WhenIn {
            delay: query.text("delay")?,
            delay_ms: None,
            due: query.text("due")?,
            level: query.number("level")?,
        })
    }
}

/// One item of a batch of puts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "PutItem")]
#[serde(deny_unknown_fields)]
pub(crate) struct PutIn {
    #[schemars(with = "Option<schema::QueueName>")]
    queue: Option<String>,
    body: Option<String>,
    #[serde(default, deserialize_with = "base64")]
    #[schemars(with = "Option<schema::Base64>")]
    body_base64: Option<Vec<u8>>,
    #[schemars(with = "Option<schema::Duration>")]
    delay: Option<String>,
    delay_ms: Option<u64>,
    #[schemars(with = "Option<schema::Instant>")]
    due: Option<String>,
    level: Option<u32>,
    #[schemars(with = "Option<schema::Key>")]
    key: Option<String>,
    on_conflict: Option<OnConflictIn>,
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    headers: HeadersIn,
    priority: Option<u32>,
    #[schemars(with = "Option<schema::Instant>")]
    expires: Option<String>,
    max_attempts: Option<AttemptsIn>,
    #[schemars(with = "Option<schema::Duration>")]
    lease: Option<String>,
    lease_ms: Option<u64>,
    #[schemars(with = "Option<schema::Token>")]
    token: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OnConflict")]
#[serde(rename_all = "snake_case")]
enum OnConflictIn {
    Reject,
    Replace,
    Keep,
}

/// Headers, which are held as far as a message may have them, and counted to their end.
#[derive(Debug, Default)]
struct HeadersIn {
    pairs: BTreeMap<String, String>,
    bytes: usize,
}

impl HeadersIn {
    fn headers(&self) -> Result<Headers, Invalid> {
        if self.bytes > Headers::MAX_LEN {
            return Err(Invalid::HeadersTooLarge { len: self.bytes, limit: Headers::MAX_LEN });
        }
        Headers::new(self.pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())))
    }

    fn add(&mut self, name: String, value: String) {
        self.bytes += name.len() + value.len();
        if self.bytes > Headers::MAX_LEN {
            return;
        }
        // Of equal names the last one stands.
        let len = name.len();
        if let Some(before) = self.pairs.insert(name, value) {
            self.bytes -= len + before.len();
        }
    }
}

impl<'de> Deserialize<'de> for HeadersIn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HeadersIn, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = HeadersIn;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HeadersIn, A::Error> {
                let mut headers = HeadersIn::default();
                while let Some((name, value)) = map.next_entry()? {
                    headers.add(name, value);
                }
                Ok(headers)
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

impl PutIn {
    /// The put it asks for; `queue` is the path's, if the path has one.
    pub(crate) fn put(self, queue: Option<&QueueName>) -> Result<Put, Problem> {
        let queue = match (self.queue, queue) {
            (None, None) => return Err(missing("queue")),
            (None, Some(queue)) => queue.clone(),
            (Some(named), None) => named.parse()?,
            (Some(named), Some(queue)) if named == queue.as_str() => queue.clone(),
            (Some(_), Some(_)) => return Err(conflict("the item names another queue than the path does")),
        };
        let body = match (self.body, self.body_base64) {
            (Some(text), None) => Bytes::from(text),
            (None, Some(bytes)) => Bytes::from(bytes),
            (None, None) => return Err(missing("one of body and body_base64")),
            (Some(_), Some(_)) => return Err(conflict("give one of body and body_base64, not both")),
        };
        let when = WhenIn { delay: self.delay, delay_ms: self.delay_ms, due: self.due, level: self.level };
        Ok(Put {
            queue,
            body,
            when: when.when()?.unwrap_or_default(),
            key: self.key.map(|key| Key::new(&key)).transpose()?,
            on_conflict: match self.on_conflict {
                None | Some(OnConflictIn::Reject) => OnConflict::Reject,
                Some(OnConflictIn::Replace) => OnConflict::Replace,
                Some(OnConflictIn::Keep) => OnConflict::Keep,
            },
            headers: self.headers.headers()?,
            priority: self.priority.unwrap_or(DEFAULT_PRIORITY),
            lease_ms: either_ms("lease", self.lease.as_deref(), self.lease_ms)?,
            max_attempts: self.max_attempts.map(|attempts| attempts.0),
            expires: self.expires.map(|expires| expires.parse::<Timestamp>()).transpose()?,
            token: self.token.map(|token| PutToken::new(&token)).transpose()?,
        })
    }
}

/// A message by its id or key.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "Target")]
#[serde(deny_unknown_fields)]
pub(crate) struct TargetIn {
    #[schemars(with = "Option<schema::Id>")]
    id: Option<String>,
    #[schemars(with = "Option<schema::Key>")]
    key: Option<String>,
}

impl TargetIn {
    /// Exactly one of the two.
    pub(crate) fn target(self) -> Result<Target, Problem> {
        match (self.id, self.key) {
            (Some(id), None) => Ok(Target::Id(id.parse()?)),
            (None, Some(key)) => Ok(Target::Key(key.parse()?)),
            (None, None) => Err(missing("one of id and key")),
            (Some(_), Some(_)) => Err(conflict("give one of id and key, not both")),
        }
    }
}

/// One item of a batch of reschedules.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "RescheduleItem")]
#[serde(deny_unknown_fields)]
pub(crate) struct RescheduleIn {
    #[schemars(with = "Option<schema::Id>")]
    id: Option<String>,
    #[schemars(with = "Option<schema::Key>")]
    key: Option<String>,
    #[schemars(with = "Option<schema::Duration>")]
    delay: Option<String>,
    delay_ms: Option<u64>,
    #[schemars(with = "Option<schema::Instant>")]
    due: Option<String>,
    level: Option<u32>,
}

impl RescheduleIn {
    /// Which message, and when.
    pub(crate) fn target_and_when(self) -> Result<(Target, When), Problem> {
        let target = TargetIn { id: self.id, key: self.key }.target()?;
        let when = WhenIn { delay: self.delay, delay_ms: self.delay_ms, due: self.due, level: self.level };
        Ok((target, when.required()?))
    }
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

/// A length of lease, if one is wanted.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "LeaseFields")]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseIn {
    #[schemars(with = "Option<schema::Duration>")]
    lease: Option<String>,
    lease_ms: Option<u64>,
}

impl LeaseIn {
    /// In milliseconds.
    pub(crate) fn lease_ms(self) -> Result<Option<u64>, Problem> {
        either_ms("lease", self.lease.as_deref(), self.lease_ms)
    }
}

impl FromQuery for LeaseIn {
    fn from_query(query: &mut Query) -> Result<LeaseIn, Problem> {
        Ok(LeaseIn { lease: query.text("lease")?, lease_ms: None })
    }
}

/// What any of the five settlements may carry beside its receipt.
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
    /// The action of this name, if these fields belong to it; `unknown` is said of those that do not.
    pub(crate) fn action(self, action: &str, unknown: Refusal) -> Result<Action, Problem> {
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
            _ => {
                Err(Problem::new(Refusal::InvalidField, "action is one of ack, retry, release, bury, extend"))
            }
        }
    }
}

/// One item of a batch of settlements.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "SettleItem")]
#[serde(deny_unknown_fields)]
pub(crate) struct SettleIn {
    #[schemars(with = "schema::Receipt")]
    receipt: String,
    #[schemars(with = "schema::Action")]
    action: String,
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

impl SettleIn {
    /// The settlement it asks for.
    pub(crate) fn settle(self) -> Result<Settle, Problem> {
        let receipt: Receipt = self.receipt.parse()?;
        let fields = SettleFieldsIn {
            after: self.after,
            after_ms: self.after_ms,
            error: self.error,
            reason: self.reason,
            priority: self.priority,
            lease: self.lease,
            lease_ms: self.lease_ms,
        };
        Ok(Settle { receipt, action: fields.action(&self.action, Refusal::UnknownField)? })
    }
}

/// How long a queue is to be paused.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "PauseFields")]
#[serde(deny_unknown_fields)]
pub(crate) struct PauseIn {
    #[schemars(with = "Option<schema::Duration>")]
    r#for: Option<String>,
    for_ms: Option<u64>,
    #[schemars(with = "Option<schema::Instant>")]
    until: Option<String>,
}

impl FromQuery for PauseIn {
    fn from_query(query: &mut Query) -> Result<PauseIn, Problem> {
        Ok(PauseIn { r#for: query.text("for")?, for_ms: None, until: query.text("until")? })
    }
}

impl PauseIn {
    /// The pause it asks for, at `now`.
    pub(crate) fn pause(self, now: Timestamp) -> Result<Pause, Problem> {
        match (either_ms("for", self.r#for.as_deref(), self.for_ms)?, self.until) {
            (None, None) => Ok(Pause::Indefinite),
            (Some(ms), None) => Ok(Pause::Until(now.after(ms)?)),
            (None, Some(until)) => Ok(Pause::Until(until.parse()?)),
            (Some(_), Some(_)) => Err(conflict("give one of for and until, not both")),
        }
    }
}

/// Which dead messages are meant, of those that a discard removes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "Selection")]
#[serde(deny_unknown_fields)]
pub(crate) struct SelectIn {
    #[schemars(with = "Option<Vec<schema::Id>>")]
    ids: Option<Box<RawValue>>,
    oldest: Option<u64>,
    all: Option<bool>,
}

impl FromQuery for SelectIn {
    fn from_query(query: &mut Query) -> Result<SelectIn, Problem> {
        Ok(SelectIn { ids: None, oldest: query.number("oldest")?, all: query.flag("all")? })
    }
}

impl SelectIn {
    /// Exactly one of the three; named ones are a batch like any other, of at most `limit`.
    pub(crate) fn selection(self, limit: usize) -> Result<Selection, Problem> {
        match (self.ids, self.oldest, self.all.filter(|all| *all)) {
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
}

/// Which dead messages are to be revived, and when they are to be due.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "ReviveFields")]
#[serde(deny_unknown_fields)]
pub(crate) struct ReviveIn {
    #[schemars(with = "Option<Vec<schema::Id>>")]
    ids: Option<Box<RawValue>>,
    oldest: Option<u64>,
    all: Option<bool>,
    #[schemars(with = "Option<schema::Duration>")]
    delay: Option<String>,
    delay_ms: Option<u64>,
    #[schemars(with = "Option<schema::Instant>")]
    due: Option<String>,
    level: Option<u32>,
}

impl FromQuery for ReviveIn {
    fn from_query(query: &mut Query) -> Result<ReviveIn, Problem> {
        let SelectIn { ids, oldest, all } = SelectIn::from_query(query)?;
        let WhenIn { delay, delay_ms, due, level } = WhenIn::from_query(query)?;
        Ok(ReviveIn { ids, oldest, all, delay, delay_ms, due, level })
    }
}

impl ReviveIn {
    /// Which, at most `limit` by their names, and when; at once if nothing else was said.
    pub(crate) fn selection_and_when(self, limit: usize) -> Result<(Selection, When), Problem> {
        let select = SelectIn { ids: self.ids, oldest: self.oldest, all: self.all };
        let when = WhenIn { delay: self.delay, delay_ms: self.delay_ms, due: self.due, level: self.level };
        Ok((select.selection(limit)?, when.when()?.unwrap_or_default()))
    }
}
