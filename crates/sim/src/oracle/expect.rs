//! The answers that the store must give, where all relevant state is certain.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use dwell_store::StateCounts;

use super::hear::Heard;
use super::message::{Lease, MessagePhase, TrackedMessage};
use super::policy::Policy;
use super::window::{At, EXPIRY_IN_LISTS_MS, Reading, Window};
use super::{Oracle, PAUSE, ViolationKind, of_queue, register};

/// A message that must be delivered in its turn. The fields define the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExpectedReady {
    /// The priority, smaller first.
    pub(crate) priority: u32,
    /// Then the due instant.
    pub(crate) due: i64,
    /// Then the id.
    pub(crate) id: u128,
    /// The queue.
    pub(crate) queue: u32,
}

/// Whether a take that skipped queues for lack of memory left out nothing else: the messages of each queue are the first
/// of that queue, and all messages are in order.
pub(crate) fn are_first_of_each(got: &[u128], ready: &[ExpectedReady]) -> bool {
    let mut left_out = BTreeSet::new();
    let mut taken = Vec::new();
    for one in ready {
        if !got.contains(&one.id) {
            left_out.insert(one.queue);
        } else if left_out.contains(&one.queue) {
            return false;
        } else {
            taken.push(one.id);
        }
    }
    got == taken
}

/// The message counts of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tallies {
    /// Scheduled messages.
    pub(crate) scheduled: u64,
    /// Ready messages.
    pub(crate) ready: u64,
    /// Ready messages with a priority below 1,024.
    pub(crate) ready_urgent: u64,
    /// Leased messages.
    pub(crate) leased: u64,
    /// Dead messages.
    pub(crate) dead: u64,
}

impl Tallies {
    /// The counts as the store reports them.
    pub(crate) fn of(counts: &StateCounts) -> Tallies {
        let StateCounts { scheduled, ready, ready_urgent, leased, dead, .. } = *counts;
        Tallies { scheduled, ready, ready_urgent, leased, dead }
    }
}

/// The counts that a queue may report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// The exact counts; of the dead messages the minimum.
    tallies: Tallies,
    /// The most dead messages that may be counted: retention discards some of them later.
    most_dead: u64,
}

impl Expected {
    /// Whether these counts are allowed.
    pub(crate) fn allows(&self, counted: Tallies) -> bool {
        let Tallies { dead, .. } = counted;
        self.tallies.dead <= dead && dead <= self.most_dead && Tallies { dead, ..self.tallies } == counted
    }

    /// The kind of violation if they are not.
    pub(crate) fn kind(&self, counted: Tallies) -> ViolationKind {
        if counted.dead > self.most_dead { ViolationKind::Retained } else { ViolationKind::Contradiction }
    }
}

/// The certain state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ExpectedPlace {
    Scheduled,
    Ready(ExpectedReady),
    Leased,
    Dead,
    /// It does not exist.
    Nowhere,
}

impl Oracle {
    /// The messages that a take from these queues must return at `now`, in order; `None` if that is uncertain.
    pub(crate) fn ready(&self, queues: &[u32], now: Reading) -> Option<Vec<ExpectedReady>> {
        let mut ready = Vec::new();
        for queue in queues {
            if self.is_paused(*queue, now)? {
                continue;
            }
            let places = self.places(*queue, now, false)?;
            let leased = places.iter().filter(|(place, _)| *place == ExpectedPlace::Leased).count() as i64;
            let mut of_queue: Vec<ExpectedReady> = places
                .into_iter()
                .filter_map(|(place, _)| match place {
                    ExpectedPlace::Ready(message) => Some(message),
                    _ => None,
                })
                .collect();
            of_queue.sort_unstable();
            // At its cap a queue is treated as paused.
            if let Some(most) = only(self.policy(*queue).max_leased(self.seq, self.seq))? {
                of_queue.truncate(usize::try_from(most - leased).unwrap_or(0));
            }
            ready.extend(of_queue);
        }
        ready.sort_unstable();
        Some(ready)
    }

    /// The counts that the queue may report at `now`; `None` if that is uncertain. A
    /// store that `rests` has discarded all messages past retention.
    pub(crate) fn tallies(&self, queue: u32, now: Reading, rests: bool) -> Option<Expected> {
        let (mut tallies, mut most_dead) = (Tallies::default(), 0);
        for (place, may_be_dead) in self.places(queue, now, rests)? {
            most_dead += u64::from(may_be_dead);
            match place {
                ExpectedPlace::Scheduled => tallies.scheduled += 1,
                ExpectedPlace::Ready(message) => {
                    tallies.ready += 1;
                    tallies.ready_urgent += u64::from(message.priority < dwell_model::DEFAULT_PRIORITY);
                }
                ExpectedPlace::Leased => tallies.leased += 1,
                ExpectedPlace::Dead => tallies.dead += 1,
                ExpectedPlace::Nowhere => {}
            }
        }
        if let (true, Some(Some(most))) = (rests, only(self.policy(queue).dead_maxes(self.seq, self.seq))) {
            most_dead = most_dead.min(most.unsigned_abs());
        }
        Some(Expected { tallies, most_dead })
    }

    /// The state of each message of a queue, and whether it may be dead; a dead one that may be gone counts as nowhere.
    fn places(&self, queue: u32, now: Reading, rests: bool) -> Option<Vec<(ExpectedPlace, bool)>> {
        let mut policy = self.policy(queue).clone();
        policy.crowd = self.crowd(queue).unwrap_or_default();
        let at = At { policy: &policy, ..self.at(queue, now) };
        let mut places = Vec::new();
        for (_, track) in self.groups.range(of_queue(queue)) {
            if track.waiting() > 0 || track.is_broken() {
                return None;
            }
            let numbers: BTreeSet<u64> =
                track.states.iter().flat_map(|state| &state.messages).map(|message| message.no).collect();
            for no in numbers {
                let mut seen = BTreeSet::new();
                for state in &track.states {
                    match state.messages.iter().find(|message| message.no == no) {
                        Some(message) => seen.extend(place(queue, message, at, rests)?),
                        None => _ = seen.insert(ExpectedPlace::Nowhere),
                    }
                }
                let may_be_dead = seen.contains(&ExpectedPlace::Dead);
                let mut seen = seen.into_iter();
                places.push(match (seen.next(), seen.next(), seen.next()) {
                    (Some(place), None, None) => (place, may_be_dead),
                    (Some(ExpectedPlace::Dead), Some(ExpectedPlace::Nowhere), None) => {
                        (ExpectedPlace::Nowhere, may_be_dead)
                    }
                    _ => return None,
                });
            }
        }
        Some(places)
    }

    /// The number of messages of a queue that were certainly leased from before a command began until it ended.
    pub(super) fn certainly_leased(&self, queue: u32, heard: Heard) -> usize {
        let Heard { begin, end, window } = heard;
        let at = At { begin, end, window, rules: &self.rules, policy: self.policy(queue) };
        let is_leased = |message: &TrackedMessage| {
            // A lease of a lost take may have been released already.
            let is_held = |lease: Lease| lease.token.is_some() && lease.granted < begin;
            let is_leased_before = |version: &TrackedMessage| matches!(version.standing.phase, MessagePhase::Leased(lease) if is_held(lease));
            message.versions(at, false).iter().all(is_leased_before)
        };
        let mut count = 0;
        for (_, track) in self.groups.range(of_queue(queue)) {
            if track.waiting() > 0 || track.is_broken() {
                continue;
            }
            let mut states = track.states.iter();
            let Some(first) = states.next() else { continue };
            let in_all = |no: u64| {
                let mut others = states.clone();
                others
                    .all(|state| state.messages.iter().any(|message| message.no == no && is_leased(message)))
            };
            count += first.messages.iter().filter(|message| is_leased(message) && in_all(message.no)).count();
        }
        count
    }

    fn is_paused(&self, queue: u32, now: Reading) -> Option<bool> {
        let Some(track) = self.settings.get(&(queue, PAUSE)) else { return Some(false) };
        if track.states.len() != 1 || track.waiting() > 0 || track.is_broken() {
            return None;
        }
        match track.states.first()?.running(self.at(queue, now)) {
            register::RunningWrite::No => Some(true),
            register::RunningWrite::Perhaps => None,
            register::RunningWrite::Yes => Some(false),
        }
    }

    fn at(&self, queue: u32, now: Reading) -> At<'_> {
        let (window, policy) = (Window::between(now, now), self.policy(queue));
        At { begin: self.seq, end: self.seq, window, rules: &self.rules, policy }
    }

    /// The values that the settings of a queue may have had.
    pub(crate) fn policy(&self, queue: u32) -> &Policy {
        static NONE: LazyLock<Policy> = LazyLock::new(Policy::default);
        self.policies.get(&queue).unwrap_or(&NONE)
    }
}

/// The single possible value of a setting; `None` if there are several.
fn only<T>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

/// The possible states of a message; `None` if too little is known. A dead message past retention is gone if the store `rests`.
fn place(queue: u32, message: &TrackedMessage, at: At<'_>, rests: bool) -> Option<Vec<ExpectedPlace>> {
    message.versions(at, false).iter().map(|version| place_of(queue, version, at, rests)).collect()
}

fn place_of(queue: u32, message: &TrackedMessage, at: At<'_>, rests: bool) -> Option<ExpectedPlace> {
    let due = message.standing.due;
    match message.standing.phase {
        MessagePhase::Leased(_) => Some(ExpectedPlace::Leased),
        MessagePhase::Gone(_) => Some(ExpectedPlace::Nowhere),
        MessagePhase::Dead(death) => {
            let is_over = |ttl: Option<i64>| {
                let ends = ttl.map(|ttl| death.at.hi.saturating_add(ttl).saturating_add(EXPIRY_IN_LISTS_MS));
                ends.is_some_and(|ends| ends <= at.window.wall.lo)
            };
            let is_gone = rests && at.policy.dead_ttls(at.begin, at.end).all(is_over);
            Some(if is_gone { ExpectedPlace::Nowhere } else { ExpectedPlace::Dead })
        }
        MessagePhase::Pending if due.lo != due.hi => None,
        MessagePhase::Pending if due.hi <= at.window.wall.lo => {
            let id = message.id?;
            Some(ExpectedPlace::Ready(ExpectedReady {
                priority: message.standing.priority,
                due: due.lo,
                id,
                queue,
            }))
        }
        // It may have become ready before the clock was stepped back.
        MessagePhase::Pending if message.may_be_ready(at) => None,
        MessagePhase::Pending => Some(ExpectedPlace::Scheduled),
    }
}
