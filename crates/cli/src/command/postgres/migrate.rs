//! `dwell postgres migrate`

use clap::Args;
use serde::Serialize;

use super::{Context, Outcome, SchemaArgs};
use crate::exit::Exit;
use crate::human::{GOOD, STRONG};

/// Install the schema, or bring its tables and functions to this version
#[derive(Debug, Args)]
#[command(after_help = "Example:
  dwell postgres migrate --store postgres://shop_owner@db1/shop

It needs the schema's owner, or a member of that role such as a superuser; what it creates is the owner's. For a schema
that does not exist, it needs CREATE on the database. Servers of this version and of the one before go on meanwhile. It
may be repeated.")]
pub(super) struct Migrate {
    #[command(flatten)]
    schema: SchemaArgs,
}

/// What was done.
#[derive(Serialize)]
struct Shown<'a> {
    schema: &'a str,
    /// Left out if the schema was installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<i32>,
    to: i32,
}

impl Migrate {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let migrated = self.schema.administer(async |administration| administration.migrate().await)?;
        let schema = self.schema.schema();
        let shown = Shown { schema, from: migrated.from, to: migrated.to };
        context.output.show(&shown, |out| {
            let to = migrated.to;
            write!(out, "{STRONG}{schema}{STRONG:#}  ")?;
            match migrated.from {
                None => writeln!(out, "{GOOD}installed{GOOD:#}, layout {to}"),
                Some(from) if from == to => writeln!(out, "layout {to}, functions of this version"),
                Some(from) => writeln!(out, "{GOOD}migrated{GOOD:#} from layout {from} to {to}"),
            }
        })?;
        Ok(Exit::Ok)
    }
}
