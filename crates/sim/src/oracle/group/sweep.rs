//! Bulk operations: purge, delete, revive all, discard all.

use super::{At, Due, GroupState, MessagePhase, TrackedMessage};

/// The kind of bulk operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// All scheduled and ready messages are gone.
    Purge,
    /// All messages but the leased are gone.
    DeleteQueue,
    /// All dead messages are revived, oldest death first, except those whose key has a new owner: one after the other,
    /// and other commands may run in between.
    ReviveAll(Due),
    /// All dead messages are gone.
    DiscardAll,
}

pub(super) fn after(state: &GroupState, sweep: Sweep, heard: bool, at: At<'_>) -> Vec<GroupState> {
    let mut states = vec![state.clone()];
    for place in 0..state.messages.len() {
        states = states.iter().flat_map(|state| state.versions(place, at, false)).collect();
    }
    let done = states.into_iter().map(|state| swept(state, sweep)).collect();
    super::or_nothing(heard, state, done)
}

fn swept(mut state: GroupState, sweep: Sweep) -> GroupState {
    let leased = |message: &TrackedMessage| matches!(message.standing.phase, MessagePhase::Leased(_));
    match sweep {
        Sweep::Purge => state.messages.retain(|message| message.standing.phase != MessagePhase::Pending),
        Sweep::DeleteQueue => state.messages.retain(leased),
        Sweep::DiscardAll => {
            state.messages.retain(|message| {
                matches!(message.standing.phase, MessagePhase::Pending | MessagePhase::Leased(_))
            });
        }
        Sweep::ReviveAll(_) => unreachable!("a revive of all is reported message by message"),
    }
    state
}

/// The effect of a revive of all on message `no` in its turn: none, if it is not dead, its key has an owner, or its time
/// is over. The order of two messages that had one key was not observed.
pub(super) fn revived(state: &GroupState, no: u64, due: Due, heard: bool, at: At<'_>) -> Vec<GroupState> {
    let Some(place) = state.place(no) else { return vec![state.clone()] };
    let versions = state.versions(place, at, false).into_iter().flat_map(|state| state.key_versions(at));
    let done = versions.flat_map(|version| {
        let message = &version.messages[place];
        if message.death().is_none() || message.keyed && version.owner().is_some() {
            return vec![version];
        }
        let mut states = Vec::new();
        if message.may_be_found(at) {
            states.extend(version.revived(place, due.span(&at.window), at));
        }
        if message.may_be_missed(at) {
            states.push(version);
        }
        states
    });
    super::or_nothing(heard, state, done.collect())
}
