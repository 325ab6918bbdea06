//! Settle: the holder ends or extends its lease.

use super::{At, Death, Due, GroupState, MessagePhase, Terms, granted};

/// The action of the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The work is done.
    Ack,
    /// The work failed: due again then.
    Retry { due: Due, priority: Option<u32> },
    /// Given back, due then, or as before.
    Release { due: Option<Due>, priority: Option<u32> },
    /// Buried.
    Bury { priority: Option<u32> },
    /// The lease is extended.
    Extend { lease_ms: i64 },
}

/// The answer to a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettleHeard {
    /// It is gone.
    Gone,
    /// It is scheduled for this instant.
    Scheduled(i64),
    /// It is ready.
    Ready,
    /// It is dead.
    Dead,
    /// It is held until this instant of the store's wall clock.
    Leased(i64),
    /// The receipt proves no lease any more; nothing has changed.
    LeaseLost,
}

pub(super) fn after(
    state: &GroupState,
    (no, token): (u64, u128),
    action: &Action,
    heard: Option<SettleHeard>,
    at: At<'_>,
) -> Vec<GroupState> {
    let Some(place) = state.place(no) else {
        let possible = matches!(heard, None | Some(SettleHeard::LeaseLost));
        return if possible { vec![state.clone()] } else { Vec::new() };
    };
    let mut done = Vec::new();
    for version in state.versions(place, at, false) {
        let held = match version.messages[place].standing.phase {
            MessagePhase::Leased(lease) if lease.token == Some(token) => Some(lease),
            _ => None,
        };
        match (held, heard) {
            (None, None | Some(SettleHeard::LeaseLost)) => done.push(version),
            (None, Some(_)) | (Some(_), Some(SettleHeard::LeaseLost)) => {}
            (Some(lease), heard) => {
                let terms = Terms { lease_ms: lease.lease_ms, session: lease.session, holder: lease.holder };
                let results = act(version, place, action, terms, at);
                done.extend(results.into_iter().filter_map(|result| hear(result, place, no, heard, at)));
            }
        }
    }
    super::or_nothing(heard.is_some(), state, done)
}

/// The result of the action on the message.
fn act(mut state: GroupState, place: usize, action: &Action, terms: Terms, at: At<'_>) -> Vec<GroupState> {
    let message = &mut state.messages[place];
    let death = Death { at: at.window.wall, since: at.begin };
    let mut after = message.standing.clone();
    match *action {
        Action::Ack => return vec![state.without(place)],
        Action::Retry { due, priority } => {
            after.priority = priority.unwrap_or(after.priority);
            message.spend_attempt(&mut after, death);
            // A dead message has no due instant to compare.
            if after.phase == MessagePhase::Pending {
                after.due = due.span(&at.window);
                after.since = at.begin;
            }
        }
        Action::Release { due, priority } => {
            if let Some(due) = due {
                after.due = due.span(&at.window);
                after.since = at.begin;
            }
            after.priority = priority.unwrap_or(after.priority);
            after.phase = MessagePhase::Pending;
        }
        Action::Bury { priority } => {
            after.attempts += 1;
            after.priority = priority.unwrap_or(after.priority);
            after.phase = MessagePhase::Dead(death);
        }
        Action::Extend { lease_ms } => {
            let token = match after.phase {
                MessagePhase::Leased(lease) => lease.token,
                MessagePhase::Pending | MessagePhase::Dead(_) | MessagePhase::Gone(_) => None,
            };
            after.phase = granted(token, Terms { lease_ms, ..terms }, at);
        }
    }
    // An extension is part of a lease: it is written before it is answered, and synced with the next batch.
    if matches!(action, Action::Extend { .. }) {
        message.change_unsynced(at, |standing| *standing = after);
    } else {
        message.change(|standing| *standing = after);
    }
    state.settled_by_time(place, at)
}

/// The state, if it agrees with the answer.
pub(super) fn hear(
    mut state: GroupState,
    place: usize,
    no: u64,
    heard: Option<SettleHeard>,
    at: At<'_>,
) -> Option<GroupState> {
    let Some(heard) = heard else { return Some(state) };
    let message = state.messages.get_mut(place).filter(|message| message.no == no);
    let Some(message) = message else { return (heard == SettleHeard::Gone).then_some(state) };
    let agrees = match (message.standing.phase, heard) {
        // It had expired, and its queue drops expired messages. Its end is synced by then.
        (MessagePhase::Gone(None), SettleHeard::Gone) => {
            message.undo.clear();
            true
        }
        (MessagePhase::Pending, SettleHeard::Scheduled(due)) => message.is_due(due),
        (MessagePhase::Pending, SettleHeard::Ready) => true,
        // Retention may have discarded it since.
        (MessagePhase::Dead(_) | MessagePhase::Gone(Some(_)), SettleHeard::Dead) => true,
        (MessagePhase::Leased(_), SettleHeard::Leased(until)) => message.is_leased_until(until, at),
        _ => false,
    };
    agrees.then_some(state)
}
