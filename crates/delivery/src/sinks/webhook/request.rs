//! The request of a message: its body unchanged, and its attributes in headers.

use bytes::Bytes;
use dwell_store::Delivery;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::signature::{Secret, sign};
use super::target::Target;

/// Headers of a message that are forwarded under their own names: those of tracing.
const PASSED_ON: [&str; 2] = ["traceparent", "tracestate"];

/// The request for a message. `timestamp` is that of this attempt, in seconds since 1970; `left_out` is a header that
/// is not forwarded.
pub(super) fn request(
    delivery: &Delivery,
    target: &Target,
    secrets: &[Secret],
    timestamp: i64,
    left_out: Option<&str>,
) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(delivery.message.body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from(target.path.clone());
    *request.headers_mut() = headers(delivery, secrets, timestamp, left_out);
    request.headers_mut().insert(HOST, target.authority.clone());
    request
}

fn headers(delivery: &Delivery, secrets: &[Secret], timestamp: i64, left_out: Option<&str>) -> HeaderMap {
    let message = &delivery.message;
    let mut headers = HeaderMap::new();
    let mut set = |name: &str, value: &str| {
        // Names and values were checked at the put: tokens, and text without control characters.
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes()))
        {
            // Far below the map's capacity: all headers together have at most 16 KiB of text.
            let _ = headers.try_append(name, value);
        }
    };
    let id = message.id.to_string();
    set(CONTENT_TYPE.as_str(), delivery.header("content-type").unwrap_or("application/octet-stream"));
    set(USER_AGENT.as_str(), concat!("dwell/", env!("CARGO_PKG_VERSION")));
    set("webhook-id", &id);
    set("webhook-timestamp", &timestamp.to_string());
    if !secrets.is_empty() {
        set("webhook-signature", &sign(secrets, &id, timestamp, &message.body));
    }
    set("dwell-id", &id);
    set("dwell-number", &message.number.to_string());
    set("dwell-queue", message.queue.as_str());
    set("dwell-attempt", &delivery.attempt().to_string());
    set("dwell-due", &message.standing.due.to_string());
    set("dwell-created", &message.created.to_string());
    if let Some(key) = &message.key {
        set("dwell-key", &utf8_percent_encode(key.as_str(), NON_ALPHANUMERIC).to_string());
    }
    for (name, value) in message.headers.iter() {
        if name.eq_ignore_ascii_case("content-type") || left_out == Some(name) {
            continue;
        }
        if PASSED_ON.iter().any(|passed_on| name.eq_ignore_ascii_case(passed_on)) {
            set(name, value);
        } else {
            set(&format!("dwell-header-{name}"), value);
        }
    }
    headers
}
