//! Health: whether the process answers, and whether its store serves.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use dwell_store::Error;
use schemars::JsonSchema;
use serde::Serialize;

use super::call::HttpCall;
use super::reply::json;
use super::{App, HttpRefusal, Problem};

/// The process answers.
pub(super) const LIVE: &str = "live";

/// The server's health.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Health")]
pub(crate) struct HealthOut {
    #[schemars(extend("enum" = [LIVE, "ready"]))]
    pub(super) status: &'static str,
}

/// `GET /health/live`
pub(crate) async fn live(State(_): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    Ok(json(StatusCode::OK, &HealthOut { status: LIVE }))
}

/// `GET /health/ready`
pub(crate) async fn ready(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    if *app.draining.borrow() {
        return Err(Problem::new(
            HttpRefusal::ShuttingDown,
            "the server answers what is under way, and then stops",
        ));
    }
    match app.metrics.ready(&app.store, &app.clock).await {
        Ok(()) => {
            app.ailment.is_over();
            Ok(json(StatusCode::OK, &HealthOut { status: "ready" }))
        }
        Err(error) => {
            app.ailment.is(&error);
            Err(Problem::from(error).with_detail("the store does not serve; the server's log says why"))
        }
    }
}

/// The store's last error. Anyone may ask for readiness, and receives the code alone: what the error says of files,
/// addresses and queues is logged, once for each different error.
#[derive(Debug, Default)]
pub(crate) struct LastFailure(Mutex<Option<String>>);

impl LastFailure {
    fn is(&self, error: &Error) {
        let text = error.to_string();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref() != Some(&text) {
            tracing::warn!(code = error.code(), error = text, "not ready");
            *known = Some(text);
        }
    }

    fn is_over(&self) {
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            tracing::info!("ready again");
        }
    }
}
