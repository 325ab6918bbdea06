//! `dwell reschedule`

use clap::Args;
use dwell_store::{Error, Rescheduled};
use dwell_wire::Moved;

use super::{Context, Outcome, only};
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
        let (queue, item) = (self.which.queue.clone(), (self.which.target(), self.when.when()));
        let (id, due) = match only(context.client()?.reschedule(queue.clone(), vec![item]))? {
            Rescheduled::Moved(id, due) => (id, due),
            Rescheduled::NotFound => return Err(Error::MessageNotFound { queue }.into()),
            Rescheduled::Leased(id) => return Err(Error::Leased { id }.into()),
            Rescheduled::Dead(id) => return Err(Error::Dead { id }.into()),
        };
        context.output.show(&Moved::new(id, due), |out| {
            writeln!(out, "{STRONG}{id}{STRONG:#}  due {}", instant(due))
        })?;
        Ok(Exit::Ok)
    }
}
