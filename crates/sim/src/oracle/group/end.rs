//! The end of a lease by an operator: as if it had run out at that moment.

use super::{At, GroupState, MessagePhase, SettleHeard, settle};

/// The answer to the end of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Done, and the message is in this state.
    Done(SettleHeard),
    /// Refused: it is not leased.
    NotLeased,
    /// Refused: it is leased by the take with this number.
    Changed { takes: u32 },
    /// There is no such message.
    NotFound,
}

pub(super) fn after(
    state: &GroupState,
    (no, takes): (u64, u32),
    heard: Option<Ended>,
    at: At<'_>,
) -> Vec<GroupState> {
    let Some(place) = state.place(no) else {
        let possible = matches!(heard, None | Some(Ended::NotFound));
        return if possible { vec![state.clone()] } else { Vec::new() };
    };
    let mut done = Vec::new();
    for (version, found) in state.found(place, at) {
        let message = &version.messages[place];
        let refusal = match (found, message.standing.phase) {
            (None, _) => Some(Ended::NotFound),
            (Some(_), MessagePhase::Leased(_)) if message.standing.takes == takes => None,
            (Some(_), MessagePhase::Leased(_)) => Some(Ended::Changed { takes: message.standing.takes }),
            (Some(_), _) => Some(Ended::NotLeased),
        };
        match (refusal, heard) {
            (Some(refusal), heard) if heard.is_none_or(|heard| heard == refusal) => done.push(version),
            (Some(_), _) => {}
            (None, None) => done.extend(ended(version, place, at)),
            (None, Some(Ended::Done(heard))) => {
                let results = ended(version, place, at).into_iter();
                done.extend(results.filter_map(|result| settle::hear(result, place, no, Some(heard), at)));
            }
            (None, Some(_)) => {}
        }
    }
    super::or_nothing(heard.is_some(), state, done)
}

/// All possible results of ending the lease of a message.
fn ended(state: GroupState, place: usize, at: At<'_>) -> Vec<GroupState> {
    let standings = state.messages[place].after_lapse(at.window.wall, at.begin, at);
    let ended = standings.into_iter().flat_map(|after| {
        let mut state = state.clone();
        state.messages[place].change(|standing| *standing = after);
        state.settled_by_time(place, at)
    });
    ended.collect()
}
