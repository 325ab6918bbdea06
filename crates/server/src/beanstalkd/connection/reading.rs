//! Reading of a connection: commands as they arrive, and room for large bodies before more of them is read.

use std::future::{poll_fn, ready};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::Connection;
use crate::admission::{Growing, PRESSED, SMALL, pressed_pace};
use crate::arrival_rate::ArrivalRate;

/// The maximum size of one read.
pub(super) const READ: usize = 64 * 1024;

/// The rate of a command that is arriving.
pub(super) struct Coming {
    pace: ArrivalRate,
    /// The rate that it has to keep while others wait for the room that it holds, and whether it did of late.
    pressed: ArrivalRate,
    is_fast: bool,
}

impl Connection {
    /// Waits for more bytes, or for the server to drain. A client that is idle for too long, or too slow with a command
    /// that it has begun, is disconnected.
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
            read = self.read_in_time(limit_ms) => read?,
            () = shared.drained(), if may_stop => return Ok(()),
        };
        let Some(read) = read else {
            self.refuse_job();
            return Ok(());
        };
        if read == 0 {
            self.ended = true;
            self.hung_up = true;
        }
        let now_ms = self.session.now_ms();
        let (read_ms, rate) = (shared.config.read_ms, shared.config.read_rate);
        let coming = self.command.get_or_insert_with(|| Coming {
            pace: ArrivalRate::new(read_ms, rate, now_ms),
            pressed: pressed_pace(now_ms),
            is_fast: true,
        });
        coming.is_fast = coming.pressed.came(read, now_ms);
        if coming.pace.came(read, now_ms) { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
    }

    /// Refuses the job that is arriving for want of room: what has arrived of it is dropped, and the rest is skipped.
    fn refuse_job(&mut self) {
        self.parser.refuse_body(&mut self.bytes);
        self.bytes = BytesMut::new();
        self.room = None;
    }

    /// Sets room aside for more of a large job that is arriving. Where there is none in time, or where others wait for
    /// what it holds and it arrives too slowly, the rest of it is skipped.
    async fn make_room(&mut self) {
        let Some(body) = self.parser.coming_body().filter(|body| *body > SMALL) else { return };
        let shared = Arc::clone(&self.session.shared);
        let room = self.room.get_or_insert_with(|| shared.memory.growing(body));
        let is_slow = self.command.as_ref().is_some_and(|coming| !coming.is_fast);
        let is_room = tokio::select! {
            biased;
            () = ready(()), if is_slow && room.is_in_the_way() => false,
            is_room = room.make_room(self.bytes.len()) => is_room,
            // It would not be put any more.
            () = shared.drained() => false,
        };
        if !is_room {
            self.refuse_job();
        }
        if let Some(coming) = &mut self.command {
            // The client is not responsible for this wait.
            let now_ms = self.session.now_ms();
            coming.pace.excuse(now_ms);
            coming.pressed.excuse(now_ms);
        }
    }

    /// Reads what has arrived, and waits for it at most `limit_ms` if there is a limit; `None` if nothing has arrived
    /// for [`PRESSED`] and others wait for the room that it holds. Cancel safe.
    async fn read_in_time(&mut self, limit_ms: Option<u64>) -> io::Result<Option<usize>> {
        let shared = Arc::clone(&self.session.shared);
        let holds_room = self.room.as_ref().and_then(Growing::set_aside_in).is_some();
        let (limit, mut stood_still) = (limit_ms.map(Duration::from_millis), Duration::ZERO);
        loop {
            let left = limit.map(|limit| limit.saturating_sub(stood_still));
            let slice = match left {
                Some(left) if holds_room => Some(left.min(PRESSED)),
                None if holds_room => Some(PRESSED),
                left => left,
            };
            let Some(slice) = slice else { return self.read_some().await.map(Some) };
            if let Ok(read) = timeout(slice, self.read_some()).await {
                return read.map(Some);
            }
            stood_still += slice;
            if limit.is_some_and(|limit| stood_still >= limit) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if holds_room && shared.memory.is_pressed() {
                return Ok(None);
            }
        }
    }

    /// Reads what has arrived. Until something has, there is no read buffer, and a partial command is held in no more
    /// memory than it needs. Cancel safe.
    async fn read_some(&mut self) -> io::Result<usize> {
        let (stream, bytes, turns) = (&mut self.stream, &mut self.bytes, &mut self.turns);
        let kept = bytes.len();
        let large = self.parser.coming_body().filter(|body| *body > SMALL);
        poll_fn(|context| {
            // A stream counts as readable until a read has found nothing, or less than there was room for: so does a
            // new one, and one whose last read was full.
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
                if large.is_none() && bytes.capacity() > kept {
                    *bytes = BytesMut::from(&bytes[..]);
                }
                // Waiting yields.
                *turns = 0;
            }
            read
        })
        .await
    }
}

/// Sets the buffer's capacity to exactly this: it becomes the body of the job.
fn grow(bytes: &mut BytesMut, capacity: usize) {
    if bytes.capacity() < capacity {
        let mut grown = BytesMut::with_capacity(capacity);
        grown.extend_from_slice(bytes);
        *bytes = grown;
    }
}

#[cfg(test)]
mod tests {
    use dwell_model::Limits;
    use dwell_store::{MemoryStore, Store};
    use dwell_time::SystemClock;
    use futures_util::FutureExt as _;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::watch;

    use super::*;
    use crate::admission::Memory;
    use crate::beanstalkd::BeanstalkdShared;
    use crate::config::BeanstalkdConfig;
    use crate::returns::Returns;

    #[tokio::test]
    async fn who_waits_for_the_rest_of_a_command_holds_what_has_come_of_it_and_no_more() {
        let clock = Arc::new(SystemClock::new());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Limits::default(), Arc::clone(&clock) as _));
        let (returns, _returned) = Returns::start(Arc::clone(&store));
        let (_drain, draining) = watch::channel(false);
        let (config, memory) = (BeanstalkdConfig::default(), Memory::new(1 << 20));
        let shared = BeanstalkdShared::new(store, config, clock, returns, draining, Arc::default(), memory);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, server) = tokio::join!(client, listener.accept());
        let (mut client, (server, _)) = (client.unwrap(), server.unwrap());
        let mut connection = Connection::new(server, Arc::new(shared));
        let mut come = 0;
        for part in [&b"put 0 0 60 16"[..], b"000\r\n", &[b'x'; 10_000]] {
            client.write_all(part).await.unwrap();
            come += part.len();
            while connection.bytes.len() < come {
                timeout(Duration::from_secs(10), connection.read_some()).await.unwrap().unwrap();
            }
            assert!(connection.next().is_none());
            come = connection.bytes.len();
            assert!(connection.read_some().now_or_never().is_none());
            let capacity = connection.bytes.capacity();
            assert!(capacity <= 2 * come + 64, "{capacity} bytes are held, of {come} that have come");
        }
    }
}
