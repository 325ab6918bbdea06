//! What the store must answer, where everything that bears on it is certain.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use dwell_store::StateCounts;

use super::hear::Heard;
use super::message::{Lease, Message, Phase};
use super::policy::Policy;
use super::window::{At, EXPIRY_IN_LISTS_MS, Reading, Window};
use super::{Kind, Oracle, PAUSE, of_queue, register};

/// A message that must be handed out when its turn comes: in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ready {
    /// Smaller first.
    pub(crate) priority: u32,
    /// Then the earlier.
    pub(crate) due: i64,
    /// Then the smaller.
    pub(crate) id: u128,
    /// Where it is.
    pub(crate) queue: u32,
}

/// Whether a take that met queues without room in memory for what they hand out next has left out nothing else: what it got
/// of each queue comes first there, and all of it comes in order.
pub(crate) fn are_first_of_each(got: &[u128], ready: &[Ready]) -> bool {
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

/// How many messages a queue must have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tallies {
    /// Waiting for their instant.
    pub(crate) scheduled: u64,
    /// Due.
    pub(crate) ready: u64,
    /// Of these, those with a priority below 1,024.
    pub(crate) ready_urgent: u64,
    /// Handed out.
    pub(crate) leased: u64,
    /// Set aside.
    pub(crate) dead: u64,
}

impl Tallies {
    /// As the store counts.
    pub(crate) fn of(counts: &StateCounts) -> Tallies {
        let StateCounts { scheduled, ready, ready_urgent, leased, dead, .. } = *counts;
        Tallies { scheduled, ready, ready_urgent, leased, dead }
    }
}

/// What must be counted of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// Of the dead no fewer.
    tallies: Tallies,
    /// The most that may be counted as dead: retention takes some of them away, in its time.
    most_dead: u64,
}

impl Expected {
    /// Whether it may have been counted so.
    pub(crate) fn allows(&self, counted: Tallies) -> bool {
        let Tallies { dead, .. } = counted;
        self.tallies.dead <= dead && dead <= self.most_dead && Tallies { dead, ..self.tallies } == counted
    }

    /// What is wrong with a count that it does not allow.
    pub(crate) fn kind(&self, counted: Tallies) -> Kind {
        if counted.dead > self.most_dead { Kind::Retained } else { Kind::Contradiction }
    }
}

/// Where a message certainly is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Scheduled,
    Ready(Ready),
    Leased,
    Dead,
    /// It is not there.
    Nowhere,
}

impl Oracle {
    /// What a take from these queues must hand out at `now`, first things first; nothing if that is uncertain.
    pub(crate) fn ready(&self, queues: &[u32], now: Reading) -> Option<Vec<Ready>> {
        let mut ready = Vec::new();
        for queue in queues {
            if self.is_paused(*queue, now)? {
                continue;
            }
            let places = self.places(*queue, now, false)?;
            let leased = places.iter().filter(|(place, _)| *place == Place::Leased).count() as i64;
            let mut of_queue: Vec<Ready> = places
                .into_iter()
                .filter_map(|(place, _)| match place {
                    Place::Ready(message) => Some(message),
                    _ => None,
                })
                .collect();
            of_queue.sort_unstable();
            // At its cap a queue is as if paused.
            if let Some(most) = only(self.policy(*queue).max_leased(self.seq, self.seq))? {
                of_queue.truncate(usize::try_from(most - leased).unwrap_or(0));
            }
            ready.extend(of_queue);
        }
        ready.sort_unstable();
        Some(ready)
    }

    /// How many messages the queue must have at `now`; nothing if that is uncertain. A store that `rests` has discarded what it
    /// does not keep.
    pub(crate) fn tallies(&self, queue: u32, now: Reading, rests: bool) -> Option<Expected> {
        let (mut tallies, mut most_dead) = (Tallies::default(), 0);
        for (place, may_be_dead) in self.places(queue, now, rests)? {
            most_dead += u64::from(may_be_dead);
            match place {
                Place::Scheduled => tallies.scheduled += 1,
                Place::Ready(message) => {
                    tallies.ready += 1;
                    tallies.ready_urgent += u64::from(message.priority < dwell_model::DEFAULT_PRIORITY);
                }
                Place::Leased => tallies.leased += 1,
                Place::Dead => tallies.dead += 1,
                Place::Nowhere => {}
            }
        }
        if let (true, Some(Some(most))) = (rests, only(self.policy(queue).dead_maxes(self.seq, self.seq))) {
            most_dead = most_dead.min(most.unsigned_abs());
        }
        Some(Expected { tallies, most_dead })
    }

    /// Where each message of a queue is, and whether it may be dead; a dead one that may be gone counts as nowhere.
    fn places(&self, queue: u32, now: Reading, rests: bool) -> Option<Vec<(Place, bool)>> {
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
                        None => _ = seen.insert(Place::Nowhere),
                    }
                }
                let may_be_dead = seen.contains(&Place::Dead);
                let mut seen = seen.into_iter();
                places.push(match (seen.next(), seen.next(), seen.next()) {
                    (Some(place), None, None) => (place, may_be_dead),
                    (Some(Place::Dead), Some(Place::Nowhere), None) => (Place::Nowhere, may_be_dead),
                    _ => return None,
                });
            }
        }
        Some(places)
    }

    /// How many messages of a queue were certainly leased before a command began, and all the time until it ended.
    pub(super) fn certainly_leased(&self, queue: u32, heard: Heard) -> usize {
        let Heard { begin, end, window } = heard;
        let at = At { begin, end, window, rules: &self.rules, policy: self.policy(queue) };
        let is_leased = |message: &Message| {
            // What nobody was handed may have gone back already.
            let is_held = |lease: Lease| lease.token.is_some() && lease.granted < begin;
            let is_leased_before =
                |version: &Message| matches!(version.standing.phase, Phase::Leased(lease) if is_held(lease));
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
            register::Running::No => Some(true),
            register::Running::Perhaps => None,
            register::Running::Yes => Some(false),
        }
    }

    fn at(&self, queue: u32, now: Reading) -> At<'_> {
        let (window, policy) = (Window::between(now, now), self.policy(queue));
        At { begin: self.seq, end: self.seq, window, rules: &self.rules, policy }
    }

    /// What the settings of a queue may have been.
    pub(crate) fn policy(&self, queue: u32) -> &Policy {
        static NONE: LazyLock<Policy> = LazyLock::new(Policy::default);
        self.policies.get(&queue).unwrap_or(&NONE)
    }
}

/// The one value that a setting may have; nothing if there are several.
fn only<T>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

/// Where a message may be; nothing if that is known too badly. One that is dead, and which its queue does not keep, is gone
/// where the store `rests`.
fn place(queue: u32, message: &Message, at: At<'_>, rests: bool) -> Option<Vec<Place>> {
    message.versions(at, false).iter().map(|version| place_of(queue, version, at, rests)).collect()
}

fn place_of(queue: u32, message: &Message, at: At<'_>, rests: bool) -> Option<Place> {
    let due = message.standing.due;
    match message.standing.phase {
        Phase::Leased(_) => Some(Place::Leased),
        Phase::Gone(_) => Some(Place::Nowhere),
        Phase::Dead(death) => {
            let is_over = |ttl: Option<i64>| {
                let ends = ttl.map(|ttl| death.at.hi.saturating_add(ttl).saturating_add(EXPIRY_IN_LISTS_MS));
                ends.is_some_and(|ends| ends <= at.window.wall.lo)
            };
            let is_gone = rests && at.policy.dead_ttls(at.begin, at.end).all(is_over);
            Some(if is_gone { Place::Nowhere } else { Place::Dead })
        }
        Phase::Pending if due.lo != due.hi => None,
        Phase::Pending if due.hi <= at.window.wall.lo => {
            let id = message.id?;
            Some(Place::Ready(Ready { priority: message.standing.priority, due: due.lo, id, queue }))
        }
        // It may have become ready before the clock was stepped back.
        Phase::Pending if message.may_be_ready(at) => None,
        Phase::Pending => Some(Place::Scheduled),
    }
}
