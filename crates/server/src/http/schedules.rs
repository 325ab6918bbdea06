//! Schedules of the store: define, list, run, pause, delete.

use std::future::Future;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use dwell_delivery::schedule::{Defined, Listed, SchedulePage, Times};
use dwell_model::StateKind;
use dwell_store::Error;
use dwell_wire::{
    Instants, PutAnswer, Removed, Schedule, ScheduleDefined, ScheduleOutcome, Schedules, Verb, shown_body,
};

use super::call::HttpCall;
use super::reply::{holding, json};
use super::{App, HttpRefusal, Problem, access, audit_log};
use crate::delivery::Undefined;
use crate::json::{self, ItemAnswer as _, NoFieldsIn};
use crate::security::Caller;

/// The default number of instants shown, and the maximum.
const DEFAULT_COUNT: usize = 10;
const MOST_INSTANTS: usize = 1_000;

/// How many schedules are read at a time for the list of all.
const PAGE: usize = 100;
/// The longest body that the list has.
const LONGEST_BODY: usize = 4 * 1024;
/// About as much as a schedule has in memory beside its body and headers.
const OF_FIELDS: usize = 512;

/// The name in the path. One that no schedule can have is not found.
fn name(call: &HttpCall) -> String {
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
pub(crate) async fn list(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    app.check_room()?;
    let (mut listed, mut unread, mut held) = (Vec::new(), Vec::new(), app.memory.add(0));
    for state in [StateKind::Scheduled, StateKind::Ready, StateKind::Leased] {
        let mut after = None;
        loop {
            let page = app.delivery.schedules().page(state, after, PAGE);
            let bytes = |page: &dwell_delivery::Result<SchedulePage>| {
                page.as_ref().map_or(0, |page| page.schedules.iter().map(size).sum())
            };
            let (page, mut room) = app.bring(page, bytes).await?;
            let page = page?;
            let mut kept = 0;
            for found in page.schedules {
                let found = found.map(InList::of);
                kept += found.as_ref().map_or(OF_FIELDS, |found| size_of(&found.listed));
                match found {
                    Ok(found) => listed.push(found),
                    Err(error) => unread.push(Problem::from(error).into()),
                }
            }
            room.resize(kept as u64);
            held.absorb(room);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    listed.sort_by(|one, other| one.name().cmp(other.name()));
    // One that was run meanwhile may have been met as it was and as it is.
    listed.dedup_by(|one, other| one.name() == other.name());
    let schedules = listed.iter().map(InList::shown).collect();
    Ok(holding(json(StatusCode::OK, &Schedules { schedules, unread }), held))
}

/// A schedule in the list of all: a long body is left out there.
struct InList {
    listed: Listed,
    has_body: bool,
}

impl InList {
    fn of(listed: Listed) -> InList {
        let has_body = listed.schedule.run_body().len() <= LONGEST_BODY;
        let Listed { schedule, next, is_paused } = listed;
        // What is left out is not held either.
        let schedule = if has_body { schedule } else { schedule.body("") };
        InList { listed: Listed { schedule, next, is_paused }, has_body }
    }

    fn name(&self) -> &str {
        self.listed.schedule.name()
    }

    fn shown(&self) -> Schedule<'_> {
        let schedule = shown(&self.listed);
        if self.has_body { schedule } else { Schedule { body: None, body_base64: None, ..schedule } }
    }
}

fn size(found: &dwell_delivery::Result<Listed>) -> usize {
    found.as_ref().map_or(OF_FIELDS, size_of)
}

/// About as much as a schedule has in memory.
fn size_of(listed: &Listed) -> usize {
    let schedule = &listed.schedule;
    OF_FIELDS + schedule.run_body().len() + schedule.run_headers().size()
}

/// `GET /v1/schedules/{name}`
pub(crate) async fn one(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    app.check_room()?;
    let listed = app.delivery.schedules().get(&name(&call)).await?;
    Ok(json(StatusCode::OK, &shown(&listed)))
}

/// `GET /v1/schedules/{name}/next`
pub(crate) async fn next(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let mut query = call.query()?;
    let count = query.bounded("count", DEFAULT_COUNT, 1, MOST_INSTANTS)?;
    query.finish()?;
    app.check_room()?;
    let listed = app.delivery.schedules().get(&name(&call)).await?;
    let instants = listed.schedule.next(app.clock.now().wall, count);
    Ok(json(StatusCode::OK, &Instants { instants }))
}

/// `PUT /v1/schedules/{name}`
pub(crate) async fn put(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let (name, caller) = (name(&call), call.caller());
    let definition = json::schedule(call.json(&app).await?)?;
    let schedule = definition.schedule(&name).map_err(|undefined| match undefined {
        Undefined::Missing(what) => {
            Problem::new(HttpRefusal::MissingField, format!("a schedule needs {what}"))
        }
        Undefined::Conflict(_, what) => Problem::new(HttpRefusal::ConflictingFields, what),
        Undefined::Refused(error) => error.into(),
    })?;
    // Its runs are puts of what the caller has said.
    access::require(&caller, &[Verb::Put], schedule.queue())?;
    let (delivery, now) = (app.delivery.clone(), app.clock.now().wall);
    let define = async move {
        let defined = delivery.schedules().define(schedule, now).await?;
        delivery.look_again();
        Ok(defined)
    };
    let defined = finish(&caller, "put_schedule", &name, define).await?;
    let (status, outcome) = match defined {
        Defined::Created => (StatusCode::CREATED, ScheduleOutcome::Created),
        Defined::Changed => (StatusCode::OK, ScheduleOutcome::Changed),
        Defined::Unchanged => (StatusCode::OK, ScheduleOutcome::Unchanged),
    };
    Ok(json(status, &ScheduleDefined { outcome }))
}

/// `DELETE /v1/schedules/{name}`
pub(crate) async fn delete(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let (name, caller) = (name(&call), call.caller());
    call.fields::<NoFieldsIn>(&app).await?;
    let (schedules, of) = (app.delivery.schedules().clone(), name.clone());
    finish(&caller, "delete_schedule", &name, async move { schedules.delete(&of).await }).await?;
    Ok(json(StatusCode::OK, &Removed { removed: 1 }))
}

/// `POST /v1/schedules/{name}/run`
pub(crate) async fn run(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let (name, caller) = (name(&call), call.caller());
    call.fields::<NoFieldsIn>(&app).await?;
    let (schedules, of) = (app.delivery.schedules().clone(), name.clone());
    access::require(&caller, &[Verb::Put], schedules.get(&name).await?.schedule.queue())?;
    let answer = finish(&caller, "run_schedule", &name, async move { schedules.run(&of).await }).await?;
    let answer = PutAnswer::from(answer);
    Ok(json(answer.status(), &answer))
}

/// `POST /v1/schedules/{name}/pause`
pub(crate) async fn pause(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let (name, caller) = (name(&call), call.caller());
    call.fields::<NoFieldsIn>(&app).await?;
    let (schedules, of) = (app.delivery.schedules().clone(), name.clone());
    finish(&caller, "pause_schedule", &name, async move { schedules.pause(&of).await }).await?;
    Ok(json(StatusCode::OK, &shown(&app.delivery.schedules().get(&name).await?)))
}

/// `POST /v1/schedules/{name}/resume`
pub(crate) async fn resume(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
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
        audit_log::say_of(&said_by, what, &said_of, code);
        done
    });
    match doing.await {
        Ok(done) => Ok(done?),
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        Err(_) => Err(Error::Closed.into()),
    }
}
