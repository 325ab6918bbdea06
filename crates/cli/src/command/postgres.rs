//! `dwell postgres`: administers the schema of a store on PostgreSQL, mostly as its owner.
//!
//! - `migrate`: installs it, or brings it up to date
//! - `grant`: what other roles may do
//! - `drop`: removes it

mod drop;
mod grant;
mod migrate;

use clap::{Args, Subcommand};
use dwell_postgres::{Address, Administration, OpenError};

use super::{Context, Outcome};
use crate::args::StoreUrl;
use crate::exit::{Exit, Failure, Own};

/// Install, migrate or drop the schema of a PostgreSQL, and grant rights on it
#[derive(Debug, Args)]
pub(crate) struct Postgres {
    #[command(subcommand)]
    command: PostgresCommand,
}

#[derive(Debug, Subcommand)]
enum PostgresCommand {
    Migrate(migrate::Migrate),
    Grant(grant::Grant),
    Drop(drop::Drop),
}

impl Postgres {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.command {
            PostgresCommand::Migrate(it) => it.run(context),
            PostgresCommand::Grant(it) => it.run(context),
            PostgresCommand::Drop(it) => it.run(context),
        }
    }
}

/// The schema, and its PostgreSQL.
#[derive(Debug, Args)]
struct SchemaArgs {
    /// The URL of the PostgreSQL, with the schema's owner as its user; as of `dwell serve`, and in the environment where it has
    /// a password
    #[arg(long, env = "DWELL_STORE", hide_env_values = true, value_parser = StoreUrl::<Address>::new(), value_name = "URL")]
    store: Address,
}

impl SchemaArgs {
    fn schema(&self) -> &str {
        self.store.schema()
    }

    /// Runs `work` on a connection.
    fn administer<T>(
        &self,
        work: impl AsyncFnOnce(&Administration) -> Result<T, OpenError>,
    ) -> Result<T, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::new(Exit::Refused, Own::Threads.code(), error))?;
        Ok(runtime.block_on(async { work(&Administration::connect(self.store.clone()).await?).await })?)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        let exit = match &error {
            OpenError::Url { .. } | OpenError::UnknownFunction { .. } => Exit::Usage,
            OpenError::Unreachable { .. } => Exit::Unreachable,
            OpenError::NotInstalled { .. } => Exit::Nothing,
            _ => Exit::Refused,
        };
        Failure { retryable: error.is_retryable(), ..Failure::new(exit, error.code(), error) }
    }
}
