//! `dwell purge`

use clap::Args;
use dwell_model::QueueName;

use super::{Context, Outcome};
use crate::exit::Failure;

/// Remove all scheduled and ready messages of a queue
#[derive(Debug, Args)]
#[command(after_help = "Example:
  dwell purge orders --yes

Leased and dead messages stay, and so do those that are put later.")]
pub(crate) struct Purge {
    /// The queue
    queue: QueueName,
    /// Confirms the removal
    #[arg(long)]
    yes: bool,
}

impl Purge {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        if !self.yes {
            return Err(Failure::usage("this removes messages for good: say --yes"));
        }
        context.show_removed(context.client()?.purge(self.queue)?)
    }
}
