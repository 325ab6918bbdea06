//! HTTP: the index of routes. Each group of operations has a file of its own.

mod access;
mod batch;
mod body;
mod call;
mod connection;
mod dead;
mod handover;
mod health;
mod host;
mod messages;
mod ndjson;
mod pages;
mod problem;
mod put;
mod queues;
mod refusal;
mod reply;
mod settle;
mod take;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, patch, post, put};
use dwell_store::Store;
use dwell_time::Clock;
use tokio::sync::watch;

pub(crate) use connection::{no_place, serve};
pub(crate) use host::Hosts;
#[cfg(feature = "fuzzing")]
pub(crate) use ndjson::Lines;
pub(crate) use problem::Problem;
pub(crate) use refusal::Refusal;

use crate::config::HttpConfig;
use crate::returns::Returns;
use crate::security::Live;

/// What every handler may need.
pub(crate) struct App {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: HttpConfig,
    pub(crate) live: Arc<Live>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) returns: Returns,
    pub(crate) draining: watch::Receiver<bool>,
}

impl App {
    /// Bytes that one JSON item may have: its body as text or base64, and room for the rest of it.
    pub(crate) fn line_bytes(&self) -> usize {
        2 * self.store.limits().body_len + 128 * 1024
    }

    /// Bytes that one JSON body may have, all of which is held in memory.
    pub(crate) fn json_bytes(&self) -> usize {
        self.line_bytes().max(16 * 1024 * 1024)
    }

    /// Returns once the server has begun to shut down.
    pub(crate) async fn drained(&self) {
        // The sender lives as long as the server; if it is gone, so is the server.
        let _ = self.draining.clone().wait_for(|draining| *draining).await;
    }
}

/// All routes. `docs/http.md` has the same table.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/queues/{queue}/messages", post(put::put).get(messages::list))
        .route("/v1/queues/{queue}/messages:batch", post(put::put_many))
        .route("/v1/messages:batch", post(put::put_many))
        .route("/v1/queues/{queue}/messages:get", post(messages::get_many))
        .route("/v1/queues/{queue}/messages:cancel", post(messages::cancel_many))
        .route("/v1/queues/{queue}/messages:reschedule", post(messages::reschedule_many))
        .route("/v1/queues/{queue}/messages/{id}", get(messages::get).delete(messages::cancel))
        .route("/v1/queues/{queue}/messages/{id}/take", post(take::take_id))
        .route("/v1/queues/{queue}/messages/{id}/reschedule", post(messages::reschedule))
        .route("/v1/queues/{queue}/messages/{id}/revive", post(dead::revive_one))
        .route("/v1/queues/{queue}/messages/{id}/discard", post(dead::discard_one))
        .route("/v1/queues/{queue}/keys/{key}", put(put::put_key).get(messages::get).delete(messages::cancel))
        .route("/v1/queues/{queue}/keys/{key}/reschedule", post(messages::reschedule))
        .route("/v1/numbers/{number}", get(messages::get_number))
        .route("/v1/queues/{queue}/take", post(take::take))
        .route("/v1/take", post(take::take))
        .route("/v1/receipts/{receipt}/{action}", post(settle::settle))
        .route("/v1/settle", post(settle::settle_many))
        .route("/v1/queues/{queue}/dead/revive", post(dead::revive))
        .route("/v1/queues/{queue}/dead/discard", post(dead::discard))
        .route("/v1/queues", get(queues::list))
        .route("/v1/queues/{queue}", get(queues::stats).delete(queues::delete))
        .route("/v1/queues/{queue}/settings", patch(queues::configure))
        .route("/v1/queues/{queue}/pause", post(queues::pause))
        .route("/v1/queues/{queue}/resume", post(queues::resume))
        .route("/v1/queues/{queue}/purge", post(queues::purge))
        .route("/v1/limits", get(queues::limits))
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/errors/{code}", get(pages::error))
        .route("/", get(pages::root))
        .route_layer(axum::middleware::from_fn(access::authorize))
        .fallback(pages::unknown_route)
        .method_not_allowed_fallback(pages::method_not_allowed)
        .with_state(app)
}
