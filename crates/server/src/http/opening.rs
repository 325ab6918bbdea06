//! HTTP while the store is being opened: the process is live, and every other request has to be retried.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode, header};
use axum::response::IntoResponse as _;
use dwell_store::Error;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Problem;
use super::body::Lingering;
use super::connection::{MAX_HEAD_BYTES, MAX_HEADERS};
use super::health::{HealthOut, LIVE};
use super::reply::json;
use crate::listener::Stream;
use crate::security::Tls;

/// The timeout of a connection's one request and its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers one request, and closes.
pub(crate) async fn answer(stream: TcpStream, tls: Option<Tls>) {
    // A client that takes longer or disconnects gets no answer; nothing depends on it.
    let _ = timeout(PATIENCE, serve(stream, tls)).await;
}

async fn serve(stream: TcpStream, tls: Option<Tls>) {
    let stream = match tls {
        None => Stream::Plain(stream),
        Some(tls) => match tls.accept(stream).await {
            Some(stream) => stream,
            None => return,
        },
    };
    let service =
        service_fn(|request: Request<Incoming>| async move { Ok::<_, Infallible>(response(request)) });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    // A connection's error is the client's: it disconnected, or does not speak HTTP.
    let _ = connection.await;
}

fn response(request: Request<Incoming>) -> Response<Body> {
    let (parts, incoming) = request.into_parts();
    // The rest of the body is read, so that a reset does not overtake the answer.
    drop(Lingering::new(incoming, parts.headers.contains_key(header::EXPECT)));
    if parts.method == Method::GET && parts.uri.path() == "/health/live" {
        return json(StatusCode::OK, &HealthOut { status: LIVE });
    }
    let reason = "the store is being opened; what was put before is there when that is done";
    Problem::from(Error::Unavailable { reason: reason.into() }).into_response()
}
