//! What falls due: how many scheduled messages are due by given instants.

use dwell_model::{Invalid, QueueName, StateKind, Timestamp};

use super::{QueueStats, Result, Store};
use crate::Error;

/// How many scheduled messages are due by each of some instants.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Forecast {
    /// All scheduled messages of the queues in question, as [`Store::stats`] counts them: exact.
    pub scheduled: u64,
    /// For each instant, how many of them are due then or before.
    pub due_by: Vec<u64>,
    /// How far off each of these may be, at most; 0 where they are exact.
    pub within: u64,
}

impl Forecast {
    /// The most instants that one call may name.
    pub const MAX_EDGES: usize = 200;

    /// Nothing is scheduled; for so many instants.
    pub fn none(edges: usize) -> Forecast {
        Forecast { scheduled: 0, due_by: vec![0; edges], within: 0 }
    }

    /// Refuses more instants than one call may name.
    ///
    /// # Errors
    /// [`Invalid::BatchTooLarge`].
    pub fn check(edges: &[Timestamp]) -> Result<()> {
        match edges.len() {
            len if len > Forecast::MAX_EDGES => {
                Err(Invalid::BatchTooLarge { len, limit: Forecast::MAX_EDGES }.into())
            }
            _ => Ok(()),
        }
    }

    /// Adds other queues' messages, by the same instants.
    pub fn add(&mut self, other: &Forecast) {
        self.scheduled += other.scheduled;
        self.within += other.within;
        for (sum, more) in self.due_by.iter_mut().zip(&other.due_by) {
            *sum += more;
        }
    }
}

/// So many messages of all queues together does a store look through that cannot count by instant.
const LOOKED_THROUGH: usize = 1_000;

/// So many queues are asked for at a time.
const PAGE: usize = 256;

/// What each count is at least and at most.
struct Bounds<'a> {
    edges: &'a [Timestamp],
    scheduled: u64,
    low: Vec<u64>,
    high: Vec<u64>,
    /// How many messages may still be looked at.
    left: usize,
}

/// A forecast by the beginning of each list, and by each queue's earliest instant behind that.
pub(super) async fn estimated<S: Store + ?Sized>(
    store: &S,
    queues: Option<Vec<QueueName>>,
    edges: &[Timestamp],
) -> Result<Forecast> {
    Forecast::check(edges)?;
    let none = || vec![0; edges.len()];
    let mut bounds = Bounds { edges, scheduled: 0, low: none(), high: none(), left: LOOKED_THROUGH };
    if let Some(names) = queues {
        for name in names {
            let stats = store.stats(name).await?;
            bounds.look(store, &stats).await?;
        }
        return Ok(bounds.middle());
    }
    let mut after = None;
    loop {
        let page = store.queues(after, PAGE.min(store.limits().batch.max(1))).await?;
        let Some(last) = page.last() else { return Ok(bounds.middle()) };
        after = Some(last.name.clone());
        for stats in page.iter().filter(|stats| stats.unread.is_none()) {
            match bounds.look(store, stats).await {
                // It is gone since it was listed.
                Err(Error::UnknownQueue { .. }) => {}
                looked => looked?,
            }
        }
    }
}

impl Bounds<'_> {
    /// Takes in a queue.
    async fn look<S: Store + ?Sized>(&mut self, store: &S, stats: &QueueStats) -> Result<()> {
        let scheduled = stats.counts.scheduled;
        let first = stats.next_due.unwrap_or(Timestamp::MAX);
        let (mut dues, mut after) = (Vec::new(), None);
        while self.left > 0 && (dues.len() as u64) < scheduled {
            let max = self.left.min(store.limits().batch.max(1));
            let page = store.list(stats.name.clone(), StateKind::Scheduled, after, max).await?;
            self.left = self.left.saturating_sub(page.messages.len().max(1));
            dues.extend(page.messages.iter().map(|message| message.standing.due));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let is_all = dues.len() as u64 >= scheduled;
        // Where it is not all, no message that was not seen is due before the last one that was: but for those that cannot
        // be read, which are due at the first instant or later.
        let seen_to = if after.is_some() { dues.last().copied().unwrap_or(first) } else { first };
        self.scheduled += scheduled;
        for ((edge, low), high) in self.edges.iter().zip(&mut self.low).zip(&mut self.high) {
            let due = (dues.partition_point(|due| due <= edge) as u64).min(scheduled);
            *low += due;
            *high += if is_all || *edge < seen_to { due } else { scheduled };
        }
        Ok(())
    }

    /// The middle between the bounds, and how far off that may be.
    fn middle(self) -> Forecast {
        let apart = self.low.iter().zip(&self.high).map(|(low, high)| (high - low).div_ceil(2));
        let within = apart.max().unwrap_or_default();
        let due_by = self.low.iter().zip(&self.high).map(|(low, high)| low + (high - low) / 2).collect();
        Forecast { scheduled: self.scheduled, due_by, within }
    }
}
