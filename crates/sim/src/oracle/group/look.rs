//! Get and list: the messages shown to a reader, or found missing.

use super::{At, GroupState, GroupTarget, MessagePhase, TrackedMessage};

/// A message as it was shown to a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    /// The number of its put.
    pub(crate) no: u64,
    /// Its id.
    pub(crate) id: u128,
    /// When it is due.
    pub(crate) due: i64,
    /// Its priority.
    pub(crate) priority: u32,
    /// The attempt under way, or the number of attempts spent.
    pub(crate) attempt: u32,
    /// The number of deliveries.
    pub(crate) takes: u32,
    /// Whether it has the key of its group.
    pub(crate) keyed: bool,
    /// Its holder, if one was shown.
    pub(crate) holder: Option<u32>,
    /// Its state.
    pub(crate) shown: ShownMessage,
}

/// The state shown to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShownMessage {
    /// Scheduled.
    Scheduled,
    /// Ready.
    Ready,
    /// Leased until this instant of the wall clock.
    Leased(i64),
    /// Dead since this instant of the wall clock.
    Dead(i64),
}

/// The answer to a get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FoundMessage {
    /// This message.
    Message(Sight),
    /// There is no such message.
    Nothing,
}

pub(super) fn got(
    state: &GroupState,
    target: GroupTarget,
    dead: bool,
    found: &FoundMessage,
    at: At<'_>,
) -> Vec<GroupState> {
    match (found, target) {
        (FoundMessage::Message(sight), GroupTarget::Message(_)) => seen(state, sight, at, false),
        (FoundMessage::Message(sight), GroupTarget::Key) => {
            let states = state.key_versions(at).into_iter();
            let shown = states.flat_map(|state| match state.owner() {
                Some(owner) if state.messages[owner].no == sight.no => seen(&state, sight, at, false),
                None if dead => youngest(&state, sight, at),
                _ => Vec::new(),
            });
            shown.collect()
        }
        (FoundMessage::Nothing, GroupTarget::Key) if dead => {
            let mut states = state.key_versions(at);
            states.retain(|state| {
                state.owner().is_none()
                    && state.messages.iter().all(|message| !had_key(message) || may_be_missed(message, at))
            });
            states
        }
        (FoundMessage::Nothing, target) => {
            let versions = state.resolve(target, at).into_iter();
            versions.filter(|(_, place)| place.is_none()).map(|(state, _)| state).collect()
        }
    }
}

/// Whether it is dead and had the key of its group when it died.
fn had_key(message: &TrackedMessage) -> bool {
    message.keyed && message.death().is_some()
}

/// Whether retention may have discarded a dead message by now.
fn may_be_missed(message: &TrackedMessage, at: At<'_>) -> bool {
    message.may_be_missed(at) || message.death().is_some_and(|death| message.may_be_discarded(death, at))
}

/// A dead message was shown as the youngest of those that had the key.
fn youngest(state: &GroupState, sight: &Sight, at: At<'_>) -> Vec<GroupState> {
    let ShownMessage::Dead(died) = sight.shown else { return Vec::new() };
    let is_younger = |other: &TrackedMessage| {
        had_key(other)
            && other.no != sight.no
            && other.death().is_some_and(|death| {
                death.at.lo > died || death.at.lo == died && other.id.is_some_and(|id| id > sight.id)
            })
            && !may_be_missed(other, at)
    };
    let mut states = seen(state, sight, at, false);
    states.retain(|state| {
        let is_keyed = state.place(sight.no).is_some_and(|place| had_key(&state.messages[place]));
        is_keyed && !state.messages.iter().any(is_younger)
    });
    states
}

pub(super) fn seen(state: &GroupState, sight: &Sight, at: At<'_>, lenient: bool) -> Vec<GroupState> {
    let Some(place) = state.place(sight.no) else { return Vec::new() };
    let mut versions = state.versions(place, at, lenient);
    versions.retain_mut(|state| {
        let message = &mut state.messages[place];
        let under_way = u32::from(matches!(message.standing.phase, MessagePhase::Leased(_)));
        message.is_id(sight.id)
            && message.is_due(sight.due)
            && message.standing.priority == sight.priority
            && message.standing.attempts + under_way == sight.attempt
            && message.standing.takes == sight.takes
            // A dead message whose key has a new owner may be shown with or without the key.
            && (message.keyed == sight.keyed || message.death().is_some())
            && message.may_be_found(at)
            && sight.holder == held_by(message)
            && match (message.standing.phase, sight.shown) {
                (MessagePhase::Pending, ShownMessage::Scheduled) => at.window.wall.lo < sight.due,
                (MessagePhase::Pending, ShownMessage::Ready) => message.may_be_ready(at),
                (MessagePhase::Leased(_), ShownMessage::Leased(until)) => message.is_leased_until(until, at),
                (MessagePhase::Dead(_), ShownMessage::Dead(died)) => message.has_died_at(died),
                _ => false,
            }
    });
    versions
}

/// Its holder, as far as it is known.
fn held_by(message: &TrackedMessage) -> Option<u32> {
    match message.standing.phase {
        MessagePhase::Leased(lease) => lease.holder,
        _ => None,
    }
}
