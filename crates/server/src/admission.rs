//! Admission: how many bytes the bodies of requests and answers may hold, all connections together.
//!
//! Ground rules:
//! 1. Before a body is read, room for all of it is set aside. Where there is none, its connection waits, in the order
//!    of coming: over HTTP for a while, after which it is told to come again; over beanstalkd's protocol, which has no
//!    words for that, it is read no further until there is room.
//! 2. What a take was handed is there already. It is added without asking, and where that passes the limit, nothing
//!    further is read or taken until some of it has been written.
//! 3. One that is larger than all there is goes through alone, so that nothing waits for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Mutex, Notify};

/// The bytes that are held.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: u64,
    held: AtomicU64,
    /// Whoever waits stands in this line; the first of it looks again each time that something is let go.
    line: Mutex<()>,
    freed: Notify,
}

/// Bytes that are held while this lives.
#[derive(Debug)]
pub(crate) struct Held {
    memory: Arc<Memory>,
    bytes: u64,
}

impl Memory {
    /// At most `limit` bytes.
    pub(crate) fn new(limit: u64) -> Arc<Memory> {
        Arc::new(Memory { limit, held: AtomicU64::new(0), line: Mutex::new(()), freed: Notify::new() })
    }

    /// Room for `bytes`; waits for it. May be dropped, which gives up the place in the line.
    pub(crate) async fn admit(self: &Arc<Memory>, bytes: u64) -> Held {
        let _first = self.line.lock().await;
        loop {
            // Before the look, so that what is let go meanwhile is not missed.
            let freed = self.freed.notified();
            if let Some(held) = self.try_admit(bytes) {
                return held;
            }
            freed.await;
        }
    }

    fn try_admit(self: &Arc<Memory>, bytes: u64) -> Option<Held> {
        let more = |held: u64| {
            let sum = held.saturating_add(bytes);
            (held == 0 || sum <= self.limit).then_some(sum)
        };
        self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Held { memory: Arc::clone(self), bytes })
    }

    /// Counts what is there already.
    pub(crate) fn add(self: &Arc<Memory>, bytes: u64) -> Held {
        self.held.fetch_add(bytes, Ordering::AcqRel);
        Held { memory: Arc::clone(self), bytes }
    }

    /// Whether more is held than may be.
    pub(crate) fn is_over(&self) -> bool {
        self.held.load(Ordering::Acquire) > self.limit
    }

    /// Waits until no more is held than may be.
    pub(crate) async fn room(self: &Arc<Memory>) {
        if self.is_over() {
            drop(self.admit(0).await);
        }
    }

    /// So many bytes are held.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

impl Held {
    /// How many.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.held.fetch_sub(self.bytes, Ordering::AcqRel);
        self.memory.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn who_finds_no_room_waits_in_the_order_of_coming() {
        let memory = Memory::new(100);
        let first = memory.admit(60).await;
        let mut large = Box::pin(memory.admit(80));
        assert!((&mut large).now_or_never().is_none());
        // There is room for it, but somebody came before.
        let mut small = Box::pin(memory.admit(10));
        assert!((&mut small).now_or_never().is_none());
        drop(first);
        let large = large.await;
        let small = small.await;
        assert_eq!(memory.held(), 90);
        drop((large, small));
        assert_eq!(memory.held(), 0);
    }

    #[tokio::test]
    async fn what_is_larger_than_everything_goes_alone() {
        let memory = Memory::new(100);
        let huge = memory.admit(1_000).await;
        assert!(memory.is_over());
        assert!(memory.admit(1).now_or_never().is_none());
        drop(huge);
        assert!(memory.admit(1).now_or_never().is_some());
    }

    #[tokio::test]
    async fn who_gives_up_leaves_the_line() {
        let memory = Memory::new(100);
        let first = memory.admit(100).await;
        let mut waiting = Box::pin(memory.admit(50));
        assert!((&mut waiting).now_or_never().is_none());
        drop(waiting);
        drop(first);
        assert!(memory.admit(100).now_or_never().is_some());
    }

    #[tokio::test]
    async fn answers_hold_requests_back_until_they_are_written() {
        let memory = Memory::new(100);
        let answer = memory.add(150);
        let mut room = Box::pin(memory.room());
        assert!((&mut room).now_or_never().is_none());
        drop(answer);
        room.await;
    }
}
