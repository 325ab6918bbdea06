//! Connections for blocking commands: one per waiter, since a connection serves no other command while it blocks.
//!
//! Their number is bounded. A caller that finds none free waits for one, until its own deadline.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dwell_redis::Link;
use dwell_time::{Clock as _, SystemClock};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, RedisResult};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The maximum number of waiters of one queue or consumer that block at the server at the same time.
const MOST: usize = 64;
/// The number of connections that are kept open without a waiter.
const KEPT: usize = 4;
/// How much later than requested a reply may arrive.
const GRACE: Duration = Duration::from_secs(5);
/// The maximum wait, a month: a server's timeout has an upper bound.
const LONGEST_MS: u64 = 30 * 24 * 60 * 60 * 1000;

/// The connections of one queue or consumer.
pub(super) struct Blocking {
    seats: Semaphore,
    free: Mutex<Vec<MultiplexedConnection>>,
    /// Waits use its monotonic time.
    clock: SystemClock,
}

impl Default for Blocking {
    fn default() -> Blocking {
        Blocking { seats: Semaphore::new(MOST), free: Mutex::default(), clock: SystemClock::new() }
    }
}

/// A connection for exclusive use. Dropping it during a wait closes the connection.
pub(super) struct BlockedSlot<'a> {
    blocking: &'a Blocking,
    connection: MultiplexedConnection,
    _seat: SemaphorePermit<'a>,
}

impl Blocking {
    /// The monotonic time in milliseconds.
    pub(super) fn now_ms(&self) -> u64 {
        self.clock.now().mono_ms
    }

    /// The deadline of a wait of `wait_ms`, or of a month if that is shorter.
    pub(super) fn deadline_ms(&self, wait_ms: u64) -> u64 {
        self.now_ms() + wait_ms.min(LONGEST_MS)
    }

    /// The time left until `until_ms`.
    pub(super) fn left(&self, until_ms: u64) -> Duration {
        Duration::from_millis(until_ms.saturating_sub(self.now_ms()))
    }

    /// Returns a connection to wait on, or `None` if all are in use until `until_ms`.
    pub(super) async fn sit(&self, link: &Link, until_ms: u64) -> RedisResult<Option<BlockedSlot<'_>>> {
        let seat = tokio::time::timeout(self.left(until_ms), self.seats.acquire()).await;
        let Ok(seat) = seat else { return Ok(None) };
        let seat = seat.expect("it is never closed");
        let free = self.free().pop();
        let connection = match free {
            Some(connection) => connection,
            None => link.connect().await?,
        };
        Ok(Some(BlockedSlot { blocking: self, connection, _seat: seat }))
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<MultiplexedConnection>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockedSlot<'_> {
    /// Sends a command whose last argument is its timeout: the time until `until_ms`, but at least a millisecond, since
    /// zero would block forever.
    pub(super) async fn wait<T: FromRedisValue>(
        mut self,
        command: &mut Cmd,
        until_ms: u64,
    ) -> RedisResult<T> {
        let left = self.blocking.left(until_ms).max(Duration::from_millis(1));
        self.connection.set_response_timeout(left + GRACE);
        let reply = command.arg(left.as_secs_f64()).query_async(&mut self.connection).await;
        let mut free = self.blocking.free();
        match &reply {
            // The primary may have become a replica. The idle connections lead to the same server.
            Err(error) if error.code() != Some("OOM") => free.clear(),
            _ if free.len() < KEPT => free.push(self.connection.clone()),
            _ => {}
        }
        drop(free);
        reply
    }
}
