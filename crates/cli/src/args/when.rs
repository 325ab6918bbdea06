//! The due instant of a message: `--delay`, `--due` or `--level`.

use clap::Args;
use dwell_model::Timestamp;
use dwell_store::When;

use super::duration_ms;

/// At most one of the three; none of them means now.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct WhenArgs {
    /// Due this long from now, by the server's clock: 250ms, 30m, 1h30m, 7d
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, value_name = "DURATION")]
    delay: Option<u64>,
    /// Due at this instant: 2026-11-21T18:00:00Z; a past one is due now
    #[arg(long, value_name = "INSTANT")]
    due: Option<Timestamp>,
    /// Due after this delay level of the queue, counted from 1
    #[arg(long)]
    level: Option<u32>,
}

impl WhenArgs {
    /// The instant to send.
    pub(crate) fn when(&self) -> When {
        match (self.delay, self.due, self.level) {
            (Some(delay_ms), ..) => When::AfterMs(delay_ms),
            (_, Some(due), _) => When::At(due),
            (.., Some(level)) => When::Level(level),
            (None, None, None) => When::Now,
        }
    }

    /// Whether an option is given.
    pub(crate) fn is_given(&self) -> bool {
        self.delay.is_some() || self.due.is_some() || self.level.is_some()
    }
}
