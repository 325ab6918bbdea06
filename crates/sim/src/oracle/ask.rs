//! What drivers report to the oracle: each command before it is sent, and its answer, if one arrives.

use super::group::{
    Action, Attempt, Changed, Delivered, Due, Ended, FoundMessage, GroupTarget, PutHeard, Raised,
    RescheduleTo, SettleHeard, Sight, Spec, Sweep, TakenById, Terms,
};

/// The address of a message, as its body states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address {
    /// Its queue.
    pub(crate) queue: u32,
    /// The key with which it was put.
    pub(crate) key: Option<u32>,
    /// The number of its put, from 1; a retry of a put has the number of the first attempt.
    pub(crate) no: u64,
}

/// A key of a queue, or a single message without a key: see [`super::group`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GroupId {
    /// The queue.
    pub(crate) queue: u32,
    /// The group within the queue.
    pub(crate) member: Member,
}

/// A group within its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Member {
    /// All messages with this key.
    Key(u32),
    /// The message of this put, which has no key.
    Alone(u64),
}

impl Address {
    /// Its group.
    pub(crate) fn group(self) -> GroupId {
        GroupId { queue: self.queue, member: self.key.map_or(Member::Alone(self.no), Member::Key) }
    }
}

/// A command that is about to be sent.
#[derive(Clone, Debug)]
pub(crate) enum StoreCall {
    /// Put.
    Put(GroupId, Spec),
    /// Put of another body or key under the idempotency key of put `no`, which was answered and belongs to this group.
    Mismatch { group: GroupId, no: u64 },
    /// Take from these queues. The terms are needed, since a lost take leaves leases behind.
    Take { queues: Vec<u32>, terms: Terms },
    /// Not a command: a take that was answered could not read all that it had leased, so the store has to process the
    /// rest. If that counts as a failed attempt, the message is due then.
    Unread { queues: Vec<u32>, due: Due, attempt: Attempt },
    /// Take by id.
    TakeById { message: Address, terms: Terms },
    /// Settle with the receipt of `token`.
    Settle { message: Address, token: u128, action: Action },
    /// End the lease that the take with this number granted.
    EndLease { message: Address, takes: u32 },
    /// Cancel.
    Cancel(GroupId, GroupTarget),
    /// Reschedule.
    Reschedule(GroupId, GroupTarget, Due),
    /// Get; if the flag is set, a get by key also finds a dead message when none is live.
    Get(GroupId, GroupTarget, bool),
    /// Peek at the first message of some state of a queue.
    Peek { queue: u32 },
    /// List all messages of a queue: the leased, then the scheduled, then the ready, then the dead ones, so that none is
    /// missed that time moves on meanwhile. No command to the queue may be under way.
    ListAll { queue: u32 },
    /// List some messages of a queue, as one page, while other commands run. A message that is not shown proves nothing.
    Look { queue: u32 },
    /// Revive one message.
    Revive(Address, Due),
    /// Discard one message.
    Discard(Address),
    /// A bulk operation on a queue.
    Sweep { queue: u32, sweep: Sweep },
    /// Set a setting to this value; `None` for the default.
    Configure { queue: u32, setting: &'static str, value: Option<String> },
    /// Read the settings of a queue.
    ReadSettings { queue: u32 },
}

/// The answer to a command.
#[derive(Clone, Debug)]
pub(crate) enum StoreAnswer {
    /// To a put.
    Put(PutHeard),
    /// To a take, in the order of delivery.
    Took(Vec<(Address, Delivered)>),
    /// To a take that could not read all that it had leased: the messages that it could read, in the order of delivery.
    TookPart(Vec<(Address, Delivered)>),
    /// To a take by id.
    TookById(TakenById),
    /// To a settlement.
    Settled(SettleHeard),
    /// To the end of a lease.
    Ended(Ended),
    /// To a cancel.
    Cancelled(Changed),
    /// To a reschedule.
    Rescheduled(RescheduleTo),
    /// To a get.
    Got(FoundMessage),
    /// To a peek: the message shown.
    Peeked(Option<(Address, Sight)>),
    /// To a list: the messages shown.
    Listed(Vec<(Address, Sight)>),
    /// To a list of some messages: the messages shown.
    Seen(Vec<(Address, Sight)>),
    /// To a revive or discard of one message.
    Raised(Raised),
    /// To a sweep or a change of a setting: done.
    Done,
    /// To a read of settings: all that were requested.
    Settings(Vec<(&'static str, Option<String>)>),
    /// Refused for a reason that the oracle does not model; nothing has changed.
    Refused,
}

impl StoreCall {
    /// The queues in which a command may touch any group.
    pub(super) fn wide_queues(&self) -> Vec<u32> {
        match self {
            StoreCall::Take { queues, .. } | StoreCall::Unread { queues, .. } => queues.clone(),
            StoreCall::Peek { queue }
            | StoreCall::ListAll { queue }
            | StoreCall::Look { queue }
            | StoreCall::Sweep { queue, .. }
            | StoreCall::ReadSettings { queue } => vec![*queue],
            _ => Vec::new(),
        }
    }

    /// The single group that a command affects.
    pub(super) fn narrow_group(&self) -> Option<GroupId> {
        match self {
            StoreCall::Put(group, _)
            | StoreCall::Mismatch { group, .. }
            | StoreCall::Cancel(group, _)
            | StoreCall::Reschedule(group, ..)
            | StoreCall::Get(group, ..) => Some(*group),
            StoreCall::TakeById { message, .. }
            | StoreCall::Settle { message, .. }
            | StoreCall::EndLease { message, .. }
            | StoreCall::Revive(message, _)
            | StoreCall::Discard(message) => Some(message.group()),
            StoreCall::Take { .. }
            | StoreCall::Unread { .. }
            | StoreCall::Peek { .. }
            | StoreCall::ListAll { .. }
            | StoreCall::Look { .. }
            | StoreCall::Sweep { .. }
            | StoreCall::Configure { .. }
            | StoreCall::ReadSettings { .. } => None,
        }
    }
}

impl StoreAnswer {
    /// Whether the answer proves that the command was written to the log
    /// and synced. Other commands may have had nothing to write.
    pub(super) fn proves(&self, ask: &StoreCall) -> bool {
        match (ask, self) {
            (StoreCall::Put(_, spec), StoreAnswer::Put(heard)) => {
                !spec.idempotency_key && matches!(heard, PutHeard::Created { .. } | PutHeard::Replaced { .. })
            }
            (_, StoreAnswer::Settled(SettleHeard::Leased(_))) => false,
            (
                _,
                StoreAnswer::Settled(_)
                | StoreAnswer::Ended(_)
                | StoreAnswer::Cancelled(_)
                | StoreAnswer::Rescheduled(_)
                | StoreAnswer::Raised(_),
            ) => self.promises(),
            _ => false,
        }
    }

    /// Whether the answer is a promise.
    pub(super) fn promises(&self) -> bool {
        match self {
            StoreAnswer::Put(heard) => {
                matches!(heard, PutHeard::Created { .. } | PutHeard::Replaced { .. } | PutHeard::Kept { .. })
            }
            StoreAnswer::Settled(heard) => *heard != SettleHeard::LeaseLost,
            StoreAnswer::Ended(heard) => matches!(heard, Ended::Done(_)),
            StoreAnswer::Cancelled(heard) => matches!(heard, Changed::Cancelled(_)),
            StoreAnswer::Rescheduled(heard) => matches!(heard, RescheduleTo::Moved { .. }),
            StoreAnswer::Raised(heard) => *heard == Raised::Done,
            StoreAnswer::Done => true,
            _ => false,
        }
    }
}
