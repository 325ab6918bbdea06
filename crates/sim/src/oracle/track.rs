//! A track: one thing that commands change, the states in which it may be, and what has been heard since
//! those were worked out.
//!
//! Ground rule: deeds are explained once no command is under way that could still have come before one of
//! them. Until then they wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;

use super::linearize::{DeadEnd, Deed, Effect, Unexplained, explain};
use super::policy::Policy;
use super::window::{Rules, Seq};

/// How many explained deeds are kept for a report.
const HISTORY: usize = 24;

/// Deeds that nothing explains, and where the search for an explanation ended.
pub(super) type Contradiction<E> = (DeadEnd<<E as Effect>::State>, Vec<Deed<E>>);

/// What came of explaining.
pub(super) enum Settled<E: Effect> {
    /// There was nothing to do, or it is explained.
    Fine,
    /// It cannot be explained.
    Contradicted(Contradiction<E>),
    /// There are too many ways to explain it: it is not watched any longer.
    GivenUp,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Track<E: Effect> {
    /// The ways in which it may be.
    pub(super) states: BTreeSet<E::State>,
    deeds: Vec<Deed<E>>,
    /// Commands to it alone that are under way.
    open: BTreeMap<u64, Seq>,
    history: VecDeque<String>,
    /// A violation was reported, or what was heard could be explained in too many ways: what follows would only be noise.
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

    /// The command is over.
    pub(super) fn end(&mut self, op: u64) {
        self.open.remove(&op);
    }

    /// Something happened to it.
    pub(super) fn push(&mut self, deed: Deed<E>) {
        if !self.broken {
            self.deeds.push(deed);
        }
    }

    /// What has happened to it and waits to be explained.
    pub(super) fn unexplained(&self) -> impl Iterator<Item = &E> {
        self.deeds.iter().map(|deed| &deed.effect)
    }

    /// How many deeds wait to be explained.
    pub(super) fn waiting(&self) -> usize {
        self.deeds.len() + self.open.len()
    }

    /// Explains what waits, unless a command that began before `horizon` could still change it.
    pub(super) fn settle(&mut self, horizon: Seq, rules: &Rules, policy: &Policy) -> Settled<E> {
        let Some(last) = self.deeds.iter().map(|deed| deed.end).max() else { return Settled::Fine };
        if !self.open.is_empty() || horizon <= last {
            return Settled::Fine;
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
                Settled::Fine
            }
            Err(Unexplained::DeadEnd(end)) => {
                self.broken = true;
                Settled::Contradicted((end, deeds))
            }
            Err(Unexplained::TooMany) => {
                self.broken = true;
                Settled::GivenUp
            }
        }
    }

    /// What is known of it, for a report.
    pub(super) fn report(&self) -> String {
        let mut text = String::new();
        for line in &self.history {
            text.push_str("\n    ");
            text.push_str(line);
        }
        text
    }

    /// Whether it was found in contradiction, or is not watched any longer.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }
}
