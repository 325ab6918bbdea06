//! The timer of waiting tasks: one thread a process, whatever the number of queues and runtimes.
//!
//! Threads that wait block on a condition variable with a timeout of their own. Tasks have no such thing on an
//! unknown runtime; the leader among them leaves its waker here. The thread is started by the first one, and
//! does not run while no moment comes.

use std::io;
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use crate::timing_queue::{Handle, TimingQueue};

use super::time::system_now;

/// A waker that is going to be woken at its moment, unless this is dropped before.
#[derive(Debug)]
pub(super) struct Alarm {
    handle: Handle,
    due: i64,
}

impl Alarm {
    /// Wakes `waker` at `due`.
    ///
    /// # Panics
    /// If the process is not granted the thread, as [`thread::spawn`] does.
    pub(super) fn set(due: i64, waker: &Waker) -> Alarm {
        let handle = Timer::of_process().add(due, waker.clone());
        Alarm { handle, due }
    }

    /// Whether it rings at `due` and wakes that waker.
    pub(super) fn is_set_to(&self, due: i64, waker: &Waker) -> bool {
        let state = Timer::of_process().state();
        self.due == due && state.alarms.get(self.handle).is_some_and(|set| set.will_wake(waker))
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let waker = Timer::of_process().state().alarms.cancel(self.handle);
        // The waker goes when the lock has gone: dropping it may run anything.
        drop(waker);
    }
}

#[derive(Debug)]
struct Timer {
    state: Mutex<Alarms>,
    earlier: Condvar,
}

#[derive(Debug, Default)]
struct Alarms {
    alarms: TimingQueue<Waker>,
}

impl Timer {
    fn of_process() -> &'static Timer {
        static TIMER: OnceLock<&'static Timer> = OnceLock::new();
        TIMER.get_or_init(|| Timer::start().expect("the process is granted a thread for its timer"))
    }

    fn start() -> io::Result<&'static Timer> {
        let timer: &'static Timer =
            Box::leak(Box::new(Timer { state: Mutex::default(), earlier: Condvar::new() }));
        thread::Builder::new()
            .name("dwell-delay-timer".into())
            .stack_size(256 * 1024)
            .spawn(|| timer.run())?;
        Ok(timer)
    }

    fn state(&self) -> MutexGuard<'_, Alarms> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, due: i64, waker: Waker) -> Handle {
        let mut state = self.state();
        let is_head = state.alarms.next_due().is_none_or(|head| due < head);
        let handle = state.alarms.insert(due, waker);
        drop(state);
        if is_head {
            self.earlier.notify_one();
        }
        handle
    }

    fn run(&self) {
        let _fine = FineTimer::for_this_thread();
        let mut state = self.state();
        loop {
            let now = system_now();
            if let Some((_, waker)) = state.alarms.pop_due(now) {
                drop(state);
                waker.wake();
                state = self.state();
                continue;
            }
            state = match state.alarms.next_due() {
                Some(due) => {
                    let patience = Duration::from_nanos(due.abs_diff(now));
                    self.earlier.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.earlier.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// Lets the calling thread be woken at the moment rather than up to 50 µs after it, which is what Linux grants itself by
/// default to wake sleepers together (prctl(2), `PR_SET_TIMERSLACK`). What was set before is set again at the end.
#[derive(Debug)]
pub(super) struct FineTimer {
    #[cfg(target_os = "linux")]
    before: Option<NonZeroU64>,
}

impl FineTimer {
    pub(super) fn for_this_thread() -> FineTimer {
        #[cfg(target_os = "linux")]
        {
            let before = rustix::thread::current_timer_slack().ok().and_then(NonZeroU64::new);
            let before = before.filter(|slack| *slack > NonZeroU64::MIN);
            if before.is_some() {
                set_slack(NonZeroU64::MIN);
            }
            FineTimer { before }
        }
        #[cfg(not(target_os = "linux"))]
        FineTimer {}
    }
}

#[cfg(target_os = "linux")]
impl Drop for FineTimer {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            set_slack(before);
        }
    }
}

#[cfg(target_os = "linux")]
fn set_slack(slack: NonZeroU64) {
    // Refused, the timer is 50 µs later, and as good otherwise.
    let _ = rustix::thread::set_current_timer_slack(Some(slack));
}
