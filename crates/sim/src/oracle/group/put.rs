//! Put: creates a message, or is decided by its key or its idempotency key.

use super::{At, Belief, Due, GroupState, MessagePhase, Span, TrackedMessage};

/// What to do if the key is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnConflict {
    /// Refuse.
    Reject,
    /// The new message takes its place.
    Replace,
    /// The existing message is kept, with the earlier instant.
    Keep,
}

/// The arguments of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    /// Its number, which is in its body. A retry has the same number.
    pub(crate) no: u64,
    /// Whether it names the key of its group.
    pub(crate) keyed: bool,
    /// What to do if the key is taken.
    pub(crate) on_conflict: OnConflict,
    /// When it is due.
    pub(crate) due: Due,
    /// Its priority.
    pub(crate) priority: u32,
    /// Its limit of attempts; 0 for no limit.
    pub(crate) max_attempts: u32,
    /// When it expires.
    pub(crate) expires: Option<i64>,
    /// Whether it carries an idempotency key.
    pub(crate) idempotency_key: bool,
}

/// The answer to a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum PutHeard {
    /// A new message, due then.
    Created { id: u128, due: i64 },
    /// A new message, in place of `old`.
    Replaced { id: u128, due: i64, old: u128 },
    /// The existing message was kept, due then.
    Kept { id: u128, due: i64 },
    /// Refused: this message has the key.
    KeyTaken { id: u128 },
    /// Refused: this message has the key and is leased.
    Leased { id: u128 },
    /// Refused: the idempotency key belongs to another put, which was answered with this message.
    Mismatch { id: u128 },
    /// Refused for a reason outside the group: a full queue, a full disk.
    Refused,
}

/// What is stored under an idempotency key. A refused put leaves its idempotency key unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum StoredAnswer {
    /// The answer is known.
    Heard(PutHeard),
    /// The answer is unknown, but the put took effect: a new message, due then.
    Created(Span),
    /// Likewise, in place of this message.
    Replaced(Option<u128>, Span),
    /// Likewise: the existing message was kept.
    Kept(Span),
}

pub(super) fn after(state: &GroupState, spec: &Spec, heard: Option<PutHeard>, at: At<'_>) -> Vec<GroupState> {
    if heard == Some(PutHeard::Refused) {
        return vec![state.clone()];
    }
    if let Some(answered) = state.answered.get(&spec.no) {
        let Some(heard) = heard else { return vec![state.clone()] };
        return repeated(state.clone(), spec.no, *answered, heard).into_iter().collect();
    }
    let standing = if spec.keyed { state.key_versions(at) } else { vec![state.clone()] };
    let done = standing.into_iter().filter_map(|state| put(state, spec, heard, at)).collect();
    super::or_nothing(heard.is_some(), state, done)
}

/// A put of something else under the idempotency key of put `no` changes nothing: it is refused as long as the
/// idempotency key is stored.
pub(super) fn mismatched(state: &GroupState, no: u64, heard: PutHeard) -> Vec<GroupState> {
    let fits = match (state.answered.get(&no), heard) {
        (_, PutHeard::Refused) => true,
        (Some(answered), PutHeard::Mismatch { id }) => answered.id().is_none_or(|first| first == id),
        _ => false,
    };
    if fits { vec![state.clone()] } else { Vec::new() }
}

impl StoredAnswer {
    /// The id in the answer, as far as it is known.
    fn id(self) -> Option<u128> {
        match self {
            StoredAnswer::Heard(
                PutHeard::Created { id, .. } | PutHeard::Replaced { id, .. } | PutHeard::Kept { id, .. },
            ) => Some(id),
            _ => None,
        }
    }
}

/// A retry of a put that took effect: it gets the answer that the first attempt got, or would have got.
fn repeated(mut state: GroupState, no: u64, answered: StoredAnswer, heard: PutHeard) -> Option<GroupState> {
    let (id, due, span) = match (answered, heard) {
        (StoredAnswer::Heard(first), heard) => return (first == heard).then_some(state),
        (StoredAnswer::Created(span), PutHeard::Created { id, due })
        | (StoredAnswer::Kept(span), PutHeard::Kept { id, due }) => (id, due, span),
        (StoredAnswer::Replaced(old, span), PutHeard::Replaced { id, due, old: heard })
            if old.is_none_or(|old| old == heard) =>
        {
            (id, due, span)
        }
        _ => return None,
    };
    if !span.holds(due) {
        return None;
    }
    if let (Some(place), false) = (state.place(no), matches!(answered, StoredAnswer::Kept(_))) {
        let message = &mut state.messages[place];
        if !message.is_id(id) {
            return None;
        }
        if message.standing.due == span {
            message.is_due(due);
        }
    }
    state.answered.insert(no, StoredAnswer::Heard(heard));
    Some(state)
}

/// Applies a put after time has been applied; `None` if that contradicts the answer.
fn put(mut state: GroupState, spec: &Spec, heard: Option<PutHeard>, at: At<'_>) -> Option<GroupState> {
    let owner = if spec.keyed { state.owner() } else { None };
    let Some(owner) = owner else {
        let state = created(state, spec, None, at);
        return match heard {
            None => Some(remembering(state, spec, StoredAnswer::Created(spec.due.span(&at.window)))),
            Some(PutHeard::Created { id, due }) => answered(state, spec, heard, id, due),
            Some(_) => None,
        };
    };
    let leased = matches!(state.messages[owner].standing.phase, MessagePhase::Leased(_));
    match spec.on_conflict {
        OnConflict::Reject => match heard {
            None => Some(state),
            Some(PutHeard::KeyTaken { id }) => state.messages[owner].is_id(id).then_some(state),
            Some(_) => None,
        },
        OnConflict::Replace => match heard {
            None => {
                let answer = StoredAnswer::Replaced(state.messages[owner].id, spec.due.span(&at.window));
                Some(remembering(created(state, spec, Some(owner), at), spec, answer))
            }
            Some(PutHeard::Replaced { id, due, old }) if state.messages[owner].is_id(old) => {
                answered(created(state, spec, Some(owner), at), spec, heard, id, due)
            }
            Some(_) => None,
        },
        OnConflict::Keep if leased => match heard {
            None => Some(state),
            Some(PutHeard::Leased { id }) => state.messages[owner].is_id(id).then_some(state),
            Some(_) => None,
        },
        OnConflict::Keep => keep(state, owner, spec, heard, at),
    }
}

/// The existing message is kept, with the earlier of the two instants.
fn keep(
    mut state: GroupState,
    owner: usize,
    spec: &Spec,
    heard: Option<PutHeard>,
    at: At<'_>,
) -> Option<GroupState> {
    let message = &mut state.messages[owner];
    let kept = message.standing.due.earlier(spec.due.span(&at.window));
    if kept != message.standing.due {
        // A ready message stays ready, so earlier readings of the clock still count.
        message.change(|standing| standing.due = kept);
    }
    match heard {
        None => Some(remembering(state, spec, StoredAnswer::Kept(kept))),
        Some(PutHeard::Kept { id, due }) if message.is_id(id) && message.is_due(due) => {
            Some(remembering(state, spec, StoredAnswer::Heard(PutHeard::Kept { id, due })))
        }
        Some(_) => None,
    }
}

/// The state with a new message. The message that had the key is gone, or loses the key if it is leased.
fn created(mut state: GroupState, spec: &Spec, replaced: Option<usize>, at: At<'_>) -> GroupState {
    if let Some(old) = replaced {
        if matches!(state.messages[old].standing.phase, MessagePhase::Leased(_)) {
            state.messages[old].undo.clear();
            state.messages[old].keyed = false;
        } else {
            state = state.without(old);
        }
    }
    state.messages.push(TrackedMessage {
        no: spec.no,
        id: None,
        keyed: spec.keyed,
        max_attempts: spec.max_attempts,
        standing: Belief {
            due: spec.due.span(&at.window),
            since: at.begin,
            priority: spec.priority,
            attempts: 0,
            takes: 0,
            expires: spec.expires,
            phase: MessagePhase::Pending,
        },
        undo: Vec::new(),
    });
    state
}

/// The state with the data of the answer about the new message.
fn answered(
    mut state: GroupState,
    spec: &Spec,
    heard: Option<PutHeard>,
    id: u128,
    due: i64,
) -> Option<GroupState> {
    let message = state.messages.last_mut().expect("it was just put");
    let possible = message.is_id(id) && message.is_due(due);
    heard.filter(|_| possible).map(|heard| remembering(state, spec, StoredAnswer::Heard(heard)))
}

/// The state in which the idempotency key of the put stands for this answer.
fn remembering(mut state: GroupState, spec: &Spec, answer: StoredAnswer) -> GroupState {
    if spec.idempotency_key {
        state.answered.insert(spec.no, answer);
    }
    state
}
