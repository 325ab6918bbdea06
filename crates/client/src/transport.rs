//! One request and its answer, over a pool of connections.
//!
//! Ground rules:
//! 1. A connection carries one request at a time. A request that is dropped closes its connection. A connection returns
//!    to the pool only after its answer was read to the end.
//! 2. A request that may have been sent is never retried here: only its caller knows whether it may be repeated. A
//!    request that a pooled connection has not accepted is sent over a new one.
//! 3. A request whose caller is dropped ends with a half-closed connection: the server sees that its client has gone, and
//!    what it had written before is still read. So each message of a take is given back by exactly one side.

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::socket::{HalfClose, Socket};

/// The longest answer: the most bodies of one take (64 MiB), each byte written as six (`\u0000`), with room to spare.
const MAX_ANSWER_LEN: usize = 512 * 1024 * 1024;

/// The most idle connections in the pool.
const MAX_IDLE: usize = 16;

/// How long a server may take to notice that its client has gone.
const NOTICE: Duration = Duration::from_secs(10);

/// The address of the server.
#[derive(Clone, Debug)]
pub(crate) struct ServerAddress {
    /// A host name or an address, without the brackets of IPv6.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The value of the `Host` header.
    pub(crate) authority: HeaderValue,
    /// The TLS configuration, for `https`.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request has not reached the server.
    NotSent(String),
    /// The server may have processed the request.
    Lost(String),
}

/// An answer: its status and its body.
pub(crate) type StatusAndBody = (StatusCode, Bytes);

/// The caller that waits for an answer.
pub(crate) trait Caller: Send {
    /// Ready once the caller has been dropped.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()>;
}

/// A caller that polls the request itself: when it is dropped, so is the request.
pub(crate) struct Polls;

impl Caller for Polls {
    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl<T: Send> Caller for oneshot::Sender<T> {
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.poll_closed(context)
    }
}

/// A connection.
struct PooledConnection {
    requests: SendRequest<Full<Bytes>>,
    connection: Driver,
    half_close: HalfClose,
    /// Reused with the connection: to move a timer costs the reactor nothing.
    deadline: Pin<Box<Sleep>>,
}

/// Reads and writes a connection, only while it is polled.
struct Driver(Option<Pin<Box<Spoken>>>);

/// hyper's side of a connection.
type Spoken = Connection<TokioIo<Socket>, Full<Bytes>>;

impl Driver {
    fn poll(&mut self, context: &mut Context<'_>) {
        if let Some(connection) = &mut self.0
            && connection.as_mut().poll(context).is_ready()
        {
            // The request under way returns the error.
            self.0 = None;
        }
    }

    /// Polls `future` together with the connection that it waits for.
    async fn drive<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(output);
            }
            self.poll(context);
            future.as_mut().poll(context)
        })
        .await
    }
}

/// A pool of connections to one server.
pub(crate) struct Transport {
    place: ServerAddress,
    connect: Duration,
    idle: Mutex<Vec<PooledConnection>>,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("place", &self.place.authority).finish_non_exhaustive()
    }
}

impl Transport {
    pub(crate) fn new(place: ServerAddress, connect_ms: u64) -> Transport {
        Transport { place, connect: Duration::from_millis(connect_ms), idle: Mutex::default() }
    }

    /// Sends a request and reads the whole answer, within `limit`. Must be polled inside the reactor's context.
    pub(crate) async fn exchange(
        &self,
        mut request: Request<Full<Bytes>>,
        limit: Duration,
        caller: &mut impl Caller,
    ) -> Result<StatusAndBody, Failure> {
        request.headers_mut().insert(HOST, self.place.authority.clone());
        loop {
            // The lock is released before the first await.
            let idle = self.idle().pop();
            let (mut line, is_new) = match idle {
                Some(line) => (line, false),
                None => (self.connect().await?, true),
            };
            match line.exchange(request, limit, caller).await {
                Ok(answered) => {
                    self.keep(line);
                    return Ok(answered);
                }
                // The server has closed the idle connection.
                Err(NoAnswer::Unsent(unsent)) if !is_new => request = *unsent,
                Err(NoAnswer::Unsent(_)) => {
                    return Err(Failure::NotSent("the server closed the connection".to_owned()));
                }
                Err(NoAnswer::Failed(failure)) => return Err(failure),
            }
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<PooledConnection>> {
        // Nothing that can panic runs while the lock is held.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, line: PooledConnection) {
        if line.connection.0.is_none() || line.half_close.is_asked() {
            return;
        }
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE {
            idle.push(line);
        }
    }

    async fn connect(&self) -> Result<PooledConnection, Failure> {
        match timeout(self.connect, self.connect_untimed()).await {
            Ok(line) => line,
            Err(_) => Err(Failure::NotSent(format!("no connection in {} ms", self.connect.as_millis()))),
        }
    }

    async fn connect_untimed(&self) -> Result<PooledConnection, Failure> {
        let not_sent = |error: &dyn fmt::Display| Failure::NotSent(error.to_string());
        let address = (self.place.host.as_str(), self.place.port);
        let stream = TcpStream::connect(address).await.map_err(|error| not_sent(&error))?;
        // A request is one small write, and its caller waits for the answer.
        stream.set_nodelay(true).map_err(|error| not_sent(&error))?;
        let half_close = HalfClose::default();
        let socket = match &self.place.tls {
            None => Socket::plain(stream, half_close.clone()),
            Some(config) => {
                let name = ServerName::try_from(self.place.host.clone()).map_err(|error| not_sent(&error))?;
                let connector = TlsConnector::from(Arc::clone(config));
                let stream = connector.connect(name, stream).await.map_err(|error| not_sent(&error))?;
                Socket::tls(stream, half_close.clone())
            }
        };
        let shaken = handshake(TokioIo::new(socket)).await;
        let (requests, connection) = shaken.map_err(|error| not_sent(&error))?;
        let connection = Driver(Some(Box::pin(connection)));
        Ok(PooledConnection { requests, connection, half_close, deadline: Box::pin(sleep(self.connect)) })
    }
}

/// Why a connection returned no answer.
enum NoAnswer {
    /// It has not accepted the request.
    Unsent(Box<Request<Full<Bytes>>>),
    Failed(Failure),
}

impl PooledConnection {
    async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        limit: Duration,
        caller: &mut impl Caller,
    ) -> Result<StatusAndBody, NoAnswer> {
        let PooledConnection { requests, connection, half_close, deadline } = self;
        // A `Sleep` that is never polled computes its deadline without a timer.
        deadline.as_mut().reset(sleep(limit).deadline());
        let mut answer = pin!(async {
            if connection.drive(requests.ready()).await.is_err() {
                return Err(NoAnswer::Unsent(Box::new(request)));
            }
            let response = connection.drive(requests.try_send_request(request)).await;
            let response = response.map_err(|mut error| match error.take_message() {
                Some(unsent) => NoAnswer::Unsent(Box::new(unsent)),
                None => NoAnswer::Failed(failure(error.error())),
            })?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER_LEN).collect();
            let body = connection.drive(body).await;
            let body = body.map_err(|error| NoAnswer::Failed(Failure::Lost(chain(&*error))))?;
            Ok((status, body.to_bytes()))
        });
        let mut has_gone = false;
        poll_fn(|context| {
            if !has_gone && caller.poll_gone(context).is_ready() {
                has_gone = true;
                half_close.ask();
                deadline.as_mut().reset(sleep(NOTICE.min(limit)).deadline());
            }
            if let Poll::Ready(answered) = answer.as_mut().poll(context) {
                return Poll::Ready(answered);
            }
            let late = || NoAnswer::Failed(Failure::Lost(format!("no answer in {limit:?}")));
            deadline.as_mut().poll(context).map(|()| Err(late()))
        })
        .await
    }
}

/// Classifies the error of a connection. TLS 1.3 lets a client write before the server has verified its certificate: a
/// server that refuses the certificate has read nothing else.
fn failure(error: &hyper::Error) -> Failure {
    let text = chain(error);
    if causes(error).any(refuses_certificate) { Failure::NotSent(text) } else { Failure::Lost(text) }
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// An error with its causes. hyper's own text leaves the cause out.
fn chain(error: &(dyn Error + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn refuses_certificate(cause: &(dyn Error + 'static)) -> bool {
    let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let alert = match inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(alert)) => *alert,
        _ => return false,
    };
    matches!(
        alert,
        AlertDescription::AccessDenied
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError
            | AlertDescription::UnknownCA
            | AlertDescription::UnsupportedCertificate
    )
}
