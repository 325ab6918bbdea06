//! `dwell cancel`

use clap::Args;

use super::{Context, Outcome};
use crate::args::TargetArgs;
use crate::exit::Exit;
use crate::human::STRONG;

/// Remove a scheduled or ready message
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell cancel orders 0197c5e2-…
  dwell cancel orders --key order-7

A message that somebody holds, or that is dead, is refused and stays as it is.")]
pub(crate) struct Cancel {
    #[command(flatten)]
    which: TargetArgs,
}

impl Cancel {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let cancelled = context.client()?.cancel(&self.which.queue, &self.which.target())?;
        context
            .output
            .show(&cancelled, |out| writeln!(out, "{STRONG}{}{STRONG:#}  cancelled", cancelled.id))?;
        Ok(Exit::Ok)
    }
}
