//! Take: a message is delivered, or leased by a take whose answer was lost.

use super::{
    At, Belief, Death, Due, GroupState, Lease, MessagePhase, Span, TrackedMessage, granted, granted_to_nobody,
};

/// The terms of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The length in milliseconds.
    pub(crate) lease_ms: i64,
    /// Whether the lease ends with the process.
    pub(crate) session: bool,
    /// The holder, if the take names one.
    pub(crate) holder: Option<u32>,
}

/// A delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// The number of its put.
    pub(crate) no: u64,
    /// Its id.
    pub(crate) id: u128,
    /// When it was due.
    pub(crate) due: i64,
    /// Its priority.
    pub(crate) priority: u32,
    /// The number of the attempt.
    pub(crate) attempt: u32,
    /// Whether it has the key of its group.
    pub(crate) keyed: bool,
    /// The token of the lease.
    pub(crate) token: u128,
    /// When it was taken, by the store's wall clock.
    pub(crate) taken_at: i64,
    /// The terms of the lease.
    pub(crate) terms: Terms,
    /// The number of takes, including this one.
    pub(crate) takes: u32,
    /// The number of lapses so far.
    pub(crate) lapses: u32,
}

/// Whether a message that could not be read has spent an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// It has: the medium has failed.
    Spent,
    /// It has not: the process lacked a resource.
    Unspent,
    /// Either is possible.
    Unknown,
}

/// The answer to a take by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TakenById {
    /// Delivered.
    Delivered(Delivered),
    /// Refused: it is leased.
    Leased,
    /// Refused: it is dead and its key has a new owner.
    KeyTaken { id: u128 },
    /// There is no such message.
    NotFound,
    /// Leased, and then it could not be read: it was not delivered.
    Unread,
    /// Refused for a reason outside the group.
    Refused,
}

pub(super) fn taken(state: &GroupState, delivered: &Delivered, at: At<'_>) -> Vec<GroupState> {
    let Some(place) = state.place(delivered.no) else { return Vec::new() };
    let at = at_the_take(delivered, at);
    let versions = state.versions(place, at, false).into_iter();
    let fitting = versions.filter_map(|mut state| {
        let message = &mut state.messages[place];
        if message.standing.phase != MessagePhase::Pending
            || !fits(message, delivered)
            || !message.may_be_ready(at)
        {
            return None;
        }
        hand_over(message, delivered, at);
        Some(state)
    });
    fitting.collect()
}

/// Narrows the time to the `taken_at` that the store reports.
fn at_the_take<'a>(delivered: &Delivered, mut at: At<'a>) -> At<'a> {
    at.window.wall = Span::exact(delivered.taken_at);
    if at.rules.one_clock {
        at.window.mono = at.window.wall;
    }
    at
}

/// Whether the delivery can be this message.
fn fits(message: &mut TrackedMessage, delivered: &Delivered) -> bool {
    message.is_id(delivered.id)
        && message.is_due(delivered.due)
        && message.standing.priority == delivered.priority
        && message.standing.attempts + 1 == delivered.attempt
        && message.standing.takes + 1 == delivered.takes
        && message.keyed == delivered.keyed
}

fn hand_over(message: &mut TrackedMessage, delivered: &Delivered, at: At<'_>) {
    let phase = granted(Some(delivered.token), delivered.terms, at);
    message.change_unsynced(at, |standing| standing.hand_out(phase));
}

impl Belief {
    fn hand_out(&mut self, phase: MessagePhase) {
        self.phase = phase;
        self.takes += 1;
    }

    /// Restores the state before the take, except the count of takes.
    fn give_back(&mut self) {
        self.phase = MessagePhase::Pending;
    }
}

pub(super) fn lost(state: &GroupState, phase: MessagePhase, at: At<'_>) -> Vec<GroupState> {
    let mut states = vec![state.clone()];
    for place in 0..state.messages.len() {
        let versions: Vec<GroupState> =
            states.iter().flat_map(|state| state.versions(place, at, false)).collect();
        for mut version in versions {
            let message = &mut version.messages[place];
            if message.standing.phase == MessagePhase::Pending && message.may_be_ready(at) {
                message.change_unsynced(at, |standing| standing.hand_out(phase));
                states.push(version);
            }
        }
    }
    states
}

/// The caller of a take was dropped, and what it had leased was released without spending an attempt.
pub(super) fn gave_back(state: &GroupState, at: At<'_>) -> Vec<GroupState> {
    let mut states = vec![state.clone()];
    for place in 0..state.messages.len() {
        for mut version in states.clone() {
            let message = &mut version.messages[place];
            if matches!(message.standing.phase, MessagePhase::Leased(lease) if lease.token.is_none()) {
                message.change_unsynced(at, Belief::give_back);
                states.extend(version.settled_by_time(place, at));
            }
        }
    }
    states
}

/// Every lease of a lost take has been released or has run out.
pub(super) fn all_gave_back(state: &GroupState, at: At<'_>) -> Vec<GroupState> {
    let is_with_nobody = |message: &TrackedMessage| matches!(message.standing.phase, MessagePhase::Leased(lease) if lease.token.is_none() && !lease.unread);
    let mut states = vec![state.clone()];
    for place in (0..state.messages.len()).filter(|place| is_with_nobody(&state.messages[*place])) {
        states = states.iter().flat_map(|state| state.versions(place, at, false)).collect();
        states.retain(|state| !is_with_nobody(&state.messages[place]));
    }
    states
}

/// A message that could not be read has spent an attempt or was released without one, unless its lease was over by then.
pub(super) fn sent_back(
    state: &GroupState,
    due: Due,
    attempt: Attempt,
    heard: bool,
    at: At<'_>,
) -> Vec<GroupState> {
    let mut states = vec![state.clone()];
    for place in 0..state.messages.len() {
        let is_unread = |message: &TrackedMessage| {
            matches!(message.standing.phase, MessagePhase::Leased(Lease { unread: true, .. }))
        };
        if !is_unread(&state.messages[place]) {
            continue;
        }
        let sent_back = |mut version: GroupState| -> Vec<GroupState> {
            let message = &mut version.messages[place];
            if !is_unread(message) {
                return vec![version];
            }
            let given_back = (attempt != Attempt::Spent).then(|| {
                let mut version = version.clone();
                version.messages[place].change_unsynced(at, Belief::give_back);
                version.settled_by_time(place, at)
            });
            let tried = (attempt != Attempt::Unspent).then(|| {
                let message = &mut version.messages[place];
                let mut after = message.standing.clone();
                message.spend_attempt(&mut after, Death { at: at.window.wall, since: at.begin });
                // A dead message has no due instant.
                if after.phase == MessagePhase::Pending {
                    after.due = due.span(&at.window);
                    after.since = at.begin;
                }
                // No answer reports it: the power may fail before it is written.
                message.change_unsynced(at, |standing| *standing = after);
                version.settled_by_time(place, at)
            });
            tried.into_iter().chain(given_back).flatten().collect()
        };
        let versions = states.iter().flat_map(|state| state.versions(place, at, false));
        states = versions.flat_map(sent_back).collect();
    }
    if !heard {
        // The process that was to process it is gone: the leases stay.
        let mut left = state.clone();
        for message in &mut left.messages {
            if let MessagePhase::Leased(lease) = &mut message.standing.phase {
                lease.unread = false;
            }
        }
        states.push(left);
    }
    states
}

pub(super) fn by_id(
    state: &GroupState,
    no: u64,
    terms: Terms,
    heard: Option<&TakenById>,
    at: At<'_>,
) -> Vec<GroupState> {
    let Some(place) = state.place(no) else {
        let possible = matches!(heard, None | Some(TakenById::NotFound | TakenById::Refused));
        return if possible { vec![state.clone()] } else { Vec::new() };
    };
    if heard == Some(&TakenById::Refused) {
        return vec![state.clone()];
    }
    let at = match heard {
        Some(TakenById::Delivered(delivered)) => at_the_take(delivered, at),
        _ => at,
    };
    // A dead message takes its key back, so time has to be applied to the current owner of the key first.
    let found = state.found(place, at).into_iter();
    let versions =
        found.flat_map(|(state, found)| state.key_versions(at).into_iter().map(move |state| (state, found)));
    let done = versions.flat_map(|(mut state, found)| -> Vec<GroupState> {
        let owner = state.owner().filter(|owner| *owner != place);
        let message = &state.messages[place];
        let dead = message.death().is_some();
        match (message.standing.phase, owner) {
            _ if found.is_none() => {
                let fits = matches!(heard, None | Some(TakenById::NotFound));
                return if fits { vec![state] } else { Vec::new() };
            }
            (MessagePhase::Leased(_), _) => {
                let fits = matches!(heard, None | Some(TakenById::Leased));
                return if fits { vec![state] } else { Vec::new() };
            }
            (MessagePhase::Dead(_), Some(owner)) if message.keyed => {
                let fits = match heard {
                    None => true,
                    Some(TakenById::KeyTaken { id }) => state.messages[owner].is_id(*id),
                    Some(_) => false,
                };
                return if fits { vec![state] } else { Vec::new() };
            }
            _ => {}
        }
        let due = message.standing.due.earlier(at.window.wall);
        let standings = match dead {
            true => TrackedMessage::revived(&message.standing, due, at),
            false => vec![message.standing.clone()],
        };
        let taken = |standing: Belief| {
            let mut state = state.clone();
            let message = &mut state.messages[place];
            message.change_unsynced(at, |old| *old = Belief { due, ..standing });
            let phase = match heard {
                Some(TakenById::Delivered(delivered)) => {
                    if !fits(message, delivered) {
                        return None;
                    }
                    granted(Some(delivered.token), delivered.terms, at)
                }
                Some(TakenById::Unread) => granted_to_nobody(terms, at),
                None => granted(None, terms, at),
                Some(_) => return None,
            };
            message.standing.hand_out(phase);
            Some(state)
        };
        standings.into_iter().filter_map(taken).collect()
    });
    super::or_nothing(heard.is_some(), state, done.collect())
}
