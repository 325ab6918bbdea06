//! The bell: where one thread of a [`SystemClock`](super::SystemClock) waits, and what ends its wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Notifier;

/// Remembers one ring until the waiting thread takes it.
///
/// `rung` is exchanged, never only read: each ring must be ordered before the take that answers it, or the
/// waiter could miss what a later ringer wrote. The lock guards no data; it closes the gap between the
/// waiter's last look at `rung` and its wait.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung: AtomicBool,
    gap: Mutex<()>,
    ringing: Condvar,
}

impl Bell {
    /// Rings; does no more than one exchange if the last ring was not taken yet.
    pub(super) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            drop(self.gap());
            self.ringing.notify_one();
        }
    }

    /// Takes the ring, if there is one.
    pub(super) fn take(&self) -> bool {
        self.rung.swap(false, Ordering::AcqRel)
    }

    /// Waits once, at most `patience` (for ever without it); returns also for no reason.
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
        // Nothing under this lock can panic half-way, and there is no data to be left broken.
        self.gap.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notifier for Bell {
    fn notify(&self) {
        self.ring();
    }
}
