//! Connections on which somebody waits at the server: one a waiter, since a connection serves nobody else while it
//! waits. They are bounded; whoever finds none free waits for one, until the deadline of its own.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, RedisResult};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::Link;

/// How many of one queue or consumer wait at the server at the same time.
const MOST: usize = 64;
/// How many connections are kept though nobody waits.
const KEPT: usize = 4;
/// How much later than asked for an answer may come.
const GRACE: Duration = Duration::from_secs(5);
/// A month: the longest wait, since what a server takes for a timeout has a bound.
const LONGEST_MS: u64 = 30 * 24 * 60 * 60 * 1000;

/// The instant that is so far away, or a month.
pub(super) fn deadline(wait_ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(wait_ms.min(LONGEST_MS))
}

/// The connections of one queue or consumer.
pub(super) struct Blocking {
    seats: Semaphore,
    free: Mutex<Vec<MultiplexedConnection>>,
}

impl Default for Blocking {
    fn default() -> Blocking {
        Blocking { seats: Semaphore::new(MOST), free: Mutex::default() }
    }
}

/// A connection that its holder has to itself. Dropped while it waits, the connection is closed.
pub(super) struct Seat<'a> {
    blocking: &'a Blocking,
    connection: MultiplexedConnection,
    _seat: SemaphorePermit<'a>,
}

impl Blocking {
    /// A connection to wait on, or `None` if all are taken until then.
    pub(super) async fn sit(&self, link: &Link, until: Instant) -> RedisResult<Option<Seat<'_>>> {
        let Ok(seat) = tokio::time::timeout_at(until, self.seats.acquire()).await else { return Ok(None) };
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
        until: Instant,
    ) -> RedisResult<T> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.connection.set_response_timeout(left + GRACE);
        let millis = u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(LONGEST_MS);
        let reply = command.arg(millis as f64 / 1000.0).query_async(&mut self.connection).await;
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
