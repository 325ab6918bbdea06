//! Reserves, which wait for jobs and for room to hold them.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use dwell_store::{Delivery, Error, Take};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Connection;
use super::reading::READ;
use super::writing::WRITE;
use crate::admission::{NoRoom, PATIENCE, ReservedBytes};
use crate::beanstalkd::BeanstalkdShared;
use crate::beanstalkd::command::{ReserveRequest, Reserved};
use crate::beanstalkd::reply::Word;

/// The result of a wait for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoomOutcome {
    /// There was room at once.
    AtOnce,
    /// There was room after a wait.
    Later,
    /// There was no room in time.
    None,
}

impl Connection {
    /// Answers `count` reserves that arrived together: ready jobs are handed to the first of them in one take, and each
    /// that finds nothing waits in turn.
    pub(super) async fn reserve(&mut self, timeout_s: Option<u32>, count: usize) -> io::Result<()> {
        self.session.is_worker();
        let mut left = count;
        while left > 0 {
            left -= self.reserve_some(timeout_s, left).await?;
            if self.replies.bytes.len() >= WRITE {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Answers at least one of `count` reserves; returns how many.
    async fn reserve_some(&mut self, timeout_s: Option<u32>, count: usize) -> io::Result<usize> {
        let until_ms =
            timeout_s.map(|seconds| self.session.now_ms().saturating_add(u64::from(seconds) * 1_000));
        let mut empty = false;
        loop {
            self.session.forget_lapsed();
            let share = self.session.may_reserve();
            if share == 0 {
                self.refuse(Word::OutOfMemory, "too_many_leased");
                return Ok(1);
            }
            let wish = ReserveRequest { count: count.min(share), until_ms };
            let draining = self.session.shared.is_draining();
            let may_wait = !self.hung_up && !draining;
            // After an empty take there is only waiting; a server that drains hands out no more.
            let step = wish.step(&self.session, may_wait, empty || draining, self.session.now_ms());
            if matches!(step, Reserved::Answer(Word::DeadlineSoon)) && self.session.forget_ended().await {
                continue;
            }
            let take = match step {
                Reserved::Answer(word) => {
                    self.replies.word(word);
                    return Ok(1);
                }
                Reserved::Take(take) => take,
            };
            // The lease begins with the take, so nothing may delay its reply.
            self.flush().await?;
            match self.room(Duration::from_millis(take.wait_ms)).await? {
                RoomOutcome::AtOnce => {}
                // Less time is left to wait.
                RoomOutcome::Later => continue,
                RoomOutcome::None => {
                    empty = true;
                    continue;
                }
            }
            match self.take(take).await? {
                Ok((deliveries, _)) if deliveries.is_empty() => empty = true,
                Ok((deliveries, held)) => {
                    self.session.reserved(&deliveries, &mut self.replies);
                    self.replies.hold(held);
                    return Ok(deliveries.len());
                }
                Err(error) => {
                    self.replies.word(Word::from(&error));
                    return Ok(1);
                }
            }
        }
    }

    /// Takes; if it has to wait, until the client disconnects or the server drains. Jobs for which there is no room are
    /// given back, as if there had been none.
    async fn take(&mut self, take: Take) -> io::Result<Result<(Vec<Delivery>, ReservedBytes), Error>> {
        let shared = Arc::clone(&self.session.shared);
        let nothing = || Ok((Vec::new(), shared.memory.add(0)));
        let waits = take.wait_ms > 0;
        let _waiting = waits.then(|| WaitingGuard::begin(&shared));
        let patience = PATIENCE.min(Duration::from_millis(take.wait_ms));
        let bytes = |taken: &Result<Vec<Delivery>, Error>| {
            taken.iter().flatten().map(|delivery| delivery.message.body.len()).sum()
        };
        let mut taken = pin!(shared.memory.bring_within(patience, shared.store.take(take), bytes));
        tokio::select! {
            biased;
            taken = &mut taken => Ok(match taken {
                Ok((taken, held)) => taken.map(|taken| (taken, held)),
                Err(NoRoom) => nothing(),
            }),
            () = shared.drained(), if waits => Ok(nothing()),
            end = hang_up(&mut self.stream, &mut self.bytes), if waits => {
                self.hangs_up(end?);
                Ok(nothing())
            }
        }
    }

    /// Before a command whose reply has a body, waits until there is room for it, for at most [`PATIENCE`]. False if
    /// there is none, and the command is refused.
    pub(super) async fn has_room(&mut self) -> io::Result<bool> {
        let shared = Arc::clone(&self.session.shared);
        if !shared.memory.is_over() {
            return Ok(true);
        }
        self.flush().await?;
        tokio::select! {
            biased;
            room = timeout(PATIENCE, shared.memory.room()) => Ok(room.is_ok()),
            () = shared.drained() => Ok(false),
        }
    }

    /// Waits until no more is held than the limit, for at most `most`, and no longer than until the client disconnects
    /// or the server drains.
    async fn room(&mut self, most: Duration) -> io::Result<RoomOutcome> {
        let shared = Arc::clone(&self.session.shared);
        if !shared.memory.is_over() {
            return Ok(RoomOutcome::AtOnce);
        }
        tokio::select! {
            biased;
            room = timeout(most, shared.memory.room()) => Ok(room.map_or(RoomOutcome::None, |()| RoomOutcome::Later)),
            () = shared.drained() => Ok(RoomOutcome::None),
            end = hang_up(&mut self.stream, &mut self.bytes), if !self.hung_up => {
                self.hangs_up(end?);
                Ok(RoomOutcome::None)
            }
        }
    }

    fn hangs_up(&mut self, end: ClientEnd) {
        self.hung_up = true;
        self.ended |= end == ClientEnd::AllRead;
    }
}

/// How it is known that the client sends no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientEnd {
    /// All that it sent has been read.
    AllRead,
    /// Unread bytes are left.
    UnreadBytes,
}

/// Returns when the client sends no more: it has closed the connection, or its half of it. It reads to detect that, but
/// only a bounded amount from a client that goes on sending. Cancel safe.
async fn hang_up(stream: &mut TcpStream, bytes: &mut BytesMut) -> io::Result<ClientEnd> {
    while bytes.len() < READ {
        bytes.reserve(256);
        if stream.read_buf(bytes).await? == 0 {
            return Ok(ClientEnd::AllRead);
        }
    }
    read_closed(stream).await?;
    Ok(ClientEnd::UnreadBytes)
}

/// Returns once the peer has closed its half, even if earlier bytes have not been read.
#[cfg(any(target_os = "linux", target_os = "android"))]
async fn read_closed(stream: &TcpStream) -> io::Result<()> {
    // A task that waits for urgent data is also woken by the end and, unlike a reader, not by readable bytes. The
    // connection is not registered for urgent data, so only the end wakes it.
    while !stream.ready(tokio::io::Interest::PRIORITY).await?.is_read_closed() {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

/// The same by polling: other systems have no such event.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
async fn read_closed(stream: &TcpStream) -> io::Result<()> {
    while !stream.ready(tokio::io::Interest::READABLE).await?.is_read_closed() {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

/// How often to check for a closed connection where there is no event.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Counts a waiting connection.
struct WaitingGuard<'a>(&'a BeanstalkdShared);

impl<'a> WaitingGuard<'a> {
    fn begin(shared: &'a BeanstalkdShared) -> WaitingGuard<'a> {
        shared.counters.waiting.add(1);
        WaitingGuard(shared)
    }
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.counters.waiting.sub(1);
    }
}
