//! A waiting take, polled by hand: so a scenario knows its progress, and can drop it at any point.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use dwell_model::Wake as Moment;
use dwell_time::{Clock, SystemClock};

use super::stage::{PATIENCE, Stage};
use crate::{Delivery, Result, Store, Take};

/// A take in progress. Dropping it drops its future.
pub(super) struct PendingTake {
    future: Pin<Box<dyn Future<Output = Result<Vec<Delivery>>> + Send>>,
    bell: Arc<Bell>,
}

#[derive(Default)]
struct Bell {
    rung: Mutex<(bool, u64)>,
    changed: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        *rung = (true, rung.1 + 1);
        self.changed.notify_all();
    }
}

impl PendingTake {
    /// Begins a take that has no message to hand out yet, and returns once the store counts it as waiting.
    pub(super) fn begin(stage: &Stage, take: Take) -> PendingTake {
        let queue = take.queues[0].clone();
        let count = || stage.store().stats(queue.clone()).map_or(0, |stats| stats.waiting);
        let before = count();
        let mut waiting = PendingTake::start(stage.raw(), take);
        assert!(waiting.poll().is_none(), "nothing is due yet");
        await_true("the take counts as waiting", || count() > before);
        waiting
    }

    /// A take that has not been polled yet.
    pub(super) fn start(store: Arc<dyn Store>, take: Take) -> PendingTake {
        PendingTake { future: Box::pin(async move { store.take(take).await }), bell: Arc::default() }
    }

    /// Polls once; `None` while it waits.
    pub(super) fn poll(&mut self) -> Option<Result<Vec<Delivery>>> {
        self.bell.rung.lock().unwrap_or_else(PoisonError::into_inner).0 = false;
        let waker = Waker::from(Arc::clone(&self.bell));
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }

    /// Waits until the store wakes it, without polling it.
    #[track_caller]
    pub(super) fn await_wake(&self) {
        let rung = self.bell.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, waited) = self
            .bell
            .changed
            .wait_timeout_while(rung, PATIENCE / 2, |rung| !rung.0)
            .unwrap_or_else(PoisonError::into_inner);
        drop(guard);
        assert!(!waited.timed_out(), "the waiting take is never woken");
    }

    /// Waits for its answer.
    #[track_caller]
    pub(super) fn answer(mut self) -> Result<Vec<Delivery>> {
        loop {
            if let Some(answer) = self.poll() {
                return answer;
            }
            self.await_wake();
        }
    }

    /// How often the store has woken it so far.
    pub(super) fn wakes(&self) -> u64 {
        self.bell.rung.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

/// Checks repeatedly until `holds`, at most for the timeout: for what a store behind a connection does at its
/// own time, without a notification.
///
/// # Panics
/// If it never does.
#[track_caller]
pub fn await_true(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    let mut sleeper = clock.sleeper();
    let end_ms = clock.now().mono_ms + PATIENCE.as_millis() as u64 / 2;
    while !holds() {
        let now_ms = clock.now().mono_ms;
        assert!(now_ms < end_ms, "waited in vain: {what}");
        sleeper.sleep(Moment { wall: None, mono_ms: Some(now_ms + 1) });
    }
}
