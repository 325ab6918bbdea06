//! Queues: counts, settings, pause and resume, purge, delete; and the limits of the server.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use dwell_model::{QueueName, Setting, SettingChange};
use dwell_store::Error;
use dwell_wire::{QueueStats, Removed};

use super::audit_log::Managed;
use super::call::HttpCall;
use super::reply::json;
use super::{App, Problem, listing};
use crate::json::{NoFieldsIn, PauseIn, SettingsIn, queue_page, server_info};

const DEFAULT_PAGE: usize = 100;
const LONGEST_PAGE: usize = 1_000;

/// `GET /v1/queues`
pub(crate) async fn list(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let mut query = call.query()?;
    let prefix = prefix(query.text("prefix")?.unwrap_or_default())?;
    let after = query.parsed("cursor")?;
    let max = query.bounded("max", DEFAULT_PAGE, 1, LONGEST_PAGE)?;
    query.finish()?;
    let caller = call.caller();
    app.wait_for_room(&mut app.memory.add(0), &caller).await?;
    let (queues, is_more) = listing::page(&*app.store, &caller, &prefix, after, max).await?;
    Ok(json(StatusCode::OK, &queue_page(queues, is_more)))
}

/// A prefix of names: a valid name, or a text that another letter makes valid.
fn prefix(text: String) -> Result<String, Problem> {
    if !text.is_empty() && QueueName::new(&format!("{text}a")).is_err() {
        QueueName::new(&text)?;
    }
    Ok(text)
}

/// `GET /v1/queues/{queue}`
pub(crate) async fn stats(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    call.no_query()?;
    Ok(json(StatusCode::OK, &QueueStats::from(app.store.stats(queue).await?)))
}

/// `PATCH /v1/queues/{queue}/settings`
pub(crate) async fn configure(
    State(app): State<Arc<App>>,
    call: HttpCall,
) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    let managed = Managed::new(call.caller(), "configure", &queue);
    let changes = call.json::<SettingsIn>(&app).await?.changes(&app.store.limits().defaults)?;
    configured(&app, managed, queue, changes).await
}

/// `POST /v1/queues/{queue}/pause`
pub(crate) async fn pause(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    let managed = Managed::new(call.caller(), "pause", &queue);
    let pause = call.fields::<PauseIn>(&app).await?.pause(app.clock.now().wall)?;
    configured(&app, managed, queue, vec![SettingChange::Set(Setting::Pause(pause))]).await
}

/// `POST /v1/queues/{queue}/resume`
pub(crate) async fn resume(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    let managed = Managed::new(call.caller(), "resume", &queue);
    call.fields::<NoFieldsIn>(&app).await?;
    let change = SettingChange::running(app.store.limits().defaults.pause);
    configured(&app, managed, queue, vec![change]).await
}

/// Changes settings, and answers with the queue's state after that.
async fn configured(
    app: &App,
    managed: Managed,
    queue: QueueName,
    changes: Vec<SettingChange>,
) -> Result<Response<Body>, Problem> {
    let stats = managed.done(app.store.configure(queue, changes), |_| None).await?;
    Ok(json(StatusCode::OK, &QueueStats::from(stats)))
}

/// `POST /v1/queues/{queue}/purge`
pub(crate) async fn purge(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    let managed = Managed::new(call.caller(), "purge", &queue);
    call.fields::<NoFieldsIn>(&app).await?;
    let removed = managed.done(app.store.purge(queue), |removed| Some(*removed)).await?;
    Ok(json(StatusCode::OK, &Removed { removed }))
}

/// `DELETE /v1/queues/{queue}`
pub(crate) async fn delete(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    let managed = Managed::new(call.caller(), "delete_queue", &queue);
    call.fields::<NoFieldsIn>(&app).await?;
    // A client that disconnects meanwhile does not leave the queue without the configuration's settings.
    let deleting = tokio::spawn(delete_and_restore(Arc::clone(&app), managed, queue));
    let removed = match deleting.await {
        Ok(removed) => removed?,
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        Err(_) => return Err(Error::Closed.into()),
    };
    Ok(json(StatusCode::OK, &Removed { removed }))
}

/// Deletes the queue and applies the configuration's settings again. Also where the call that deleted it has failed
/// after that, and where the store refuses the settings now: the queue is deleted in any case, and the answer says so.
async fn delete_and_restore(app: Arc<App>, managed: Managed, queue: QueueName) -> Result<u64, Error> {
    let deleting = app.store.delete_queue(queue.clone());
    let deleted = managed.done(deleting, |removed| Some(*removed)).await;
    // Where the outcome is unknown it may be deleted. If it is not, it has its settings, and nothing changes.
    if matches!(&deleted, Ok(_) | Err(Error::UnknownQueue { .. } | Error::OutcomeUnknown { .. })) {
        app.configured.restore(&app.store, &queue, &app.draining).await;
    }
    deleted
}

/// `GET /v1/limits`
pub(crate) async fn limits(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    let limits = app.store.limits();
    let (names, wait_ms) = (app.most_names(), app.config.max_wait_ms);
    let out = server_info(limits, names, wait_ms, app.json_bytes(), app.line_bytes());
    Ok(json(StatusCode::OK, &out))
}
