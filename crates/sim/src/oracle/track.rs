//! A track: one object that commands change, its possible states, and the answers received since those states were computed.
//!
//! Ground rule: deeds are explained once no command is under way that
//! could still have come before one of them. Until then they wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;

use super::linearize::{DeadEnd, Deed, Effect, Unexplained, explain};
use super::policy::Policy;
use super::window::{Rules, Seq};

/// The number of explained deeds that are kept for a report.
const HISTORY: usize = 24;

/// Deeds that nothing explains, and where the search ended.
pub(super) type Contradiction<E> = (DeadEnd<<E as Effect>::State>, Vec<Deed<E>>);

/// The result of explaining.
pub(super) enum SettledSince<E: Effect> {
    /// There was nothing to explain, or it is explained.
    Fine,
    /// There is no explanation.
    Contradicted(Contradiction<E>),
    /// There are too many explanations: the object is no longer checked.
    GivenUp,
}

/// A track; see the [module](self).
#[derive(Debug)]
pub(super) struct Track<E: Effect> {
    /// The possible states.
    pub(super) states: BTreeSet<E::State>,
    deeds: Vec<Deed<E>>,
    /// Commands under way that affect only this object.
    open: BTreeMap<u64, Seq>,
    history: VecDeque<String>,
    /// A violation was reported, or there were too many explanations: further reports would be noise.
    broken: bool,
}

impl<E: Effect + Debug> Track<E>
where
    E::State: Default + Debug,
{
    pub(super) fn new() -> Track<E> {
        Track {
            states: BTreeSet::from([E::State::default()]),
            deeds: Vec::new(),
            open: BTreeMap::new(),
            history: VecDeque::new(),
            broken: false,
        }
    }

    /// A command to it was sent.
    pub(super) fn begin(&mut self, op: u64, at: Seq) {
        self.open.insert(op, at);
    }

    /// The command has ended.
    pub(super) fn end(&mut self, op: u64) {
        self.open.remove(&op);
    }

    /// Adds a deed.
    pub(super) fn push(&mut self, deed: Deed<E>) {
        if !self.broken {
            self.deeds.push(deed);
        }
    }

    /// The deeds that wait to be explained.
    pub(super) fn unexplained(&self) -> impl Iterator<Item = &E> {
        self.deeds.iter().map(|deed| &deed.effect)
    }

    /// The number of deeds that wait to be explained.
    pub(super) fn waiting(&self) -> usize {
        self.deeds.len() + self.open.len()
    }

    /// Explains the waiting deeds, unless a command that began before `horizon` could still change the result.
    pub(super) fn settle(&mut self, horizon: Seq, rules: &Rules, policy: &Policy) -> SettledSince<E> {
        let Some(last) = self.deeds.iter().map(|deed| deed.end).max() else { return SettledSince::Fine };
        if !self.open.is_empty() || horizon <= last {
            return SettledSince::Fine;
        }
        let deeds = std::mem::take(&mut self.deeds);
        let outcome = explain(&self.states, &deeds, rules, policy);
        for deed in &deeds {
            if self.history.len() == HISTORY {
                self.history.pop_front();
            }
            self.history.push_back(format!("{deed:?}"));
        }
        match outcome {
            Ok(states) => {
                self.states = states;
                SettledSince::Fine
            }
            Err(Unexplained::DeadEnd(end)) => {
                self.broken = true;
                SettledSince::Contradicted((end, deeds))
            }
            Err(Unexplained::TooMany) => {
                self.broken = true;
                SettledSince::GivenUp
            }
        }
    }

    /// The state and history, for a report.
    pub(super) fn report(&self) -> String {
        let mut text = String::new();
        for line in &self.history {
            text.push_str("\n    ");
            text.push_str(line);
        }
        text
    }

    /// Whether a violation was found, or the object is no longer checked.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }
}
