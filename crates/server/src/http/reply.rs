//! Making answers.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

/// The content type of what most routes answer with.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// `value` as bytes.
pub(crate) fn to_json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("answers have text for keys, and nothing in them can fail")
}

/// An answer in JSON.
pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> Response<Body> {
    with_type(status, JSON, Body::from(to_json(value)))
}

/// An answer with this content type.
pub(crate) fn with_type(status: StatusCode, content_type: HeaderValue, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
