//! What a store's tests give the suite: the store, its clock, its restart.

use std::sync::Arc;

use dwell_model::{Lease, LeaseToken, Limits, Message, State, Timestamp};

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
    /// if this store's clock cannot be stepped.
    fn step_wall(&mut self, by_ms: i64) -> bool;

    /// Whether what was put is there again after a restart.
    fn durable(&self) -> bool;

    /// Ends the store as a crash of its process would, and opens it again on the same data. Its clock goes on.
    /// Called only if it is [durable](Harness::durable).
    fn restart(&mut self);

    /// Ends the store as an owner does who closes it, and opens it again on the same data. Its clock goes on.
    /// Called only if it is [durable](Harness::durable).
    fn close(&mut self);

    /// In how many places, each with an order of its own, this store keeps a queue whose setting says `spread`: each keeps its share of
    /// the dead. The ids of one place have one shard.
    fn partitions(&self, spread: u16) -> u16 {
        let _ = spread;
        1
    }

    /// How many messages of a queue that is kept in several places may be leased beyond its `max_leased`.
    fn cap_slack(&self) -> u64 {
        0
    }

    /// Whether lists and counts show an expiry at once. A store may take up to a minute to; the suite then
    /// does not compare them while one is under way.
    fn shows_expiry_at_once(&self) -> bool {
        true
    }

    /// The same of the end of a retention, and of messages that are found by their numbers.
    fn shows_retention_at_once(&self) -> bool {
        self.shows_expiry_at_once()
    }

    /// Whether a message that is read shows the token, the length and the kind of its lease, and that it has lost its key to
    /// another one. If not, the suite does not compare these.
    fn shows_leases(&self) -> bool {
        true
    }

    /// Whether a lease can belong to the process that has the store open. If not, such a lease is an ordinary one.
    fn has_sessions(&self) -> bool {
        true
    }

    /// Whether the messages of a take that nobody reads go back by a release, which their counts show.
    fn gives_back_by_release(&self) -> bool {
        false
    }

    /// Whether the store makes a token for a put that has none. Such tokens count where tokens are limited.
    fn makes_tokens(&self) -> bool {
        false
    }

    /// Returns once the store has noticed that a take is gone, which the suite has just dropped. A store in this process has
    /// when the drop returns.
    fn quiesce(&self) {}
}

impl dyn Harness {
    /// A message without what this store does not show of it.
    pub(super) fn as_shown(&self, mut message: Message) -> Message {
        if !self.shows_leases() {
            message.standing.keyless = false;
            if let State::Leased(lease) = &mut message.standing.state {
                *lease = Lease { token: LeaseToken(0), lease_ms: 0, bound: false, ..*lease };
            }
        }
        message
    }
}

/// Opens a fresh, empty store with these limits.
pub type Factory = dyn Fn(Limits) -> Box<dyn Harness> + Send + Sync;
