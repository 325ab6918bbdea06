//! The interface between the suite and a store's tests: the store, its clock, its restart.

use std::sync::Arc;

use dwell_model::{Lease, LeaseToken, Limits, Message, State, Timestamp};

use crate::Store;

/// A store under test, and the controls that the suite uses.
///
/// The clock stands still except for [`advance`](Harness::advance) and [`step_wall`](Harness::step_wall). The
/// suite polls the store's futures on plain threads: a store that needs a runtime for them has to be wrapped
/// so that it enters its own.
pub trait Harness: Send {
    /// The open store. The suite keeps no reference across a [`restart`](Harness::restart).
    fn store(&self) -> Arc<dyn Store>;

    /// The store's wall clock.
    fn now(&self) -> Timestamp;

    /// Moves wall and monotonic time forward together, in one step. It does not wait until the store has
    /// noticed: the next call has to.
    fn advance(&mut self, ms: u64);

    /// Steps the wall clock alone, forward or back, as an administrator or NTP does. Returns false and does
    /// nothing if this store's clock cannot be stepped.
    fn step_wall(&mut self, by_ms: i64) -> bool;

    /// Whether messages survive a restart.
    fn durable(&self) -> bool;

    /// Ends the store as a crash of its process would, and opens it again on the same data. Its clock
    /// continues. Called only if the store is [durable](Harness::durable).
    fn restart(&mut self);

    /// Closes the store as its owner would, and opens it again on the same data. Its clock continues. Called
    /// only if the store is [durable](Harness::durable).
    fn close(&mut self);

    /// The number of partitions, each with an order of its own, in which this store keeps a queue with this
    /// `partitions`: each keeps its share of the dead. The ids of one partition have one shard.
    fn partitions(&self, partitions: u16) -> u16 {
        let _ = partitions;
        1
    }

    /// How many messages of a queue with several partitions may be leased beyond its `max_leased`, if at most
    /// `takes` takes run at the same time, each of up to `max` messages. A store that answers 0 is exact.
    fn cap_slack(&self, takes: u64, max: u64) -> u64 {
        let _ = (takes, max);
        0
    }

    /// Whether lists and counts show an expiry at once. A store may take up to a minute; the suite then does
    /// not compare them during that time.
    fn shows_expiry_at_once(&self) -> bool {
        true
    }

    /// The same for the end of a retention, and for look-ups by number.
    fn shows_retention_at_once(&self) -> bool {
        self.shows_expiry_at_once()
    }

    /// Whether reading a message shows the token, the length and the kind of its lease, and that it has lost
    /// its key to another one. If not, the suite does not compare these.
    fn shows_leases(&self) -> bool {
        true
    }

    /// Whether a lease can belong to the process that has the store open. If not, such a lease is an ordinary one.
    fn has_sessions(&self) -> bool {
        true
    }

    /// Whether the unread messages of a take are given back by a release, which their counts show.
    fn gives_back_by_release(&self) -> bool {
        false
    }

    /// Whether the store generates an idempotency key for a put that has none. Such idempotency keys count where
    /// idempotency keys are limited.
    fn makes_idempotency_keys(&self) -> bool {
        false
    }

    /// Returns once the store has noticed that a take was dropped, which the suite has just done. A store in
    /// this process has noticed when the drop returns.
    fn quiesce(&self) {}
}

impl dyn Harness {
    /// A message without what this store does not show.
    pub(super) fn as_shown(&self, mut message: Message) -> Message {
        if !self.shows_leases() {
            message.standing.keyless = false;
            if let State::Leased(lease) = &mut message.standing.state {
                *lease = Lease { token: LeaseToken(0), lease_ms: 0, session: false, ..*lease };
            }
        }
        message
    }
}

/// Opens a fresh, empty store with these limits.
pub type Factory = dyn Fn(Limits) -> Box<dyn Harness> + Send + Sync;
