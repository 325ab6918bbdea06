//! A group: the messages whose fates are tied together, which are all that were ever put under one key of a
//! queue, or one message without a key. What each command makes of a group is a file each; this is the index.
//!
//! Ground rules:
//! 1. Written from the documentation, not from the store's code: it shares no line with `dwell_model::apply`.
//! 2. A function gives every state that is possible, and what was heard picks among them. What was not heard
//!    picks nothing, and adds the state in which nothing happened.

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
use super::message::{Death, Lease, Message, Phase, Standing};
use super::window::{At, Reading, Seq, Span, Window};

pub(crate) use change::{Changed, Move};
pub(crate) use dead::Raised;
pub(crate) use end::Ended;
pub(crate) use look::{Found, Shown, Sight};
pub(crate) use put::{Answered, OnConflict, PutHeard, Spec};
pub(crate) use settle::{Action, SettleHeard};
pub(crate) use sweep::Sweep;
pub(crate) use take::{Attempt, Delivered, TakenById, Terms};

/// All that is known of a group, in one of the ways in which it may be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct State {
    /// Its messages that are not gone for good, in the order of their puts.
    pub(crate) messages: Vec<Message>,
    /// What was answered under the tokens of puts that may be repeated, by the number of the put.
    pub(crate) answered: BTreeMap<u64, Answered>,
}

/// A message, as commands name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// By id: the message of this put.
    Message(u64),
    /// By key: whichever live message has the key of the group.
    Key,
}

/// When a message becomes due, as a command says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// At this instant, or at once if it is past.
    At(i64),
    /// So many milliseconds from now.
    After(i64),
    /// After some delay up to this many milliseconds: the backoff of the queue.
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

/// A command, and what was heard of it: nothing, if its outcome is unknown.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// A put, here or a repetition of it under its token.
    Put(Spec, Option<PutHeard>),
    /// A take that handed this over.
    Taken(Delivered),
    /// A take of which nothing was heard: it may have leased anything that was ready, on these terms.
    LostTake(Terms),
    /// A take that could not read all that it leased: it may have leased anything that was ready, on these terms.
    UnreadTake(Terms),
    /// What such a take could not read has been seen to: where it counts as tried it is due then. Not known to have happened
    /// unless `heard`.
    SentBack { due: Due, attempt: Attempt, heard: bool },
    /// What a take of which nothing was heard had leased may have gone back.
    GaveBack,
    /// All that such takes had leased has gone back by now.
    AllGaveBack,
    /// A take by id.
    TakeById { no: u64, terms: Terms, heard: Option<TakenById> },
    /// A settlement with the receipt of this token.
    Settle { no: u64, token: u128, action: Action, heard: Option<SettleHeard> },
    /// The end of the lease that a message was given as the take of this number.
    EndLease { no: u64, takes: u32, heard: Option<Ended> },
    /// A put of something else under the token of the put `no`, which was answered.
    Mismatch { no: u64, heard: PutHeard },
    /// A cancel.
    Cancel { target: Target, heard: Option<Changed> },
    /// A reschedule.
    Reschedule { target: Target, due: Due, heard: Option<Move> },
    /// A get that was answered; by key it looks for a dead message where none is live, if `dead`.
    Got { target: Target, dead: bool, found: Found },
    /// A message that a list showed.
    Listed(Sight),
    /// A revive of one dead message.
    Revive { no: u64, due: Due, heard: Option<Raised> },
    /// A discard of one dead message.
    Discard { no: u64, heard: Option<Raised> },
    /// Something done to all messages of the queue; not known to have happened unless `heard`.
    Sweep { sweep: Sweep, heard: bool },
    /// What a revive of all dead messages made of this one; not known to have happened unless `heard`.
    RevivedWithAll { no: u64, due: Due, heard: bool },
    /// The power failed; whatever had ended before `durable` was synced.
    PowerLoss { durable: Seq },
    /// The store was closed.
    Closed,
    /// The store was to be opened again, at this reading of the clocks, and could not be.
    TriedToOpen(Reading),
    /// The store was opened again, at this reading of the clocks.
    Reopened(Reading),
}

impl Effect for What {
    type State = State;

    fn keeps_order(&self) -> bool {
        !matches!(self, What::RevivedWithAll { .. })
    }

    fn after(&self, state: &State, at: At<'_>) -> Vec<State> {
        match self {
            What::Put(spec, heard) => put::after(state, spec, *heard, at),
            What::Taken(delivered) => take::taken(state, delivered, at),
            What::LostTake(terms) => take::lost(state, granted(None, *terms, at), at),
            What::UnreadTake(terms) => take::lost(state, granted_to_nobody(*terms, at), at),
            What::SentBack { due, attempt, heard } => take::sent_back(state, *due, *attempt, *heard, at),
            What::GaveBack => take::gave_back(state, at),
            What::AllGaveBack => take::all_gave_back(state, at),
            What::TakeById { no, terms, heard } => take::by_id(state, *no, *terms, heard.as_ref(), at),
            What::Settle { no, token, action, heard } => {
                settle::after(state, (*no, *token), action, *heard, at)
            }
            What::EndLease { no, takes, heard } => end::after(state, (*no, *takes), *heard, at),
            What::Mismatch { no, heard } => put::mismatched(state, *no, *heard),
            What::Cancel { target, heard } => change::cancel(state, *target, *heard, at),
            What::Reschedule { target, due, heard } => change::reschedule(state, *target, *due, *heard, at),
            What::Got { target, dead, found } => look::got(state, *target, *dead, found, at),
            What::Listed(sight) => look::seen(state, sight, at, true),
            What::Revive { no, due, heard } => dead::revive(state, *no, *due, *heard, at),
            What::Discard { no, heard } => dead::discard(state, *no, *heard, at),
            What::Sweep { sweep, heard } => sweep::after(state, *sweep, *heard, at),
            What::RevivedWithAll { no, due, heard } => sweep::revived(state, *no, *due, *heard, at),
            What::PowerLoss { durable } => crash::power_loss(state, *durable, at),
            What::Closed => crash::closed(state, at),
            What::TriedToOpen(now) => crash::tried_to_open(state, *now, at),
            What::Reopened(now) => crash::reopened(state, *now, at),
        }
    }
}

impl What {
    /// The message that it may have made known.
    pub(crate) fn tells_of(&self) -> Option<u64> {
        match self {
            What::Put(spec, _) => Some(spec.no),
            What::Taken(delivered) => Some(delivered.no),
            What::Listed(sight) => Some(sight.no),
            _ => None,
        }
    }

    /// The message that it may have met dead, and have let live or go.
    pub(crate) fn may_meet_dead(&self) -> Option<u64> {
        match self {
            What::TakeById { no, .. }
            | What::Revive { no, .. }
            | What::Discard { no, .. }
            | What::RevivedWithAll { no, .. } => Some(*no),
            _ => None,
        }
    }
}

impl State {
    /// This without those messages that are gone, where only what was not synced when `durable` began may be undone.
    pub(super) fn pruned(mut self, durable: Seq) -> State {
        let is_synced = |message: &Message| message.undo.iter().all(|(changed, _)| *changed < durable);
        self.messages.retain(|message| !(message.is_gone() && is_synced(message)));
        self
    }

    /// Where the message of this put is.
    fn place(&self, no: u64) -> Option<usize> {
        self.messages.iter().position(|message| message.no == no)
    }

    /// The live message that has the key.
    fn owner(&self) -> Option<usize> {
        self.messages.iter().position(Message::owns_key)
    }

    /// This, with all that time may have made of the message at `place`.
    fn versions(&self, place: usize, at: At<'_>, lenient: bool) -> Vec<State> {
        let with = |message| {
            let mut state = self.clone();
            state.messages[place] = message;
            state
        };
        self.messages[place].versions(at, lenient).into_iter().map(with).collect()
    }

    /// This, with all that time may have made of every message that may have the key.
    fn key_versions(&self, at: At<'_>) -> Vec<State> {
        let mut states = vec![self.clone()];
        for place in (0..self.messages.len()).filter(|place| self.messages[*place].owns_key()) {
            states = states.iter().flat_map(|state| state.versions(place, at, false)).collect();
        }
        states
    }

    /// All ways in which the message at `place` may stand, and where a command finds it that names its id: nowhere if it is gone,
    /// or its time is over.
    fn found(&self, place: usize, at: At<'_>) -> Vec<(State, Option<usize>)> {
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

    /// All ways in which the target may stand, and where it is.
    fn resolve(&self, target: Target, at: At<'_>) -> Vec<(State, Option<usize>)> {
        match target {
            Target::Message(no) => match self.place(no) {
                Some(place) => self.found(place, at),
                None => vec![(self.clone(), None)],
            },
            Target::Key => {
                let place = |state: State| {
                    let owner = state.owner();
                    (state, owner)
                };
                self.key_versions(at).into_iter().map(place).collect()
            }
        }
    }

    /// This with the message at `place` brought back from the dead.
    fn revived(&self, place: usize, due: Span, at: At<'_>) -> Vec<State> {
        let with = |after: Standing| {
            let mut state = self.clone();
            state.messages[place].change(|standing| *standing = after);
            state
        };
        Message::revived(&self.messages[place].standing, due, at).into_iter().map(with).collect()
    }

    /// This without the message at `place`.
    fn without(mut self, place: usize) -> State {
        self.messages.remove(place);
        self
    }

    /// All that time makes at once of the message at `place` that was just given back: an expired one is dead, or gone.
    fn settled_by_time(self, place: usize, at: At<'_>) -> Vec<State> {
        let versions = self.messages[place].clone().settled_by_time(at, false);
        let with = |message| {
            let mut state = self.clone();
            state.messages[place] = message;
            state
        };
        versions.into_iter().map(with).collect()
    }
}

/// The states that a command of unknown outcome may have left: what it would have done, or nothing.
fn or_nothing(heard: bool, state: &State, mut done: Vec<State>) -> Vec<State> {
    if !heard {
        done.push(state.clone());
    }
    done
}

/// A lease granted at `at`.
fn granted(token: Option<u128>, terms: Terms, at: At<'_>) -> Phase {
    lease(token, terms, false, at)
}

/// A lease of a message that could not be read.
fn granted_to_nobody(terms: Terms, at: At<'_>) -> Phase {
    lease(None, terms, true, at)
}

fn lease(token: Option<u128>, Terms { lease_ms, bound, holder }: Terms, unread: bool, at: At<'_>) -> Phase {
    Phase::Leased(Lease {
        token,
        until: at.window.mono.plus(lease_ms),
        until_wall: at.window.wall.plus(lease_ms),
        lease_ms,
        bound,
        unread,
        holder,
        since: at.begin,
        granted: at.end,
    })
}
