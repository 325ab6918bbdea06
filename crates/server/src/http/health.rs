//! Health: whether the process answers, and whether its store does.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use dwell_store::Error;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::timeout;

use super::call::Call;
use super::reply::json;
use super::{App, Problem, Refusal};

/// A store that takes longer for the cheapest question is not ready.
const PATIENCE: Duration = Duration::from_secs(2);

/// The process answers.
pub(super) const LIVE: &str = "live";

/// How the server is.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Health")]
pub(crate) struct HealthOut {
    #[schemars(extend("enum" = [LIVE, "ready"]))]
    pub(super) status: &'static str,
}

/// `GET /health/live`
pub(crate) async fn live(State(_): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    Ok(json(StatusCode::OK, &HealthOut { status: LIVE }))
}

/// `GET /health/ready`
pub(crate) async fn ready(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    if *app.draining.borrow() {
        return Err(Problem::new(
            Refusal::ShuttingDown,
            "the server answers what is under way, and then stops",
        ));
    }
    match timeout(PATIENCE, app.store.queues(None, 1)).await {
        Ok(answer) => {
            answer?;
            Ok(json(StatusCode::OK, &HealthOut { status: "ready" }))
        }
        Err(_) => {
            let detail = format!("the store has not answered within {} s", PATIENCE.as_secs());
            Err(Error::Unavailable { reason: detail.into() }.into())
        }
    }
}
