//! `DelayQueue<T>`: items that become available after a delay, for the threads and tasks of one process.

mod blocking;
mod error;
mod future;
mod intake;
mod state;
mod sync;
mod time;
mod timer;
mod waiters;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock::{ClockMoved, ManualClock};
use crate::timing_queue::Handle;

use intake::{Intake, IntakeRefused, Need};
use state::{Calls, QueueState};
use sync::{Guard, Lock};
use time::Time;
use timer::Timer;
use waiters::{WaiterList, Wake};

pub use error::{Closed, PutError};
pub use future::{Items, Put, Take, TakeTimeout};

/// An unbounded (or, on request, bounded) queue from which an item can be taken once its delay has passed.
///
/// It is what `java.util.concurrent.DelayQueue` is to Java; `docs/delay-queue.md` compares them method by method. Any
/// number of threads and tasks put and take; clones are the same queue. `T` needs neither `Ord` nor `Clone`.
///
/// # Guarantees
/// - An item is handed over once, and never before its instant.
/// - Items leave in the order of their instants; items of one instant leave in the order of their puts.
/// - Of all waiters, one has a timer; the others cost nothing until it is their turn.
/// - A future that is dropped while it waits loses no item and delays no other waiter.
/// - A future or stream that was woken, is kept and is not polled delays others once, by 10 to 20 ms. It then loses its
///   turn until it is polled again.
///
/// # Wakers
/// A task's waker is woken, cloned and dropped only while no lock is held and the caller's own item is safe. If it
/// panics, the panic is caught: the panic hook reports it, the call goes on and returns what it would have returned,
/// all other waiters are woken, and the woken task's turn passes to the next waiter. A waker that blocks delays the
/// call that wakes it, and the tasks that this call wakes after it. On the thread that is the timer of all tasks of the
/// process, it delays all of these. Threads are woken first.
///
/// # Locks and memory
/// A call holds the queue's lock for about a thousand items at most before it lets other calls in; the exception is
/// [`for_each`](DelayQueue::for_each). Like a `Vec`, the queue keeps the memory of its largest number of items until it
/// is dropped.
///
/// # Time
/// Instants are [`Instant`]s: monotonic, so that steps of the wall clock do not affect them, and not advanced while a
/// machine is suspended (Linux). They are stored as 64-bit nanoseconds, a range of 292 years.
///
/// # Examples
/// Threads:
/// ```
/// use std::thread;
/// use std::time::Duration;
/// use dwell_time::DelayQueue;
///
/// let queue = DelayQueue::new();
/// let consumer = {
///     let queue = queue.clone();
///     thread::spawn(move || [queue.take(), queue.take()])
/// };
/// queue.put("later", Duration::from_millis(20))?;
/// queue.put("sooner", Duration::from_millis(10))?;
/// assert_eq!(consumer.join().unwrap(), [Ok("sooner"), Ok("later")]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Tasks, on any runtime; here tokio:
/// ```
/// use std::time::Duration;
/// use dwell_time::DelayQueue;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = DelayQueue::new();
/// let consumer = tokio::spawn({
///     let queue = queue.clone();
///     async move { queue.take_async().await }
/// });
/// let never = queue.put("never", Duration::from_millis(1))?;
/// queue.put("now", Duration::from_millis(2))?;
/// assert_eq!(queue.cancel(never), Some("never"));
/// assert_eq!(consumer.await??, "now");
/// # Ok(())
/// # }
/// ```
///
/// A cache with expiring entries, where using an entry extends its lifetime:
/// ```
/// use std::collections::HashMap;
/// use std::time::Duration;
/// use dwell_time::{DelayQueue, Handle};
///
/// const LIFE: Duration = Duration::from_secs(60);
///
/// #[derive(Default)]
/// struct Cache {
///     entries: HashMap<String, (String, Handle)>,
///     expiry: DelayQueue<String>,
/// }
///
/// impl Cache {
///     fn set(&mut self, key: &str, value: &str) {
///         self.sweep();
///         let handle = self.expiry.put(key.to_owned(), LIFE).expect("nobody closes it, 60 s are near");
///         if let Some((_, old)) = self.entries.insert(key.to_owned(), (value.to_owned(), handle)) {
///             self.expiry.cancel(old);
///         }
///     }
///
///     fn get(&mut self, key: &str) -> Option<&str> {
///         self.sweep();
///         let (value, handle) = self.entries.get(key)?;
///         self.expiry.reschedule(*handle, LIFE);
///         Some(value)
///     }
///
///     fn sweep(&mut self) {
///         while let Some(key) = self.expiry.poll() {
///             self.entries.remove(&key);
///         }
///     }
/// }
///
/// let mut cache = Cache::default();
/// cache.set("colour", "blue");
/// assert_eq!(cache.get("colour"), Some("blue"));
/// ```
pub struct DelayQueue<T> {
    shared: Arc<QueueShared<T>>,
}

/// The number of items that one call takes out before it releases the lock to other calls.
const BATCH: usize = 1024;
/// The number of times that a put which finds its tray full yields before it empties the tray itself.
const YIELDS: usize = 8;

struct QueueShared<T> {
    state: Lock<QueueState<T>>,
    consumers: Arc<WaiterList>,
    producers: Arc<WaiterList>,
    /// The timer of this queue alone, if its clock is moved by hand and the model checker runs its alarms.
    timer: Option<Arc<Timer>>,
    intake: Intake<T>,
    /// The capacity limit. A bounded queue does not use the intake: its puts have to check for room.
    limit: Option<usize>,
    time: Time,
    /// A blocked thread spins for this many nanoseconds before the instant.
    spin: i64,
}

impl<T> QueueShared<T> {
    /// Locks the state, without the items in the intake.
    #[inline]
    fn state(&self) -> Guard<'_, QueueState<T>> {
        match self.state.try_lock() {
            Some(state) => state,
            None => self.fight_for_state(),
        }
    }

    #[cold]
    fn fight_for_state(&self) -> Guard<'_, QueueState<T>> {
        self.intake.begin();
        self.state.lock()
    }

    /// Locks the state, with all items that were put.
    fn whole(&self) -> Guard<'_, QueueState<T>> {
        let mut state = self.state();
        if !self.intake.is_empty() {
            state.bring_in(&self.intake);
        }
        state
    }

    /// Settles, releases the lock and wakes the waiters that were called: the end of every call that changed something.
    #[inline]
    fn finish(&self, state: Guard<'_, QueueState<T>>) {
        if !state.is_quiet() {
            self.settle(state);
        }
    }

    #[cold]
    fn settle(&self, mut state: Guard<'_, QueueState<T>>) {
        let mut calls = Calls::default();
        loop {
            state.settle(&mut calls);
            if state.watch(&self.intake) {
                break;
            }
            state.bring_in(&self.intake);
        }
        self.let_go(state);
        calls.fire(&self.consumers, &self.producers);
    }

    /// Releases the lock.
    ///
    /// If there are waiters while a called task has not returned, the watch of that task begins here, before any waker
    /// runs. So a waker that blocks, or a thread that is preempted here, delays others for the grace period at most.
    fn let_go(&self, mut state: Guard<'_, QueueState<T>>) {
        let watches = [&self.consumers, &self.producers].map(|line| line.wants_watch().then_some(line));
        if !self.has_timer() && watches.iter().any(Option::is_some) {
            state.note_watch(&self.time);
        }
        drop(state);
        if self.has_timer() {
            watches.into_iter().flatten().for_each(|line| self.watch(line));
        }
    }

    #[cold]
    fn watch(&self, line: &Arc<WaiterList>) {
        match self.timer() {
            Ok(timer) => timer.watch(line),
            // Without a timer there is no grace period: waiters are called one after the other until one is a thread,
            // which always returns.
            Err(_) => loop {
                line.end_watch();
                if !line.wants_watch() {
                    break;
                }
            },
        }
    }

    /// Whether a timer calls tasks at their instants. A clock that is moved by hand does so itself.
    fn has_timer(&self) -> bool {
        self.timer.is_some() || matches!(self.time, Time::System)
    }

    fn timer(&self) -> io::Result<&Arc<Timer>> {
        match &self.timer {
            Some(timer) => Ok(timer),
            None => Timer::of_process(),
        }
    }

    /// Puts an item into an unbounded queue. `now` is this call's reading of the clock, if there is one.
    #[inline]
    fn put_unlimited(&self, value: T, due: i64, now: Option<i64>) -> Result<Handle, PutError<T>> {
        if !self.intake.is_used() {
            match self.state.try_lock() {
                Some(state) => return self.put_straight(state, value, due),
                None => self.intake.begin(),
            }
        }
        match self.leave(value, due, now) {
            Ok(handle) => Ok(handle),
            Err(IntakeRefused::Closed(value)) => Err(PutError::Closed(value)),
            Err(IntakeRefused::Full(value)) => self.put_when_full(value, due),
        }
    }

    /// Puts an item for which the tray has no room.
    #[cold]
    fn put_when_full(&self, mut value: T, due: i64) -> Result<Handle, PutError<T>> {
        // A consumer may have emptied the tray by now.
        for _ in 0..YIELDS {
            sync::yield_now();
            match self.leave(value, due, None) {
                Ok(handle) => return Ok(handle),
                Err(IntakeRefused::Closed(value)) => return Err(PutError::Closed(value)),
                Err(IntakeRefused::Full(still)) => value = still,
            }
        }
        self.put_past_intake(value, due)
    }

    /// Stores an item in the intake, and empties the trays if necessary.
    #[inline]
    fn leave(&self, value: T, due: i64, now: Option<i64>) -> Result<Handle, IntakeRefused<T>> {
        let (handle, need) = self.intake.leave(due, value, now, &self.time)?;
        if need != Need::No {
            self.bring_in(need);
        }
        Ok(handle)
    }

    /// Puts an item directly into the queue, after the items that may be in the trays.
    #[inline]
    fn put_straight(
        &self,
        mut state: Guard<'_, QueueState<T>>,
        value: T,
        due: i64,
    ) -> Result<Handle, PutError<T>> {
        if state.is_closed() {
            return Err(PutError::Closed(value));
        }
        if !self.intake.is_empty() {
            state.bring_in(&self.intake);
        }
        let handle = state.items.insert(due, value);
        self.finish(state);
        Ok(handle)
    }

    #[cold]
    fn bring_in(&self, need: Need) {
        if need == Need::Now {
            return self.finish(self.whole());
        }
        // It is better left to a consumer, whose cache holds the memory that this touches.
        if self.intake.hurry() {
            return;
        }
        if let Some(mut state) = self.state.try_lock() {
            state.bring_in(&self.intake);
            self.finish(state);
        }
    }

    #[cold]
    fn put_past_intake(&self, value: T, due: i64) -> Result<Handle, PutError<T>> {
        let mut state = self.state();
        if !state.is_closed() {
            state.supply_more();
            state.bring_in(&self.intake);
        }
        self.put_straight(state, value, due)
    }
}

impl<T: Send> ClockMoved for QueueShared<T> {
    fn moved(&self) {
        let mut state = self.whole();
        let moved = state.clock_moved(&self.time);
        self.finish(state);
        moved.consumers.into_iter().for_each(|call| self.consumers.fire(call));
        moved.producers.into_iter().for_each(|call| self.producers.fire(call));
    }
}

/// The options of a [`DelayQueue`].
///
/// ```
/// use std::time::Duration;
/// use dwell_time::DelayQueue;
///
/// let queue: DelayQueue<u64> = DelayQueue::builder().capacity_limit(1_000).spin(Duration::from_micros(60)).build();
/// # assert!(queue.is_empty());
/// ```
#[derive(Debug, Default)]
#[must_use = "build() makes the queue"]
pub struct Builder {
    capacity: Option<usize>,
    spin: Duration,
    clock: Option<ManualClock>,
}

impl Builder {
    /// The maximum number of items. At the limit, puts wait and [`DelayQueue::try_put`] refuses.
    ///
    /// # Panics
    /// If it is 0: nothing could ever be put.
    #[track_caller]
    pub fn capacity_limit(mut self, items: usize) -> Builder {
        assert!(items > 0, "a delay queue needs room for one item at least");
        self.capacity = Some(items);
        self
    }

    /// Makes the thread that waits for the head spin for the last `stretch` before the instant.
    ///
    /// It wakes earlier than the operating system would wake it, at the cost of processor time (`docs/delay-queue.md`
    /// has both in numbers). Off by default. Tasks do not spin.
    pub fn spin(mut self, stretch: Duration) -> Builder {
        self.spin = stretch;
        self
    }

    /// Reads the time from a clock that a test moves, in milliseconds from 0. [`DelayQueue::now`] returns the
    /// corresponding instant.
    pub fn clock(mut self, clock: &ManualClock) -> Builder {
        self.clock = Some(clock.clone());
        self
    }

    /// Builds the queue.
    pub fn build<T: Send + 'static>(self) -> DelayQueue<T> {
        let time = self.clock.clone().map_or(Time::System, Time::Manual);
        let spin = i64::try_from(self.spin.as_nanos()).unwrap_or(i64::MAX);
        let queue = DelayQueue::with(self.capacity, time, spin, None);
        if let Some(clock) = self.clock {
            let shared: Arc<dyn ClockMoved> = Arc::clone(&queue.shared) as Arc<dyn ClockMoved>;
            clock.tell_when_moved(&shared);
        }
        queue
    }

    /// For the model checker: builds a queue whose tasks wait with alarms although its clock is moved by hand.
    ///
    /// Also returns a function that runs the alarms in a thread of the test, and one that ends it. The clock does not
    /// wake threads.
    #[cfg(shuttle)]
    pub fn build_with_alarms<T: Send + 'static>(
        self,
        clock: &ManualClock,
    ) -> (DelayQueue<T>, impl FnOnce() + Send + 'static, impl FnOnce() + Send + 'static) {
        let timer = Timer::by_hand(clock);
        let (running, stopping) = (Arc::clone(&timer), Arc::clone(&timer));
        let queue = DelayQueue::with(self.capacity, Time::Manual(clock.clone()), 0, Some(timer));
        (queue, move || running.run_until_stopped(), move || stopping.stop())
    }
}

impl DelayQueue<()> {
    /// Returns a builder, for a queue with a capacity limit, spinning, or a manual clock.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl<T> DelayQueue<T> {
    /// Creates an empty, unbounded queue.
    pub fn new() -> DelayQueue<T> {
        DelayQueue::with(None, Time::System, 0, None)
    }

    /// Creates an empty queue that holds at most `items` items.
    ///
    /// # Panics
    /// If it is 0: nothing could ever be put.
    #[track_caller]
    pub fn with_capacity_limit(items: usize) -> DelayQueue<T> {
        assert!(items > 0, "a delay queue needs room for one item at least");
        DelayQueue::with(Some(items), Time::System, 0, None)
    }

    fn with(limit: Option<usize>, time: Time, spin: i64, timer: Option<Arc<Timer>>) -> DelayQueue<T> {
        let (consumers, producers) = (Arc::default(), Arc::default());
        let state = Lock::new(QueueState::new(limit.unwrap_or(usize::MAX), &consumers, &producers));
        let intake = Intake::new();
        DelayQueue {
            shared: Arc::new(QueueShared { state, consumers, producers, timer, intake, limit, time, spin }),
        }
    }

    /// Puts `value` unless the queue is full. Never waits.
    ///
    /// # Errors
    /// [`PutError::Full`], [`PutError::Closed`] and [`PutError::TooFar`], with the value.
    pub fn try_put(&self, value: T, delay: Duration) -> Result<Handle, PutError<T>> {
        match self.shared.time.now_and_after(delay) {
            Some((now, due)) => self.try_put_ns(value, due, Some(now)),
            None => Err(PutError::TooFar(value)),
        }
    }

    /// As [`try_put`](DelayQueue::try_put), with an instant.
    ///
    /// # Errors
    /// The same as [`try_put`](DelayQueue::try_put).
    pub fn try_put_at(&self, value: T, due: Instant) -> Result<Handle, PutError<T>> {
        match time::from_instant(due) {
            Some(due) => self.try_put_ns(value, due, None),
            None => Err(PutError::TooFar(value)),
        }
    }

    fn try_put_ns(&self, value: T, due: i64, now: Option<i64>) -> Result<Handle, PutError<T>> {
        if self.shared.limit.is_none() {
            return self.shared.put_unlimited(value, due, now);
        }
        let mut state = self.shared.state();
        if state.is_closed() {
            return Err(PutError::Closed(value));
        }
        if state.is_full() {
            return Err(PutError::Full(value));
        }
        let handle = state.items.insert(due, value);
        self.shared.finish(state);
        Ok(handle)
    }

    /// Takes the earliest item if it is due. Never waits.
    pub fn poll(&self) -> Option<T> {
        let mut state = self.shared.state();
        let item = state.take_due(&self.shared.time, &self.shared.intake)?;
        self.shared.finish(state);
        Some(item)
    }

    /// The instant of the earliest item, due or not.
    pub fn peek_due(&self) -> Option<Instant> {
        self.shared.whole().items.next_due().map(time::to_instant)
    }

    /// Takes up to `max` due items, earliest first. Never waits.
    ///
    /// The lock is released after each thousand items. Items that others put meanwhile may be among the result, but no
    /// more items are taken than were in the queue at the beginning.
    pub fn drain_due(&self, max: usize) -> Vec<T> {
        let mut state = self.shared.whole();
        let now = state.read_clock(&self.shared.time);
        self.drain_until(state, now, max).into_iter().map(|(_, item)| item).collect()
    }

    /// Takes all items with their instants, due or not, earliest first.
    ///
    /// The lock is released after each thousand items, as in [`drain_due`](DelayQueue::drain_due). A queue that is
    /// closed, or that has no other users, is empty afterwards.
    pub fn drain(&self) -> Vec<(Instant, T)> {
        let drained = self.drain_until(self.shared.whole(), i64::MAX, usize::MAX);
        drained.into_iter().map(|(due, item)| (time::to_instant(due), item)).collect()
    }

    fn drain_until<'a>(
        &'a self,
        mut state: Guard<'a, QueueState<T>>,
        until: i64,
        max: usize,
    ) -> Vec<(i64, T)> {
        // Otherwise a producer that is faster than this loop would keep it busy forever.
        let max = max.min(state.items.len());
        let mut drained = Vec::new();
        loop {
            let count = BATCH.min(max - drained.len());
            let is_last = state.items.drain_due_into(until, count, &mut drained) < BATCH;
            self.shared.finish(state);
            if is_last || drained.len() == max {
                break;
            }
            // Growing copies all items taken so far, so it is done while the lock is free.
            drained.reserve(BATCH);
            state = self.shared.whole();
        }
        // Already sorted, unless other calls have put items meanwhile. The sort is stable.
        drained.sort_by_key(|(due, _)| *due);
        drained
    }

    /// Drops all items, due or not. Releases the lock in between, as [`drain`](DelayQueue::drain) does.
    pub fn clear(&self) {
        drop(self.drain());
    }

    /// Takes the item out before it is due. `None` if it has already left the queue.
    pub fn cancel(&self, handle: Handle) -> Option<T> {
        let mut state = self.shared.whole();
        let item = state.items.cancel(handle)?;
        self.shared.finish(state);
        Some(item)
    }

    /// Changes the item's instant to `delay` from now, behind all items of that instant.
    ///
    /// Returns false, and changes nothing, if the item has already left the queue or the delay is out of range (292
    /// years).
    pub fn reschedule(&self, handle: Handle, delay: Duration) -> bool {
        self.shared.time.after(delay).is_some_and(|due| self.reschedule_ns(handle, due))
    }

    /// As [`reschedule`](DelayQueue::reschedule), with an instant.
    pub fn reschedule_at(&self, handle: Handle, due: Instant) -> bool {
        time::from_instant(due).is_some_and(|due| self.reschedule_ns(handle, due))
    }

    fn reschedule_ns(&self, handle: Handle, due: i64) -> bool {
        let mut state = self.shared.whole();
        let found = state.items.reschedule(handle, due);
        self.shared.finish(state);
        found
    }

    /// Calls `visit` with every item and its instant, in the order in which they would leave.
    ///
    /// The queue is locked meanwhile: `visit` must not use it, as that would deadlock, and all other calls wait until
    /// every item has been visited. It is meant for inspection and debugging.
    pub fn for_each(&self, mut visit: impl FnMut(Instant, &T)) {
        let state = self.shared.whole();
        state.items.iter().for_each(|(due, item)| visit(time::to_instant(due), item));
    }

    /// The number of items, due or not.
    pub fn len(&self) -> usize {
        self.shared.whole().items.len()
    }

    /// Whether the queue has no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The maximum number of items, if it is limited.
    pub fn capacity_limit(&self) -> Option<usize> {
        self.shared.limit
    }

    /// The number of threads and tasks that wait for an item, without those that were woken and have not checked the
    /// queue yet.
    pub fn waiting(&self) -> usize {
        self.shared.state().waiting()
    }

    /// The current instant of this queue's clock.
    pub fn now(&self) -> Instant {
        time::to_instant(self.shared.time.now())
    }

    /// Closes the queue: puts are refused from now on, and waiters are woken with [`Closed`].
    ///
    /// Due items can still be taken; [`drain`](DelayQueue::drain) takes all that is left. Closing a closed queue does
    /// nothing.
    pub fn close(&self) {
        let mut state = self.shared.state();
        // In this order, since trays that are created when items are moved have to be closed too.
        let wakes = state.close();
        self.shared.intake.close();
        state.bring_in(&self.shared.intake);
        self.shared.finish(state);
        // Threads first, since a task's waker may block.
        let (threads, tasks): (Vec<_>, Vec<_>) = wakes.partition(Wake::is_thread);
        for wake in threads.into_iter().chain(tasks) {
            // No waiter of a closed queue depends on another: a waker that panics affects its own task alone.
            let _ = wake.fire();
        }
    }

    /// For the model checker: makes puts use the intake from the first one on.
    #[cfg(shuttle)]
    pub fn use_intake(&self) {
        self.shared.intake.begin();
    }

    /// Whether the queue was closed.
    pub fn is_closed(&self) -> bool {
        self.shared.state().is_closed()
    }
}

impl<T> Clone for DelayQueue<T> {
    /// Returns another handle to the same queue.
    fn clone(&self) -> DelayQueue<T> {
        DelayQueue { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Default for DelayQueue<T> {
    fn default() -> DelayQueue<T> {
        DelayQueue::new()
    }
}

impl<T> fmt::Debug for DelayQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(f)
    }
}

impl<T> fmt::Debug for QueueShared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.whole();
        let (len, waiting, closed) = (state.items.len(), state.waiting(), state.is_closed());
        // The formatter belongs to the caller and may run arbitrary code.
        drop(state);
        f.debug_struct("DelayQueue")
            .field("len", &len)
            .field("waiting", &waiting)
            .field("closed", &closed)
            .finish_non_exhaustive()
    }
}
