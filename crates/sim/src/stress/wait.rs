//! Waiting for an answer, with a timeout: a call that has nothing to wait for and is not answered is a violation.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::StressShared;
use crate::oracle::ViolationKind;

/// The timeout of an answer, in seconds, generous for a machine that runs many other programs.
const PATIENCE: u32 = 30;
/// The interval at which a waiting thread checks whether another one has timed out.
const PIECE: Duration = Duration::from_secs(1);

/// The waker of a blocking wait.
#[derive(Debug, Default)]
struct AnswerBell {
    rung: Mutex<bool>,
    rings: Condvar,
}

impl AnswerBell {
    /// Waits for a wake; returns false after a [`PIECE`] of time without one.
    fn wait(&self) -> bool {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.rings.wait_timeout_while(rung, PIECE, |rung| !*rung);
        std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

impl Wake for AnswerBell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.rings.notify_all();
    }
}

impl StressShared {
    /// Waits for the answer to a call that has nothing to wait for. `about` names the call in the violation if there is
    /// no answer; then this returns `None`.
    pub(super) fn answer<T>(&self, about: &str, future: impl Future<Output = T>) -> Option<T> {
        self.wait(about, future, 0)
    }

    /// As [`answer`](StressShared::answer), for a call that may wait for time to pass: `ms` milliseconds pass each
    /// second.
    pub(super) fn wait<T>(&self, about: &str, future: impl Future<Output = T>, ms: u64) -> Option<T> {
        let mut future = std::pin::pin!(future);
        let bell = Arc::new(AnswerBell::default());
        let waker = Waker::from(Arc::clone(&bell));
        let mut waited = 0;
        loop {
            if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Some(answer);
            }
            while !bell.wait() {
                waited += 1;
                if self.is_stuck.load(Ordering::SeqCst) {
                    return None;
                }
                if waited >= PATIENCE {
                    self.is_stuck.store(true, Ordering::SeqCst);
                    self.accuse(
                        ViolationKind::Stuck,
                        format!("{about} was not answered in {PATIENCE} seconds"),
                    );
                    return None;
                }
                if ms > 0 {
                    self.advance(ms);
                }
            }
        }
    }
}

/// Polls a future once, without a waker.
pub(super) fn polled<T>(future: &mut Pin<Box<dyn Future<Output = T> + Send>>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}
