//! The counts of deaths and discards that this process receives from scripts: see
//! [`Store::deaths`](dwell_store::Store::deaths).
//!
//! Each script returns what it has brought about. One that is called again, since its answer was lost, returns what
//! it had brought about the first time as well; if the call is not repeated, the counts are lost with the answer.

use std::collections::BTreeMap;

use dwell_model::QueueName;
use dwell_store::{DeathCounts, DiscardCounts, QueueDeaths};

use super::pack::PackReply;

/// The counts of all queues. They outlive their queues, so the number of names is bounded.
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
    /// Adds the counts that a script has returned for a queue.
    pub(super) fn note(&mut self, queue: &QueueName, reply: &PackReply) {
        let (died, discarded) = (reply.get("deaths"), reply.get("discards"));
        if !died.is_set() && !discarded.is_set() {
            return;
        }
        let is_known = self.by_name.contains_key(queue);
        let counted = match is_known || self.by_name.len() < QueueDeaths::MAX_QUEUES {
            true => self.by_name.entry(queue.clone()).or_default(),
            false => &mut self.others,
        };
        let deaths = &mut counted.deaths;
        add(died, [&mut deaths.attempts, &mut deaths.lapse, &mut deaths.expiry, &mut deaths.buried]);
        let gone = &mut counted.discarded;
        add(discarded, [&mut gone.dead_ttl, &mut gone.dead_max, &mut gone.on_expiry, &mut gone.asked]);
    }

    /// All counts, by queue name; those beyond the limit of names come last.
    pub(super) fn all(&self) -> Vec<QueueDeaths> {
        let shown = |queue, counted: &DeathTotals| QueueDeaths {
            queue,
            deaths: counted.deaths,
            discarded: counted.discarded,
        };
        // A script may return zeros.
        let named = self.by_name.iter().filter(|(_, counted)| **counted != DeathTotals::default());
        let named = named.map(|(queue, counted)| shown(Some(queue.clone()), counted));
        let others = (self.others != DeathTotals::default()).then(|| shown(None, &self.others));
        named.chain(others).collect()
    }
}

/// The indexes are those of `count` in `begin.lua`.
fn add(said: &PackReply, counts: [&mut u64; 4]) {
    for (place, count) in counts.into_iter().enumerate() {
        *count = count.saturating_add(said.at(place).uint().unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::super::pack::{Fields, Pack};
    use super::*;

    fn said(deaths: [u32; 4], discards: [u32; 4]) -> PackReply {
        let table = Fields::new().with("deaths", deaths.to_vec()).with("discards", discards.to_vec());
        PackReply::decode(&Pack::from(table).encoded().into()).unwrap()
    }

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    #[test]
    fn what_scripts_say_is_added_up_by_queue_and_reason() {
        let mut deaths = Deaths::default();
        deaths.note(&queue("b"), &said([1, 2, 3, 4], [5, 6, 7, 8]));
        deaths.note(&queue("b"), &said([1, 0, 0, 0], [0, 0, 0, 1]));
        deaths.note(&queue("a"), &said([0; 4], [0, 1, 0, 0]));
        deaths.note(&queue("c"), &said([0; 4], [0; 4]));
        let b = QueueDeaths {
            queue: Some(queue("b")),
            deaths: DeathCounts { attempts: 2, lapse: 2, expiry: 3, buried: 4 },
            discarded: DiscardCounts { dead_ttl: 5, dead_max: 6, on_expiry: 7, asked: 9 },
        };
        let discarded = DiscardCounts { dead_max: 1, ..DiscardCounts::default() };
        let a = QueueDeaths { queue: Some(queue("a")), discarded, ..QueueDeaths::default() };
        assert_eq!(deaths.all(), [a, b]);
    }

    #[test]
    fn beyond_the_limit_of_names_queues_are_counted_together() {
        let mut deaths = Deaths::default();
        for n in 0..QueueDeaths::MAX_QUEUES + 7 {
            deaths.note(&queue(&format!("q{n}")), &said([0, 0, 2, 0], [0; 4]));
        }
        let all = deaths.all();
        assert_eq!(all.len(), QueueDeaths::MAX_QUEUES + 1);
        let last = all.last().unwrap();
        assert_eq!((&last.queue, last.deaths.expiry), (&None, 14));
    }
}
