//! `dwell postgres grant`

use clap::Args;
use clap::builder::PossibleValuesParser;
use dwell_postgres::schema::FOR_CALLERS;
use serde::Serialize;

use super::{Context, Outcome, SchemaArgs};
use crate::exit::Exit;
use crate::human::STRONG;

/// Let a role call the functions for SQL, or be that of a server
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell postgres grant shop                 all functions for callers' own transactions
  dwell postgres grant shop put cancel      these alone
  dwell postgres grant dwell_server --serve what `dwell serve` and the library call; the role needs no more

Run it as the schema's owner, and again after a version that adds functions. It takes nothing away:
  REVOKE ALL ON ALL FUNCTIONS IN SCHEMA dwell FROM shop; REVOKE ALL ON SCHEMA dwell FROM shop")]
pub(super) struct Grant {
    /// The role, which has to exist
    role: String,
    /// The functions; by default all that are for callers
    #[arg(value_parser = PossibleValuesParser::new(FOR_CALLERS), value_name = "FUNCTION", conflicts_with = "serve")]
    functions: Vec<String>,
    /// Let the role open the store, as a server does: it can read and change every message
    #[arg(long)]
    serve: bool,
    #[command(flatten)]
    schema: SchemaArgs,
}

/// What was granted.
#[derive(Serialize)]
struct Shown<'a> {
    schema: &'a str,
    role: &'a str,
    functions: &'a [String],
}

impl Grant {
    pub(super) fn run(self, context: &Context) -> Outcome {
        let named: Vec<&str> = self.functions.iter().map(String::as_str).collect();
        let grant = match (self.serve, named.as_slice()) {
            (true, _) => dwell_postgres::Grant::Store,
            (false, []) => dwell_postgres::Grant::Calls(FOR_CALLERS),
            (false, named) => dwell_postgres::Grant::Calls(named),
        };
        let granted =
            self.schema.administer(async |administration| administration.grant(&self.role, grant).await);
        let (schema, role, functions) = (self.schema.schema(), &*self.role, &*granted?);
        context.output.show(&Shown { schema, role, functions }, |out| {
            writeln!(out, "{STRONG}{role}{STRONG:#} may call in {schema}: {}", functions.join(" "))
        })?;
        Ok(Exit::Ok)
    }
}
