//! What a crash does to a group, and what opening the store again does.

use super::{At, Reading, Seq, State};

/// Every message may have lost what no sync has covered.
pub(super) fn power_loss(state: &State, durable: Seq) -> Vec<State> {
    let mut states = vec![state.clone()];
    for place in 0..state.messages.len() {
        let with = |state: &State, message| {
            let mut state = state.clone();
            state.messages[place] = message;
            state
        };
        let each = |state: &State| -> Vec<State> {
            let left = state.messages[place].after_power_loss(durable);
            left.into_iter().map(|message| with(state, message)).collect()
        };
        states = states.iter().flat_map(each).collect();
    }
    states
}

/// Bound leases end, and others go on.
pub(super) fn reopened(state: &State, now: Reading, at: At<'_>) -> Vec<State> {
    let mut state = state.clone();
    for message in &mut state.messages {
        *message = message.reopened(now, at);
    }
    vec![state]
}
