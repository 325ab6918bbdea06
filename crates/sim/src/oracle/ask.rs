//! What drivers tell the oracle: each command before it is sent, and its answer, if one comes.

use super::group::{
    Action, Attempt, Changed, Delivered, Due, Ended, Found, Move, PutHeard, Raised, SettleHeard, Sight, Spec,
    Sweep, TakenById, Target, Terms,
};

/// Where a message belongs: what its body says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address {
    /// Its queue.
    pub(crate) queue: u32,
    /// The key that it was put with.
    pub(crate) key: Option<u32>,
    /// The number of its put, from 1; a repetition of a put has the number of the first.
    pub(crate) no: u64,
}

/// A queue and a key of it, or a message without a key: see [`super::group`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GroupId {
    /// The queue.
    pub(crate) queue: u32,
    /// Which of its groups.
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

/// A command about to be sent.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// Put.
    Put(GroupId, Spec),
    /// Put of another body or key under the token of the put of this number, which was answered and put in this group.
    Mismatch { group: GroupId, no: u64 },
    /// Take from these queues. A lease has to be named, since a lost take leaves one behind.
    Take { queues: Vec<u32>, terms: Terms },
    /// Not a command: a take that was answered could not read all that it had leased, so that the store has to see to
    /// the rest. Where that counts as an attempt that failed, it is due then.
    Unread { queues: Vec<u32>, due: Due, attempt: Attempt },
    /// Take by id.
    TakeById { message: Address, terms: Terms },
    /// Settle with the receipt of `token`.
    Settle { message: Address, token: u128, action: Action },
    /// End the lease by which the message was handed out as the take of this number.
    EndLease { message: Address, takes: u32 },
    /// Cancel.
    Cancel(GroupId, Target),
    /// Reschedule.
    Reschedule(GroupId, Target, Due),
    /// Get; by key also a dead message where none is live, if so.
    Get(GroupId, Target, bool),
    /// Peek at the first message of some state of a queue.
    Peek { queue: u32 },
    /// List all messages of a queue: the leased, then the scheduled, then the ready, then the dead, so that
    /// none is missed that time moves on meanwhile. No command to the queue may be under way.
    ListAll { queue: u32 },
    /// Look at some messages of a queue, as a page of a list shows them, while others go on. What is not shown says nothing.
    Look { queue: u32 },
    /// Revive one message.
    Revive(Address, Due),
    /// Discard one message.
    Discard(Address),
    /// Something done to a whole queue.
    Sweep { queue: u32, sweep: Sweep },
    /// Give a setting this value; nothing for the default.
    Configure { queue: u32, setting: &'static str, value: Option<String> },
    /// Read the settings of a queue.
    ReadSettings { queue: u32 },
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// To a put.
    Put(PutHeard),
    /// To a take, in the order handed over.
    Took(Vec<(Address, Delivered)>),
    /// To a take that could not read all that it had leased: what it could read, in the order handed over.
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
    Rescheduled(Move),
    /// To a get.
    Got(Found),
    /// To a peek, as it was shown.
    Peeked(Option<(Address, Sight)>),
    /// To a list, as it was shown.
    Listed(Vec<(Address, Sight)>),
    /// To a look at some messages, as they were shown.
    Seen(Vec<(Address, Sight)>),
    /// To a revive or discard of one message.
    Raised(Raised),
    /// To a sweep or a change of a setting: done.
    Done,
    /// To a reading of settings: all that were asked for.
    Settings(Vec<(&'static str, Option<String>)>),
    /// Refused, for a reason that lies outside what the oracle follows; nothing has changed.
    Refused,
}

impl Ask {
    /// The queues of which a command may touch any group.
    pub(super) fn wide_queues(&self) -> Vec<u32> {
        match self {
            Ask::Take { queues, .. } | Ask::Unread { queues, .. } => queues.clone(),
            Ask::Peek { queue }
            | Ask::ListAll { queue }
            | Ask::Look { queue }
            | Ask::Sweep { queue, .. }
            | Ask::ReadSettings { queue } => vec![*queue],
            _ => Vec::new(),
        }
    }

    /// The one group that a command is about.
    pub(super) fn narrow_group(&self) -> Option<GroupId> {
        match self {
            Ask::Put(group, _)
            | Ask::Mismatch { group, .. }
            | Ask::Cancel(group, _)
            | Ask::Reschedule(group, ..)
            | Ask::Get(group, ..) => Some(*group),
            Ask::TakeById { message, .. }
            | Ask::Settle { message, .. }
            | Ask::EndLease { message, .. }
            | Ask::Revive(message, _)
            | Ask::Discard(message) => Some(message.group()),
            Ask::Take { .. }
            | Ask::Unread { .. }
            | Ask::Peek { .. }
            | Ask::ListAll { .. }
            | Ask::Look { .. }
            | Ask::Sweep { .. }
            | Ask::Configure { .. }
            | Ask::ReadSettings { .. } => None,
        }
    }
}

impl Answer {
    /// Whether the answer proves that the command was written down, and so that it was synced. Others may have had
    /// nothing to write.
    pub(super) fn proves(&self, ask: &Ask) -> bool {
        match (ask, self) {
            (Ask::Put(_, spec), Answer::Put(heard)) => {
                !spec.token && matches!(heard, PutHeard::Created { .. } | PutHeard::Replaced { .. })
            }
            (_, Answer::Settled(SettleHeard::Leased(_))) => false,
            (
                _,
                Answer::Settled(_)
                | Answer::Ended(_)
                | Answer::Cancelled(_)
                | Answer::Rescheduled(_)
                | Answer::Raised(_),
            ) => self.promises(),
            _ => false,
        }
    }

    /// Whether the answer promises something.
    pub(super) fn promises(&self) -> bool {
        match self {
            Answer::Put(heard) => {
                matches!(heard, PutHeard::Created { .. } | PutHeard::Replaced { .. } | PutHeard::Kept { .. })
            }
            Answer::Settled(heard) => *heard != SettleHeard::LeaseLost,
            Answer::Ended(heard) => matches!(heard, Ended::Done(_)),
            Answer::Cancelled(heard) => matches!(heard, Changed::Cancelled(_)),
            Answer::Rescheduled(heard) => matches!(heard, Move::Moved { .. }),
            Answer::Raised(heard) => *heard == Raised::Done,
            Answer::Done => true,
            _ => false,
        }
    }
}
