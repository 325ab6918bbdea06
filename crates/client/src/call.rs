//! A call: what it sends, and how its answer is read.

use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use dwell_store::{Error, Result};
use dwell_wire::{Path, Problem, Unreadable};
use http_body_util::Full;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::client::Inner;
use crate::retry::{Attempts, Repeat};
use crate::transport::{Caller, Failure, Polls, StatusAndBody};

/// The most items in one request.
pub(crate) const CHUNK_ITEMS: usize = 1_000;
/// The most bytes of items in one request; a single item may be larger.
pub(crate) const CHUNK_BYTES: usize = 1024 * 1024;

/// The body of a request.
#[derive(Clone)]
enum Payload {
    Nothing,
    Json(Bytes),
    Lines(Bytes),
}

/// A request.
pub(crate) struct Call {
    path: Path,
    payload: Payload,
    repeat: Repeat,
    /// Whether the call changes nothing, whatever its method.
    reads: bool,
    /// How long the server may wait before it answers.
    wait_ms: u64,
}

impl Call {
    /// A read, whatever its method.
    pub(crate) fn read(path: Path) -> Call {
        Call { reads: true, ..Call::change(path) }.harmless()
    }

    /// A change that must not be repeated.
    pub(crate) fn change(path: Path) -> Call {
        Call { path, payload: Payload::Nothing, repeat: Repeat::Never, reads: false, wait_ms: 0 }
    }

    pub(crate) fn json(self, value: &impl Serialize) -> Call {
        Call { payload: Payload::Json(to_json(value).into()), ..self }
    }

    pub(crate) fn lines(self, lines: Bytes) -> Call {
        Call { payload: Payload::Lines(lines), ..self }
    }

    /// Marks the call as harmless to repeat.
    pub(crate) fn harmless(self) -> Call {
        Call { repeat: Repeat::Harmless, ..self }
    }

    /// Sets how long the server may wait before it answers.
    pub(crate) fn wait_ms(self, wait_ms: u64) -> Call {
        Call { wait_ms, ..self }
    }
}

pub(crate) fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("our own types are JSON")
}

/// The answer to one item.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Each<T> {
    Refused { error: Box<Problem<'static>> },
    Done(T),
}

#[derive(Deserialize)]
struct Answers<T> {
    answers: Vec<Each<T>>,
}

impl Inner {
    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>> {
        let (media, body) = match &call.payload {
            Payload::Nothing => (None, Bytes::new()),
            Payload::Json(body) => (Some("application/json"), body.clone()),
            Payload::Lines(body) => (Some("application/x-ndjson"), body.clone()),
        };
        let mut request = Request::new(Full::new(body));
        let odd =
            |error: &dyn std::fmt::Display| self.bad_answer(&format!("no request can be made: {error}"));
        let method = call.path.operation().route().method;
        *request.method_mut() = method.parse::<Method>().map_err(|error| odd(&error))?;
        *request.uri_mut() = call.path.as_str().parse().map_err(|error| odd(&error))?;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("dwell/", env!("CARGO_PKG_VERSION"))));
        if let Some(media) = media {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        }
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        Ok(request)
    }

    /// Sends `call` on the polling thread and returns the body of a successful answer.
    pub(crate) async fn bytes(&self, call: Call) -> Result<Bytes> {
        self.bytes_for(call, &mut Polls).await
    }

    async fn bytes_for(&self, call: Call, caller: &mut impl Caller) -> Result<Bytes> {
        let limit = Duration::from_millis(self.answer_ms.saturating_add(call.wait_ms));
        let mut attempts = Attempts::new(call.repeat, self.patience_ms);
        let answer = loop {
            let answered = self.transport.exchange(self.request(&call)?, limit, caller).await;
            match attempts.after(self.answered(answered)) {
                ControlFlow::Break(answer) => break answer,
                ControlFlow::Continue(pause) => tokio::time::sleep(pause).await,
            }
        };
        match answer {
            // A read changes nothing, so the server is merely unreachable.
            Err(Error::OutcomeUnknown { reason, .. }) if call.reads => Err(self.unreachable(reason)),
            answer => answer,
        }
    }

    fn answered(&self, answered: std::result::Result<StatusAndBody, Failure>) -> Result<Bytes> {
        match answered {
            Ok((status, body)) if status.is_success() => Ok(body),
            Ok((status, body)) => Err(match serde_json::from_slice::<Problem<'static>>(&body) {
                Ok(problem) => problem.into_error(&self.server),
                // A proxy answered: its server may have gone away during the
                // request. 503 means that the request was not passed on.
                Err(_) if status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE => {
                    unknown(&format!("{} answers {status}", self.server))
                }
                Err(_) => self.bad_answer(&format!("status {status}")),
            }),
            Err(Failure::NotSent(reason)) => Err(self.unreachable(reason.into())),
            Err(Failure::Lost(reason)) => Err(unknown(&reason)),
        }
    }

    /// Sends `call` and parses a JSON answer.
    pub(crate) async fn send<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        self.send_for(call, &mut Polls).await
    }

    /// As [`send`](Inner::send), for a caller that may be dropped while the request is under way.
    pub(crate) async fn send_for<T: DeserializeOwned>(
        &self,
        call: Call,
        caller: &mut impl Caller,
    ) -> Result<T> {
        let reads = call.reads;
        let bytes = self.bytes_for(call, caller).await?;
        serde_json::from_slice(&bytes).map_err(|error| self.unreadable(reads, &error))
    }

    /// Sends items in as many requests as they need, and returns one answer per item.
    pub(crate) async fn send_all<I: Serialize, A: DeserializeOwned>(
        &self,
        items: Vec<I>,
        call: impl Fn() -> Call,
    ) -> Vec<Result<A>> {
        // The server itself checks a batch that is sent whole.
        if items.len() > CHUNK_ITEMS
            && let Err(error) = self.check_batch(items.len()).await
        {
            return vec_of(items.len(), &error);
        }
        let mut answers = Vec::with_capacity(items.len());
        for (array, count) in arrays(&items) {
            let call = Call { payload: Payload::Json(array), ..call() };
            answers.extend(self.send_items(call, count).await);
        }
        answers
    }

    /// Sends `call`, which carries `items` items, and returns one answer per
    /// item. If the call fails as a whole, each item fails with its error.
    async fn send_items<T: DeserializeOwned>(&self, call: Call, items: usize) -> Vec<Result<T>> {
        let reads = call.reads;
        match self.send::<Answers<T>>(call).await {
            Ok(Answers { answers }) if answers.len() == items => {
                answers.into_iter().map(|each| self.done(each)).collect()
            }
            Ok(Answers { answers }) => {
                let error = self.miscounted(reads, answers.len(), items);
                vec_of(items, &error)
            }
            Err(error) => vec_of(items, &error),
        }
    }

    pub(crate) fn done<T>(&self, each: Each<T>) -> Result<T> {
        match each {
            Each::Refused { error } => Err(error.into_error(&self.server)),
            Each::Done(done) => Ok(done),
        }
    }

    fn unreachable(&self, reason: Box<str>) -> Error {
        Error::Unreachable { server: self.server.clone(), reason }
    }

    pub(crate) fn bad_answer(&self, reason: &str) -> Error {
        Error::BadAnswer { server: self.server.clone(), reason: reason.into() }
    }

    /// The error for a success whose body cannot be read. A change may have been made.
    pub(crate) fn unreadable(&self, reads: bool, reason: &dyn std::fmt::Display) -> Error {
        let error = self.bad_answer(&reason.to_string());
        if reads { error } else { unknown(&error.to_string()) }
    }

    /// The same for the answer to a change whose JSON has the right form but an impossible value.
    pub(crate) fn no_value(&self, reason: Unreadable) -> Error {
        self.unreadable(false, &reason)
    }

    pub(crate) fn miscounted(&self, reads: bool, answers: usize, items: usize) -> Error {
        self.unreadable(reads, &format_args!("{answers} answers came to {items} items"))
    }
}

/// The same error for each of `items` items.
pub(crate) fn vec_of<T>(items: usize, error: &Error) -> Vec<Result<T>> {
    (0..items).map(|_| Err(error.clone())).collect()
}

fn unknown(reason: &str) -> Error {
    Error::OutcomeUnknown { reason: reason.into(), needs_reopen: false }
}

/// Items as JSON arrays of at most [`CHUNK_ITEMS`] and [`CHUNK_BYTES`], but
/// of at least one item; each array with its number of items.
fn arrays(items: &[impl Serialize]) -> Vec<(Bytes, usize)> {
    let (mut arrays, mut array, mut count) = (Vec::new(), vec![b'['], 0);
    for (place, item) in items.iter().enumerate() {
        if count > 0 {
            array.push(b',');
        }
        serde_json::to_writer(&mut array, item).expect("our own types are JSON");
        count += 1;
        if count == CHUNK_ITEMS || array.len() >= CHUNK_BYTES || place + 1 == items.len() {
            array.push(b']');
            arrays.push((std::mem::replace(&mut array, vec![b'[']).into(), std::mem::take(&mut count)));
        }
    }
    arrays
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_cut_by_their_number_and_their_bytes() {
        let cut = |items: &[&str]| arrays(items).into_iter().map(|(_, count)| count).collect::<Vec<_>>();
        assert_eq!(cut(&[]), [] as [usize; 0]);
        assert_eq!(cut(&["x"; 2_001]), [1_000, 1_000, 1]);
        let long = "x".repeat(CHUNK_BYTES);
        assert_eq!(cut(&["x", &long, &long, "x"]), [2, 1, 1]);
        assert_eq!(arrays(&["x", "y"]), [("[\"x\",\"y\"]".into(), 2)]);
    }
}
