//! The timer: one thread that sleeps on the [`Clock`] for all tasks of a worker.
//!
//! A runtime's own timer would do the same, but tests could not control it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};

use dwell_model::Wake;
use dwell_time::{Clock, Notifier, Sleeper};

use crate::Result;

/// Wakes tasks at times of the monotonic clock. Its thread ends when it is dropped.
pub(crate) struct Timer {
    shared: Arc<SharedTimer>,
    thread: Option<JoinHandle<()>>,
}

struct SharedTimer {
    clock: Arc<dyn Clock>,
    notifier: Arc<dyn Notifier>,
    state: Mutex<TimerState>,
}

#[derive(Default)]
struct TimerState {
    /// Sleeping tasks by time; the number distinguishes tasks with the same time.
    sleepers: BTreeMap<(u64, u64), Waker>,
    next: u64,
    is_stopped: bool,
}

impl SharedTimer {
    /// Nothing that may panic runs under this lock: wakers are woken, cloned and dropped outside.
    fn state(&self) -> MutexGuard<'_, TimerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        self.clock.now().mono_ms
    }
}

impl Timer {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) with `unavailable` if the operating system cannot start one.
    pub(crate) fn start(clock: &Arc<dyn Clock>) -> Result<Timer> {
        let sleeper = clock.sleeper();
        let shared = Arc::new(SharedTimer {
            clock: Arc::clone(clock),
            notifier: sleeper.notifier(),
            state: Mutex::default(),
        });
        let its = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("dwell-delivery-timer".to_owned())
            .spawn(move || run(&its, sleeper))
            .map_err(|error| dwell_store::Error::Unavailable {
                reason: format!("no thread can be started to wait with: {error}").into(),
            })?;
        Ok(Timer { shared, thread: Some(thread) })
    }

    /// Ends when the monotonic clock reads `mono_ms`.
    pub(crate) fn sleep_until(&self, mono_ms: u64) -> Sleep {
        Sleep { shared: Arc::clone(&self.shared), mono_ms, place: None }
    }

    /// Ends at that time, if there is one.
    pub(crate) async fn sleep_until_some(&self, mono_ms: Option<u64>) {
        match mono_ms {
            Some(mono_ms) => self.sleep_until(mono_ms).await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.state().is_stopped = true;
        self.shared.notifier.notify();
        // It may be dropped by a task that the thread itself has woken.
        if let Some(thread) =
            self.thread.take().filter(|thread| thread.thread().id() != thread::current().id())
        {
            // It reported its panic, if there was one.
            let _ = thread.join();
        }
    }
}

fn run(shared: &SharedTimer, mut sleeper: Box<dyn Sleeper>) {
    loop {
        let mut state = shared.state();
        if state.is_stopped {
            return;
        }
        let later = state.sleepers.split_off(&(shared.now_ms().saturating_add(1), 0));
        let due = std::mem::replace(&mut state.sleepers, later);
        let next = state.sleepers.keys().next().map(|(mono_ms, _)| *mono_ms);
        drop(state);
        for waker in due.into_values() {
            dwell_store::contained(|| waker.wake());
        }
        sleeper.sleep(Wake { wall: None, mono_ms: next });
    }
}

/// A sleep on the clock. Dropping it removes its waker.
pub(crate) struct Sleep {
    shared: Arc<SharedTimer>,
    mono_ms: u64,
    place: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.shared.now_ms() >= self.mono_ms {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        let number = match self.place {
            Some(number) => number,
            None => {
                state.next += 1;
                state.next
            }
        };
        self.place = Some(number);
        let place = (self.mono_ms, number);
        let replaced = state.sleepers.insert(place, waker);
        let is_first = state.sleepers.first_key_value().is_some_and(|(first, _)| *first == place);
        drop(state);
        drop(replaced);
        if is_first {
            // The thread sleeps until a later time, and reads the clock when it is woken: a time that has passed
            // meanwhile is not missed.
            shared.notifier.notify();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.place {
            let forgotten = self.shared.state().sleepers.remove(&(self.mono_ms, number));
            drop(forgotten);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dwell_model::Timestamp;
    use dwell_time::ManualClock;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn tasks_wake_at_their_moments_and_in_their_order() {
        let manual = ManualClock::new(Timestamp::MIN);
        let clock: Arc<dyn Clock> = Arc::new(manual.clone());
        let timer = Arc::new(Timer::start(&clock).unwrap());
        let (woken, mut heard) = tokio::sync::mpsc::unbounded_channel();
        for at in [30, 10, 20] {
            let (timer, woken, clock) = (Arc::clone(&timer), woken.clone(), Arc::clone(&clock));
            tokio::spawn(async move {
                timer.sleep_until(at).await;
                let _ = woken.send((at, clock.now().mono_ms));
            });
        }
        for at in [10, 20, 30] {
            manual.advance(10);
            let next = tokio::time::timeout(PATIENCE, heard.recv()).await.unwrap().unwrap();
            assert_eq!(next, (at, at));
        }
    }

    #[tokio::test]
    async fn a_sleep_that_is_dropped_leaves_nothing() {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::MIN));
        let timer = Timer::start(&clock).unwrap();
        let mut sleep = Box::pin(timer.sleep_until(10));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(timer.shared.state().sleepers.len(), 1);
        drop(sleep);
        assert!(timer.shared.state().sleepers.is_empty());
        timer.sleep_until(0).await;
    }
}
