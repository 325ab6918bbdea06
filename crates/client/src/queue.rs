//! Queues: counts, settings, and what is done to all of one.

use dwell_model::{QueueName, Setting, SettingChange, SettingName, Timestamp, format_duration_ms};
use dwell_wire::{Operation, Path, pause_text};
use serde_json::{Map, Value, json};

use crate::transport::{Call, Payload};
use crate::{BackoffSettings, Client, QueuePage, QueueStats, Removed, Result};

impl Client {
    /// One page of queues, at most `max` (1 to 1,000), from `cursor` on.
    ///
    /// # Errors
    /// As every call.
    pub fn queues(&self, cursor: Option<&QueueName>, max: usize) -> Result<QueuePage> {
        let path = Path::of(Operation::Queues, &[]).query_some("cursor", cursor).query("max", max);
        self.send(&Call::read(path))
    }

    /// A queue as it is now.
    ///
    /// # Errors
    /// The server's refusals, such as `unknown_queue`.
    pub fn stats(&self, name: &QueueName) -> Result<QueueStats> {
        self.send(&Call::read(Path::of(Operation::Queue, &[name.as_str()])))
    }

    /// Changes settings, all or none, and answers with the queue as it is then.
    ///
    /// # Errors
    /// The server's refusals, such as `invalid_setting` and `setting_fixed`.
    pub fn configure(&self, name: &QueueName, changes: &[SettingChange]) -> Result<QueueStats> {
        let object: Map<String, Value> = changes.iter().map(change).collect();
        let call = Call::change(Path::of(Operation::Configure, &[name.as_str()])).harmless();
        self.send(&call.payload(Payload::json(&object)))
    }

    /// Stops handing messages out: until told otherwise, or until an instant.
    ///
    /// # Errors
    /// As every call.
    pub fn pause(&self, name: &QueueName, until: Option<Timestamp>) -> Result<QueueStats> {
        let path = Path::of(Operation::Pause, &[name.as_str()]).query_some("until", until);
        self.send(&Call::change(path).harmless())
    }

    /// Stops handing messages out for so long, by the store's clock.
    ///
    /// # Errors
    /// As every call.
    pub fn pause_for(&self, name: &QueueName, for_ms: u64) -> Result<QueueStats> {
        let path = Path::of(Operation::Pause, &[name.as_str()]).query("for", format_duration_ms(for_ms));
        self.send(&Call::change(path))
    }

    /// Hands messages out again.
    ///
    /// # Errors
    /// As every call.
    pub fn resume(&self, name: &QueueName) -> Result<QueueStats> {
        self.send(&Call::change(Path::of(Operation::Resume, &[name.as_str()])).harmless())
    }

    /// Removes all scheduled and ready messages.
    ///
    /// # Errors
    /// As every call.
    pub fn purge(&self, name: &QueueName) -> Result<Removed> {
        self.send(&Call::change(Path::of(Operation::Purge, &[name.as_str()])))
    }

    /// Removes all messages but the leased, and the queue's own settings.
    ///
    /// # Errors
    /// As every call.
    pub fn delete_queue(&self, name: &QueueName) -> Result<Removed> {
        self.send(&Call::change(Path::of(Operation::DeleteQueue, &[name.as_str()])))
    }
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
        Setting::MaxAttempts(limit) => json!(limit),
        Setting::Backoff(backoff) => json!(BackoffSettings::from(*backoff)),
        Setting::MaxPending(limit) => json!(limit),
        Setting::Pause(pause) => json!(pause_text(*pause)),
        Setting::Levels(levels) => json!(levels.iter().copied().map(format_duration_ms).collect::<Vec<_>>()),
        Setting::Spread(spread) => json!(spread),
    }
}
