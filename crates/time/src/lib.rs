//! Time for dwell: clocks that tests can drive, the timing queue, and the in-process `DelayQueue<T>`.
pub mod clock;
pub mod delay_queue;
pub mod timing_queue;

pub use clock::{Clock, ManualClock, Notifier, Sleeper, Stopwatch, SystemClock};
pub use delay_queue::{Closed, DelayQueue, PutError};
pub use timing_queue::{Handle, TimingQueue};

/// Compiles and runs the examples of the documentation page with the doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/delay-queue.md")]
struct DelayQueuePage;
