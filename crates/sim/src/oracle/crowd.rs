//! Which messages of a queue may have died, and the latest instant of each death: if a queue limits its dead messages, a
//! missing one may have been discarded only if enough others died at the same time or later.
//!
//! The estimate is an upper bound. A message that may have died once counts for good, by the latest possible instant.

use std::collections::BTreeMap;

use super::group::GroupEvent;
use super::message::{MessagePhase, TrackedMessage};
use super::policy::{DEAD_MAX, Dying};
use super::track::Track;
use super::{Action, Address, GroupId, Oracle, StoreCall, known_of, of_queue};

/// Records which messages of a group are dead, or were dead and are gone.
pub(super) fn note_deaths(died: &mut BTreeMap<u64, i64>, track: &Track<GroupEvent>) {
    for message in track.states.iter().flat_map(|state| &state.messages) {
        if let MessagePhase::Dead(death) | MessagePhase::Gone(Some(death)) = message.standing.phase {
            note(died, message.no, death.at.hi);
        }
    }
}

fn note(died: &mut BTreeMap<u64, i64>, no: u64, by: i64) {
    let known = died.entry(no).or_insert(by);
    *known = by.max(*known);
}

/// The latest instant at which a message died, if it may have died before the wall clock showed `wall`.
fn dies_by(message: &TrackedMessage, wall: i64) -> Option<i64> {
    let standing = &message.standing;
    let expires = standing.expires.filter(|expires| *expires <= wall);
    match standing.phase {
        MessagePhase::Dead(death) | MessagePhase::Gone(Some(death)) => Some(death.at.hi),
        MessagePhase::Gone(None) => None,
        MessagePhase::Pending => expires,
        MessagePhase::Leased(lease) => {
            let is_last = message.max_attempts != 0 && standing.attempts + 1 >= message.max_attempts;
            is_last.then_some(lease.until_wall.hi).max(expires)
        }
    }
}

impl Oracle {
    /// Records a message that may be dead, and may no longer be dead once the new answers are explained.
    pub(super) fn may_have_died(&mut self, group: GroupId, no: u64) {
        let wall = self.latest_wall;
        let Some(track) = self.groups.get(&group) else { return };
        let known = track.states.iter().flat_map(|state| &state.messages).filter(|message| message.no == no);
        let by = match track.unexplained().next() {
            Some(_) => Some(i64::MAX),
            None => known.filter_map(|message| dies_by(message, wall)).max(),
        };
        if let Some(by) = by {
            note(self.died.entry(group.queue).or_default(), no, by);
        }
    }

    /// Whether an explanation for a group may depend on how many other
    /// messages have died. Deaths by a command alone are checked later.
    fn may_tell_of_dead(&self, group: GroupId) -> bool {
        let Some(track) = self.groups.get(&group) else { return false };
        let mut messages = track.states.iter().flat_map(|state| &state.messages);
        match track.unexplained().count() {
            0 => false,
            1 => messages.any(|message| dies_by(message, self.latest_wall).is_some()),
            _ => true,
        }
    }

    /// Counts the messages that may have died, for each queue with a limit and with answers to explain.
    pub(super) fn count_crowds(&mut self) {
        let mut queues: Vec<u32> = self
            .waiting
            .iter()
            .filter(|group| self.may_tell_of_dead(**group))
            .map(|group| group.queue)
            .collect();
        queues.dedup();
        for queue in queues {
            if let Some(crowd) = self.crowd(queue) {
                self.policies.entry(queue).or_default().crowd = crowd;
            }
        }
    }

    /// Whether a message may be leased under this token.
    fn may_hold(&self, message: Address, token: u128) -> bool {
        let is_held = |known: &TrackedMessage| match known.standing.phase {
            MessagePhase::Leased(lease) => lease.token.is_none_or(|held| held == token),
            MessagePhase::Pending | MessagePhase::Dead(_) | MessagePhase::Gone(_) => false,
        };
        let track = self.groups.get(&message.group());
        let states = track.into_iter().flat_map(|track| &track.states);
        states.flat_map(|state| &state.messages).any(|known| known.no == message.no && is_held(known))
    }

    /// The messages of a queue that may have died; `None` if the queue never had a limit.
    pub(super) fn crowd(&self, queue: u32) -> Option<Vec<Dying>> {
        self.policies.get(&queue).filter(|policy| policy.was_ever_set(DEAD_MAX))?;
        let mut crowd = self.died.get(&queue).cloned().unwrap_or_default();
        for (_, track) in self.groups.range(of_queue(queue)) {
            if track.unexplained().next().is_some() {
                known_of(track).into_iter().for_each(|no| note(&mut crowd, no, i64::MAX));
                continue;
            }
            for message in track.states.iter().flat_map(|state| &state.messages) {
                if let Some(by) = dies_by(message, self.latest_wall) {
                    note(&mut crowd, message.no, by);
                }
            }
        }
        // A bury under way may have buried its message.
        for (ask, ..) in self.open.values() {
            if let StoreCall::Settle { message, token, action: Action::Bury { .. } } = ask
                && message.queue == queue
                && self.may_hold(*message, *token)
            {
                note(&mut crowd, message.no, self.latest_wall);
            }
        }
        Some(crowd.into_iter().map(|(no, by)| Dying { no, by }).collect())
    }
}
