//! Time for dwell: clocks that tests can drive, the timing queue, and the in-process `DelayQueue<T>`.
pub mod clock;

pub use clock::{Clock, ManualClock, Notifier, Sleeper, SystemClock};
