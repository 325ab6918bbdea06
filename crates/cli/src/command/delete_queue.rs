//! `dwell delete-queue`

use clap::Args;
use dwell_model::QueueName;

use super::{Context, Outcome};
use crate::exit::Failure;

/// Remove all messages of a queue but the leased ones, and its settings
#[derive(Debug, Args)]
#[command(after_help = "Example:
  dwell delete-queue orders --yes

Leased messages stay with their holders. Later puts make the queue anew.")]
pub(crate) struct DeleteQueue {
    /// The queue
    queue: QueueName,
    /// Confirms the deletion
    #[arg(long)]
    yes: bool,
}

impl DeleteQueue {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        if !self.yes {
            return Err(Failure::usage("this removes messages and settings for good: say --yes"));
        }
        context.show_removed(context.client()?.delete_queue(self.queue)?)
    }
}
