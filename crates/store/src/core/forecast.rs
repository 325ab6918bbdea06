//! What falls due: counts of scheduled messages by instant. Nothing changes, and no message is looked at.

use dwell_model::{Now, QueueName, Timestamp};

use super::queue::Queue;
use super::{Core, StoredBody};
use crate::{Error, Forecast, Result};

impl<B: StoredBody> Core<B> {
    /// See [`Store::forecast`](crate::Store::forecast): the queue's messages in memory. Cold ones are for their owner to count.
    ///
    /// # Errors
    /// [`Error::UnknownQueue`].
    pub fn forecast(&self, queue: &QueueName, edges: &[Timestamp], now: Now) -> Result<Forecast> {
        match self.queues.find(queue) {
            Some(found) => Ok(of(self.queues.get(found), edges, now.wall)),
            None => Err(Error::UnknownQueue { queue: queue.clone() }),
        }
    }

    /// The same for up to `max` queues by name, from the first after `after` on, all together; and the last of them, if there
    /// was one.
    pub fn forecast_page(
        &self,
        after: Option<&QueueName>,
        max: usize,
        edges: &[Timestamp],
        now: Now,
    ) -> (Forecast, Option<QueueName>) {
        let page = self.queues.page(after, max);
        let mut sum = Forecast::none(edges.len());
        for queue in &page {
            sum.add(&of(self.queues.get(*queue), edges, now.wall));
        }
        (sum, page.last().map(|queue| self.queues.get(*queue).name.clone()))
    }
}

fn of(queue: &Queue, edges: &[Timestamp], wall: Timestamp) -> Forecast {
    // What has come is ready, though nobody has looked since. A message that is not due has not expired either.
    let ripe = queue.ripe.max(wall);
    let ready = queue.scheduled.count_by(ripe);
    let due_by = |edge: &Timestamp| queue.scheduled.count_by(*edge).saturating_sub(ready);
    Forecast {
        scheduled: queue.scheduled.len() as u64 - ready,
        due_by: edges.iter().map(due_by).collect(),
        within: 0,
    }
}
