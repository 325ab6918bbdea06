//! What a crash does to a group, and what closing and opening the store does.

use std::collections::BTreeSet;

use super::{At, Message, Reading, Seq, State};

/// The log may have lost what no sync has covered: all of it, or all from some point on.
pub(super) fn power_loss(state: &State, durable: Seq, at: At<'_>) -> Vec<State> {
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

/// Bound leases end, and others go on.
pub(super) fn reopened(state: &State, now: Reading, at: At<'_>) -> Vec<State> {
    each(state, |message| {
        noticed_or_not(message, at).iter().flat_map(|message| message.reopened(now, at)).collect()
    })
}

/// An opening has failed: it may have ended bound leases by then, and have written that down.
pub(super) fn tried_to_open(state: &State, now: Reading, at: At<'_>) -> Vec<State> {
    each(state, |message| {
        let mut versions = vec![message.clone()];
        if message.is_bound() {
            versions.extend(noticed_or_not(message, at).iter().flat_map(|message| message.reopened(now, at)));
        }
        versions
    })
}

/// What time has brought about, whether or not the process that died had written it down. It matters where
/// the wall clock was stepped back: a lease that had run out goes on then, if nobody noticed.
fn noticed_or_not(message: &Message, at: At<'_>) -> Vec<Message> {
    let mut versions = message.versions(at, false);
    if !versions.contains(message) {
        versions.push(message.clone());
    }
    versions
}

/// All combinations of what may have become of each message.
fn each(state: &State, versions: impl Fn(&Message) -> Vec<Message>) -> Vec<State> {
    let mut states = vec![state.clone()];
    for place in 0..state.messages.len() {
        let with = |state: &State, message| {
            let mut state = state.clone();
            state.messages[place] = message;
            state
        };
        let spread = |state: &State| -> Vec<State> {
            versions(&state.messages[place]).into_iter().map(|message| with(state, message)).collect()
        };
        states = states.iter().flat_map(spread).collect();
    }
    states
}

/// Bound leases are released. Whatever time had brought about before is so.
pub(super) fn closed(state: &State, at: At<'_>) -> Vec<State> {
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
