//! Schedules of the store: define, list, run, pause, delete.

use std::future::Future;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use dwell_delivery::schedule::{Defined, Listed, Times};
use dwell_store::Error;
use dwell_wire::{
    Instants, PutAnswer, Removed, Schedule, ScheduleDefined, ScheduleOutcome, Schedules, shown_body,
};

use super::call::Call;
use super::managed;
use super::reply::json;
use super::{App, Problem, Refusal};
use crate::delivery::Undefined;
use crate::json::{self, Answer as _, NoFieldsIn};
use crate::security::Caller;

/// The default number of instants shown, and the maximum.
const DEFAULT_COUNT: usize = 10;
const MOST_INSTANTS: usize = 1_000;

/// The name in the path. An invalid name is not found.
fn name(call: &Call) -> String {
    call.param("name").expect("the route has this parameter").to_owned()
}

fn shown(listed: &Listed) -> Schedule<'_> {
    let Listed { schedule, next, is_paused } = listed;
    let (body, body_base64) = shown_body(schedule.run_body());
    let (cron, dialect, zone, every_ms) = match schedule.times() {
        Times::Cron { cron, zone_name, .. } => {
            (Some(cron.as_str()), cron.dialect().map(|dialect| dialect.as_str()), Some(&**zone_name), None)
        }
        Times::Every(every) => (None, None, None, Some(every.as_ms())),
    };
    Schedule {
        name: schedule.name().into(),
        queue: schedule.queue().clone(),
        cron: cron.map(Into::into),
        dialect: dialect.map(Into::into),
        zone: zone.map(Into::into),
        every_ms,
        body,
        body_base64,
        headers: schedule.run_headers().clone(),
        missed: schedule.on_missed().as_str().into(),
        overlap: schedule.on_overlap().as_str().into(),
        jitter_ms: schedule.longest_jitter_ms(),
        paused: *is_paused,
        next: *next,
    }
}

/// `GET /v1/schedules`
pub(crate) async fn list(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    app.check_room()?;
    let (mut listed, mut unread) = (Vec::new(), Vec::new());
    for schedule in app.delivery.schedules().list().await? {
        match schedule {
            Ok(schedule) => listed.push(schedule),
            Err(error) => unread.push(Problem::from(error).into()),
        }
    }
    listed.sort_by(|one, other| one.schedule.name().cmp(other.schedule.name()));
    // A schedule that was run meanwhile may be listed twice, before and after.
    listed.dedup_by(|one, other| one.schedule.name() == other.schedule.name());
    let schedules = listed.iter().map(shown).collect();
    Ok(json(StatusCode::OK, &Schedules { schedules, unread }))
}

/// `GET /v1/schedules/{name}`
pub(crate) async fn one(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    app.check_room()?;
    let listed = app.delivery.schedules().get(&name(&call)).await?;
    Ok(json(StatusCode::OK, &shown(&listed)))
}

/// `GET /v1/schedules/{name}/next`
pub(crate) async fn next(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    let mut query = call.query()?;
    let count = query.bounded("count", DEFAULT_COUNT, 1, MOST_INSTANTS)?;
    query.finish()?;
    app.check_room()?;
    let listed = app.delivery.schedules().get(&name(&call)).await?;
    let instants = listed.schedule.next(app.clock.now().wall, count);
    Ok(json(StatusCode::OK, &Instants { instants }))
}

/// `PUT /v1/schedules/{name}`
pub(crate) async fn put(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    let (name, caller) = (name(&call), call.caller());
    let definition = json::schedule(call.json(&app).await?)?;
    let schedule = definition.schedule(&name).map_err(|undefined| match undefined {
        Undefined::Missing(what) => Problem::new(Refusal::MissingField, format!("a schedule needs {what}")),
        Undefined::Conflict(_, what) => Problem::new(Refusal::ConflictingFields, what),
        Undefined::Refused(error) => error.into(),
    })?;
    let (schedules, now) = (app.delivery.schedules().clone(), app.clock.now().wall);
    let define = async move { schedules.define(schedule, now).await };
    let defined = finish(&caller, "put_schedule", &name, define).await?;
    app.delivery.look_again();
    let (status, outcome) = match defined {
        Defined::Created => (StatusCode::CREATED, ScheduleOutcome::Created),
        Defined::Changed => (StatusCode::OK, ScheduleOutcome::Changed),
        Defined::Unchanged => (StatusCode::OK, ScheduleOutcome::Unchanged),
    };
    Ok(json(status, &ScheduleDefined { outcome }))
}

/// `DELETE /v1/schedules/{name}`
pub(crate) async fn delete(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    let (name, caller) = (name(&call), call.caller());
    call.fields::<NoFieldsIn>(&app).await?;
    let (schedules, of) = (app.delivery.schedules().clone(), name.clone());
    finish(&caller, "delete_schedule", &name, async move { schedules.delete(&of).await }).await?;
    Ok(json(StatusCode::OK, &Removed { removed: 1 }))
}

/// `POST /v1/schedules/{name}/run`
pub(crate) async fn run(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    let (name, caller) = (name(&call), call.caller());
    call.fields::<NoFieldsIn>(&app).await?;
    let (schedules, of) = (app.delivery.schedules().clone(), name.clone());
    let answer = finish(&caller, "run_schedule", &name, async move { schedules.run(&of).await }).await?;
    let answer = PutAnswer::from(answer);
    Ok(json(answer.status(), &answer))
}

/// `POST /v1/schedules/{name}/pause`
pub(crate) async fn pause(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    let (name, caller) = (name(&call), call.caller());
    call.fields::<NoFieldsIn>(&app).await?;
    let (schedules, of) = (app.delivery.schedules().clone(), name.clone());
    finish(&caller, "pause_schedule", &name, async move { schedules.pause(&of).await }).await?;
    Ok(json(StatusCode::OK, &shown(&app.delivery.schedules().get(&name).await?)))
}

/// `POST /v1/schedules/{name}/resume`
pub(crate) async fn resume(State(app): State<Arc<App>>, call: Call) -> Result<Response<Body>, Problem> {
    let (name, caller) = (name(&call), call.caller());
    call.fields::<NoFieldsIn>(&app).await?;
    let (schedules, of) = (app.delivery.schedules().clone(), name.clone());
    finish(&caller, "resume_schedule", &name, async move { schedules.resume(&of).await }).await?;
    Ok(json(StatusCode::OK, &shown(&app.delivery.schedules().get(&name).await?)))
}

/// Runs it to completion and logs it. A client that disconnects meanwhile does not leave the schedule leased, and so
/// busy until the lease is over.
async fn finish<T: Send + 'static>(
    caller: &Caller,
    what: &'static str,
    name: &str,
    work: impl Future<Output = dwell_delivery::Result<T>> + Send + 'static,
) -> Result<T, Problem> {
    let (said_by, said_of) = (caller.clone(), name.to_owned());
    let doing = tokio::spawn(async move {
        let done = work.await;
        let code = done.as_ref().err().map(dwell_delivery::Error::code);
        managed::say_of(&said_by, what, &said_of, code);
        done
    });
    match doing.await {
        Ok(done) => Ok(done?),
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        Err(_) => Err(Error::Closed.into()),
    }
}
