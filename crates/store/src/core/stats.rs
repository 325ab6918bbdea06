//! Statistics of queues.

use dwell_model::{Now, QueueName};

use super::cold::ColdCounts;
use super::{Core, Log, StoredBody};
use crate::{QueueStats, Result};

impl<B: StoredBody> Core<B> {
    /// See [`Store::stats`](crate::Store::stats).
    ///
    /// # Errors
    /// [`Error::UnknownQueue`](crate::Error::UnknownQueue), [`Error::Unavailable`](crate::Error::Unavailable).
    pub fn stats(&mut self, queue: &QueueName, now: Now, log: &mut impl Log<B>) -> Result<QueueStats> {
        self.begin(now, log);
        let queue = self.known(queue, now, log)?;
        // Retries messages that could not be read when they expired, so that this agrees with a page of a
        // list that can be read. While they cannot be read, they count as before.
        let _ = self.expire_unread(queue, now, log);
        self.stats_of(queue, log)
    }

    /// See [`Store::queues`](crate::Store::queues). Returns at most as many queues as one call may have
    /// items. It may have [given up](Core::gave_up) on leases that have to run out.
    pub fn queues(
        &mut self,
        after: Option<&QueueName>,
        max: usize,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Vec<QueueStats> {
        self.begin(now, log);
        let max = max.min(self.config.limits.batch);
        let page = loop {
            let page = self.queues.page(after, max);
            if self.lapse_slice_of(&page, now, log) {
                self.gave_up = true;
                return Vec::new();
            }
            for queue in &page {
                self.touch(*queue, now, log);
            }
            // Expired messages may have been all that kept one of them. Then the page has room for another.
            if !self.remove_bare() {
                break page;
            }
        };
        let mut stats_or_why = |queue| {
            self.touch(queue, now, log);
            self.stats_of(queue, log).unwrap_or_else(|error| QueueStats {
                unread: Some(error),
                ..self.stats_with(queue, ColdCounts::default())
            })
        };
        page.into_iter().map(&mut stats_or_why).collect()
    }

    pub(super) fn stats_of(&self, queue: u32, log: &mut impl Log<B>) -> Result<QueueStats> {
        Ok(self.stats_with(queue, self.cold_counts(queue, log)?))
    }

    pub(super) fn stats_with(&self, queue: u32, cold: ColdCounts) -> QueueStats {
        let found = self.queues.get(queue);
        let next_due = found.scheduled.next_due_after(found.ready_until);
        QueueStats {
            name: found.name.clone(),
            counts: found.counts() + cold.counts,
            waiting: found.watch.as_ref().map_or(0, |watch| watch.waiting.len() as u64),
            next_due: next_due.into_iter().chain(cold.next_due).min(),
            settings: self.settings(queue).clone(),
            own: found.own.as_ref().map(|own| own.own.clone()).unwrap_or_default(),
            unread: None,
        }
    }
}
