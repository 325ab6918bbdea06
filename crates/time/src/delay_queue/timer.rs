//! The timer of waiting tasks: one thread per process, whatever the number of queues and runtimes.
//!
//! Waiting threads block on a condition variable with a timeout. Tasks on an unknown runtime have no timer, so their
//! leader, and those that have a deadline, set an alarm here. The first alarm starts the thread, which sleeps until the
//! next alarm is due.
//!
//! Wakers run on this thread. A waker that panics affects its own task alone (`waiters.rs`). A waker that blocks delays
//! the timers of all tasks of the process for as long as it blocks: [`Waker::wake`](std::task::Waker::wake) must not
//! block, and the wakers of the runtimes do not. Threads do not depend on this timer ([the rules](super::state)).

use std::fmt;
use std::io;
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crate::timing_queue::{Handle, TimingQueue};

use super::sync::{Condvar, Mutex, MutexGuard};
use super::time::Time;
use super::waiters::{GRACE_NS, Ticket, WaiterList};

/// What happens when a deadline is reached.
enum Moment {
    Wake(Arc<WaiterList>, Ticket),
    EndWatch(Arc<WaiterList>),
}

/// A pending call of a waiter at its deadline. Dropping the alarm cancels it.
pub(super) struct Alarm {
    timer: Arc<Timer>,
    handle: Handle,
    due: i64,
}

impl Alarm {
    /// Whether it is pending, and for `due`.
    pub(super) fn is_set_to(&self, due: i64) -> bool {
        self.due == due && self.timer.state().moments.get(self.handle).is_some()
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the timer, as formatting it would lock it.
        f.debug_struct("Alarm").field("due", &self.due).finish_non_exhaustive()
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let moment = self.timer.state().moments.cancel(self.handle);
        // Dropped after the lock is released: it may hold the last reference to a queue's line, and the line the wakers
        // of other tasks.
        drop(moment);
    }
}

pub(super) struct Timer {
    state: Mutex<TimerState>,
    earlier: Condvar,
    time: Time,
}

#[derive(Default)]
struct TimerState {
    moments: TimingQueue<Moment>,
    stopped: bool,
}

impl Timer {
    fn new(time: Time) -> Arc<Timer> {
        Arc::new(Timer { state: Mutex::default(), earlier: Condvar::new(), time })
    }

    /// The timer of all queues that use the system clock.
    ///
    /// # Errors
    /// If the thread cannot be started. The next call tries again.
    pub(super) fn of_process() -> io::Result<&'static Arc<Timer>> {
        static TIMER: OnceLock<Arc<Timer>> = OnceLock::new();
        static STARTING: std::sync::Mutex<()> = std::sync::Mutex::new(());
        if let Some(timer) = TIMER.get() {
            return Ok(timer);
        }
        let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(timer) = TIMER.get() {
            return Ok(timer);
        }
        let timer = Timer::new(Time::System);
        let running = Arc::clone(&timer);
        thread::Builder::new()
            .name("dwell-delay-timer".into())
            .stack_size(256 * 1024)
            .spawn(move || running.run())?;
        Ok(TIMER.get_or_init(|| timer))
    }

    fn state(&self) -> MutexGuard<'_, TimerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the waiter of `ticket` at `due`.
    pub(super) fn set_alarm(self: &Arc<Timer>, due: i64, line: &Arc<WaiterList>, ticket: Ticket) -> Alarm {
        let handle = self.add(due, Moment::Wake(Arc::clone(line), ticket));
        Alarm { timer: Arc::clone(self), handle, due }
    }

    /// Ends the watch of `line`, which is set, when the grace period has passed.
    pub(super) fn watch(&self, line: &Arc<WaiterList>) {
        let due = self.time.now().saturating_add(GRACE_NS);
        self.add(due, Moment::EndWatch(Arc::clone(line)));
    }

    fn add(&self, due: i64, moment: Moment) -> Handle {
        let mut state = self.state();
        let is_head = state.moments.next_due().is_none_or(|head| due < head);
        let handle = state.moments.insert(due, moment);
        drop(state);
        if is_head {
            self.earlier.notify_one();
        }
        handle
    }

    fn run(&self) {
        let _fine = FineTimer::for_this_thread();
        let mut state = self.state();
        while !state.stopped {
            let now = self.time.now();
            if let Some((_, moment)) = state.moments.pop_due(now) {
                drop(state);
                self.ring(moment);
                state = self.state();
                continue;
            }
            state = match state.moments.next_due() {
                Some(due) => {
                    let patience = Duration::from_nanos(due.abs_diff(now));
                    self.earlier.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.earlier.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn ring(&self, moment: Moment) {
        let line = match moment {
            Moment::Wake(line, ticket) => {
                line.ring(ticket);
                line
            }
            Moment::EndWatch(line) => {
                line.end_watch();
                line
            }
        };
        if line.wants_watch() {
            self.watch(&line);
        }
    }
}

/// The timer of a single queue whose clock is moved by hand: the model checker runs its alarms with it.
#[cfg(shuttle)]
mod by_hand {
    use super::*;
    use crate::clock::{ClockMoved, ManualClock};

    impl Timer {
        pub(in super::super) fn by_hand(clock: &ManualClock) -> Arc<Timer> {
            let timer = Timer::new(Time::Manual(clock.clone()));
            let moved: Arc<dyn ClockMoved> = Arc::clone(&timer) as Arc<dyn ClockMoved>;
            clock.tell_when_moved(&moved);
            timer
        }

        pub(in super::super) fn run_until_stopped(&self) {
            self.run();
        }

        pub(in super::super) fn stop(&self) {
            self.state().stopped = true;
            self.earlier.notify_one();
        }
    }

    impl ClockMoved for Timer {
        fn moved(&self) {
            // Taking the lock closes the window between the timer's reading of the clock and its wait.
            drop(self.state());
            self.earlier.notify_one();
        }
    }
}

/// Sets the calling thread's timer slack to its minimum, so that it wakes at the deadline.
///
/// By default Linux may wake it up to 50 µs later, to wake sleepers together (prctl(2), `PR_SET_TIMERSLACK`). Dropping
/// this restores the previous value.
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
    // If this fails, timers fire up to 50 µs later, and nothing else changes.
    let _ = rustix::thread::set_current_timer_slack(Some(slack));
}
