//! `dwell release`

use clap::Args;
use dwell_model::Receipt;
use dwell_store::Action;

use super::{Context, Outcome};
use crate::args::duration_ms;

/// Give taken messages back without spending an attempt
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell release AQGa…                 ready again at once
  dwell release AQGa… --after 10s")]
pub(crate) struct Release {
    /// Receipts, as printed by take
    #[arg(required = true, value_name = "RECEIPT")]
    receipts: Vec<Receipt>,
    /// The delay; without it ready at once
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, value_name = "DURATION")]
    after: Option<u64>,
    /// A new priority
    #[arg(long)]
    priority: Option<u32>,
}

impl Release {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let action = Action::Release { after_ms: self.after, priority: self.priority };
        context.settle(&self.receipts, &action)
    }
}
