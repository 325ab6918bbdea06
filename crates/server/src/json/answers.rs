//! Answers: what callers get as JSON.

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dwell_model::{
    Cursor, Headers, Key, Limits, Message, MessageId, QueueName, Receipt, State, Timestamp,
    format_duration_ms,
};
use dwell_store::{Delivery, PutAnswer, PutOutcome, QueueStats, Settled, Swept};
use schemars::JsonSchema;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::Text;
use super::attempts::AttemptsOut;
use super::schema;
use super::settings::SettingsOut;
use crate::http::Problem;

/// An answer to one item, with the status that it has by itself.
pub(crate) trait Answer: Serialize + Send + 'static {
    /// 200, unless something came into being.
    fn status(&self) -> StatusCode {
        StatusCode::OK
    }
}

/// The answer to a put.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PutAnswer")]
pub(crate) struct PutOut {
    id: Text<MessageId>,
    number: u64,
    due: Text<Timestamp>,
    #[schemars(extend("enum" = ["created", "replaced", "kept"]))]
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced: Option<Text<MessageId>>,
}

impl From<PutAnswer> for PutOut {
    fn from(answer: PutAnswer) -> PutOut {
        let (outcome, replaced) = match answer.outcome {
            PutOutcome::Created => ("created", None),
            PutOutcome::Replaced(id) => ("replaced", Some(Text(id))),
            PutOutcome::Kept => ("kept", None),
        };
        PutOut { id: Text(answer.id), number: answer.number.get(), due: Text(answer.due), outcome, replaced }
    }
}

impl PutOut {
    /// The message that stands.
    pub(crate) fn id(&self) -> MessageId {
        self.id.0
    }
}

impl Answer for PutOut {
    fn status(&self) -> StatusCode {
        if self.outcome == "kept" { StatusCode::OK } else { StatusCode::CREATED }
    }
}

/// Headers as a JSON object.
#[derive(Debug)]
struct HeadersOut<'a>(&'a Headers);

impl Serialize for HeadersOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.0.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// A message.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Message")]
pub(crate) struct MessageOut<'a> {
    id: Text<MessageId>,
    number: u64,
    queue: Text<&'a QueueName>,
    #[schemars(extend("enum" = ["scheduled", "ready", "leased", "dead"]))]
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    size: usize,
    due: Text<Timestamp>,
    created: Text<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Text<Timestamp>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Text<&'a Key>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<std::collections::BTreeMap<String, String>>")]
    headers: Option<HeadersOut<'a>>,
    priority: u32,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<AttemptsOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Duration>")]
    lease: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_until: Option<Text<Timestamp>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::DeadReason>")]
    dead_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_at: Option<Text<Timestamp>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a str>,
    counts: MessageCountsOut,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "MessageCounts")]
struct MessageCountsOut {
    takes: u32,
    lapses: u32,
    releases: u32,
    buries: u32,
    revives: u32,
}

impl<'a> MessageOut<'a> {
    /// With its body, or without.
    pub(crate) fn new(message: &'a Message, with_body: bool) -> MessageOut<'a> {
        let standing = &message.standing;
        let (body, body_base64) = match std::str::from_utf8(&message.body) {
            _ if !with_body => (None, None),
            Ok(text) => (Some(text), None),
            Err(_) => (None, Some(STANDARD.encode(&message.body))),
        };
        let death = match standing.state {
            State::Dead(death) => Some(death),
            _ => None,
        };
        MessageOut {
            id: Text(message.id),
            number: message.number.get(),
            queue: Text(&message.queue),
            state: standing.state.kind().as_str(),
            body,
            body_base64,
            size: message.body.len(),
            due: Text(standing.due),
            created: Text(message.created),
            expires: standing.expires.map(Text),
            key: message.key.as_ref().map(Text),
            headers: (!message.headers.is_empty()).then_some(HeadersOut(&message.headers)),
            priority: standing.priority,
            attempt: standing.attempt(),
            max_attempts: message.max_attempts.map(AttemptsOut),
            lease: message.lease_ms.map(format_duration_ms),
            lease_until: lease_until(message).map(Text),
            dead_reason: death.map(|death| death.reason.as_str()),
            dead_at: death.map(|death| Text(death.at)),
            last_error: standing.last_error.as_deref(),
            counts: MessageCountsOut {
                takes: standing.counts.takes,
                lapses: standing.counts.lapses,
                releases: standing.counts.releases,
                buries: standing.counts.buries,
                revives: standing.counts.revives,
            },
        }
    }
}

/// When the lease of a leased message ends, by the store's wall clock.
pub(crate) fn lease_until(message: &Message<Bytes>) -> Option<Timestamp> {
    match message.standing.state {
        State::Leased(lease) => Some(lease.deadline),
        _ => None,
    }
}

/// A page of messages.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "MessagePage")]
pub(crate) struct MessagesOut<'a> {
    pub(crate) messages: Vec<MessageOut<'a>>,
    /// Messages that are there and can not be read, and why; left out where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unread: Option<Vec<UnreadOut>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<Text<Cursor>>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Unread")]
pub(crate) struct UnreadOut {
    id: Text<MessageId>,
    error: Problem,
}

impl UnreadOut {
    /// Those of a page; nothing if there are none.
    pub(crate) fn of(unread: Vec<(MessageId, dwell_store::Error)>) -> Option<Vec<UnreadOut>> {
        let told = unread.into_iter().map(|(id, error)| UnreadOut { id: Text(id), error: error.into() });
        Some(told.collect::<Vec<_>>()).filter(|told| !told.is_empty())
    }
}

/// The answer to one item of a batch of gets.
#[derive(Debug)]
pub(crate) struct FoundOut(pub(crate) Message);

/// What a [`FoundOut`] is written as.
#[derive(JsonSchema)]
#[schemars(rename = "Found")]
#[expect(dead_code, reason = "it describes what `FoundOut` writes by hand")]
pub(crate) struct FoundSchema<'a> {
    message: MessageOut<'a>,
}

impl Serialize for FoundOut {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("message", &MessageOut::new(&self.0, true))?;
        map.end()
    }
}

impl Answer for FoundOut {}

/// A message handed over.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Delivery")]
pub(crate) struct DeliveryOut<'a> {
    receipt: Text<&'a Receipt>,
    lease_until: Text<Timestamp>,
    taken_at: Text<Timestamp>,
    lateness_ms: u64,
    #[serde(flatten)]
    message: MessageOut<'a>,
}

impl<'a> From<&'a Delivery> for DeliveryOut<'a> {
    fn from(delivery: &'a Delivery) -> DeliveryOut<'a> {
        DeliveryOut {
            receipt: Text(&delivery.receipt),
            lease_until: Text(delivery.lease_until),
            taken_at: Text(delivery.taken_at),
            lateness_ms: delivery.lateness_ms,
            // The lease's end is said once, by the delivery.
            message: MessageOut { lease_until: None, ..MessageOut::new(&delivery.message, true) },
        }
    }
}

/// The answer to a take.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Taken")]
pub(crate) struct TakenOut<'a> {
    pub(crate) messages: Vec<DeliveryOut<'a>>,
}

/// What has become of a settled message.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Settled")]
pub(crate) struct SettledOut {
    #[schemars(extend("enum" = ["gone", "scheduled", "ready", "leased", "dead"]))]
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<Text<Timestamp>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::DeadReason>")]
    dead_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_until: Option<Text<Timestamp>>,
}

impl From<Settled> for SettledOut {
    fn from(settled: Settled) -> SettledOut {
        let plain = |state| SettledOut { state, due: None, dead_reason: None, lease_until: None };
        match settled {
            Settled::Gone => plain("gone"),
            Settled::Ready => plain("ready"),
            Settled::Scheduled(due) => SettledOut { due: Some(Text(due)), ..plain("scheduled") },
            Settled::Dead(reason) => SettledOut { dead_reason: Some(reason.as_str()), ..plain("dead") },
            Settled::Leased(until) => SettledOut { lease_until: Some(Text(until)), ..plain("leased") },
        }
    }
}

impl Answer for SettledOut {}

/// A message that is gone by a cancel.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Cancelled")]
pub(crate) struct CancelledOut {
    #[schemars(extend("enum" = ["cancelled"]))]
    outcome: &'static str,
    id: Text<MessageId>,
}

impl CancelledOut {
    pub(crate) fn new(id: MessageId) -> CancelledOut {
        CancelledOut { outcome: "cancelled", id: Text(id) }
    }
}

impl Answer for CancelledOut {}

/// A message that a reschedule has moved.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Moved")]
pub(crate) struct MovedOut {
    #[schemars(extend("enum" = ["moved"]))]
    outcome: &'static str,
    id: Text<MessageId>,
    due: Text<Timestamp>,
}

impl MovedOut {
    pub(crate) fn new(id: MessageId, due: Timestamp) -> MovedOut {
        MovedOut { outcome: "moved", id: Text(id), due: Text(due) }
    }
}

impl Answer for MovedOut {}

/// What a revive or a discard did.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Swept")]
pub(crate) struct SweptOut {
    done: u64,
    refused_in_all: u64,
    refused: Vec<RefusedOut>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "NotSwept")]
struct RefusedOut {
    id: Text<MessageId>,
    error: Problem,
}

impl From<Swept> for SweptOut {
    fn from(swept: Swept) -> SweptOut {
        let refused = swept.refused.into_iter();
        SweptOut {
            done: swept.done,
            refused_in_all: swept.refused_in_all,
            refused: refused.map(|(id, error)| RefusedOut { id: Text(id), error: error.into() }).collect(),
        }
    }
}

/// How many messages a purge removed.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Removed")]
pub(crate) struct RemovedOut {
    pub(crate) removed: u64,
}

/// A queue.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Queue")]
pub(crate) struct QueueOut {
    queue: Text<QueueName>,
    counts: QueueCountsOut,
    waiting: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_due: Option<Text<Timestamp>>,
    settings: SettingsOut,
    own: Vec<&'static str>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "QueueCounts")]
struct QueueCountsOut {
    scheduled: u64,
    ready: u64,
    ready_urgent: u64,
    leased: u64,
    dead: u64,
}

impl From<QueueStats> for QueueOut {
    fn from(stats: QueueStats) -> QueueOut {
        QueueOut {
            queue: Text(stats.name),
            counts: QueueCountsOut {
                scheduled: stats.counts.scheduled,
                ready: stats.counts.ready,
                ready_urgent: stats.counts.ready_urgent,
                leased: stats.counts.leased,
                dead: stats.counts.dead,
            },
            waiting: stats.waiting,
            next_due: stats.next_due.map(Text),
            settings: SettingsOut::from(&stats.settings),
            own: stats.own.iter().map(|setting| setting.name().as_str()).collect(),
        }
    }
}

/// A page of queues.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "QueuePage")]
pub(crate) struct QueuesOut {
    queues: Vec<QueueOut>,
    /// Queues that are there and can not be read now, and why; left out where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    unread: Option<Vec<UnreadQueueOut>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Text<QueueName>>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "UnreadQueue")]
struct UnreadQueueOut {
    queue: Text<QueueName>,
    error: Problem,
}

impl QueuesOut {
    /// A page of what a store has listed; with where the next one begins, if there is one.
    pub(crate) fn of(found: Vec<QueueStats>, is_more: bool) -> QueuesOut {
        let next = found.last().filter(|_| is_more).map(|last| Text(last.name.clone()));
        let (mut queues, mut unread) = (Vec::with_capacity(found.len()), Vec::new());
        for mut stats in found {
            match stats.unread.take() {
                None => queues.push(QueueOut::from(stats)),
                Some(error) => unread.push(UnreadQueueOut { queue: Text(stats.name), error: error.into() }),
            }
        }
        QueuesOut { queues, unread: Some(unread).filter(|unread| !unread.is_empty()), next }
    }
}

/// What the server accepts at most.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Limits")]
pub(crate) struct LimitsOut {
    version: &'static str,
    limits: LimitValuesOut,
    defaults: SettingsOut,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "LimitValues")]
struct LimitValuesOut {
    body_bytes: usize,
    batch: usize,
    leased: usize,
    leased_per_queue: usize,
    waiting_per_queue: usize,
    queues: usize,
    put_tokens: usize,
    put_tokens_per_queue: usize,
    take_queues: usize,
    #[schemars(with = "schema::Duration")]
    wait: String,
    json_bytes: usize,
    line_bytes: usize,
}

impl LimitsOut {
    /// What the store accepts, and what the server does beside: queues that a take may name, how long one may wait, bytes
    /// of JSON and of a line.
    pub(crate) fn new(
        limits: &Limits,
        take_queues: usize,
        wait_ms: u64,
        json_bytes: usize,
        line_bytes: usize,
    ) -> LimitsOut {
        LimitsOut {
            version: env!("CARGO_PKG_VERSION"),
            limits: LimitValuesOut {
                body_bytes: limits.body_len,
                batch: limits.batch,
                leased: limits.leased,
                leased_per_queue: limits.leased_per_queue,
                waiting_per_queue: limits.waiting_per_queue,
                queues: limits.queues,
                put_tokens: limits.put_tokens,
                put_tokens_per_queue: limits.put_tokens_per_queue,
                take_queues,
                wait: format_duration_ms(wait_ms),
                json_bytes,
                line_bytes,
            },
            defaults: SettingsOut::from(&limits.defaults),
        }
    }
}
