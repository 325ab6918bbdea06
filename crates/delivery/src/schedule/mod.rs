//! Schedules: messages that are put repeatedly, at the instants of a cron expression or at even intervals.
//!
//! A schedule is itself a message: in the queue [`QUEUE`], its key the schedule's name, due at the next instant by the
//! store's clock. The runner that takes it puts the run, then the schedule's next message, then acks. So any number of
//! servers over one store run each instant once, without knowing of each other, and between two instants nothing wakes
//! up.
//!
//! # When a run comes twice
//! The put of a run carries an idempotency key of the schedule's name and the instant. A run is put twice only if all
//! runners stop between the put of the run and that of the next message, and for longer than `idempotency_ttl` (ten
//! minutes by default).
//!
//! # Layout
//! - [`Schedule`]: the definition of a schedule
//! - [`Cron`], [`Dialect`]: expressions; `civil`: their meaning at changes of the clock
//! - `stored`: a schedule as a message
//! - `plan`: the runs of an instant, and the next instant
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

/// The queue that schedules are kept in, which is reserved.
pub const QUEUE: &str = "dwell:schedules";

/// The header of a run with the schedule's name.
pub const NAME_HEADER: &str = "dwell-schedule-name";
/// The header of a run with its instant.
pub const INSTANT_HEADER: &str = "dwell-schedule-instant";

/// [`QUEUE`] as a name.
fn queue() -> QueueName {
    QUEUE.parse().expect("it is a name, and a constant")
}
