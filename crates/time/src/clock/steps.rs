//! Steps of the wall clock: how the process notices one, and which sleepers are notified.
//!
//! On Linux one thread per process blocks in a `timerfd` that is cancelled when `CLOCK_REALTIME` is set
//! (`TFD_TIMER_CANCEL_ON_SET`, timerfd_create(2)); resuming from suspend counts as a step too. The thread is started by
//! the first sleeper that waits for a wall instant, and does not run until there is a step. On other systems, or where
//! the kernel refuses the timer, sleepers check the clock every second.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use super::wake_signal::WakeSignal;

/// The sleepers that wait, or have waited, for a wall instant.
#[derive(Debug, Default)]
pub(super) struct Steps {
    listeners: Mutex<Vec<Weak<WakeSignal>>>,
}

/// How a subscribed sleeper learns of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// Its bell is rung.
    Rung,
    /// It is not notified and has to check the clock itself, at this interval.
    Recheck(Duration),
}

impl Steps {
    /// Subscribes `bell` to steps of the clock for as long as the bell lives.
    pub(super) fn subscribe(bell: &Arc<WakeSignal>) -> Notice {
        static STEPS: OnceLock<(Arc<Steps>, Notice)> = OnceLock::new();
        let (steps, notice) = STEPS.get_or_init(|| {
            let steps = Arc::new(Steps::default());
            let notice = watch(&steps);
            (steps, notice)
        });
        steps.add(bell);
        *notice
    }

    fn add(&self, bell: &Arc<WakeSignal>) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        // Dropped listeners are removed when the list would have to grow, so that subscribing costs amortised constant
        // time.
        if listeners.len() == listeners.capacity() {
            listeners.retain(|listener| listener.strong_count() > 0);
        }
        listeners.push(Arc::downgrade(bell));
    }

    /// Wakes every listener, so that it compares its deadline with the new time.
    fn announce(&self) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| {
            let bell = listener.upgrade();
            if let Some(bell) = &bell {
                bell.ring();
            }
            bell.is_some()
        });
    }
}

const RECHECK: Notice = Notice::Recheck(Duration::from_secs(1));

#[cfg(not(target_os = "linux"))]
fn watch(_steps: &Arc<Steps>) -> Notice {
    RECHECK
}

#[cfg(target_os = "linux")]
fn watch(steps: &Arc<Steps>) -> Notice {
    let Ok(timer) = step_timer() else {
        return RECHECK;
    };
    let steps = Arc::clone(steps);
    let started = std::thread::Builder::new()
        .name("dwell-clock-steps".into())
        .stack_size(64 * 1024)
        .spawn(move || listen(&timer, || steps.announce()));
    if started.is_ok() { Notice::Rung } else { RECHECK }
}

/// A timer that never expires and is cancelled by every step of the wall clock.
#[cfg(target_os = "linux")]
fn step_timer() -> rustix::io::Result<rustix::fd::OwnedFd> {
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::CLOEXEC)?;
    let never = Itimerspec {
        it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: Timespec { tv_sec: i64::MAX, tv_nsec: 0 },
    };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET, &never)?;
    Ok(timer)
}

/// Blocks on `timer` for the life of the process and calls `stepped` after each step.
#[cfg(target_os = "linux")]
fn listen(timer: &rustix::fd::OwnedFd, stepped: impl Fn()) {
    let mut expirations = [0_u8; 8];
    loop {
        match rustix::io::read(timer, &mut expirations) {
            // The read that reports the step leaves the timer armed for the next one.
            Err(rustix::io::Errno::CANCELED) => stepped(),
            Err(rustix::io::Errno::INTR) | Ok(_) => {}
            Err(error) => {
                // Reading our own armed timer cannot fail in any other way, and retrying would spin. A panic is the
                // lesser evil.
                panic!("the timer that notices steps of the clock cannot be read: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_rings_every_living_listener() {
        let steps = Steps::default();
        let (first, second) = (Arc::new(WakeSignal::default()), Arc::new(WakeSignal::default()));
        let gone = Arc::new(WakeSignal::default());
        for bell in [&first, &gone, &second] {
            steps.add(bell);
        }
        drop(gone);
        steps.announce();
        assert!(first.take() && second.take());
        assert_eq!(steps.listeners.lock().unwrap().len(), 2, "the dead are forgotten");
        steps.announce();
        assert!(first.take() && second.take(), "and the next step is heard as well");
    }

    #[test]
    fn sleepers_that_come_and_go_do_not_pile_up() {
        let steps = Steps::default();
        for _ in 0..10_000 {
            steps.add(&Arc::new(WakeSignal::default()));
        }
        assert!(steps.listeners.lock().unwrap().capacity() <= 16);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_kernel_grants_the_timer() {
        assert!(step_timer().is_ok());
        assert_eq!(Steps::subscribe(&Arc::new(WakeSignal::default())), Notice::Rung);
    }

    /// Sets the machine's clock to its current time, which the kernel counts as a step of less than a microsecond.
    ///
    /// Needs CAP_SYS_TIME, and changes the machine's clock: `DWELL_TEST_SET_CLOCK=1 cargo test -p dwell-time`.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_kernel_reports_a_step() {
        use rustix::time::{ClockId, clock_gettime, clock_settime};
        if std::env::var_os("DWELL_TEST_SET_CLOCK").is_none() {
            eprintln!("skipped: DWELL_TEST_SET_CLOCK is not set, the machine's clock is left alone");
            return;
        }
        let bell = Arc::new(WakeSignal::default());
        assert_eq!(Steps::subscribe(&bell), Notice::Rung);
        clock_settime(ClockId::Realtime, clock_gettime(ClockId::Realtime)).unwrap();
        for _ in 0..10 {
            if bell.take() {
                return;
            }
            bell.wait(Some(Duration::from_secs(1)));
        }
        panic!("ten seconds after the clock was set nobody has rung");
    }
}
