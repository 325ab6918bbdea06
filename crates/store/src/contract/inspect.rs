//! Reading queues and messages.

use bytes::Bytes;
use dwell_model::{
    Cursor, Message, MessageId, OwnSettings, QueueName, Settings, State, StateKind, Timestamp,
};

use crate::Error;

/// One page of a list, in (due, id) order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<B = Bytes> {
    /// The messages. A page also ends where its bodies exceed [`Page::MAX_BYTES`]; dead messages past their
    /// retention are left out, so that a page may be short, or empty, even if there is a next one.
    pub messages: Vec<Message<B>>,
    /// The messages of this page that exist but cannot be read, and the reason. The others are returned.
    pub unread: Vec<(MessageId, Error)>,
    /// The position of the next page; `None` after the last one.
    pub next: Option<Cursor>,
}

impl Page {
    /// The maximum size of the bodies in a page, in bytes; a page has at least one message if there is one.
    pub const MAX_BYTES: usize = 8 * 1024 * 1024;
}

/// The number of messages of a queue, by state. Maintained, not scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StateCounts {
    /// Waiting for their instant.
    pub scheduled: u64,
    /// Due and not handed out.
    pub ready: u64,
    /// The ready ones with a priority below 1,024.
    pub ready_urgent: u64,
    /// Handed out.
    pub leased: u64,
    /// Set aside.
    pub dead: u64,
}

impl std::ops::Add for StateCounts {
    type Output = StateCounts;

    fn add(self, other: StateCounts) -> StateCounts {
        StateCounts {
            scheduled: self.scheduled + other.scheduled,
            ready: self.ready + other.ready,
            ready_urgent: self.ready_urgent + other.ready_urgent,
            leased: self.leased + other.leased,
            dead: self.dead + other.dead,
        }
    }
}

/// The present state of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// Its name.
    pub name: QueueName,
    /// Its messages by state.
    pub counts: StateCounts,
    /// The number of takes that wait on it.
    pub waiting: u64,
    /// When the earliest of its scheduled messages is due.
    pub next_due: Option<Timestamp>,
    /// The settings in force.
    pub settings: Settings,
    /// Those of them that are its own.
    pub own: OwnSettings,
    /// In a list of queues, the reason why this one cannot be read now: then only the name here is valid.
    pub unread: Option<Error>,
}

/// The number of deaths in a queue, by cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DeathCounts {
    /// A retry spent the last attempt.
    pub attempts: u64,
    /// A lease ran out, or was ended, with the last attempt.
    pub lapse: u64,
    /// The expiry passed.
    pub expiry: u64,
    /// A consumer buried it.
    pub buried: u64,
}

/// The number of discards in a queue, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DiscardCounts {
    /// It had been dead for as long as the queue's `dead_ttl`.
    pub dead_ttl: u64,
    /// It was beyond the queue's `dead_max`: that many others had died later.
    pub dead_max: u64,
    /// It expired, and the queue's `on_expiry` is drop: it was never dead.
    pub on_expiry: u64,
    /// A call asked for it: a discard, or the deletion of its queue.
    pub asked: u64,
}

/// The deaths and discards in a queue, as noticed by this process since it opened the store. Where several
/// processes share a store, each counts the results of its own calls: the sum is correct. The engine writes
/// nothing when a message expires in a table: messages that expired since the last flush are counted again by
/// the process that opens the directory next.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct QueueDeaths {
    /// The queue, which may have been removed; `None` for all queues beyond [`QueueDeaths::MAX_QUEUES`]
    /// together.
    pub queue: Option<QueueName>,
    /// The deaths.
    pub deaths: DeathCounts,
    /// The discards.
    pub discarded: DiscardCounts,
}

impl QueueDeaths {
    /// The maximum number of queues that are counted by name.
    pub const MAX_QUEUES: usize = 10_000;
}

/// The number of messages of a list that are searched for the first one of a state.
pub(super) fn looked_through(state: StateKind) -> usize {
    match state {
        StateKind::Scheduled | StateKind::Leased => 1,
        StateKind::Ready | StateKind::Dead => 1_000,
    }
}

/// The sort key of a peek: the first message of a state has the least.
pub(super) fn peek_order(message: &Message) -> (u32, Timestamp, MessageId) {
    let standing = &message.standing;
    match &standing.state {
        State::Ready => (standing.priority, standing.due, message.id),
        State::Dead(death) => (0, death.at, message.id),
        State::Scheduled | State::Leased(_) => (0, standing.due, message.id),
    }
}
