//! The clock: the one door through which time and sleeping enter dwell.

use std::fmt::Debug;
use std::sync::Arc;

use dwell_model::{Now, Wake};

/// A source of time, and of sleep that is measured by it.
///
/// # Contract
/// - Monotonic time never goes back.
/// - A sleeper wakes when its moment comes, when it is notified, and when the wall clock is stepped.
/// - A notification that comes before the sleep is not lost: the next sleep returns at once.
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

    /// A handle that other threads end this sleep with.
    fn notifier(&self) -> Arc<dyn Notifier>;
}

/// Ends the sleep of one [`Sleeper`].
pub trait Notifier: Debug + Send + Sync {
    /// Ends the sleep, or the next one if nobody sleeps now. Cheap when repeated.
    fn notify(&self);
}
