//! What is done to a whole queue at once: purge, delete, revive all, discard all.

use super::{At, Due, Message, Phase, State};

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// All scheduled and ready messages are gone.
    Purge,
    /// All messages but the leased are gone.
    DeleteQueue,
    /// All dead messages are due then, oldest first, but for those whose key has a new owner.
    ReviveAll(Due),
    /// All dead messages are gone.
    DiscardAll,
}

pub(super) fn after(state: &State, sweep: Sweep, heard: bool, at: At<'_>) -> Vec<State> {
    let mut states = vec![state.clone()];
    for place in 0..state.messages.len() {
        states = states.iter().flat_map(|state| state.versions(place, at, false)).collect();
    }
    let done = states.into_iter().flat_map(|state| swept(state, sweep, at)).collect();
    super::or_nothing(heard, state, done)
}

fn swept(mut state: State, sweep: Sweep, at: At<'_>) -> Vec<State> {
    let leased = |message: &Message| matches!(message.standing.phase, Phase::Leased(_));
    match sweep {
        Sweep::Purge => state.messages.retain(|message| message.standing.phase != Phase::Pending),
        Sweep::DeleteQueue => state.messages.retain(leased),
        Sweep::DiscardAll => state.messages.retain(|message| message.standing.phase != Phase::Dead),
        Sweep::ReviveAll(due) => return revived(state, due, at),
    }
    vec![state]
}

/// The key goes to the message that has been dead longest. Who that is was not observed, so it may be any.
fn revived(state: State, due: Due, at: At<'_>) -> Vec<State> {
    let due = due.span(&at.window);
    let is_dead = |message: &Message| message.standing.phase == Phase::Dead;
    let keyless: Vec<usize> = (0..state.messages.len())
        .filter(|place| is_dead(&state.messages[*place]) && !state.messages[*place].keyed)
        .collect();
    let heirs: Vec<usize> = (0..state.messages.len())
        .filter(|place| is_dead(&state.messages[*place]) && state.messages[*place].keyed)
        .collect();
    let has_owner = state.owner().is_some();
    let mut states = vec![state];
    for place in keyless {
        states = states.iter().flat_map(|state| state.revived(place, due, at)).collect();
    }
    if heirs.is_empty() || has_owner {
        return states;
    }
    let with_heir = |heir: &usize| -> Vec<State> {
        states.iter().flat_map(|state| state.revived(*heir, due, at)).collect()
    };
    heirs.iter().flat_map(with_heir).collect()
}
