//! Settings and limits as arguments of the schema's functions: JSON by the names of settings.

use dwell_model::{
    AttemptLimit, Backoff, LapseBackoff, Limits, OnExpiry, OwnSettings, Pause, Setting, SettingChange,
    SettingName, Settings, Timestamp,
};
use serde_json::{Map, Value, json};

use super::message::attempt_limit;
use crate::values::Json;

const RUNNING: i64 = 0;
const INDEFINITE: i64 = -1;

/// The defaults of this process, where they differ from those built into the schema.
pub(super) fn defaults(limits: &Limits, lock_ms: Option<u64>) -> Json {
    let builtin = all(&Limits::default());
    let given = all(limits).into_iter().filter(|(name, value)| builtin.get(name) != Some(value));
    let waits = lock_ms.map(|ms| ("lock_ms".to_owned(), json!(ms)));
    Json(Value::Object(given.chain(waits).collect()).to_string())
}

/// The same for a put by a process to which messages with numbers up to `highest` are known; 0 if there are none.
pub(super) fn with_highest(defaults: &Json, highest: u64) -> Json {
    match (highest, defaults.0.strip_prefix('{')) {
        (0, _) | (_, None) => defaults.clone(),
        (_, Some("}")) => Json(format!(r#"{{"highest":{highest}}}"#)),
        (_, Some(rest)) => Json(format!(r#"{{"highest":{highest},{rest}"#)),
    }
}

/// All settings and limits by name; `builtin_settings` in SQL is the same for [`Limits::default`].
pub(super) fn all(limits: &Limits) -> Map<String, Value> {
    let settings = &limits.defaults;
    let plain = [
        Setting::LeaseMs(settings.lease_ms),
        Setting::MaxAttempts(settings.max_attempts),
        Setting::Backoff(settings.backoff),
        Setting::Pause(settings.pause),
        Setting::Levels(settings.levels.clone()),
        Setting::Partitions(settings.partitions),
        Setting::IdempotencyMs(settings.idempotency_ms),
        Setting::OnExpiry(settings.on_expiry),
        Setting::LapseBackoff(settings.lapse_backoff),
    ];
    let mut map: Map<_, _> = plain.iter().map(entry).collect();
    let maybe = [
        (SettingName::MaxPending, settings.max_pending),
        (SettingName::DeadTtl, settings.dead_ttl_ms),
        (SettingName::DeadMax, settings.dead_max),
        (SettingName::MaxLeased, settings.max_leased),
    ];
    map.extend(maybe.map(|(name, value)| (name.as_str().to_owned(), json!(value))));
    let limits = [
        ("limit_body", limits.body_len),
        ("limit_batch", limits.batch),
        ("limit_queues", limits.queues),
        ("limit_idempotency_keys", limits.idempotency_keys_per_queue),
        ("limit_leased", limits.leased),
        ("limit_leased_queue", limits.leased_per_queue),
    ];
    // A limit beyond the range of SQL integers is no limit.
    map.extend(limits.map(|(name, limit)| (name.to_owned(), json!(limit.min(i64::MAX as usize)))));
    map
}

/// A setting's name and its value.
pub(super) fn entry(setting: &Setting) -> (String, Value) {
    let value = match setting {
        Setting::LeaseMs(ms) | Setting::IdempotencyMs(ms) | Setting::DeadTtlMs(ms) => json!(ms),
        Setting::MaxAttempts(AttemptLimit::Unlimited) => json!(0),
        Setting::MaxAttempts(AttemptLimit::At(limit)) => json!(limit.get()),
        Setting::Backoff(backoff) => json!({
            "base": backoff.base_ms,
            "factor": backoff.factor_percent,
            "cap": backoff.cap_ms,
            "jitter": backoff.jitter_percent,
        }),
        Setting::MaxPending(limit) => json!(limit.min(&(i64::MAX as u64))),
        Setting::DeadMax(limit) | Setting::MaxLeased(limit) => json!(limit),
        Setting::Pause(Pause::Running) => json!(RUNNING),
        Setting::Pause(Pause::Indefinite) => json!(INDEFINITE),
        Setting::Pause(Pause::Until(end)) => json!(end.as_ms()),
        Setting::Levels(levels) => json!(levels),
        Setting::Partitions(partitions) => json!(partitions),
        Setting::OnExpiry(what) => json!(what.as_str()),
        Setting::LapseBackoff(from) => json!(from.as_str()),
    };
    (setting.name().as_str().to_owned(), value)
}

/// Parses a queue's own settings as of now; `None` if their form is unknown.
pub(super) fn read(stored: &str, now: Timestamp, defaults: &Settings) -> Option<OwnSettings> {
    let stored: Map<String, Value> = serde_json::from_str(stored).ok()?;
    let mut own = OwnSettings::default();
    for name in SettingName::ALL {
        if let Some(value) = stored.get(name.as_str()) {
            own.change(SettingChange::Set(setting(name, value)?).as_of(now, defaults.pause));
        }
    }
    Some(own)
}

fn setting(name: SettingName, value: &Value) -> Option<Setting> {
    let number = || value.as_u64();
    Some(match name {
        SettingName::Lease => Setting::LeaseMs(number()?),
        SettingName::MaxAttempts => Setting::MaxAttempts(attempt_limit(value.as_i64()?)?),
        SettingName::Backoff => Setting::Backoff(Backoff {
            base_ms: value.get("base")?.as_u64()?,
            factor_percent: value.get("factor")?.as_u64()?.try_into().ok()?,
            cap_ms: value.get("cap")?.as_u64()?,
            jitter_percent: value.get("jitter")?.as_u64()?.try_into().ok()?,
        }),
        SettingName::MaxPending => Setting::MaxPending(number()?),
        SettingName::Pause => Setting::Pause(match value.as_i64()? {
            RUNNING => Pause::Running,
            INDEFINITE => Pause::Indefinite,
            end => Pause::Until(Timestamp::from_ms(end).ok()?),
        }),
        SettingName::Levels => {
            let levels = value.as_array()?.iter().map(Value::as_u64);
            Setting::Levels(levels.collect::<Option<Vec<_>>>()?)
        }
        SettingName::Partitions => Setting::Partitions(number()?.try_into().ok()?),
        SettingName::IdempotencyTtl => Setting::IdempotencyMs(number()?),
        SettingName::DeadTtl => Setting::DeadTtlMs(number()?),
        SettingName::DeadMax => Setting::DeadMax(number()?),
        SettingName::OnExpiry => {
            Setting::OnExpiry(OnExpiry::ALL.into_iter().find(|what| Some(what.as_str()) == value.as_str())?)
        }
        SettingName::MaxLeased => Setting::MaxLeased(number()?),
        SettingName::LapseBackoff => {
            let mut all = LapseBackoff::ALL.into_iter();
            Setting::LapseBackoff(all.find(|from| Some(from.as_str()) == value.as_str())?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_of_settings_is_read_again() {
        let backoff = Backoff { base_ms: 1, factor_percent: 150, cap_ms: 9, jitter_percent: 3 };
        let plain = [
            Setting::LeaseMs(1),
            Setting::MaxAttempts(AttemptLimit::Unlimited),
            Setting::MaxAttempts(AttemptLimit::try_from(7).unwrap()),
            Setting::Backoff(backoff),
            Setting::MaxPending(2),
            Setting::Pause(Pause::Indefinite),
            Setting::Levels(vec![1, 5]),
            Setting::Partitions(3),
            Setting::IdempotencyMs(4),
            Setting::DeadTtlMs(Setting::MAX_DEAD_TTL_MS),
            Setting::DeadMax(0),
            Setting::MaxLeased(Setting::MAX_COUNT),
        ];
        let all = plain.into_iter().chain(OnExpiry::ALL.map(Setting::OnExpiry));
        for setting in all.chain(LapseBackoff::ALL.map(Setting::LapseBackoff)) {
            let stored: Map<_, _> = [entry(&setting)].into_iter().collect();
            let mut own = OwnSettings::default();
            own.change(SettingChange::Set(setting));
            let read = read(&Value::Object(stored).to_string(), Timestamp::MIN, &Settings::default());
            assert_eq!(read, Some(own));
        }
    }

    #[test]
    fn the_schema_has_the_same_defaults_by_itself() {
        let sql = include_str!("../sql/functions/queue.sql");
        let (_, text) = sql.split_once("SELECT '{\"lease\"").unwrap();
        let (text, _) = text.split_once("'::jsonb").unwrap();
        let builtin: Map<String, Value> = serde_json::from_str(&format!("{{\"lease\"{text}")).unwrap();
        assert_eq!(builtin, all(&Limits::default()));
    }

    #[test]
    fn what_nobody_has_changed_costs_a_call_nothing() {
        assert_eq!(defaults(&Limits::default(), None).0, "{}");
        let limits = Limits { leased: 5, ..Limits::default() };
        assert_eq!(defaults(&limits, None).0, r#"{"limit_leased":5}"#);
        let with = |limits: &Limits| with_highest(&defaults(limits, None), 7).0;
        assert_eq!(with(&limits), r#"{"highest":7,"limit_leased":5}"#);
        assert_eq!(with(&Limits::default()), r#"{"highest":7}"#);
        assert_eq!(with_highest(&defaults(&limits, None), 0), defaults(&limits, None));
    }
}
