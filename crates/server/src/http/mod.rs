//! HTTP: a file for each group of operations; `routes` maps routes to handlers.

mod access;
mod audit_log;
mod batch;
mod body;
mod call;
mod connection;
mod dead;
mod forecast;
mod handover;
mod health;
mod host;
mod listing;
mod me;
mod messages;
mod metrics;
mod ndjson;
mod opening;
mod overview;
mod pages;
mod problem;
mod put;
mod queues;
mod refusal;
mod reply;
mod request_log;
mod routes;
mod schedules;
mod settle;
mod sinks;
mod take;
mod walks;

use std::future::Future;
use std::sync::Arc;

use dwell_store::Store;
use dwell_time::Clock;
use dwell_wire::{Census, Forecast, Span};
use tokio::sync::{Semaphore, watch};

pub(crate) use batch::{Done, RefusedItem};
pub(crate) use connection::{no_place, serve};
pub(crate) use health::{HealthOut, LastFailure};
pub(crate) use host::Hosts;
pub(crate) use opening::answer as answer_opening;
pub(crate) use problem::Problem;
pub(crate) use refusal::HttpRefusal;
pub(crate) use routes::router;
#[cfg(feature = "fuzzing")]
pub(crate) use {body::Timing, ndjson::Lines};

pub(crate) use self::walks::Walks;
use crate::MOST_NAMES;
use crate::admission::{Memory, NoRoom, ReservedBytes};
use crate::config::{Configured, HttpConfig};
use crate::delivery::Delivery;
use crate::metrics::Metrics;
use crate::returns::Returns;
use crate::security::{Caller, Live};

/// The state that handlers share.
pub(crate) struct App {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: HttpConfig,
    pub(crate) live: Arc<Live>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) returns: Returns,
    pub(crate) draining: watch::Receiver<bool>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) ailment: LastFailure,
    /// Forecasts of all queues, by span.
    pub(crate) forecasts: Walks<Span, Forecast>,
    /// The turn of counts by a caller's own instants.
    pub(crate) forecast_turn: Arc<Semaphore>,
    pub(crate) overviews: Walks<(), Census>,
    /// The queues that the configuration in force has settings for.
    pub(crate) configured: Configured,
    /// The sinks and schedules that the server runs itself.
    pub(crate) delivery: Delivery,
}

fn overloaded() -> Problem {
    let detail = "requests and answers hold as many bytes as the server may; try again later";
    Problem::new(HttpRefusal::Overloaded, detail)
}

/// The refusal of a request, or of the rest of one, whose caller's token was revoked.
fn token_gone() -> Problem {
    let detail = "the token is gone or has changed since this request began; neither this nor what follows it was done";
    Problem::new(HttpRefusal::TokenUnknown, detail)
}

impl App {
    /// The maximum bytes of one JSON item: its body as text or base64, and room for the rest of it.
    pub(crate) fn line_bytes(&self) -> usize {
        2 * self.store.limits().body_len + 128 * 1024
    }

    /// The maximum bytes of one JSON body, all of which is held in memory.
    pub(crate) fn json_bytes(&self) -> usize {
        self.line_bytes().max(16 * 1024 * 1024)
    }

    /// The maximum number of queues per take.
    pub(crate) fn most_names(&self) -> usize {
        self.store.limits().batch.min(MOST_NAMES)
    }

    /// Refuses requests whose answers have bodies, while unread answers hold too much.
    pub(crate) fn check_room(&self) -> Result<(), Problem> {
        if self.memory.is_over() { Err(overloaded()) } else { Ok(()) }
    }

    /// Refuses what has not begun yet, once its caller's token is revoked.
    pub(crate) fn check_token(&self, caller: &Caller) -> Result<(), Problem> {
        if self.live.tokens().know(caller) { Ok(()) } else { Err(token_gone()) }
    }

    /// Waits for room for an answer of unknown size, which may be much larger than its request; `own` is what the
    /// request of `caller` holds itself.
    pub(crate) async fn wait_for_room(
        &self,
        own: &mut ReservedBytes,
        caller: &Caller,
    ) -> Result<(), Problem> {
        own.room().await.map_err(|NoRoom| overloaded())?;
        self.check_token(caller)
    }

    /// Makes a call that returns bodies of `bytes`, once there is room for them; they count from then on.
    pub(crate) async fn bring<T>(
        &self,
        call: impl Future<Output = T>,
        bytes: impl Fn(&T) -> usize,
    ) -> Result<(T, ReservedBytes), Problem> {
        self.memory.bring(call, bytes).await.map_err(|NoRoom| overloaded())
    }

    /// Waits for room for one message, before `caller` takes it.
    pub(crate) async fn set_aside(&self, caller: &Caller) -> Result<ReservedBytes, Problem> {
        let held = self.memory.set_aside(self.store.limits().body_len).await;
        let held = held.map_err(|NoRoom| overloaded())?;
        self.check_token(caller)?;
        Ok(held)
    }

    /// Returns once the server has begun to shut down.
    pub(crate) async fn drained(&self) {
        // The sender lives as long as the server; if it is dropped, so is the server.
        let _ = self.draining.clone().wait_for(|draining| *draining).await;
    }
}

#[cfg(test)]
mod tests;
