//! `dwell discard`

use clap::Args;

use super::{Context, Outcome};
use crate::args::DeadArgs;

/// Remove dead messages for good
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell discard orders 0197c5e2-…
  dwell discard orders --oldest 1000
  dwell discard orders --all")]
pub(crate) struct Discard {
    #[command(flatten)]
    which: DeadArgs,
}

impl Discard {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let selection = self.which.selection(context, &client)?;
        let swept = client.discard(self.which.queue, selection)?;
        context.show_swept(&swept, "discarded")
    }
}
