//! `dwell pause`

use clap::Args;
use dwell_model::{QueueName, Setting, SettingChange, Timestamp};
use pollster::block_on;

use super::{Context, Outcome};
use crate::args::duration_ms;

/// Stop handing out messages of a queue; puts go on
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell pause orders                  until `dwell resume orders`
  dwell pause orders --for 10m
  dwell pause orders --until 2026-11-21T18:00:00Z")]
pub(crate) struct Pause {
    /// The queue
    queue: QueueName,
    /// For this long, by the server's clock
    #[arg(long = "for", value_parser = duration_ms, allow_hyphen_values = true, value_name = "DURATION")]
    for_ms: Option<u64>,
    /// Until this instant
    #[arg(long, conflicts_with = "for_ms", value_name = "INSTANT")]
    until: Option<Timestamp>,
}

impl Pause {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let queue = match self.for_ms {
            Some(for_ms) => block_on(client.store().pause_for(&self.queue, for_ms))?,
            None => {
                let pause = self.until.map_or(dwell_model::Pause::Indefinite, dwell_model::Pause::Until);
                client.configure(self.queue, vec![SettingChange::Set(Setting::Pause(pause))])?
            }
        };
        context.show_queue(queue)
    }
}
