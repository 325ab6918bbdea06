//! What falls due, what has happened lately, and the overview of all queues.

use std::borrow::Cow;

use dwell_model::{QueueName, Timestamp};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{StateCounts, pause_text, text};

/// A span of time from now on, cut into steps of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Span {
    /// 60 steps of a second.
    Minute,
    /// 60 steps of a minute.
    Hour,
    /// 24 steps of an hour.
    Day,
    /// 30 steps of a day.
    Month,
}

impl Span {
    /// All of them, with the names that the `span` parameter has for them.
    pub const ALL: [(&'static str, Span); 4] =
        [("minute", Span::Minute), ("hour", Span::Hour), ("day", Span::Day), ("month", Span::Month)];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        Span::ALL[self as usize].0
    }

    /// The number of steps, and the length of each in milliseconds.
    pub fn steps(self) -> (u64, u64) {
        match self {
            Span::Minute => (60, 1_000),
            Span::Hour => (60, 60_000),
            Span::Day => (24, 3_600_000),
            Span::Month => (30, 86_400_000),
        }
    }

    /// The ends of the steps: whole steps of UTC, the first after `now`, so that a step keeps its place from one forecast to the next.
    pub fn edges(self, now: Timestamp) -> Vec<Timestamp> {
        let (count, step_ms) = self.steps();
        let first = now.as_ms().unsigned_abs() / step_ms + 1;
        (first..first + count).map(|step| Timestamp::MIN.saturating_after(step * step_ms)).collect()
    }
}

/// How many scheduled messages are due by each of some instants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Forecast {
    /// The queue; left out for all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// The instant that it holds for.
    pub now: Timestamp,
    /// All scheduled messages.
    pub scheduled: u64,
    /// The instants.
    pub edges: Vec<Timestamp>,
    /// For each, how many messages are due then or before.
    pub due_by: Vec<u64>,
    /// How far off each of these may be, at most.
    pub within: u64,
}

impl Forecast {
    /// What a store has counted.
    pub fn of(
        queue: Option<QueueName>,
        now: Timestamp,
        edges: Vec<Timestamp>,
        counted: dwell_store::Forecast,
    ) -> Forecast {
        let dwell_store::Forecast { scheduled, due_by, within } = counted;
        Forecast { queue, now, scheduled, edges, due_by, within }
    }

    /// What a store would have counted by these instants.
    ///
    /// # Errors
    /// What is wrong with it, if it is not an answer about these instants.
    pub fn into_store(self, asked: &[Timestamp]) -> Result<dwell_store::Forecast, &'static str> {
        let Forecast { scheduled, edges, due_by, within, .. } = self;
        if edges != asked || due_by.len() != asked.len() {
            return Err("a forecast is of other instants than it was asked about");
        }
        Ok(dwell_store::Forecast { scheduled, due_by, within })
    }
}

/// Counts in slots of one length, oldest first. The last one is still being counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Series {
    /// The length of a slot.
    #[serde(rename = "step", with = "text::duration")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::Duration"))]
    pub step_ms: u64,
    /// When the last slot ends.
    pub end: Timestamp,
    /// Messages put.
    pub puts: Vec<u64>,
    /// Messages taken.
    pub takes: Vec<u64>,
    /// Messages acked.
    pub acks: Vec<u64>,
    /// Messages given back for another attempt.
    pub retries: Vec<u64>,
    /// Messages that a settlement has made dead.
    pub deaths: Vec<u64>,
    /// The lateness that half of the takes did not pass; null where nothing was taken.
    pub lateness_p50_ms: Vec<Option<u64>>,
    /// The same for 99 in a hundred.
    pub lateness_p99_ms: Vec<Option<u64>>,
    /// The most.
    pub lateness_max_ms: Vec<Option<u64>>,
}

/// What has happened to a queue lately.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Recent {
    /// The queue.
    pub queue: QueueName,
    /// The instant that it holds for.
    pub now: Timestamp,
    /// Whether the queue is among the busiest, of which this is kept.
    pub kept: bool,
    /// The finer slots first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<Series>>"))]
    pub recent: Vec<Series>,
}

/// A queue of the overview.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct TopQueue {
    /// Its name.
    pub queue: QueueName,
    /// Its messages by state.
    pub counts: StateCounts,
    /// How many takes wait on it.
    pub waiting: u64,
    /// When the earliest of its scheduled messages is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_due: Option<Timestamp>,
    /// `running`, `paused`, or the instant at which the pause ends.
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::Pause"))]
    pub pause: Cow<'static, str>,
}

impl From<&dwell_store::QueueStats> for TopQueue {
    fn from(stats: &dwell_store::QueueStats) -> TopQueue {
        TopQueue {
            queue: stats.name.clone(),
            counts: stats.counts.into(),
            waiting: stats.waiting,
            next_due: stats.next_due,
            pause: pause_text(stats.settings.pause).into(),
        }
    }
}

/// All queues at a glance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Overview {
    /// When it was asked for.
    pub now: Timestamp,
    /// What was counted by walking over all queues; left out before the first walk has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub census: Option<Census>,
    /// What has happened lately in all queues together, the finer slots first.
    pub recent: Vec<Series>,
}

/// What a walk over all queues has counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Census {
    /// When the walk ended.
    pub as_of: Timestamp,
    /// How many queues there are.
    pub queues: u64,
    /// Queues that cannot be read now: nothing of theirs is in the counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unread: u64,
    /// Messages by state.
    pub counts: StateCounts,
    /// How many takes wait.
    pub waiting: u64,
    /// The queues that are among the first hundred by one of the counts, by name.
    pub top: Vec<TopQueue>,
    /// What falls due within a minute, an hour, a day and thirty days.
    pub forecast: Forecast,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forecast_of_other_instants_than_were_asked_about_is_refused() {
        let [first, second] = [1_000, 2_000].map(|ms| Timestamp::from_ms(ms).unwrap());
        let counted = dwell_store::Forecast { scheduled: 3, due_by: vec![1, 3], within: 0 };
        let answer = Forecast::of(None, first, vec![first, second], counted.clone());
        assert_eq!(answer.clone().into_store(&[first, second]), Ok(counted));
        assert!(answer.clone().into_store(&[first]).is_err());
        assert!(answer.clone().into_store(&[second, first]).is_err());
        let short = Forecast { due_by: vec![1], ..answer };
        assert!(short.into_store(&[first, second]).is_err(), "an instant has no count");
    }
}
