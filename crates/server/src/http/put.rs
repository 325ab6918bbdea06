//! Puts messages: one with its raw body, one under its key, many at once.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use dwell_model::{DEFAULT_PRIORITY, Headers, IdempotencyKey, Key, QueueName};
use dwell_store::{OnConflict, Put};
use dwell_wire::{ON_CONFLICT, PutAnswer, Verb, WhenFields};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::batch::{self, BatchOperation};
use super::call::HttpCall;
use super::{App, HttpRefusal, Problem, access, reply};
use crate::json::{self, FromQuery as _, ItemAnswer as _, object};
use crate::security::Caller;

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const MESSAGE_HEADER: &str = "dwell-header-";
const CONTENT_TYPE: &str = "content-type";

/// `POST /v1/queues/{queue}/messages`
pub(crate) async fn put(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let key = None;
    put_one(&app, call, key, OnConflict::Reject).await
}

/// `PUT /v1/queues/{queue}/keys/{key}`: replaces the message with the key, as PUT means it.
pub(crate) async fn put_key(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let key = call.parsed("key")?;
    put_one(&app, call, Some(key), OnConflict::Replace).await
}

async fn put_one(
    app: &App,
    call: HttpCall,
    key: Option<Key>,
    on_conflict: OnConflict,
) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    let mut query = call.query()?;
    let mut put = Put::new(queue.clone(), "");
    put.when = json::when(WhenFields::from_query(&mut query)?)?.unwrap_or_default();
    put.key = if key.is_some() { key } else { query.parsed("key")? };
    put.on_conflict = query.word("on_conflict", &ON_CONFLICT)?.unwrap_or(on_conflict);
    put.priority = query.number("priority")?.unwrap_or(DEFAULT_PRIORITY);
    put.expires = query.parsed("expires")?;
    put.max_attempts = query.attempts("max_attempts")?;
    put.lease_ms = query.duration_ms("lease")?;
    query.finish()?;
    put.headers = message_headers(call.headers())?;
    put.idempotency_key = idempotency_key(call.headers())?;
    put.body = call.message_body(app).await?;

    let answer = app.store.put(vec![put]).await.pop().expect("a store answers each item")?;
    let out = PutAnswer::from(answer);
    let mut response = reply::json(out.status(), &out);
    if out.status() == StatusCode::CREATED {
        let location = format!("/v1/queues/{}/messages/{}", segment(&queue), out.id);
        let location = HeaderValue::try_from(location).expect("percent-encoded names and ids are ASCII");
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// The message's headers: the content type, and every `Dwell-Header-…`.
fn message_headers(given: &HeaderMap) -> Result<Headers, Problem> {
    let mut pairs = Vec::new();
    for (name, value) in given {
        let name = match name.as_str() {
            CONTENT_TYPE => CONTENT_TYPE,
            other => match other.strip_prefix(MESSAGE_HEADER) {
                Some(name) => name,
                None if other.starts_with("dwell-") => {
                    let detail =
                        format!("there is no request header '{other:.80}'; Dwell-Header-<name> is there");
                    return Err(Problem::new(HttpRefusal::UnknownParameter, detail));
                }
                None => continue,
            },
        };
        if pairs.iter().any(|(given, _)| *given == name) {
            return Err(Problem::new(
                HttpRefusal::ConflictingFields,
                format!("header '{name:.80}' is given twice"),
            ));
        }
        let text = std::str::from_utf8(value.as_bytes())
            .map_err(|_| Problem::about("invalid_header", format!("header '{name:.80}' is not UTF-8")))?;
        pairs.push((name, text));
    }
    Ok(Headers::new(pairs)?)
}

fn idempotency_key(given: &HeaderMap) -> Result<Option<IdempotencyKey>, Problem> {
    let mut idempotency_keys = given.get_all(IDEMPOTENCY_KEY).iter();
    let Some(idempotency_key) = idempotency_keys.next() else { return Ok(None) };
    if idempotency_keys.next().is_some() {
        return Err(Problem::new(HttpRefusal::ConflictingFields, "Idempotency-Key is given twice"));
    }
    // Text that is not ASCII is not an idempotency key either; the idempotency key's own check gives the error.
    Ok(Some(IdempotencyKey::new(idempotency_key.to_str().unwrap_or_default())?))
}

/// A queue's name as one segment of a path (RFC 3986 §3.3: unreserved characters stay as they are).
fn segment(queue: &QueueName) -> impl std::fmt::Display {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(queue.as_str(), RESERVED)
}

/// `POST /v1/messages:batch`, and the same for one queue.
pub(crate) async fn put_many(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    if call.headers().contains_key(IDEMPOTENCY_KEY) {
        return Err(Problem::new(
            HttpRefusal::ConflictingFields,
            "Idempotency-Key is for one message; in a batch each item has its own `idempotency_key`",
        ));
    }
    let queue = match call.param("queue") {
        Some(name) => Some(name.parse()?),
        None => None,
    };
    let operation = PutMany { app: Arc::clone(&app), queue, caller: call.caller() };
    batch::run(app, call, operation).await
}

/// The memory that a header of a message holds in addition to its text: its entry in a map, an allocation for its name,
/// one for its value.
const HEADER_BYTES: usize = 80;

struct PutMany {
    app: Arc<App>,
    queue: Option<QueueName>,
    caller: Caller,
}

impl BatchOperation for PutMany {
    type Item = Put;
    type Answer = PutAnswer;

    fn beside(put: &Put) -> usize {
        put.headers.iter().count() * HEADER_BYTES
    }

    fn read(&self, text: &str) -> Result<Put, Problem> {
        let put = json::put(object(text)?, self.queue.as_ref())?;
        access::require(&self.caller, &[Verb::Put], &put.queue)?;
        Ok(put)
    }

    async fn run(&self, items: Vec<Put>) -> Vec<Result<PutAnswer, Problem>> {
        let answers = self.app.store.put(items).await;
        answers.into_iter().map(|answer| Ok(PutAnswer::from(answer?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_hold_more_than_their_text() {
        let names: Vec<String> = (0..1_000).map(|at| at.to_string()).collect();
        let mut put = Put::new("q".parse().unwrap(), "x");
        assert_eq!(PutMany::beside(&put), 0);
        put.headers = Headers::new(names.iter().map(|name| (&**name, ""))).unwrap();
        // An entry of the map alone is two wide pointers.
        assert!(PutMany::beside(&put) >= 1_000 * 2 * size_of::<Box<str>>());
    }
}
