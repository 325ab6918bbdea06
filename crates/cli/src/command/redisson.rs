//! `dwell redisson`: delayed queues shared with Java's Redisson, on its own keys.
//!
//! - `doctor`: diagnoses a queue, and repairs it
//! - `mover`: moves due elements to their destination, as `dwell serve` can too

mod doctor;
mod mover;

use clap::{Args, Subcommand, ValueEnum};
use dwell_redis::{Address, Link};
use dwell_redisson::{Error, Keys, Layout};
use tokio::runtime::Runtime;

pub(super) use self::mover::Movers;
use super::{Context, Outcome};
use crate::args::StoreUrl;
use crate::exit::{Exit, Failure};

/// Maintain delayed queues that are shared with Java's Redisson
#[derive(Debug, Args)]
pub(crate) struct Redisson {
    #[command(subcommand)]
    command: RedissonCommand,
}

#[derive(Debug, Subcommand)]
enum RedissonCommand {
    Move(mover::Move),
    Doctor(doctor::Examine),
}

impl Redisson {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.command {
            RedissonCommand::Move(it) => it.run(context),
            RedissonCommand::Doctor(it) => it.run(context),
        }
    }
}

/// The queues, and their Redis.
#[derive(Debug, Args)]
struct QueuesArgs {
    /// The Redis
    #[arg(long, env = "DWELL_REDIS", hide_env_values = true, default_value = "redis://127.0.0.1:6379",
        value_parser = StoreUrl::<Address>::new(), value_name = "URL")]
    redis: Address,
    /// A queue by its name in Java; may be repeated
    #[arg(long = "queue", required = true, value_name = "NAME")]
    queues: Vec<String>,
    /// The prefix that Java's name mapper adds to every name
    #[arg(long, default_value = "", value_name = "TEXT")]
    name_prefix: String,
}

impl QueuesArgs {
    /// The keys of each queue.
    fn keys(&self) -> Result<Vec<Keys>, Failure> {
        let keys = self.queues.iter().map(|name| Keys::with_prefix(&self.name_prefix, name));
        Ok(keys.collect::<Result<_, Error>>()?)
    }

    async fn link(&self) -> Result<Link, Failure> {
        link(&self.redis).await
    }
}

/// Connects to a Redis.
///
/// # Errors
/// If it cannot be reached or used.
pub(super) async fn link(redis: &Address) -> Result<Link, Failure> {
    Link::open(redis.clone()).await.map_err(|error| {
        let exit = if error.is_retryable() { Exit::Unreachable } else { Exit::Refused };
        Failure { retryable: error.is_retryable(), ..Failure::new(exit, error.code(), error) }
    })
}

/// The layout that the Java clients of a queue read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Java {
    /// Not known
    Any,
    /// Redisson 3.21.1 and later
    New,
    /// Redisson 3.21.0 and earlier
    Old,
}

impl Java {
    fn layout(self) -> Option<Layout> {
        match self {
            Java::Any => None,
            Java::New => Some(Layout::New),
            Java::Old => Some(Layout::Old),
        }
    }
}

fn runtime() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| Failure::new(Exit::CannotStart, "threads", error))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let exit = match &error {
            Error::Name { .. } | Error::Invalid(_) => Exit::Usage,
            Error::Unavailable { .. } => Exit::Unreachable,
            Error::OutcomeUnknown { .. } => Exit::Unknown,
            _ => Exit::Refused,
        };
        Failure { retryable: error.is_retryable(), ..Failure::new(exit, error.code(), error) }
    }
}
