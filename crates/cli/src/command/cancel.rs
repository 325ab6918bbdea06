//! `dwell cancel`

use clap::Args;
use dwell_store::{Cancelled, Error};

use super::{Context, Outcome, only};
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
        let (queue, target) = (self.which.queue.clone(), self.which.target());
        let id = match only(context.client()?.cancel(queue.clone(), vec![target]))? {
            Cancelled::Cancelled(id) => id,
            Cancelled::NotFound => return Err(Error::MessageNotFound { queue }.into()),
            Cancelled::Leased(id) => return Err(Error::Leased { id }.into()),
            Cancelled::Dead(id) => return Err(Error::Dead { id }.into()),
        };
        context.output.show(&dwell_wire::Cancelled::new(id), |out| {
            writeln!(out, "{STRONG}{id}{STRONG:#}  cancelled")
        })?;
        Ok(Exit::Ok)
    }
}
