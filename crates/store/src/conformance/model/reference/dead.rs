//! Retention of dead messages, and the counts of deaths and discards.

use std::collections::BTreeMap;

use dwell_model::{DeathReason, MessageId, QueueName, Standing, State, StateKind, Timestamp};

use super::Reference;
use crate::{DiscardCounts, QueueDeaths};

impl Reference {
    /// Discards what is past its queue's retention, the oldest deaths first.
    pub(super) fn retain(&mut self) {
        let now = self.now.wall;
        // The deaths by queue and partition, the oldest first.
        let mut places: BTreeMap<(QueueName, u16), Vec<(Timestamp, MessageId)>> = BTreeMap::new();
        for kept in &self.kept {
            if let State::Dead(death) = kept.message.standing.state {
                let (queue, id) = (kept.message.queue.clone(), kept.message.id);
                let place = self.place_of(&queue, id);
                places.entry((queue, place)).or_default().push((death.at, id));
            }
        }
        for ((queue, _), mut deaths) in places {
            deaths.sort();
            let settings = self.settings(&queue);
            let most = settings.dead_share(self.places_of(&queue));
            let most = most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
            let too_many = deaths.len().saturating_sub(most);
            for (n, (at, id)) in deaths.into_iter().enumerate() {
                if settings.is_past_retention(at, now) {
                    self.discard_for(&queue, id, |discarded| &mut discarded.dead_ttl);
                } else if n < too_many {
                    self.discard_for(&queue, id, |discarded| &mut discarded.dead_max);
                }
            }
        }
    }

    fn discard_for(&mut self, queue: &QueueName, id: MessageId, why: fn(&mut DiscardCounts) -> &mut u64) {
        let index = self.index_of(id);
        self.kept.remove(index);
        self.count_discarded(queue, why);
    }

    fn counted(&mut self, queue: &QueueName) -> &mut QueueDeaths {
        let new = || QueueDeaths { queue: Some(queue.clone()), ..QueueDeaths::default() };
        self.deaths.entry(queue.clone()).or_insert_with(new)
    }

    /// Counts a discarded message that no call had asked for.
    pub(super) fn count_discarded(&mut self, queue: &QueueName, why: fn(&mut DiscardCounts) -> &mut u64) {
        self.discarded = Some(self.now.mono_ms);
        *why(&mut self.counted(queue).discarded) += 1;
    }

    /// Counts messages that were discarded by a call.
    pub(super) fn count_asked(&mut self, queue: &QueueName, count: u64) {
        if count > 0 {
            self.counted(queue).discarded.asked += count;
        }
    }

    /// Counts the death of a message, if a change has made it dead.
    pub(super) fn count_death(&mut self, index: usize, before: &Standing) {
        let message = &self.kept[index].message;
        let (State::Dead(death), false) = (message.standing.state, before.state.kind() == StateKind::Dead)
        else {
            return;
        };
        let by_lapse = message.standing.counts.lapses > before.counts.lapses;
        let queue = message.queue.clone();
        let deaths = &mut self.counted(&queue).deaths;
        *match death.reason {
            DeathReason::AttemptsSpent if by_lapse => &mut deaths.lapse,
            DeathReason::AttemptsSpent => &mut deaths.attempts,
            DeathReason::Buried => &mut deaths.buried,
            DeathReason::Expired => &mut deaths.expiry,
        } += 1;
    }

    pub(in super::super) fn deaths(&self) -> Vec<QueueDeaths> {
        self.deaths.values().cloned().collect()
    }
}
