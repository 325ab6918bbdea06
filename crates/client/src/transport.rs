//! One request and its answer: what came of it, told apart by what may have happened at the server.

use std::io;
use std::time::Duration;

use dwell_wire::Path;
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::{Request, StatusCode};

use crate::retry::Repeat;
use crate::{Client, Error, Problem, Result};

/// No answer is longer: the most bodies of one take (64 MiB), each byte written as six (`\u0000`), and with room.
const MAX_ANSWER_LEN: u64 = 512 * 1024 * 1024;

/// What a request carries.
pub(crate) enum Payload {
    Nothing,
    Json(Vec<u8>),
    Lines(Vec<u8>),
}

impl Payload {
    pub(crate) fn json(value: &impl Serialize) -> Payload {
        Payload::Json(serde_json::to_vec(value).expect("our own types are JSON"))
    }
}

/// A request.
pub(crate) struct Call {
    path: Path,
    payload: Payload,
    repeat: Repeat,
    /// Whether it changes nothing, whatever its method.
    reads: bool,
    /// How long the server may wait of its own accord.
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

    /// With something to carry.
    pub(crate) fn payload(self, payload: Payload) -> Call {
        Call { payload, ..self }
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

impl Client {
    /// Sends `call` and reads a JSON answer.
    pub(crate) fn send<T: DeserializeOwned>(&self, call: &Call) -> Result<T> {
        let answer = self.send_for_bytes(call)?;
        serde_json::from_slice(&answer).map_err(|error| self.bad_answer(&error.to_string()))
    }

    /// Sends `call` and gives the bytes of a good answer.
    pub(crate) fn send_for_bytes(&self, call: &Call) -> Result<Vec<u8>> {
        self.call(call.repeat, || self.exchange(call)).map_err(|error| match error {
            Error::OutcomeUnknown { reason } if call.reads => {
                Error::Unreachable { server: self.server.clone(), reason }
            }
            error => error,
        })
    }

    fn exchange(&self, call: &Call) -> Result<Vec<u8>> {
        let method = call.path.operation().route().method;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{}", self.server, call.path.as_str()))
            .header("accept", "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", &*authorization.0);
        }
        let answer_in = Duration::from_millis(self.answer_ms.saturating_add(call.wait_ms));
        let built = |error: ureq::http::Error| self.bad_answer(&format!("no request can be made: {error}"));
        let sent = match &call.payload {
            Payload::Nothing if matches!(method, "GET" | "DELETE") => {
                self.run(request.body(()).map_err(built)?, answer_in)
            }
            Payload::Nothing => self.run(request.body(&[] as &[u8]).map_err(built)?, answer_in),
            Payload::Json(bytes) => {
                let request = request.header("content-type", "application/json");
                self.run(request.body(bytes.as_slice()).map_err(built)?, answer_in)
            }
            Payload::Lines(bytes) => {
                let request = request.header("content-type", "application/x-ndjson");
                self.run(request.body(bytes.as_slice()).map_err(built)?, answer_in)
            }
        };
        let (status, bytes) = sent.map_err(|error| self.failure(&error))?;
        if status.is_success() { Ok(bytes) } else { Err(self.refusal(status, &bytes)) }
    }

    fn run(
        &self,
        request: Request<impl ureq::AsSendBody>,
        answer_in: Duration,
    ) -> std::result::Result<(StatusCode, Vec<u8>), ureq::Error> {
        let request = self.agent.configure_request(request).timeout_global(Some(answer_in)).build();
        let mut response = self.agent.run(request)?;
        let status = response.status();
        let bytes = response.body_mut().with_config().limit(MAX_ANSWER_LEN).read_to_vec()?;
        Ok((status, bytes))
    }

    /// What a request that brought no answer means.
    fn failure(&self, error: &ureq::Error) -> Error {
        if was_sent(error) {
            Error::OutcomeUnknown { reason: error.to_string().into() }
        } else {
            Error::Unreachable { server: self.server.clone(), reason: error.to_string().into() }
        }
    }

    /// What an answer that is no success means.
    fn refusal(&self, status: StatusCode, bytes: &[u8]) -> Error {
        match serde_json::from_slice::<Problem>(bytes) {
            Ok(problem) => Error::Refused(Box::new(problem)),
            // A proxy's way to say that the server went away under the request.
            Err(_) if matches!(status.as_u16(), 502 | 504) => {
                Error::OutcomeUnknown { reason: format!("a proxy answers {status}").into() }
            }
            Err(_) => self.bad_answer(&format!("status {status}")),
        }
    }

    pub(crate) fn bad_answer(&self, reason: &str) -> Error {
        Error::BadAnswer { server: self.server.clone(), reason: reason.into() }
    }
}

/// Whether the server may have seen the request.
fn was_sent(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed | ureq::Error::BadUri(_) => false,
        ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect) => false,
        // Keys are agreed on before anything is said.
        ureq::Error::Tls(_) | ureq::Error::Pem(_) | ureq::Error::Rustls(_) => false,
        ureq::Error::Io(error) if is_of_the_handshake(error) => false,
        ureq::Error::Io(error) => !matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::AddrNotAvailable
        ),
        _ => true,
    }
}

/// Whether the server's certificate was not accepted. rustls says so in the middle of reading, as an error of
/// the socket's.
fn is_of_the_handshake(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData && error.to_string().contains("certificate")
}
