//! Queues: counts, settings, pause and resume, purge, delete; and the limits of the server.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use dwell_model::{QueueName, Setting, SettingChange};
use dwell_store::Error;
use dwell_wire::{QueueStats, Removed};

use super::call::Call;
use super::managed::Managed;
use super::reply::json;
use super::{App, Problem, listing};
use crate::json::{NoFieldsIn, PauseIn, SettingsIn, queue_page, server_info};

const DEFAULT_PAGE: usize = 100;
const LONGEST_PAGE: usize = 1_000;

/// `GET /v1/queues`
pub(crate) async fn list(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
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

/// A beginning of names: a name itself, or what is one with a letter behind it.
fn prefix(text: String) -> Result<String, Problem> {
    if !text.is_empty() && QueueName::new(&format!("{text}a")).is_err() {
        QueueName::new(&text)?;
    }
    Ok(text)
}

/// `GET /v1/queues/{queue}`
pub(crate) async fn stats(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    call.no_query()?;
    Ok(json(StatusCode::OK, &QueueStats::from(app.store.stats(queue).await?)))
}

/// `PATCH /v1/queues/{queue}/settings`
pub(crate) async fn configure(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    let managed = Managed::new(call.caller(), "configure", &queue);
    let changes = call.json::<SettingsIn>(&app).await?.changes(&app.store.limits().defaults)?;
    configured(&app, managed, queue, changes).await
}

/// `POST /v1/queues/{queue}/pause`
pub(crate) async fn pause(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    let managed = Managed::new(call.caller(), "pause", &queue);
    let pause = call.fields::<PauseIn>(&app).await?.pause(app.clock.now().wall)?;
    configured(&app, managed, queue, vec![SettingChange::Set(Setting::Pause(pause))]).await
}

/// `POST /v1/queues/{queue}/resume`
pub(crate) async fn resume(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    let managed = Managed::new(call.caller(), "resume", &queue);
    call.fields::<NoFieldsIn>(&app).await?;
    let change = SettingChange::running(app.store.limits().defaults.pause);
    configured(&app, managed, queue, vec![change]).await
}

/// Changes settings, and answers with the queue as it is then.
async fn configured(
    app: &App,
    managed: Managed,
    queue: QueueName,
    changes: Vec<SettingChange>,
) -> Result<Response<Body>, Problem> {
    let stats = managed.done(app.store.configure(queue, changes).await, |_| None)?;
    Ok(json(StatusCode::OK, &QueueStats::from(stats)))
}

/// `POST /v1/queues/{queue}/purge`
pub(crate) async fn purge(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    let managed = Managed::new(call.caller(), "purge", &queue);
    call.fields::<NoFieldsIn>(&app).await?;
    let removed = managed.done(app.store.purge(queue).await, |removed| Some(*removed))?;
    Ok(json(StatusCode::OK, &Removed { removed }))
}

/// `DELETE /v1/queues/{queue}`
pub(crate) async fn delete(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    let managed = Managed::new(call.caller(), "delete_queue", &queue);
    call.fields::<NoFieldsIn>(&app).await?;
    let deleted = managed.done(app.store.delete_queue(queue.clone()).await, |removed| Some(*removed));
    // What the configuration says of the queue stays in force. Also where it was deleted by a call that has failed after that.
    if matches!(deleted, Ok(_) | Err(Error::UnknownQueue { .. })) {
        app.configured.restore(&*app.store, &queue).await?;
    }
    let removed = deleted?;
    Ok(json(StatusCode::OK, &Removed { removed }))
}

/// `GET /v1/limits`
pub(crate) async fn limits(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    let limits = app.store.limits();
    let (names, wait_ms) = (app.most_names(), app.config.max_wait_ms);
    let out = server_info(limits, names, wait_ms, app.json_bytes(), app.line_bytes());
    Ok(json(StatusCode::OK, &out))
}
