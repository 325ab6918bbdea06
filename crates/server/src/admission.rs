//! Admission: limits the bytes that bodies of requests and answers hold on all connections together.
//!
//! Ground rules:
//! 1. Room is set aside as a body arrives, twice what has arrived and never more than the whole body: a client that
//!    announces much and sends little holds little. A body of up to [`SMALL`] bytes is not counted and does not wait.
//! 2. Where there is no room for more of a body, its connection waits in a queue, for up to [`PATIENCE`]. Then the body
//!    is refused, and its room is freed, so that bodies that wait for each other cannot deadlock.
//! 3. The size of an answer is known only when it is made. It is made only while no more is held than the limit, and
//!    counts at once; where that exceeds the limit, nothing further is read, taken or listed until some of it has been
//!    written: see [`bring`]. One answer may hold an eighth of the limit, or one message.
//! 4. While any connection waits for room, a client that leaves its answer unread for [`PRESSED`], or reads it more
//!    slowly than at [`PRESSED_RATE`], is disconnected; and a body that holds room is refused if it pauses as long, or
//!    arrives as slowly.
//! 5. Names of queues that are waited on have a limit of an eighth of this one: see [`names`].
//! 6. A body larger than the whole limit is admitted alone, so that nothing waits for ever.

mod bring;
mod names;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, Notify, Semaphore};
use tokio::time::timeout;

pub(crate) use self::bring::NoRoom;
use self::names::Beyond;
pub(crate) use self::names::{ConnectionNames, FREE_NAMES};
use crate::arrival_rate::ArrivalRate;
use crate::present::Present;

/// The maximum size of a small body: each connection holds as much in memory anyway.
pub(crate) const SMALL: usize = 16 * 1024;

/// How long a body waits for room before it is refused.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How long a body or an answer may make no progress while others wait for room.
pub(crate) const PRESSED: Duration = Duration::from_secs(1);

/// The minimum rate in bytes per second, of an arriving body or a read answer, while others wait for room.
const PRESSED_RATE: u64 = 256 * 1024;

/// The rate limit from `now_ms` on of what holds room while others wait for it.
pub(crate) fn pressed_pace(now_ms: u64) -> ArrivalRate {
    ArrivalRate::new(PRESSED.as_millis() as u64, PRESSED_RATE, now_ms)
}

/// The accounting of held bytes.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: u64,
    patience: Duration,
    held: AtomicU64,
    /// The waiting line: the first waiter holds the lock, and checks again each time that room is freed.
    line: Mutex<()>,
    waiting: AtomicUsize,
    freed: Notify,
    /// Permits to read bodies from a store.
    readers: Arc<Semaphore>,
    names: Beyond,
}

/// Bytes that are held until this is dropped.
#[derive(Debug)]
pub(crate) struct ReservedBytes {
    memory: Arc<Memory>,
    bytes: u64,
}

/// Room for a body that arrives in pieces.
#[derive(Debug)]
pub(crate) struct Growing {
    held: ReservedBytes,
    /// The maximum length of the body.
    most: usize,
}

impl Memory {
    /// With a limit of `limit` bytes.
    pub(crate) fn new(limit: u64) -> Arc<Memory> {
        Memory::with_patience(limit, PATIENCE)
    }

    pub(crate) fn with_patience(limit: u64, patience: Duration) -> Arc<Memory> {
        let (line, waiting) = (Mutex::new(()), AtomicUsize::new(0));
        let (held, freed, readers) = (AtomicU64::new(0), Notify::new(), bring::readers());
        Arc::new(Memory { limit, patience, held, line, waiting, freed, readers, names: Beyond::default() })
    }

    /// Holds nothing yet, for a body of at most `most` bytes.
    pub(crate) fn growing(self: &Arc<Memory>, most: usize) -> Growing {
        Growing { held: self.add(0), most }
    }

    /// Counts bytes that are in memory already.
    pub(crate) fn add(self: &Arc<Memory>, bytes: u64) -> ReservedBytes {
        self.held.fetch_add(bytes, Ordering::AcqRel);
        ReservedBytes { memory: Arc::clone(self), bytes }
    }

    /// The maximum bytes of one answer, unless a single message has more.
    pub(crate) fn answer_bytes(&self) -> usize {
        usize::try_from(self.limit / 8).unwrap_or(usize::MAX).max(1)
    }

    /// Whether more is held than the limit.
    pub(crate) fn is_over(&self) -> bool {
        self.held.load(Ordering::Acquire) > self.limit
    }

    /// Whether anything waits for room, or would have to.
    pub(crate) fn is_pressed(&self) -> bool {
        self.is_over() || self.waiting.load(Ordering::Acquire) > 0
    }

    /// Room for one message before its length is known, with bodies of at most `most` bytes: for calls that cannot be
    /// abandoned once they are made. What it holds afterwards has to be [set](ReservedBytes::resize).
    ///
    /// # Errors
    /// [`NoRoom`], if there is none in time.
    pub(crate) async fn set_aside(self: &Arc<Memory>, most: usize) -> Result<ReservedBytes, NoRoom> {
        let mut held = self.add(0);
        let bytes = most.min(self.answer_bytes()) as u64;
        timeout(self.patience, held.grow(bytes)).await.map_err(|_| NoRoom)?;
        Ok(held)
    }

    /// Waits until no more is held than the limit.
    pub(crate) async fn room(self: &Arc<Memory>) {
        if self.is_over() {
            self.add(0).grow(0).await;
        }
    }

    /// The number of held bytes.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

impl ReservedBytes {
    /// The number of bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets the number of bytes, after the data was converted to another form.
    pub(crate) fn resize(&mut self, bytes: u64) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        self.memory.held.fetch_add(bytes, Ordering::AcqRel);
        self.memory.held.fetch_sub(before, Ordering::AcqRel);
        if bytes < before {
            self.memory.freed.notify_one();
        }
    }

    /// Takes over what `other` holds.
    pub(crate) fn absorb(&mut self, mut other: ReservedBytes) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Waits until no more is held than the limit, or nothing but this.
    ///
    /// # Errors
    /// [`NoRoom`], if there is none in time.
    pub(crate) async fn room(&mut self) -> Result<(), NoRoom> {
        if !self.memory.is_over() {
            return Ok(());
        }
        timeout(self.memory.patience, self.grow(0)).await.map_err(|_| NoRoom)
    }

    /// Waits for room for `more`, and adds it. Cancel safe; dropping it leaves the line.
    async fn grow(&mut self, more: u64) {
        let memory = &*self.memory;
        let _waiting = Present::among(&memory.waiting);
        let _first = memory.line.lock().await;
        loop {
            // Registered before the check, so that no release is missed.
            let freed = memory.freed.notified();
            let own = self.bytes;
            let sum = |held: u64| {
                let sum = held.saturating_add(more);
                (held == own || sum <= memory.limit).then_some(sum)
            };
            if memory.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, sum).is_ok() {
                self.bytes += more;
                return;
            }
            freed.await;
        }
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.memory.held.fetch_sub(self.bytes, Ordering::AcqRel);
        self.memory.freed.notify_one();
    }
}

impl Growing {
    /// Makes room for what follows when `come` bytes of the body have arrived. Waits for it for at most [`PATIENCE`];
    /// false if there is none, and the body has to be refused. Cancel safe.
    pub(crate) async fn make_room(&mut self, come: usize) -> bool {
        if self.most <= SMALL || come < SMALL {
            return true;
        }
        if self.held.bytes > come as u64 || self.held.bytes >= self.most as u64 {
            return true;
        }
        let wanted = come.saturating_mul(2).min(self.most) as u64;
        let more = wanted.saturating_sub(self.held.bytes);
        timeout(self.held.memory.patience, self.held.grow(more)).await.is_ok()
    }

    /// Waits until there is room for what is made of the bytes that have arrived: see [`ReservedBytes::room`].
    pub(crate) async fn room(&mut self) -> Result<(), NoRoom> {
        self.held.room().await
    }

    /// Counts at least this many bytes, which were made of those that have arrived; it does not wait.
    pub(crate) fn at_least(&mut self, bytes: usize) {
        if self.held.bytes < bytes as u64 {
            self.held.resize(bytes as u64);
        }
    }

    /// Splits off the part that `come` bytes need, for what arrives next.
    pub(crate) fn split(&mut self, come: usize) -> Growing {
        let bytes = if come < SMALL { 0 } else { self.held.bytes.min(come as u64) };
        self.held.bytes -= bytes;
        Growing { held: ReservedBytes { memory: Arc::clone(&self.held.memory), bytes }, most: self.most }
    }

    /// The number of held bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.held.bytes
    }

    /// The memory in which room is set aside for it, if any is: others may come to wait for it.
    pub(crate) fn set_aside_in(&self) -> Option<&Memory> {
        (self.held.bytes > 0).then_some(&*self.held.memory)
    }

    /// Whether others wait for room while this holds some.
    pub(crate) fn is_in_the_way(&self) -> bool {
        self.set_aside_in().is_some_and(Memory::is_pressed)
    }

    /// Keeps what is held by now.
    pub(crate) fn into_held(self) -> ReservedBytes {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const K: usize = 1024;

    #[tokio::test]
    async fn who_announces_much_and_sends_little_holds_little() {
        let memory = Memory::new(100);
        let mut silent: Vec<_> = (0..1_000).map(|_| memory.growing(K * K)).collect();
        for one in &mut silent {
            assert!(one.make_room(SMALL - 1).await);
        }
        assert_eq!(memory.held(), 0);
        assert!(!memory.is_pressed());
    }

    #[tokio::test]
    async fn room_is_twice_what_has_come_and_never_more_than_all_of_it() {
        let memory = Memory::new(K as u64 * K as u64);
        let mut body = memory.growing(100 * K);
        for (come, held) in [(K, 0), (16 * K, 32), (20 * K, 32), (49 * K, 98), (51 * K, 98), (99 * K, 100)] {
            assert!(body.make_room(come).await);
            assert_eq!(memory.held(), held * K as u64, "{come}");
        }
        drop(body.into_held());
        assert_eq!(memory.held(), 0);
    }

    #[tokio::test]
    async fn what_comes_next_goes_on_holding_what_has_come_of_it() {
        let memory = Memory::new(K as u64 * K as u64);
        let mut body = memory.growing(100 * K);
        assert!(body.make_room(50 * K).await);
        let next = body.split(20 * K);
        assert_eq!((memory.held(), next.bytes()), (100 * K as u64, 20 * K as u64));
        drop(body);
        assert_eq!(memory.held(), 20 * K as u64);
        let mut next = next;
        assert_eq!(next.split(SMALL - 1).bytes(), 0, "what is small holds nothing");
        drop(next);
        assert_eq!(memory.held(), 0);
    }

    #[tokio::test]
    async fn small_ones_never_wait() {
        let memory = Memory::new(100);
        let _answers = memory.add(1_000);
        assert!(memory.growing(SMALL).make_room(SMALL).now_or_never().expect("it does not wait"));
    }

    #[tokio::test]
    async fn who_finds_no_room_waits_in_the_order_of_coming() {
        let memory = Memory::new(100 * K as u64);
        let first = memory.add(60 * K as u64);
        let (mut large, mut smaller) = (memory.growing(80 * K), memory.growing(32 * K));
        let mut large = Box::pin(large.make_room(40 * K));
        assert!((&mut large).now_or_never().is_none());
        assert!(memory.is_pressed());
        // There is room for it, but another waiter is first.
        let mut smaller = Box::pin(smaller.make_room(16 * K));
        assert!((&mut smaller).now_or_never().is_none());
        drop(first);
        assert!(large.await);
        assert!((&mut smaller).now_or_never().is_none());
        assert_eq!(memory.held(), 80 * K as u64);
    }

    #[tokio::test]
    async fn what_is_larger_than_everything_goes_alone() {
        let memory = Memory::new(100);
        let mut huge = memory.growing(64 * K);
        assert!(huge.make_room(20 * K).await && huge.make_room(40 * K).await);
        assert!(memory.is_over());
        assert!(memory.growing(64 * K).make_room(20 * K).now_or_never().is_none());
        drop(huge);
        assert!(memory.growing(64 * K).make_room(20 * K).now_or_never().is_some());
    }

    #[tokio::test]
    async fn bodies_that_wait_for_each_other_do_not_wait_for_ever() {
        let memory = Memory::with_patience(100 * K as u64, Duration::from_millis(20));
        let (mut one, mut other) = (memory.growing(90 * K), memory.growing(90 * K));
        assert!(one.make_room(25 * K).await && other.make_room(25 * K).await);
        assert!(!one.make_room(50 * K).await, "there is no room, and it is refused");
        assert!(other.make_room(50 * K).now_or_never().is_none());
        drop(one);
        assert!(other.make_room(50 * K).await);
    }

    #[tokio::test]
    async fn who_gives_up_leaves_the_line() {
        let memory = Memory::new(100);
        let first = memory.add(100);
        let mut body = memory.growing(64 * K);
        let mut waiting = Box::pin(body.make_room(20 * K));
        assert!((&mut waiting).now_or_never().is_none());
        drop(waiting);
        assert!(!memory.is_pressed());
        drop(first);
        assert!(body.make_room(20 * K).now_or_never().is_some());
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
