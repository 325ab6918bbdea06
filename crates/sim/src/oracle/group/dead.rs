//! Revive and discard: commands on dead messages.

use super::{At, Due, GroupState, MessagePhase};

/// The answer to a revive or a discard of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Raised {
    /// Done.
    Done,
    /// Refused: it is not dead.
    NotDead,
    /// Refused: this message has its key now.
    KeyTaken { id: u128 },
    /// There is no such message.
    NotFound,
    /// Refused for a reason outside the group.
    Refused,
}

pub(super) fn revive(
    state: &GroupState,
    no: u64,
    due: Due,
    heard: Option<Raised>,
    at: At<'_>,
) -> Vec<GroupState> {
    each_version(state, no, heard, at, |mut version, place| {
        let owner = version.owner().filter(|owner| *owner != place);
        if let (Some(owner), true) = (owner, version.messages[place].keyed) {
            let fits = match heard {
                None => true,
                Some(Raised::KeyTaken { id }) => version.messages[owner].is_id(id),
                Some(_) => false,
            };
            return if fits { vec![version] } else { Vec::new() };
        }
        match heard {
            None | Some(Raised::Done) => version.revived(place, due.span(&at.window), at),
            Some(_) => Vec::new(),
        }
    })
}

pub(super) fn discard(state: &GroupState, no: u64, heard: Option<Raised>, at: At<'_>) -> Vec<GroupState> {
    each_version(state, no, heard, at, |version, place| match heard {
        None | Some(Raised::Done) => vec![version.without(place)],
        Some(_) => Vec::new(),
    })
}

/// Applies `act` to each version in which the message is dead.
fn each_version(
    state: &GroupState,
    no: u64,
    heard: Option<Raised>,
    at: At<'_>,
    act: impl Fn(GroupState, usize) -> Vec<GroupState>,
) -> Vec<GroupState> {
    if heard == Some(Raised::Refused) {
        return vec![state.clone()];
    }
    let Some(place) = state.place(no) else {
        let possible = matches!(heard, None | Some(Raised::NotFound));
        return if possible { vec![state.clone()] } else { Vec::new() };
    };
    // A dead message takes its key back, so time has to be applied to the current owner of the key first.
    let found = state.found(place, at).into_iter();
    let versions =
        found.flat_map(|(state, found)| state.key_versions(at).into_iter().map(move |state| (state, found)));
    let done = versions.flat_map(|(version, found)| match (found, version.messages[place].standing.phase) {
        (None, _) if matches!(heard, None | Some(Raised::NotFound)) => vec![version],
        (Some(_), MessagePhase::Dead(_)) => act(version, place),
        (Some(_), MessagePhase::Pending | MessagePhase::Leased(_))
            if matches!(heard, None | Some(Raised::NotDead)) =>
        {
            vec![version]
        }
        _ => Vec::new(),
    });
    super::or_nothing(heard.is_some(), state, done.collect())
}
