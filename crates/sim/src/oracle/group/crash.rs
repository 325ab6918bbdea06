//! The effects of a crash on a group, and of closing and opening the store.

use std::collections::BTreeSet;

use super::{At, GroupState, Reading, Seq, TrackedMessage};

/// Power loss: the log may have lost everything that was not synced, or all of it from some point on.
pub(super) fn power_loss(state: &GroupState, durable: Seq, at: At<'_>) -> Vec<GroupState> {
    let mut left = BTreeSet::new();
    for state in each(state, |message| noticed_or_not(message, at)) {
        let changes =
            state.messages.iter().flat_map(|message| message.undo.iter().map(|(changed, _)| *changed));
        let cuts: BTreeSet<Seq> = changes.filter(|changed| *changed >= durable).chain([Seq::MAX]).collect();
        for cut in cuts {
            left.extend(each(&state, |message| message.after_power_loss(cut)));
        }
    }
    left.into_iter().collect()
}

/// The store was opened: session leases end, and others continue.
pub(super) fn reopened(state: &GroupState, now: Reading, at: At<'_>) -> Vec<GroupState> {
    each(state, |message| {
        noticed_or_not(message, at).iter().flat_map(|message| message.reopened(now, at)).collect()
    })
}

/// An open has failed: it may have ended session leases, and have written that down.
pub(super) fn tried_to_open(state: &GroupState, now: Reading, at: At<'_>) -> Vec<GroupState> {
    each(state, |message| {
        let mut versions = vec![message.clone()];
        if message.is_session_lease() {
            versions.extend(noticed_or_not(message, at).iter().flat_map(|message| message.reopened(now, at)));
        }
        versions
    })
}

/// The changes by time alone, whether or not the process that died had written them down. This matters if the wall clock
/// was stepped back: a lease that had run out continues if the process had not noticed.
fn noticed_or_not(message: &TrackedMessage, at: At<'_>) -> Vec<TrackedMessage> {
    let mut versions = message.versions(at, false);
    if !versions.contains(message) {
        versions.push(message.clone());
    }
    versions
}

/// All combinations of the possible versions of each message.
fn each(state: &GroupState, versions: impl Fn(&TrackedMessage) -> Vec<TrackedMessage>) -> Vec<GroupState> {
    let mut states = vec![state.clone()];
    for place in 0..state.messages.len() {
        let with = |state: &GroupState, message| {
            let mut state = state.clone();
            state.messages[place] = message;
            state
        };
        let spread = |state: &GroupState| -> Vec<GroupState> {
            versions(&state.messages[place]).into_iter().map(|message| with(state, message)).collect()
        };
        states = states.iter().flat_map(spread).collect();
    }
    states
}

/// The store was closed: session leases are released. Changes by time before that are final.
pub(super) fn closed(state: &GroupState, at: At<'_>) -> Vec<GroupState> {
    let mut states = vec![state.clone()];
    for place in 0..state.messages.len() {
        states = states.iter().flat_map(|state| state.versions(place, at, false)).collect();
        for state in &mut states {
            state.messages[place] = state.messages[place].closed();
        }
        states = states.into_iter().flat_map(|state| state.settled_by_time(place, at)).collect();
    }
    states
}
