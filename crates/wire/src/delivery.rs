//! Sinks and schedules that a server runs itself.

use std::borrow::Cow;
use std::collections::BTreeMap;

use dwell_model::{Headers, QueueName, Timestamp};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::schema;
use crate::{Base64, HeaderFields, Problem, text};

/// A sink, which forwards the messages of some queues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Sink {
    /// Its name.
    pub name: String,
    /// Its kind: `webhook`.
    pub kind: Cow<'static, str>,
    /// The destination: host and port, or the header in which messages name it. The path is not shown.
    pub destination: String,
    /// Whether it takes messages.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["running", "paused", "ended"])))]
    pub state: Cow<'static, str>,
    /// The reason if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Messages that the destination has confirmed since the sink started.
    pub delivered: u64,
    /// Requests with an unknown outcome. Their messages are sent again.
    pub uncertain: u64,
    /// Deliveries that have failed, by code: `http_503`, `refused`, `timed_out`, and so on.
    pub failed: BTreeMap<String, u64>,
    /// The queues that it takes from.
    pub queues: Vec<SinkQueue>,
}

/// A queue of a sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SinkQueue {
    /// The queue.
    pub queue: QueueName,
    /// The breaker. While it is open, no message is taken.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["closed", "half_open", "open"])))]
    pub breaker: Cow<'static, str>,
    /// Messages that are under way now.
    pub in_flight: u64,
    /// Messages that were taken.
    pub taken: u64,
    /// Messages that were acked.
    pub acked: u64,
    /// Attempts that have failed.
    pub retried: u64,
    /// Messages that were given back with no attempt spent.
    pub released: u64,
    /// Messages that were buried.
    pub buried: u64,
    /// Outcomes that came after the end of the lease, and were discarded.
    pub lost: u64,
}

/// The sinks of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Sinks {
    /// By name.
    pub sinks: Vec<Sink>,
}

/// The result of probing a sink's destination. No message was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SinkTested {
    /// Whether it accepts connections, TLS included. Left out if each message names its own destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<bool>,
    /// The reason if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The definition of a schedule.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ScheduleFields"))]
#[serde(deny_unknown_fields)]
pub struct ScheduleFields<'a> {
    /// The queue of its runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<QueueName>"))]
    pub queue: Option<Cow<'a, str>>,
    /// A cron expression of five, six or seven fields. Either this or `every`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<Cow<'a, str>>,
    /// The dialect of an expression with six or seven fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "Option<String>", extend("enum" = ["unix", "spring", "quartz"]))
    )]
    pub dialect: Option<Cow<'a, str>>,
    /// The time zone of the cron expression, by its name in the IANA database; UTC by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<Cow<'a, str>>,
    /// The interval between runs, counted from 1970-01-01T00:00:00Z.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Duration>"))]
    pub every: Option<Cow<'a, str>>,
    /// The interval in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// The body of runs, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Cow<'a, str>>,
    /// The body of runs, as bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Base64>"))]
    pub body_base64: Option<Base64<'a>>,
    /// Headers of runs.
    #[serde(default, skip_serializing_if = "HeaderFields::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<BTreeMap<String, String>>"))]
    pub headers: HeaderFields,
    /// What happens to instants that came while no server ran the schedule; `one` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>", extend("enum" = ["one", "skip", "all"])))]
    pub missed: Option<Cow<'a, str>>,
    /// What happens to a run while an earlier one is not done; `skip` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "Option<String>", extend("enum" = ["skip", "allow", "replace"]))
    )]
    pub overlap: Option<Cow<'a, str>>,
    /// Delays each run by up to this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Duration>"))]
    pub jitter: Option<Cow<'a, str>>,
    /// The jitter in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<u64>,
}

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Schedule<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// The queue of its runs.
    pub queue: QueueName,
    /// Its cron expression, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<Cow<'a, str>>,
    /// The dialect of the expression, if it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<Cow<'a, str>>,
    /// The time zone of the expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Cow<'a, str>>,
    /// The interval between its runs, if it has one.
    #[serde(
        rename = "every",
        default,
        with = "text::option_duration",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Duration>"))]
    pub every_ms: Option<u64>,
    /// The body of runs, if it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Cow<'a, str>>,
    /// The body of runs, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Base64>"))]
    pub body_base64: Option<Base64<'a>>,
    /// Headers of runs.
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<BTreeMap<String, String>>"))]
    pub headers: Headers,
    /// What happens to missed instants: `one`, `skip`, `all`.
    pub missed: Cow<'a, str>,
    /// What happens to overlapping runs: `skip`, `allow`, `replace`.
    pub overlap: Cow<'a, str>,
    /// The most by which a run may be delayed.
    #[serde(rename = "jitter", with = "text::duration")]
    #[cfg_attr(feature = "schema", schemars(with = "schema::Duration"))]
    pub jitter_ms: u64,
    /// Whether it is paused.
    pub paused: bool,
    /// The instant of its next run, before jitter. Left out while it is paused, and until a runner has computed the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
}

/// The schedules of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Schedules<'a> {
    /// By name. Bodies of more than 4 KiB are left out here; each schedule by itself has its own.
    pub schedules: Vec<Schedule<'a>>,
    /// The reasons why other schedules cannot be read by this version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<Problem<'static>>,
}

/// The outcome of defining a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ScheduleDefined {
    /// What the definition did.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", extend("enum" = ["created", "changed", "unchanged"]))
    )]
    pub outcome: ScheduleOutcome,
}

/// The outcome of defining a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleOutcome {
    /// There was no schedule of this name.
    Created,
    /// There was a schedule with another definition.
    Changed,
    /// There was a schedule with the same definition; it continues.
    Unchanged,
}

/// The next instants of a schedule, before jitter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Instants {
    /// The soonest first; fewer than requested if there are no more.
    pub instants: Vec<Timestamp>,
}

/// A body as it is shown: as text if it is UTF-8, otherwise as bytes.
pub fn shown_body(body: &[u8]) -> (Option<Cow<'_, str>>, Option<Base64<'_>>) {
    match std::str::from_utf8(body) {
        Ok(text) => (Some(text.into()), None),
        Err(_) => (None, Some(Base64(body.into()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_read_as_it_is_written_and_a_field_too_many_is_refused() {
        let (body, body_base64) = shown_body(&[0, 159]);
        let schedule = Schedule {
            name: "s".into(),
            queue: "q".parse().unwrap(),
            cron: None,
            dialect: None,
            zone: None,
            every_ms: Some(90_000),
            body,
            body_base64,
            headers: Headers::new([("a", "b")]).unwrap(),
            missed: "one".into(),
            overlap: "skip".into(),
            jitter_ms: 0,
            paused: false,
            next: Some(Timestamp::MIN),
        };
        let json = serde_json::to_string(&schedule).unwrap();
        assert!(json.contains(r#""every":"1m30s""#), "{json}");
        assert_eq!(serde_json::from_str::<Schedule<'_>>(&json).unwrap(), schedule);
        let refused = serde_json::from_str::<ScheduleFields<'_>>(r#"{"queue":"q","evry":"1s"}"#);
        assert!(refused.unwrap_err().to_string().contains("unknown field"));
    }
}
