//! Writing of a connection: replies, before it waits for anything else.
//!
//! Ground rules:
//! 1. Complete replies are written before the connection waits: for the store, for its turn, for more to read. Replies
//!    that are ready together are written together.
//! 2. A client that does not read is disconnected after a timeout, and sooner while others wait for the room that the
//!    replies hold.

use std::future::ready;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Connection;
use crate::admission::{PRESSED, ReservedBytes, SMALL, pressed_pace};
use crate::arrival_rate::ArrivalRate;
use crate::beanstalkd::BeanstalkdShared;
use crate::beanstalkd::reply::Replies;
use crate::beanstalkd::session::Session;

/// Replies are written at the latest when they have this many bytes.
pub(super) const WRITE: usize = 256 * 1024;

impl Connection {
    /// Writes all replies.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        let (replies, room) = self.replies.take();
        write(&mut self.stream, &self.session.shared, replies, room).await
    }

    /// Executes a command that has replies. Earlier replies are written meanwhile, unless it completes at once.
    pub(super) async fn answer<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Session, &mut Replies) -> T,
    ) -> io::Result<T> {
        if self.replies.bytes.is_empty() {
            return Ok(work(&mut self.session, &mut self.replies).await);
        }
        let (before, room) = self.replies.split();
        let shared = Arc::clone(&self.session.shared);
        let done = {
            let mut work = pin!(work(&mut self.session, &mut self.replies));
            tokio::select! {
                biased;
                done = &mut work => done,
                () = ready(()) => {
                    // A command that has begun is completed, even if its client has disconnected.
                    let (written, done) = tokio::join!(write(&mut self.stream, &shared, before, room), work);
                    return written.map(|()| done);
                }
            }
        };
        let replies = std::mem::replace(&mut self.replies.bytes, before);
        self.replies.bytes.unsplit(replies);
        room.into_iter().for_each(|room| self.replies.hold(room));
        Ok(done)
    }
}

/// Writes everything. A client that does not read is disconnected after a timeout.
async fn write(
    stream: &mut TcpStream,
    shared: &BeanstalkdShared,
    mut replies: BytesMut,
    room: Option<ReservedBytes>,
) -> io::Result<()> {
    if replies.is_empty() {
        return Ok(());
    }
    let limit = Duration::from_millis(shared.config.write_ms);
    let held = (replies.len() >= SMALL).then(|| {
        let mut held = room.unwrap_or_else(|| shared.memory.add(0));
        held.resize(replies.len() as u64);
        held
    });
    let now_ms = || shared.clock.now().mono_ms;
    let began_ms = if held.is_some() { now_ms() } else { 0 };
    let mut pace = ArrivalRate::new(shared.config.write_ms, shared.config.read_rate, began_ms);
    let mut pressed = pressed_pace(began_ms);
    while !replies.is_empty() {
        let mut stood_still = Duration::ZERO;
        loop {
            let slice = PRESSED.min(limit.saturating_sub(stood_still));
            match timeout(slice, stream.write_buf(&mut replies)).await {
                Ok(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(Ok(len)) => {
                    // Small replies hold no room.
                    let now_ms = if held.is_some() { now_ms() } else { 0 };
                    let is_fast = pressed.came(len, now_ms) || !shared.memory.is_pressed();
                    if is_fast && pace.came(len, now_ms) {
                        break;
                    }
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Ok(Err(error)) => return Err(error),
                Err(_) => stood_still += slice,
            }
            let is_in_the_way = held.is_some() && shared.memory.is_pressed();
            if stood_still >= limit || (stood_still >= PRESSED && is_in_the_way) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
    Ok(())
}
