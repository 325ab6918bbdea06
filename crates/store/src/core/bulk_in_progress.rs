//! Sweeps in progress, by queue: which of them include a dead message, and how many of theirs were removed
//! otherwise.
//!
//! # Ground rules
//! 1. Sweeps are numbered in the order in which they begin. A message that was alive when one began was alive
//!    when the ones before it did: of each message that died meanwhile one number is enough, that of the
//!    youngest sweep of its queue that had begun.
//! 2. A message costs one look-up of its queue and a binary search of the queue's sweeps; one that stops
//!    being dead also costs a step for each sweep of its queue that includes it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use dwell_model::{QueueName, Timestamp};

use super::cold::Died;

/// All sweeps in progress.
#[derive(Debug, Default)]
pub(super) struct BulkInProgress {
    /// The oldest first.
    by_queue: HashMap<QueueName, VecDeque<OneBulk>>,
}

/// One sweep in progress.
#[derive(Debug)]
struct OneBulk {
    number: u64,
    /// The wall time at which it began.
    own: Timestamp,
    /// The earliest wall time at which it or a younger one of its queue began: a message that was cold and
    /// expires later was alive when this one began.
    began: Timestamp,
    /// The latest wall time from which the clock stepped back: messages that had expired by then were dead,
    /// if they existed.
    stepped: Timestamp,
    /// The last message that it has looked at.
    after: Option<Died>,
    /// The number of messages after `after` that it includes and that are no longer dead.
    gone: u64,
    /// Dangling once the sweep has ended.
    alive: Weak<()>,
}

impl OneBulk {
    /// Whether a message was alive when the sweep began that has expired while it was cold, in a file that
    /// existed when the clock stepped back from `ready_until`.
    fn knew_alive(&self, expires: Timestamp, ready_until: Timestamp) -> bool {
        if expires > ready_until { self.began < expires } else { self.own.max(self.stepped) < expires }
    }
}

impl BulkInProgress {
    /// Registers a sweep; it is in progress for as long as the returned value exists.
    pub(super) fn begin(
        &mut self,
        queue: &QueueName,
        number: u64,
        began: Timestamp,
        stepped: Timestamp,
    ) -> Arc<()> {
        let of_queue = self.by_queue.entry(queue.clone()).or_default();
        // Where the clock was stepped back since they began.
        let later = of_queue.iter_mut().rev().take_while(|one| one.began > began);
        later.for_each(|one| one.began = began);
        let bulk_in_progress = Arc::new(());
        let alive = Arc::downgrade(&bulk_in_progress);
        of_queue.push_back(OneBulk { number, own: began, began, stepped, after: None, gone: 0, alive });
        bulk_in_progress
    }

    /// Forgets sweeps that have ended; returns the number of the oldest in progress.
    pub(super) fn oldest(&mut self) -> Option<u64> {
        self.by_queue.retain(|_, of_queue| {
            of_queue.retain(|one| one.alive.strong_count() > 0);
            !of_queue.is_empty()
        });
        self.by_queue.values().filter_map(|of_queue| of_queue.front()).map(|one| one.number).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_queue.is_empty()
    }

    /// The number of the youngest sweep of a queue among the first `begun`, 0 if there is none.
    pub(super) fn last_to(&self, queue: &QueueName, begun: u64) -> u64 {
        self.last(queue, |one| one.number <= begun)
    }

    /// The number of the youngest sweep of a queue that had begun when a message expired that was cold then,
    /// 0 if none had. `ready_until` is the latest time from which the clock stepped back while its file existed.
    pub(super) fn last_before(&self, queue: &QueueName, expires: Timestamp, ready_until: Timestamp) -> u64 {
        self.last(queue, |one| one.knew_alive(expires, ready_until))
    }

    /// The number of the last sweep of a queue for which this is true, as it is for all before it.
    fn last(&self, queue: &QueueName, is_so: impl Fn(&OneBulk) -> bool) -> u64 {
        let Some(of_queue) = self.by_queue.get(queue) else { return 0 };
        let count = of_queue.partition_point(is_so);
        count.checked_sub(1).map_or(0, |last| of_queue[last].number)
    }

    /// Sets the position of a sweep.
    pub(super) fn goes_on(&mut self, queue: &QueueName, number: u64, after: Option<Died>) {
        if let Some(one) = self.find(queue, number) {
            one.after = after;
        }
    }

    /// The number of messages that a sweep includes and that were removed before it reached them.
    pub(super) fn gone(&mut self, queue: &QueueName, number: u64) -> u64 {
        self.find(queue, number).map_or(0, |one| one.gone)
    }

    /// Notes that a message is no longer dead that had died when `died_in` sweeps had begun.
    pub(super) fn went(&mut self, queue: &QueueName, died: Died, died_in: u64) {
        let Some(of_queue) = self.by_queue.get_mut(queue) else { return };
        let mean_it = of_queue.iter_mut().rev().take_while(|one| one.number > died_in);
        mean_it.filter(|one| one.after < Some(died)).for_each(|one| one.gone = one.gone.saturating_add(1));
    }

    /// Notes that no message of a queue is dead any more.
    pub(super) fn all_went(&mut self, queue: &QueueName) {
        self.by_queue.get_mut(queue).into_iter().flatten().for_each(|one| one.gone = u64::MAX);
    }

    fn find(&mut self, queue: &QueueName, number: u64) -> Option<&mut OneBulk> {
        let of_queue = self.by_queue.get_mut(queue)?;
        let at = of_queue.binary_search_by_key(&number, |one| one.number).ok()?;
        of_queue.get_mut(at)
    }

    /// The number of sweeps.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_queue.values().map(VecDeque::len).sum()
    }
}
