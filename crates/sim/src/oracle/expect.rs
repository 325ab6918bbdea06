//! What the store must answer, where everything that bears on it is certain.

use std::collections::BTreeSet;

use dwell_store::StateCounts;

use super::message::{Message, Phase};
use super::window::{At, Reading, Window};
use super::{Oracle, PAUSE, of_queue, register};

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

/// Where a message certainly is.
enum Place {
    Scheduled,
    Ready(Ready),
    Leased,
    Dead,
}

impl Oracle {
    /// What a take from these queues must hand out at `now`, first things first; nothing if that is uncertain.
    pub(crate) fn ready(&self, queues: &[u32], now: Reading) -> Option<Vec<Ready>> {
        let mut ready = Vec::new();
        for queue in queues {
            if self.is_paused(*queue, now)? {
                continue;
            }
            for place in self.places(*queue, now)? {
                if let Place::Ready(message) = place {
                    ready.push(message);
                }
            }
        }
        ready.sort_unstable();
        Some(ready)
    }

    /// How many messages the queue must have at `now`; nothing if that is uncertain.
    pub(crate) fn tallies(&self, queue: u32, now: Reading) -> Option<Tallies> {
        let mut tallies = Tallies::default();
        for place in self.places(queue, now)? {
            match place {
                Place::Scheduled => tallies.scheduled += 1,
                Place::Ready(message) => {
                    tallies.ready += 1;
                    tallies.ready_urgent += u64::from(message.priority < dwell_model::DEFAULT_PRIORITY);
                }
                Place::Leased => tallies.leased += 1,
                Place::Dead => tallies.dead += 1,
            }
        }
        Some(tallies)
    }

    fn places(&self, queue: u32, now: Reading) -> Option<Vec<Place>> {
        let at = self.at(now);
        let mut places = Vec::new();
        for (_, track) in self.groups.range(of_queue(queue)) {
            if track.states.len() != 1 || track.waiting() > 0 || track.is_broken() {
                return None;
            }
            for message in track.states.iter().flat_map(|state| &state.messages) {
                places.push(place(queue, message, at)?);
            }
        }
        Some(places)
    }

    fn is_paused(&self, queue: u32, now: Reading) -> Option<bool> {
        let Some(track) = self.settings.get(&(queue, PAUSE)) else { return Some(false) };
        if track.states.len() != 1 || track.waiting() > 0 || track.is_broken() {
            return None;
        }
        match track.states.first()?.running(self.at(now)) {
            register::Running::No => Some(true),
            register::Running::Perhaps => None,
            register::Running::Yes => Some(false),
        }
    }

    fn at(&self, now: Reading) -> At<'_> {
        At { begin: self.seq, end: self.seq, window: Window::between(now, now), rules: &self.rules }
    }
}

/// Where a message is; nothing if there are two ways to see it.
fn place(queue: u32, message: &Message, at: At<'_>) -> Option<Place> {
    let versions = message.versions(at, false);
    let [message] = versions.as_slice() else { return None };
    let due = message.standing.due;
    match message.standing.phase {
        Phase::Leased(_) => Some(Place::Leased),
        Phase::Dead => Some(Place::Dead),
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
