//! `dwell expire-lease`

use clap::Args;
use dwell_model::{MessageId, QueueName};
use dwell_store::LeaseRef;

use super::{Context, Outcome};

/// End a lease as if its deadline were now: its holder is known not to return
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell list orders --state leased                 who holds what, by which take
  dwell expire-lease orders 0197c5e2-… --takes 3

The receipt is stale then, an attempt is spent, and the message is ready,
scheduled or dead, as after any lease that ran out. If somebody else holds the
message by now, nothing changes: its takes are others.")]
pub(crate) struct ExpireLease {
    /// The queue
    queue: QueueName,
    /// The message's id
    id: MessageId,
    /// The number of takes that `dwell list --state leased` has shown for it
    #[arg(long, value_name = "COUNT")]
    takes: u32,
}

impl ExpireLease {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let lease = LeaseRef { id: self.id, takes: self.takes };
        let answers = context.client()?.expire_lease(self.queue, vec![lease]);
        context.show_settled(answers.into_iter().map(|answer| (self.id, answer)))
    }
}
