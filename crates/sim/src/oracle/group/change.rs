//! Cancel and reschedule: what may be done to a message that nobody holds.

use super::{At, Due, Phase, State, Target};

/// The answer to a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// It was scheduled or ready, and is gone.
    Cancelled(u128),
    /// Refused: somebody holds it.
    Leased,
    /// Refused: it is dead.
    Dead,
    /// There is no such message.
    NotFound,
}

/// The answer to a reschedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// It is due then.
    Moved { id: u128, due: i64 },
    /// Refused: somebody holds it.
    Leased,
    /// Refused: it is dead.
    Dead,
    /// There is no such message.
    NotFound,
    /// Refused: it would expire before it is due.
    ExpiresBeforeDue,
}

pub(super) fn cancel(state: &State, target: Target, heard: Option<Changed>, at: At<'_>) -> Vec<State> {
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
            (Phase::Pending, Some(Changed::Cancelled(id))) => version.messages[place].is_id(id),
            (Phase::Leased(_), Some(Changed::Leased)) | (Phase::Dead(_), Some(Changed::Dead)) => true,
            _ => false,
        };
        if fits && version.messages[place].standing.phase == Phase::Pending {
            done.push(version.without(place));
        } else if fits {
            done.push(version);
        }
    }
    super::or_nothing(heard.is_some(), state, done)
}

pub(super) fn reschedule(
    state: &State,
    target: Target,
    due: Due,
    heard: Option<Move>,
    at: At<'_>,
) -> Vec<State> {
    let mut done = Vec::new();
    for (mut version, place) in state.resolve(target, at) {
        let Some(place) = place else {
            if matches!(heard, None | Some(Move::NotFound)) {
                done.push(version);
            }
            continue;
        };
        let message = &mut version.messages[place];
        let fits = match (message.standing.phase, heard) {
            (Phase::Pending, None) => {
                message.reschedule(due.span(&at.window), at);
                true
            }
            (Phase::Pending, Some(Move::Moved { id, due: to })) => {
                message.reschedule(due.span(&at.window), at);
                message.is_id(id) && message.is_due(to)
            }
            (Phase::Pending, Some(Move::ExpiresBeforeDue)) => {
                message.standing.expires.is_some_and(|expires| expires <= due.span(&at.window).hi)
            }
            (Phase::Leased(_), None | Some(Move::Leased)) | (Phase::Dead(_), None | Some(Move::Dead)) => true,
            _ => false,
        };
        if fits {
            done.push(version);
        }
    }
    super::or_nothing(heard.is_some(), state, done)
}
