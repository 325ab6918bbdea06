//! Delivery: takes due messages from a store and handles them.
//!
//! Everything here uses [`dwell_store::Store`] alone, and so works with any store: one in this process, or a remote one
//! over HTTP.
//!
//! # Layout
//! - [`Worker`], [`Lane`]: calls a handler for each message of a queue
//! - [`Job`], [`FromJob`], [`Token`]: a handler's arguments; [`Outcome`], [`Failure`]: its results
//! - [`retry`](Ladder), [`breaker`], `lane`, `lease`, [`suspect`]: pure state machines, with `now` as an argument
//! - [`IntoStore`]: what a worker can be created with
//! - `jitter`: a hash that spreads events that would coincide
//! - [`sinks`]: handlers that forward messages: [`webhook`](sinks::webhook)
//! - [`Switch`]: pauses lanes
//! - [`schedule`]: puts messages at the instants of a cron expression, once for any number of servers
//! - `timer`: the one thread, which sleeps on a clock for all tasks
//! - [`Error`]: the crate's errors

pub mod breaker;
mod error;
mod jitter;
mod job;
mod lane;
mod lease;
mod outcome;
mod retry;
pub mod schedule;
pub mod sinks;
mod store;
pub mod suspect;
mod switch;
mod timer;
mod token;
mod worker;

use std::time::Duration;

pub use error::{Error, Result};
pub use job::{FromJob, Job};
pub use lane::Rate;
pub use outcome::{Failure, IntoOutcome, Outcome};
pub use retry::Ladder;
pub use store::IntoStore;
pub use switch::Switch;
pub use token::{Fired, Token};
pub use worker::{Lane, Stats, Worker};

/// A duration in milliseconds, rounded up; the maximum if it does not fit.
fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
