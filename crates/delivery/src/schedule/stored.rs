//! A schedule as a message: its definition is JSON in one header, and its body is that of its runs.
//!
//! To change the format, add an optional field. Fields that this version does not know are kept in the schedule's next
//! message, so that servers of two versions may run one schedule.

use std::collections::BTreeMap;

use dwell_model::{AttemptLimit, Headers, Key, Message, QueueName, Timestamp};
use dwell_store::{OnConflict, Put, When};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Dialect, Every, Missed, Overlap, Schedule, Times, queue};
use crate::{Error, Result};

/// The header of the definition.
const DEFINITION_HEADER: &str = "dwell-schedule";

/// The state of a schedule in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) schedule: Schedule,
    /// The instant that its message is due for; `None` before the first is known.
    pub(super) instant: Option<Timestamp>,
    pub(super) is_paused: bool,
    unknown: BTreeMap<String, Value>,
}

/// The content of the header.
#[derive(Serialize, Deserialize)]
struct Form {
    queue: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cron: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dialect: Option<Dialect>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    every_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<Box<str>, Box<str>>,
    #[serde(default)]
    missed: Missed,
    #[serde(default)]
    overlap: Overlap,
    #[serde(default)]
    jitter_ms: u64,
    #[serde(default)]
    paused: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instant_ms: Option<i64>,
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

impl Stored {
    /// A new schedule.
    pub(super) fn new(schedule: Schedule) -> Stored {
        Stored { schedule, instant: None, is_paused: false, unknown: BTreeMap::new() }
    }

    /// The same schedule with another definition.
    pub(super) fn redefined(self, schedule: Schedule) -> Stored {
        Stored { schedule, instant: None, ..self }
    }

    /// The same schedule, paused or running.
    pub(super) fn paused(self, is_paused: bool) -> Stored {
        Stored { is_paused, ..self }
    }

    /// Its message for this instant. It replaces the current one, and has unlimited attempts: runners that take it and
    /// die must not end the schedule.
    pub(super) fn put(&self, instant: Option<Timestamp>) -> Result<Put> {
        let schedule = &self.schedule;
        let (cron, dialect, zone, every_ms) = match &schedule.times {
            Times::Cron { cron, zone_name, .. } => {
                (Some(cron.as_str().into()), cron.dialect(), Some(zone_name.clone()), None)
            }
            Times::Every(every) => (None, None, None, Some(every.as_ms())),
        };
        let form = Form {
            queue: schedule.queue.as_str().into(),
            cron,
            dialect,
            zone,
            every_ms,
            headers: schedule.headers.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            missed: schedule.missed,
            overlap: schedule.overlap,
            jitter_ms: schedule.jitter_ms,
            paused: self.is_paused,
            instant_ms: instant.map(Timestamp::as_ms),
            unknown: self.unknown.clone(),
        };
        let json = serde_json::to_string(&form).map_err(|error| self.refused(error.to_string()))?;
        let headers = Headers::new([(DEFINITION_HEADER, json.as_str())]).map_err(dwell_store::Error::from)?;
        let when = match instant {
            _ if self.is_paused => When::At(Timestamp::MAX),
            Some(instant) => When::At(schedule.due(instant)),
            None => When::Now,
        };
        Ok(Put {
            when,
            headers,
            key: Some(key(schedule.name())?),
            on_conflict: OnConflict::Replace,
            max_attempts: Some(AttemptLimit::Unlimited),
            ..Put::new(queue(), schedule.body.clone())
        })
    }

    /// Reads a schedule from its message; `None` if its key has passed to another message, which supersedes it.
    ///
    /// # Errors
    /// [`Error::UnreadableSchedule`] for a message that this version cannot read.
    pub(super) fn read(message: &Message) -> Result<Option<Stored>> {
        let Some(key) = &message.key else { return Ok(None) };
        let unreadable = |error: Error| Error::UnreadableSchedule {
            name: key.as_str().into(),
            reason: error.to_string().into(),
        };
        Stored::parse(message, key).map(Some).map_err(unreadable)
    }

    /// Reads the schedule of this key.
    fn parse(message: &Message, key: &Key) -> Result<Stored> {
        let refused =
            |reason: String| Error::InvalidSchedule { name: key.as_str().into(), reason: reason.into() };
        let Some(json) = message.headers.get(DEFINITION_HEADER) else {
            return Err(refused(format!("its message has no header {DEFINITION_HEADER}")));
        };
        let form: Form = serde_json::from_str(json).map_err(|error| refused(error.to_string()))?;
        let times = match (&form.cron, &form.zone, form.every_ms) {
            (Some(cron), zone, None) => Times::cron(cron, form.dialect, zone.as_deref().unwrap_or("UTC"))?,
            (None, None, Some(ms)) => Times::Every(Every::new(ms)?),
            _ => return Err(refused("it has either `cron` or `every_ms`".into())),
        };
        let headers = form.headers.iter().map(|(name, value)| (&**name, &**value));
        let headers = Headers::new(headers).map_err(dwell_store::Error::from)?;
        let schedule = Schedule::new(key.as_str(), &form.queue, times)?
            .body(message.body.clone())
            .headers(headers)
            .missed(form.missed)
            .overlap(form.overlap)
            .jitter_ms(form.jitter_ms);
        let instant =
            form.instant_ms.map(Timestamp::from_ms).transpose().map_err(dwell_store::Error::from)?;
        Ok(Stored { schedule, instant, is_paused: form.paused, unknown: form.unknown })
    }

    fn refused(&self, reason: String) -> Error {
        Error::InvalidSchedule { name: self.schedule.name().into(), reason: reason.into() }
    }
}

/// The key of a schedule's message.
///
/// # Errors
/// [`Error::UnknownSchedule`] for a name that no schedule can have.
pub(super) fn key(name: &str) -> Result<Key> {
    QueueName::new(name)
        .ok()
        .and_then(|_| Key::new(name).ok())
        .ok_or_else(|| Error::UnknownSchedule { name: crate::error::excerpt(name) })
}

#[cfg(test)]
mod tests {
    use dwell_model::{MessageId, Now, Number, Standing};

    use super::*;

    fn message(put: Put) -> Message {
        let now = Now { wall: Timestamp::MIN, mono_ms: 0 };
        Message {
            id: MessageId::new(Timestamp::MIN, 0, 0, 1),
            number: Number::new(1).unwrap(),
            queue: put.queue,
            body: put.body,
            key: put.key,
            headers: put.headers,
            created: Timestamp::MIN,
            lease_ms: None,
            max_attempts: put.max_attempts,
            standing: Standing::put(Timestamp::MIN, put.priority, None, now),
        }
    }

    fn schedule() -> Schedule {
        let times = Times::cron("0 0/5 * ? * 2", Some(Dialect::Quartz), "Europe/Berlin").unwrap();
        Schedule::new("report", "reports", times)
            .unwrap()
            .body(vec![0, 159, 255])
            .headers(Headers::new([("content-type", "application/x-é"), ("a", "b")]).unwrap())
            .missed(Missed::All)
            .overlap(Overlap::Replace)
            .jitter_ms(1_234)
    }

    #[test]
    fn a_schedule_comes_back_as_it_was_put() {
        let at = Timestamp::from_ms(1_795_773_600_000).unwrap();
        for (instant, is_paused) in [(None, false), (Some(at), false), (Some(at), true)] {
            let stored = Stored { instant, is_paused, ..Stored::new(schedule()) };
            let put = stored.put(instant).unwrap();
            assert_eq!(put.key.as_ref().unwrap().as_str(), "report");
            assert_eq!(Stored::read(&message(put)).unwrap(), Some(stored));
        }
        let every = Schedule::new("a", "q", Times::Every(Every::new(5_000).unwrap())).unwrap();
        let put = Stored::new(every.clone()).put(None).unwrap();
        assert_eq!(Stored::read(&message(put)).unwrap().unwrap().schedule, every);
    }

    #[test]
    fn a_field_of_a_later_version_is_kept() {
        let mut message = message(Stored::new(schedule()).put(None).unwrap());
        let json = message.headers.get(DEFINITION_HEADER).unwrap().replacen('{', r#"{"until_ms":7,"#, 1);
        message.headers = Headers::new([(DEFINITION_HEADER, json.as_str())]).unwrap();
        let put = Stored::read(&message).unwrap().unwrap().put(None).unwrap();
        assert!(put.headers.get(DEFINITION_HEADER).unwrap().contains(r#""until_ms":7"#));
    }

    #[test]
    fn what_is_no_schedule_is_refused_and_what_lost_its_key_is_superseded() {
        let good = message(Stored::new(schedule()).put(None).unwrap());
        assert_eq!(Stored::read(&Message { key: None, ..good.clone() }), Ok(None));
        let bad = Message { headers: Headers::default(), ..good.clone() };
        assert_eq!(Stored::read(&bad).unwrap_err().code(), "unreadable_schedule");
        for (json, said) in [
            ("{", "EOF"),
            (r#"{"queue":"q"}"#, "either `cron` or `every_ms`"),
            (r#"{"queue":"q","cron":"* * * * *","every_ms":5000}"#, "either `cron` or `every_ms`"),
            (r#"{"queue":"dwell:schedules","every_ms":5000}"#, "is reserved"),
            (r#"{"queue":"q","cron":"x"}"#, "is no cron expression"),
            (r#"{"queue":"q","cron":"* * * * *","zone":"x"}"#, "is no time zone"),
            (r#"{"queue":"q","every_ms":5000,"missed":"of_a_later_version"}"#, "unknown variant"),
        ] {
            let headers = Headers::new([(DEFINITION_HEADER, json)]).unwrap();
            let error = Stored::read(&Message { headers, ..good.clone() }).unwrap_err();
            assert_eq!(error.code(), "unreadable_schedule", "{json}");
            assert!(error.to_string().contains(said), "{json}: {error}");
        }
        assert_eq!(key("two words").unwrap_err().code(), "unknown_schedule");
    }
}
