//! Connections on which somebody waits at the server: one a waiter, since a connection serves nobody else while it
//! waits. They are bounded; whoever finds none free waits for one, until the deadline of its own.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dwell_redis::Link;
use dwell_time::{Clock as _, SystemClock};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, RedisResult};
use tokio::sync::{Semaphore, SemaphorePermit};

/// How many of one queue or consumer wait at the server at the same time.
const MOST: usize = 64;
/// How many connections are kept though nobody waits.
const KEPT: usize = 4;
/// How much later than asked for an answer may come.
const GRACE: Duration = Duration::from_secs(5);
/// A month: the longest wait, since what a server takes for a timeout has a bound.
const LONGEST_MS: u64 = 30 * 24 * 60 * 60 * 1000;

/// The connections of one queue or consumer.
pub(super) struct Blocking {
    seats: Semaphore,
    free: Mutex<Vec<MultiplexedConnection>>,
    /// Waits go by its monotonic time.
    clock: SystemClock,
}

impl Default for Blocking {
    fn default() -> Blocking {
        Blocking { seats: Semaphore::new(MOST), free: Mutex::default(), clock: SystemClock::new() }
    }
}

/// A connection that its holder has to itself. Dropped while it waits, the connection is closed.
pub(super) struct Seat<'a> {
    blocking: &'a Blocking,
    connection: MultiplexedConnection,
    _seat: SemaphorePermit<'a>,
}

impl Blocking {
    /// Monotonic milliseconds.
    pub(super) fn now_ms(&self) -> u64 {
        self.clock.now().mono_ms
    }

    /// When so long a wait ends, or one of a month.
    pub(super) fn deadline_ms(&self, wait_ms: u64) -> u64 {
        self.now_ms() + wait_ms.min(LONGEST_MS)
    }

    /// How long it is until then.
    pub(super) fn left(&self, until_ms: u64) -> Duration {
        Duration::from_millis(until_ms.saturating_sub(self.now_ms()))
    }

    /// A connection to wait on, or `None` if all are taken until then.
    pub(super) async fn sit(&self, link: &Link, until_ms: u64) -> RedisResult<Option<Seat<'_>>> {
        let seat = tokio::time::timeout(self.left(until_ms), self.seats.acquire()).await;
        let Ok(seat) = seat else { return Ok(None) };
        let seat = seat.expect("it is never closed");
        let free = self.free().pop();
        let connection = match free {
            Some(connection) => connection,
            None => link.connect().await?,
        };
        Ok(Some(Seat { blocking: self, connection, _seat: seat }))
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<MultiplexedConnection>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat<'_> {
    /// Sends a command that ends with how long it waits: until then, and at least a millisecond, since zero would be for
    /// ever.
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
            // A primary may have become a replica; the others are of the same age.
            Err(error) if error.code() != Some("OOM") => free.clear(),
            _ if free.len() < KEPT => free.push(self.connection.clone()),
            _ => {}
        }
        drop(free);
        reply
    }
}
