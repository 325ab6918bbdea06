//! `DelayQueue<T>`: items that may be taken when their delay has passed, for threads and tasks of one process.

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

use crate::clock::{ManualClock, Moved};
use crate::timing_queue::Handle;

use intake::{Intake, Need, Refused};
use state::{Calls, State};
use sync::{Guard, Lock};
use time::Time;
use timer::Timer;
use waiters::{Line, Wake};

pub use error::{Closed, PutError};
pub use future::{Items, Put, Take, TakeTimeout};

/// An unbounded (or, on request, bounded) queue from which an item can be taken when its delay has passed.
///
/// What `java.util.concurrent.DelayQueue` is to Java; `docs/delay-queue.md` compares them method by method.
/// Any number of threads and tasks put and take; clones are the same queue. `T` needs neither `Ord` nor `Clone`.
///
/// # Guarantees
/// - An item is handed over once, and never before its instant.
/// - Items leave in the order of their instants; those of one instant in the order of their puts.
/// - Of many that wait, one has a timer, and the others cost nothing until it is their turn.
/// - A future that is dropped while it waits loses no item and keeps no one else waiting.
/// - A future or stream that was woken, is kept and is not polled delays others once, by 10 to 20 ms. It has lost its turn then,
///   until it is polled again.
///
/// # Wakers
/// A task's waker is woken, cloned and dropped when no lock is held and the caller's own item is safe. If it panics, the panic
/// ends there: the panic hook reports it, the call goes on and returns what it would have returned, everybody else is
/// woken, and what the task was woken for goes to the next that waits. A waker that blocks holds up the call that
/// wakes it, and the tasks that this call wakes after it; on the thread that is the timer of all tasks of the process, it
/// holds up these. Threads are woken first.
///
/// # Locks and memory
/// A call holds the queue's lock for some thousand items at most, and lets others in between; all but
/// [`for_each`](DelayQueue::for_each) do. Memory is kept for the largest number of items that was in at a time, as a `Vec`
/// does, until the queue is dropped.
///
/// # Time
/// Instants are [`Instant`]s: monotonic, so that no step of the wall clock moves them; not counted while a machine is
/// suspended (Linux). They are kept in nanoseconds, which reach 292 years.
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
/// A cache whose entries expire; using an entry prolongs its life:
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
    shared: Arc<Shared<T>>,
}

/// How many items one call takes out before it lets others have the lock.
const BATCH: usize = 1024;
/// How often who finds a tray full lets others run before it brings in what is there.
const YIELDS: usize = 8;

struct Shared<T> {
    state: Lock<State<T>>,
    consumers: Arc<Line>,
    producers: Arc<Line>,
    /// Of this queue alone, if its clock is moved by hand and the model checker runs its alarms.
    timer: Option<Arc<Timer>>,
    intake: Intake<T>,
    /// The most items that may be in. A limited queue does without the intake: its puts have to see whether there is room.
    limit: Option<usize>,
    time: Time,
    /// For how many of its last nanoseconds a blocked thread spins.
    spin: i64,
}

impl<T> Shared<T> {
    /// The state, without what lies in the intake.
    #[inline]
    fn state(&self) -> Guard<'_, State<T>> {
        match self.state.try_lock() {
            Some(state) => state,
            None => self.fight_for_state(),
        }
    }

    #[cold]
    fn fight_for_state(&self) -> Guard<'_, State<T>> {
        self.intake.begin();
        self.state.lock()
    }

    /// The state with all that was put.
    fn whole(&self) -> Guard<'_, State<T>> {
        let mut state = self.state();
        if !self.intake.is_empty() {
            state.bring_in(&self.intake);
        }
        state
    }

    /// Settles, lets the lock go and wakes whom that takes: the end of every call that changed something.
    #[inline]
    fn finish(&self, state: Guard<'_, State<T>>) {
        if !state.is_quiet() {
            self.settle(state);
        }
    }

    #[cold]
    fn settle(&self, mut state: Guard<'_, State<T>>) {
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

    /// Lets the lock go. If somebody waits while a task was called, that task is watched from now on: before any waker
    /// runs, so that one that blocks, or a thread that is put off its processor here, holds up others for the grace
    /// period and not for as long as it likes.
    fn let_go(&self, mut state: Guard<'_, State<T>>) {
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
    fn watch(&self, line: &Arc<Line>) {
        match self.timer() {
            Ok(timer) => timer.watch(line),
            // Nobody can end a grace period then, so there is none: each waiter is called until one can be relied on.
            Err(_) => loop {
                line.end_watch();
                if !line.wants_watch() {
                    break;
                }
            },
        }
    }

    /// Whether a timer calls tasks at their moments: a clock that is moved by hand does so itself.
    fn has_timer(&self) -> bool {
        self.timer.is_some() || matches!(self.time, Time::System)
    }

    fn timer(&self) -> io::Result<&Arc<Timer>> {
        match &self.timer {
            Some(timer) => Ok(timer),
            None => Timer::of_process(),
        }
    }

    /// Puts an item into a queue without limit. `now` is a reading of the clock by this call, if there was one.
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
            Err(Refused::Closed(value)) => Err(PutError::Closed(value)),
            Err(Refused::Full(value)) => self.put_when_full(value, due),
        }
    }

    /// Puts an item for which there is no room in the tray.
    #[cold]
    fn put_when_full(&self, mut value: T, due: i64) -> Result<Handle, PutError<T>> {
        // A moment later a consumer may have brought in what is there.
        for _ in 0..YIELDS {
            sync::yield_now();
            match self.leave(value, due, None) {
                Ok(handle) => return Ok(handle),
                Err(Refused::Closed(value)) => return Err(PutError::Closed(value)),
                Err(Refused::Full(still)) => value = still,
            }
        }
        self.put_past_intake(value, due)
    }

    /// Leaves an item in the intake, and brings in what is there if need be.
    #[inline]
    fn leave(&self, value: T, due: i64, now: Option<i64>) -> Result<Handle, Refused<T>> {
        let (handle, need) = self.intake.leave(due, value, now, &self.time)?;
        if need != Need::No {
            self.bring_in(need);
        }
        Ok(handle)
    }

    /// Puts an item in past the trays, in which others may lie.
    #[inline]
    fn put_straight(
        &self,
        mut state: Guard<'_, State<T>>,
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
        // Consumers bring in too, and what that touches is in the cache of theirs.
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

impl<T: Send> Moved for Shared<T> {
    fn moved(&self) {
        let mut state = self.whole();
        let moved = state.clock_moved(&self.time);
        self.finish(state);
        moved.consumers.into_iter().for_each(|call| self.consumers.fire(call));
        moved.producers.into_iter().for_each(|call| self.producers.fire(call));
    }
}

/// What a [`DelayQueue`] may be asked for beyond the ordinary.
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
    /// The most items that may be in at a time. Past it, puts wait and [`DelayQueue::try_put`] refuses.
    ///
    /// # Panics
    /// If it is 0: nothing could ever be put.
    #[track_caller]
    pub fn capacity_limit(mut self, items: usize) -> Builder {
        assert!(items > 0, "a delay queue needs room for one item at least");
        self.capacity = Some(items);
        self
    }

    /// Lets the thread that waits for the head burn a processor for the last stretch before the instant, to
    /// be there sooner than the operating system wakes it (`docs/delay-queue.md` has what that gains and costs).
    /// Off by default. Tasks do not spin.
    pub fn spin(mut self, stretch: Duration) -> Builder {
        self.spin = stretch;
        self
    }

    /// Takes the time from a clock that a test moves, in milliseconds from 0; [`DelayQueue::now`] tells the instant
    /// that it stands for.
    pub fn clock(mut self, clock: &ManualClock) -> Builder {
        self.clock = Some(clock.clone());
        self
    }

    /// Makes the queue.
    pub fn build<T: Send + 'static>(self) -> DelayQueue<T> {
        let time = self.clock.clone().map_or(Time::System, Time::Manual);
        let spin = i64::try_from(self.spin.as_nanos()).unwrap_or(i64::MAX);
        let queue = DelayQueue::with(self.capacity, time, spin, None);
        if let Some(clock) = self.clock {
            let shared: Arc<dyn Moved> = Arc::clone(&queue.shared) as Arc<dyn Moved>;
            clock.tell_when_moved(&shared);
        }
        queue
    }

    /// Makes a queue whose tasks wait with alarms though its clock is moved by hand, for the model checker; and what
    /// runs the alarms: a thread of the test's calls it, and it ends when the other is called. Threads are not woken by the clock.
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
    /// For a queue with a capacity limit, a spin, or a clock of its own.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl<T> DelayQueue<T> {
    /// An empty queue without limit.
    pub fn new() -> DelayQueue<T> {
        DelayQueue::with(None, Time::System, 0, None)
    }

    /// An empty queue in which at most `items` may be at a time.
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
        let state = Lock::new(State::new(limit.unwrap_or(usize::MAX), &consumers, &producers));
        let intake = Intake::new();
        DelayQueue {
            shared: Arc::new(Shared { state, consumers, producers, timer, intake, limit, time, spin }),
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

    /// As [`try_put`](DelayQueue::try_put), with the instant.
    ///
    /// # Errors
    /// As of [`try_put`](DelayQueue::try_put).
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

    /// Takes up to `max` items that are due, earliest first. Never waits.
    ///
    /// Others get at the queue after each thousand. What they put meanwhile may be among the items, and no more
    /// are taken than were in at the beginning.
    pub fn drain_due(&self, max: usize) -> Vec<T> {
        let mut state = self.shared.whole();
        let now = state.read_clock(&self.shared.time);
        self.drain_until(state, now, max).into_iter().map(|(_, item)| item).collect()
    }

    /// Takes all items with their instants, due or not, earliest first.
    ///
    /// Others get at the queue after each thousand, as with [`drain_due`](DelayQueue::drain_due): of a queue that is
    /// closed, or that nobody else uses, nothing is left.
    pub fn drain(&self) -> Vec<(Instant, T)> {
        let drained = self.drain_until(self.shared.whole(), i64::MAX, usize::MAX);
        drained.into_iter().map(|(due, item)| (time::to_instant(due), item)).collect()
    }

    fn drain_until<'a>(&'a self, mut state: Guard<'a, State<T>>, until: i64, max: usize) -> Vec<(i64, T)> {
        // Or who puts faster than this takes would keep it busy for ever.
        let max = max.min(state.items.len());
        let mut drained = Vec::new();
        loop {
            let count = BATCH.min(max - drained.len());
            let is_last = state.items.drain_due_into(until, count, &mut drained) < BATCH;
            self.shared.finish(state);
            if is_last || drained.len() == max {
                break;
            }
            // To grow is to copy all that was taken so far: not while others wait for the lock.
            drained.reserve(BATCH);
            state = self.shared.whole();
        }
        // Already so, unless others have put something meanwhile. Equals stay in their order.
        drained.sort_by_key(|(due, _)| *due);
        drained
    }

    /// Drops all items, due or not, as [`drain`](DelayQueue::drain) takes them.
    pub fn clear(&self) {
        drop(self.drain());
    }

    /// Takes the item out before it is due. `None` if it has left already.
    pub fn cancel(&self, handle: Handle) -> Option<T> {
        let mut state = self.shared.whole();
        let item = state.items.cancel(handle)?;
        self.shared.finish(state);
        Some(item)
    }

    /// Lets the item be due `delay` from now instead. Of items with one instant it leaves last. False, and
    /// nothing happens, if it has left already or if the delay is too far to be counted (292 years).
    pub fn reschedule(&self, handle: Handle, delay: Duration) -> bool {
        self.shared.time.after(delay).is_some_and(|due| self.reschedule_ns(handle, due))
    }

    /// As [`reschedule`](DelayQueue::reschedule), with the instant.
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
    /// The queue is locked meanwhile: `visit` must not use it, which would wait for itself, and all others wait for
    /// as long as the walk over all items takes. For a look at a queue by somebody who wonders, not for its daily work.
    pub fn for_each(&self, mut visit: impl FnMut(Instant, &T)) {
        let state = self.shared.whole();
        state.items.iter().for_each(|(due, item)| visit(time::to_instant(due), item));
    }

    /// How many items are in, due or not.
    pub fn len(&self) -> usize {
        self.shared.whole().items.len()
    }

    /// Whether no item is in.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most items that may be in at a time, if that is limited.
    pub fn capacity_limit(&self) -> Option<usize> {
        self.shared.limit
    }

    /// How many threads and tasks wait for an item, those not counted that were woken and have not looked yet.
    pub fn waiting(&self) -> usize {
        self.shared.state().waiting()
    }

    /// The present instant on the clock that this queue goes by.
    pub fn now(&self) -> Instant {
        time::to_instant(self.shared.time.now())
    }

    /// Closes the queue: puts are refused from now on, and who waits is woken with [`Closed`]. Items that are
    /// due can be taken still; [`drain`](DelayQueue::drain) hands over all that is left. Closing twice does nothing.
    pub fn close(&self) {
        let mut state = self.shared.state();
        // In this order: trays that are set up when items are brought in have to know.
        let wakes = state.close();
        self.shared.intake.close();
        state.bring_in(&self.shared.intake);
        self.shared.finish(state);
        // Threads first: the waker of a task may block.
        let (threads, tasks): (Vec<_>, Vec<_>) = wakes.partition(Wake::is_thread);
        for wake in threads.into_iter().chain(tasks) {
            // Of a closed queue nobody waits for somebody else: a waker that panics fails its own task alone.
            let _ = wake.fire();
        }
    }

    /// Lets puts leave their items in the intake from the first one on, for the model checker.
    #[cfg(shuttle)]
    pub fn use_intake(&self) {
        self.shared.intake.begin();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.shared.state().is_closed()
    }
}

impl<T> Clone for DelayQueue<T> {
    /// Another handle on the same queue.
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

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.whole();
        let (len, waiting, closed) = (state.items.len(), state.waiting(), state.is_closed());
        // The formatter is the caller's: it may run anything.
        drop(state);
        f.debug_struct("DelayQueue")
            .field("len", &len)
            .field("waiting", &waiting)
            .field("closed", &closed)
            .finish_non_exhaustive()
    }
}
