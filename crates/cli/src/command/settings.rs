//! `dwell settings`

use std::io::{self, Write};

use clap::Args;
use dwell_model::{AttemptLimit, QueueName, format_duration_ms};
use dwell_wire::{QueueSettings, QueueStats};

use super::{Context, Outcome};
use crate::exit::Exit;
use crate::human::{FAINT, STRONG};

/// Show the settings in force for a queue, and which of them are its own
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell settings orders
  dwell configure orders --lease 2m")]
pub(crate) struct Settings {
    /// The queue
    queue: QueueName,
}

impl Settings {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        show(context, context.client()?.stats(self.queue)?)
    }
}

/// Prints the settings of `queue`.
pub(super) fn show(context: &Context, queue: dwell_store::QueueStats) -> Outcome {
    let queue = QueueStats::from(queue);
    context.output.show(&queue, |out| human(out, &queue))?;
    Ok(Exit::Ok)
}

fn human(out: &mut dyn Write, queue: &QueueStats) -> io::Result<()> {
    writeln!(out, "{STRONG}{}{STRONG:#}", queue.queue)?;
    for (name, value) in rows(&queue.settings) {
        let own = queue.own.iter().any(|own| own == name);
        let (style, note) = if own { (STRONG, "its own") } else { (FAINT, "default") };
        writeln!(out, "{FAINT}{name:13}{FAINT:#}  {style}{value}{style:#}  {FAINT}{note}{FAINT:#}")?;
    }
    Ok(())
}

fn rows(settings: &QueueSettings) -> [(&'static str, String); 13] {
    let backoff = &settings.backoff;
    let or_none = |limit: Option<u64>| limit.map_or("none".to_owned(), |limit| limit.to_string());
    let levels: Vec<String> = settings.levels.iter().copied().map(format_duration_ms).collect();
    [
        ("lease", format_duration_ms(settings.lease_ms)),
        (
            "max_attempts",
            match settings.max_attempts {
                AttemptLimit::Unlimited => "unlimited".to_owned(),
                AttemptLimit::At(limit) => limit.to_string(),
            },
        ),
        (
            "backoff",
            format!(
                "from {}, times {} %, up to {}, less up to {} %",
                format_duration_ms(backoff.base_ms),
                backoff.factor_percent,
                format_duration_ms(backoff.cap_ms),
                backoff.jitter_percent
            ),
        ),
        ("max_pending", or_none(settings.max_pending)),
        ("pause", settings.pause.clone()),
        ("levels", if levels.is_empty() { "none".to_owned() } else { levels.join(" ") }),
        ("partitions", settings.partitions.to_string()),
        ("idempotency_ttl", format_duration_ms(settings.idempotency_ms)),
        ("dead_ttl", settings.dead_ttl_ms.map_or("none".to_owned(), format_duration_ms)),
        ("dead_max", or_none(settings.dead_max)),
        ("on_expiry", settings.on_expiry.as_str().to_owned()),
        ("max_leased", or_none(settings.max_leased)),
        ("lapse_backoff", settings.lapse_backoff.as_str().to_owned()),
    ]
}
