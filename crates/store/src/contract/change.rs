//! Changing messages that nobody holds: cancel, reschedule, revive, discard.

use dwell_model::{Key, MessageId, Timestamp};

use crate::Error;

/// A message by its id or by its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// By id.
    Id(MessageId),
    /// By key: the live message that has it.
    Key(Key),
}

/// The lease of a message as `list` or `get` has shown it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRef {
    /// The message.
    pub id: MessageId,
    /// How often it had been handed out then ([`Counts::takes`](dwell_model::Counts::takes)): a later lease is not meant.
    pub takes: u32,
}

/// What a cancel found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It was scheduled or ready, and is gone.
    Cancelled(MessageId),
    /// Somebody holds it; nothing changed.
    Leased(MessageId),
    /// It is dead; nothing changed.
    Dead(MessageId),
    /// There is no such message.
    NotFound,
}

/// What a reschedule found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rescheduled {
    /// It was scheduled or ready, and is due at this instant now.
    Moved(MessageId, Timestamp),
    /// Somebody holds it; nothing changed.
    Leased(MessageId),
    /// It is dead; nothing changed.
    Dead(MessageId),
    /// There is no such message.
    NotFound,
}

/// Which dead messages are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// These.
    Ids(Vec<MessageId>),
    /// So many of those that have been dead longest.
    Oldest(u64),
    /// All that are dead now.
    All,
}

/// What a revive or a discard did.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Swept {
    /// How many messages were revived or discarded.
    pub done: u64,
    /// Those that were refused, at most [`Swept::MAX_REFUSED`] of them, with the reason.
    pub refused: Vec<(MessageId, Error)>,
    /// How many were refused in all.
    pub refused_in_all: u64,
}

impl Swept {
    /// How many refusals are listed.
    pub const MAX_REFUSED: usize = 1_000;
}
