//! Take: a message is handed out, and somebody may have it who never heard of it.

use super::{At, Death, Due, Lease, Message, Phase, Span, Standing, State, granted, granted_to_nobody};

/// How a take holds what it is handed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// For how long, in milliseconds.
    pub(crate) lease_ms: i64,
    /// Whether the lease ends with the process.
    pub(crate) bound: bool,
    /// Who holds it, if the take says so.
    pub(crate) holder: Option<u32>,
}

/// What a take handed over.
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
    /// Which attempt this is.
    pub(crate) attempt: u32,
    /// Whether it has the key of its group.
    pub(crate) keyed: bool,
    /// The token of the lease.
    pub(crate) token: u128,
    /// When it was taken, by the store's wall clock.
    pub(crate) taken_at: i64,
    /// How it is held.
    pub(crate) terms: Terms,
    /// How often it was handed out, this time too.
    pub(crate) takes: u32,
    /// How often a lease of it has run out so far.
    pub(crate) lapses: u32,
}

/// Whether an attempt is spent on a message that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// It is: the medium is to blame.
    Spent,
    /// It is not: the process was short of something.
    Unspent,
    /// Either may have been the case.
    Unknown,
}

/// The answer to a take by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TakenById {
    /// Handed over.
    Delivered(Delivered),
    /// Refused: somebody holds it.
    Leased,
    /// Refused: it is dead and its key has a new owner.
    KeyTaken { id: u128 },
    /// There is no such message.
    NotFound,
    /// Leased, and then it could not be read: nobody was handed it.
    Unread,
    /// Refused for a reason that lies outside the group.
    Refused,
}

pub(super) fn taken(state: &State, delivered: &Delivered, at: At<'_>) -> Vec<State> {
    let Some(place) = state.place(delivered.no) else { return Vec::new() };
    let at = at_the_take(delivered, at);
    let versions = state.versions(place, at, false).into_iter();
    let fitting = versions.filter_map(|mut state| {
        let message = &mut state.messages[place];
        if message.standing.phase != Phase::Pending || !fits(message, delivered) || !message.may_be_ready(at)
        {
            return None;
        }
        hand_over(message, delivered, at);
        Some(state)
    });
    fitting.collect()
}

/// The store itself says when it was.
fn at_the_take<'a>(delivered: &Delivered, mut at: At<'a>) -> At<'a> {
    at.window.wall = Span::exact(delivered.taken_at);
    if at.rules.one_clock {
        at.window.mono = at.window.wall;
    }
    at
}

/// Whether what was handed over is this message.
fn fits(message: &mut Message, delivered: &Delivered) -> bool {
    message.is_id(delivered.id)
        && message.is_due(delivered.due)
        && message.standing.priority == delivered.priority
        && message.standing.attempts + 1 == delivered.attempt
        && message.standing.takes + 1 == delivered.takes
        && message.keyed == delivered.keyed
}

fn hand_over(message: &mut Message, delivered: &Delivered, at: At<'_>) {
    let phase = granted(Some(delivered.token), delivered.terms, at);
    message.change_unsynced(at, |standing| standing.hand_out(phase));
}

impl Standing {
    fn hand_out(&mut self, phase: Phase) {
        self.phase = phase;
        self.takes += 1;
    }

    /// As if it had not been taken.
    fn give_back(&mut self) {
        self.phase = Phase::Pending;
        self.takes = self.takes.saturating_sub(1);
    }
}

pub(super) fn lost(state: &State, phase: Phase, at: At<'_>) -> Vec<State> {
    let mut states = vec![state.clone()];
    for place in 0..state.messages.len() {
        let versions: Vec<State> = states.iter().flat_map(|state| state.versions(place, at, false)).collect();
        for mut version in versions {
            let message = &mut version.messages[place];
            if message.standing.phase == Phase::Pending && message.may_be_ready(at) {
                message.change_unsynced(at, |standing| standing.hand_out(phase));
                states.push(version);
            }
        }
    }
    states
}

/// Nobody was there to receive what a take had leased, and it went back without spending an attempt.
pub(super) fn gave_back(state: &State, at: At<'_>) -> Vec<State> {
    let mut states = vec![state.clone()];
    for place in 0..state.messages.len() {
        for mut version in states.clone() {
            let message = &mut version.messages[place];
            if matches!(message.standing.phase, Phase::Leased(lease) if lease.token.is_none()) {
                message.change_unsynced(at, Standing::give_back);
                states.extend(version.settled_by_time(place, at));
            }
        }
    }
    states
}

/// Whatever nobody has heard of has gone back, or its lease has run out.
pub(super) fn all_gave_back(state: &State, at: At<'_>) -> Vec<State> {
    let is_with_nobody = |message: &Message| matches!(message.standing.phase, Phase::Leased(lease) if lease.token.is_none() && !lease.unread);
    let mut states = vec![state.clone()];
    for place in (0..state.messages.len()).filter(|place| is_with_nobody(&state.messages[*place])) {
        states = states.iter().flat_map(|state| state.versions(place, at, false)).collect();
        states.retain(|state| !is_with_nobody(&state.messages[place]));
    }
    states
}

/// What could not be read has had its attempt, or has been given back without one, unless its lease was over by then.
pub(super) fn sent_back(state: &State, due: Due, attempt: Attempt, heard: bool, at: At<'_>) -> Vec<State> {
    let mut states = vec![state.clone()];
    for place in 0..state.messages.len() {
        let is_unread =
            |message: &Message| matches!(message.standing.phase, Phase::Leased(Lease { unread: true, .. }));
        if !is_unread(&state.messages[place]) {
            continue;
        }
        let sent_back = |mut version: State| -> Vec<State> {
            let message = &mut version.messages[place];
            if !is_unread(message) {
                return vec![version];
            }
            let given_back = (attempt != Attempt::Spent).then(|| {
                let mut version = version.clone();
                version.messages[place].change_unsynced(at, Standing::give_back);
                version.settled_by_time(place, at)
            });
            let tried = (attempt != Attempt::Unspent).then(|| {
                let message = &mut version.messages[place];
                let mut after = message.standing.clone();
                message.spend_attempt(&mut after, Death { at: at.window.wall, since: at.begin });
                // A dead message has no next instant.
                if after.phase == Phase::Pending {
                    after.due = due.span(&at.window);
                    after.since = at.begin;
                }
                // No answer says so: the power may fail before it is written.
                message.change_unsynced(at, |standing| *standing = after);
                version.settled_by_time(place, at)
            });
            tried.into_iter().chain(given_back).flatten().collect()
        };
        let versions = states.iter().flat_map(|state| state.versions(place, at, false));
        states = versions.flat_map(sent_back).collect();
    }
    if !heard {
        // The process that was to see to it is gone: whatever was leased stays so.
        let mut left = state.clone();
        for message in &mut left.messages {
            if let Phase::Leased(lease) = &mut message.standing.phase {
                lease.unread = false;
            }
        }
        states.push(left);
    }
    states
}

pub(super) fn by_id(
    state: &State,
    no: u64,
    terms: Terms,
    heard: Option<&TakenById>,
    at: At<'_>,
) -> Vec<State> {
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
    // A dead message takes its key back, so time has to have its say on whoever has it now.
    let found = state.found(place, at).into_iter();
    let versions =
        found.flat_map(|(state, found)| state.key_versions(at).into_iter().map(move |state| (state, found)));
    let done = versions.flat_map(|(mut state, found)| -> Vec<State> {
        let owner = state.owner().filter(|owner| *owner != place);
        let message = &state.messages[place];
        let dead = message.death().is_some();
        match (message.standing.phase, owner) {
            _ if found.is_none() => {
                let fits = matches!(heard, None | Some(TakenById::NotFound));
                return if fits { vec![state] } else { Vec::new() };
            }
            (Phase::Leased(_), _) => {
                let fits = matches!(heard, None | Some(TakenById::Leased));
                return if fits { vec![state] } else { Vec::new() };
            }
            (Phase::Dead(_), Some(owner)) if message.keyed => {
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
            true => Message::revived(&message.standing, due, at),
            false => vec![message.standing.clone()],
        };
        let taken = |standing: Standing| {
            let mut state = state.clone();
            let message = &mut state.messages[place];
            message.change_unsynced(at, |old| *old = Standing { due, ..standing });
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
