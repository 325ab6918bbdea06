//! The queue's lock, blocking and atomics, replaceable by those of a model checker: with `--cfg shuttle` every lock,
//! wait and atomic is a point at which shuttle may switch threads.

#[cfg(not(shuttle))]
pub(super) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicI64, AtomicUsize},
};
#[cfg(not(shuttle))]
use std::thread_local;

#[cfg(shuttle)]
pub(super) use shuttle::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicI64, AtomicUsize},
};
#[cfg(shuttle)]
use shuttle::thread_local;

use std::sync::atomic::{self, Ordering};

#[cfg(shuttle)]
pub(super) use shuttle::thread::yield_now;
#[cfg(not(shuttle))]
pub(super) use std::thread::yield_now;

/// The index of the calling thread. Threads that first ask one after the other have consecutive indexes.
#[inline]
pub(super) fn thread_number() -> usize {
    static NEXT: atomic::AtomicUsize = atomic::AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

#[cfg(not(shuttle))]
pub(super) type Guard<'a, T> = spin::MutexGuard<'a, T>;

#[cfg(shuttle)]
pub(super) type Guard<'a, T> = shuttle::sync::MutexGuard<'a, T>;

/// A spin lock that is held for a microsecond or less, and never across a wait.
///
/// It is released with a plain store, which saves half the cost of an uncontended lock; the other half is acquiring it.
/// In exchange the releasing thread does not know about waiters and wakes none. A thread that finds the lock taken
/// spins for about as long as it is usually held, then yields in case the holder is not running, then sleeps briefly.
///
/// As with any lock, a holder that is preempted delays all threads that need the lock until it runs again: a few time
/// slices on a busy machine. They sleep meanwhile, which frees a processor for the holder.
///
/// It has cache lines to itself, so that neighbouring fields do not slow it down.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Lock<T> {
    #[cfg(not(shuttle))]
    guarded: spin::Mutex<T>,
    #[cfg(shuttle)]
    guarded: Mutex<T>,
}

impl<T: Default> Default for Lock<T> {
    fn default() -> Lock<T> {
        Lock::new(T::default())
    }
}

#[cfg(not(shuttle))]
impl<T> Lock<T> {
    pub(super) fn new(guarded: T) -> Lock<T> {
        Lock { guarded: spin::Mutex::new(guarded) }
    }

    #[inline]
    pub(super) fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.guarded.try_lock()
    }

    #[inline]
    pub(super) fn lock(&self) -> Guard<'_, T> {
        match self.guarded.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    #[cold]
    #[expect(clippy::disallowed_methods, reason = "a nap, whose length nothing depends on")]
    fn wait(&self) -> Guard<'_, T> {
        use std::{hint, thread, time::Duration};
        loop {
            for _ in 0..200 {
                hint::spin_loop();
                // A load does not take the cache line from the holder, as an attempt to acquire does.
                if !self.guarded.is_locked()
                    && let Some(guard) = self.guarded.try_lock()
                {
                    return guard;
                }
            }
            for _ in 0..10 {
                thread::yield_now();
                if let Some(guard) = self.guarded.try_lock() {
                    return guard;
                }
            }
            thread::sleep(Duration::from_micros(20));
        }
    }
}

#[cfg(shuttle)]
impl<T> Lock<T> {
    pub(super) fn new(guarded: T) -> Lock<T> {
        Lock { guarded: Mutex::new(guarded) }
    }

    pub(super) fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.guarded.try_lock().ok()
    }

    pub(super) fn lock(&self) -> Guard<'_, T> {
        self.guarded.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
