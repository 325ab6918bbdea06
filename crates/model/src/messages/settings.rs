//! The settings of a queue, with their defaults and bounds.

use std::num::NonZeroU32;

use crate::{Invalid, MessageId, Timestamp};

/// The number of times that a message may be handed out before it is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptLimit {
    /// The number of attempts is not limited, as with beanstalkd's jobs.
    Unlimited,
    /// The message is dead once this many attempts are spent.
    At(NonZeroU32),
}

impl AttemptLimit {
    /// Whether a message with `spent` attempts has no attempt left.
    pub const fn is_spent(self, spent: u32) -> bool {
        match self {
            AttemptLimit::Unlimited => false,
            AttemptLimit::At(limit) => spent >= limit.get(),
        }
    }
}

impl From<NonZeroU32> for AttemptLimit {
    fn from(limit: NonZeroU32) -> AttemptLimit {
        AttemptLimit::At(limit)
    }
}

impl TryFrom<u32> for AttemptLimit {
    type Error = Invalid;

    /// A limit of this many attempts; 0 is refused.
    fn try_from(limit: u32) -> Result<AttemptLimit, Invalid> {
        NonZeroU32::new(limit).map(AttemptLimit::At).ok_or_else(|| Invalid::InvalidSetting {
            setting: SettingName::MaxAttempts.as_str(),
            reason: "a message has 1 attempt at least, not 0".into(),
        })
    }
}

/// The delay of a failed message before its next attempt: exponential, with jitter.
///
/// The delay after attempt *n* is `min(cap_ms, base_ms × (factor_percent / 100)^(n − 1))`, less a random share of up to
/// `jitter_percent`. It grows in whole nanoseconds, each step rounded down, and is finally rounded down to whole
/// milliseconds, so every store computes the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The delay after the first attempt, in milliseconds.
    pub base_ms: u64,
    /// The growth from one attempt to the next, in percent: 200 doubles the delay; 100 to 10,000.
    pub factor_percent: u32,
    /// The maximum delay, in milliseconds.
    pub cap_ms: u64,
    /// The maximum share that is subtracted at random, in percent: 0 to 100.
    pub jitter_percent: u32,
}

/// Nanoseconds per millisecond.
const NANOS: u128 = 1_000_000;

impl Backoff {
    /// The delay in milliseconds after attempt `attempt` (from 1), where `random` is uniform over all `u32`.
    pub fn delay_ms(&self, attempt: u32, random: u32) -> u64 {
        let cap = u128::from(self.cap_ms) * NANOS;
        let mut grown = (u128::from(self.base_ms) * NANOS).min(cap);
        for _ in 1..attempt {
            let next = (grown * u128::from(self.factor_percent) / 100).min(cap);
            if next == grown {
                break;
            }
            grown = next;
        }
        let delay = grown / NANOS;
        let most_off = delay * u128::from(self.jitter_percent) / 100;
        let off = (most_off * u128::from(random)) >> 32;
        (delay - off) as u64
    }

    /// The delay in milliseconds after the lease of message `id` has lapsed in attempt `attempt` (from 1).
    ///
    /// Its jitter is a hash of the two, so that every reader of the lapse, at any time, computes the same instant.
    pub fn lapse_delay_ms(&self, id: MessageId, attempt: u32) -> u64 {
        self.delay_ms(attempt, lapse_jitter(id, attempt))
    }
}

/// The hash of the 16 bytes of the id and the 4 of the attempt, big-endian.
fn lapse_jitter(id: MessageId, attempt: u32) -> u32 {
    let bytes = id.as_bits().to_be_bytes().into_iter().chain(attempt.to_be_bytes());
    one_at_a_time(bytes)
}

/// Bob Jenkins's one-at-a-time hash: 32-bit additions, shifts and exclusive-ors, which Redis scripts and SQL compute
/// just as exactly.
fn one_at_a_time(bytes: impl Iterator<Item = u8>) -> u32 {
    let mixed = bytes.fold(0_u32, |hash, byte| {
        let hash = hash.wrapping_add(u32::from(byte));
        let hash = hash.wrapping_add(hash << 10);
        hash ^ (hash >> 6)
    });
    let mixed = mixed.wrapping_add(mixed << 3);
    let mixed = mixed ^ (mixed >> 11);
    mixed.wrapping_add(mixed << 15)
}

/// The first lapse of a lease after which a message waits for the queue's backoff.
///
/// Before that it is ready at once, among the earliest due messages of its queue.
///
/// Attempts are counted, not lapses: an attempt that a consumer spent by a retry counts too, and a revive resets the
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LapseBackoff {
    /// The message is ready at once, however often its lease lapses, as with beanstalkd and SQS.
    #[default]
    Never,
    /// After the second attempt spent, and later ones: one lapse may be a deploy, two are likely the message's fault.
    Second,
    /// After every lapse.
    First,
}

impl LapseBackoff {
    /// All variants.
    pub const ALL: [LapseBackoff; 3] = [LapseBackoff::Never, LapseBackoff::Second, LapseBackoff::First];

    /// The word that JSON and configuration use: `never`, `second`, `first`.
    pub const fn as_str(self) -> &'static str {
        match self {
            LapseBackoff::Never => "never",
            LapseBackoff::Second => "second",
            LapseBackoff::First => "first",
        }
    }

    /// Whether a message waits whose lease has lapsed, with `spent` attempts spent, this one included.
    pub const fn applies(self, spent: u32) -> bool {
        match self {
            LapseBackoff::Never => false,
            LapseBackoff::Second => spent >= 2,
            LapseBackoff::First => spent >= 1,
        }
    }
}

/// What happens to a message that expires while it is not leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnExpiry {
    /// It is dead.
    #[default]
    Dead,
    /// It is removed. Only a count remains.
    Drop,
}

impl OnExpiry {
    /// All variants.
    pub const ALL: [OnExpiry; 2] = [OnExpiry::Dead, OnExpiry::Drop];

    /// The word that JSON and configuration use: `dead`, `drop`.
    pub const fn as_str(self) -> &'static str {
        match self {
            OnExpiry::Dead => "dead",
            OnExpiry::Drop => "drop",
        }
    }
}

/// Whether a queue hands messages out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It hands messages out.
    Running,
    /// It is paused until this instant.
    Until(Timestamp),
    /// It is paused until it is resumed.
    Indefinite,
}

impl Pause {
    /// Whether the queue is paused at `now`.
    pub fn is_paused_at(self, now: Timestamp) -> bool {
        match self {
            Pause::Running => false,
            Pause::Until(end) => now < end,
            Pause::Indefinite => true,
        }
    }
}

/// The effective settings of a queue: its own over the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The length of a lease in milliseconds, where neither take nor message names one.
    pub lease_ms: u64,
    /// The number of times that a message may be handed out, where the message does not name a limit.
    pub max_attempts: AttemptLimit,
    /// The delay of a retry that does not name one.
    pub backoff: Backoff,
    /// The maximum number of scheduled and ready messages together; `None` for no limit. At the limit a put is refused.
    pub max_pending: Option<u64>,
    /// Whether the queue is paused.
    pub pause: Pause,
    /// Named delays in milliseconds: the first one is level 1.
    pub levels: Vec<u64>,
    /// The number of shards or partitions of the queue, 1 to 1,024. Messages are ordered within each.
    pub partitions: u16,
    /// The time for which the idempotency key of a put is remembered, in milliseconds.
    pub idempotency_ms: u64,
    /// The time for which a dead message is kept, in milliseconds from its death; `None` for no limit.
    pub dead_ttl_ms: Option<u64>,
    /// The maximum number of dead messages, past which the oldest deaths are discarded; `None` for no limit.
    ///
    /// Each partition of a queue keeps its share, rounded up ([`Settings::dead_share`]).
    pub dead_max: Option<u64>,
    /// What happens to a message that expires.
    pub on_expiry: OnExpiry,
    /// The maximum number of leased messages in the queue, at which the queue behaves as if paused; `None` for no limit
    /// but the store's.
    pub max_leased: Option<u64>,
    /// The first lapse after which a message waits for `backoff`.
    pub lapse_backoff: LapseBackoff,
}

impl Settings {
    /// The number of dead messages that each of `partitions` partitions keeps, rounded up; `None` for no limit.
    pub fn dead_share(&self, partitions: u16) -> Option<u64> {
        self.dead_max.map(|most| most.div_ceil(u64::from(partitions.max(1))))
    }

    /// Whether a message that died at `death` has exceeded its retention and is gone.
    pub fn is_past_retention(&self, death: Timestamp, now: Timestamp) -> bool {
        self.dead_ttl_ms.is_some_and(|ttl_ms| death.saturating_after(ttl_ms) <= now)
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            lease_ms: 30_000,
            max_attempts: AttemptLimit::At(NonZeroU32::new(16).expect("16 is not 0")),
            backoff: Backoff { base_ms: 1_000, factor_percent: 200, cap_ms: 3_600_000, jitter_percent: 20 },
            max_pending: None,
            pause: Pause::Running,
            levels: Vec::new(),
            partitions: 1,
            idempotency_ms: 600_000,
            dead_ttl_ms: None,
            dead_max: None,
            on_expiry: OnExpiry::Dead,
            max_leased: None,
            lapse_backoff: LapseBackoff::Never,
        }
    }
}

/// A queue's own value of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// See [`Settings::lease_ms`].
    LeaseMs(u64),
    /// See [`Settings::max_attempts`].
    MaxAttempts(AttemptLimit),
    /// See [`Settings::backoff`].
    Backoff(Backoff),
    /// See [`Settings::max_pending`].
    MaxPending(u64),
    /// See [`Settings::pause`].
    Pause(Pause),
    /// See [`Settings::levels`].
    Levels(Vec<u64>),
    /// See [`Settings::partitions`].
    Partitions(u16),
    /// See [`Settings::idempotency_ms`].
    IdempotencyMs(u64),
    /// See [`Settings::dead_ttl_ms`].
    DeadTtlMs(u64),
    /// See [`Settings::dead_max`].
    DeadMax(u64),
    /// See [`Settings::on_expiry`].
    OnExpiry(OnExpiry),
    /// See [`Settings::max_leased`].
    MaxLeased(u64),
    /// See [`Settings::lapse_backoff`].
    LapseBackoff(LapseBackoff),
}

/// The name of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SettingName {
    /// `lease`
    Lease = 1,
    /// `max_attempts`
    MaxAttempts = 2,
    /// `backoff`
    Backoff = 3,
    /// `max_pending`
    MaxPending = 4,
    /// `pause`
    Pause = 5,
    /// `levels`
    Levels = 6,
    /// `partitions`
    Partitions = 7,
    /// `idempotency_ttl`
    IdempotencyTtl = 8,
    /// `dead_ttl`
    DeadTtl = 9,
    /// `dead_max`
    DeadMax = 10,
    /// `on_expiry`
    OnExpiry = 11,
    /// `max_leased`
    MaxLeased = 12,
    /// `lapse_backoff`
    LapseBackoff = 13,
}

impl SettingName {
    /// All names, in the order of their numbers.
    pub const ALL: [SettingName; 13] = [
        SettingName::Lease,
        SettingName::MaxAttempts,
        SettingName::Backoff,
        SettingName::MaxPending,
        SettingName::Pause,
        SettingName::Levels,
        SettingName::Partitions,
        SettingName::IdempotencyTtl,
        SettingName::DeadTtl,
        SettingName::DeadMax,
        SettingName::OnExpiry,
        SettingName::MaxLeased,
        SettingName::LapseBackoff,
    ];

    /// The word that JSON, configuration and errors use.
    pub const fn as_str(self) -> &'static str {
        match self {
            SettingName::Lease => "lease",
            SettingName::MaxAttempts => "max_attempts",
            SettingName::Backoff => "backoff",
            SettingName::MaxPending => "max_pending",
            SettingName::Pause => "pause",
            SettingName::Levels => "levels",
            SettingName::Partitions => "partitions",
            SettingName::IdempotencyTtl => "idempotency_ttl",
            SettingName::DeadTtl => "dead_ttl",
            SettingName::DeadMax => "dead_max",
            SettingName::OnExpiry => "on_expiry",
            SettingName::MaxLeased => "max_leased",
            SettingName::LapseBackoff => "lapse_backoff",
        }
    }
}

/// A change to one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingChange {
    /// Gives the queue its own value.
    Set(Setting),
    /// Returns the queue to the default.
    Reset(SettingName),
}

impl SettingChange {
    /// The effective change at `now`, where `default` is the pause of queues without their own setting.
    ///
    /// A pause that has ended by then becomes a running queue, which is not stored as a setting if running is the
    /// default.
    #[must_use]
    pub fn as_of(self, now: Timestamp, default: Pause) -> SettingChange {
        match self {
            SettingChange::Set(Setting::Pause(Pause::Until(end))) if end <= now => {
                SettingChange::running(default)
            }
            change => change,
        }
    }

    /// The change that makes a queue run, where `default` is the pause of queues without their own setting.
    ///
    /// It does not store a setting equal to the default, as that would needlessly outlive the queue's messages.
    pub const fn running(default: Pause) -> SettingChange {
        match default {
            Pause::Running => SettingChange::Reset(SettingName::Pause),
            Pause::Until(_) | Pause::Indefinite => SettingChange::Set(Setting::Pause(Pause::Running)),
        }
    }
}

impl Setting {
    /// The maximum lease in milliseconds: beanstalkd's maximum TTR, 2^32 − 1 seconds.
    pub const MAX_LEASE_MS: u64 = u32::MAX as u64 * 1_000;
    /// The maximum base and cap of a backoff, in milliseconds.
    ///
    /// For thousands of years to come, a retry without a delay then ends before the year 9999, so it is not refused as
    /// out of range.
    pub const MAX_BACKOFF_MS: u64 = 1_000 * 365 * 86_400_000;
    /// The maximum retention of dead messages, in milliseconds: 1,000 years of 365 days.
    pub const MAX_DEAD_TTL_MS: u64 = Setting::MAX_BACKOFF_MS;
    /// The maximum limit of dead or leased messages, which a double still represents exactly.
    pub const MAX_COUNT: u64 = (1 << 53) - 1;
    /// The maximum number of delay levels in a table.
    pub const MAX_LEVELS: usize = 100;
    /// The maximum spread.
    pub const MAX_PARTITIONS: u16 = 1_024;

    /// The name of this setting.
    pub const fn name(&self) -> SettingName {
        match self {
            Setting::LeaseMs(_) => SettingName::Lease,
            Setting::MaxAttempts(_) => SettingName::MaxAttempts,
            Setting::Backoff(_) => SettingName::Backoff,
            Setting::MaxPending(_) => SettingName::MaxPending,
            Setting::Pause(_) => SettingName::Pause,
            Setting::Levels(_) => SettingName::Levels,
            Setting::Partitions(_) => SettingName::Partitions,
            Setting::IdempotencyMs(_) => SettingName::IdempotencyTtl,
            Setting::DeadTtlMs(_) => SettingName::DeadTtl,
            Setting::DeadMax(_) => SettingName::DeadMax,
            Setting::OnExpiry(_) => SettingName::OnExpiry,
            Setting::MaxLeased(_) => SettingName::MaxLeased,
            Setting::LapseBackoff(_) => SettingName::LapseBackoff,
        }
    }

    /// Checks the value against the setting's bounds.
    ///
    /// # Errors
    /// [`Invalid::InvalidSetting`], which names the bound.
    pub fn check(&self) -> Result<(), Invalid> {
        let refuse = |reason: String| {
            Err(Invalid::InvalidSetting { setting: self.name().as_str(), reason: reason.into() })
        };
        let longest_ms = Timestamp::MAX.as_ms() as u64;
        match self {
            Setting::LeaseMs(ms) if !(1..=Setting::MAX_LEASE_MS).contains(ms) => {
                refuse(format!("a lease lasts 1 ms to 2^32 - 1 s, not {ms} ms"))
            }
            Setting::Backoff(backoff) if backoff.base_ms.max(backoff.cap_ms) > Setting::MAX_BACKOFF_MS => {
                refuse("base and cap are at most 1,000 years of 365 days".to_owned())
            }
            Setting::Backoff(backoff) if !(100..=10_000).contains(&backoff.factor_percent) => {
                refuse(format!("the factor is 1 to 100, not {} %", backoff.factor_percent))
            }
            Setting::Backoff(backoff) if backoff.jitter_percent > 100 => {
                refuse(format!("jitter is 0 to 100 %, not {} %", backoff.jitter_percent))
            }
            Setting::Levels(levels) if levels.len() > Setting::MAX_LEVELS => {
                refuse(format!("a table has at most {} levels, not {}", Setting::MAX_LEVELS, levels.len()))
            }
            Setting::Levels(levels) if levels.iter().any(|ms| *ms > longest_ms) => {
                refuse("a level must be a delay that ends before the year 9999".to_owned())
            }
            Setting::Partitions(partitions) if !(1..=Setting::MAX_PARTITIONS).contains(partitions) => refuse(
                format!("a queue spreads over 1 to {} partitions, not {partitions}", Setting::MAX_PARTITIONS),
            ),
            Setting::IdempotencyMs(ms) if *ms > 7 * 86_400_000 => {
                refuse(format!("an idempotency key is remembered for at most 7 days, not {ms} ms"))
            }
            Setting::DeadTtlMs(ms) if !(1..=Setting::MAX_DEAD_TTL_MS).contains(ms) => {
                refuse(format!("messages stay dead for 1 ms to 1,000 years of 365 days, not {ms} ms"))
            }
            Setting::DeadMax(most) if *most > Setting::MAX_COUNT => {
                refuse(format!("at most {} messages stay dead, not {most}", Setting::MAX_COUNT))
            }
            Setting::MaxLeased(0) => refuse(
                "at least 1 message may be leased, not 0; pause the queue to hand nothing out".to_owned(),
            ),
            Setting::MaxLeased(most) if *most > Setting::MAX_COUNT => {
                refuse(format!("at most {} messages may be leased, not {most}", Setting::MAX_COUNT))
            }
            _ => Ok(()),
        }
    }
}

/// A queue's own settings; all others follow the defaults.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OwnSettings {
    values: Vec<Setting>,
}

impl OwnSettings {
    /// Applies one change. Its value was checked before.
    pub fn change(&mut self, change: SettingChange) {
        let name = match &change {
            SettingChange::Set(setting) => setting.name(),
            SettingChange::Reset(name) => *name,
        };
        self.values.retain(|value| value.name() != name);
        if let SettingChange::Set(setting) = change {
            self.values.push(setting);
            self.values.sort_by_key(Setting::name);
        }
    }

    /// The queue's own values, in the order of their names' numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.values.iter()
    }

    /// The end of the queue's own pause, if it has one with an end.
    pub fn pause_end(&self) -> Option<Timestamp> {
        self.values.iter().find_map(|value| match value {
            Setting::Pause(Pause::Until(end)) => Some(*end),
            _ => None,
        })
    }

    /// The settings that cannot be dropped while the queue has messages: a spread that differs from that of `defaults`,
    /// since it determines where the messages are stored.
    pub fn fixed(&self, defaults: &Settings) -> OwnSettings {
        let is_fixed = |value: &&Setting| matches!(value, Setting::Partitions(partitions) if *partitions != defaults.partitions);
        OwnSettings { values: self.values.iter().filter(is_fixed).cloned().collect() }
    }

    /// Whether the queue has no settings of its own.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The effective settings, with `defaults` for those that the queue does not have.
    pub fn over(&self, defaults: &Settings) -> Settings {
        let mut settings = defaults.clone();
        for value in &self.values {
            match value.clone() {
                Setting::LeaseMs(ms) => settings.lease_ms = ms,
                Setting::MaxAttempts(limit) => settings.max_attempts = limit,
                Setting::Backoff(backoff) => settings.backoff = backoff,
                Setting::MaxPending(limit) => settings.max_pending = Some(limit),
                Setting::Pause(pause) => settings.pause = pause,
                Setting::Levels(levels) => settings.levels = levels,
                Setting::Partitions(partitions) => settings.partitions = partitions,
                Setting::IdempotencyMs(ms) => settings.idempotency_ms = ms,
                Setting::DeadTtlMs(ms) => settings.dead_ttl_ms = Some(ms),
                Setting::DeadMax(most) => settings.dead_max = Some(most),
                Setting::OnExpiry(what) => settings.on_expiry = what,
                Setting::MaxLeased(most) => settings.max_leased = Some(most),
                Setting::LapseBackoff(from) => settings.lapse_backoff = from,
            }
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_to_its_cap_and_jitter_only_shortens() {
        let backoff = Backoff { base_ms: 1_000, factor_percent: 200, cap_ms: 60_000, jitter_percent: 50 };
        let delays: Vec<u64> = (1..=8).map(|attempt| backoff.delay_ms(attempt, 0)).collect();
        assert_eq!(delays, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(backoff.delay_ms(u32::MAX, 0), 60_000);
        let shortest = backoff.delay_ms(3, u32::MAX);
        assert!((2_000..=2_001).contains(&shortest), "{shortest}");
        let constant = Backoff { factor_percent: 100, ..backoff };
        assert_eq!(constant.delay_ms(u32::MAX, 0), 1_000);
    }

    #[test]
    fn backoff_stands_still_for_no_base_and_no_factor() {
        let backoff = Backoff { base_ms: 1, factor_percent: 150, cap_ms: 60_000, jitter_percent: 0 };
        assert_eq!(backoff.delay_ms(10, 0), 38);
        let slow = Backoff { factor_percent: 101, ..backoff };
        let reached = (1..u32::MAX).find(|attempt| slow.delay_ms(*attempt, 0) == 60_000).unwrap();
        assert_eq!(reached, 1_107, "1.01 to the power of 1,106 is the first above 60,000");
        let long = Backoff { cap_ms: Timestamp::MAX.as_ms() as u64, ..slow };
        assert_eq!(long.delay_ms(u32::MAX, 0), long.cap_ms);
        let none = Backoff { base_ms: 0, ..backoff };
        assert_eq!(none.delay_ms(u32::MAX, 0), 0);
    }

    #[test]
    fn own_settings_lie_over_the_defaults_and_can_be_taken_back() {
        let defaults = Settings::default();
        let mut own = OwnSettings::default();
        own.change(SettingChange::Set(Setting::LeaseMs(5)));
        own.change(SettingChange::Set(Setting::LeaseMs(7)));
        own.change(SettingChange::Set(Setting::Pause(Pause::Indefinite)));
        assert_eq!(own.over(&defaults).lease_ms, 7);
        assert_eq!(own.iter().count(), 2);
        own.change(SettingChange::Reset(SettingName::Lease));
        own.change(SettingChange::Reset(SettingName::Pause));
        assert!(own.is_empty());
        assert_eq!(own.over(&defaults), defaults);
    }

    #[test]
    fn a_pause_that_has_ended_is_no_setting_unless_the_default_pauses() {
        let end = Timestamp::from_ms(1_000).unwrap();
        let pause = || SettingChange::Set(Setting::Pause(Pause::Until(end)));
        let before = Timestamp::from_ms(999).unwrap();
        assert_eq!(pause().as_of(before, Pause::Running), pause());
        assert_eq!(pause().as_of(end, Pause::Running), SettingChange::Reset(SettingName::Pause));
        let runs = SettingChange::Set(Setting::Pause(Pause::Running));
        assert_eq!(pause().as_of(end, Pause::Indefinite), runs);
        let other = SettingChange::Set(Setting::LeaseMs(5));
        assert_eq!(other.clone().as_of(end, Pause::Running), other);
    }

    /// Every store computes the same values: the tests of Redis and PostgreSQL have these pairs too.
    #[test]
    fn the_jitter_after_a_lapse_is_a_hash_of_id_and_attempt() {
        let id = |n: u64| MessageId::new(Timestamp::from_ms(1_795_000_000_123).unwrap(), 0, 1, n);
        let backoff =
            Backoff { base_ms: 1_000_000, factor_percent: 100, cap_ms: 1_000_000, jitter_percent: 100 };
        let delays: Vec<u64> = (0..1_000).map(|n| backoff.lapse_delay_ms(id(n), 1)).collect();
        assert!(delays.iter().all(|ms| *ms <= 1_000_000));
        for tenth in 0..10 {
            let here = delays.iter().filter(|ms| **ms / 100_001 == tenth).count();
            assert!((60..=140).contains(&here), "{here} of 1,000 in tenth {tenth}");
        }
        assert_ne!(backoff.lapse_delay_ms(id(7), 1), backoff.lapse_delay_ms(id(7), 2));
        assert_eq!(backoff.lapse_delay_ms(id(7), 2), backoff.lapse_delay_ms(id(7), 2));
        // Test vectors as published with the function.
        let hash = |bytes: &[u8]| one_at_a_time(bytes.iter().copied());
        let fox = b"The quick brown fox jumps over the lazy dog";
        assert_eq!((hash(b"a"), hash(fox)), (0xca2e_9442, 0x519e_91f5));
    }

    #[test]
    fn the_backoff_after_a_lapse_is_its_cap_at_most_however_many_attempts_were_spent() {
        let most = Setting::MAX_BACKOFF_MS;
        let (shard, incarnation) = (MessageId::MAX_SHARD, MessageId::MAX_INCARNATION);
        let ids = [
            MessageId::new(Timestamp::MIN, 0, 0, 0),
            MessageId::new(Timestamp::MAX, shard, incarnation, MessageId::MAX_COUNTER),
        ];
        for (base_ms, factor_percent, jitter_percent) in
            [(most, 10_000, 0), (1, 10_000, 0), (most, 10_000, 100), (most, 100, 100), (most - 1, 101, 0)]
        {
            let backoff = Backoff { base_ms, factor_percent, cap_ms: most, jitter_percent };
            assert_eq!(Setting::Backoff(backoff).check(), Ok(()));
            let grows_fast = factor_percent == 10_000 && jitter_percent == 0;
            for (attempt, id) in [0, 1, 2, 9, u32::MAX].into_iter().flat_map(|n| ids.map(|id| (n, id))) {
                let delay_ms = backoff.lapse_delay_ms(id, attempt);
                assert!(delay_ms <= most, "{backoff:?}, attempt {attempt}: {delay_ms}");
                assert!(!grows_fast || attempt < 9 || delay_ms == most, "{backoff:?}, attempt {attempt}");
            }
        }
    }

    #[test]
    fn retention_and_caps_have_bounds() {
        let refused = [
            Setting::DeadTtlMs(0),
            Setting::DeadTtlMs(Setting::MAX_DEAD_TTL_MS + 1),
            Setting::DeadMax(Setting::MAX_COUNT + 1),
            Setting::MaxLeased(0),
            Setting::MaxLeased(Setting::MAX_COUNT + 1),
        ];
        for setting in refused {
            let refused = setting.check().unwrap_err();
            assert_eq!(refused.code(), "invalid_setting");
            assert!(refused.to_string().contains(setting.name().as_str()), "{refused}");
        }
        for setting in [
            Setting::DeadTtlMs(1),
            Setting::DeadTtlMs(Setting::MAX_DEAD_TTL_MS),
            Setting::DeadMax(0),
            Setting::DeadMax(Setting::MAX_COUNT),
            Setting::MaxLeased(1),
        ] {
            assert_eq!(setting.check(), Ok(()));
        }
    }

    #[test]
    fn each_partition_keeps_its_share_of_the_dead_rounded_up() {
        let settings = |dead_max| Settings { dead_max, ..Settings::default() };
        assert_eq!([1, 2, 3, 5].map(|n| settings(Some(4)).dead_share(n)), [4, 2, 2, 1].map(Some));
        assert_eq!((settings(Some(0)).dead_share(3), settings(None).dead_share(3)), (Some(0), None));
    }

    #[test]
    fn each_bound_is_checked() {
        let backoff = Settings::default().backoff;
        for bad in [
            Setting::LeaseMs(0),
            Setting::LeaseMs(Setting::MAX_LEASE_MS + 1),
            Setting::Backoff(Backoff { base_ms: u64::MAX, ..backoff }),
            Setting::Backoff(Backoff { base_ms: Setting::MAX_BACKOFF_MS + 1, ..backoff }),
            Setting::Backoff(Backoff { cap_ms: Timestamp::MAX.as_ms() as u64, ..backoff }),
            Setting::Backoff(Backoff { factor_percent: 99, ..backoff }),
            Setting::Backoff(Backoff { jitter_percent: 101, ..backoff }),
            Setting::Levels(vec![1; 101]),
            Setting::Levels(vec![u64::MAX]),
            Setting::Partitions(0),
            Setting::Partitions(1_025),
            Setting::IdempotencyMs(u64::MAX),
        ] {
            assert_eq!(bad.check().unwrap_err().code(), "invalid_setting", "{bad:?}");
        }
        assert!(Setting::LeaseMs(1).check().is_ok());
        let longest =
            Backoff { base_ms: Setting::MAX_BACKOFF_MS, cap_ms: Setting::MAX_BACKOFF_MS, ..backoff };
        assert!(Setting::Backoff(longest).check().is_ok());
        let now = Timestamp::from_ms(4_102_444_800_000).unwrap();
        assert!(now.after(longest.delay_ms(u32::MAX, 0)).is_ok(), "in 2100 it leads to an instant");
    }
}
