//! A task whose type is erased, as the executor holds it: any thread may run its slices, one at a time.

use std::fmt::{self, Debug};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::{Class, Task};

/// A type-erased task; see the [module](self).
pub(super) struct Work {
    class: Class,
    /// Locked while a slice runs; `None` once the work is over.
    slices: Mutex<Option<Slices>>,
    is_cancelled: AtomicBool,
}

/// Runs a slice of about the given number of items; returns whether it was the last one.
type Slices = Box<dyn FnMut(usize) -> bool + Send>;

impl Work {
    /// Calls `tell` with the output, on the thread that runs the last slice.
    pub(super) fn new<T: Task>(class: Class, task: T, tell: impl FnOnce(T::Output) + Send + 'static) -> Work {
        let mut left = Some((task, tell));
        let slices = move |most: usize| {
            let Some((mut task, tell)) = left.take() else { return true };
            match catch_unwind(AssertUnwindSafe(|| task.slice(most))) {
                Ok(None) => left = Some((task, tell)),
                Ok(Some(output)) => {
                    // What the task still holds is dropped before its end is reported. A panic of that drop does not
                    // change the output.
                    let _ = catch_unwind(AssertUnwindSafe(|| drop(task)));
                    tell(output);
                }
                Err(_) => tell(task.panicked()),
            }
            left.is_none()
        };
        let (slices, is_cancelled) = (Mutex::new(Some(Box::new(slices) as Slices)), AtomicBool::new(false));
        Work { class, slices, is_cancelled }
    }

    pub(super) fn class(&self) -> Class {
        self.class
    }

    fn slices(&self) -> MutexGuard<'_, Option<Slices>> {
        self.slices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a slice, unless the work is over. Returns whether it is over then.
    pub(super) fn run_slice(&self, most: usize) -> bool {
        let mut slices = self.slices();
        // `cancel` may be waiting for the lock.
        let is_cancelled = || self.is_cancelled.load(Ordering::SeqCst);
        let is_over = is_cancelled() || slices.as_mut().is_none_or(|slice| slice(most)) || is_cancelled();
        if is_over {
            *slices = None;
        }
        is_over
    }

    /// Whether no slice is left, and none runs.
    pub(super) fn is_over(&self) -> bool {
        match self.slices.try_lock() {
            Ok(slices) => slices.is_none(),
            Err(TryLockError::Poisoned(slices)) => slices.into_inner().is_none(),
            Err(TryLockError::WouldBlock) => false,
        }
    }

    /// Cancels the work: when this returns no slice of it runs, and what it held was dropped.
    pub(super) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::SeqCst);
        *self.slices() = None;
    }

    /// For work that no thread will run: completes a deletion, and cancels everything else.
    pub(super) fn wind_up(&self) {
        while self.class == Class::Deletion && !self.run_slice(1) {}
        self.cancel();
    }
}

impl Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("class", &self.class).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Reports that a slice has begun, and waits until it may end.
    struct BlockedTask {
        begun: Sender<()>,
        goes_on: Receiver<()>,
    }

    impl Task for BlockedTask {
        type Output = ();

        fn slice(&mut self, _: usize) -> Option<()> {
            self.begun.send(()).unwrap();
            self.goes_on.recv().unwrap();
            None
        }

        fn panicked(self) {}
    }

    /// Ends at once, and panics when it is dropped.
    struct Falls;

    impl Task for Falls {
        type Output = u32;

        fn slice(&mut self, _: usize) -> Option<u32> {
            Some(7)
        }

        fn panicked(self) -> u32 {
            0
        }
    }

    impl Drop for Falls {
        fn drop(&mut self) {
            panic!("the test asked for it");
        }
    }

    /// Crash story: 1. what a flush holds panics as it is dropped, when all is written. 2. Its thread ends, the
    /// result of the flush is never sent, and puts wait for it.
    #[test]
    fn what_panics_when_it_is_dropped_has_ended_all_the_same() {
        let (tell, told) = channel();
        let work = Work::new(Class::Flush, Falls, move |output| tell.send(output).unwrap());
        assert!(work.run_slice(1) && work.is_over());
        assert_eq!(told.try_recv(), Ok(7));
    }

    /// Crash story: 1. a slice writes a table. 2. The store is closed, and its directory released. 3. The slice goes
    /// on to write into a directory that another process may own by then.
    #[test]
    fn whoever_gives_work_up_waits_for_the_slice_under_way() {
        let ((begun, has_begun), (let_on, goes_on)) = (channel(), channel());
        let work = Arc::new(Work::new(Class::Flush, BlockedTask { begun, goes_on }, |()| {}));
        let running = thread::spawn({
            let work = Arc::clone(&work);
            move || work.run_slice(1)
        });
        has_begun.recv_timeout(Duration::from_secs(60)).unwrap();
        let (say, cancelled) = channel();
        let cancelling = thread::spawn({
            let work = Arc::clone(&work);
            move || {
                work.cancel();
                say.send(()).unwrap();
            }
        });
        while !work.is_cancelled.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        assert!(cancelled.try_recv().is_err(), "the slice is under way");
        let_on.send(()).unwrap();
        cancelled.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(running.join().unwrap() && work.is_over());
        cancelling.join().unwrap();
    }
}
