//! Schedules: messages that are put again and again, at the instants of a cron expression or at even distances.
//!
//! A schedule is itself a message: in the queue [`QUEUE`], its key the schedule's name, due at the next instant by the store's clock. Who
//! takes it puts the run, then the schedule's next message, then acks. So any number of servers over one store run each instant once, without
//! knowing of each other, and between two instants nothing wakes up.
//!
//! # When a run comes twice
//! The put of a run carries an idempotency key of the schedule's name and the instant. A run is put twice only if everybody stops between
//! the put of the run and that of the next message, and for longer than `idempotency_ttl` (ten minutes by default).
//!
//! # Layout
//! - [`Schedule`]: what a schedule says
//! - [`Cron`], [`Dialect`]: expressions; `civil`: what they mean where clocks are put forward or back
//! - `stored`: a schedule as the message that it is
//! - `plan`: what is to be run at an instant, and what comes next
//! - [`Schedules`]: defines, lists, pauses and deletes schedules
//! - [`Runner`]: runs them

mod civil;
mod cron;
mod definition;
mod plan;
mod runner;
mod schedules;
mod stored;

pub use cron::{Cron, Dialect};
pub use definition::{Every, Missed, Overlap, Schedule, Times};
pub use plan::{MISSED_AFTER_MS, RUNS_AT_ONCE};
pub use runner::{Runner, Runs};
pub use schedules::{Defined, Listed, SchedulePage, Schedules};

use dwell_model::QueueName;

/// The queue that schedules are kept in. It is dwell's own.
pub const QUEUE: &str = "dwell:schedules";

/// The header of a run that has the schedule's name.
pub const NAME_HEADER: &str = "dwell-schedule-name";
/// The header of a run that has its instant.
pub const INSTANT_HEADER: &str = "dwell-schedule-instant";

/// [`QUEUE`] as a name.
fn queue() -> QueueName {
    QUEUE.parse().expect("it is a name, and a constant")
}
