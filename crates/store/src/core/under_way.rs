//! Revives and discards that go on, by queue: which of them mean a dead message, and how many of theirs are gone otherwise.
//!
//! # Ground rules
//! 1. Sweeps are counted in the order of their beginning. What was alive when one began was so when the ones before it did: of each
//!    message that died meanwhile one number is enough, that of the youngest sweep of its queue that had begun.
//! 2. A message costs one look-up of its queue and a binary search of the queue's sweeps; one that is dead no more also costs a step
//!    for each sweep of its queue that means it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use dwell_model::{QueueName, Timestamp};

use super::cold::Died;

/// All sweeps that may go on.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    /// The oldest first.
    by_queue: HashMap<QueueName, VecDeque<One>>,
}

/// What is known of one.
#[derive(Debug)]
struct One {
    number: u64,
    /// The wall time at which it began.
    own: Timestamp,
    /// The earliest wall time at which it or a younger one of its queue began: what was cold and expires later was alive when this
    /// one did.
    began: Timestamp,
    /// The latest wall time that the clock had been stepped back from: what had expired by then was dead, if it was there.
    stepped: Timestamp,
    /// Behind this message it goes on.
    after: Option<Died>,
    /// So many that it means behind `after` are dead no more.
    gone: u64,
    /// Nothing is there when it is over.
    alive: Weak<()>,
}

impl One {
    /// Whether a message was alive when it began that has expired while it was cold, in a file that was there when the clock was
    /// stepped back from `ripe`.
    fn knew_alive(&self, expires: Timestamp, ripe: Timestamp) -> bool {
        if expires > ripe { self.began < expires } else { self.own.max(self.stepped) < expires }
    }
}

impl UnderWay {
    /// A sweep begins; it goes on for as long as what is returned is there.
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
        let under_way = Arc::new(());
        let alive = Arc::downgrade(&under_way);
        of_queue.push_back(One { number, own: began, began, stepped, after: None, gone: 0, alive });
        under_way
    }

    /// Forgets those that are over; the number of the oldest that is not.
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

    /// The number of the youngest one of a queue that had begun when so many had, 0 if there is none.
    pub(super) fn last_to(&self, queue: &QueueName, begun: u64) -> u64 {
        self.last(queue, |one| one.number <= begun)
    }

    /// The number of the youngest one of a queue that had begun when a message expired which was cold then, 0 if none had. The
    /// clock was stepped back from `ripe` at the latest since its file is there.
    pub(super) fn last_before(&self, queue: &QueueName, expires: Timestamp, ripe: Timestamp) -> u64 {
        self.last(queue, |one| one.knew_alive(expires, ripe))
    }

    /// The number of the last one of a queue for which this is so, as it is for all before it.
    fn last(&self, queue: &QueueName, is_so: impl Fn(&One) -> bool) -> u64 {
        let Some(of_queue) = self.by_queue.get(queue) else { return 0 };
        let count = of_queue.partition_point(is_so);
        count.checked_sub(1).map_or(0, |last| of_queue[last].number)
    }

    /// A sweep goes on behind this message.
    pub(super) fn goes_on(&mut self, queue: &QueueName, number: u64, after: Option<Died>) {
        if let Some(one) = self.find(queue, number) {
            one.after = after;
        }
    }

    /// How many are gone that a sweep meant and had not come to.
    pub(super) fn gone(&mut self, queue: &QueueName, number: u64) -> u64 {
        self.find(queue, number).map_or(0, |one| one.gone)
    }

    /// A message is dead no more that had died when so many sweeps had begun.
    pub(super) fn went(&mut self, queue: &QueueName, died: Died, died_in: u64) {
        let Some(of_queue) = self.by_queue.get_mut(queue) else { return };
        let mean_it = of_queue.iter_mut().rev().take_while(|one| one.number > died_in);
        mean_it.filter(|one| one.after < Some(died)).for_each(|one| one.gone = one.gone.saturating_add(1));
    }

    /// All messages of a queue that were dead are so no more.
    pub(super) fn all_went(&mut self, queue: &QueueName) {
        self.by_queue.get_mut(queue).into_iter().flatten().for_each(|one| one.gone = u64::MAX);
    }

    fn find(&mut self, queue: &QueueName, number: u64) -> Option<&mut One> {
        let of_queue = self.by_queue.get_mut(queue)?;
        let at = of_queue.binary_search_by_key(&number, |one| one.number).ok()?;
        of_queue.get_mut(at)
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_queue.values().map(VecDeque::len).sum()
    }
}
