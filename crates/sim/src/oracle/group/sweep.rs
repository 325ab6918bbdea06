//! What is done to a whole queue at once: purge, delete, revive all, discard all.

use super::{At, Due, Message, Phase, State};

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// All scheduled and ready messages are gone.
    Purge,
    /// All messages but the leased are gone.
    DeleteQueue,
    /// All dead messages are due then, oldest first, but for those whose key has a new owner: one after the other, and
    /// other commands may come in between.
    ReviveAll(Due),
    /// All dead messages are gone.
    DiscardAll,
}

pub(super) fn after(state: &State, sweep: Sweep, heard: bool, at: At<'_>) -> Vec<State> {
    let mut states = vec![state.clone()];
    for place in 0..state.messages.len() {
        states = states.iter().flat_map(|state| state.versions(place, at, false)).collect();
    }
    let done = states.into_iter().map(|state| swept(state, sweep)).collect();
    super::or_nothing(heard, state, done)
}

fn swept(mut state: State, sweep: Sweep) -> State {
    let leased = |message: &Message| matches!(message.standing.phase, Phase::Leased(_));
    match sweep {
        Sweep::Purge => state.messages.retain(|message| message.standing.phase != Phase::Pending),
        Sweep::DeleteQueue => state.messages.retain(leased),
        Sweep::DiscardAll => {
            state
                .messages
                .retain(|message| matches!(message.standing.phase, Phase::Pending | Phase::Leased(_)));
        }
        Sweep::ReviveAll(_) => unreachable!("a revive of all is told message by message"),
    }
    state
}

/// What a revive of all makes of the message `no`, when its turn comes: nothing, if it is not dead, its key has an owner, or
/// its time is over. Which of two that had one key comes first was not observed.
pub(super) fn revived(state: &State, no: u64, due: Due, heard: bool, at: At<'_>) -> Vec<State> {
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
