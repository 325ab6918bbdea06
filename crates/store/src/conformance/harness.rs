//! What a store's tests give the suite: the store, its clock, its restart.

use std::sync::Arc;

use dwell_model::{Limits, Timestamp};

use crate::Store;

/// A store under test, and the strings that the suite pulls.
///
/// The clock stands still but for [`advance`](Harness::advance) and [`step_wall`](Harness::step_wall). The
/// suite polls the store's futures on plain threads: a store that needs a runtime for them is wrapped so
/// that it enters its own.
pub trait Harness: Send {
    /// The store as it is open now. The suite holds none across a [`restart`](Harness::restart).
    fn store(&self) -> Arc<dyn Store>;

    /// The store's wall clock.
    fn now(&self) -> Timestamp;

    /// Moves wall and monotonic time forward together, in one leap. It does not wait until the store has
    /// noticed: the next call has to.
    fn advance(&mut self, ms: u64);

    /// Steps the wall clock alone, forward or back, as an administrator or NTP does. False, and nothing done,
    /// if this store's clock can not be stepped.
    fn step_wall(&mut self, by_ms: i64) -> bool;

    /// Whether what was put is there again after a restart.
    fn durable(&self) -> bool;

    /// Ends the store as a crash of its process would, and opens it again on the same data. Its clock goes on.
    /// Called only if it is [durable](Harness::durable).
    fn restart(&mut self);

    /// Whether lists and counts show an expiry at once. A store may take up to a minute to; the suite then
    /// does not compare them while one is under way.
    fn shows_expiry_at_once(&self) -> bool {
        true
    }
}

/// Opens a fresh, empty store with these limits.
pub type Factory = dyn Fn(Limits) -> Box<dyn Harness> + Send + Sync;
