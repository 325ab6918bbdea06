//! Get and list: what a reader was shown, or not shown.

use super::{At, Phase, State, Target};

/// A message as a reader was shown it.
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
    /// The attempt under way, or how many are spent.
    pub(crate) attempt: u32,
    /// Whether it has the key of its group.
    pub(crate) keyed: bool,
    /// Its state.
    pub(crate) shown: Shown,
}

/// The state that a reader was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Waiting for its instant.
    Scheduled,
    /// Due.
    Ready,
    /// Held until this instant of the wall clock.
    Leased(i64),
    /// Set aside.
    Dead,
}

/// The answer to a get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// This.
    Message(Sight),
    /// There is no such message.
    Nothing,
}

pub(super) fn got(state: &State, target: Target, found: &Found, at: At<'_>) -> Vec<State> {
    match (found, target) {
        (Found::Message(sight), Target::Message(_)) => seen(state, sight, at, false),
        (Found::Message(sight), Target::Key) => {
            let owners = state.key_versions(at).into_iter();
            let shown = owners
                .filter(|state| state.owner().is_some_and(|owner| state.messages[owner].no == sight.no));
            shown.flat_map(|state| seen(&state, sight, at, false)).collect()
        }
        (Found::Nothing, target) => {
            let versions = state.resolve(target, at).into_iter();
            versions.filter(|(_, place)| place.is_none()).map(|(state, _)| state).collect()
        }
    }
}

pub(super) fn seen(state: &State, sight: &Sight, at: At<'_>, lenient: bool) -> Vec<State> {
    let Some(place) = state.place(sight.no) else { return Vec::new() };
    let mut versions = state.versions(place, at, lenient);
    versions.retain_mut(|state| {
        let message = &mut state.messages[place];
        let under_way = u32::from(matches!(message.standing.phase, Phase::Leased(_)));
        message.is_id(sight.id)
            && message.is_due(sight.due)
            && message.standing.priority == sight.priority
            && message.standing.attempts + under_way == sight.attempt
            // A dead message whose key has a new owner may be shown with or without it.
            && (message.keyed == sight.keyed || message.standing.phase == Phase::Dead)
            && match (message.standing.phase, sight.shown) {
                (Phase::Pending, Shown::Scheduled) => at.window.wall.lo < sight.due,
                (Phase::Pending, Shown::Ready) => message.may_be_ready(at),
                (Phase::Leased(_), Shown::Leased(until)) => message.is_leased_until(until, at),
                (Phase::Dead, Shown::Dead) => true,
                _ => false,
            }
    });
    versions
}
