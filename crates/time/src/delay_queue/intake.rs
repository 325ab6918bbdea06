//! The intake: where puts leave their items, so that producers fight neither consumers nor one another for the queue.
//!
//! A put takes the lock of a tray for as long as it takes to append, and returns. Items are brought from the trays into the
//! queue, many at a time, by whoever needs them there: a consumer for which one of them may come before the head, or a call
//! that looks at everything. When many lie in a tray, its producer asks the consumers to bring them in; only if none has
//! come until there are many more, it does so itself. So while there are consumers the queue, its order and its memory stay
//! in the caches of theirs, and what goes from one processor to another is a batch of items.
//!
//! Nobody leaves anything here until two threads have met at the queue's lock: what nobody fights for is put
//! straight into the queue. There is one tray until two threads meet at it; then there are more, and each thread has its
//! own as far as they reach.
//!
//! # The rules
//! - What a put has left is in the queue as far as anybody can tell. Each call that holds the queue's lock brings in what
//!   it could tell from nothing: [`Intake::has_before`] is the question of those that want the head, and
//!   [`Intake::is_empty`] of all others.
//! - A put leaves its item under a handle that the queue has reserved, and so nobody sees whether it was left or put.
//! - Items of one instant are brought in in the order of their puts. All trays are locked while they are emptied, so that
//!   an item never comes in without those that were put before it; and in more than one tray items are stamped with
//!   the time of their put, since which of two trays is emptied first says nothing.
//! - *The watch*: the instant up to which a put has to come for the queue's lock after it has left its item, since those
//!   who wait would sleep through it. Whoever lies down to wait sets the watch first, and does not lie down if a
//!   tray holds such an item already. Both happen under the trays' locks, so that no item slips through between.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use crate::timing_queue::Handle;

use super::sync::{AtomicBool, AtomicI64, Guard, Lock, thread_number};
use super::time::Time;

/// A watch that no put has to come for.
pub(super) const NOBODY: i64 = i64::MIN;
/// A watch that every put has to come for.
pub(super) const EVERYBODY: i64 = i64::MAX;
/// What the earliest instant of empty trays is.
const NONE: i64 = i64::MAX;
/// As if there were an item before all others: who wants the head has to look here.
const URGENT: i64 = i64::MIN;
/// The stamp of what was put while there was one tray: before all others.
const UNSTAMPED: i64 = i64::MIN;
/// How many items in a tray are many, and how many are many more.
const MANY: usize = if cfg!(shuttle) { 2 } else { 64 };
/// How many trays there are besides the first when it is crowded. The model checker has fewer threads.
const OTHERS: usize = if cfg!(shuttle) { 1 } else { 7 };

/// An item on its way into the queue.
#[derive(Debug)]
pub(super) struct Left<T> {
    pub(super) handle: Handle,
    pub(super) due: i64,
    /// Rises from each put to those that begin when it has returned.
    stamp: i64,
    pub(super) item: T,
}

#[derive(Debug)]
struct Tray<T> {
    /// In the order of the puts.
    left: Vec<Left<T>>,
    /// Reserved in the queue, for items to come. When there is none, the tray is full.
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
            // The last is used first: neighbours in the queue's memory in a row.
            self.handles.extend(fresh.drain(from..).rev());
        }
    }
}

#[derive(Debug)]
pub(super) struct Intake<T> {
    first: Lock<Tray<T>>,
    others: OnceLock<Box<[Lock<Tray<T>>; OTHERS]>>,
    /// Set by who had to wait for the queue's lock.
    used: AtomicBool,
    /// Set by a put that had to wait for another.
    crowded: AtomicBool,
    /// The earliest instant in the trays, or `NONE`, or `URGENT`. Raised under the trays' locks, lowered by a put under its
    /// tray's, read without.
    earliest: Earliest,
}

/// Consumers read it at each poll: on lines of the cache that puts seldom write to.
#[derive(Debug)]
#[repr(align(128))]
struct Earliest(AtomicI64);

/// Whether what lies in the trays has to be brought in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    No,
    /// There are many. Who wants the head will do so if [`Intake::hurry`] is called.
    Soon,
    /// Somebody waits for it.
    Now,
}

/// Why an item was not left.
#[derive(Debug)]
pub(super) enum Refused<T> {
    Closed(T),
    Full(T),
}

impl<T> Intake<T> {
    /// An intake without handles.
    pub(super) fn new() -> Intake<T> {
        Intake {
            first: Lock::new(Tray::new(NOBODY, false)),
            others: OnceLock::new(),
            used: AtomicBool::new(false),
            crowded: AtomicBool::new(false),
            earliest: Earliest(AtomicI64::new(NONE)),
        }
    }

    /// Whether puts leave their items here.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Lets puts leave their items here from now on.
    #[cold]
    pub(super) fn begin(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    /// Leaves an item. Says whether who left it has to bring in what is here. `now` is a reading of the clock by this put,
    /// if it has one.
    #[inline]
    pub(super) fn leave(
        &self,
        due: i64,
        item: T,
        now: Option<i64>,
        time: &Time,
    ) -> Result<(Handle, Need), Refused<T>> {
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
            return Err(Refused::Closed(item));
        }
        let Some(handle) = tray.handles.pop() else { return Err(Refused::Full(item)) };
        tray.left.push(Left { handle, due, stamp, item });
        // An item of the last instant of all counts as one of the instant before: it must not look like none.
        let counts_as = due.min(NONE - 1);
        if counts_as < self.earliest() {
            match self.others.get() {
                // No other put writes it: this is the first tray, and others are not set up while it is locked. If a hurry
                // is lost by it, a later put hurries again.
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

    /// Lets whoever wants the head bring in what is here, as if an item came before it. False if nobody did so since the
    /// last call.
    pub(super) fn hurry(&self) -> bool {
        self.earliest() != URGENT && self.earliest.0.fetch_min(URGENT, Ordering::AcqRel) != URGENT
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.earliest() == NONE
    }

    /// Whether an item here comes before the head of the queue.
    #[inline]
    pub(super) fn has_before(&self, head: Option<i64>) -> bool {
        self.earliest() < head.unwrap_or(NONE)
    }

    #[inline]
    fn earliest(&self) -> i64 {
        self.earliest.0.load(Ordering::Acquire)
    }

    /// How many trays there are.
    pub(super) fn trays(&self) -> usize {
        if self.others.get().is_some() { 1 + OTHERS } else { 1 }
    }

    /// Sets up the other trays, if the first is crowded. For who holds the queue's lock, and knows the watch.
    pub(super) fn make_room(&self, watch: i64, closed: bool) {
        if self.crowded.load(Ordering::Relaxed) && self.others.get().is_none() {
            let others = Box::new([(); OTHERS].map(|()| Lock::new(Tray::new(watch, closed))));
            let _first = self.first.lock();
            let done = self.others.set(others);
            assert!(done.is_ok(), "one at a time holds the queue's lock");
        }
    }

    /// Moves what is here to `into`, which is empty, in the order of the puts. Trays that have few handles left take
    /// a batch of the fresh ones.
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

    /// Sets the watch. False, and nothing happens, if an item is here already that would have had to come for it.
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

    /// Refuses all items from now on. For who holds the queue's lock.
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

    /// The last instant of all is what the earliest instant of no item is.
    #[test]
    fn an_item_of_the_last_instant_of_all_is_there() {
        let clock = ManualClock::new(dwell_model::Timestamp::MIN);
        let queue = DelayQueue::builder().clock(&clock).build();
        queue.shared.intake.begin();
        // The first put goes past the intake, which has no handles yet.
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
