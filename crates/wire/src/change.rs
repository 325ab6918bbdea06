//! Changes to messages that are not leased: which one, when, and the outcome of a cancel, reschedule, revive or discard.

use std::borrow::Cow;

#[cfg(feature = "schema")]
use dwell_model::Key;
use dwell_model::{MessageId, Timestamp};
use dwell_store::{Selection, Target, When};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::Problem;
#[cfg(feature = "schema")]
use crate::schema;

/// When a message is to be due: at most one of these fields.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "When"))]
#[serde(deny_unknown_fields)]
pub struct WhenFields<'a> {
    /// After this delay, from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Duration>"))]
    pub delay: Option<Cow<'a, str>>,
    /// The delay in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// At this instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Timestamp>"))]
    pub due: Option<Cow<'a, str>>,
    /// After this delay level of the queue, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<u32>,
}

/// `When::Now` leaves all fields out.
impl From<When> for WhenFields<'static> {
    fn from(when: When) -> WhenFields<'static> {
        let none = WhenFields::default();
        match when {
            When::Now => none,
            When::At(due) => WhenFields { due: Some(due.to_string().into()), ..none },
            When::AfterMs(delay_ms) => WhenFields { delay_ms: Some(delay_ms), ..none },
            When::Level(level) => WhenFields { level: Some(level), ..none },
        }
    }
}

/// A message by its id or by its key, not both.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Target"))]
#[serde(deny_unknown_fields)]
pub struct TargetFields<'a> {
    /// By its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<MessageId>"))]
    pub id: Option<Cow<'a, str>>,
    /// By its key: the live message that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Key>"))]
    pub key: Option<Cow<'a, str>>,
}

impl<'a> From<&'a Target> for TargetFields<'a> {
    fn from(target: &'a Target) -> TargetFields<'a> {
        match target {
            Target::Id(id) => TargetFields { id: Some(id.to_string().into()), key: None },
            Target::Key(key) => TargetFields { id: None, key: Some(key.as_str().into()) },
        }
    }
}

// The types below have the fields of two of the above. They are not flattened, since serde does not refuse unknown fields then.

/// One item of a batch of reschedules: which message, and when it is to be due.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RescheduleItem<'a> {
    /// By its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<MessageId>"))]
    pub id: Option<Cow<'a, str>>,
    /// By its key: the live message that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Key>"))]
    pub key: Option<Cow<'a, str>>,
    /// After this delay, from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Duration>"))]
    pub delay: Option<Cow<'a, str>>,
    /// The delay in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// At this instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Timestamp>"))]
    pub due: Option<Cow<'a, str>>,
    /// After this delay level of the queue, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<u32>,
}

impl<'a> From<&'a (Target, When)> for RescheduleItem<'a> {
    fn from((target, when): &'a (Target, When)) -> RescheduleItem<'a> {
        let TargetFields { id, key } = target.into();
        let WhenFields { delay, delay_ms, due, level } = (*when).into();
        // An item of a batch has to name an instant.
        let delay_ms = if *when == When::Now { Some(0) } else { delay_ms };
        RescheduleItem { id, key, delay, delay_ms, due, level }
    }
}

/// Which dead messages are selected: exactly one of the three fields.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Selection"))]
#[serde(deny_unknown_fields)]
pub struct SelectFields {
    /// The messages with these ids.
    // Kept unparsed, so that a server holds no more of them than a batch may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<MessageId>>"))]
    pub ids: Option<Box<RawValue>>,
    /// The number of messages, oldest death first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<u64>,
    /// All dead messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
}

impl From<&Selection> for SelectFields {
    fn from(which: &Selection) -> SelectFields {
        let none = SelectFields::default();
        match which {
            Selection::Ids(ids) => {
                SelectFields { ids: Some(to_raw_value(ids).expect("ids are texts")), ..none }
            }
            Selection::Oldest(count) => SelectFields { oldest: Some(*count), ..none },
            Selection::All => SelectFields { all: Some(true), ..none },
        }
    }
}

/// Which dead messages are revived, and when they are due.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReviveFields<'a> {
    /// The messages with these ids.
    // Kept unparsed, so that a server holds no more of them than a batch may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<MessageId>>"))]
    pub ids: Option<Box<RawValue>>,
    /// The number of messages, oldest death first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<u64>,
    /// All dead messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
    /// After this delay, from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Duration>"))]
    pub delay: Option<Cow<'a, str>>,
    /// The delay in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// At this instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Timestamp>"))]
    pub due: Option<Cow<'a, str>>,
    /// After this delay level of the queue, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<u32>,
}

impl ReviveFields<'static> {
    /// Revives the messages of `which`, due as `when` says.
    pub fn new(which: &Selection, when: When) -> ReviveFields<'static> {
        let SelectFields { ids, oldest, all } = which.into();
        let WhenFields { delay, delay_ms, due, level } = when.into();
        ReviveFields { ids, oldest, all, delay, delay_ms, due, level }
    }
}

/// A message that was scheduled or ready, and has been removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Cancelled {
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["cancelled"])))]
    outcome: Cow<'static, str>,
    /// The id of the message.
    pub id: MessageId,
}

impl Cancelled {
    /// The answer for the message with this id.
    pub fn new(id: MessageId) -> Cancelled {
        Cancelled { outcome: "cancelled".into(), id }
    }
}

/// A message that has been rescheduled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Moved {
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["moved"])))]
    outcome: Cow<'static, str>,
    /// The id of the message.
    pub id: MessageId,
    /// The instant at which it is due now.
    pub due: Timestamp,
}

impl Moved {
    /// The answer for this message and its new instant.
    pub fn new(id: MessageId, due: Timestamp) -> Moved {
        Moved { outcome: "moved".into(), id, due }
    }
}

/// What a revive or a discard did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Swept {
    /// The number of messages that were revived or discarded.
    pub done: u64,
    /// The number of messages that were refused.
    pub refused_in_all: u64,
    /// Those that were refused, at most 1,000 of them.
    pub refused: Vec<RefusedOne>,
}

impl Swept {
    /// The outcome, as the store behind the server at the address `server` reports it.
    pub fn into_swept(self, server: &str) -> dwell_store::BulkOutcome {
        let refused = |one: RefusedOne| (one.id, one.error.into_error(server));
        dwell_store::BulkOutcome {
            done: self.done,
            refused: self.refused.into_iter().map(refused).collect(),
            refused_in_all: self.refused_in_all,
        }
    }
}

impl From<&dwell_store::BulkOutcome> for Swept {
    fn from(swept: &dwell_store::BulkOutcome) -> Swept {
        let refused =
            |(id, error): &(MessageId, dwell_store::Error)| RefusedOne { id: *id, error: error.into() };
        Swept {
            done: swept.done,
            refused_in_all: swept.refused_in_all,
            refused: swept.refused.iter().map(refused).collect(),
        }
    }
}

/// One refused message of many: a dead one that was left unchanged, or one of a list that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct RefusedOne {
    /// The id of the message.
    pub id: MessageId,
    /// The reason.
    pub error: Problem<'static>,
}

/// The number of messages that were removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Removed {
    /// The number of messages.
    pub removed: u64,
}
