//! Refusals as RFC 9457 problems, and the one table from codes to statuses.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use dwell_model::{Invalid, MessageId};
use dwell_store::Error;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use super::Refusal;
use crate::json::Text;

/// What a code means over HTTP.
#[derive(Debug)]
pub(crate) struct Kind {
    /// The stable word.
    pub(crate) code: &'static str,
    /// The HTTP status.
    pub(crate) status: u16,
    /// One short sentence, the same for every occurrence.
    pub(crate) title: &'static str,
}

const fn kind(status: u16, code: &'static str, title: &'static str) -> Kind {
    Kind { code, status, title }
}

/// Every code that this server answers with. `docs/http.md` lists the same; a test compares them.
pub(crate) const KINDS: &[Kind] = &[
    // The request itself.
    kind(400, "malformed_request", "The request can not be read"),
    kind(400, "unknown_parameter", "There is no such parameter here"),
    kind(400, "invalid_parameter", "A parameter has a value it can not have"),
    kind(400, "wait_too_long", "The wait is longer than this server allows"),
    kind(400, "too_many_names", "The take names more queues than it may"),
    kind(400, "malformed_json", "The body is not JSON"),
    kind(400, "unknown_field", "There is no such JSON field here"),
    kind(400, "invalid_field", "A JSON field has a value it can not have"),
    kind(400, "missing_field", "Something that is required is missing"),
    kind(400, "conflicting_fields", "Two things were given that exclude each other"),
    kind(401, "token_required", "A token is required"),
    kind(401, "token_unknown", "The token is not known"),
    kind(403, "forbidden", "The token is not good for this"),
    kind(403, "foreign_host", "The request is meant for another host"),
    kind(403, "foreign_origin", "The request comes from a foreign web page"),
    kind(404, "unknown_route", "There is nothing at this path"),
    kind(405, "method_not_allowed", "This path has no such method"),
    kind(408, "request_timeout", "The request did not arrive in time"),
    kind(413, "request_too_large", "The request is too large"),
    kind(415, "unsupported_media_type", "The content type is not the one expected"),
    kind(503, "too_many_connections", "There are too many connections"),
    kind(503, "overloaded", "The server or its store holds as much as it may"),
    kind(503, "shutting_down", "The server is shutting down"),
    kind(500, "internal", "The server made a mistake"),
    // Values that no store would accept.
    kind(400, "due_out_of_range", "The instant lies outside 1970 to 9999"),
    kind(400, "malformed_instant", "This is not an instant"),
    kind(400, "malformed_delay", "This is not a duration"),
    kind(400, "negative_delay", "The delay is negative"),
    kind(400, "unknown_level", "The queue has no such delay level"),
    kind(400, "expires_before_due", "The message would expire before it is due"),
    kind(400, "malformed_id", "This is not a message id"),
    kind(400, "malformed_number", "This is not a message number"),
    kind(400, "malformed_receipt", "This is not a receipt"),
    kind(400, "malformed_cursor", "This is not a cursor"),
    kind(400, "invalid_queue_name", "This can not name a queue"),
    kind(400, "invalid_key", "This can not be a key"),
    kind(400, "invalid_token", "This can not be an idempotency token"),
    kind(400, "invalid_header", "This can not be a message's header"),
    kind(400, "error_text_too_long", "The error text is too long"),
    kind(400, "invalid_setting", "The setting can not have this value"),
    kind(413, "body_too_large", "The message's body is too large"),
    kind(413, "batch_too_large", "The batch has too many items"),
    kind(431, "headers_too_large", "The message's headers are too large"),
    // What a store finds.
    kind(404, "unknown_queue", "There is no such queue"),
    kind(404, "message_not_found", "There is no such message"),
    kind(410, "lease_lost", "The lease is lost"),
    kind(409, "key_taken", "The key is taken"),
    kind(409, "leased", "Somebody holds the message"),
    kind(409, "dead", "The message is dead"),
    kind(409, "not_dead", "The message is not dead"),
    kind(409, "setting_fixed", "The setting can not change now"),
    kind(429, "queue_full", "The queue is full"),
    kind(429, "too_many_queues", "There are too many queues"),
    kind(429, "too_many_leased", "Too many messages are leased"),
    kind(429, "too_many_waiting", "Too many takes are waiting"),
    kind(500, "outcome_unknown", "It may or may not have happened"),
    kind(507, "disk_full", "The disk is nearly full"),
    kind(503, "exhausted", "Ids are used up"),
    kind(503, "foreign_data", "The store can not read its data"),
    kind(503, "closed", "The store is closed"),
    kind(503, "unavailable", "The store can not serve"),
];

/// The entry of `code`.
pub(crate) fn lookup(code: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.code == code)
}

/// A refusal, on its way to the caller.
#[derive(Debug)]
pub(crate) struct Problem {
    kind: &'static Kind,
    detail: String,
    retryable: bool,
    id: Option<MessageId>,
    limit: Option<u64>,
    /// Whether it is a store's, which counts its refusals itself.
    is_stores: bool,
}

/// In the extensions of an answer: that it is a refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) code: &'static str,
    /// Whether the store has counted it.
    pub(crate) is_counted: bool,
}

impl Problem {
    /// A refusal of the server's own, and a sentence about this occurrence.
    pub(crate) fn new(refusal: Refusal, detail: impl Into<String>) -> Problem {
        Problem { retryable: refusal.is_retryable(), ..Problem::about(refusal.code(), detail) }
    }

    /// A problem with one of the store's codes. One that the table does not know yet is our mistake.
    pub(crate) fn about(code: &'static str, detail: impl Into<String>) -> Problem {
        let kind = lookup(code).or_else(|| lookup(Refusal::Internal.code()));
        let kind = kind.expect("the table has an entry for our mistakes");
        Problem { kind, detail: detail.into(), retryable: false, id: None, limit: None, is_stores: false }
    }

    /// What a store has found, and called no refusal.
    pub(crate) fn found(error: Error) -> Problem {
        Problem { is_stores: false, ..error.into() }
    }

    /// The same, naming the limit that was passed.
    pub(crate) fn with_limit(self, limit: u64) -> Problem {
        Problem { limit: Some(limit), ..self }
    }

    /// The same for those who may know its code alone.
    pub(crate) fn with_detail(self, detail: &str) -> Problem {
        Problem { detail: detail.to_owned(), ..self }
    }

    /// Its code, unless it is a store's, which has counted it.
    pub(crate) fn uncounted(&self) -> Option<&'static str> {
        (!self.is_stores).then_some(self.kind.code)
    }

    /// What is said about this occurrence.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// The status it is answered with.
    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.kind.status).expect("the table holds statuses")
    }
}

/// Seconds after which a retryable refusal is worth another try. All of them pass as soon as somebody
/// else makes room, which nobody can foretell.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
struct Wire<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Text<MessageId>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
}

impl JsonSchema for Problem {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Wire::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Wire::json_schema(generator);
        let codes: Vec<&str> = KINDS.iter().map(|kind| kind.code).collect();
        let code = schema.pointer_mut("/properties/code").expect("a problem has a code");
        code["enum"] = codes.into();
        schema
    }
}

impl Serialize for Problem {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let wire = Wire {
            r#type: format!("/errors/{}", self.kind.code),
            title: self.kind.title,
            status: self.kind.status,
            detail: &self.detail,
            code: self.kind.code,
            retryable: self.retryable,
            id: self.id.map(Text),
            limit: self.limit,
        };
        wire.serialize(serializer)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        let body = serde_json::to_vec(&self).expect("a problem has only text and numbers");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status();
        response.extensions_mut().insert(Refused { code: self.kind.code, is_counted: self.is_stores });
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.status() == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"dwell\""));
        }
        if self.retryable {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Problem {
        let limit = match &invalid {
            Invalid::InvalidKey { limit, .. }
            | Invalid::InvalidToken { limit, .. }
            | Invalid::HeadersTooLarge { limit, .. }
            | Invalid::BodyTooLarge { limit, .. }
            | Invalid::ErrorTextTooLong { limit, .. }
            | Invalid::BatchTooLarge { limit, .. } => Some(*limit as u64),
            _ => None,
        };
        Problem { limit, ..Problem::about(invalid.code(), invalid.to_string()) }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let mut problem = Problem::about(error.code(), error.to_string());
        problem.retryable = may_pass(&error);
        problem.is_stores = true;
        match error {
            Error::Invalid(invalid) => return Problem { is_stores: true, ..invalid.into() },
            Error::KeyTaken { id } | Error::Leased { id } | Error::Dead { id } | Error::NotDead { id } => {
                problem.id = Some(id);
            }
            Error::QueueFull { limit, .. } => problem.limit = Some(limit),
            Error::TooManyQueues { limit }
            | Error::TooManyLeased { limit }
            | Error::TooManyWaiting { limit } => problem.limit = Some(limit as u64),
            _ => {}
        }
        problem
    }
}

/// Whether the same request may succeed later. Who speaks to a server cannot open its store again: to them, that somebody has to is
/// one more thing that may pass.
fn may_pass(error: &Error) -> bool {
    error.is_retryable() || matches!(error, Error::Stopped { .. } | Error::OutcomeUnknown { .. })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dwell_model::{QueueName, SettingName, Timestamp};

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
            Error::SettingFixed { queue, setting: SettingName::Spread },
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
            Invalid::InvalidToken { text: text(), limit: 1 },
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
            let (code, retryable) = (error.code(), may_pass(&error));
            let problem = Problem::from(error);
            assert_eq!(problem.kind.code, code, "the table does not have it");
            assert_eq!(problem.retryable, retryable, "{code}");
            let retry_after = problem.into_response().headers().contains_key(header::RETRY_AFTER);
            assert_eq!(retry_after, retryable, "{code}");
        }
    }

    #[test]
    fn a_store_that_must_be_opened_again_is_something_that_passes_to_a_client() {
        let unknown = |needs_reopen| Error::OutcomeUnknown { reason: "x".into(), needs_reopen };
        for error in [Error::Stopped { reason: "x".into() }, unknown(true), unknown(false)] {
            assert!(Problem::from(error).retryable);
        }
        assert!(!Problem::from(Error::Closed).retryable);
    }

    #[test]
    fn codes_are_unique_and_the_documentation_lists_the_same() {
        let codes: BTreeSet<&str> = KINDS.iter().map(|kind| kind.code).collect();
        assert_eq!(codes.len(), KINDS.len());
        let page = include_str!("../../../../docs/http.md");
        let mut documented = BTreeSet::new();
        for line in page.lines().filter(|line| line.starts_with("| 4") || line.starts_with("| 5")) {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let status: u16 = cells.next().unwrap().parse().unwrap();
            for code in cells.next().unwrap().split(", ").map(|cell| cell.trim_matches('`')) {
                assert_eq!(lookup(code).map(|kind| kind.status), Some(status), "{code}");
                documented.insert(code);
            }
        }
        assert_eq!(documented, codes);
    }
}
