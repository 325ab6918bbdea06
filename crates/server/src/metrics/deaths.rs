//! Adds the store's counts of deaths and discards to the counts by queue.
//!
//! The store counts them by queue, for as long as its process has it open. Each page reads all of them, and what a
//! count has gained since the previous page is added to the series that the queue has at that time: as far as this
//! server knows, it happened just now. So the rules of [`queues`](super::queues) hold for these counts too. A queue's
//! count never moves to another series.
//!
//! A count that is lower than before shows that the store was opened again: all of that queue's counts are new. So are
//! those of a queue that the store did not name the time before.

use std::collections::HashMap;

use dwell_model::QueueName;
use dwell_store::{DeathCounts, DiscardCounts, QueueDeaths};

use super::queues::{DEATHS, DISCARDS, QueueMeters};

/// Counts in the order of [`DEATHS`] and [`DISCARDS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    deaths: [u64; DEATHS.len()],
    discards: [u64; DISCARDS.len()],
}

impl Counts {
    fn of(heard: &QueueDeaths) -> Counts {
        let DeathCounts { attempts, lapse, expiry, buried } = heard.deaths;
        let DiscardCounts { dead_ttl, dead_max, on_expiry, asked } = heard.discarded;
        Counts { deaths: [attempts, lapse, expiry, buried], discards: [dead_ttl, dead_max, on_expiry, asked] }
    }

    fn all(&self) -> impl Iterator<Item = u64> {
        self.deaths.into_iter().chain(self.discards)
    }

    /// The increase since `before`; the whole count, if any count has fallen.
    fn since(&self, before: &Counts) -> Counts {
        if self.all().zip(before.all()).any(|(now, before)| now < before) {
            return *self;
        }
        let mut new = *self;
        new.deaths.iter_mut().zip(before.deaths).for_each(|(now, before)| *now -= before);
        new.discards.iter_mut().zip(before.discards).for_each(|(now, before)| *now -= before);
        new
    }
}

/// The store's last counts, by queue; those of queues that it does not name, together under `None`.
#[derive(Debug, Default)]
pub(super) struct LastCounts(HashMap<Option<QueueName>, Counts>);

impl LastCounts {
    /// Adds the increase. The store names [at most](QueueDeaths::MAX_QUEUES) a fixed number of queues.
    pub(super) fn hear(&mut self, all: Vec<QueueDeaths>, queues: &QueueMeters) {
        let before = std::mem::replace(&mut self.0, HashMap::with_capacity(all.len()));
        for heard in all {
            let counts = Counts::of(&heard);
            let new = counts.since(&before.get(&heard.queue).copied().unwrap_or_default());
            let events: u64 = new.all().sum();
            if events > 0 {
                let own = heard.queue.as_ref().map(|queue| queues.of(queue, events));
                let meter = own.as_deref().unwrap_or_else(|| queues.other());
                meter.deaths.iter().zip(new.deaths).for_each(|(count, new)| count.add(new));
                meter.discards.iter().zip(new.discards).for_each(|(count, new)| count.add(new));
            }
            self.0.insert(heard.queue, counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::queues::{DEATH, Meter, OTHER, OWN_SERIES};
    use super::*;

    fn name(at: usize) -> QueueName {
        format!("q{at}").parse().unwrap()
    }

    /// A queue with this number of expired messages.
    fn expired(queue: Option<QueueName>, expiry: u64) -> QueueDeaths {
        let deaths = DeathCounts { expiry, ..DeathCounts::default() };
        QueueDeaths { queue, deaths, discarded: DiscardCounts::default() }
    }

    /// Every series of its own is taken.
    fn full() -> QueueMeters {
        let queues = QueueMeters::default();
        (0..OWN_SERIES).for_each(|at| queues.of(&name(at), 1).puts.add(1));
        queues
    }

    /// The count of the series with this label.
    fn shown(queues: &QueueMeters, label: &str) -> Option<u64> {
        let all: Vec<(String, Arc<Meter>)> = queues.all();
        let (_, meter) = all.iter().find(|(shown, _)| shown == label)?;
        Some(meter.deaths.iter().map(super::super::Counter::get).sum())
    }

    fn total(queues: &QueueMeters) -> u64 {
        queues.totals().iter().find(|(event, _)| *event == DEATH).unwrap().1
    }

    #[test]
    fn what_was_counted_among_the_others_stays_there_when_its_queue_has_its_own_series() {
        let (queues, mut heard) = (full(), LastCounts::default());
        let rising = name(1_000);
        heard.hear(vec![expired(Some(name(0)), 3), expired(Some(rising.clone()), 500)], &queues);
        assert_eq!((shown(&queues, "q0"), shown(&queues, OTHER)), (Some(3), Some(500)));
        queues.of(&rising, 100_000).puts.add(1);
        queues.rank(60_000);
        assert_eq!((shown(&queues, "q1000"), shown(&queues, OTHER)), (Some(0), Some(500)));
        heard.hear(vec![expired(Some(name(0)), 3), expired(Some(rising), 502)], &queues);
        assert_eq!((shown(&queues, "q1000"), shown(&queues, OTHER)), (Some(2), Some(500)));
        assert_eq!(total(&queues), 505);
    }

    #[test]
    fn what_a_queue_has_counted_that_loses_its_series_goes_to_no_other() {
        let (queues, mut heard) = (full(), LastCounts::default());
        let all = |more: u64| (0..OWN_SERIES).map(|at| expired(Some(name(at)), 10 + more)).collect();
        heard.hear(all(0), &queues);
        assert_eq!((shown(&queues, "q0"), shown(&queues, OTHER)), (Some(10), Some(0)));
        (0..OWN_SERIES).for_each(|at| queues.of(&name(1_000 + at), 1_000).puts.add(1));
        queues.rank(60_000);
        assert_eq!(
            (shown(&queues, "q0"), shown(&queues, OTHER)),
            (None, Some(0)),
            "no storm among the others"
        );
        heard.hear(all(1), &queues);
        assert_eq!(shown(&queues, OTHER), Some(OWN_SERIES as u64));
        assert_eq!(total(&queues), 11 * OWN_SERIES as u64, "what has left the page is kept");
    }

    #[test]
    fn nothing_is_counted_twice_and_a_count_that_fell_begins_anew() {
        let (queues, mut heard) = (QueueMeters::default(), LastCounts::default());
        for (count, sum) in [(5, 5), (5, 5), (7, 7), (3, 10), (4, 11)] {
            heard.hear(vec![expired(Some(name(0)), count), expired(None, 2)], &queues);
            assert_eq!((shown(&queues, "q0"), shown(&queues, OTHER)), (Some(sum), Some(2)), "{count}");
        }
        heard.hear(Vec::new(), &queues);
        heard.hear(vec![expired(Some(name(0)), 9)], &queues);
        assert_eq!(shown(&queues, "q0"), Some(20), "a store that did not name it has begun anew");
    }

    #[test]
    fn each_reason_is_counted_by_itself() {
        let (queues, mut heard) = (QueueMeters::default(), LastCounts::default());
        let all = QueueDeaths {
            queue: Some(name(0)),
            deaths: DeathCounts { attempts: 1, lapse: 2, expiry: 3, buried: 4 },
            discarded: DiscardCounts { dead_ttl: 5, dead_max: 6, on_expiry: 7, asked: 8 },
        };
        heard.hear(vec![all], &queues);
        let meter = queues.of(&name(0), 0);
        assert_eq!(meter.deaths.each_ref().map(super::super::Counter::get), [1, 2, 3, 4]);
        assert_eq!(meter.discards.each_ref().map(super::super::Counter::get), [5, 6, 7, 8]);
        assert_eq!(total(&queues), 10, "a discard is no death");
    }
}
