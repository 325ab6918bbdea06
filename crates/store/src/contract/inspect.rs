//! Looking at queues and messages.

use bytes::Bytes;
use dwell_model::{
    Cursor, Message, MessageId, OwnSettings, QueueName, Settings, State, StateKind, Timestamp,
};

use crate::Error;

/// One page of a list, in (due, id) order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<B = Bytes> {
    /// The messages. A page also ends where its bodies pass [`Page::MAX_BYTES`]; of dead ones it leaves those out whose time is
    /// over, so that it may be short, or empty, though there is a next one.
    pub messages: Vec<Message<B>>,
    /// Messages of this page that are there and cannot be read, and why. Those beside them are shown.
    pub unread: Vec<(MessageId, Error)>,
    /// Where the next page begins; `None` after the last one.
    pub next: Option<Cursor>,
}

impl Page {
    /// A page holds at most so many bytes of bodies, but always one message if there is one.
    pub const MAX_BYTES: usize = 8 * 1024 * 1024;
}

/// How many messages a queue has, by state. Kept, not scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StateCounts {
    /// Waiting for their instant.
    pub scheduled: u64,
    /// Due and not handed out.
    pub ready: u64,
    /// Of these, those with a priority below 1,024.
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

/// A queue as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// Its name.
    pub name: QueueName,
    /// Its messages by state.
    pub counts: StateCounts,
    /// How many takes wait on it.
    pub waiting: u64,
    /// When the earliest of its scheduled messages is due.
    pub next_due: Option<Timestamp>,
    /// The settings in force.
    pub settings: Settings,
    /// Those of them that are its own.
    pub own: OwnSettings,
    /// In a list of queues, why this one cannot be read now: then all else here but the name says nothing.
    pub unread: Option<Error>,
}

/// How many messages of a queue died, by what of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DeathCounts {
    /// A retry spent the last attempt.
    pub attempts: u64,
    /// A lease ran out, or was ended, with the last attempt.
    pub lapse: u64,
    /// The expiry came.
    pub expiry: u64,
    /// A consumer buried it.
    pub buried: u64,
}

/// How many messages of a queue were discarded, by why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DiscardCounts {
    /// It had been dead for as long as the queue's `dead_ttl`.
    pub dead_ttl: u64,
    /// As many others as the queue's `dead_max` had died later.
    pub dead_max: u64,
    /// It expired, and the queue's `on_expiry` drops what does: it was never dead.
    pub on_expiry: u64,
    /// Somebody asked for it: a discard, or the deletion of its queue.
    pub asked: u64,
}

/// What has died in a queue and was discarded from it, as this process has noticed since it opened the store. Where several
/// processes share a store, each counts what its own calls have brought about: the sum is right. The engine writes nothing where a
/// message expires in a table: what expired since the last flush is counted again by the process that opens the directory next.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct QueueDeaths {
    /// The queue, which may be gone; `None` for all queues beyond [`QueueDeaths::MAX_QUEUES`] together.
    pub queue: Option<QueueName>,
    /// What has died.
    pub deaths: DeathCounts,
    /// What was discarded.
    pub discarded: DiscardCounts,
}

impl QueueDeaths {
    /// The number of queues that are counted by name.
    pub const MAX_QUEUES: usize = 10_000;
}

/// How many messages of a list are looked through for the first one of its state.
pub(super) fn looked_through(state: StateKind) -> usize {
    match state {
        StateKind::Scheduled | StateKind::Leased => 1,
        StateKind::Ready | StateKind::Dead => 1_000,
    }
}

/// The first of a state is the least by this.
pub(super) fn peek_order(message: &Message) -> (u32, Timestamp, MessageId) {
    let standing = &message.standing;
    match &standing.state {
        State::Ready => (standing.priority, standing.due, message.id),
        State::Dead(death) => (0, death.at, message.id),
        State::Scheduled | State::Leased(_) => (0, standing.due, message.id),
    }
}
