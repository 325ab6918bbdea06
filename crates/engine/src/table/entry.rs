//! What a table keeps of a message, except its body.

use dwell_model::{AttemptLimit, Headers, Key, MessageId, Number, QueueName, Standing, State, Timestamp};

use super::order::{SectionState, SortKey};

/// A message as it was when the file was written. It was not leased then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: MessageId,
    pub(crate) number: Number,
    pub(crate) queue: QueueName,
    pub(crate) created: Timestamp,
    pub(crate) key: Option<Key>,
    pub(crate) headers: Headers,
    pub(crate) lease_ms: Option<u64>,
    pub(crate) max_attempts: Option<AttemptLimit>,
    /// Scheduled, ready or dead, never leased.
    pub(crate) standing: Standing,
    /// When it was last made ready by other than its instant; [`Timestamp::MIN`] if it never was.
    pub(crate) ready_since: Timestamp,
}

impl Entry {
    /// The key, unless another message has taken it over for good. A live message is found by it; a dead one only by
    /// searches for dead messages.
    pub(crate) fn own_key(&self) -> Option<&Key> {
        self.key.as_ref().filter(|_| !self.standing.keyless)
    }

    /// The key by which the live message is found: a dead message has released its key, until it is revived.
    pub(crate) fn live_key(&self) -> Option<&Key> {
        self.own_key().filter(|_| !self.is_dead())
    }

    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.standing.state, State::Dead(_))
    }

    /// The state of its section.
    ///
    /// # Panics
    /// If it is leased: leased messages stay in the journal.
    pub(crate) fn section_state(&self) -> SectionState {
        SectionState::of(self.standing.state, self.number)
    }

    /// Its position in the order of a file.
    ///
    /// # Panics
    /// If it is leased.
    pub(crate) fn sort_key(&self) -> SortKey {
        SortKey {
            queue: self.queue.clone(),
            state: self.section_state(),
            priority: self.standing.priority,
            due: self.standing.due,
            id: self.id,
        }
    }
}
