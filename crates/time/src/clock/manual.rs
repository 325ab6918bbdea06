//! A clock that stands still until a test moves it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dwell_model::{Now, Timestamp, Wake};

use super::{Clock, Notifier, Sleeper};

/// A clock driven by hand. Clones share the same time.
///
/// Two runs that move it in the same way read the same times: it never reads the machine's clock. Its sleepers block
/// their threads as the system clock's do. They wake when [`advance`](ManualClock::advance) reaches their deadline,
/// when [`step_wall`](ManualClock::step_wall) moves the wall clock, and when they are notified.
#[derive(Clone, Debug)]
pub struct ManualClock {
    shared: Arc<ManualShared>,
}

#[derive(Debug)]
struct ManualShared {
    state: Mutex<ManualState>,
    /// Signalled when something that a sleeper waits for may have happened.
    moved: Condvar,
    /// Signalled when a sleeper has gone to sleep.
    asleep: Condvar,
}

struct ManualState {
    now: Now,
    next_sleeper: u64,
    sleepers: BTreeMap<u64, SleeperSlot>,
    /// Notified after each move, once the lock has been released.
    listeners: Vec<Weak<dyn ClockMoved>>,
}

/// A listener that waits by other means than a [`Sleeper`] and must be notified when the clock is moved.
pub(crate) trait ClockMoved: Send + Sync {
    /// The clock was moved and now reads another time.
    fn moved(&self);
}

/// The state of one sleeper.
#[derive(Debug, Default)]
struct SleeperSlot {
    /// The deadline it sleeps for; `None` while it is awake.
    wake: Option<Wake>,
    /// Whether it was notified, or the wall clock was stepped, since it last woke.
    notified: bool,
}

impl fmt::Debug for ManualState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("now", &self.now)
            .field("sleepers", &self.sleepers)
            .finish_non_exhaustive()
    }
}

impl ManualState {
    fn place(&mut self, sleeper: u64) -> &mut SleeperSlot {
        self.sleepers.get_mut(&sleeper).expect("a sleeper has its place for as long as it lives")
    }

    fn is_asleep(&self, place: &SleeperSlot) -> bool {
        !place.notified && place.wake.is_some_and(|wake| !wake.is_reached(self.now))
    }
}

impl ManualShared {
    fn state(&self) -> MutexGuard<'_, ManualState> {
        // A test that panics while it holds the lock should fail with its own message, not with a poison error.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ManualClock {
    /// Creates a clock whose wall time is `start` and whose monotonic time is 0 ms.
    pub fn new(start: Timestamp) -> ManualClock {
        let state = ManualState {
            now: Now { wall: start, mono_ms: 0 },
            next_sleeper: 0,
            sleepers: BTreeMap::new(),
            listeners: Vec::new(),
        };
        ManualClock {
            shared: Arc::new(ManualShared {
                state: Mutex::new(state),
                moved: Condvar::new(),
                asleep: Condvar::new(),
            }),
        }
    }

    /// Moves wall and monotonic time forward by `ms` in one step, and wakes the sleepers whose deadline has been
    /// reached.
    ///
    /// # Panics
    /// If the wall would pass the year 9999, or monotonic time 2^64 ms.
    #[track_caller]
    pub fn advance(&self, ms: u64) {
        let mut state = self.shared.state();
        state.now = Now {
            wall: state.now.wall.after(ms).expect("a test's clock stays before the year 10000"),
            mono_ms: state.now.mono_ms.checked_add(ms).expect("a test's clock stays below 2^64 ms"),
        };
        self.shared.moved.notify_all();
        tell(state);
    }

    /// Sets the wall clock alone, forward or back, as an administrator or NTP does, and wakes all sleepers.
    pub fn step_wall(&self, to: Timestamp) {
        let mut state = self.shared.state();
        state.now.wall = to;
        for place in state.sleepers.values_mut() {
            place.notified = true;
        }
        self.shared.moved.notify_all();
        tell(state);
    }

    /// Notifies `listener` after each move, for as long as it lives.
    pub(crate) fn tell_when_moved(&self, listener: &Arc<dyn ClockMoved>) {
        self.shared.state().listeners.push(Arc::downgrade(listener));
    }

    /// The number of sleepers that are blocked in [`Sleeper::sleep`] and stay blocked until something else happens.
    pub fn asleep(&self) -> usize {
        let state = self.shared.state();
        state.sleepers.values().filter(|place| state.is_asleep(place)).count()
    }

    /// Blocks until at least `count` sleepers are [asleep](ManualClock::asleep), for at most `patience` of real time.
    ///
    /// Returns false on timeout. A test uses it to wait until the threads that it drives have nothing left to do.
    #[must_use = "false means that the threads are still busy"]
    pub fn await_asleep(&self, count: usize, patience: Duration) -> bool {
        let state = self.shared.state();
        let busy = |state: &mut ManualState| {
            state.sleepers.values().filter(|place| state.is_asleep(place)).count() < count
        };
        let waited = self.shared.asleep.wait_timeout_while(state, patience, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// Notifies the listeners that the clock was moved. They read the clock, so the lock is released first.
fn tell(mut state: MutexGuard<'_, ManualState>) {
    state.listeners.retain(|listener| listener.strong_count() > 0);
    let listeners = state.listeners.clone();
    drop(state);
    for listener in listeners.iter().filter_map(Weak::upgrade) {
        listener.moved();
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Now {
        self.shared.state().now
    }

    fn sleeper(&self) -> Box<dyn Sleeper> {
        let mut state = self.shared.state();
        let id = state.next_sleeper;
        state.next_sleeper += 1;
        state.sleepers.insert(id, SleeperSlot::default());
        Box::new(ManualSleeper { id, shared: Arc::clone(&self.shared), wakeups: 0 })
    }
}

#[derive(Debug)]
struct ManualSleeper {
    id: u64,
    shared: Arc<ManualShared>,
    wakeups: u64,
}

impl Sleeper for ManualSleeper {
    fn sleep(&mut self, wake: Wake) {
        let mut state = self.shared.state();
        state.place(self.id).wake = Some(wake);
        self.shared.asleep.notify_all();
        while !state.place(self.id).notified && !wake.is_reached(state.now) {
            state = self.shared.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
            self.wakeups += 1;
        }
        *state.place(self.id) = SleeperSlot::default();
    }

    fn notifier(&self) -> Arc<dyn Notifier> {
        Arc::new(ManualNotifier { id: self.id, shared: Arc::clone(&self.shared) })
    }

    fn wakeups(&self) -> u64 {
        self.wakeups
    }
}

impl Drop for ManualSleeper {
    fn drop(&mut self) {
        self.shared.state().sleepers.remove(&self.id);
    }
}

#[derive(Debug)]
struct ManualNotifier {
    id: u64,
    shared: Arc<ManualShared>,
}

impl Notifier for ManualNotifier {
    fn notify(&self) {
        let mut state = self.shared.state();
        // The sleeper may have been dropped: a notifier that outlives it does nothing.
        let Some(place) = state.sleepers.get_mut(&self.id) else { return };
        if !place.notified {
            place.notified = true;
            self.shared.moved.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver};
    use std::thread;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms).unwrap()
    }

    fn wall(ms: i64) -> Wake {
        Wake { wall: Some(at(ms)), mono_ms: None }
    }

    fn mono(ms: u64) -> Wake {
        Wake { wall: None, mono_ms: Some(ms) }
    }

    /// Spawns a thread that sleeps once for `wake` and then sends the time it reads.
    fn sleep_in_thread(clock: &ManualClock, wake: Wake) -> (Arc<dyn Notifier>, Receiver<Now>) {
        let (say, hear) = mpsc::channel();
        let mut sleeper = clock.sleeper();
        let notifier = sleeper.notifier();
        let clock = clock.clone();
        thread::spawn(move || {
            sleeper.sleep(wake);
            let _ = say.send(clock.now());
        });
        (notifier, hear)
    }

    #[test]
    fn advance_moves_both_and_a_step_only_the_wall() {
        let clock = ManualClock::new(at(1_000));
        clock.advance(5);
        assert_eq!(clock.now(), Now { wall: at(1_005), mono_ms: 5 });
        clock.step_wall(at(10));
        assert_eq!(clock.now(), Now { wall: at(10), mono_ms: 5 });
        clock.step_wall(at(9_000));
        clock.clone().advance(1);
        assert_eq!(clock.now(), Now { wall: at(9_001), mono_ms: 6 });
    }

    #[test]
    fn wakes_when_its_moment_comes_and_never_early() {
        for wake in [wall(1_010), mono(10)] {
            let clock = ManualClock::new(at(1_000));
            let (_, hear) = sleep_in_thread(&clock, wake);
            assert!(clock.await_asleep(1, PATIENCE));
            clock.advance(9);
            assert_eq!(clock.asleep(), 1, "one millisecond is missing");
            clock.advance(1);
            assert!(wake.is_reached(hear.recv_timeout(PATIENCE).unwrap()));
        }
    }

    #[test]
    fn a_step_in_either_direction_wakes_everybody() {
        for to in [0, 5_000] {
            let clock = ManualClock::new(at(1_000));
            let waits = [wall(2_000), mono(2_000), Wake::default()];
            let heard = waits.map(|wake| sleep_in_thread(&clock, wake).1);
            assert!(clock.await_asleep(3, PATIENCE));
            clock.step_wall(at(to));
            for hear in heard {
                assert_eq!(hear.recv_timeout(PATIENCE).unwrap().wall, at(to));
            }
        }
    }

    #[test]
    fn a_notification_before_the_sleep_is_not_lost() {
        let clock = ManualClock::new(at(0));
        let mut sleeper = clock.sleeper();
        sleeper.notifier().notify();
        sleeper.sleep(Wake::default());
        clock.step_wall(at(3));
        sleeper.sleep(Wake::default());
        assert_eq!(sleeper.wakeups(), 0, "neither sleep had to wait");
    }

    #[test]
    fn a_notification_wakes_its_own_sleeper_only() {
        let clock = ManualClock::new(at(0));
        let (first, hear_first) = sleep_in_thread(&clock, Wake::default());
        let (second, hear_second) = sleep_in_thread(&clock, Wake::default());
        assert!(clock.await_asleep(2, PATIENCE));
        second.notify();
        hear_second.recv_timeout(PATIENCE).unwrap();
        assert_eq!(clock.asleep(), 1);
        first.notify();
        hear_first.recv_timeout(PATIENCE).unwrap();
        second.notify();
    }

    #[test]
    fn a_sleeper_that_is_gone_is_not_counted() {
        let clock = ManualClock::new(at(0));
        drop(clock.sleeper());
        assert!(clock.shared.state().sleepers.is_empty());
        assert!(!clock.await_asleep(1, Duration::from_millis(1)));
    }
}
