//! Builds answers.

use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::admission::{ReservedBytes, SMALL};

/// The content type of most answers.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// `value` as bytes.
pub(crate) fn to_json<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes =
        serde_json::to_vec(value).expect("answers have text for keys, and nothing in them can fail");
    if bytes.len() >= SMALL {
        // A buffer that has doubled may be half empty, and would stay allocated.
        bytes.shrink_to_fit();
    }
    bytes
}

/// Room for a large answer, from when it is made until it is written.
#[derive(Clone, Debug)]
pub(crate) struct AnswerRoom(pub(crate) Arc<ReservedBytes>);

/// An answer with this extension holds nothing by itself: all answers share one body in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedBody;

/// The answer, for which `held` was set aside.
pub(crate) fn holding(mut response: Response<Body>, mut held: ReservedBytes) -> Response<Body> {
    held.resize(response.body().size_hint().lower());
    response.extensions_mut().insert(AnswerRoom(Arc::new(held)));
    response
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
