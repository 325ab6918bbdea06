//! `dwell revive`

use clap::Args;

use super::{Context, Outcome};
use crate::args::{DeadArgs, WhenArgs};

/// Make dead messages scheduled again, oldest first, with all their attempts
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell revive orders 0197c5e2-…
  dwell revive orders --key order-7
  dwell revive orders --oldest 10 --delay 5m
  dwell revive orders --all")]
pub(crate) struct Revive {
    #[command(flatten)]
    which: DeadArgs,
    #[command(flatten)]
    when: WhenArgs,
}

impl Revive {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let selection = self.which.selection(context, &client)?;
        let swept = client.revive(self.which.queue, selection, self.when.when())?;
        context.show_swept(&swept, "revived")
    }
}
