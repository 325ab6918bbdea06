//! The primitives that the queue is guarded by and blocks with, so that a model checker can stand in for them:
//! with `--cfg shuttle` every lock, wait and atomic is a point at which shuttle may switch threads.

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

/// A number of the calling thread: threads that come one after the other have neighbours.
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

/// A lock that is held for a microsecond or less, and never while anything is waited for.
///
/// It is let go with a plain store, which is half of what a lock costs that nobody contends for; the other half is
/// taking it. The price: who lets go does not know who waits, and wakes nobody. Who finds it taken spins for about as
/// long as it is held, lets others run in case the holder is not running, and naps.
///
/// As with any lock, a holder that the operating system takes off its processor holds up whoever needs the lock until
/// it runs again: for a few time slices on a busy machine. They nap meanwhile, and so the holder gets a processor.
///
/// On its own lines of the cache, so that neighbours do not slow it down.
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
                // Looking does not take the line of the cache from the holder, as trying does.
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
