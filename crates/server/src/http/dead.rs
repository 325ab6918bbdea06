//! Dead messages: revive and discard, one, many, the oldest, all.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use dwell_store::{Selection, Swept};

use super::call::Call;
use super::reply;
use super::{App, Problem};
use crate::json::{self, NoFieldsIn};

/// `POST /v1/queues/{queue}/messages/{id}/revive`
pub(crate) async fn revive_one(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    let (queue, id) = (call.queue()?, call.parsed("id")?);
    let when = json::when(call.fields(&app).await?)?.unwrap_or_default();
    one(app.store.revive(queue, Selection::Ids(vec![id]), when).await?)
}

/// `POST /v1/queues/{queue}/messages/{id}/discard`
pub(crate) async fn discard_one(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    let (queue, id) = (call.queue()?, call.parsed("id")?);
    call.fields::<NoFieldsIn>(&app).await?;
    one(app.store.discard(queue, Selection::Ids(vec![id])).await?)
}

/// The refusal of the only one is the answer.
fn one(mut done: Swept) -> Result<Response<Body>, Problem> {
    match done.refused.pop() {
        Some((_, error)) => Err(Problem::found(error)),
        None => Ok(reply::json(StatusCode::OK, &dwell_wire::Swept::from(&done))),
    }
}

/// `POST /v1/queues/{queue}/dead/revive`
pub(crate) async fn revive(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    let limit = app.store.limits().batch;
    let (which, when) = json::revive(call.fields(&app).await?, limit)?;
    Ok(reply::json(StatusCode::OK, &dwell_wire::Swept::from(&app.store.revive(queue, which, when).await?)))
}

/// `POST /v1/queues/{queue}/dead/discard`
pub(crate) async fn discard(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    let limit = app.store.limits().batch;
    let which = json::selection(call.fields(&app).await?, limit)?;
    Ok(reply::json(StatusCode::OK, &dwell_wire::Swept::from(&app.store.discard(queue, which).await?)))
}
