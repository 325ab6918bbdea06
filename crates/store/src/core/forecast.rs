//! Forecast: counts of scheduled messages by instant, without reading any message.

use dwell_model::{Now, QueueName, Timestamp};

use super::queue::Queue;
use super::{Core, Log, StoredBody};
use crate::{Forecast, Result};

impl<B: StoredBody> Core<B> {
    /// See [`Store::forecast`](crate::Store::forecast): of one queue. Resident messages are counted exactly, cold ones as
    /// [`Cold::forecast`](super::Cold::forecast) does.
    ///
    /// # Errors
    /// [`Error::UnknownQueue`](crate::Error::UnknownQueue), [`Error::Unavailable`](crate::Error::Unavailable).
    pub fn forecast(
        &mut self,
        queue: &QueueName,
        edges: &[Timestamp],
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Forecast> {
        self.begin(now, log);
        let queue = self.known(queue, now, log)?;
        self.due_in(queue, edges, now.wall, log)
    }

    /// Forecasts up to `max` queues together, by name, starting with the first after `after`, and returns the
    /// last of them, if there was one. A queue that cannot be read is left out. It may have [given
    /// up](Core::gave_up) on lapsed leases: these may make messages scheduled, and scheduled messages may
    /// have expired.
    pub fn forecast_page(
        &mut self,
        after: Option<&QueueName>,
        max: usize,
        edges: &[Timestamp],
        now: Now,
        log: &mut impl Log<B>,
    ) -> (Forecast, Option<QueueName>) {
        self.begin(now, log);
        let page = self.queues.page(after, max);
        let mut sum = Forecast::none(edges.len());
        if self.lapse_slice_of(&page, now, log) {
            self.gave_up = true;
            return (sum, None);
        }
        for queue in &page {
            self.touch(*queue, now, log);
            if let Ok(forecast) = self.due_in(*queue, edges, now.wall, log) {
                sum.add(&forecast);
            }
        }
        (sum, page.last().map(|queue| self.queues.get(*queue).name.clone()))
    }

    fn due_in(
        &self,
        queue: u32,
        edges: &[Timestamp],
        wall: Timestamp,
        log: &mut impl Log<B>,
    ) -> Result<Forecast> {
        let found = self.queues.get(queue);
        // Time has acted on the queue; messages that are due count as ready.
        let ready_until = found.ready_until.max(wall);
        let mut sum = resident(found, edges, ready_until);
        if !found.cold.is_empty()
            && let Some(cold) = log.cold()
        {
            sum.add(&cold.forecast(&found.name, ready_until, edges)?);
        }
        Ok(sum)
    }
}

/// The queue's messages in memory.
fn resident(queue: &Queue, edges: &[Timestamp], ready_until: Timestamp) -> Forecast {
    let ready = queue.scheduled.count_by(ready_until);
    let due_by = |edge: &Timestamp| queue.scheduled.count_by(*edge).saturating_sub(ready);
    Forecast {
        scheduled: queue.scheduled.len() as u64 - ready,
        due_by: edges.iter().map(due_by).collect(),
        within: 0,
    }
}
