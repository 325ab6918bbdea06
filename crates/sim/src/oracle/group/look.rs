//! Get and list: what a reader was shown, or not shown.

use super::{At, Message, Phase, State, Target};

/// A message as a reader was shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    /// The number of its put.
    pub(crate) no: u64,
    /// Its id.
    pub(crate) id: u128,
    /// When it is due.
    pub(crate) due: i64,
    /// Its priority.
    pub(crate) priority: u32,
    /// The attempt under way, or how many are spent.
    pub(crate) attempt: u32,
    /// How often it was handed out.
    pub(crate) takes: u32,
    /// Whether it has the key of its group.
    pub(crate) keyed: bool,
    /// Who holds it, as far as that was said.
    pub(crate) holder: Option<u32>,
    /// Its state.
    pub(crate) shown: Shown,
}

/// The state that a reader was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Waiting for its instant.
    Scheduled,
    /// Due.
    Ready,
    /// Held until this instant of the wall clock.
    Leased(i64),
    /// Set aside at this instant of the wall clock.
    Dead(i64),
}

/// The answer to a get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// This.
    Message(Sight),
    /// There is no such message.
    Nothing,
}

pub(super) fn got(state: &State, target: Target, dead: bool, found: &Found, at: At<'_>) -> Vec<State> {
    match (found, target) {
        (Found::Message(sight), Target::Message(_)) => seen(state, sight, at, false),
        (Found::Message(sight), Target::Key) => {
            let states = state.key_versions(at).into_iter();
            let shown = states.flat_map(|state| match state.owner() {
                Some(owner) if state.messages[owner].no == sight.no => seen(&state, sight, at, false),
                None if dead => youngest(&state, sight, at),
                _ => Vec::new(),
            });
            shown.collect()
        }
        (Found::Nothing, Target::Key) if dead => {
            let mut states = state.key_versions(at);
            states.retain(|state| {
                state.owner().is_none()
                    && state.messages.iter().all(|message| !had_key(message) || may_be_missed(message, at))
            });
            states
        }
        (Found::Nothing, target) => {
            let versions = state.resolve(target, at).into_iter();
            versions.filter(|(_, place)| place.is_none()).map(|(state, _)| state).collect()
        }
    }
}

/// Whether it is dead and had its group's key until then.
fn had_key(message: &Message) -> bool {
    message.keyed && message.death().is_some()
}

/// Whether retention may have taken a dead message away by now.
fn may_be_missed(message: &Message, at: At<'_>) -> bool {
    message.may_be_missed(at) || message.death().is_some_and(|death| message.may_be_discarded(death, at))
}

/// A dead message was shown as the youngest of those that had the key.
fn youngest(state: &State, sight: &Sight, at: At<'_>) -> Vec<State> {
    let Shown::Dead(died) = sight.shown else { return Vec::new() };
    let is_younger = |other: &Message| {
        had_key(other)
            && other.no != sight.no
            && other.death().is_some_and(|death| {
                death.at.lo > died || death.at.lo == died && other.id.is_some_and(|id| id > sight.id)
            })
            && !may_be_missed(other, at)
    };
    let mut states = seen(state, sight, at, false);
    states.retain(|state| {
        let is_keyed = state.place(sight.no).is_some_and(|place| had_key(&state.messages[place]));
        is_keyed && !state.messages.iter().any(is_younger)
    });
    states
}

pub(super) fn seen(state: &State, sight: &Sight, at: At<'_>, lenient: bool) -> Vec<State> {
    let Some(place) = state.place(sight.no) else { return Vec::new() };
    let mut versions = state.versions(place, at, lenient);
    versions.retain_mut(|state| {
        let message = &mut state.messages[place];
        let under_way = u32::from(matches!(message.standing.phase, Phase::Leased(_)));
        message.is_id(sight.id)
            && message.is_due(sight.due)
            && message.standing.priority == sight.priority
            && message.standing.attempts + under_way == sight.attempt
            && message.standing.takes == sight.takes
            // A dead message whose key has a new owner may be shown with or without it.
            && (message.keyed == sight.keyed || message.death().is_some())
            && message.may_be_found(at)
            && sight.holder == held_by(message)
            && match (message.standing.phase, sight.shown) {
                (Phase::Pending, Shown::Scheduled) => at.window.wall.lo < sight.due,
                (Phase::Pending, Shown::Ready) => message.may_be_ready(at),
                (Phase::Leased(_), Shown::Leased(until)) => message.is_leased_until(until, at),
                (Phase::Dead(_), Shown::Dead(died)) => message.has_died_at(died),
                _ => false,
            }
    });
    versions
}

/// Who holds it, as far as that was said.
fn held_by(message: &Message) -> Option<u32> {
    match message.standing.phase {
        Phase::Leased(lease) => lease.holder,
        _ => None,
    }
}
