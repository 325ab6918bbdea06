//! Tokens of puts, and the answers that they get again.
//!
//! A token belongs to a name, not to a queue: it is remembered though the queue has gone. What has run out
//! is dropped a few at a time by later puts, so that forgetting costs each put the same little.

use dwell_model::{PutToken, QueueName, Timestamp};
use dwell_time::TimingQueue;

use super::index::{SlotTable, TextHash};
use super::slab::Slab;
use crate::PutAnswer;

/// How many tokens that have run out each put may drop: more than it adds.
const SWEEP: usize = 3;

#[derive(Debug)]
struct Remembered {
    queue: QueueName,
    token: PutToken,
    answer: PutAnswer,
    until: Timestamp,
}

/// The tokens of all queues.
#[derive(Debug)]
pub(super) struct Tokens {
    hash: TextHash,
    slots: Slab<Remembered>,
    by_token: SlotTable,
    by_end: TimingQueue<u32>,
}

impl Tokens {
    pub(super) fn new() -> Tokens {
        Tokens {
            hash: TextHash::default(),
            slots: Slab::new(),
            by_token: SlotTable::new(),
            by_end: TimingQueue::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The answer that a put under `token` got, if it is remembered at `wall`.
    pub(super) fn recall(&self, queue: &QueueName, token: &PutToken, wall: Timestamp) -> Option<PutAnswer> {
        if self.slots.len() == 0 {
            return None;
        }
        let known = self.slots.get(self.find(queue, token)?);
        (wall < known.until).then_some(known.answer)
    }

    /// Remembers `answer` until `until`; what the token stood for before is forgotten.
    pub(super) fn remember(
        &mut self,
        queue: &QueueName,
        token: &PutToken,
        answer: PutAnswer,
        until: Timestamp,
    ) {
        if let Some(slot) = self.find(queue, token) {
            // Its old end finds it later, and sees that it has moved.
            let known = self.slots.get_mut(slot);
            (known.answer, known.until) = (answer, until);
            return;
        }
        let (queue, token) = (queue.clone(), token.clone());
        let hash = self.hash.token(&queue, &token);
        let slot = self.slots.insert(Remembered { queue, token, answer, until });
        self.by_token.insert(hash, slot, |slot| {
            let other = self.slots.get(slot);
            self.hash.token(&other.queue, &other.token)
        });
        self.by_end.insert(until.as_ms(), slot);
    }

    /// Drops a few of those that have run out.
    pub(super) fn sweep(&mut self, wall: Timestamp) {
        for _ in 0..SWEEP {
            let Some((_, slot)) = self.by_end.pop_due(wall.as_ms()) else { return };
            let known = self.slots.get(slot);
            if wall < known.until {
                self.by_end.insert(known.until.as_ms(), slot);
                continue;
            }
            self.by_token.remove(self.hash.token(&known.queue, &known.token), slot);
            self.slots.remove(slot);
        }
    }

    fn find(&self, queue: &QueueName, token: &PutToken) -> Option<u32> {
        self.by_token.find(self.hash.token(queue, token), |slot| {
            let known = self.slots.get(slot);
            known.token == *token && known.queue == *queue
        })
    }
}
