//! Cancel and reschedule: commands on messages that are not leased.

use super::{At, Due, GroupState, GroupTarget, MessagePhase};

/// The answer to a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// It was scheduled or ready, and is gone.
    Cancelled(u128),
    /// Refused: it is leased.
    Leased,
    /// Refused: it is dead.
    Dead,
    /// There is no such message.
    NotFound,
}

/// The answer to a reschedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RescheduleTo {
    /// It is due then.
    Moved { id: u128, due: i64 },
    /// Refused: it is leased.
    Leased,
    /// Refused: it is dead.
    Dead,
    /// There is no such message.
    NotFound,
    /// Refused: it would expire before it is due.
    ExpiresBeforeDue,
}

pub(super) fn cancel(
    state: &GroupState,
    target: GroupTarget,
    heard: Option<Changed>,
    at: At<'_>,
) -> Vec<GroupState> {
    let mut done = Vec::new();
    for (mut version, place) in state.resolve(target, at) {
        let Some(place) = place else {
            if matches!(heard, None | Some(Changed::NotFound)) {
                done.push(version);
            }
            continue;
        };
        let fits = match (version.messages[place].standing.phase, heard) {
            (_, None) => true,
            (MessagePhase::Pending, Some(Changed::Cancelled(id))) => version.messages[place].is_id(id),
            (MessagePhase::Leased(_), Some(Changed::Leased))
            | (MessagePhase::Dead(_), Some(Changed::Dead)) => true,
            _ => false,
        };
        if fits && version.messages[place].standing.phase == MessagePhase::Pending {
            done.push(version.without(place));
        } else if fits {
            done.push(version);
        }
    }
    super::or_nothing(heard.is_some(), state, done)
}

pub(super) fn reschedule(
    state: &GroupState,
    target: GroupTarget,
    due: Due,
    heard: Option<RescheduleTo>,
    at: At<'_>,
) -> Vec<GroupState> {
    let mut done = Vec::new();
    for (mut version, place) in state.resolve(target, at) {
        let Some(place) = place else {
            if matches!(heard, None | Some(RescheduleTo::NotFound)) {
                done.push(version);
            }
            continue;
        };
        let message = &mut version.messages[place];
        let fits = match (message.standing.phase, heard) {
            (MessagePhase::Pending, None) => {
                message.reschedule(due.span(&at.window), at);
                true
            }
            (MessagePhase::Pending, Some(RescheduleTo::Moved { id, due: to })) => {
                message.reschedule(due.span(&at.window), at);
                message.is_id(id) && message.is_due(to)
            }
            (MessagePhase::Pending, Some(RescheduleTo::ExpiresBeforeDue)) => {
                message.standing.expires.is_some_and(|expires| expires <= due.span(&at.window).hi)
            }
            (MessagePhase::Leased(_), None | Some(RescheduleTo::Leased))
            | (MessagePhase::Dead(_), None | Some(RescheduleTo::Dead)) => true,
            _ => false,
        };
        if fits {
            done.push(version);
        }
    }
    super::or_nothing(heard.is_some(), state, done)
}
