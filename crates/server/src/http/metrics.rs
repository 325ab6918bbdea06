//! The metrics page.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};

use super::call::HttpCall;
use super::reply::with_type;
use super::{App, Problem};
use crate::metrics::CONTENT_TYPE;

/// `GET /metrics`
pub(crate) async fn metrics(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    let page = app.metrics.page(&app.store, app.memory.held(), &app.clock, &app.delivery).await;
    Ok(with_type(StatusCode::OK, CONTENT_TYPE, page.into()))
}
