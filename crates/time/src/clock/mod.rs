//! The clock: the one door through which time and sleeping enter dwell.
//!
//! [`SystemClock`] is the machine's, [`ManualClock`] stands still until a test moves it. Code that is
//! given an `Arc<dyn Clock>` cannot tell them apart, and so every wait in dwell can be tested without waiting.

mod bell;
mod manual;
mod steps;
mod stopwatch;
mod system;

use std::fmt::Debug;
use std::sync::Arc;

use dwell_model::{Now, Wake};

pub use manual::ManualClock;
pub(crate) use manual::Moved;
pub use stopwatch::Stopwatch;
pub use system::SystemClock;
pub(crate) use system::{instant_now, process_start};

/// A source of time, and of sleep that is measured by it.
///
/// # Contract
/// - Monotonic time never goes back.
/// - A sleeper wakes when its moment comes, when it is notified, and when the wall clock is stepped
///   while it waits for a wall instant (a sleeper that waits for no wall instant may be woken too).
/// - A sleeper that was woken because its moment has come is not early: a reading taken after it
///   says that the moment is reached, to the millisecond, unless the wall clock was stepped back in between.
/// - A notification that comes before the sleep is not lost: the next sleep returns at once.
/// - Nobody polls: while nothing comes, a sleeping thread does not run. [`Sleeper::wakeups`] shows it.
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

    /// A new sleeper for one thread of the caller's.
    fn sleeper(&self) -> Box<dyn Sleeper>;
}

/// A place where one thread sleeps until a moment or a notification, whichever comes first.
pub trait Sleeper: Debug + Send {
    /// Blocks until `wake` is reached, a notification arrives, or the wall clock is stepped;
    /// may return early, so the caller looks at the clock again. With an empty `wake` only a
    /// notification or a step ends it.
    fn sleep(&mut self, wake: Wake);

    /// A handle that other threads end this sleep with. All handles of one sleeper are alike.
    fn notifier(&self) -> Arc<dyn Notifier>;

    /// How often this sleeper's thread has been put back on a processor since the sleeper was made:
    /// the count that stays where it is while nothing happens.
    fn wakeups(&self) -> u64;
}

/// Ends the sleep of one [`Sleeper`].
pub trait Notifier: Debug + Send + Sync {
    /// Ends the sleep, or the next one if nobody sleeps now. Cheap when repeated: until the sleeper has
    /// seen the first one, others cost one atomic exchange. What the caller wrote before is visible
    /// to the sleeper's thread when its sleep returns.
    fn notify(&self);
}
