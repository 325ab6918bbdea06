//! How a consumer ends or extends a lease.

use std::sync::Arc;

use dwell_model::{DeathReason, Receipt, Timestamp};

/// One message to settle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// Proof of the lease.
    pub receipt: Receipt,
    /// What to do with the message.
    pub action: Action,
}

/// What a consumer does with a message that it has leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The work is done: the message is removed.
    Ack,
    /// The attempt failed: scheduled again, or dead if attempts are spent.
    Retry {
        /// Delay in milliseconds; `None` follows the queue's backoff.
        after_ms: Option<u64>,
        /// The error text, which is kept with the message.
        error: Option<Arc<str>>,
        /// A new priority.
        priority: Option<u32>,
    },
    /// Given back without spending an attempt.
    Release {
        /// Delay in milliseconds; `None` makes it ready at once with its old due instant.
        after_ms: Option<u64>,
        /// A new priority.
        priority: Option<u32>,
    },
    /// Set aside among the dead.
    Bury {
        /// The reason, which is kept with the message.
        reason: Option<Arc<str>>,
        /// A new priority.
        priority: Option<u32>,
    },
    /// Keep the lease longer.
    Extend {
        /// The new length from now on in milliseconds; `None` grants the old length again.
        lease_ms: Option<u64>,
    },
}

/// The state of a message after it was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It was removed.
    Gone,
    /// It is scheduled for this instant.
    Scheduled(Timestamp),
    /// It is ready again.
    Ready,
    /// It is dead.
    Dead(DeathReason),
    /// It is leased until this instant of the store's wall clock.
    Leased(Timestamp),
}
