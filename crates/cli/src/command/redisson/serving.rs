//! Movers beside `dwell serve`.

use clap::Args;
use dwell_redis::Address;
use dwell_redis::redisson::{Event, MoverOptions};

use super::mover::Movers;
use super::{Java, keys, link};
use crate::exit::Failure;
use crate::output::Output;

/// Which delayed queues of Redisson's a server moves as well.
#[derive(Debug, Args)]
#[command(next_help_heading = "Delayed queues of Redisson")]
pub(crate) struct ServingArgs {
    /// Also move due elements of Redisson's delayed queues in this Redis
    #[arg(long = "redisson", requires = "redisson_queues", value_name = "URL")]
    redisson: Option<Address>,
    /// Such a queue by the name that Java gives it, with a mapper's prefix; may be repeated
    #[arg(long = "redisson-queue", requires = "redisson", value_name = "NAME")]
    redisson_queues: Vec<String>,
    /// What the Java clients read: elements of the other kind are rewritten before they are due
    #[arg(long = "redisson-java", value_enum, default_value_t = Java::Any, value_name = "RELEASES")]
    redisson_java: Java,
}

impl ServingArgs {
    /// Starts the movers, if any are wished for. What goes wrong later is told on standard error.
    pub(crate) async fn start(&self, output: Output) -> Result<Option<Movers>, Failure> {
        let Some(redis) = &self.redisson else { return Ok(None) };
        let queues = keys("", &self.redisson_queues)?;
        let options = MoverOptions { layout: self.redisson_java.layout(), ..MoverOptions::default() };
        Ok(Some(Movers::start(&link(redis).await?, queues, &options, move |queue, event| {
            if let Event::Trouble(error) = event {
                let failure = Failure::from(error);
                let detail = format!("delayed queue '{queue}': {}", failure.detail);
                output.failure(&Failure { detail, ..failure });
            }
        })))
    }
}
