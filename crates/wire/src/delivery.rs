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

/// What passes messages of some queues on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Sink {
    /// Its name.
    pub name: String,
    /// What it is: `webhook`.
    pub kind: Cow<'static, str>,
    /// Where messages go: host and port, or the header in which they name it. A path is not shown.
    pub destination: String,
    /// Whether it takes messages.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["running", "paused", "ended"])))]
    pub state: Cow<'static, str>,
    /// Why it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Messages that the destination has confirmed since the sink started.
    pub delivered: u64,
    /// Requests of which nobody knows whether they arrived. Their messages go out again.
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
    /// While it is open, nothing is taken.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["closed", "half_open", "open"])))]
    pub breaker: Cow<'static, str>,
    /// Messages that are under way now.
    pub in_flight: u64,
    /// Messages that were taken.
    pub taken: u64,
    /// Messages that are done.
    pub acked: u64,
    /// Attempts that have failed.
    pub retried: u64,
    /// Messages that were given back with no attempt spent.
    pub released: u64,
    /// Messages that were set aside.
    pub buried: u64,
    /// Outcomes that came after the lease was over, and were thrown away.
    pub lost: u64,
}

/// The sinks of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Sinks {
    /// By name.
    pub sinks: Vec<Sink>,
}

/// What a try of a sink's destination has found. No message was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SinkTested {
    /// Whether it takes connections, TLS included. Left out where each message names its own destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<bool>,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a schedule is to say.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "ScheduleFields"))]
#[serde(deny_unknown_fields)]
pub struct ScheduleFields<'a> {
    /// Where runs are put.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<QueueName>"))]
    pub queue: Option<Cow<'a, str>>,
    /// A cron expression of five, six or seven fields. Either this or `every`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<Cow<'a, str>>,
    /// Whose expression it is, where it has six fields or seven.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "Option<String>", extend("enum" = ["unix", "spring", "quartz"]))
    )]
    pub dialect: Option<Cow<'a, str>>,
    /// The zone of a cron expression, by its name in the IANA database; UTC if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<Cow<'a, str>>,
    /// At even distances, counted from 1970-01-01T00:00:00Z.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Duration>"))]
    pub every: Option<Cow<'a, str>>,
    /// The same in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// The body of runs, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Cow<'a, str>>,
    /// The same as bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Base64>"))]
    pub body_base64: Option<Base64<'a>>,
    /// Headers of runs.
    #[serde(default, skip_serializing_if = "HeaderFields::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<BTreeMap<String, String>>"))]
    pub headers: HeaderFields,
    /// What becomes of instants that came while nobody ran the schedule; `one` if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>", extend("enum" = ["one", "skip", "all"])))]
    pub missed: Option<Cow<'a, str>>,
    /// What becomes of a run while an earlier one is not done; `skip` if it is left out.
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
    /// The same in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<u64>,
}

/// A schedule as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Schedule<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// Where runs are put.
    pub queue: QueueName,
    /// Its cron expression, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<Cow<'a, str>>,
    /// Whose expression that is, where it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<Cow<'a, str>>,
    /// The expression's zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Cow<'a, str>>,
    /// The distance of its runs, if that is even.
    #[serde(
        rename = "every",
        default,
        with = "text::option_duration",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Duration>"))]
    pub every_ms: Option<u64>,
    /// The body of runs, where it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Cow<'a, str>>,
    /// The body of runs, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Base64>"))]
    pub body_base64: Option<Base64<'a>>,
    /// Headers of runs.
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<BTreeMap<String, String>>"))]
    pub headers: Headers,
    /// What becomes of missed instants: `one`, `skip`, `all`.
    pub missed: Cow<'a, str>,
    /// What becomes of runs that overlap: `skip`, `allow`, `replace`.
    pub overlap: Cow<'a, str>,
    /// By how much a run may be moved back.
    #[serde(rename = "jitter", with = "text::duration")]
    #[cfg_attr(feature = "schema", schemars(with = "schema::Duration"))]
    pub jitter_ms: u64,
    /// Whether it is paused.
    pub paused: bool,
    /// The instant that it runs for next, before jitter. Left out while it is paused, and until a runner has found the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
}

/// The schedules of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Schedules<'a> {
    /// By name.
    pub schedules: Vec<Schedule<'a>>,
    /// Why others cannot be read by this version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<Problem<'static>>,
}

/// What a definition of a schedule did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ScheduleDefined {
    /// What it did.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", extend("enum" = ["created", "changed", "unchanged"]))
    )]
    pub outcome: ScheduleOutcome,
}

/// What a definition of a schedule did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleOutcome {
    /// There was none of this name.
    Created,
    /// There was one that said something else.
    Changed,
    /// There was one that says the same; it goes on.
    Unchanged,
}

/// The next instants of a schedule, before jitter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Instants {
    /// The soonest first; fewer than were asked for where there are no more.
    pub instants: Vec<Timestamp>,
}

/// A body as it is shown: as text where it is UTF-8, else as bytes.
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
