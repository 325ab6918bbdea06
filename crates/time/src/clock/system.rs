//! The machine's clock.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dwell_model::{Now, Timestamp, Wake};

use super::steps::{Notice, Steps};
use super::wake_signal::WakeSignal;
use super::{Clock, Notifier, Sleeper};

/// The machine's wall and monotonic clock. Clones share only their count of wake-ups.
///
/// A wall clock before 1970 or after 9999 reads as the nearer end of [`Timestamp`]'s range. A sleep ends within the
/// operating system's timer slack (Linux: 50 µs for ordinary threads, prctl(2)) plus scheduling latency, and never
/// before its deadline.
#[derive(Clone, Debug, Default)]
pub struct SystemClock {
    wakeups: Arc<AtomicU64>,
}

impl SystemClock {
    /// Creates a clock that reads the machine's time.
    pub fn new() -> SystemClock {
        SystemClock::default()
    }

    /// The number of times that threads sleeping on this clock, or on a clone of it, were scheduled again.
    ///
    /// It does not change while the program is idle.
    pub fn wakeups(&self) -> u64 {
        self.wakeups.load(Ordering::Relaxed)
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let reading = Reading::take();
        let wall_ms = i64::try_from(reading.since_epoch.as_millis()).unwrap_or(i64::MAX);
        Now {
            wall: Timestamp::from_ms(wall_ms).unwrap_or(Timestamp::MAX),
            mono_ms: u64::try_from(reading.since_start.as_millis())
                .expect("a process does not run for half a billion years"),
        }
    }

    fn sleeper(&self) -> Box<dyn Sleeper> {
        Box::new(SystemSleeper {
            bell: Arc::default(),
            notice: None,
            wakeups: 0,
            all_wakeups: Arc::clone(&self.wakeups),
        })
    }
}

/// The machine's monotonic clock in nanoseconds, for what needs a finer resolution than a [`Clock`] has.
#[expect(clippy::disallowed_methods, reason = "the clock is the place that reads the clock")]
pub(crate) fn instant_now() -> Instant {
    Instant::now()
}

/// The origin of the process's monotonic time: the first reading.
pub(crate) fn process_start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(instant_now)
}

/// Both clocks in nanoseconds; a wall time before 1970 reads as 1970.
struct Reading {
    since_epoch: Duration,
    since_start: Duration,
}

impl Reading {
    #[expect(clippy::disallowed_methods, reason = "the clock is the place that reads the clock")]
    fn take() -> Reading {
        let start = process_start();
        Reading {
            since_epoch: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO),
            since_start: instant_now().saturating_duration_since(start),
        }
    }

    /// The time until the earlier deadline of `wake`; zero if one is reached, `None` if there is none.
    ///
    /// It is counted in nanoseconds up to the start of the deadline's millisecond, so that a thread that sleeps this
    /// long then reads that millisecond or a later one.
    fn until(&self, wake: Wake) -> Option<Duration> {
        let wall = wake.wall.map(|at| {
            let at_ms = u64::try_from(at.as_ms()).expect("a timestamp is not before 1970");
            Duration::from_millis(at_ms).saturating_sub(self.since_epoch)
        });
        let mono = wake.mono_ms.map(|at_ms| Duration::from_millis(at_ms).saturating_sub(self.since_start));
        wall.into_iter().chain(mono).min()
    }
}

#[derive(Debug)]
struct SystemSleeper {
    bell: Arc<WakeSignal>,
    /// How steps are noticed; `None` until the first wait for a wall instant.
    notice: Option<Notice>,
    wakeups: u64,
    all_wakeups: Arc<AtomicU64>,
}

impl SystemSleeper {
    /// The longest single wait, where no notification of a step would arrive.
    fn recheck(&mut self, wake: Wake) -> Option<Duration> {
        wake.wall?;
        match *self.notice.get_or_insert_with(|| Steps::subscribe(&self.bell)) {
            Notice::Rung => None,
            Notice::Recheck(every) => Some(every),
        }
    }
}

impl Sleeper for SystemSleeper {
    fn sleep(&mut self, wake: Wake) {
        // Subscribed before the clock is read, so that a step after the reading rings the bell.
        let recheck = self.recheck(wake);
        while !self.bell.take() {
            let patience = Reading::take().until(wake);
            if patience == Some(Duration::ZERO) {
                return;
            }
            self.bell.wait(patience.into_iter().chain(recheck).min());
            self.wakeups += 1;
            self.all_wakeups.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn notifier(&self) -> Arc<dyn Notifier> {
        Arc::<WakeSignal>::clone(&self.bell)
    }

    fn wakeups(&self) -> u64 {
        self.wakeups
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn in_ms(clock: &SystemClock, ms: u64) -> Wake {
        Wake { wall: Some(clock.now().wall.after(ms).unwrap()), mono_ms: None }
    }

    #[test]
    fn monotonic_time_never_goes_back() {
        let clock = SystemClock::new();
        let mut last = clock.now().mono_ms;
        for _ in 0..10_000 {
            let now = clock.clone().now().mono_ms;
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn wakes_when_the_wall_moment_comes_and_never_early() {
        let clock = SystemClock::new();
        let mut sleeper = clock.sleeper();
        for _ in 0..50 {
            let wake = in_ms(&clock, 3);
            sleeper.sleep(wake);
            assert!(wake.is_reached(clock.now()));
        }
    }

    #[test]
    fn wakes_when_the_monotonic_moment_comes_and_never_early() {
        let clock = SystemClock::new();
        let mut sleeper = clock.sleeper();
        for _ in 0..50 {
            let wake = Wake { wall: None, mono_ms: Some(clock.now().mono_ms + 3) };
            sleeper.sleep(wake);
            assert!(wake.is_reached(clock.now()));
        }
    }

    #[test]
    fn a_moment_that_has_come_does_not_sleep() {
        let clock = SystemClock::new();
        let mut sleeper = clock.sleeper();
        sleeper.sleep(Wake { wall: Some(Timestamp::MIN), mono_ms: None });
        sleeper.sleep(Wake { wall: Some(Timestamp::MAX), mono_ms: Some(0) });
        assert_eq!(sleeper.wakeups(), 0);
    }

    #[test]
    fn a_notification_before_the_sleep_ends_the_next_one_only() {
        let clock = SystemClock::new();
        let mut sleeper = clock.sleeper();
        sleeper.notifier().notify();
        sleeper.notifier().notify();
        sleeper.sleep(Wake::default());
        let wake = in_ms(&clock, 5);
        sleeper.sleep(wake);
        assert!(wake.is_reached(clock.now()), "two notifications are one");
    }

    #[test]
    fn a_notification_ends_a_sleep_without_moment() {
        let clock = SystemClock::new();
        let (say, hear) = mpsc::channel();
        let mut sleeper = clock.sleeper();
        let notifier = sleeper.notifier();
        let sleeping = thread::spawn(move || {
            for _ in 0..1_000 {
                sleeper.sleep(Wake::default());
                say.send(()).unwrap();
            }
        });
        for _ in 0..1_000 {
            notifier.notify();
            hear.recv_timeout(PATIENCE).expect("the sleeper was notified");
        }
        sleeping.join().unwrap();
    }

    #[test]
    fn who_sleeps_does_not_run() {
        let clock = SystemClock::new();
        let mut sleeper = clock.sleeper();
        let wake = in_ms(&clock, 300);
        sleeper.sleep(wake);
        assert!(wake.is_reached(clock.now()));
        // One wait, and a margin for the operating system: spurious wake-ups and timers that fire early.
        let allowed = if cfg!(target_os = "linux") { 3 } else { 5 };
        assert!(sleeper.wakeups() <= allowed, "{} wake-ups in one sleep", sleeper.wakeups());
        assert_eq!(clock.wakeups(), sleeper.wakeups());
    }

    #[test]
    fn rounds_up_to_the_millisecond() {
        let reading = Reading {
            since_epoch: Duration::from_nanos(4_999_999),
            since_start: Duration::from_nanos(7_000_001),
        };
        let wall = Wake { wall: Some(Timestamp::from_ms(5).unwrap()), mono_ms: None };
        assert_eq!(reading.until(wall), Some(Duration::from_nanos(1)));
        let both = Wake { mono_ms: Some(7), ..wall };
        assert_eq!(reading.until(both), Some(Duration::ZERO));
        assert_eq!(reading.until(Wake::default()), None);
    }
}
