//! Changes to a queue's settings on the wire.

use std::marker::PhantomData;

use dwell_model::{
    AttemptLimit, Backoff, Invalid, LapseBackoff, OnExpiry, Pause, Setting, SettingChange, SettingName,
    Settings, parse_duration_ms,
};
use dwell_wire::schema;
use schemars::JsonSchema;
use serde::de::DeserializeSeed as _;
use serde::{Deserialize, Deserializer};

use super::parse::{AtMost, either_ms, present};
use crate::http::Problem;

/// Changes to a queue's settings; null resets the queue's own value.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "SettingsChange")]
#[serde(deny_unknown_fields)]
pub(crate) struct SettingsIn {
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<schema::Duration>")]
    lease: Option<Option<String>>,
    lease_ms: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<AttemptLimit>")]
    max_attempts: Option<Option<AttemptLimit>>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<BackoffIn>")]
    backoff: Option<Option<BackoffIn>>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<u64>")]
    max_pending: Option<Option<u64>>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<schema::Pause>")]
    pause: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<Vec<schema::Duration>>")]
    levels: Option<Option<LevelsIn>>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<u16>")]
    partitions: Option<Option<u16>>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<schema::Duration>")]
    idempotency_ttl: Option<Option<String>>,
    idempotency_ttl_ms: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<schema::Duration>")]
    dead_ttl: Option<Option<String>>,
    dead_ttl_ms: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<u64>")]
    dead_max: Option<Option<u64>>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<OnExpiry>")]
    on_expiry: Option<Option<OnExpiry>>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<u64>")]
    max_leased: Option<Option<u64>>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<LapseBackoff>")]
    lapse_backoff: Option<Option<LapseBackoff>>,
}

/// A table of delay levels, held up to the maximum number of levels, and counted to its end.
#[derive(Debug)]
struct LevelsIn {
    texts: Vec<String>,
    len: usize,
}

impl LevelsIn {
    fn texts(self) -> Result<Vec<String>, Invalid> {
        let (most, len) = (Setting::MAX_LEVELS, self.len);
        if len > most {
            let reason = format!("a table has at most {most} levels, not {len}");
            return Err(Invalid::InvalidSetting { setting: "levels", reason: reason.into() });
        }
        Ok(self.texts)
    }
}

impl<'de> Deserialize<'de> for LevelsIn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LevelsIn, D::Error> {
        let (texts, len) = AtMost(Setting::MAX_LEVELS, PhantomData).deserialize(deserializer)?;
        Ok(LevelsIn { texts, len })
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "BackoffChange")]
#[serde(deny_unknown_fields)]
struct BackoffIn {
    #[schemars(with = "Option<schema::Duration>")]
    base: Option<String>,
    base_ms: Option<u64>,
    factor_percent: Option<u32>,
    #[schemars(with = "Option<schema::Duration>")]
    cap: Option<String>,
    cap_ms: Option<u64>,
    jitter_percent: Option<u32>,
}

impl BackoffIn {
    fn backoff(self, defaults: Backoff) -> Result<Backoff, Problem> {
        Ok(Backoff {
            base_ms: either_ms("base", self.base.as_deref(), self.base_ms)?.unwrap_or(defaults.base_ms),
            factor_percent: self.factor_percent.unwrap_or(defaults.factor_percent),
            cap_ms: either_ms("cap", self.cap.as_deref(), self.cap_ms)?.unwrap_or(defaults.cap_ms),
            jitter_percent: self.jitter_percent.unwrap_or(defaults.jitter_percent),
        })
    }
}

impl SettingsIn {
    /// The changes, in the order of the settings' numbers.
    pub(crate) fn changes(self, defaults: &Settings) -> Result<Vec<SettingChange>, Problem> {
        let duration = |name, text: Option<Option<String>>, ms: Option<u64>| match text {
            Some(None) if ms.is_none() => Ok(Some(None)),
            text => Ok::<_, Problem>(
                either_ms(name, text.map(Option::unwrap_or_default).as_deref(), ms)?.map(Some),
            ),
        };
        let mut changes = Vec::new();
        let mut change = |name, value: Option<Option<Setting>>| match value {
            None => {}
            Some(None) => changes.push(SettingChange::Reset(name)),
            Some(Some(setting)) => changes.push(SettingChange::Set(setting)),
        };
        let lease_ms = duration("lease", self.lease, self.lease_ms)?;
        change(SettingName::Lease, lease_ms.map(|ms| ms.map(Setting::LeaseMs)));
        let limit = self.max_attempts.map(|limit| limit.map(Setting::MaxAttempts));
        change(SettingName::MaxAttempts, limit);
        let backoff =
            inside(self.backoff, |backoff| backoff.backoff(defaults.backoff).map(Setting::Backoff))?;
        change(SettingName::Backoff, backoff);
        change(SettingName::MaxPending, self.max_pending.map(|limit| limit.map(Setting::MaxPending)));
        let pause = inside(self.pause, |text| match text.as_str() {
            "running" => Ok(Setting::Pause(Pause::Running)),
            "paused" => Ok(Setting::Pause(Pause::Indefinite)),
            instant => Ok(Setting::Pause(Pause::Until(instant.parse()?))),
        })?;
        change(SettingName::Pause, pause);
        let levels = inside(self.levels, |levels| {
            let levels: Vec<u64> =
                levels.texts()?.iter().map(|level| parse_duration_ms(level)).collect::<Result<_, _>>()?;
            Ok(Setting::Levels(levels))
        })?;
        change(SettingName::Levels, levels);
        change(
            SettingName::Partitions,
            self.partitions.map(|partitions| partitions.map(Setting::Partitions)),
        );
        let idempotency_ms = duration("idempotency_ttl", self.idempotency_ttl, self.idempotency_ttl_ms)?;
        change(SettingName::IdempotencyTtl, idempotency_ms.map(|ms| ms.map(Setting::IdempotencyMs)));
        let dead_ttl_ms = duration("dead_ttl", self.dead_ttl, self.dead_ttl_ms)?;
        change(SettingName::DeadTtl, dead_ttl_ms.map(|ms| ms.map(Setting::DeadTtlMs)));
        change(SettingName::DeadMax, self.dead_max.map(|most| most.map(Setting::DeadMax)));
        change(SettingName::OnExpiry, self.on_expiry.map(|what| what.map(Setting::OnExpiry)));
        change(SettingName::MaxLeased, self.max_leased.map(|most| most.map(Setting::MaxLeased)));
        change(SettingName::LapseBackoff, self.lapse_backoff.map(|from| from.map(Setting::LapseBackoff)));
        Ok(changes)
    }
}

/// Parses a value if there is one, and keeps absence and null.
fn inside<T, U>(
    value: Option<Option<T>>,
    read: impl FnOnce(T) -> Result<U, Problem>,
) -> Result<Option<Option<U>>, Problem> {
    value.map(|value| value.map(read).transpose()).transpose()
}
