//! Movers of Redisson's delayed queues in a server.

use dwell_redisson::{Event, MoverOptions};
use dwell_server::RedissonConfig;

use super::super::redisson::{Movers, link};
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Starts one for each queue of the configuration. Later failures are reported on standard error.
///
/// # Errors
/// If the Redis cannot be used.
pub(super) async fn start(
    config: Option<&RedissonConfig>,
    output: Output,
) -> Result<Option<Movers>, Failure> {
    let Some(config) = config else { return Ok(None) };
    let options = MoverOptions {
        layout: config.layout,
        sweep_ms: config.sweep_ms,
        max_attempts: config.max_attempts,
        ..MoverOptions::default()
    };
    let link = link(&config.redis).await.map_err(|refused| Failure { exit: Exit::CannotStart, ..refused })?;
    Ok(Some(Movers::start(&link, config.queues.clone(), &options, move |queue, event| {
        if let Event::Failure(error) = event {
            let failure = Failure::from(error);
            let detail = format!("delayed queue '{queue}': {}", failure.detail);
            output.failure(&Failure { detail, ..failure });
        }
    })))
}
