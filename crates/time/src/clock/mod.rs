//! The clock: the only way in which dwell reads the time and sleeps.
//!
//! [`SystemClock`] is the machine's clock, [`ManualClock`] stands still until a test moves it. Code that takes an
//! `Arc<dyn Clock>` cannot tell them apart, so every wait in dwell can be tested without waiting.

mod manual;
mod steps;
mod stopwatch;
mod system;
mod wake_signal;

use std::fmt::Debug;
use std::sync::Arc;

use dwell_model::{Now, Wake};

pub(crate) use manual::ClockMoved;
pub use manual::ManualClock;
pub use stopwatch::Stopwatch;
pub use system::SystemClock;
pub(crate) use system::{instant_now, process_start};

/// A source of time, and of sleeps measured by it.
///
/// # Contract
/// - Monotonic time never goes back.
/// - A sleeper wakes when its deadline is reached, when it is notified, and when the wall clock is stepped while it
///   waits for a wall instant. A sleeper that waits for no wall instant may be woken by a step too.
/// - A sleeper that wakes because its deadline was reached does not wake early: a reading taken afterwards has reached
///   the deadline, to the millisecond, unless the wall clock was stepped back in between.
/// - A notification that arrives before the sleep is not lost: the next sleep returns at once.
/// - There is no polling: a sleeping thread does not run until something wakes it. [`Sleeper::wakeups`] counts the
///   wake-ups.
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use dwell_model::{Timestamp, Wake};
/// use dwell_time::{Clock, ManualClock};
///
/// let clock = ManualClock::new(Timestamp::MIN);
/// let anyone: Arc<dyn Clock> = Arc::new(clock.clone());
/// let mut sleeper = anyone.sleeper();
///
/// clock.advance(1_000);
/// sleeper.sleep(Wake { wall: None, mono_ms: Some(anyone.now().mono_ms) });
/// assert_eq!(anyone.now().wall.as_ms(), 1_000);
/// ```
pub trait Clock: Debug + Send + Sync + 'static {
    /// Wall and monotonic time, read together.
    fn now(&self) -> Now;

    /// Creates a sleeper for one of the caller's threads.
    fn sleeper(&self) -> Box<dyn Sleeper>;
}

/// Lets one thread sleep until a deadline or a notification, whichever comes first.
pub trait Sleeper: Debug + Send {
    /// Blocks until `wake` is reached, a notification arrives, or the wall clock is stepped.
    ///
    /// May return early, so the caller has to read the clock again. With an empty `wake`, only a notification or a step
    /// ends the sleep.
    fn sleep(&mut self, wake: Wake);

    /// Returns a handle with which other threads end this sleep. All handles of one sleeper are equivalent.
    fn notifier(&self) -> Arc<dyn Notifier>;

    /// The number of times that this sleeper's thread was scheduled again after blocking, since the sleeper was
    /// created.
    ///
    /// It does not change while nothing happens.
    fn wakeups(&self) -> u64;
}

/// Ends the sleep of one [`Sleeper`].
pub trait Notifier: Debug + Send + Sync {
    /// Ends the current sleep, or the next one if the sleeper is awake.
    ///
    /// Repeated calls are cheap: until the sleeper has seen the first notification, each further one costs one atomic
    /// exchange. The caller's earlier writes are visible to the sleeper's thread when its sleep returns.
    fn notify(&self);
}
