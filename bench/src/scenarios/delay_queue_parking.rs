//! `delay-queue-parking`: what a thread can wait for an instant with, how late it is then, and what that costs.
//!
//! Each means waits for the same instants, 0.2 to 2 ms away, one after the other; nobody else wakes it. Processor time is
//! that of the waiting thread, a wake-up, and counts the spinning. The timer slack is 50 µs unless the row says 1 ns.

use std::num::NonZeroU64;
use std::sync::atomic::AtomicU32;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::thread::{futex, set_current_timer_slack};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use super::Scenario;
use crate::Result;
use crate::run::Run;
use crate::stopwatch::Stopwatch;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "delay-queue-parking",
    what: "condvar, futex, timerfd, spin: how late, at what cost",
    run,
};

/// Waits so long, or somewhat less or longer.
type Wait<'a> = Box<dyn FnMut(Duration) + 'a>;

const SPIN: Duration = Duration::from_micros(70);

fn run(run: &mut Run) -> Result<()> {
    let waits = run.scaled(4_000);
    let (mutex, condvar, word) = (Mutex::new(()), Condvar::new(), AtomicU32::new(0));
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let wait_condvar = |patience| {
        let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        drop(condvar.wait_timeout(guard, patience));
    };
    let fine = NonZeroU64::new(1);
    let means: Vec<(&str, Option<NonZeroU64>, Wait<'_>)> = vec![
        ("condvar", None, Box::new(wait_condvar)),
        ("condvar, slack 1 ns", fine, Box::new(wait_condvar)),
        (
            "futex",
            None,
            Box::new(|patience| {
                // It ends with a timeout, which is what is wanted.
                let _ = futex::wait(&word, futex::Flags::PRIVATE, 0, Some(&timespec(patience)));
            }),
        ),
        (
            "timerfd",
            None,
            Box::new(|patience| {
                let once = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(patience) };
                let mut expirations = [0_u8; 8];
                let armed = timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once);
                if armed.is_ok() {
                    let _ = rustix::io::read(&timer, &mut expirations);
                }
            }),
        ),
        (
            "condvar, then spin for 70 us",
            None,
            Box::new(|patience| {
                let watch = Stopwatch::start();
                if let Some(patience) = patience.checked_sub(SPIN) {
                    wait_condvar(patience);
                }
                while watch.elapsed() < patience {
                    std::hint::spin_loop();
                }
            }),
        ),
    ];
    for (name, slack, mut wait) in means {
        let mut late = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?;
        let mut spent = Vec::new();
        set_current_timer_slack(slack)?;
        for _ in 0..run.rounds() {
            let before = thread_ns();
            for n in 0..waits {
                let patience = Duration::from_nanos(200_000 + n * 7_919_000 % 1_800_000);
                let watch = Stopwatch::start();
                while let Some(left) = patience.checked_sub(watch.elapsed()).filter(|left| !left.is_zero()) {
                    wait(left);
                }
                late.saturating_record(u64::try_from((watch.elapsed() - patience).as_nanos())?);
            }
            spent.push((thread_ns() - before) as f64 / 1e3 / waits as f64);
        }
        set_current_timer_slack(None)?;
        for (metric, quantile) in [("p50_us", 0.5), ("p99_us", 0.99), ("p99.9_us", 0.999)] {
            run.alone(name, metric, vec![late.value_at_quantile(quantile) as f64 / 1e3]);
        }
        run.alone(name, "cpu_us", spent);
    }
    Ok(())
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: duration.subsec_nanos().into() }
}

/// What this thread has used of a processor.
fn thread_ns() -> u64 {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64
}
