//! The walk over all queues that counts their present messages.
//!
//! Pages are small, and other calls run between them, so that a walk over many queues blocks nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use dwell_model::QueueName;
use dwell_store::{Error, QueueStats, StateCounts, Store};

use super::queues::OWN_SERIES;

/// The number of queues per page.
const PAGE: usize = 256;

/// Queues and their messages.
#[derive(Debug, Default)]
pub(crate) struct Census {
    /// The number of queues.
    pub(crate) queues: u64,
    /// The queues that are shown separately: those with series of their own, and those with the most messages.
    pub(crate) shown: Vec<(QueueName, QueueGauges)>,
    /// The sum of all others.
    pub(crate) other: QueueGauges,
}

/// The counts of one queue, or the sum of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueGauges {
    pub(crate) counts: StateCounts,
    pub(crate) waiting: u64,
}

impl QueueGauges {
    fn of(stats: &QueueStats) -> QueueGauges {
        QueueGauges { counts: stats.counts, waiting: stats.waiting }
    }

    fn add(&mut self, more: &QueueGauges) {
        self.counts.scheduled += more.counts.scheduled;
        self.counts.ready += more.counts.ready;
        self.counts.ready_urgent += more.counts.ready_urgent;
        self.counts.leased += more.counts.leased;
        self.counts.dead += more.counts.dead;
        self.waiting += more.waiting;
    }

    fn messages(&self) -> u64 {
        let StateCounts { scheduled, ready, ready_urgent: _, leased, dead } = self.counts;
        scheduled + ready + leased + dead
    }
}

impl Census {
    /// Walks over all queues. Those for which `is_shown` is true are shown separately, however few messages they have.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn walk(
        store: &dyn Store,
        is_shown: impl Fn(&QueueName) -> bool,
    ) -> Result<Census, Error> {
        let mut census = Census::default();
        // The largest so far, the smallest of them first.
        let mut largest: BinaryHeap<Reverse<(u64, QueueName)>> = BinaryHeap::new();
        let mut standings = std::collections::HashMap::new();
        let mut after = None;
        loop {
            let page = store.queues(after, PAGE.min(store.limits().batch.max(1))).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            for stats in &page {
                census.queues += 1;
                if stats.unread.is_some() {
                    // Its counts are unknown: no series claims that they are 0.
                    continue;
                }
                let standing = QueueGauges::of(stats);
                if is_shown(&stats.name) {
                    census.shown.push((stats.name.clone(), standing));
                    continue;
                }
                largest.push(Reverse((standing.messages(), stats.name.clone())));
                standings.insert(stats.name.clone(), standing);
                if largest.len() > OWN_SERIES
                    && let Some(Reverse((_, smallest))) = largest.pop()
                    && let Some(standing) = standings.remove(&smallest)
                {
                    census.other.add(&standing);
                }
            }
            tokio::task::yield_now().await;
        }
        census.shown.extend(standings);
        census.shown.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Ok(census)
    }
}
