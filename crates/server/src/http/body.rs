//! Reading a request's body: within a limit that is checked first, and not for ever.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use dwell_time::Clock;
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::{App, Problem, Refusal, overloaded};
use crate::admission::{Growing, Held, SMALL};

/// How slowly a body may come: it may stand still for a while, and has to come at some rate on average.
#[derive(Debug)]
pub(crate) struct Pace {
    clock: Arc<dyn Clock>,
    began_ms: u64,
    idle_ms: u64,
    /// Bytes a second; 0 for any few.
    rate: u64,
}

impl Pace {
    /// That of this server, from now on.
    pub(crate) fn new(app: &App) -> Pace {
        let clock = Arc::clone(&app.clock);
        let began_ms = clock.now().mono_ms;
        Pace { clock, began_ms, idle_ms: app.config.body_ms, rate: app.config.body_rate }
    }

    /// Refuses a body of which `len` bytes have come by now.
    fn check(&self, len: usize) -> Result<(), Problem> {
        let took_ms = self.clock.now().mono_ms.saturating_sub(self.began_ms);
        let allowed_ms = (len as u64).saturating_mul(1_000).checked_div(self.rate);
        match allowed_ms {
            Some(allowed_ms) if took_ms > self.idle_ms.saturating_add(allowed_ms) => Err(Problem::new(
                Refusal::RequestTimeout,
                format!("{len} bytes came in {took_ms} ms; the body has to come faster"),
            )),
            _ => Ok(()),
        }
    }
}

/// Reads all of `body`, unless it is longer than `limit` bytes, comes too slowly, or finds no `room`, which is held
/// on. `too_large` is told the length as far as it is known.
pub(crate) async fn read(
    mut body: Body,
    limit: usize,
    pace: Pace,
    mut room: Growing,
    too_large: impl Fn(usize) -> Problem,
) -> Result<(Bytes, Held), Problem> {
    let idle = Duration::from_millis(pace.idle_ms);
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(too_large(announced));
    }
    let most = if body.size_hint().exact().is_some() { announced } else { limit };
    // Copied out of the connection's read buffer, which a small body would otherwise keep from being reused.
    let mut bytes = Vec::with_capacity(announced.min(SMALL));
    while let Some(chunk) = next_chunk(&mut body, idle).await? {
        if bytes.len() + chunk.len() > limit {
            return Err(too_large(bytes.len() + chunk.len()));
        }
        let come = bytes.len() + chunk.len();
        if come > bytes.capacity() {
            bytes.reserve_exact(come.saturating_mul(2).min(most).max(come) - bytes.len());
        }
        bytes.extend_from_slice(&chunk);
        pace.check(come)?;
        if !room.make_room(come).await {
            return Err(overloaded());
        }
    }
    Ok((bytes.into(), room.into_held()))
}

/// The next piece of `body`; `None` at its end. May be dropped and called again.
pub(crate) async fn next_chunk(body: &mut Body, idle: Duration) -> Result<Option<Bytes>, Problem> {
    loop {
        let Ok(frame) = timeout(idle, body.frame()).await else {
            return Err(Problem::new(
                Refusal::RequestTimeout,
                format!("nothing came for {} s in the middle of the body", idle.as_secs_f32()),
            ));
        };
        match frame {
            None => return Ok(None),
            Some(Ok(frame)) => {
                if let Ok(chunk) = frame.into_data() {
                    return Ok(Some(chunk));
                }
            }
            Some(Err(error)) => {
                return Err(Problem::new(Refusal::MalformedRequest, format!("the body broke off: {error}")));
            }
        }
    }
}

/// The refusal of a request that would have to be held in memory.
pub(crate) fn request_too_large(limit: usize) -> Problem {
    let detail =
        format!("at most {limit} bytes here; send less at once, or many lines as application/x-ndjson");
    Problem::new(Refusal::RequestTooLarge, detail).with_limit(limit as u64)
}

/// How much of a refused request is still read, and for how long in all;
const LINGER_BYTES: usize = 64 * 1024 * 1024;
const LINGER: Duration = Duration::from_secs(5);
/// and how long a client may be quiet before it is taken to be reading its answer.
const LINGER_IDLE: Duration = Duration::from_millis(500);

/// A request's body that is read to its end, within bounds, when nobody wants it any more.
///
/// A connection that is closed with unread bytes in it is reset, and the reset can overtake the answer: a
/// client that was refused early would see a broken connection instead of the refusal. A client that waits
/// for `100 Continue` has not sent its body and needs none of this.
#[derive(Debug)]
pub(crate) struct Lingering {
    incoming: Option<Incoming>,
    expects_continue: bool,
}

impl Lingering {
    pub(crate) fn new(incoming: Incoming, expects_continue: bool) -> Lingering {
        Lingering { incoming: Some(incoming), expects_continue }
    }
}

impl HttpBody for Lingering {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.expects_continue = false;
        let Some(incoming) = self.incoming.as_mut() else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(incoming).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.incoming = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(|incoming| incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or(SizeHint::with_exact(0), |incoming| incoming.size_hint())
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let Some(incoming) = self.incoming.take() else { return };
        if incoming.is_end_stream() || self.expects_continue {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(timeout(LINGER, discard(incoming)));
        }
    }
}

async fn discard(mut incoming: Incoming) {
    let mut left = LINGER_BYTES;
    while let Ok(Some(Ok(frame))) = timeout(LINGER_IDLE, incoming.frame()).await {
        let len = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(len) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}
