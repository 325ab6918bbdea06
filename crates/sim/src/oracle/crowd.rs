//! Which messages of a queue may have died, and when at the latest: where a queue keeps so many dead messages, one that is not
//! there may have been discarded only if as many others died at the same time or later.
//!
//! It errs on the side of more. A message that may have died once counts for good, by the latest instant of its deaths.

use std::collections::BTreeMap;

use super::group::What;
use super::message::{Message, Phase};
use super::policy::{DEAD_MAX, Dying};
use super::track::Track;
use super::{GroupId, Oracle, known_of, of_queue};

/// Keeps which messages of a group are dead, or were and are gone.
pub(super) fn note_deaths(died: &mut BTreeMap<u64, i64>, track: &Track<What>) {
    for message in track.states.iter().flat_map(|state| &state.messages) {
        if let Phase::Dead(death) | Phase::Gone(Some(death)) = message.standing.phase {
            note(died, message.no, death.at.hi);
        }
    }
}

fn note(died: &mut BTreeMap<u64, i64>, no: u64, by: i64) {
    let known = died.entry(no).or_insert(by);
    *known = by.max(*known);
}

/// When a message has died at the latest, if it may have, by the time that the wall clock has shown `wall`.
fn dies_by(message: &Message, wall: i64) -> Option<i64> {
    let standing = &message.standing;
    let expires = standing.expires.filter(|expires| *expires <= wall);
    match standing.phase {
        Phase::Dead(death) | Phase::Gone(Some(death)) => Some(death.at.hi),
        Phase::Gone(None) => None,
        Phase::Pending => expires,
        Phase::Leased(lease) => {
            let is_last = message.max_attempts != 0 && standing.attempts + 1 >= message.max_attempts;
            is_last.then_some(lease.until_wall.hi).max(expires)
        }
    }
}

impl Oracle {
    /// A message may be dead, and not be so any more when what is heard now is explained.
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

    /// Whether what is to be explained of a group may depend on how many others have died. What dies by a command alone is looked
    /// for later.
    fn may_tell_of_dead(&self, group: GroupId) -> bool {
        let Some(track) = self.groups.get(&group) else { return false };
        let mut messages = track.states.iter().flat_map(|state| &state.messages);
        match track.unexplained().count() {
            0 => false,
            1 => messages.any(|message| dies_by(message, self.latest_wall).is_some()),
            _ => true,
        }
    }

    /// Counts those that may have died, for each queue that keeps so many and of which something is to be explained.
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

    /// The messages of a queue that may have died; nothing if it never kept only so many.
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
        Some(crowd.into_iter().map(|(no, by)| Dying { no, by }).collect())
    }
}
