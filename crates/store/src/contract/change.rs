//! Changing messages that are not leased: cancel, reschedule, revive, discard.

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

/// The lease of a message as returned by `list` or `get`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRef {
    /// The message.
    pub id: MessageId,
    /// Its number of takes then ([`Counts::takes`](dwell_model::Counts::takes)), so that a later lease is not
    /// affected.
    pub takes: u32,
}

/// What a cancel found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It was scheduled or ready, and was removed.
    Cancelled(MessageId),
    /// It is leased; nothing changed.
    Leased(MessageId),
    /// It is dead; nothing changed.
    Dead(MessageId),
    /// There is no such message.
    NotFound,
}

/// What a reschedule found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rescheduled {
    /// It was scheduled or ready, and is now due at this instant.
    Moved(MessageId, Timestamp),
    /// It is leased; nothing changed.
    Leased(MessageId),
    /// It is dead; nothing changed.
    Dead(MessageId),
    /// There is no such message.
    NotFound,
}

/// A selection of dead messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The messages with these ids.
    Ids(Vec<MessageId>),
    /// At most this many of those that have been dead longest.
    Oldest(u64),
    /// All that are dead now.
    All,
}

/// The result of a revive or a discard.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BulkOutcome {
    /// The number of messages that were revived or discarded.
    pub done: u64,
    /// Those that were refused, at most [`BulkOutcome::MAX_REFUSED`] of them, with the reason.
    pub refused: Vec<(MessageId, Error)>,
    /// The total number of refused messages.
    pub refused_in_all: u64,
}

impl BulkOutcome {
    /// The maximum number of refusals that are listed.
    pub const MAX_REFUSED: usize = 1_000;
}
