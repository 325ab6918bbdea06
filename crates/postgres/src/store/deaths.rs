//! What has died and what was discarded, as calls of this process have noted: see [`Store::deaths`](dwell_store::Store::deaths).
//!
//! What a caller's own transaction brings about by the way is counted by nobody.

use std::collections::BTreeMap;

use dwell_model::QueueName;
use dwell_store::{DeathCounts, DiscardCounts, QueueDeaths};

/// The counts of all queues. They outlive their queues, so the names are limited in number.
#[derive(Debug, Default)]
pub(super) struct Deaths {
    by_name: BTreeMap<QueueName, [u64; 8]>,
    others: [u64; 8],
}

impl Deaths {
    /// Adds what a call has noted: an object of eight counts by queue, in the order of `note` in SQL.
    pub(super) fn add(&mut self, noted: &str) {
        let Ok(noted) = serde_json::from_str::<BTreeMap<String, [u64; 8]>>(noted) else { return };
        for (name, counts) in noted {
            let Ok(queue) = QueueName::new(&name) else { continue };
            let is_known = self.by_name.contains_key(&queue);
            let sums = match is_known || self.by_name.len() < QueueDeaths::MAX_QUEUES {
                true => self.by_name.entry(queue).or_default(),
                false => &mut self.others,
            };
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum = sum.saturating_add(count);
            }
        }
    }

    /// All of them, by name; those beyond the limit of names come last.
    pub(super) fn all(&self) -> Vec<QueueDeaths> {
        let named = self.by_name.iter().map(|(queue, counts)| shown(Some(queue.clone()), counts));
        let others = (self.others != [0; 8]).then(|| shown(None, &self.others));
        named.chain(others).collect()
    }
}

fn shown(queue: Option<QueueName>, counts: &[u64; 8]) -> QueueDeaths {
    let [attempts, lapse, expiry, buried, dead_ttl, dead_max, on_expiry, asked] = *counts;
    QueueDeaths {
        queue,
        deaths: DeathCounts { attempts, lapse, expiry, buried },
        discarded: DiscardCounts { dead_ttl, dead_max, on_expiry, asked },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_calls_have_noted_is_added_up_by_queue_and_reason() {
        let mut deaths = Deaths::default();
        deaths.add(r#"{"b": [1, 2, 3, 4, 5, 6, 7, 8], "a": [0, 0, 0, 0, 0, 1, 0, 0]}"#);
        deaths.add(r#"{"b": [1, 0, 0, 0, 0, 0, 0, 1]}"#);
        let name = |name| Some(QueueName::new(name).unwrap());
        let b = QueueDeaths {
            queue: name("b"),
            deaths: DeathCounts { attempts: 2, lapse: 2, expiry: 3, buried: 4 },
            discarded: DiscardCounts { dead_ttl: 5, dead_max: 6, on_expiry: 7, asked: 9 },
        };
        let discarded = DiscardCounts { dead_max: 1, ..DiscardCounts::default() };
        assert_eq!(deaths.all(), [QueueDeaths { queue: name("a"), discarded, ..QueueDeaths::default() }, b]);
    }

    #[test]
    fn beyond_the_limit_of_names_queues_are_counted_together() {
        let mut deaths = Deaths::default();
        for n in 0..QueueDeaths::MAX_QUEUES + 7 {
            deaths.add(&format!(r#"{{"q{n}": [0, 0, 2, 0, 0, 0, 0, 0]}}"#));
        }
        let all = deaths.all();
        assert_eq!(all.len(), QueueDeaths::MAX_QUEUES + 1);
        let last = all.last().unwrap();
        assert_eq!((&last.queue, last.deaths.expiry), (&None, 14));
    }
}
