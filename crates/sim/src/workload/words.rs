//! Conversion of the workload's terms into the store's types, and of the store's settings into the oracle's.

use std::num::NonZeroU32;

use dwell_model::{AttemptLimit, Backoff, Holder, Message, Pause, Setting, SettingChange, Timestamp};
use dwell_store::{Settled, When};

use crate::oracle::{Due, PAUSED, SettleHeard, paused_until};

/// A limit of attempts, of which 0 means no limit.
pub(crate) fn attempts(limit: u32) -> AttemptLimit {
    NonZeroU32::new(limit).map_or(AttemptLimit::Unlimited, AttemptLimit::At)
}

/// A change of a setting, in the oracle's terms.
pub(crate) fn change(change: &SettingChange) -> (&'static str, Option<String>) {
    match change {
        SettingChange::Set(setting) => (setting.name().as_str(), value(setting)),
        SettingChange::Reset(name) => (name.as_str(), None),
    }
}

pub(crate) fn value(setting: &Setting) -> Option<String> {
    match setting {
        Setting::Pause(Pause::Running) => None,
        Setting::Pause(Pause::Indefinite) => Some(PAUSED.to_owned()),
        Setting::Pause(Pause::Until(end)) => Some(paused_until(end.as_ms())),
        Setting::LeaseMs(value)
        | Setting::MaxPending(value)
        | Setting::IdempotencyMs(value)
        | Setting::DeadTtlMs(value)
        | Setting::DeadMax(value)
        | Setting::MaxLeased(value) => Some(value.to_string()),
        Setting::OnExpiry(what) => Some(what.as_str().to_owned()),
        Setting::LapseBackoff(from) => Some(from.as_str().to_owned()),
        Setting::MaxAttempts(limit) => Some(format!("{limit:?}")),
        Setting::Backoff(backoff) => Some(self::backoff(backoff)),
        Setting::Levels(levels) => Some(format!("{levels:?}")),
        Setting::Partitions(partitions) => Some(partitions.to_string()),
    }
}

/// A due instant in the store's types.
pub(crate) fn when(due: Due) -> When {
    match due {
        Due::At(at) => When::At(instant(at)),
        Due::After(ms) | Due::Within(ms) => When::AfterMs(ms.unsigned_abs()),
    }
}

pub(crate) fn instant(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms).expect("a workload stays between 1970 and 9999")
}

/// A backoff as the oracle parses it: base, factor, cap, jitter.
pub(crate) fn backoff(backoff: &Backoff) -> String {
    let Backoff { base_ms, factor_percent, cap_ms, jitter_percent } = backoff;
    format!("{base_ms} {factor_percent} {cap_ms} {jitter_percent}")
}

const HOLDER: &str = "машина ";

/// The new state of a message whose lease was settled or ended.
pub(crate) fn became(settled: Settled) -> SettleHeard {
    match settled {
        Settled::Gone => SettleHeard::Gone,
        Settled::Scheduled(due) => SettleHeard::Scheduled(due.as_ms()),
        Settled::Ready => SettleHeard::Ready,
        Settled::Dead(_) => SettleHeard::Dead,
        Settled::Leased(until) => SettleHeard::Leased(until.as_ms()),
    }
}

/// A holder in the store's types.
pub(crate) fn holder(holder: u32) -> Holder {
    Holder::new(&format!("{HOLDER}{holder}")).expect("it is short")
}

/// The holder of a message, as far as it is shown: `None` if the holder is not one of ours.
pub(crate) fn held_by<B>(message: &Message<B>) -> Option<Option<u32>> {
    let Some(holder) = &message.standing.holder else { return Some(None) };
    holder.as_str().strip_prefix(HOLDER)?.parse().ok().map(Some)
}
