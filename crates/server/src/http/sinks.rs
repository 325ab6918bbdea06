//! The sinks that this server runs: their counts, and pausing them.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use dwell_delivery::sinks::webhook::Tried;
use dwell_wire::{SinkTested, Sinks};

use super::audit_log;
use super::call::HttpCall;
use super::reply::json;
use super::{App, HttpRefusal, Problem};
use crate::delivery::Sink;
use crate::json::NoFieldsIn;

/// The name in the path.
fn name(call: &HttpCall) -> String {
    call.param("name").expect("the route has this parameter").to_owned()
}

/// The sink of this name.
fn named(app: &App, name: &str) -> Result<Arc<Sink>, Problem> {
    app.delivery.sink(name).ok_or_else(|| {
        let detail = format!("this server runs no sink '{name:.200}'; look at /v1/sinks");
        Problem::new(HttpRefusal::UnknownSink, detail)
    })
}

/// `GET /v1/sinks`
pub(crate) async fn list(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    let sinks = app.delivery.sinks().iter().map(|sink| sink.shown()).collect();
    Ok(json(StatusCode::OK, &Sinks { sinks }))
}

/// `GET /v1/sinks/{name}`
pub(crate) async fn one(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    Ok(json(StatusCode::OK, &named(&app, &name(&call))?.shown()))
}

/// `POST /v1/sinks/{name}/test`
pub(crate) async fn test(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let name = name(&call);
    call.fields::<NoFieldsIn>(&app).await?;
    let tested = match named(&app, &name)?.test().await {
        Tried::Reached => SinkTested { reached: Some(true), error: None },
        Tried::Failed(error) => SinkTested { reached: Some(false), error: Some(error) },
        Tried::NoneToTry => SinkTested { reached: None, error: None },
    };
    Ok(json(StatusCode::OK, &tested))
}

/// `POST /v1/sinks/{name}/pause`
pub(crate) async fn pause(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    changed(&app, call, "pause_sink", Sink::pause).await
}

/// `POST /v1/sinks/{name}/resume`
pub(crate) async fn resume(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    changed(&app, call, "resume_sink", Sink::resume).await
}

async fn changed(
    app: &App,
    call: HttpCall,
    what: &'static str,
    change: fn(&Sink),
) -> Result<Response<Body>, Problem> {
    let (name, caller) = (name(&call), call.caller());
    call.fields::<NoFieldsIn>(app).await?;
    let sink = named(app, &name)?;
    change(&sink);
    audit_log::say_of(&caller, what, sink.name(), None);
    Ok(json(StatusCode::OK, &sink.shown()))
}
