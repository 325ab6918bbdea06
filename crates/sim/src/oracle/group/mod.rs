//! A group: messages whose states depend on each other, that is, all messages ever put under one key of a queue, or one
//! message without a key. The effects of each command are in a file each; this file is the index.
//!
//! Ground rules:
//! 1. It is written from the documentation, not from the store's code: it shares no line with `dwell_model::apply`.
//! 2. A function returns every possible state, and the answer selects among them. A command without an answer selects
//!    nothing, and adds the state in which it had no effect.

mod change;
mod crash;
mod dead;
mod end;
mod look;
mod put;
mod settle;
mod sweep;
mod take;

use std::collections::BTreeMap;

use super::linearize::Effect;
use super::message::{Belief, Death, Lease, MessagePhase, TrackedMessage};
use super::window::{At, Reading, Seq, Span, Window};

pub(crate) use change::{Changed, RescheduleTo};
pub(crate) use dead::Raised;
pub(crate) use end::Ended;
pub(crate) use look::{FoundMessage, ShownMessage, Sight};
pub(crate) use put::{OnConflict, PutHeard, Spec, StoredAnswer};
pub(crate) use settle::{Action, SettleHeard};
pub(crate) use sweep::Sweep;
pub(crate) use take::{Attempt, Delivered, TakenById, Terms};

/// One possible state of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GroupState {
    /// Its messages, except those that are gone for good, in the order of their puts.
    pub(crate) messages: Vec<TrackedMessage>,
    /// The answers under the idempotency keys that may be retried, by the number of the put.
    pub(crate) answered: BTreeMap<u64, StoredAnswer>,
}

/// A message as commands name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupTarget {
    /// By id: the message of this put.
    Message(u64),
    /// By key: the live message that has the key of the group.
    Key,
}

/// When a message becomes due, as a command specifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// At this instant, or at once if it is past.
    At(i64),
    /// This many milliseconds from now.
    After(i64),
    /// After a delay of up to this many milliseconds: the backoff of the queue.
    Within(i64),
}

impl Due {
    /// The instant, as far as it is known.
    fn span(self, window: &Window) -> Span {
        match self {
            Due::At(at) => Span { lo: at, hi: at.max(window.wall.hi) },
            Due::After(ms) => window.wall.plus(ms),
            Due::Within(ms) => Span { lo: window.wall.lo, hi: window.wall.hi.saturating_add(ms) },
        }
    }
}

/// A command with its answer: `None` if the outcome is unknown.
#[derive(Clone, Debug)]
pub(crate) enum GroupEvent {
    /// A put, or its retry under the same token.
    Put(Spec, Option<PutHeard>),
    /// A take that delivered this message.
    Taken(Delivered),
    /// A take without an answer: it may have leased any ready message, on these terms.
    LostTake(Terms),
    /// A take that could not read all that it leased: it may have leased any ready message, on these terms.
    UnreadTake(Terms),
    /// The messages that such a take could not read have been processed: if the attempt counts, the message is due then.
    /// Not known to have happened unless `heard`.
    SentBack { due: Due, attempt: Attempt, heard: bool },
    /// The leases of a take without an answer may have been released.
    GaveBack,
    /// The leases of all such takes have been released by now.
    AllGaveBack,
    /// A take by id.
    TakeById { no: u64, terms: Terms, heard: Option<TakenById> },
    /// A settlement with the receipt of this token.
    Settle { no: u64, token: u128, action: Action, heard: Option<SettleHeard> },
    /// The end of the lease that the take with this number granted.
    EndLease { no: u64, takes: u32, heard: Option<Ended> },
    /// A put of something else under the token of put `no`, which was answered.
    Mismatch { no: u64, heard: PutHeard },
    /// A cancel.
    Cancel { target: GroupTarget, heard: Option<Changed> },
    /// A reschedule.
    Reschedule { target: GroupTarget, due: Due, heard: Option<RescheduleTo> },
    /// A get that was answered; by key it also finds a dead message if none is live and `dead` is set.
    Got { target: GroupTarget, dead: bool, found: FoundMessage },
    /// A message that was shown in a list.
    Listed(Sight),
    /// A revive of one dead message.
    Revive { no: u64, due: Due, heard: Option<Raised> },
    /// A discard of one dead message.
    Discard { no: u64, heard: Option<Raised> },
    /// A bulk operation on the queue; not known to have happened unless `heard`.
    Sweep { sweep: Sweep, heard: bool },
    /// The effect of a revive of all on this message; not known to have happened unless `heard`.
    RevivedWithAll { no: u64, due: Due, heard: bool },
    /// The power failed; everything that had ended before `durable` was synced.
    PowerLoss { durable: Seq },
    /// The store was closed.
    Closed,
    /// An attempt to open the store at this reading of the clocks failed.
    TriedToOpen(Reading),
    /// The store was opened again, at this reading of the clocks.
    Reopened(Reading),
}

impl Effect for GroupEvent {
    type State = GroupState;

    fn keeps_order(&self) -> bool {
        !matches!(self, GroupEvent::RevivedWithAll { .. })
    }

    fn after(&self, state: &GroupState, at: At<'_>) -> Vec<GroupState> {
        match self {
            GroupEvent::Put(spec, heard) => put::after(state, spec, *heard, at),
            GroupEvent::Taken(delivered) => take::taken(state, delivered, at),
            GroupEvent::LostTake(terms) => take::lost(state, granted(None, *terms, at), at),
            GroupEvent::UnreadTake(terms) => take::lost(state, granted_to_nobody(*terms, at), at),
            GroupEvent::SentBack { due, attempt, heard } => {
                take::sent_back(state, *due, *attempt, *heard, at)
            }
            GroupEvent::GaveBack => take::gave_back(state, at),
            GroupEvent::AllGaveBack => take::all_gave_back(state, at),
            GroupEvent::TakeById { no, terms, heard } => take::by_id(state, *no, *terms, heard.as_ref(), at),
            GroupEvent::Settle { no, token, action, heard } => {
                settle::after(state, (*no, *token), action, *heard, at)
            }
            GroupEvent::EndLease { no, takes, heard } => end::after(state, (*no, *takes), *heard, at),
            GroupEvent::Mismatch { no, heard } => put::mismatched(state, *no, *heard),
            GroupEvent::Cancel { target, heard } => change::cancel(state, *target, *heard, at),
            GroupEvent::Reschedule { target, due, heard } => {
                change::reschedule(state, *target, *due, *heard, at)
            }
            GroupEvent::Got { target, dead, found } => look::got(state, *target, *dead, found, at),
            GroupEvent::Listed(sight) => look::seen(state, sight, at, true),
            GroupEvent::Revive { no, due, heard } => dead::revive(state, *no, *due, *heard, at),
            GroupEvent::Discard { no, heard } => dead::discard(state, *no, *heard, at),
            GroupEvent::Sweep { sweep, heard } => sweep::after(state, *sweep, *heard, at),
            GroupEvent::RevivedWithAll { no, due, heard } => sweep::revived(state, *no, *due, *heard, at),
            GroupEvent::PowerLoss { durable } => crash::power_loss(state, *durable, at),
            GroupEvent::Closed => crash::closed(state, at),
            GroupEvent::TriedToOpen(now) => crash::tried_to_open(state, *now, at),
            GroupEvent::Reopened(now) => crash::reopened(state, *now, at),
        }
    }
}

impl GroupEvent {
    /// The message that it may have made known.
    pub(crate) fn tells_of(&self) -> Option<u64> {
        match self {
            GroupEvent::Put(spec, _) => Some(spec.no),
            GroupEvent::Taken(delivered) => Some(delivered.no),
            GroupEvent::Listed(sight) => Some(sight.no),
            _ => None,
        }
    }

    /// The message that it may have found dead, and have revived or removed.
    pub(crate) fn may_meet_dead(&self) -> Option<u64> {
        match self {
            GroupEvent::TakeById { no, .. }
            | GroupEvent::Revive { no, .. }
            | GroupEvent::Discard { no, .. }
            | GroupEvent::RevivedWithAll { no, .. } => Some(*no),
            _ => None,
        }
    }
}

impl GroupState {
    /// The state without messages that are gone, where only what was not synced when `durable` began can be undone.
    pub(super) fn pruned(mut self, durable: Seq) -> GroupState {
        let is_synced = |message: &TrackedMessage| message.undo.iter().all(|(changed, _)| *changed < durable);
        self.messages.retain(|message| !(message.is_gone() && is_synced(message)));
        self
    }

    /// The index of the message of this put.
    fn place(&self, no: u64) -> Option<usize> {
        self.messages.iter().position(|message| message.no == no)
    }

    /// The index of the live message that has the key.
    fn owner(&self) -> Option<usize> {
        self.messages.iter().position(TrackedMessage::owns_key)
    }

    /// All versions of the state that time may have made of the message at `place`.
    fn versions(&self, place: usize, at: At<'_>, lenient: bool) -> Vec<GroupState> {
        let with = |message| {
            let mut state = self.clone();
            state.messages[place] = message;
            state
        };
        self.messages[place].versions(at, lenient).into_iter().map(with).collect()
    }

    /// All versions that time may have made of every message that may have the key.
    fn key_versions(&self, at: At<'_>) -> Vec<GroupState> {
        let mut states = vec![self.clone()];
        for place in (0..self.messages.len()).filter(|place| self.messages[*place].owns_key()) {
            states = states.iter().flat_map(|state| state.versions(place, at, false)).collect();
        }
        states
    }

    /// All versions of the message at `place`, each with the index at which a
    /// command by id finds it: `None` if it is gone or its time is over.
    fn found(&self, place: usize, at: At<'_>) -> Vec<(GroupState, Option<usize>)> {
        let mut found = Vec::new();
        for state in self.versions(place, at, false) {
            if state.messages[place].may_be_missed(at) {
                found.push((state.clone(), None));
            }
            if state.messages[place].may_be_found(at) {
                found.push((state, Some(place)));
            }
        }
        found
    }

    /// All versions of the target, each with its index.
    fn resolve(&self, target: GroupTarget, at: At<'_>) -> Vec<(GroupState, Option<usize>)> {
        match target {
            GroupTarget::Message(no) => match self.place(no) {
                Some(place) => self.found(place, at),
                None => vec![(self.clone(), None)],
            },
            GroupTarget::Key => {
                let place = |state: GroupState| {
                    let owner = state.owner();
                    (state, owner)
                };
                self.key_versions(at).into_iter().map(place).collect()
            }
        }
    }

    /// The state with the message at `place` revived.
    fn revived(&self, place: usize, due: Span, at: At<'_>) -> Vec<GroupState> {
        let with = |after: Belief| {
            let mut state = self.clone();
            state.messages[place].change(|standing| *standing = after);
            state
        };
        TrackedMessage::revived(&self.messages[place].standing, due, at).into_iter().map(with).collect()
    }

    /// The state without the message at `place`.
    fn without(mut self, place: usize) -> GroupState {
        self.messages.remove(place);
        self
    }

    /// The immediate effect of time on the message at `place`, which was just given back: an expired one is dead, or gone.
    fn settled_by_time(self, place: usize, at: At<'_>) -> Vec<GroupState> {
        let versions = self.messages[place].clone().settled_by_time(at, false);
        let with = |message| {
            let mut state = self.clone();
            state.messages[place] = message;
            state
        };
        versions.into_iter().map(with).collect()
    }
}

/// The states after a command of unknown outcome: those with its effect, and the one without.
fn or_nothing(heard: bool, state: &GroupState, mut done: Vec<GroupState>) -> Vec<GroupState> {
    if !heard {
        done.push(state.clone());
    }
    done
}

/// A lease granted at `at`.
fn granted(token: Option<u128>, terms: Terms, at: At<'_>) -> MessagePhase {
    lease(token, terms, false, at)
}

/// The lease of a message that could not be read.
fn granted_to_nobody(terms: Terms, at: At<'_>) -> MessagePhase {
    lease(None, terms, true, at)
}

fn lease(
    token: Option<u128>,
    Terms { lease_ms, session, holder }: Terms,
    unread: bool,
    at: At<'_>,
) -> MessagePhase {
    MessagePhase::Leased(Lease {
        token,
        until: at.window.mono.plus(lease_ms),
        until_wall: at.window.wall.plus(lease_ms),
        lease_ms,
        session,
        unread,
        holder,
        since: at.begin,
        granted: at.end,
    })
}
