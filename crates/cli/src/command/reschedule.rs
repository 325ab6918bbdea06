//! `dwell reschedule`

use clap::Args;

use super::{Context, Outcome};
use crate::args::{TargetArgs, WhenArgs};
use crate::exit::{Exit, Failure};
use crate::human::{STRONG, instant};

/// Move the instant of a scheduled or ready message; its id stays
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell reschedule orders 0197c5e2-… --delay 1h
  dwell reschedule orders --key order-7 --due 2026-11-21T18:00:00Z")]
pub(crate) struct Reschedule {
    #[command(flatten)]
    which: TargetArgs,
    #[command(flatten)]
    when: WhenArgs,
}

impl Reschedule {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        if !self.when.is_given() {
            return Err(Failure::usage("say when it is to be due: --delay, --due or --level"));
        }
        let which = self.which.target();
        let moved = context.client()?.reschedule(&self.which.queue, &which, self.when.when())?;
        context.output.show(&moved, |out| {
            writeln!(out, "{STRONG}{}{STRONG:#}  due {}", moved.id, instant(moved.due))
        })?;
        Ok(Exit::Ok)
    }
}
