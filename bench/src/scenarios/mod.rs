//! The measurements: a file per scenario, and an entry in this list.

pub(crate) mod delay_queue;
mod engine_backlog;
mod engine_drain;
mod engine_expired;
mod engine_far;
mod engine_put;
mod engine_put_1;
mod engine_restart;
mod engine_sweeps;
mod lateness;
#[cfg(feature = "redis")]
mod lateness_redis;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redisson;
mod storm;
mod wire;

use crate::Result;
use crate::run::Run;

/// One command of `dwell-bench`.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Its line in the output of `list`.
    pub(crate) what: &'static str,
    pub(crate) run: fn(&mut Run) -> Result<()>,
}

/// All scenarios, in the order of the output of `list`.
pub(crate) const SCENARIOS: &[Scenario] = &[
    delay_queue::SCENARIO,
    engine_put::SCENARIO,
    engine_put_1::SCENARIO,
    engine_drain::SCENARIO,
    engine_far::SCENARIO,
    engine_backlog::SCENARIO,
    engine_restart::SCENARIO,
    engine_sweeps::SCENARIO,
    engine_expired::SCENARIO,
    lateness::SCENARIO,
    #[cfg(feature = "redis")]
    redis::SCENARIO,
    #[cfg(feature = "redis")]
    lateness_redis::SCENARIO,
    #[cfg(feature = "redis")]
    redisson::SCENARIO,
    storm::SCENARIO,
    wire::SCENARIO,
];
