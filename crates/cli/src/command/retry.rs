//! `dwell retry`

use clap::Args;
use dwell_model::Receipt;
use dwell_store::Action;

use super::{Context, Outcome};
use crate::args::duration_ms;

/// Report that an attempt failed; the message is scheduled again, or dead if its attempts are spent
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell retry AQGa… --error 'no route to host'      after the queue's backoff
  dwell retry AQGa… --after 5m")]
pub(crate) struct Retry {
    /// Receipts, as printed by take
    #[arg(required = true, value_name = "RECEIPT")]
    receipts: Vec<Receipt>,
    /// The delay; without it the queue's backoff
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, value_name = "DURATION")]
    after: Option<u64>,
    /// The error; kept with the message
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// A new priority
    #[arg(long)]
    priority: Option<u32>,
}

impl Retry {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let error = self.error.as_deref().map(Into::into);
        let action = Action::Retry { after_ms: self.after, error, priority: self.priority };
        context.settle(&self.receipts, &action)
    }
}
