//! What a connection reads: commands as they come, and room for large bodies before more of them is read.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::Connection;
use crate::admission::SMALL;
use crate::pace::Pace;

/// What one read may bring.
pub(super) const READ: usize = 64 * 1024;

impl Connection {
    /// Waits for more bytes, or for the server to drain. A client that is idle for too long, or too slow with
    /// a command that it has begun, is cut off.
    pub(super) async fn read(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.session.shared);
        self.make_room().await;
        let is_idle = self.bytes.is_empty() && self.parser.is_between_commands();
        let limit_ms = if is_idle { shared.config.idle_ms } else { Some(shared.config.read_ms) };
        if is_idle {
            // An idle connection keeps no buffer.
            self.bytes = BytesMut::new();
            self.command = None;
        }
        let may_stop = !self.parser.is_in_body() && !shared.is_draining();
        let read = tokio::select! {
            read = within(limit_ms, self.read_some()) => read?,
            () = shared.drained(), if may_stop => return Ok(()),
        };
        if read == 0 {
            self.ended = true;
            self.hung_up = true;
        }
        let now_ms = self.session.now_ms();
        let (read_ms, rate) = (shared.config.read_ms, shared.config.read_rate);
        let pace = self.command.get_or_insert_with(|| Pace::new(read_ms, rate, now_ms));
        if pace.came(read, now_ms) { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
    }

    /// Sets room aside for more of a large job that is coming. Where there is none in time, the rest of it is skipped.
    async fn make_room(&mut self) {
        let Some(body) = self.parser.coming_body().filter(|body| *body > SMALL) else { return };
        let shared = Arc::clone(&self.session.shared);
        let room = self.room.get_or_insert_with(|| shared.memory.growing(body));
        let is_room = tokio::select! {
            biased;
            is_room = room.make_room(self.bytes.len()) => is_room,
            // It would not be put any more.
            () = shared.drained() => false,
        };
        if !is_room {
            self.parser.refuse_body(&mut self.bytes);
            self.bytes = BytesMut::new();
            self.room = None;
        }
        if let Some(pace) = &mut self.command {
            // What it waits for is not the client's doing.
            pace.excuse(self.session.now_ms());
        }
    }

    /// Reads what has come; while nothing has, there is no buffer to read it into. May be dropped: nothing is lost.
    async fn read_some(&mut self) -> io::Result<usize> {
        let (stream, bytes, turns) = (&mut self.stream, &mut self.bytes, &mut self.turns);
        let kept = bytes.len();
        let large = self.parser.coming_body().filter(|body| *body > SMALL);
        poll_fn(|context| {
            // A stream seems readable until a read has found nothing, or less than there was room for: a new one does, and
            // one whose last read was full.
            let mut read = stream.poll_read_ready(context).map_ok(|()| 0);
            if let Poll::Ready(Ok(_)) = read {
                match large {
                    Some(body) => grow(bytes, (2 * kept).max(kept + READ).min(body + 2)),
                    None => bytes.reserve(READ),
                }
                read = pin!(stream.read_buf(bytes)).poll(context);
                if read.is_pending() && kept == 0 {
                    *bytes = BytesMut::new();
                }
            }
            if read.is_pending() {
                // While it waits, the others have their turn.
                *turns = 0;
            }
            read
        })
        .await
    }
}

/// Makes the buffer this large and no larger: it becomes the body of the job.
fn grow(bytes: &mut BytesMut, capacity: usize) {
    if bytes.capacity() < capacity {
        let mut grown = BytesMut::with_capacity(capacity);
        grown.extend_from_slice(bytes);
        *bytes = grown;
    }
}

/// Waits for `done`, for at most `limit_ms` if there is a limit.
async fn within<T>(limit_ms: Option<u64>, done: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match limit_ms {
        None => done.await,
        Some(ms) => match timeout(Duration::from_millis(ms), done).await {
            Ok(done) => done,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        },
    }
}
