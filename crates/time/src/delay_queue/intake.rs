//! The intake: buffers for puts, so that producers do not contend with consumers or each other for the queue's lock.
//!
//! A put locks a buffer (a *tray*) for as long as it takes to append an item, and returns. Items are moved from the
//! trays into the queue in batches, by the call that needs them there: a consumer for which one of them may come before
//! the head, or a call that looks at all items. When a tray holds many items, its producer asks the consumers to move
//! them; only if none has done so by the time there are many more does the producer move them itself. So while there
//! are consumers, the queue, its order and its memory stay in the consumers' caches, and what crosses between
//! processors is a batch of items.
//!
//! The intake is unused until two threads have contended for the queue's lock: without contention, a put goes straight
//! into the queue. There is one tray until two threads contend for it. Then there are more, and each thread has one to
//! itself as far as they suffice.
//!
//! # The rules
//! - An item in a tray counts as being in the queue. Every call that holds the queue's lock first moves the items that
//!   its result could depend on: [`Intake::has_before`] is the check for calls that want the head, and
//!   [`Intake::is_empty`] for all others.
//! - A put stores its item under a handle that the queue has reserved, so a caller cannot tell which way the item went.
//! - Items of one instant are moved into the queue in the order of their puts. All trays are locked while they are
//!   emptied, so that an item is never moved without those that were put before it. If there is more than one tray,
//!   items carry the time of their put, since the order in which trays are emptied says nothing about it.
//! - *The watch*: the latest instant for which a put has to take the queue's lock after it has stored its item, since
//!   the waiters would otherwise sleep past that item. A consumer that is about to wait sets the watch first, and does
//!   not wait if a tray already holds such an item. Both happen under the trays' locks, so that no item is missed in
//!   between.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use crate::timing_queue::Handle;

use super::sync::{AtomicBool, AtomicI64, Guard, Lock, thread_number};
use super::time::Time;

/// A watch for which no put has to take the queue's lock.
pub(super) const NOBODY: i64 = i64::MIN;
/// A watch for which every put has to take the queue's lock.
pub(super) const EVERYBODY: i64 = i64::MAX;
/// The earliest instant of empty trays.
const NONE: i64 = i64::MAX;
/// As if there were an item before all others: a call that wants the head has to empty the trays.
const URGENT: i64 = i64::MIN;
/// The stamp of items that were put while there was one tray: before all other stamps.
const UNSTAMPED: i64 = i64::MIN;
/// A tray asks to be emptied each time it has received this number of items.
const MANY: usize = if cfg!(shuttle) { 2 } else { 64 };
/// The number of trays in addition to the first one, once there is contention. The model checker runs fewer threads.
const OTHERS: usize = if cfg!(shuttle) { 1 } else { 7 };

/// An item on its way into the queue.
#[derive(Debug)]
pub(super) struct Left<T> {
    pub(super) handle: Handle,
    pub(super) due: i64,
    /// Greater than the stamp of every put that returned before this one began.
    stamp: i64,
    pub(super) item: T,
}

#[derive(Debug)]
struct Tray<T> {
    /// In the order of the puts.
    left: Vec<Left<T>>,
    /// Reserved in the queue for the items to come. The tray is full when none is left.
    handles: Vec<Handle>,
    watch: i64,
    closed: bool,
}

impl<T> Tray<T> {
    fn new(watch: i64, closed: bool) -> Tray<T> {
        Tray { left: Vec::new(), handles: Vec::new(), watch, closed }
    }

    fn supply(&mut self, fresh: &mut Vec<Handle>, batch: usize) {
        if self.handles.len() < batch / 2 {
            let from = fresh.len().saturating_sub(batch);
            // Handles are used from the end, so that consecutive items are adjacent in the queue's memory.
            self.handles.extend(fresh.drain(from..).rev());
        }
    }
}

#[derive(Debug)]
pub(super) struct Intake<T> {
    first: Lock<Tray<T>>,
    others: OnceLock<Box<[Lock<Tray<T>>; OTHERS]>>,
    /// Set by a call that had to wait for the queue's lock.
    used: AtomicBool,
    /// Set by a put that had to wait for another put.
    crowded: AtomicBool,
    /// The earliest instant in the trays, or `NONE`, or `URGENT`.
    ///
    /// Raised under the locks of all trays, lowered by a put under the lock of its tray, read without a lock.
    earliest: Earliest,
}

/// Read by consumers at each poll, so it has cache lines that puts seldom write to.
#[derive(Debug)]
#[repr(align(128))]
struct Earliest(AtomicI64);

/// Whether the items in the trays have to be moved into the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    No,
    /// There are many. The next consumer that wants the head does so if [`Intake::hurry`] is called.
    Soon,
    /// A consumer waits for it.
    Now,
}

/// Why an item was not stored.
#[derive(Debug)]
pub(super) enum IntakeRefused<T> {
    Closed(T),
    Full(T),
}

impl<T> Intake<T> {
    /// Creates an intake without handles.
    pub(super) fn new() -> Intake<T> {
        Intake {
            first: Lock::new(Tray::new(NOBODY, false)),
            others: OnceLock::new(),
            used: AtomicBool::new(false),
            crowded: AtomicBool::new(false),
            earliest: Earliest(AtomicI64::new(NONE)),
        }
    }

    /// Whether puts store their items here.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Makes puts store their items here from now on.
    #[cold]
    pub(super) fn begin(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    /// Stores an item, and returns whether the caller has to move the items of the trays into the queue.
    ///
    /// `now` is this put's reading of the clock, if it has one.
    #[inline]
    pub(super) fn leave(
        &self,
        due: i64,
        item: T,
        now: Option<i64>,
        time: &Time,
    ) -> Result<(Handle, Need), IntakeRefused<T>> {
        let (mut tray, stamp) = match self.others.get() {
            None => (self.first_tray(), UNSTAMPED),
            Some(others) => {
                let tray = match thread_number() % (OTHERS + 1) {
                    0 => &self.first,
                    at => &others[at - 1],
                };
                let stamp = time.stamp(now);
                (tray.lock(), stamp)
            }
        };
        if tray.closed {
            return Err(IntakeRefused::Closed(item));
        }
        let Some(handle) = tray.handles.pop() else { return Err(IntakeRefused::Full(item)) };
        tray.left.push(Left { handle, due, stamp, item });
        // An item of the last possible instant counts as one of the instant before, so as not to equal `NONE`.
        let counts_as = due.min(NONE - 1);
        if counts_as < self.earliest() {
            match self.others.get() {
                // No other put writes it: this is the first tray, and the others are not created while it is locked. If
                // this store overwrites a hurry, a later put hurries again.
                None => self.earliest.0.store(counts_as, Ordering::Release),
                Some(_) => drop(self.earliest.0.fetch_min(counts_as, Ordering::AcqRel)),
            }
        }
        let need = if due <= tray.watch {
            Need::Now
        } else if tray.handles.is_empty() || tray.left.len().is_multiple_of(MANY) {
            Need::Soon
        } else {
            Need::No
        };
        Ok((handle, need))
    }

    fn first_tray(&self) -> Guard<'_, Tray<T>> {
        self.first.try_lock().unwrap_or_else(|| {
            self.crowded.store(true, Ordering::Relaxed);
            self.first.lock()
        })
    }

    /// Makes the next consumer that wants the head empty the trays, as if one of their items came before it.
    ///
    /// False if no consumer has done so since the last call.
    pub(super) fn hurry(&self) -> bool {
        self.earliest() != URGENT && self.earliest.0.fetch_min(URGENT, Ordering::AcqRel) != URGENT
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.earliest() == NONE
    }

    /// Whether an item in a tray comes before the head of the queue.
    #[inline]
    pub(super) fn has_before(&self, head: Option<i64>) -> bool {
        self.earliest() < head.unwrap_or(NONE)
    }

    #[inline]
    fn earliest(&self) -> i64 {
        self.earliest.0.load(Ordering::Acquire)
    }

    /// The number of trays.
    pub(super) fn trays(&self) -> usize {
        if self.others.get().is_some() { 1 + OTHERS } else { 1 }
    }

    /// Creates the other trays if there is contention for the first.
    ///
    /// The caller holds the queue's lock and passes the watch.
    pub(super) fn make_room(&self, watch: i64, closed: bool) {
        if self.crowded.load(Ordering::Relaxed) && self.others.get().is_none() {
            let others = Box::new([(); OTHERS].map(|()| Lock::new(Tray::new(watch, closed))));
            let _first = self.first.lock();
            let done = self.others.set(others);
            assert!(done.is_ok(), "one at a time holds the queue's lock");
        }
    }

    /// Moves all items to `into`, which is empty, in the order of the puts.
    ///
    /// Trays that have few handles left receive a batch of the fresh ones.
    pub(super) fn collect(&self, into: &mut Vec<Left<T>>, fresh: &mut Vec<Handle>, batch: usize) {
        let mut first = self.first.lock();
        let mut others = self.others.get().map(|others| others.each_ref().map(Lock::lock));
        std::mem::swap(&mut first.left, into);
        first.supply(fresh, batch);
        let mut is_ordered = true;
        for tray in others.iter_mut().flatten() {
            is_ordered &= into.is_empty() || tray.left.is_empty();
            into.append(&mut tray.left);
            tray.supply(fresh, batch);
        }
        self.earliest.0.store(NONE, Ordering::Release);
        drop((first, others));
        if !is_ordered {
            into.sort_by_key(|left| left.stamp);
        }
    }

    /// Sets the watch.
    ///
    /// Returns false, and changes nothing, if a tray already holds an item that the watch would apply to.
    pub(super) fn watch(&self, until: i64) -> bool {
        let mut first = self.first.lock();
        let mut others = self.others.get().map(|others| others.each_ref().map(Lock::lock));
        if !self.is_empty() && self.earliest() <= until {
            return false;
        }
        first.watch = until;
        others.iter_mut().flatten().for_each(|tray| tray.watch = until);
        true
    }

    /// Refuses all items from now on. The caller holds the queue's lock.
    pub(super) fn close(&self) {
        let others = self.others.get().into_iter().flat_map(|others| others.iter());
        for tray in others.chain([&self.first]) {
            tray.lock().closed = true;
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::Duration;

    use super::super::DelayQueue;
    use crate::clock::ManualClock;

    /// The last possible instant equals the value that stands for "no item".
    #[test]
    fn an_item_of_the_last_instant_of_all_is_there() {
        let clock = ManualClock::new(dwell_model::Timestamp::MIN);
        let queue = DelayQueue::builder().clock(&clock).build();
        queue.shared.intake.begin();
        // The first put bypasses the intake, which has no handles yet.
        let first = queue.put('a', Duration::ZERO).unwrap();
        assert_eq!(queue.cancel(first), Some('a'));
        let last = Duration::from_nanos(i64::MAX.unsigned_abs());
        let handle = queue.put('b', last).unwrap();
        assert_eq!((queue.len(), queue.peek_due()), (1, Some(queue.now() + last)));
        let again = queue.put('c', last).unwrap();
        assert!(queue.reschedule(again, last));
        assert_eq!((queue.cancel(again), queue.cancel(handle)), (Some('c'), Some('b')));
    }
}
