//! A job as a handler sees it, and the arguments that a handler may have instead.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use dwell_store::{Delivery, Json};
use dwell_time::Clock;
use serde::de::DeserializeOwned;

use crate::Outcome;
use crate::token::Token;

/// A message that is being handled. Cloning is cheap.
///
/// It dereferences to its [`Delivery`]: `job.text()?`, `job.attempt()`, `job.header("traceparent")`. It is settled by
/// the handler's outcome, and its lease is renewed for as long as the handler runs.
#[derive(Clone)]
pub struct Job {
    delivery: Arc<Delivery>,
    token: Token,
    clock: Arc<dyn Clock>,
    deadline_ms: u64,
}

impl Job {
    pub(crate) fn new(delivery: Arc<Delivery>, token: Token, clock: Arc<dyn Clock>, deadline_ms: u64) -> Job {
        Job { delivery, token, clock, deadline_ms }
    }

    /// The token that signals the handler to stop.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// The time that the handler has left: the lane's timeout, less the time since the handler began.
    pub fn time_left(&self) -> Duration {
        Duration::from_millis(self.deadline_ms.saturating_sub(self.clock.now().mono_ms))
    }
}

impl Deref for Job {
    type Target = Delivery;

    fn deref(&self) -> &Delivery {
        &self.delivery
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Job").field(&self.delivery).finish()
    }
}

/// An argument of a handler: a [`Job`], the value whose JSON is its body, or both.
pub trait FromJob: Sized {
    /// Converts a job.
    ///
    /// # Errors
    /// The outcome of a message that cannot be converted: as a rule, [`Outcome::Bury`].
    fn from_job(job: Job) -> Result<Self, Outcome>;
}

impl FromJob for Job {
    fn from_job(job: Job) -> Result<Job, Outcome> {
        Ok(job)
    }
}

impl<T: DeserializeOwned> FromJob for Json<T> {
    /// A body that is not the JSON of a `T` will not be at the next attempt either, so it is buried.
    fn from_job(job: Job) -> Result<Json<T>, Outcome> {
        job.json().map(Json).map_err(|error| Outcome::Bury { reason: error.to_string() })
    }
}

impl<T: DeserializeOwned> FromJob for (Job, Json<T>) {
    fn from_job(job: Job) -> Result<(Job, Json<T>), Outcome> {
        let value = Json::from_job(job.clone())?;
        Ok((job, value))
    }
}
