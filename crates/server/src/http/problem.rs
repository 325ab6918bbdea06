//! Refusals as RFC 9457 problems.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use dwell_model::Invalid;
use dwell_store::Error;
use dwell_wire::{Code, Facts, lookup};
use serde::Serialize;

use super::HttpRefusal;

/// A refusal, for the caller.
#[derive(Debug)]
pub(crate) struct Problem {
    code: &'static Code,
    detail: String,
    /// Boxed: many have none, and the refusals of many items are held at a time.
    facts: Option<Box<Facts<'static>>>,
    /// Whether it is a store's, which counts its refusals itself.
    is_stores: bool,
}

/// Marks an answer as a refusal, in its extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IsRefusal {
    pub(crate) code: &'static str,
    /// Whether the store has counted it.
    pub(crate) is_counted: bool,
}

impl Problem {
    /// A refusal of the server's own, with a sentence about this occurrence.
    pub(crate) fn new(refusal: HttpRefusal, detail: impl Into<String>) -> Problem {
        Problem::about(refusal.code(), detail)
    }

    /// A problem with one of the store's codes. A code that is missing in the table is a bug.
    pub(crate) fn about(code: &'static str, detail: impl Into<String>) -> Problem {
        let code = lookup(code).or_else(|| lookup(HttpRefusal::Internal.code()));
        let code = code.expect("the table has an entry for our mistakes");
        Problem { code, detail: detail.into(), facts: None, is_stores: false }
    }

    /// An error that a store returned as a result and did not count as a refusal.
    pub(crate) fn found(error: Error) -> Problem {
        Problem { is_stores: false, ..error.into() }
    }

    /// The same, with the limit that was exceeded.
    pub(crate) fn with_limit(self, limit: u64) -> Problem {
        self.with_facts(Facts { limit: Some(limit), ..Facts::default() })
    }

    fn with_facts(self, facts: Facts<'static>) -> Problem {
        Problem { facts: (facts != Facts::default()).then(|| Box::new(facts)), ..self }
    }

    /// The same with this detail, for callers that may learn the code alone.
    pub(crate) fn with_detail(self, detail: &str) -> Problem {
        Problem { detail: detail.to_owned(), facts: None, ..self }
    }

    /// Its code, unless a store has counted it.
    pub(crate) fn uncounted(&self) -> Option<&'static str> {
        (!self.is_stores).then_some(self.code.code)
    }

    /// The sentence about this occurrence.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// The status of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.code.status).expect("the table holds statuses")
    }
}

/// Seconds after which a retryable refusal is worth another try. Each of them passes as soon as others make room, which
/// cannot be predicted.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

impl Problem {
    fn with<'a>(&self, detail: Cow<'a, str>) -> dwell_wire::Problem<'a> {
        let Code { code, status, title, retryable } = *self.code;
        let kind = format!("/errors/{code}").into();
        let facts = self.facts.as_deref().cloned().unwrap_or_default();
        let (title, code) = (title.into(), code.into());
        dwell_wire::Problem { kind, title, status, detail, code, retryable, facts }
    }
}

impl From<Problem> for dwell_wire::Problem<'static> {
    fn from(mut problem: Problem) -> dwell_wire::Problem<'static> {
        let detail = std::mem::take(&mut problem.detail);
        problem.with(detail.into())
    }
}

impl Serialize for Problem {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.with(Cow::Borrowed(&self.detail)).serialize(serializer)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        let body = serde_json::to_vec(&self).expect("a problem has only text and numbers");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status();
        response.extensions_mut().insert(IsRefusal { code: self.code.code, is_counted: self.is_stores });
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.status() == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"dwell\""));
        }
        if self.code.retryable {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}

impl From<dwell_delivery::Error> for Problem {
    fn from(error: dwell_delivery::Error) -> Problem {
        match error {
            dwell_delivery::Error::Store(error) => error.into(),
            // As a store refuses it.
            dwell_delivery::Error::ReservedQueue { queue } => Problem::found(Error::QueueReserved { queue }),
            error => Problem::about(error.code(), error.to_string()),
        }
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Problem {
        let facts = Facts::of_invalid(&invalid);
        Problem::about(invalid.code(), invalid.to_string()).with_facts(facts)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let problem = Problem::about(error.code(), error.to_string()).with_facts(Facts::of(&error));
        Problem { is_stores: true, ..problem }
    }
}

#[cfg(test)]
mod tests {
    use dwell_model::{MessageId, QueueName, SettingName, Timestamp};

    use super::*;

    fn store_errors() -> Vec<Error> {
        let queue = QueueName::new("q").unwrap();
        let id = MessageId::new(Timestamp::MIN, 0, 0, 1);
        vec![
            Error::UnknownQueue { queue: queue.clone() },
            Error::MessageNotFound { queue: queue.clone() },
            Error::LeaseLost,
            Error::KeyTaken { id },
            Error::Leased { id },
            Error::Dead { id },
            Error::NotDead { id },
            Error::QueueFull { queue: queue.clone(), limit: 1 },
            Error::TooManyQueues { limit: 1 },
            Error::TooManyLeased { limit: 1 },
            Error::TooManyWaiting { limit: 1 },
            Error::SettingFixed { queue: queue.clone(), setting: SettingName::Partitions },
            Error::QueueReserved { queue },
            Error::OutcomeUnknown { reason: "x".into(), needs_reopen: false },
            Error::DiskFull { reason: "x".into() },
            Error::ForeignData { reason: "x".into() },
            Error::Overloaded { reason: "x".into() },
            Error::Exhausted { what: "ids", needs_reopen: true },
            Error::Closed,
            Error::Stopped { reason: "x".into() },
            Error::Unavailable { reason: "x".into() },
        ]
    }

    fn invalid_values() -> Vec<Invalid> {
        let text = || Box::from("x");
        vec![
            Invalid::DueOutOfRange { ms: -1 },
            Invalid::MalformedInstant { text: text() },
            Invalid::MalformedDelay { text: text() },
            Invalid::NegativeDelay { text: text() },
            Invalid::UnknownLevel { level: 1, levels: 0 },
            Invalid::ExpiresBeforeDue { expires: Timestamp::MIN, due: Timestamp::MIN },
            Invalid::MalformedId { text: text() },
            Invalid::MalformedNumber { text: text() },
            Invalid::MalformedReceipt { text: text() },
            Invalid::MalformedCursor { text: text() },
            Invalid::InvalidQueueName { name: text() },
            Invalid::InvalidKey { len: 0, limit: 1 },
            Invalid::InvalidIdempotencyKey { text: text(), limit: 1 },
            Invalid::InvalidHeader { name: text() },
            Invalid::HeadersTooLarge { len: 2, limit: 1 },
            Invalid::BodyTooLarge { len: 2, limit: 1 },
            Invalid::ErrorTextTooLong { len: 2, limit: 1 },
            Invalid::BatchTooLarge { len: 2, limit: 1 },
            Invalid::InvalidSetting { setting: "lease", reason: text() },
        ]
    }

    #[test]
    fn every_code_of_the_store_has_a_status_and_keeps_its_retryability() {
        for error in store_errors().into_iter().chain(invalid_values().into_iter().map(Error::Invalid)) {
            // A client of a server cannot reopen its store: to the client this error may pass like others.
            let retryable = error.is_retryable() || matches!(error, Error::Stopped { .. });
            let code = error.code();
            let problem = Problem::from(error);
            assert_eq!(problem.code.code, code, "the table does not have it");
            assert_eq!(problem.code.retryable, retryable, "{code}");
            let retry_after = problem.into_response().headers().contains_key(header::RETRY_AFTER);
            assert_eq!(retry_after, retryable, "{code}");
        }
    }

    #[test]
    fn a_store_that_must_be_opened_again_is_something_that_passes_to_a_client() {
        let unknown = |needs_reopen| Error::OutcomeUnknown { reason: "x".into(), needs_reopen };
        for error in [Error::Stopped { reason: "x".into() }, unknown(true), unknown(false)] {
            assert!(Problem::from(error).code.retryable);
        }
        assert!(!Problem::from(Error::Closed).code.retryable);
    }
}
