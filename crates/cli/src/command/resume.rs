//! `dwell resume`

use clap::Args;
use dwell_model::QueueName;
use pollster::block_on;

use super::{Context, Outcome};

/// Hand out messages of a paused queue again
#[derive(Debug, Args)]
#[command(after_help = "Example:
  dwell resume orders")]
pub(crate) struct Resume {
    /// The queue
    queue: QueueName,
}

impl Resume {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        context.show_queue(block_on(client.store().resume(&self.queue))?)
    }
}
