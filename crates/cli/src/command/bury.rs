//! `dwell bury`

use clap::Args;
use dwell_model::Receipt;
use dwell_store::Action;

use super::{Context, Outcome};

/// Set taken messages aside among the dead
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell bury AQGa… --reason 'no such customer'
  dwell list orders --state dead")]
pub(crate) struct Bury {
    /// Receipts, as printed by take
    #[arg(required = true, value_name = "RECEIPT")]
    receipts: Vec<Receipt>,
    /// The reason; kept with the message
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// A new priority
    #[arg(long)]
    priority: Option<u32>,
}

impl Bury {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let reason = self.reason.as_deref().map(Into::into);
        context.settle(&self.receipts, &Action::Bury { reason, priority: self.priority })
    }
}
