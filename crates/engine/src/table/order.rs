//! The order of a table.

use dwell_model::{MessageId, Number, QueueName, State, StateKind, Timestamp};

/// The states that a message in a table may be in, in the order of their sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum SectionState {
    /// It was ready, and stays so even if the clock steps back.
    Ready = 0,
    /// It becomes ready at its instant.
    Scheduled = 1,
    Dead = 2,
}

impl SectionState {
    /// The section of a message in that state.
    ///
    /// # Panics
    /// If it is leased: leased messages stay in the journal.
    pub(crate) fn of(state: State, number: Number) -> SectionState {
        match state {
            State::Ready => SectionState::Ready,
            State::Scheduled => SectionState::Scheduled,
            State::Dead(_) => SectionState::Dead,
            State::Leased(_) => panic!("message {number} is leased, and goes to no table"),
        }
    }

    pub(super) fn from_byte(byte: u8) -> Option<SectionState> {
        [SectionState::Ready, SectionState::Scheduled, SectionState::Dead].get(usize::from(byte)).copied()
    }
}

impl From<SectionState> for StateKind {
    fn from(state: SectionState) -> StateKind {
        match state {
            SectionState::Ready => StateKind::Ready,
            SectionState::Scheduled => StateKind::Scheduled,
            SectionState::Dead => StateKind::Dead,
        }
    }
}

/// The key by which the entries of a file are sorted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SortKey {
    pub(crate) queue: QueueName,
    pub(crate) state: SectionState,
    pub(crate) priority: u32,
    pub(crate) due: Timestamp,
    pub(crate) id: MessageId,
}
