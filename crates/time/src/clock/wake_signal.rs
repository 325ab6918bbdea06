//! The bell: the per-thread notification that a sleeper of [`SystemClock`](super::SystemClock) blocks on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Notifier;

/// Holds at most one pending ring until the waiting thread takes it.
///
/// `rung` is always exchanged, never only loaded: each ring must be ordered before the take that consumes it, or the
/// waiter could miss what a later ringer wrote. The mutex guards no data; it closes the window between the waiter's
/// last check of `rung` and its wait.
#[derive(Debug, Default)]
pub(super) struct WakeSignal {
    rung: AtomicBool,
    gap: Mutex<()>,
    ringing: Condvar,
}

impl WakeSignal {
    /// Rings. A single atomic exchange if the previous ring has not been taken yet.
    pub(super) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            drop(self.gap());
            self.ringing.notify_one();
        }
    }

    /// Takes the pending ring, if there is one.
    pub(super) fn take(&self) -> bool {
        self.rung.swap(false, Ordering::AcqRel)
    }

    /// Waits once, for at most `patience` (without a limit if it is `None`). May return spuriously.
    pub(super) fn wait(&self, patience: Option<Duration>) {
        let gap = self.gap();
        if self.rung.load(Ordering::Acquire) {
            return;
        }
        match patience {
            Some(patience) => drop(self.ringing.wait_timeout(gap, patience)),
            None => drop(self.ringing.wait(gap)),
        }
    }

    fn gap(&self) -> MutexGuard<'_, ()> {
        // Nothing under this lock can panic, and the lock guards no data, so poisoning is harmless.
        self.gap.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notifier for WakeSignal {
    fn notify(&self) {
        self.ring();
    }
}
