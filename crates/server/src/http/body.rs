//! Reads a request's body, within a size limit that is checked first and with a minimum rate.

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

use super::{App, HttpRefusal, Problem, overloaded};
use crate::admission::{Growing, Memory, PRESSED, ReservedBytes, SMALL, pressed_pace};
use crate::arrival_rate::ArrivalRate;

/// The minimum rate of bodies, its clock, and the memory that others may wait for.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    clock: Arc<dyn Clock>,
    memory: Arc<Memory>,
    idle_ms: u64,
    rate: u64,
}

impl Timing {
    /// This server's timing.
    pub(crate) fn new(app: &App) -> Timing {
        let (clock, memory) = (Arc::clone(&app.clock), Arc::clone(&app.memory));
        Timing::on(clock, memory, app.config.body_ms, app.config.body_rate)
    }

    /// A body may pause for `idle_ms`, and otherwise has to arrive at `rate` bytes per second.
    pub(crate) fn on(clock: Arc<dyn Clock>, memory: Arc<Memory>, idle_ms: u64, rate: u64) -> Timing {
        Timing { clock, memory, idle_ms, rate }
    }

    /// The memory of all bodies.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now().mono_ms
    }

    /// The maximum pause of a body.
    pub(crate) fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }

    /// The rate limit of a body that begins now.
    pub(crate) fn pace(&self) -> ArrivalRate {
        ArrivalRate::new(self.idle_ms, self.rate, self.now_ms())
    }

    /// The refusal of a body that is too slow.
    pub(crate) fn too_slow(&self) -> Problem {
        Problem::new(
            HttpRefusal::RequestTimeout,
            format!(
                "what is held in memory has to come at {} bytes a second, and came more slowly",
                self.rate
            ),
        )
    }
}

/// Reads all of `body`, unless it is longer than `limit` bytes, too slow, or finds no `room`, which stays held. While
/// others wait for room, it has to arrive faster, or is refused. `too_large` receives the length as far as it is known.
pub(crate) async fn read(
    mut body: Body,
    limit: usize,
    timing: Timing,
    mut room: Growing,
    too_large: impl Fn(usize) -> Problem,
) -> Result<(Bytes, ReservedBytes), Problem> {
    let (mut pace, mut pressed) = (timing.pace(), pressed_pace(timing.now_ms()));
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(too_large(announced));
    }
    let most = if body.size_hint().exact().is_some() { announced } else { limit };
    // Copied out of the connection's read buffer, which a small body would otherwise keep from being reused.
    let mut bytes = Vec::with_capacity(announced.min(SMALL));
    while let Some(chunk) = next_chunk(&mut body, timing.idle(), room.set_aside_in()).await? {
        if bytes.len() + chunk.len() > limit {
            return Err(too_large(bytes.len() + chunk.len()));
        }
        let come = bytes.len() + chunk.len();
        if come > bytes.capacity() {
            bytes.reserve_exact(come.saturating_mul(2).min(most).max(come) - bytes.len());
        }
        bytes.extend_from_slice(&chunk);
        let now_ms = timing.now_ms();
        let is_fast = pressed.came(chunk.len(), now_ms);
        if !pace.came(chunk.len(), now_ms) {
            return Err(timing.too_slow());
        }
        let is_in_the_way = !is_fast && come < most && room.is_in_the_way();
        if is_in_the_way || !room.make_room(come).await {
            return Err(overloaded());
        }
        let now_ms = timing.now_ms();
        pace.excuse(now_ms);
        pressed.excuse(now_ms);
    }
    Ok((bytes.into(), room.into_held()))
}

/// The next piece of `body`; `None` at its end. It may pause for `idle`; if it holds room `set_aside_in` a memory, for
/// [`PRESSED`] while others wait for that. Cancel safe.
pub(crate) async fn next_chunk(
    body: &mut Body,
    idle: Duration,
    set_aside_in: Option<&Memory>,
) -> Result<Option<Bytes>, Problem> {
    let mut stood_still = Duration::ZERO;
    loop {
        let left = idle.saturating_sub(stood_still);
        let slice = if set_aside_in.is_some() { left.min(PRESSED) } else { left };
        let Ok(frame) = timeout(slice, body.frame()).await else {
            stood_still += slice;
            if stood_still >= idle {
                return Err(Problem::new(
                    HttpRefusal::RequestTimeout,
                    format!("nothing came for {} s in the middle of the body", idle.as_secs_f32()),
                ));
            }
            if set_aside_in.is_some_and(Memory::is_pressed) {
                return Err(overloaded());
            }
            continue;
        };
        stood_still = Duration::ZERO;
        match frame {
            None => return Ok(None),
            Some(Ok(frame)) => {
                if let Ok(chunk) = frame.into_data() {
                    return Ok(Some(chunk));
                }
            }
            Some(Err(error)) => {
                return Err(Problem::new(
                    HttpRefusal::MalformedRequest,
                    format!("the body broke off: {error}"),
                ));
            }
        }
    }
}

/// The refusal of a request that is too large to be held in memory.
pub(crate) fn request_too_large(limit: usize) -> Problem {
    let detail =
        format!("at most {limit} bytes here; send less at once, or many lines as application/x-ndjson");
    Problem::new(HttpRefusal::RequestTooLarge, detail).with_limit(limit as u64)
}

/// The maximum bytes of a refused request that are still read, and the maximum time in all.
const LINGER_BYTES: usize = 64 * 1024 * 1024;
const LINGER: Duration = Duration::from_secs(5);
/// How long a client may send nothing before it is taken to be reading its answer.
const LINGER_IDLE: Duration = Duration::from_millis(500);

/// A request's body that is read to its end, within limits, and discarded.
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
