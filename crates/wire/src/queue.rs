//! Queues: counts, settings, pages.

use std::borrow::Cow;

use dwell_model::{
    AttemptLimit, Backoff, LapseBackoff, OnExpiry, OwnSettings, Pause, QueueName, Setting, SettingChange,
    SettingName, Settings, Timestamp,
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::schema;
use crate::{Problem, Unreadable, text};

/// A queue as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Queue"))]
pub struct QueueStats {
    /// Its name.
    pub queue: QueueName,
    /// Its messages by state.
    pub counts: StateCounts,
    /// The number of takes that wait on it.
    pub waiting: u64,
    /// When the earliest of its scheduled messages is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_due: Option<Timestamp>,
    /// The settings in force.
    pub settings: QueueSettings,
    /// The names of the settings that are the queue's own.
    pub own: Vec<Cow<'static, str>>,
}

impl From<dwell_store::QueueStats> for QueueStats {
    fn from(stats: dwell_store::QueueStats) -> QueueStats {
        QueueStats {
            queue: stats.name,
            counts: stats.counts.into(),
            waiting: stats.waiting,
            next_due: stats.next_due,
            settings: (&stats.settings).into(),
            own: stats.own.iter().map(|setting| setting.name().as_str().into()).collect(),
        }
    }
}

impl TryFrom<QueueStats> for dwell_store::QueueStats {
    type Error = Unreadable;

    /// The queue of the store.
    fn try_from(stats: QueueStats) -> Result<dwell_store::QueueStats, Unreadable> {
        let settings = Settings::try_from(stats.settings)?;
        let mut own = OwnSettings::default();
        for name in &stats.own {
            // A later server may have settings that are unknown here.
            let known = SettingName::ALL.into_iter().find(|known| known.as_str() == name);
            if let Some(name) = known {
                own.change(SettingChange::Set(value(&settings, name)?));
            }
        }
        Ok(dwell_store::QueueStats {
            name: stats.queue,
            counts: stats.counts.into(),
            waiting: stats.waiting,
            next_due: stats.next_due,
            settings,
            own,
            unread: None,
        })
    }
}

/// The effective value of one setting.
fn value(settings: &Settings, name: SettingName) -> Result<Setting, Unreadable> {
    Ok(match name {
        SettingName::Lease => Setting::LeaseMs(settings.lease_ms),
        SettingName::MaxAttempts => Setting::MaxAttempts(settings.max_attempts),
        SettingName::Backoff => Setting::Backoff(settings.backoff),
        SettingName::MaxPending => {
            Setting::MaxPending(settings.max_pending.ok_or(Unreadable("max_pending is no limit"))?)
        }
        SettingName::Pause => Setting::Pause(settings.pause),
        SettingName::Levels => Setting::Levels(settings.levels.clone()),
        SettingName::Partitions => Setting::Partitions(settings.partitions),
        SettingName::IdempotencyTtl => Setting::IdempotencyMs(settings.idempotency_ms),
        SettingName::DeadTtl => {
            Setting::DeadTtlMs(settings.dead_ttl_ms.ok_or(Unreadable("dead_ttl is no limit"))?)
        }
        SettingName::DeadMax => {
            Setting::DeadMax(settings.dead_max.ok_or(Unreadable("dead_max is no limit"))?)
        }
        SettingName::OnExpiry => Setting::OnExpiry(settings.on_expiry),
        SettingName::MaxLeased => {
            Setting::MaxLeased(settings.max_leased.ok_or(Unreadable("max_leased is no limit"))?)
        }
        SettingName::LapseBackoff => Setting::LapseBackoff(settings.lapse_backoff),
    })
}

/// How many messages a queue has, by state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "QueueCounts"))]
pub struct StateCounts {
    /// Waiting for their instant.
    pub scheduled: u64,
    /// Due and not handed out.
    pub ready: u64,
    /// Of the ready messages, those with a priority below 1,024.
    pub ready_urgent: u64,
    /// Handed out.
    pub leased: u64,
    /// Dead.
    pub dead: u64,
}

impl From<StateCounts> for dwell_store::StateCounts {
    fn from(counts: StateCounts) -> dwell_store::StateCounts {
        let StateCounts { scheduled, ready, ready_urgent, leased, dead } = counts;
        dwell_store::StateCounts { scheduled, ready, ready_urgent, leased, dead }
    }
}

impl From<dwell_store::StateCounts> for StateCounts {
    fn from(counts: dwell_store::StateCounts) -> StateCounts {
        let dwell_store::StateCounts { scheduled, ready, ready_urgent, leased, dead } = counts;
        StateCounts { scheduled, ready, ready_urgent, leased, dead }
    }
}

/// The effective settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Settings"))]
pub struct QueueSettings {
    /// How long a lease lasts.
    #[serde(rename = "lease", with = "text::duration")]
    #[cfg_attr(feature = "schema", schemars(with = "schema::Duration"))]
    pub lease_ms: u64,
    /// How often a message may be handed out.
    pub max_attempts: AttemptLimit,
    /// The delay of a retry that names none.
    pub backoff: BackoffSettings,
    /// The most scheduled and ready messages; null for no limit.
    pub max_pending: Option<u64>,
    /// `running`, `paused`, or the instant at which the pause ends.
    #[cfg_attr(feature = "schema", schemars(with = "schema::Pause"))]
    pub pause: String,
    /// Named delays: level 1 is the first.
    #[serde(with = "text::durations")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<schema::Duration>"))]
    pub levels: Vec<u64>,
    /// The number of partitions of the queue.
    pub partitions: u16,
    /// How long the idempotency key of a put is remembered.
    #[serde(rename = "idempotency_ttl", with = "text::duration")]
    #[cfg_attr(feature = "schema", schemars(with = "schema::Duration"))]
    pub idempotency_ms: u64,
    /// How long a message stays dead; null for ever, until it is discarded.
    #[serde(rename = "dead_ttl", default, with = "text::option_duration")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Duration>"))]
    pub dead_ttl_ms: Option<u64>,
    /// The most dead messages; beyond it the oldest deaths are discarded; null for no limit.
    #[serde(default)]
    pub dead_max: Option<u64>,
    /// What happens to a message that expires.
    #[serde(default)]
    pub on_expiry: OnExpiry,
    /// The most messages that are leased at a time; null for the server's limit alone.
    #[serde(default)]
    pub max_leased: Option<u64>,
    /// The number of the lapse from which on a message waits for the backoff.
    #[serde(default)]
    pub lapse_backoff: LapseBackoff,
}

impl From<&Settings> for QueueSettings {
    fn from(settings: &Settings) -> QueueSettings {
        QueueSettings {
            lease_ms: settings.lease_ms,
            max_attempts: settings.max_attempts,
            backoff: settings.backoff.into(),
            max_pending: settings.max_pending,
            pause: pause_text(settings.pause),
            levels: settings.levels.clone(),
            partitions: settings.partitions,
            idempotency_ms: settings.idempotency_ms,
            dead_ttl_ms: settings.dead_ttl_ms,
            dead_max: settings.dead_max,
            on_expiry: settings.on_expiry,
            max_leased: settings.max_leased,
            lapse_backoff: settings.lapse_backoff,
        }
    }
}

impl TryFrom<QueueSettings> for Settings {
    type Error = Unreadable;

    fn try_from(settings: QueueSettings) -> Result<Settings, Unreadable> {
        Ok(Settings {
            lease_ms: settings.lease_ms,
            max_attempts: settings.max_attempts,
            backoff: settings.backoff.into(),
            max_pending: settings.max_pending,
            pause: match settings.pause.as_str() {
                "running" => Pause::Running,
                "paused" => Pause::Indefinite,
                end => Pause::Until(end.parse().map_err(|_| Unreadable("a pause ends at no instant"))?),
            },
            levels: settings.levels,
            partitions: settings.partitions,
            idempotency_ms: settings.idempotency_ms,
            dead_ttl_ms: settings.dead_ttl_ms,
            dead_max: settings.dead_max,
            on_expiry: settings.on_expiry,
            max_leased: settings.max_leased,
            lapse_backoff: settings.lapse_backoff,
        })
    }
}

/// A pause in text form: `running`, `paused`, or the instant at which it ends.
pub fn pause_text(pause: Pause) -> String {
    match pause {
        Pause::Running => "running".to_owned(),
        Pause::Indefinite => "paused".to_owned(),
        Pause::Until(end) => end.to_string(),
    }
}

/// The delay after a failure: exponential, with jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Backoff"))]
pub struct BackoffSettings {
    /// The delay after the first attempt.
    #[serde(rename = "base", with = "text::duration")]
    #[cfg_attr(feature = "schema", schemars(with = "schema::Duration"))]
    pub base_ms: u64,
    /// The growth per attempt, in percent.
    pub factor_percent: u32,
    /// The longest delay.
    #[serde(rename = "cap", with = "text::duration")]
    #[cfg_attr(feature = "schema", schemars(with = "schema::Duration"))]
    pub cap_ms: u64,
    /// The largest share that jitter takes off, in percent.
    pub jitter_percent: u32,
}

impl From<Backoff> for BackoffSettings {
    fn from(backoff: Backoff) -> BackoffSettings {
        let Backoff { base_ms, factor_percent, cap_ms, jitter_percent } = backoff;
        BackoffSettings { base_ms, factor_percent, cap_ms, jitter_percent }
    }
}

impl From<BackoffSettings> for Backoff {
    fn from(backoff: BackoffSettings) -> Backoff {
        let BackoffSettings { base_ms, factor_percent, cap_ms, jitter_percent } = backoff;
        Backoff { base_ms, factor_percent, cap_ms, jitter_percent }
    }
}

/// One page of queues, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct QueuePage {
    /// The queues.
    pub queues: Vec<QueueStats>,
    /// Queues of this page that the store cannot read now, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<UnreadQueue>>"))]
    pub unread: Vec<UnreadQueue>,
    /// Where the next page begins; left out after the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<QueueName>,
}

impl QueuePage {
    /// The queues of the store behind the server at the address `server`, by name; and the cursor of the next page.
    ///
    /// # Errors
    /// If a setting has a value that is unknown here.
    pub fn into_stats(
        self,
        server: &str,
    ) -> Result<(Vec<dwell_store::QueueStats>, Option<QueueName>), Unreadable> {
        let unread = self.unread.into_iter().map(|queue| Ok(queue.into_stats(server)));
        let read = self.queues.into_iter().map(dwell_store::QueueStats::try_from);
        let mut all = read.chain(unread).collect::<Result<Vec<_>, _>>()?;
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok((all, self.next))
    }
}

/// A queue that exists and cannot be read now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct UnreadQueue {
    /// Its name.
    pub queue: QueueName,
    /// The reason.
    pub error: Problem<'static>,
}

impl UnreadQueue {
    fn into_stats(self, server: &str) -> dwell_store::QueueStats {
        dwell_store::QueueStats {
            name: self.queue,
            counts: dwell_store::StateCounts::default(),
            waiting: 0,
            next_due: None,
            settings: Settings::default(),
            own: OwnSettings::default(),
            unread: Some(self.error.into_error(server)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_of_a_later_server_is_passed_over() {
        let mut stats = QueueStats::from(dwell_store::QueueStats {
            name: QueueName::new("q").unwrap(),
            counts: dwell_store::StateCounts::default(),
            waiting: 0,
            next_due: None,
            settings: Settings::default(),
            own: OwnSettings::default(),
            unread: None,
        });
        stats.own = vec!["colour".into(), "lease".into()];
        let read = dwell_store::QueueStats::try_from(stats).unwrap();
        assert_eq!(read.own.iter().collect::<Vec<_>>(), [&Setting::LeaseMs(Settings::default().lease_ms)]);
    }
}
