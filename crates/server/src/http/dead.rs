//! Dead messages: revive and discard one, many, the oldest or all; counts of deaths.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use dwell_store::{BulkOutcome, Selection};

use super::audit_log::Managed;
use super::call::HttpCall;
use super::reply;
use super::{App, Problem};
use crate::json::{self, NoFieldsIn};

/// `POST /v1/queues/{queue}/messages/{id}/revive`
pub(crate) async fn revive_one(
    State(app): State<Arc<App>>,
    call: HttpCall,
) -> Result<Response<Body>, Problem> {
    let (queue, id) = (call.queue()?, call.parsed("id")?);
    let managed = Managed::new(call.caller(), "revive", &queue);
    let when = json::when(call.fields(&app).await?)?.unwrap_or_default();
    one(managed.done(app.store.revive(queue, Selection::Ids(vec![id]), when), count).await?)
}

/// `POST /v1/queues/{queue}/messages/{id}/discard`
pub(crate) async fn discard_one(
    State(app): State<Arc<App>>,
    call: HttpCall,
) -> Result<Response<Body>, Problem> {
    let (queue, id) = (call.queue()?, call.parsed("id")?);
    let managed = Managed::new(call.caller(), "discard", &queue);
    call.fields::<NoFieldsIn>(&app).await?;
    one(managed.done(app.store.discard(queue, Selection::Ids(vec![id])), count).await?)
}

/// The number of messages that the call changed.
fn count(done: &BulkOutcome) -> Option<u64> {
    Some(done.done)
}

/// The refusal of a single message is the answer.
fn one(mut done: BulkOutcome) -> Result<Response<Body>, Problem> {
    match done.refused.pop() {
        Some((_, error)) => Err(Problem::found(error)),
        None => Ok(reply::json(StatusCode::OK, &dwell_wire::Swept::from(&done))),
    }
}

/// `POST /v1/queues/{queue}/dead/revive`
pub(crate) async fn revive(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    let limit = app.store.limits().batch;
    let managed = Managed::new(call.caller(), "revive_many", &queue);
    let (which, when) = json::revive(call.fields(&app).await?, limit)?;
    let done = managed.done(app.store.revive(queue, which, when), count).await?;
    Ok(reply::json(StatusCode::OK, &dwell_wire::Swept::from(&done)))
}

/// `POST /v1/queues/{queue}/dead/discard`
pub(crate) async fn discard(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    let limit = app.store.limits().batch;
    let managed = Managed::new(call.caller(), "discard_many", &queue);
    let which = json::selection(call.fields(&app).await?, limit)?;
    let done = managed.done(app.store.discard(queue, which), count).await?;
    Ok(reply::json(StatusCode::OK, &dwell_wire::Swept::from(&done)))
}

/// `GET /v1/deaths`
pub(crate) async fn deaths(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    Ok(reply::json(StatusCode::OK, &dwell_wire::Deaths::from(app.store.deaths().await?)))
}
