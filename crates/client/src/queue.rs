//! Queues: counts, settings, and what is done to all of one.

use dwell_model::{
    AttemptLimit, Pause, QueueName, Setting, SettingChange, SettingName, Timestamp, format_duration_ms,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::path::Path;
use crate::transport::{Call, Payload};
use crate::{Client, Problem, Result, text};

/// A queue as it is now. It serialises to the JSON that it came as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStats {
    /// Its name.
    #[serde(with = "text")]
    pub queue: QueueName,
    /// Its messages by state.
    pub counts: StateCounts,
    /// How many takes wait on it.
    pub waiting: u64,
    /// When the earliest of its scheduled messages is due.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    pub next_due: Option<Timestamp>,
    /// The settings in force.
    pub settings: QueueSettings,
    /// The names of those that are its own.
    pub own: Vec<String>,
}

/// How many messages a queue has, by state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateCounts {
    /// Waiting for their instant.
    pub scheduled: u64,
    /// Due and not handed out.
    pub ready: u64,
    /// Of these, those with a priority below 1,024.
    pub ready_urgent: u64,
    /// Handed out.
    pub leased: u64,
    /// Set aside.
    pub dead: u64,
}

/// The settings in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSettings {
    /// How long a lease lasts, in milliseconds.
    #[serde(rename = "lease", with = "text::duration")]
    pub lease_ms: u64,
    /// How often a message may be handed out.
    #[serde(with = "text::attempts")]
    pub max_attempts: AttemptLimit,
    /// The delay of a retry that names none.
    pub backoff: BackoffSettings,
    /// The most scheduled and ready messages; `None` for no limit.
    pub max_pending: Option<u64>,
    /// `running`, `paused`, or the instant at which the pause ends.
    pub pause: String,
    /// Named delays in milliseconds: level 1 is the first.
    #[serde(with = "text::durations")]
    pub levels: Vec<u64>,
    /// Over how many partitions the queue is spread.
    pub spread: u16,
    /// How long a put's token is remembered, in milliseconds.
    #[serde(rename = "token_ttl", with = "text::duration")]
    pub token_ms: u64,
}

/// How long a failed message waits. See [`dwell_model::Backoff`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackoffSettings {
    /// The delay after the first attempt, in milliseconds.
    #[serde(rename = "base", with = "text::duration")]
    pub base_ms: u64,
    /// The growth from one attempt to the next, in percent.
    pub factor_percent: u32,
    /// The longest delay, in milliseconds.
    #[serde(rename = "cap", with = "text::duration")]
    pub cap_ms: u64,
    /// The largest share taken off at random, in percent.
    pub jitter_percent: u32,
}

/// One page of queues, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePage {
    /// The queues.
    pub queues: Vec<QueueStats>,
    /// Queues of this page that the store cannot read now, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<UnreadQueue>,
    /// Where the next page begins; `None` after the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A queue that exists and cannot be read now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadQueue {
    /// Its name.
    #[serde(with = "text")]
    pub queue: QueueName,
    /// Why.
    pub error: Problem,
}

/// How many messages were removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// So many.
    pub removed: u64,
}

impl Client {
    /// One page of queues, at most `max` (1 to 1,000), from `cursor` on.
    ///
    /// # Errors
    /// As every call.
    pub fn queues(&self, cursor: Option<&str>, max: usize) -> Result<QueuePage> {
        let path = Path::v1().plus("queues").query_some("cursor", cursor).query("max", max);
        self.send(&Call::get(path))
    }

    /// A queue as it is now.
    ///
    /// # Errors
    /// The server's refusals, such as `unknown_queue`.
    pub fn stats(&self, name: &QueueName) -> Result<QueueStats> {
        self.send(&Call::get(queue(name)))
    }

    /// Changes settings, all or none, and answers with the queue as it is then.
    ///
    /// # Errors
    /// The server's refusals, such as `invalid_setting` and `setting_fixed`.
    pub fn configure(&self, name: &QueueName, changes: &[SettingChange]) -> Result<QueueStats> {
        let object: Map<String, Value> = changes.iter().map(change).collect();
        let call = Call::change("PATCH", queue(name).plus("settings")).harmless();
        self.send(&call.payload(Payload::json(&object)))
    }

    /// Stops handing messages out: until told otherwise, or until an instant.
    ///
    /// # Errors
    /// As every call.
    pub fn pause(&self, name: &QueueName, until: Option<Timestamp>) -> Result<QueueStats> {
        self.send(&Call::change("POST", queue(name).plus("pause").query_some("until", until)).harmless())
    }

    /// Stops handing messages out for so long, by the store's clock.
    ///
    /// # Errors
    /// As every call.
    pub fn pause_for(&self, name: &QueueName, for_ms: u64) -> Result<QueueStats> {
        let path = queue(name).plus("pause").query("for", format_duration_ms(for_ms));
        self.send(&Call::change("POST", path))
    }

    /// Hands messages out again.
    ///
    /// # Errors
    /// As every call.
    pub fn resume(&self, name: &QueueName) -> Result<QueueStats> {
        self.send(&Call::change("POST", queue(name).plus("resume")).harmless())
    }

    /// Removes all scheduled and ready messages.
    ///
    /// # Errors
    /// As every call.
    pub fn purge(&self, name: &QueueName) -> Result<Removed> {
        self.send(&Call::change("POST", queue(name).plus("purge")))
    }

    /// Removes all messages but the leased, and the queue's own settings.
    ///
    /// # Errors
    /// As every call.
    pub fn delete_queue(&self, name: &QueueName) -> Result<Removed> {
        self.send(&Call::change("DELETE", queue(name)))
    }
}

fn queue(name: &QueueName) -> Path {
    Path::v1().plus("queues").segment(name.as_str())
}

fn change(change: &SettingChange) -> (String, Value) {
    let name = match change {
        SettingChange::Set(setting) => setting.name(),
        SettingChange::Reset(name) => *name,
    };
    let value = match change {
        SettingChange::Set(setting) => value(setting),
        SettingChange::Reset(_) => Value::Null,
    };
    (SettingName::as_str(name).to_owned(), value)
}

fn value(setting: &Setting) -> Value {
    match setting {
        Setting::LeaseMs(ms) | Setting::TokenMs(ms) => json!(format_duration_ms(*ms)),
        Setting::MaxAttempts(limit) => json!(text::Attempts(*limit)),
        Setting::Backoff(backoff) => json!(BackoffSettings {
            base_ms: backoff.base_ms,
            factor_percent: backoff.factor_percent,
            cap_ms: backoff.cap_ms,
            jitter_percent: backoff.jitter_percent,
        }),
        Setting::MaxPending(limit) => json!(limit),
        Setting::Pause(Pause::Running) => json!("running"),
        Setting::Pause(Pause::Indefinite) => json!("paused"),
        Setting::Pause(Pause::Until(end)) => json!(end.to_string()),
        Setting::Levels(levels) => json!(levels.iter().copied().map(format_duration_ms).collect::<Vec<_>>()),
        Setting::Spread(spread) => json!(spread),
    }
}
