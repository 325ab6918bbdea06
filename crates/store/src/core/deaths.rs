//! Counts of deaths and discards, by queue and reason: see [`Store::deaths`](crate::Store::deaths).
//!
//! A count outlives its queue: a queue whose last message expires and is dropped is removed before the count
//! could be read. So the number of names is limited; the rest is counted together.

use std::collections::BTreeMap;

use dwell_model::{Death, DeathReason, QueueName};

use super::{Core, StoredBody};
use crate::{DeathCounts, DiscardCounts, QueueDeaths};

/// Why a message was discarded; see [`DiscardCounts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Discarded {
    Ttl,
    Max,
    OnExpiry,
    Asked,
}

/// The counts of all queues.
#[derive(Debug, Default)]
pub(super) struct Deaths {
    by_name: BTreeMap<QueueName, DeathTotals>,
    others: DeathTotals,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DeathTotals {
    deaths: DeathCounts,
    discarded: DiscardCounts,
}

impl Deaths {
    fn of(&mut self, queue: &QueueName) -> &mut DeathTotals {
        if !self.by_name.contains_key(queue) {
            if self.by_name.len() >= QueueDeaths::MAX_QUEUES {
                return &mut self.others;
            }
            self.by_name.insert(queue.clone(), DeathTotals::default());
        }
        self.by_name.entry(queue.clone()).or_default()
    }

    /// Counts a death; `by_lapse` says that the lease of the last attempt ran out.
    pub(super) fn died(&mut self, queue: &QueueName, death: Death, by_lapse: bool) {
        let deaths = &mut self.of(queue).deaths;
        let count = match death.reason {
            DeathReason::AttemptsSpent if by_lapse => &mut deaths.lapse,
            DeathReason::AttemptsSpent => &mut deaths.attempts,
            DeathReason::Buried => &mut deaths.buried,
            DeathReason::Expired => &mut deaths.expiry,
        };
        *count += 1;
    }

    /// Counts messages that expired in a table.
    pub(super) fn expired(&mut self, queue: &QueueName, count: u64) {
        self.of(queue).deaths.expiry += count;
    }

    /// Counts messages that were discarded.
    pub(super) fn discarded(&mut self, queue: &QueueName, why: Discarded, count: u64) {
        if count == 0 {
            return;
        }
        let discarded = &mut self.of(queue).discarded;
        let counted = match why {
            Discarded::Ttl => &mut discarded.dead_ttl,
            Discarded::Max => &mut discarded.dead_max,
            Discarded::OnExpiry => &mut discarded.on_expiry,
            Discarded::Asked => &mut discarded.asked,
        };
        *counted += count;
    }
}

impl<B: StoredBody> Core<B> {
    /// See [`Store::deaths`](crate::Store::deaths). Deaths during a replay do not count.
    pub fn deaths(&self) -> Vec<QueueDeaths> {
        let shown = |queue, counted: &DeathTotals| QueueDeaths {
            queue,
            deaths: counted.deaths,
            discarded: counted.discarded,
        };
        let named = self.deaths.by_name.iter().map(|(queue, counted)| shown(Some(queue.clone()), counted));
        let others = (self.deaths.others != DeathTotals::default()).then(|| shown(None, &self.deaths.others));
        named.chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_names_are_told_apart_and_nothing_is_lost_beyond() {
        let mut deaths = Deaths::default();
        for n in 0..QueueDeaths::MAX_QUEUES + 7 {
            deaths.expired(&QueueName::new(&format!("q{n}")).unwrap(), 2);
        }
        deaths.discarded(&QueueName::new("q0").unwrap(), Discarded::Asked, 3);
        deaths.discarded(&QueueName::new("new").unwrap(), Discarded::Max, 4);
        assert_eq!(deaths.by_name.len(), QueueDeaths::MAX_QUEUES);
        assert_eq!((deaths.others.deaths.expiry, deaths.others.discarded.dead_max), (14, 4));
        assert_eq!(deaths.by_name[&QueueName::new("q0").unwrap()].discarded.asked, 3);
    }
}
