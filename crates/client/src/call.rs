//! A call: what it sends, and what an answer to it means.

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
use crate::transport::{Answered, Caller, Failure, Polls};

/// A request has at most so many items,
pub(crate) const CHUNK_ITEMS: usize = 1_000;
/// and at most so many bytes of them, but always one item.
pub(crate) const CHUNK_BYTES: usize = 1024 * 1024;

/// What a request carries.
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
    /// Whether it changes nothing, whatever its method.
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

    /// Harmless to repeat.
    pub(crate) fn harmless(self) -> Call {
        Call { repeat: Repeat::Harmless, ..self }
    }

    /// The server may wait so long before it answers.
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

    /// Sends `call` for whoever polls it, and gives the bytes of a good answer.
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
            // Nothing has changed, so all that is known is that there is no answer.
            Err(Error::OutcomeUnknown { reason, .. }) if call.reads => Err(self.unreachable(reason)),
            answer => answer,
        }
    }

    fn answered(&self, answered: std::result::Result<Answered, Failure>) -> Result<Bytes> {
        match answered {
            Ok((status, body)) if status.is_success() => Ok(body),
            Ok((status, body)) => Err(match serde_json::from_slice::<Problem<'static>>(&body) {
                Ok(problem) => problem.into_error(&self.server),
                // A proxy: the server may have gone away under the request. 503 is for what was not passed on.
                Err(_) if status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE => {
                    unknown(&format!("{} answers {status}", self.server))
                }
                Err(_) => self.bad_answer(&format!("status {status}")),
            }),
            Err(Failure::NotSent(reason)) => Err(self.unreachable(reason.into())),
            Err(Failure::Lost(reason)) => Err(unknown(&reason)),
        }
    }

    /// Sends `call` and reads a JSON answer.
    pub(crate) async fn send<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        self.send_for(call, &mut Polls).await
    }

    /// The same for a caller who may go while it is under way.
    pub(crate) async fn send_for<T: DeserializeOwned>(
        &self,
        call: Call,
        caller: &mut impl Caller,
    ) -> Result<T> {
        let reads = call.reads;
        let bytes = self.bytes_for(call, caller).await?;
        serde_json::from_slice(&bytes).map_err(|error| self.unreadable(reads, &error))
    }

    /// Sends items, in as many requests as they need; one answer an item.
    pub(crate) async fn send_all<I: Serialize, A: DeserializeOwned>(
        &self,
        items: Vec<I>,
        call: impl Fn() -> Call,
    ) -> Vec<Result<A>> {
        // A batch that is sent as one the server checks itself.
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

    /// Sends `call` of so many items; one answer an item. Where it failed as a whole, each item fails with its error.
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

    /// A success that cannot be read. A change may have been made.
    pub(crate) fn unreadable(&self, reads: bool, reason: &dyn std::fmt::Display) -> Error {
        let error = self.bad_answer(&reason.to_string());
        if reads { error } else { unknown(&error.to_string()) }
    }

    /// The same of an answer to a change, whose JSON is of the right form.
    pub(crate) fn no_value(&self, reason: Unreadable) -> Error {
        self.unreadable(false, &reason)
    }

    pub(crate) fn miscounted(&self, reads: bool, answers: usize, items: usize) -> Error {
        self.unreadable(reads, &format_args!("{answers} answers came to {items} items"))
    }
}

/// So many answers with the same error.
pub(crate) fn vec_of<T>(items: usize, error: &Error) -> Vec<Result<T>> {
    (0..items).map(|_| Err(error.clone())).collect()
}

fn unknown(reason: &str) -> Error {
    Error::OutcomeUnknown { reason: reason.into(), needs_reopen: false }
}

/// Items as JSON arrays, each of at most [`CHUNK_ITEMS`] and [`CHUNK_BYTES`], but always of one item; each with how many it has.
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
