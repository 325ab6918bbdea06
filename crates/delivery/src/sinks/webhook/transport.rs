//! Sends one request and reads the beginning of its answer, over pooled connections.
//!
//! Ground rules:
//! 1. The checked address is the one that is connected to: a name is resolved once per connection, its address checked,
//!    and the connection made to the address.
//! 2. An answer of any length takes bounded time and memory: its head has at most 64 KiB, the first KiB of its body is
//!    kept, and a body that is longer than 64 KiB or takes longer than two seconds closes the connection.
//! 3. A request that a pooled connection has not answered is sent once more over a new one, since the server has closed
//!    it meanwhile.

use std::collections::VecDeque;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dwell_store::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::RETRY_AFTER;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::address::{self, Network};
use super::target::{Origin, Target};
use crate::Error;

/// The bytes of an answer's body that are kept.
pub(super) const KEPT_LEN: usize = 1_024;
/// The bytes of an answer's body that are read, so that the connection can be reused.
const READ_LEN: usize = 64 * 1024;
/// The timeout of an answer's body, from the end of its head.
const BODY_TIME: Duration = Duration::from_secs(2);
/// The maximum size of an answer's head.
const HEAD_LEN: usize = 64 * 1024;
/// The timeout of a connection to one address.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// The maximum number of idle connections.
const MAX_IDLE: usize = 64;
/// The idle timeout of a connection, in milliseconds: shorter than most servers'.
const IDLE_MS: u64 = 30_000;

/// How many look-ups of names a sink has under way at most.
const LOOKUPS: usize = 32;

/// Finds the addresses of a host: a name, or an address as it stands in a URL.
pub(super) type Resolver =
    Arc<dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// The operating system's resolver, for one sink.
pub(super) fn system_resolver() -> Resolver {
    bounded(
        Arc::new(|host, port| {
            Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
        }),
        LOOKUPS,
    )
}

/// Limits a resolver to `at_once` concurrent look-ups. An abandoned look-up counts until it ends, since its thread stays
/// blocked in the system's resolver: a silent name server cannot occupy more threads than this. Addresses are not looked up.
fn bounded(resolver: Resolver, at_once: usize) -> Resolver {
    let places = Arc::new(Semaphore::new(at_once));
    Arc::new(move |host, port| {
        let (resolver, places) = (Arc::clone(&resolver), Arc::clone(&places));
        Box::pin(async move {
            if let Ok(address) = host.parse::<IpAddr>() {
                return Ok(vec![SocketAddr::new(address, port)]);
            }
            let place = places.acquire_owned().await.map_err(io::Error::other)?;
            let looking = tokio::spawn(async move {
                let _place = place;
                resolver(host, port).await
            });
            looking.await.map_err(io::Error::other)?
        })
    })
}

/// The addresses that may be connected to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reach<'a> {
    /// Any.
    Anywhere,
    /// Public ones, and those of these networks.
    Public(&'a [Network]),
}

/// The parts of an answer that are needed.
#[derive(Debug)]
pub(super) struct ResponseParts {
    pub(super) status: StatusCode,
    pub(super) retry_after: Option<String>,
    /// At most [`KEPT_LEN`] bytes.
    pub(super) body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// No connection.
    Refused(String),
    /// The connection broke while the request was in flight.
    Cut(String),
    TimedOut(String),
    /// The host has no allowed address.
    Forbidden(Error),
    /// The answer is not HTTP, or its head has no end.
    NotHttp(String),
}

/// A connection. Dropping it ends its task.
struct Connection {
    requests: SendRequest<Full<Bytes>>,
    task: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Idle {
    origin: Origin,
    line: Connection,
    since_ms: u64,
}

/// Connections to any number of hosts.
pub(super) struct Transport {
    tls: Arc<ClientConfig>,
    resolver: Resolver,
    idle: Mutex<VecDeque<Idle>>,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").finish_non_exhaustive()
    }
}

impl Transport {
    pub(super) fn new(tls: Arc<ClientConfig>, resolver: Resolver) -> Transport {
        Transport { tls, resolver, idle: Mutex::default() }
    }

    /// Sends a request and reads the beginning of its answer, within `limit`. `now_ms` is monotonic.
    pub(super) async fn exchange(
        &self,
        target: &Target,
        reach: Reach<'_>,
        request: Request<Full<Bytes>>,
        limit: Duration,
        now_ms: u64,
    ) -> Result<ResponseParts, NoAnswer> {
        // A sleep that is not polled computes an instant without reading a clock.
        let deadline = sleep(limit).deadline();
        let (line, response) = timeout_at(deadline, self.head(target, reach, request, now_ms))
            .await
            .map_err(|_| NoAnswer::TimedOut(format!("{} has not answered in {limit:?}", target.origin)))??;
        let (head, mut body) = response.into_parts();
        let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let mut answer = ResponseParts {
            status: head.status,
            retry_after: retry_after.map(str::to_owned),
            body: Vec::new(),
        };
        let body_deadline = sleep(BODY_TIME).deadline().min(deadline);
        // The status counts, whatever happens to the body.
        let ended = timeout_at(body_deadline, beginning(&mut body, &mut answer.body)).await;
        if ended == Ok(true) {
            self.keep(target.origin.clone(), line, now_ms);
        }
        Ok(answer)
    }

    /// Connects without a request, and keeps the connection for the next one.
    pub(super) async fn probe(
        &self,
        target: &Target,
        reach: Reach<'_>,
        limit: Duration,
        now_ms: u64,
    ) -> Result<(), NoAnswer> {
        let line = timeout(limit, self.connect(&target.origin, reach))
            .await
            .map_err(|_| NoAnswer::TimedOut(format!("no connection to {} in {limit:?}", target.origin)))??;
        self.keep(target.origin.clone(), line, now_ms);
        Ok(())
    }

    async fn head(
        &self,
        target: &Target,
        reach: Reach<'_>,
        request: Request<Full<Bytes>>,
        now_ms: u64,
    ) -> Result<(Connection, Response<Incoming>), NoAnswer> {
        // Its task may not have noticed yet that the last answer has ended: until then it refuses a request.
        if let Some(mut line) = self.idle(&target.origin, now_ms)
            && line.requests.ready().await.is_ok()
            && let Ok(response) = line.requests.send_request(request.clone()).await
        {
            return Ok((line, response));
        }
        let mut line = self.connect(&target.origin, reach).await?;
        match line.requests.send_request(request).await {
            Ok(response) => Ok((line, response)),
            Err(error) if error.is_parse() => Err(NoAnswer::NotHttp(format!(
                "{} does not answer as HTTP has it: {}",
                target.origin,
                chain(&error)
            ))),
            Err(error) => {
                Err(NoAnswer::Cut(format!("the connection to {} broke: {}", target.origin, chain(&error))))
            }
        }
    }

    async fn connect(&self, origin: &Origin, reach: Reach<'_>) -> Result<Connection, NoAnswer> {
        let refused =
            |error: &dyn fmt::Display| NoAnswer::Refused(format!("no connection to {origin}: {error}"));
        let stream = self.dial(origin, reach).await?;
        // A request is one write, and a slot waits for its answer.
        stream.set_nodelay(true).map_err(|error| refused(&error))?;
        if !origin.is_tls {
            return spoken(stream).await.map_err(|error| refused(&chain(&error)));
        }
        let name = ServerName::try_from(origin.host.clone()).map_err(|error| refused(&error))?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector.connect(name, stream).await.map_err(|error| refused(&chain(&error)))?;
        spoken(stream).await.map_err(|error| refused(&chain(&error)))
    }

    /// Connects to the first allowed address that accepts the connection.
    async fn dial(&self, origin: &Origin, reach: Reach<'_>) -> Result<TcpStream, NoAnswer> {
        let refused =
            |error: &dyn fmt::Display| NoAnswer::Refused(format!("no connection to {origin}: {error}"));
        let addresses = (self.resolver)(origin.host.clone(), origin.port).await;
        let mut why = None;
        let mut forbidden = None;
        for address in addresses.map_err(|error| refused(&error))? {
            if let Reach::Public(allowed) = reach
                && let Err(error) = address::check(address.ip(), allowed)
            {
                forbidden = Some(error);
                continue;
            }
            match timeout(CONNECT_TIME, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => why = Some(refused(&error)),
                Err(_) => why = Some(refused(&format_args!("none in {CONNECT_TIME:?}"))),
            }
        }
        // That an allowed address is down says more than that another one is not allowed.
        let forbidden = || forbidden.map(NoAnswer::Forbidden);
        Err(why.or_else(forbidden).unwrap_or_else(|| refused(&"its name has no address")))
    }

    fn idle(&self, origin: &Origin, now_ms: u64) -> Option<Connection> {
        // Nothing under the lock can panic.
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|idle| !idle.line.requests.is_closed() && now_ms < idle.since_ms.saturating_add(IDLE_MS));
        // The most recently used one is the most likely to be open still.
        let at = idle.iter().rposition(|idle| idle.origin == *origin)?;
        idle.remove(at).map(|idle| idle.line)
    }

    fn keep(&self, origin: Origin, line: Connection, now_ms: u64) {
        if line.requests.is_closed() {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() >= MAX_IDLE {
            idle.pop_front();
        }
        idle.push_back(Idle { origin, line, since_ms: now_ms });
    }
}

/// Performs the HTTP/1.1 handshake.
async fn spoken(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> hyper::Result<Connection> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_LEN);
    let (requests, connection) = builder.handshake(TokioIo::new(stream)).await?;
    // The request in flight ends with the reason.
    let task = tokio::spawn(async move { drop(connection.await) });
    Ok(Connection { requests, task })
}

/// Reads a body, keeps its beginning, and returns whether it has ended.
async fn beginning(body: &mut Incoming, kept: &mut Vec<u8>) -> bool {
    let mut len = 0_usize;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        let Ok(data) = frame.into_data() else { continue };
        len = len.saturating_add(data.len());
        kept.extend_from_slice(&data[..data.len().min(KEPT_LEN - kept.len())]);
        if len > READ_LEN {
            return false;
        }
    }
    true
}

/// An error with its causes, which hyper's own text leaves out.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error: &&(dyn StdError + 'static)| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn look_ups_that_nobody_waits_for_count_until_they_end() {
        let (begun, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (count, gate) = (Arc::clone(&begun), Arc::clone(&go_on));
        let silent: Resolver = Arc::new(move |_, port| {
            count.fetch_add(1, Ordering::SeqCst);
            let gate = Arc::clone(&gate);
            Box::pin(async move {
                gate.acquire().await.map_err(io::Error::other)?.forget();
                Ok(vec![SocketAddr::from(([192, 0, 2, 1], port))])
            })
        });
        let resolver = bounded(silent, 2);
        for _ in 0..5 {
            let asked = timeout(Duration::from_millis(20), resolver("shop.example".into(), 443)).await;
            assert!(asked.is_err(), "it is silent");
        }
        assert_eq!(begun.load(Ordering::SeqCst), 2);
        let address = timeout(PATIENCE, resolver("::1".into(), 443)).await.unwrap().unwrap();
        assert_eq!(address, ["[::1]:443".parse().unwrap()], "an address needs no look-up");

        // The two end, and another one has a place.
        go_on.add_permits(3);
        let found = timeout(PATIENCE, resolver("shop.example".into(), 443)).await.unwrap();
        assert_eq!(found.unwrap(), ["192.0.2.1:443".parse().unwrap()]);
        assert_eq!(begun.load(Ordering::SeqCst), 3);
    }
}
