//! One connection: its limits, its unwritten answers, and its end.

use std::convert::Infallible;
use std::future::Future as _;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderValue, Request, Response, header};
use axum::response::IntoResponse as _;
use bytes::Bytes;
use dwell_model::Receipt;
use dwell_time::Clock;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tower_service::Service as _;

use super::body::Lingering;
use super::problem::IsRefusal;
use super::reply::{AnswerRoom, SharedBody};
use super::request_log::Logged;
use super::{App, HttpRefusal, Problem, access};
use crate::admission::{Memory, PRESSED, ReservedBytes, SMALL, pressed_pace};
use crate::arrival_rate::ArrivalRate;
use crate::listener::{Admitted, Stream};
use crate::metrics::Protocol;
use crate::returns::Returns;

/// The maximum bytes of a request's head, and the size of each connection's read buffer.
pub(super) const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The maximum number of headers of a request.
pub(super) const MAX_HEADERS: usize = 100;

/// The number of headers above which an answer's head is large.
const MANY_HEADERS: usize = 128;
/// The memory that each of these headers holds in addition to its text: its entries in the map, an allocation for its
/// name, one for its value.
const HEADER_BYTES: usize = 120;

/// The answer to a connection past the limit, whatever it was to request.
pub(crate) fn no_place() -> &'static [u8] {
    static WORDS: OnceLock<Vec<u8>> = OnceLock::new();
    WORDS.get_or_init(|| {
        let detail = "the server has as many connections as it may have; close some, or try again later";
        let problem = Problem::new(HttpRefusal::TooManyConnections, detail);
        let body = serde_json::to_string(&problem).expect("a problem has only text and numbers");
        let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n\
                    Cache-Control: no-store\r\nRetry-After: 1\r\nConnection: close\r\n";
        format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    })
}

/// Serves `stream` until the client closes it, it misbehaves, or the server drains and no request is in progress.
pub(crate) async fn serve(stream: TcpStream, _place: Admitted, router: Router, app: Arc<App>) {
    let Ok(local) = stream.local_addr() else { return };
    let _connected = app.metrics.connection(Protocol::Http);
    // An answer is one small write that a client waits for. Without the option it is late, not lost.
    let _ = stream.set_nodelay(true);
    let stream = match app.live.tls() {
        None => Stream::Plain(stream),
        Some(tls) => tokio::select! {
            accepted = tls.accept(stream) => match accepted {
                Some(stream) => stream,
                None => return,
            },
            // No request has arrived yet.
            () = app.drained() => return,
        },
    };
    let unwritten = Arc::new(Unwritten::new(app.returns.clone()));
    let wire = WatchedSocket::new(stream, Arc::clone(&unwritten), &app);
    let service = service_fn(|request: Request<Incoming>| {
        let answer = answer(request, local, Arc::clone(&unwritten), router.clone(), Arc::clone(&app));
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(app.config.head_ms))
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(wire), service);
    let mut connection = pin!(connection);
    // A connection's error is the client's: it disconnected, or does not speak HTTP. hyper has answered by now.
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = app.drained() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    match ended {
        Err(error) if error.is_parse_too_large() => app.metrics.refused("head_too_large"),
        Err(error) if error.is_parse() => app.metrics.refused("malformed_head"),
        _ => {}
    }
}

async fn answer(
    request: Request<Incoming>,
    local: SocketAddr,
    unwritten: Arc<Unwritten>,
    mut router: Router,
    app: Arc<App>,
) -> Response<Body> {
    let (mut parts, incoming) = request.into_parts();
    let body = Lingering::new(incoming, parts.headers.contains_key(header::EXPECT));
    let logged = Logged::begin(&parts, &app);
    let known = app.live.hosts().check(&parts, local);
    let mut response = match known.and_then(|()| access::caller(&app.live.tokens(), &parts.headers)) {
        Err(problem) => problem.into_response(),
        Ok(caller) => {
            parts.extensions.insert(Arc::clone(&unwritten));
            parts.extensions.insert(caller);
            // Nothing behind here needs it, and what is removed cannot be logged.
            parts.headers.remove(header::AUTHORIZATION);
            let request = Request::from_parts(parts, Body::new(body));
            match router.call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        }
    };
    unwritten.answered();
    app.metrics.answered(response.status().as_u16());
    let code = response.extensions().get().map(|IsRefusal { code, .. }| *code);
    if let Some(IsRefusal { code, is_counted: false }) = response.extensions().get() {
        app.metrics.refused(code);
    }
    if let Some(logged) = logged {
        logged.end(response.status().as_u16(), code, &app);
    }
    let room_aside = response.extensions_mut().remove::<AnswerRoom>().map(|AnswerRoom(held)| held);
    let is_shared = response.extensions_mut().remove::<SharedBody>().is_some();
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let memory = Arc::clone(&app.memory);
    let large_head = bytes_of_large_head(headers);
    if let Some(bytes) = large_head {
        unwritten.buffering(Arc::new(memory.add(bytes as u64)));
    }
    // Crash story: 1. a client sends requests whose answers have no body, and reads next to nothing. 2. hyper accepts the
    // next request though the heads before it are not written: their buffer has no limit.
    if large_head.is_some() || unwritten.is_stalled.load(Ordering::Relaxed) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if is_shared || response.body().size_hint().upper().is_some_and(|most| most < SMALL as u64) {
        return response;
    }
    // It may wait here for as long as the client does not read the previous answer.
    let room = room_aside.or_else(|| Some(Arc::new(memory.add(response.body().size_hint().exact()?))));
    response.map(|body| Body::new(CountedBody { body, memory, room, unwritten }))
}

/// The memory that the head of an answer with these headers holds, if that is much. hyper keeps a map of headers at its
/// largest capacity, and the buffer of a head's text, for the lifetime of the connection: so such an answer is its last
/// one.
fn bytes_of_large_head(headers: &HeaderMap) -> Option<usize> {
    let text: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    (headers.len() > MANY_HEADERS || text >= SMALL).then(|| text + HEADER_BYTES * headers.len())
}

/// A large answer. Each piece of it counts at the latest from when it is buffered until it is written.
struct CountedBody {
    body: Body,
    memory: Arc<Memory>,
    /// The room that was set aside for it.
    room: Option<Arc<ReservedBytes>>,
    unwritten: Arc<Unwritten>,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::data_ref);
        if let Some(len) = data.map(Bytes::len).filter(|len| *len >= SMALL) {
            let held = self.room.take().unwrap_or_else(|| Arc::new(self.memory.add(len as u64)));
            self.unwritten.buffering(held);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Receipts whose answer is in the connection's buffer. When the connection ends before it is written, their messages
/// are given back.
#[derive(Debug)]
pub(crate) struct Unwritten {
    /// A mutex to make the type `Sync`: one task uses a connection.
    receipts: Mutex<Vec<Receipt>>,
    /// Room for the body of the request in progress, and for buffered answers.
    request: Mutex<Option<ReservedBytes>>,
    answers: Mutex<Vec<Arc<ReservedBytes>>>,
    /// The bytes that the rest of the answer holds, which is not made yet.
    rest: AtomicU64,
    /// Whether the socket has not accepted all of the answers before.
    is_stalled: AtomicBool,
    returns: Returns,
}

impl Unwritten {
    pub(super) fn new(returns: Returns) -> Unwritten {
        Unwritten {
            receipts: Mutex::default(),
            request: Mutex::default(),
            answers: Mutex::default(),
            rest: AtomicU64::new(0),
            is_stalled: AtomicBool::new(false),
            returns,
        }
    }

    /// Holds this until the request in progress is answered.
    pub(crate) fn hold(&self, held: ReservedBytes) {
        *self.request.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
    }

    /// Takes over what the request in progress holds.
    pub(super) fn take_held(&self) -> Option<ReservedBytes> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Records that the request is answered.
    fn answered(&self) {
        drop(self.take_held());
    }

    /// Records that a part of an answer is being buffered, which holds this.
    pub(super) fn buffering(&self, held: Arc<ReservedBytes>) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push(held);
    }

    /// Whether large answers are buffered, or the rest of an answer is large.
    fn holds_answers(&self) -> bool {
        self.rest.load(Ordering::Relaxed) > 0
            || !self.answers.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Records that the answer with these receipts is being buffered.
    pub(crate) fn writing(&self, mut receipts: Vec<Receipt>) {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner).append(&mut receipts);
    }

    /// Records that everything buffered has been passed to the operating system.
    pub(super) fn written(&self) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Where messages are given back.
    pub(crate) fn returns(&self) -> &Returns {
        &self.returns
    }
}

/// The rest of an answer, with the number of bytes that it holds.
#[derive(Debug)]
pub(super) struct RestOfAnswer(Arc<Unwritten>);

impl RestOfAnswer {
    /// That of the answer in progress.
    pub(super) fn of(unwritten: Arc<Unwritten>) -> RestOfAnswer {
        RestOfAnswer(unwritten)
    }

    /// Sets the number of bytes that it holds.
    pub(super) fn holds(&self, bytes: u64) {
        self.0.rest.store(bytes, Ordering::Relaxed);
    }
}

impl Drop for RestOfAnswer {
    fn drop(&mut self) {
        self.holds(0);
    }
}

impl Drop for Unwritten {
    fn drop(&mut self) {
        let receipts = self.receipts.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.returns.give_back(std::mem::take(receipts));
    }
}

/// The socket, which tracks what was written, and detects clients that do not read or read too slowly.
struct WatchedSocket {
    stream: Stream,
    unwritten: Arc<Unwritten>,
    memory: Arc<Memory>,
    write_limit: Duration,
    /// Set while the socket accepts nothing.
    stalled: Option<Stalled>,
    clock: Arc<dyn Clock>,
    /// The minimum rate at which answers have to be read, and that while others wait for room.
    pace: ArrivalRate,
    pressed: ArrivalRate,
}

/// A socket that accepts nothing.
struct Stalled {
    /// The time of the next check.
    look: Pin<Box<Sleep>>,
    /// The time that is left after that.
    left: Duration,
}

impl Stalled {
    fn new(limit: Duration) -> Stalled {
        let slice = limit.min(PRESSED);
        Stalled { look: Box::pin(tokio::time::sleep(slice)), left: limit - slice }
    }
}

impl WatchedSocket {
    fn new(stream: Stream, unwritten: Arc<Unwritten>, app: &App) -> WatchedSocket {
        let (write_ms, memory, clock) =
            (app.config.write_ms, Arc::clone(&app.memory), Arc::clone(&app.clock));
        WatchedSocket {
            stream,
            unwritten,
            memory,
            write_limit: Duration::from_millis(write_ms),
            stalled: None,
            clock,
            pace: ArrivalRate::new(write_ms, app.config.body_rate, 0),
            pressed: pressed_pace(0),
        }
    }

    /// Fails if messages are about to be written to a client that has closed the connection: a message that falls due
    /// just then would be lost for the length of a lease.
    fn check_reader(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.unwritten.is_empty() { Ok(()) } else { self.stream.check_reader(cx) }
    }

    /// Whether others wait for room that the client's unread answers hold.
    fn is_in_the_way(&self) -> bool {
        self.memory.is_pressed() && self.unwritten.holds_answers()
    }

    /// Fails if the socket has accepted nothing for too long, or too little of late. Time in which there was nothing to
    /// write does not count.
    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
        len: impl Fn(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(ended) = &written {
            let len = ended.as_ref().map_or(0, len);
            let has_stalled = self.stalled.take().is_some();
            if has_stalled {
                self.unwritten.is_stalled.store(false, Ordering::Relaxed);
            }
            let now_ms = if has_stalled { self.clock.now().mono_ms } else { self.pace.at_ms() };
            let (is_fast, is_fast_enough) = (self.pressed.came(len, now_ms), self.pace.came(len, now_ms));
            if has_stalled && !(is_fast_enough && (is_fast || !self.is_in_the_way())) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            return written;
        }
        if self.stalled.is_none() {
            self.stalled = Some(Stalled::new(self.write_limit));
            self.unwritten.is_stalled.store(true, Ordering::Relaxed);
            let now_ms = self.clock.now().mono_ms;
            self.pace.excuse(now_ms);
            self.pressed.excuse(now_ms);
        }
        while let Some(stalled) = &mut self.stalled
            && stalled.look.as_mut().poll(cx).is_ready()
        {
            let left = stalled.left;
            if left.is_zero() || self.is_in_the_way() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.stalled = Some(Stalled::new(left));
        }
        Poll::Pending
    }
}

impl AsyncRead for WatchedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for WatchedSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check_reader(cx)?;
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch(cx, written, |len| *len)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_reader(cx)?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.watch(cx, written, |len| *len)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes its writer once its own buffer is empty, and only then.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if let Poll::Ready(Ok(())) = flushed {
            self.unwritten.written();
        }
        self.watch(cx, flushed, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(cx, shut, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::http::tests::app;

    /// Writes an answer of two megabytes to a reader of at most eighty thousand bytes a second.
    async fn read_slowly(app: &App) -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = tokio::net::TcpSocket::new_v4().unwrap();
        client.set_recv_buffer_size(4_096).unwrap();
        let client = client.connect(listener.local_addr().unwrap());
        let (client, server) = tokio::join!(client, listener.accept());
        let (mut client, (server, _)) = (client.unwrap(), server.unwrap());
        socket2::SockRef::from(&server).set_send_buffer_size(4_096).unwrap();
        let unwritten = Arc::new(Unwritten::new(app.returns.clone()));
        unwritten.buffering(Arc::new(app.memory.add(2_000_000)));
        let mut wire = WatchedSocket::new(Stream::Plain(server), unwritten, app);
        let reads = async {
            let mut bytes = [0; 4_000];
            while client.read(&mut bytes).await.is_ok_and(|len| len > 0) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let answer = vec![b'x'; 2_000_000];
        let written = async {
            tokio::select! {
                written = wire.write_all(&answer) => written,
                () = reads => unreachable!("it reads for as long as there is a connection"),
            }
        };
        // Far less than the time to read all of it.
        timeout(Duration::from_secs(8), written).await.unwrap_or(Ok(()))
    }

    #[tokio::test]
    async fn who_reads_slowly_is_cut_off_while_others_wait_for_the_room_and_left_alone_otherwise() {
        let app = app();
        let cut_off = read_slowly(&app).await.map_err(|error| error.kind());
        assert_eq!(cut_off, Err(io::ErrorKind::TimedOut), "more is held than may be");
        let app = App { memory: Memory::new(10_000_000), ..app };
        assert!(read_slowly(&app).await.is_ok());
    }
}
