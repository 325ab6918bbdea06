//! `dwell configure`

use clap::{Args, ValueEnum};
use dwell_model::{
    AttemptLimit, Backoff, LapseBackoff, OnExpiry, QueueName, Setting, SettingChange, SettingName,
};
use dwell_store::Error;
use pollster::block_on;

use super::{Context, Outcome, settings};
use crate::access::Server;
use crate::args::{attempts, duration_ms};
use crate::exit::Failure;

/// Change settings of a queue at run time: all that are given, or none
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell configure orders --lease 2m --max-attempts 5
  dwell configure orders --levels '1s 5s 10s 30s 1m 5m 10m 30m 1h 2h'
  dwell configure orders --backoff-base 5s --backoff-cap 30m
  dwell configure orders --reset lease --reset backoff

A pause is a setting too: see `dwell pause` and `dwell resume`.")]
pub(crate) struct Configure {
    /// The queue
    queue: QueueName,
    /// The length of a lease where neither take nor message has one
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, value_name = "DURATION")]
    lease: Option<u64>,
    /// The number of attempts before a message is dead: a number, or `unlimited`
    #[arg(long, value_parser = attempts, value_name = "COUNT")]
    max_attempts: Option<AttemptLimit>,
    /// The delay after the first failed attempt
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, value_name = "DURATION")]
    backoff_base: Option<u64>,
    /// The growth from one attempt to the next, in percent: 200 doubles
    #[arg(long, value_name = "PERCENT")]
    backoff_factor_percent: Option<u32>,
    /// The longest delay
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, value_name = "DURATION")]
    backoff_cap: Option<u64>,
    /// The largest share of a delay that is taken off at random, in percent
    #[arg(long, value_name = "PERCENT")]
    backoff_jitter_percent: Option<u32>,
    /// The maximum number of scheduled and ready messages; past it a put is refused
    #[arg(long, value_name = "COUNT")]
    max_pending: Option<u64>,
    /// Named delays, separated by blanks; level 1 is the first
    #[arg(long, value_parser = levels, value_name = "DURATIONS")]
    levels: Option<Levels>,
    /// The number of partitions of the queue; fixed while it has messages
    #[arg(long, value_name = "COUNT")]
    partitions: Option<u16>,
    /// How long the idempotency key of a put is remembered
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, value_name = "DURATION")]
    idempotency_ttl: Option<u64>,
    /// How long a message stays dead before it is discarded
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, value_name = "DURATION")]
    dead_ttl: Option<u64>,
    /// The maximum number of dead messages; past it the oldest deaths are discarded
    #[arg(long, value_name = "COUNT")]
    dead_max: Option<u64>,
    /// What happens to a message that expires
    #[arg(long, value_enum, value_name = "WHAT")]
    on_expiry: Option<ExpiryName>,
    /// The maximum number of leased messages; at it the queue is as if paused
    #[arg(long, value_name = "COUNT")]
    max_leased: Option<u64>,
    /// The lapse of its lease from which on a message waits for the backoff
    #[arg(long, value_enum, value_name = "LAPSE")]
    lapse_backoff: Option<LapseName>,
    /// Reset this setting to the server's default; may be repeated
    #[arg(long, value_enum, value_name = "SETTING")]
    reset: Vec<ResetName>,
}

#[derive(Clone, Debug)]
struct Levels(Vec<u64>);

fn levels(text: &str) -> Result<Levels, dwell_model::Invalid> {
    text.split_whitespace().map(duration_ms).collect::<Result<_, _>>().map(Levels)
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ExpiryName {
    /// It is dead
    Dead,
    /// It is removed, and counted
    Drop,
}

impl From<ExpiryName> for OnExpiry {
    fn from(name: ExpiryName) -> OnExpiry {
        match name {
            ExpiryName::Dead => OnExpiry::Dead,
            ExpiryName::Drop => OnExpiry::Drop,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LapseName {
    /// It is ready at once
    Never,
    /// From the second attempt spent on
    Second,
    /// After each
    First,
}

impl From<LapseName> for LapseBackoff {
    fn from(name: LapseName) -> LapseBackoff {
        match name {
            LapseName::Never => LapseBackoff::Never,
            LapseName::Second => LapseBackoff::Second,
            LapseName::First => LapseBackoff::First,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum ResetName {
    Lease,
    MaxAttempts,
    Backoff,
    MaxPending,
    Pause,
    Levels,
    Partitions,
    IdempotencyTtl,
    DeadTtl,
    DeadMax,
    OnExpiry,
    MaxLeased,
    LapseBackoff,
}

impl From<ResetName> for SettingName {
    fn from(name: ResetName) -> SettingName {
        match name {
            ResetName::Lease => SettingName::Lease,
            ResetName::MaxAttempts => SettingName::MaxAttempts,
            ResetName::Backoff => SettingName::Backoff,
            ResetName::MaxPending => SettingName::MaxPending,
            ResetName::Pause => SettingName::Pause,
            ResetName::Levels => SettingName::Levels,
            ResetName::Partitions => SettingName::Partitions,
            ResetName::IdempotencyTtl => SettingName::IdempotencyTtl,
            ResetName::DeadTtl => SettingName::DeadTtl,
            ResetName::DeadMax => SettingName::DeadMax,
            ResetName::OnExpiry => SettingName::OnExpiry,
            ResetName::MaxLeased => SettingName::MaxLeased,
            ResetName::LapseBackoff => SettingName::LapseBackoff,
        }
    }
}

impl Configure {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let mut values = Vec::new();
        values.extend(self.lease.map(Setting::LeaseMs));
        values.extend(self.max_attempts.map(Setting::MaxAttempts));
        values.extend(self.backoff(&client)?);
        values.extend(self.max_pending.map(Setting::MaxPending));
        values.extend(self.levels.map(|levels| Setting::Levels(levels.0)));
        values.extend(self.partitions.map(Setting::Partitions));
        values.extend(self.idempotency_ttl.map(Setting::IdempotencyMs));
        values.extend(self.dead_ttl.map(Setting::DeadTtlMs));
        values.extend(self.dead_max.map(Setting::DeadMax));
        values.extend(self.on_expiry.map(|what| Setting::OnExpiry(what.into())));
        values.extend(self.max_leased.map(Setting::MaxLeased));
        values.extend(self.lapse_backoff.map(|from| Setting::LapseBackoff(from.into())));
        let mut changes: Vec<SettingChange> = values.into_iter().map(SettingChange::Set).collect();
        for name in self.reset {
            let name = SettingName::from(name);
            let set =
                |change: &SettingChange| matches!(change, SettingChange::Set(set) if set.name() == name);
            if changes.iter().any(set) {
                let word = name.as_str();
                return Err(Failure::usage(format!("{word} is both given a value and reset; choose one")));
            }
            changes.push(SettingChange::Reset(name));
        }
        if changes.is_empty() {
            return Err(Failure::usage("name at least one setting; `dwell settings` shows those in force"));
        }
        settings::show(context, client.configure(self.queue, changes)?)
    }

    /// The queue's backoff with the given parts changed.
    fn backoff(&self, client: &Server) -> Result<Option<Setting>, Failure> {
        let parts = [self.backoff_factor_percent, self.backoff_jitter_percent].iter().any(Option::is_some)
            || [self.backoff_base, self.backoff_cap].iter().any(Option::is_some);
        if !parts {
            return Ok(None);
        }
        let standing = match client.stats(self.queue.clone()) {
            Ok(queue) => queue.settings.backoff,
            Err(Error::UnknownQueue { .. }) => block_on(client.store().info())?.defaults.backoff.into(),
            Err(error) => return Err(error.into()),
        };
        Ok(Some(Setting::Backoff(Backoff {
            base_ms: self.backoff_base.unwrap_or(standing.base_ms),
            factor_percent: self.backoff_factor_percent.unwrap_or(standing.factor_percent),
            cap_ms: self.backoff_cap.unwrap_or(standing.cap_ms),
            jitter_percent: self.backoff_jitter_percent.unwrap_or(standing.jitter_percent),
        })))
    }
}
