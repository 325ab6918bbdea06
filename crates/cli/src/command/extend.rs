//! `dwell extend`

use clap::Args;
use dwell_model::Receipt;
use dwell_store::Action;

use super::{Context, Outcome};
use crate::args::duration_ms;

/// Hold taken messages longer
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell extend AQGa…                  the same length again, from now on
  dwell extend AQGa… --lease 10m")]
pub(crate) struct Extend {
    /// Receipts, as printed by take
    #[arg(required = true, value_name = "RECEIPT")]
    receipts: Vec<Receipt>,
    /// The new length, from now on
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, value_name = "DURATION")]
    lease: Option<u64>,
}

impl Extend {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        context.settle(&self.receipts, &Action::Extend { lease_ms: self.lease })
    }
}
