//! Which command comes next, and with what: all commands, more often those that matter more.

use std::num::NonZeroU32;

use dwell_model::{
    AttemptLimit, Backoff, Key, Pause, QueueName, Setting, SettingChange, SettingName, Timestamp,
};

use crate::oracle::{Due, OnConflict, Sweep};
use crate::rng::Rng;

/// How many queues there are.
pub(super) const QUEUES: u32 = 6;
/// How many keys each queue has: few enough that puts meet.
const KEYS: u32 = 60;

/// The name of a queue.
pub(super) fn queue_name(queue: u32) -> QueueName {
    let name = if queue.is_multiple_of(2) { format!("kill-{queue}") } else { format!("kill/{queue}:eu") };
    name.parse().expect("our queues have valid names")
}

/// The name of a key.
pub(super) fn key_name(key: u32) -> Key {
    format!("ключ {key}/%2F").parse().expect("our keys are valid")
}

/// A command to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Put,
    Take,
    Settle,
    Stale,
    TakeById,
    Cancel,
    Reschedule,
    Get,
    Revive,
    Discard,
    Configure,
    Sweep,
}

/// Weights, of 1,000.
const WEIGHTS: [(u64, Choice); 12] = [
    (330, Choice::Put),
    (190, Choice::Take),
    (230, Choice::Settle),
    (10, Choice::Stale),
    (25, Choice::TakeById),
    (65, Choice::Cancel),
    (65, Choice::Reschedule),
    (30, Choice::Get),
    (25, Choice::Revive),
    (10, Choice::Discard),
    (18, Choice::Configure),
    (2, Choice::Sweep),
];

/// The next command.
pub(super) fn choose(rng: &mut Rng) -> Choice {
    let mut at = rng.below(WEIGHTS.iter().map(|(weight, _)| weight).sum());
    for (weight, choice) in WEIGHTS {
        if at < weight {
            return choice;
        }
        at -= weight;
    }
    unreachable!("the weights were summed up just now")
}

pub(super) fn queue(rng: &mut Rng) -> u32 {
    rng.below(u64::from(QUEUES)) as u32
}

pub(super) fn key(rng: &mut Rng) -> u32 {
    rng.below(u64::from(KEYS)) as u32
}

/// Most within a second or at once, some within the run, few beyond it.
pub(super) fn delay_ms(rng: &mut Rng) -> u64 {
    match rng.below(100) {
        0..40 => 0,
        40..70 => rng.between(1, 500),
        70..92 => rng.between(500, 20_000),
        _ => rng.between(3_600_000, 365 * 86_400_000),
    }
}

/// A delay, or the instant that it leads to; past ones too.
pub(super) fn due(rng: &mut Rng, now: Timestamp) -> Due {
    let delay_ms = delay_ms(rng);
    match rng.below(10) {
        0..5 => Due::After(delay_ms as i64),
        5..9 => Due::At(now.as_ms() + delay_ms as i64),
        _ => Due::At(now.as_ms() - rng.below(100_000) as i64),
    }
}

pub(super) fn on_conflict(rng: &mut Rng) -> OnConflict {
    *rng.pick(&[OnConflict::Reject, OnConflict::Replace, OnConflict::Keep])
}

pub(super) fn priority(rng: &mut Rng) -> u32 {
    *rng.pick(&[0, 10, 1_024, 1_024, 1_024, u32::MAX])
}

/// A new priority, now and then.
pub(super) fn new_priority(rng: &mut Rng) -> Option<u32> {
    rng.percent(20).then(|| priority(rng))
}

/// Short leases run out in the run, long ones outlive a kill.
pub(super) fn lease_ms(rng: &mut Rng) -> u64 {
    *rng.pick(&[120, 1_000, 5_000, 60_000])
}

pub(super) fn sweep(rng: &mut Rng, now: Timestamp) -> Sweep {
    match rng.below(4) {
        0 => Sweep::Purge,
        1 => Sweep::DeleteQueue,
        2 => Sweep::ReviveAll(due(rng, now)),
        _ => Sweep::DiscardAll,
    }
}

/// A setting. Those that would make the fate of a message depend on when it was read are left at their
/// defaults: each put names its attempts, each take its lease, and tokens last for the run.
pub(super) fn setting(rng: &mut Rng, now: Timestamp) -> SettingChange {
    let setting = match rng.below(10) {
        0 => Setting::LeaseMs(rng.between(1_000, 90_000)),
        1 => Setting::MaxAttempts(AttemptLimit::At(NonZeroU32::MIN.saturating_add(rng.below(20) as u32))),
        2 => Setting::MaxAttempts(AttemptLimit::Unlimited),
        3 => Setting::MaxPending(rng.between(100_000, 200_000)),
        4 => Setting::Levels((0..rng.between(1, 5)).map(|_| rng.below(1_000_000)).collect()),
        5 => Setting::TokenMs(rng.between(3_600_000, 86_400_000)),
        6 => Setting::Backoff(Backoff {
            base_ms: rng.below(500),
            factor_percent: rng.between(100, 300) as u32,
            cap_ms: rng.between(500, 1_000),
            jitter_percent: rng.below(100) as u32,
        }),
        7 => Setting::Pause(Pause::Until(now.saturating_after(rng.between(50, 1_500)))),
        8 => Setting::Pause(Pause::Indefinite),
        _ => return SettingChange::Reset(SettingName::Pause),
    };
    // A queue that is paused for good most of the time would teach us little.
    match setting {
        Setting::Pause(Pause::Indefinite) if rng.percent(70) => SettingChange::Reset(SettingName::Pause),
        Setting::Pause(_) => SettingChange::Set(setting),
        setting if rng.percent(30) => SettingChange::Reset(setting.name()),
        setting => SettingChange::Set(setting),
    }
}

/// The longest that a retry without a delay of its own may wait, whatever the backoff was set to: the
/// default cap.
pub(super) const BACKOFF_CAP_MS: i64 = 3_600_000;
