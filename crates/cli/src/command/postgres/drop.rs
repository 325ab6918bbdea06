//! `dwell postgres drop`

use std::io::{self, IsTerminal as _};

use clap::Args;
use dwell_postgres::Contents;
use serde::Serialize;

use super::{Context, Outcome, SchemaArgs};
use crate::exit::{Exit, Failure};
use crate::human::{BAD, STRONG};

/// Remove the schema with all its messages
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell postgres drop --store postgres://shop_owner@db1/shop          shows what is lost, and asks
  dwell postgres drop --store postgres://shop_owner@db1/shop --yes    does not ask

Stop the servers that use it first: their calls fail afterwards. Nothing is removed if something that is not dwell's
depends on the schema, such as a view.")]
pub(super) struct Drop {
    #[command(flatten)]
    schema: SchemaArgs,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

/// What was in the schema.
#[derive(Serialize)]
struct Shown<'a> {
    schema: &'a str,
    dropped: bool,
    queues: u64,
    pending: u64,
    leased: u64,
    dead: u64,
}

impl Drop {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let can_ask = io::stdin().is_terminal() && context.output.is_human();
        if !self.yes && !can_ask {
            return Err(Failure::usage("this removes all messages for good: say --yes"));
        }
        let contents = self.schema.administer(async |administration| administration.contents().await)?;
        let dropped = self.yes || self.is_agreed(context, &contents)?;
        if dropped {
            self.schema.administer(async |administration| administration.drop_schema().await)?;
        }
        let Contents { queues, pending, leased, dead, .. } = contents;
        let schema = self.schema.schema();
        context.output.show(&Shown { schema, dropped, queues, pending, leased, dead }, |out| {
            let done = if dropped { "dropped" } else { "stays as it is" };
            writeln!(out, "{STRONG}{schema}{STRONG:#}  {done}")
        })?;
        Ok(if dropped { Exit::Ok } else { Exit::Refused })
    }

    /// Shows what would be lost, and asks for confirmation.
    fn is_agreed(&self, context: &Context, contents: &Contents) -> Result<bool, Failure> {
        let Contents { queues, pending, leased, dead, .. } = contents;
        context.output.confirm(|out| {
            let (schema, at) = (self.schema.schema(), &self.schema.store);
            writeln!(out, "{STRONG}{schema}{STRONG:#}  {at}")?;
            writeln!(
                out,
                "{queues} queues with {pending} scheduled or ready messages, {leased} leased, {dead} dead"
            )?;
            write!(out, "{BAD}remove all of it?{BAD:#}")
        })
    }
}
