//! A queue's own settings as they are stored: a table of the settings that the queue itself has, 0 standing for no
//! limit of attempts.
//!
//! A later version may have settings that this one does not know. A change of other settings keeps them as they are.

use bytes::Bytes;
use dwell_model::{
    Backoff, LapseBackoff, OnExpiry, OwnSettings, Pause, Setting, SettingChange, SettingName, Settings,
    Timestamp,
};

use super::message::{attempt_limit, attempt_number};
use super::pack::{Fields, Pack, PackReply};

const RUNNING: i64 = 0;
const INDEFINITE: i64 = -1;

/// The settings in force where a queue has none: every script receives them.
pub(super) fn defaults(settings: &Settings) -> Pack {
    let all = [
        Setting::LeaseMs(settings.lease_ms),
        Setting::MaxAttempts(settings.max_attempts),
        Setting::Backoff(settings.backoff),
        Setting::Pause(settings.pause),
        Setting::Levels(settings.levels.clone()),
        Setting::Partitions(settings.partitions),
        Setting::IdempotencyMs(settings.idempotency_ms),
    ];
    // Settings that most stores leave at their default cost a call no bytes.
    let some = [
        settings.max_pending.map(Setting::MaxPending),
        settings.dead_ttl_ms.map(Setting::DeadTtlMs),
        settings.dead_max.map(Setting::DeadMax),
        Some(settings.on_expiry).filter(|what| *what != OnExpiry::Dead).map(Setting::OnExpiry),
        settings.max_leased.map(Setting::MaxLeased),
        Some(settings.lapse_backoff).filter(|from| *from != LapseBackoff::Never).map(Setting::LapseBackoff),
    ];
    let all = all.into_iter().chain(some.into_iter().flatten());
    packed(all.collect::<Vec<_>>().iter())
}

/// Encodes a queue's own settings, with the stored ones that this version does not know.
pub(super) fn stored(own: &OwnSettings, unknown: &[(Bytes, PackReply)]) -> Option<Vec<u8>> {
    if unknown.is_empty() {
        return (!own.is_empty()).then(|| packed(own.iter()).encoded());
    }
    let known = fields(own.iter()).named().map(|(name, value)| (Bytes::from_static(name.as_bytes()), value));
    let unknown = unknown.iter().map(|(name, value)| (name.clone(), Pack::Again(value.clone())));
    Some(Pack::Pairs(known.chain(unknown).collect()).encoded())
}

/// The stored settings of a queue that this version does not know.
pub(super) fn unknown(stored: &PackReply) -> Vec<(Bytes, PackReply)> {
    let Some(PackReply::Map(fields)) = stored.bytes().and_then(PackReply::decode) else { return Vec::new() };
    let is_known = |field: &Bytes| SettingName::ALL.into_iter().any(|name| field == field_of(name));
    fields.into_iter().filter(|(field, _)| !is_known(field)).collect()
}

/// The name under which a setting is stored.
fn field_of(name: SettingName) -> &'static str {
    match name {
        SettingName::Lease => "lease",
        SettingName::MaxAttempts => "attempts",
        SettingName::Backoff => "backoff",
        SettingName::MaxPending => "pending",
        SettingName::Pause => "pause",
        SettingName::Levels => "levels",
        SettingName::Partitions => "partitions",
        SettingName::IdempotencyTtl => "idempotency",
        SettingName::DeadTtl => "dead_ttl",
        SettingName::DeadMax => "dead_max",
        SettingName::OnExpiry => "on_expiry",
        SettingName::MaxLeased => "max_leased",
        SettingName::LapseBackoff => "lapse_backoff",
    }
}

fn packed<'a>(settings: impl Iterator<Item = &'a Setting>) -> Pack {
    fields(settings).into()
}

fn fields<'a>(settings: impl Iterator<Item = &'a Setting>) -> Fields {
    let mut fields = Fields::new();
    for setting in settings {
        fields = match setting {
            Setting::LeaseMs(ms) => fields.with("lease", *ms),
            Setting::MaxAttempts(limit) => fields.with("attempts", attempt_number(*limit)),
            Setting::Backoff(backoff) => {
                let backoff = Fields::new()
                    .with("base", backoff.base_ms)
                    .with("factor", backoff.factor_percent)
                    .with("cap", backoff.cap_ms)
                    .with("jitter", backoff.jitter_percent);
                fields.with("backoff", backoff)
            }
            Setting::MaxPending(limit) => fields.with("pending", *limit),
            Setting::Pause(Pause::Running) => fields.with("pause", RUNNING),
            Setting::Pause(Pause::Indefinite) => fields.with("pause", INDEFINITE),
            Setting::Pause(Pause::Until(end)) => fields.with("pause", end.as_ms()),
            Setting::Levels(levels) => fields.with("levels", levels.clone()),
            Setting::Partitions(partitions) => fields.with("partitions", u32::from(*partitions)),
            Setting::IdempotencyMs(ms) => fields.with("idempotency", *ms),
            Setting::DeadTtlMs(ms) => fields.with("dead_ttl", *ms),
            Setting::DeadMax(most) => fields.with("dead_max", *most),
            Setting::OnExpiry(what) => fields.with("on_expiry", expiry_number(*what)),
            Setting::MaxLeased(most) => fields.with("max_leased", *most),
            Setting::LapseBackoff(from) => fields.with("lapse_backoff", lapse_number(*from)),
        };
    }
    fields
}

/// Reads the stored settings, as of now; `None` if they are in no form of ours.
pub(super) fn read(stored: &PackReply, now: Timestamp, defaults: &Settings) -> Option<OwnSettings> {
    let mut own = OwnSettings::default();
    let Some(bytes) = stored.bytes() else { return Some(own) };
    let table = PackReply::decode(bytes)?;
    for name in SettingName::ALL {
        let value = Some(table.get(field_of(name))).filter(|value| **value != PackReply::Nil);
        let setting = match name {
            SettingName::Lease => value.map(|value| value.uint().map(Setting::LeaseMs)),
            SettingName::MaxAttempts => {
                value.map(|value| value.uint().map(attempt_limit).map(Setting::MaxAttempts))
            }
            SettingName::Backoff => value.map(|value| backoff(value).map(Setting::Backoff)),
            SettingName::MaxPending => value.map(|value| value.uint().map(Setting::MaxPending)),
            SettingName::Pause => value.map(|value| pause(value).map(Setting::Pause)),
            SettingName::Levels => value.map(|value| {
                value.items().iter().map(PackReply::uint).collect::<Option<Vec<_>>>().map(Setting::Levels)
            }),
            SettingName::Partitions => {
                value.map(|value| value.uint()?.try_into().ok().map(Setting::Partitions))
            }
            SettingName::IdempotencyTtl => value.map(|value| value.uint().map(Setting::IdempotencyMs)),
            SettingName::DeadTtl => value.map(|value| value.uint().map(Setting::DeadTtlMs)),
            SettingName::DeadMax => value.map(|value| value.uint().map(Setting::DeadMax)),
            SettingName::OnExpiry => value.map(|value| {
                let what = OnExpiry::ALL.into_iter().find(|what| value.uint() == Some(expiry_number(*what)));
                what.map(Setting::OnExpiry)
            }),
            SettingName::MaxLeased => value.map(|value| value.uint().map(Setting::MaxLeased)),
            SettingName::LapseBackoff => value.map(|value| {
                let mut all = LapseBackoff::ALL.into_iter();
                let from = all.find(|from| value.uint() == Some(lapse_number(*from)));
                from.map(Setting::LapseBackoff)
            }),
        };
        if let Some(setting) = setting {
            own.change(SettingChange::Set(setting?).as_of(now, defaults.pause));
        }
    }
    Some(own)
}

/// The stored number for what happens to expired messages.
fn expiry_number(what: OnExpiry) -> u64 {
    match what {
        OnExpiry::Dead => 0,
        OnExpiry::Drop => 1,
    }
}

/// The number of spent attempts from which on a message waits after a lapse; 0 for never.
fn lapse_number(from: LapseBackoff) -> u64 {
    match from {
        LapseBackoff::Never => 0,
        LapseBackoff::First => 1,
        LapseBackoff::Second => 2,
    }
}

fn backoff(table: &PackReply) -> Option<Backoff> {
    Some(Backoff {
        base_ms: table.get("base").uint()?,
        factor_percent: table.get("factor").uint()?.try_into().ok()?,
        cap_ms: table.get("cap").uint()?,
        jitter_percent: table.get("jitter").uint()?.try_into().ok()?,
    })
}

fn pause(value: &PackReply) -> Option<Pause> {
    match value.int()? {
        RUNNING => Some(Pause::Running),
        INDEFINITE => Some(Pause::Indefinite),
        end => Timestamp::from_ms(end).ok().map(Pause::Until),
    }
}

#[cfg(test)]
mod tests {
    use dwell_model::AttemptLimit;

    use super::*;

    #[test]
    fn what_is_stored_of_settings_is_read_again() {
        let backoff = Backoff { base_ms: 1, factor_percent: 150, cap_ms: 9, jitter_percent: 3 };
        let plain = [
            Setting::LeaseMs(1),
            Setting::MaxAttempts(AttemptLimit::Unlimited),
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
        let what = OnExpiry::ALL.map(Setting::OnExpiry);
        let all = plain.into_iter().chain(what).chain(LapseBackoff::ALL.map(Setting::LapseBackoff));
        for setting in all {
            let mut own = OwnSettings::default();
            own.change(SettingChange::Set(setting));
            let stored = PackReply::Bytes(stored(&own, &[]).expect("it has one").into());
            assert!(unknown(&stored).is_empty());
            assert_eq!(read(&stored, Timestamp::MIN, &Settings::default()), Some(own));
        }
    }

    #[test]
    fn what_this_version_does_not_know_is_stored_again_as_it_was() {
        let deep = PackReply::Map(vec![
            ("n".into(), PackReply::Int(-7)),
            (
                "few".into(),
                PackReply::Array(vec![PackReply::Float(2.5), PackReply::Nil, PackReply::Bool(true)]),
            ),
        ]);
        let later: Vec<(Bytes, PackReply)> =
            vec![("later".into(), deep), ("much later".into(), PackReply::Bytes("x".into()))];
        let mut own = OwnSettings::default();
        for setting in [None, Some(Setting::MaxPending(5))] {
            setting.into_iter().for_each(|setting| own.change(SettingChange::Set(setting)));
            let stored = PackReply::Bytes(stored(&own, &later).expect("there is something").into());
            assert_eq!(read(&stored, Timestamp::MIN, &Settings::default()), Some(own.clone()));
            assert_eq!(unknown(&stored), later);
        }
    }

    /// Each call of a script has all of them as arguments.
    #[test]
    fn defaults_of_settings_that_nobody_has_changed_cost_no_byte() {
        let table =
            PackReply::decode(&defaults(&Settings::default()).encoded().into()).expect("it is a table");
        for name in ["pending", "dead_ttl", "dead_max", "on_expiry", "max_leased", "lapse_backoff"] {
            assert_eq!(*table.get(name), PackReply::Nil, "{name}");
        }
    }
}
