//! Takes messages: from one queue or several, with or without a wait, or one by its id.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Response, StatusCode, header};
use dwell_model::{Holder, QueueName, format_duration_ms};
use dwell_store::{Delivery, Error, Take};
use dwell_wire::{Taken, Verb};

use super::call::HttpCall;
use super::connection::Unwritten;
use super::handover::Handover;
use super::reply::{JSON, holding, to_json, with_type};
use super::{App, HttpRefusal, Problem, messages};
use crate::admission::{ConnectionNames, FREE_NAMES};
use crate::json::LeaseIn;
use crate::query::Query;

/// The default of body bytes in one answer, and the maximum.
const DEFAULT_MAX_BYTES: usize = 8 * 1024 * 1024;
const HIGHEST_MAX_BYTES: usize = 64 * 1024 * 1024;

/// `POST /v1/queues/{queue}/take`, `POST /v1/take?queue=a&queue=b`
pub(crate) async fn take(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let raw = call.wants_raw();
    let unwritten = call.unwritten();
    let mut query = call.query()?;
    let queues = queues(&app, &call, &mut query)?;
    queues.iter().try_for_each(|queue| call.require(&[Verb::Take], queue))?;
    let most = if raw { 1 } else { app.store.limits().batch };
    let max = query.bounded("max", 1, 1, most)?;
    let max_bytes = query.bounded("max_bytes", DEFAULT_MAX_BYTES, 0, HIGHEST_MAX_BYTES)?;
    let take = Take {
        queues,
        max,
        max_bytes: Some(max_bytes.min(app.memory.answer_bytes())),
        wait_ms: query.duration_ms("wait")?.unwrap_or(0),
        lease_ms: query.duration_ms("lease")?,
        session: false,
        holder: query.text("holder")?.map(|holder| Holder::new(&holder)).transpose()?,
    };
    query.finish()?;
    let wait_limit_ms = app.config.max_wait_ms;
    if take.wait_ms > wait_limit_ms {
        let detail = format!("a take waits at most {} here; take again", format_duration_ms(wait_limit_ms));
        return Err(Problem::new(HttpRefusal::WaitTooLong, detail).with_limit(wait_limit_ms));
    }
    let caller = call.caller();
    nothing_in_the_body(call, &app).await?;

    app.check_room()?;
    let waits = take.wait_ms > 0;
    let _names = if waits { Some(room_for_names(&app, take.queues.len())?) } else { None };
    let (taken, held) = tokio::select! {
        biased;
        // The next take is refused with the reason.
        () = app.live.changed(&caller), if waits => (Ok(Vec::new()), app.memory.add(0)),
        brought = app.bring(app.store.take(take), bytes_taken) => brought?,
        // Dropping the take leaves its messages in place.
        () = app.drained(), if waits => (Ok(Vec::new()), app.memory.add(0)),
    };
    let mut deliveries = taken?;
    give_back_surplus(&app, &unwritten, &mut deliveries);
    let receipts = deliveries.iter().map(|delivery| delivery.receipt.clone()).collect();
    if raw {
        return Ok(match deliveries.into_iter().next() {
            None => no_content(),
            Some(delivery) => holding(raw_delivery(delivery, unwritten), held),
        });
    }
    let out = Taken { messages: deliveries.iter().map(dwell_wire::Delivery::from).collect() };
    let body = Handover::new(to_json(&out).into(), receipts, unwritten);
    Ok(holding(with_type(StatusCode::OK, JSON, Body::new(body)), held))
}

/// Room for the names that a take waits on, for as long as it waits.
fn room_for_names(app: &App, count: usize) -> Result<ConnectionNames, Problem> {
    app.memory.names(count).ok_or_else(|| {
        let detail = format!(
            "takes wait on as many queues as the server has room for; wait on {FREE_NAMES} at most, or try again later"
        );
        Problem::about("too_many_waiting", detail)
    })
}

fn bytes_taken(taken: &Result<Vec<Delivery>, Error>) -> usize {
    messages::bytes_of(taken.iter().flatten().map(|delivery| &delivery.message))
}

/// Gives back what exceeds the size of one answer. A store counts bodies alone towards the `max_bytes` of a take, and a
/// message may have sixteen thousand bytes of headers with a short body.
fn give_back_surplus(app: &App, unwritten: &Unwritten, deliveries: &mut Vec<Delivery>) {
    let (mut bytes, most) = (0, app.memory.answer_bytes());
    let fits = |delivery: &&Delivery| {
        bytes += messages::bytes_of([&delivery.message]);
        bytes <= most
    };
    let fitting = deliveries.iter().take_while(fits).count().max(1);
    if fitting < deliveries.len() {
        let surplus = deliveries.drain(fitting..).map(|delivery| delivery.receipt);
        unwritten.returns().give_back(surplus.collect());
    }
}

/// The queue in the path, or those in the query: repeated, or separated by commas.
fn queues(app: &App, call: &HttpCall, query: &mut Query) -> Result<Vec<QueueName>, Problem> {
    if call.param("queue").is_some() {
        return Ok(vec![call.queue()?]);
    }
    let given = query.all("queue");
    if given.is_empty() {
        return Err(Problem::new(
            HttpRefusal::MissingField,
            "parameter 'queue' is required: one or more names",
        ));
    }
    let names = given.iter().flat_map(|names| names.split(','));
    let limit = app.most_names();
    if names.clone().count() > limit {
        let detail = format!("a take names at most {limit} queues; share them out among several");
        return Err(Problem::new(HttpRefusal::TooManyNames, detail).with_limit(limit as u64));
    }
    Ok(names.map(QueueName::new).collect::<Result<_, _>>()?)
}

/// `POST /v1/queues/{queue}/messages/{id}/take`
pub(crate) async fn take_id(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let raw = call.wants_raw();
    let unwritten = call.unwritten();
    let queue = call.queue()?;
    let id = call.parsed("id")?;
    let caller = call.caller();
    let terms = call.fields::<LeaseIn>(&app).await?.terms()?;
    app.check_room()?;
    // A take ends a delay and revives a dead message, so the message must not be refused after that.
    let mut held = app.set_aside(&caller).await?;
    let delivery = app.store.take_id(queue, id, terms).await?;
    held.resize(messages::bytes_of([&delivery.message]) as u64);
    if raw {
        return Ok(holding(raw_delivery(delivery, unwritten), held));
    }
    let body = to_json(&dwell_wire::Delivery::from(&delivery));
    let body = Handover::new(body.into(), vec![delivery.receipt], unwritten);
    Ok(holding(with_type(StatusCode::OK, JSON, Body::new(body)), held))
}

/// A take has its parameters in its query. An unread body would stay in the connection, and hyper could not detect a
/// disconnect behind it.
async fn nothing_in_the_body(call: HttpCall, app: &App) -> Result<(), Problem> {
    if call.text(app).await?.is_empty() {
        return Ok(());
    }
    Err(Problem::new(HttpRefusal::ConflictingFields, "a take has its parameters in the query, and no body"))
}

fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn raw_delivery(delivery: Delivery, unwritten: Arc<Unwritten>) -> Response<Body> {
    let mut response = messages::raw(&delivery.message);
    let headers = response.headers_mut();
    let mut set = |name, text: String| {
        headers.insert(name, HeaderValue::try_from(text).expect("receipts, instants and numbers are ASCII"));
    };
    set("dwell-receipt", delivery.receipt.to_string());
    set("dwell-lease-until", delivery.lease_until.to_string());
    set("dwell-taken-at", delivery.taken_at.to_string());
    set("dwell-lateness-ms", delivery.lateness_ms.to_string());
    let body = Handover::new(delivery.message.body, vec![delivery.receipt], unwritten);
    *response.body_mut() = Body::new(body);
    response
}
