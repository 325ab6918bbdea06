//! Delivery: what takes due messages from a store and does something with them, so that nobody writes that loop again.
//!
//! Everything here is written against [`dwell_store::Store`] alone, and so runs over any: in the process that has the store, or far
//! from it over HTTP.
//!
//! # Layout
//! - [`Worker`], [`Lane`]: calls a handler for each message of a queue
//! - [`Job`], [`FromJob`], [`Token`]: what a handler is given; [`Outcome`], [`Failure`]: what it comes to
//! - [`retry`](Ladder), [`breaker`], `lane`, `lease`, [`suspect`]: cores, which are given `now` and decide
//! - [`IntoStore`]: what a worker can be made over
//! - `jitter`: a hash that spreads what would come at once
//! - [`schedule`]: what runs at the instants of a cron expression, once on however many servers
//! - `timer`: the one thread, which sleeps on a clock for all tasks
//! - [`Error`]: why something is refused

pub mod breaker;
mod error;
mod jitter;
mod job;
mod lane;
mod lease;
mod outcome;
mod retry;
pub mod schedule;
mod store;
pub mod suspect;
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
pub use token::{Fired, Token};
pub use worker::{Lane, Stats, Worker};

/// A duration in milliseconds. A part of one counts as a whole one; what does not fit is the longest there is.
fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
