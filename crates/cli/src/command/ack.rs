//! `dwell ack`

use clap::Args;
use dwell_model::Receipt;
use dwell_store::Action;

use super::{Context, Outcome};

/// Ack taken messages: they are done, and are removed
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell ack AQGa…
  dwell take orders --max 10 --json | jq -r .receipt | xargs dwell ack

A receipt whose lease ran out is refused (lease_lost) and nothing changes.")]
pub(crate) struct Ack {
    /// Receipts, as printed by take
    #[arg(required = true, value_name = "RECEIPT")]
    receipts: Vec<Receipt>,
}

impl Ack {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        context.settle(&self.receipts, &Action::Ack)
    }
}
