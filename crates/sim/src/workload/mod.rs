//! The choice of the next command and its arguments: all commands, weighted by importance.
//!
//! # Layout
//! - this file: random choices
//! - `body`: bodies that contain the address of their message
//! - `pool`: messages that commands may be about
//! - `words`: conversion between the oracle's and the store's types

pub(crate) mod body;
mod pool;
pub(crate) mod words;

use std::num::NonZeroU32;

use dwell_model::{
    AttemptLimit, Backoff, Headers, IdempotencyKey, Key, LapseBackoff, OnExpiry, Pause, QueueName, Setting,
    SettingChange, SettingName, Timestamp,
};

use dwell_store as store;
use dwell_testkit::Random;

use crate::oracle::{Action, Address, Due, OnConflict, Spec, Sweep, Terms};

pub(crate) use pool::Pool;

/// The number of queues.
pub(crate) const QUEUES: u32 = 6;
/// The number of keys per queue: few enough that puts conflict.
const KEYS: u32 = 60;

/// The name of a queue.
pub(crate) fn queue_name(queue: u32) -> QueueName {
    let name = if queue.is_multiple_of(2) { format!("kill-{queue}") } else { format!("kill/{queue}:eu") };
    name.parse().expect("our queues have valid names")
}

/// The name of a key.
pub(crate) fn key_name(key: u32) -> Key {
    format!("ключ {key}/%2F").parse().expect("our keys are valid")
}

/// A command to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Put,
    Take,
    Settle,
    Stale,
    EndLease,
    TakeById,
    Cancel,
    Reschedule,
    Get,
    Peek,
    Revive,
    Discard,
    Configure,
    Retain,
    Sweep,
}

/// The features that a workload uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uses {
    /// The plain commands, and settings by which no message is discarded, held back or delayed.
    Plain,
    /// Also what operators do: retention, caps of queues, backoff after lapses, ended leases; holders, dead messages
    /// looked up by key, and idempotency keys that are reused for something else.
    All,
}

impl Uses {
    /// The features of a seed, chosen so that they are combined with every other choice derived from the seed.
    pub(crate) fn of(seed: u64) -> Uses {
        if seed % 7 < 3 { Uses::Plain } else { Uses::All }
    }

    /// True with a probability of `percent`; false for a plain workload, which draws no random number for it.
    pub(crate) fn percent(self, rng: &mut Random, percent: u64) -> bool {
        self == Uses::All && rng.percent(percent)
    }
}

/// Further weights, for what operators do.
const OPERATING: [(u64, Choice); 2] = [(45, Choice::EndLease), (45, Choice::Retain)];

/// Weights, in 1,000.
const WEIGHTS: [(u64, Choice); 13] = [
    (330, Choice::Put),
    (190, Choice::Take),
    (230, Choice::Settle),
    (10, Choice::Stale),
    (25, Choice::TakeById),
    (65, Choice::Cancel),
    (65, Choice::Reschedule),
    (20, Choice::Get),
    (10, Choice::Peek),
    (25, Choice::Revive),
    (10, Choice::Discard),
    (18, Choice::Configure),
    (8, Choice::Sweep),
];

/// Chooses the next command.
pub(crate) fn choose(rng: &mut Random, uses: Uses) -> Choice {
    let operating: &[(u64, Choice)] = if uses == Uses::All { &OPERATING } else { &[] };
    let weights = || WEIGHTS.iter().chain(operating).copied();
    let mut at = rng.below(weights().map(|(weight, _)| weight).sum());
    for (weight, choice) in weights() {
        if at < weight {
            return choice;
        }
        at -= weight;
    }
    unreachable!("the weights were summed up just now")
}

pub(crate) fn queue(rng: &mut Random) -> u32 {
    rng.below(u64::from(QUEUES)) as u32
}

pub(crate) fn key(rng: &mut Random) -> u32 {
    rng.below(u64::from(KEYS)) as u32
}

/// A delay: mostly up to a second or none, sometimes within the run, rarely beyond it.
pub(crate) fn delay_ms(rng: &mut Random) -> u64 {
    match rng.below(100) {
        0..40 => 0,
        40..70 => rng.between(1, 500),
        70..92 => rng.between(500, 20_000),
        _ => rng.between(3_600_000, 365 * 86_400_000),
    }
}

/// A delay or its instant, which may be past.
pub(crate) fn due(rng: &mut Random, now: Timestamp) -> Due {
    let delay_ms = delay_ms(rng);
    match rng.below(10) {
        0..5 => Due::After(delay_ms as i64),
        5..9 => Due::At(now.as_ms() + delay_ms as i64),
        _ => Due::At(now.as_ms() - rng.below(100_000) as i64),
    }
}

pub(crate) fn on_conflict(rng: &mut Random) -> OnConflict {
    *rng.pick(&[OnConflict::Reject, OnConflict::Replace, OnConflict::Keep])
}

pub(crate) fn priority(rng: &mut Random) -> u32 {
    *rng.pick(&[0, 10, 1_024, 1_024, 1_024, u32::MAX])
}

/// Sometimes a new priority.
pub(crate) fn new_priority(rng: &mut Random) -> Option<u32> {
    rng.percent(20).then(|| priority(rng))
}

/// A lease: short ones run out during the run, long ones outlive a kill.
pub(crate) fn lease_ms(rng: &mut Random) -> u64 {
    *rng.pick(&[120, 1_000, 5_000, 60_000])
}

/// The terms of a lease: a plain workload names no holder.
pub(crate) fn terms(rng: &mut Random, uses: Uses, lease_ms: u64, session: bool) -> Terms {
    let holder = uses.percent(rng, 40).then(|| rng.below(5) as u32);
    Terms { lease_ms: lease_ms as i64, session, holder }
}

/// The number of the take that an operator names, if `last` was the number of the last known take.
pub(crate) fn meant_take(rng: &mut Random, last: u32) -> u32 {
    match rng.below(10) {
        0 => last.saturating_sub(1),
        1 => last + 1,
        _ => last,
    }
}

pub(crate) fn sweep(rng: &mut Random, now: Timestamp) -> Sweep {
    match rng.below(8) {
        0 => Sweep::Purge,
        1 => Sweep::DeleteQueue,
        2..7 => Sweep::ReviveAll(due(rng, now)),
        _ => Sweep::DiscardAll,
    }
}

/// A change of a setting. Settings that would make the fate of a message depend on when they were read keep their
/// defaults: each put sets its attempts, each take its lease, and idempotency keys last for the whole run.
pub(crate) fn setting(rng: &mut Random, now: Timestamp) -> SettingChange {
    let setting = match rng.below(10) {
        0 => Setting::LeaseMs(rng.between(1_000, 90_000)),
        1 => Setting::MaxAttempts(AttemptLimit::At(NonZeroU32::MIN.saturating_add(rng.below(20) as u32))),
        2 => Setting::MaxAttempts(AttemptLimit::Unlimited),
        3 => Setting::MaxPending(rng.between(100_000, 200_000)),
        4 => Setting::Levels((0..rng.between(1, 5)).map(|_| rng.below(1_000_000)).collect()),
        5 => Setting::IdempotencyMs(rng.between(3_600_000, 86_400_000)),
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
    // A queue that is paused indefinitely most of the time would test little.
    match setting {
        Setting::Pause(Pause::Indefinite) if rng.percent(70) => SettingChange::Reset(SettingName::Pause),
        Setting::Pause(_) => SettingChange::Set(setting),
        setting if rng.percent(30) => SettingChange::Reset(setting.name()),
        setting => SettingChange::Set(setting),
    }
}

/// A setting by which messages are discarded, held back or delayed. Every second value is small enough to take effect at once.
pub(crate) fn retention(rng: &mut Random) -> SettingChange {
    let setting = match rng.below(6) {
        0 => Setting::DeadTtlMs(*rng.pick(&[1, 400, 5_000, 60_000, 86_400_000])),
        1 => Setting::DeadMax(*rng.pick(&[0, 1, 2, 5, 30])),
        2 => Setting::OnExpiry(*rng.pick(&[OnExpiry::Drop, OnExpiry::Drop, OnExpiry::Dead])),
        3 => Setting::MaxLeased(*rng.pick(&[1, 2, 3, 6, 40])),
        4 => Setting::LapseBackoff(*rng.pick(&LapseBackoff::ALL)),
        _ => Setting::Backoff(Backoff {
            base_ms: rng.between(1, 3_000),
            factor_percent: rng.between(100, 300) as u32,
            cap_ms: rng.between(3_000, 20_000),
            jitter_percent: rng.below(100) as u32,
        }),
    };
    if rng.percent(25) { SettingChange::Reset(setting.name()) } else { SettingChange::Set(setting) }
}

/// The longest delay of a retry that names none, whatever the backoff: the default cap.
pub(crate) const BACKOFF_CAP_MS: i64 = 3_600_000;

/// A settlement of a held message, in the types of the oracle and of the store.
pub(crate) fn action(rng: &mut Random) -> (Action, store::Action) {
    match rng.below(100) {
        0..58 => (Action::Ack, store::Action::Ack),
        58..75 => {
            let priority = new_priority(rng);
            let after_ms = rng.percent(70).then(|| delay_ms(rng) % 30_000);
            let due = match after_ms {
                Some(ms) => Due::After(ms as i64),
                None => Due::Within(BACKOFF_CAP_MS),
            };
            let error = rng.percent(50).then(|| "no route".into());
            (Action::Retry { due, priority }, store::Action::Retry { after_ms, error, priority })
        }
        75..87 => {
            let priority = new_priority(rng);
            let after_ms = rng.percent(50).then(|| delay_ms(rng) % 30_000);
            let due = after_ms.map(|ms| Due::After(ms as i64));
            (Action::Release { due, priority }, store::Action::Release { after_ms, priority })
        }
        87..93 => {
            let priority = new_priority(rng);
            (Action::Bury { priority }, store::Action::Bury { reason: None, priority })
        }
        _ => {
            let lease_ms = lease_ms(rng);
            let wish = store::Action::Extend { lease_ms: Some(lease_ms) };
            (Action::Extend { lease_ms: lease_ms as i64 }, wish)
        }
    }
}

/// A put to send.
#[derive(Clone, Debug)]
pub(crate) struct NewPut {
    /// The address of its message.
    pub(crate) address: Address,
    /// The put in the oracle's types.
    pub(crate) spec: Spec,
    /// The put in the store's types.
    pub(crate) put: store::Put,
}

/// The put with this number.
pub(crate) fn put(rng: &mut Random, no: u64, now: Timestamp) -> NewPut {
    let key = rng.percent(35).then(|| key(rng));
    let address = Address { queue: queue(rng), key, no };
    put_at(rng, address, now)
}

/// The put of the message at this address.
pub(crate) fn put_at(rng: &mut Random, address: Address, now: Timestamp) -> NewPut {
    let Address { key, no, .. } = address;
    let due = due(rng, now);
    let latest = match due {
        Due::At(at) => at.max(now.as_ms()),
        Due::After(ms) | Due::Within(ms) => now.as_ms() + ms,
    };
    let spec = Spec {
        no,
        keyed: key.is_some(),
        on_conflict: if key.is_some() { on_conflict(rng) } else { OnConflict::Reject },
        due,
        priority: priority(rng),
        max_attempts: rng.between(0, 5) as u32,
        // Well after the latest instant at which it may be due, so that the put is never refused for its expiry.
        expires: rng.percent(20).then(|| expiry(rng, latest + 5_000)),
        idempotency_key: rng.percent(50),
    };
    let mut put = store::Put::new(queue_name(address.queue), body::make(address));
    put.when = words::when(due);
    put.key = key.map(key_name);
    put.on_conflict = match spec.on_conflict {
        OnConflict::Reject => store::OnConflict::Reject,
        OnConflict::Replace => store::OnConflict::Replace,
        OnConflict::Keep => store::OnConflict::Keep,
    };
    put.priority = spec.priority;
    put.max_attempts = Some(words::attempts(spec.max_attempts));
    put.expires = spec.expires.map(words::instant);
    put.idempotency_key =
        spec.idempotency_key.then(|| IdempotencyKey::new(&format!("put-{no}")).expect("it is visible ASCII"));
    NewPut { address, spec, put }
}

/// A put under the idempotency key of another one, with another body or another key. It must not create a message: `no`
/// is a number that no other put has, so that such a message would be detected.
pub(crate) fn mismatched(rng: &mut Random, first: &NewPut, no: u64) -> store::Put {
    let mut put = first.put.clone();
    let is_keyed = rng.percent(50);
    if is_keyed {
        put.key = (first.put.key.is_none() || rng.percent(50)).then(|| key_name(KEYS));
    }
    if !is_keyed || rng.percent(50) {
        put.body = body::make(Address { no, ..first.address }).into();
    }
    put
}

/// A retry of the put with another due instant and other headers, as by callers that give a delay and add trace headers.
pub(crate) fn again_otherwise(rng: &mut Random, first: &NewPut, now: Timestamp) -> NewPut {
    let due = due(rng, now);
    let mut again = first.clone();
    again.spec.due = due;
    again.put.when = words::when(due);
    let trace = rng.below(1_000).to_string();
    again.put.headers = Headers::new([("trace", trace.as_str())]).expect("it is a short text");
    again
}

/// An expiry within five seconds or half a minute after `earliest`; most share their instant with many others.
fn expiry(rng: &mut Random, earliest: i64) -> i64 {
    const SHARED_MS: i64 = 30_000;
    if rng.percent(70) { (earliest / SHARED_MS + 1) * SHARED_MS } else { earliest + rng.below(5_000) as i64 }
}

/// One to three queues.
pub(crate) fn queues(rng: &mut Random) -> Vec<u32> {
    let mut queues = vec![queue(rng)];
    while rng.percent(30) && queues.len() < 3 {
        let queue = queue(rng);
        if !queues.contains(&queue) {
            queues.push(queue);
        }
    }
    queues
}
