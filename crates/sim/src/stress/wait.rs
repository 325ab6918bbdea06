//! Waiting for an answer, but not for ever: a call that nothing keeps waiting and that is not answered is a violation.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::Shared;
use crate::oracle::Kind;

/// So long an answer may take where many other programs want the processor.
const PATIENCE: u32 = 30;
/// After so long it is looked whether somebody else has given up.
const PIECE: Duration = Duration::from_secs(1);

/// A bell, which whoever answers rings.
#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    /// True if it was rung, false if it was not for a [`PIECE`] of time.
    fn wait(&self) -> bool {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.rings.wait_timeout_while(rung, PIECE, |rung| !*rung);
        std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.rings.notify_all();
    }
}

impl Shared {
    /// The answer to a call that has nothing to wait for. `about` says which one it is, should there be none; then there is
    /// nothing here either.
    pub(super) fn answer<T>(&self, about: &str, future: impl Future<Output = T>) -> Option<T> {
        self.wait(about, future, 0)
    }

    /// The same for a call that may wait for time to pass: so much of it does, a second.
    pub(super) fn wait<T>(&self, about: &str, future: impl Future<Output = T>, ms: u64) -> Option<T> {
        let mut future = std::pin::pin!(future);
        let bell = Arc::new(Bell::default());
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
                    self.accuse(Kind::Stuck, format!("{about} was not answered in {PATIENCE} seconds"));
                    return None;
                }
                if ms > 0 {
                    self.advance(ms);
                }
            }
        }
    }
}

/// What comes of one look at a future; whoever completes it need not tell.
pub(super) fn polled<T>(future: &mut Pin<Box<dyn Future<Output = T> + Send>>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}
