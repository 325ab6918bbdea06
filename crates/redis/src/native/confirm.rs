//! Connections for calls that replicas confirm: their maximum number, and which of them are reused.
//!
//! `WAIT` blocks whatever follows it on its connection, so each connection serves one call at a time. A restart or a
//! failover, which ends one connection, mostly ends the others too: when one turns out to be broken, all idle ones
//! are dropped, and those in use are not kept. So a call meets one stale connection, and not each of them in turn.

use std::sync::Mutex;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::script_call::locked;
use crate::Link;

/// The maximum number of concurrent confirmed calls per connection that the address allows; others wait for their
/// turn.
const CALLS: usize = 16;

/// How long an unused connection is kept open, in ms.
const IDLE_MS: u64 = 30_000;

/// The connections of a process for calls that are confirmed.
pub(super) struct ConfirmedConnections {
    turns: Semaphore,
    idle: Mutex<IdleConnections<MultiplexedConnection>>,
}

/// A connection that one call uses exclusively.
pub(super) struct ConfirmedConnection<'a> {
    connection: MultiplexedConnection,
    generation: u64,
    _turn: SemaphorePermit<'a>,
}

impl ConfirmedConnection<'_> {
    pub(super) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        self.connection.req_packed_command(command).await.and_then(Value::extract_error)
    }
}

impl ConfirmedConnections {
    pub(super) fn new(connections: usize) -> ConfirmedConnections {
        ConfirmedConnections { turns: Semaphore::new(connections * CALLS), idle: Mutex::default() }
    }

    /// A connection, or `None` if none was given back within `patience_ms`.
    pub(super) async fn enter(
        &self,
        link: &Link,
        patience_ms: u64,
        now_ms: impl Fn() -> u64,
    ) -> Option<Result<ConfirmedConnection<'_>, RedisError>> {
        let turn = tokio::time::timeout(Duration::from_millis(patience_ms), self.turns.acquire()).await;
        let turn = turn.ok()?.expect("it is never closed");
        let (idle, generation) = {
            let mut idle = locked(&self.idle);
            (idle.take(now_ms()), idle.generation)
        };
        let connection = match idle {
            Some(connection) => connection,
            None => match link.connect().await {
                Ok(connection) => connection,
                Err(error) => return Some(Err(error)),
            },
        };
        Some(Ok(ConfirmedConnection { connection, generation, _turn: turn }))
    }

    /// Returns a connection whose call has ended and that is still good.
    pub(super) fn keep(&self, used: ConfirmedConnection<'_>, now_ms: u64) {
        locked(&self.idle).keep(used.connection, used.generation, now_ms);
    }

    /// Drops a connection that is broken, and the idle ones: they will be broken too.
    pub(super) fn has_failed(&self, used: ConfirmedConnection<'_>) {
        locked(&self.idle).fail(used.generation);
    }

    /// Closes the connections that have been idle for long.
    pub(super) fn tidy(&self, now_ms: u64) {
        locked(&self.idle).tidy(now_ms);
    }
}

/// Idle connections and since when, the one used last at the end.
struct IdleConnections<C> {
    free: Vec<(C, u64)>,
    /// How many times connections were dropped because one was broken.
    generation: u64,
}

impl<C> Default for IdleConnections<C> {
    fn default() -> IdleConnections<C> {
        IdleConnections { free: Vec::new(), generation: 0 }
    }
}

impl<C> IdleConnections<C> {
    fn take(&mut self, now_ms: u64) -> Option<C> {
        self.tidy(now_ms);
        self.free.pop().map(|(connection, _)| connection)
    }

    fn keep(&mut self, connection: C, generation: u64, now_ms: u64) {
        self.tidy(now_ms);
        if generation == self.generation {
            self.free.push((connection, now_ms));
        }
    }

    /// Connections that were made after another failure was noticed are kept.
    fn fail(&mut self, generation: u64) {
        if generation == self.generation {
            self.generation += 1;
            self.free.clear();
        }
    }

    fn tidy(&mut self, now_ms: u64) {
        let old = self.free.iter().take_while(|(_, since_ms)| now_ms.saturating_sub(*since_ms) >= IDLE_MS);
        let old = old.count();
        self.free.drain(..old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_broken_takes_all_of_its_time_with_it_and_none_made_later() {
        let mut idle = IdleConnections::default();
        let before = idle.generation;
        for connection in 0..3 {
            idle.keep(connection, before, 0);
        }
        assert_eq!(idle.take(0), Some(2));
        idle.fail(before);
        assert_eq!(idle.take(0), None, "the others are stale too");
        idle.keep(7, before, 0);
        assert_eq!(idle.take(0), None, "it was made before");
        idle.keep(8, idle.generation, 0);
        idle.fail(before);
        assert_eq!(idle.take(0), Some(8), "it was made after");
    }

    #[test]
    fn those_that_are_idle_for_long_are_closed_and_those_in_use_stay() {
        let mut idle = IdleConnections::default();
        idle.keep('a', 0, 0);
        idle.keep('b', 0, 10);
        idle.tidy(IDLE_MS - 1);
        assert_eq!(idle.free.len(), 2);
        assert_eq!(idle.take(IDLE_MS), Some('b'), "the first one has been idle for too long");
        assert!(idle.free.is_empty());
    }
}
