//! Queues as they are now.

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
        // What could not be read when it expired is tried again, so that a page of a list that can be read does not tell
        // otherwise. While it can not be read it counts as it was.
        let _ = self.expire_unread(queue, now, log);
        self.stats_of(queue, log)
    }

    /// See [`Store::queues`](crate::Store::queues). At most as many queues as one call may have items. It may have [given
    /// up](Core::gave_up) on leases that are to run out.
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable), if no queue of all can be read, or none of very many.
    pub fn queues(
        &mut self,
        after: Option<&QueueName>,
        max: usize,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Vec<QueueStats>> {
        self.begin(now, log);
        let batch = self.config.limits.batch;
        let most = max.min(batch);
        let (mut found, mut failures, mut last) = (Vec::new(), Vec::new(), after.cloned());
        // A page that is not full is the last one to whoever asks: so it goes on behind those that can not be read.
        while found.len() < most && (failures.len() < batch || !found.is_empty()) {
            let page = self.queues.page(last.as_ref(), most - found.len());
            let Some(end) = page.last() else { break };
            last = Some(self.queues.get(*end).name.clone());
            if self.lapse_slice_of(&page, now, log) {
                self.gave_up = true;
                return Ok(Vec::new());
            }
            for queue in page {
                self.touch(queue, now, log);
                match self.stats_of(queue, log) {
                    Ok(stats) => found.push(stats),
                    Err(error) => failures.push(error),
                }
            }
        }
        match failures.into_iter().next() {
            Some(error) if found.is_empty() && !self.can_read_to(after, log) => Err(error),
            _ => Ok(found),
        }
    }

    /// Whether some queue can be read of those up to this one, as far as one call goes.
    fn can_read_to(&self, to: Option<&QueueName>, log: &mut impl Log<B>) -> bool {
        let Some(to) = to else { return false };
        let page = self.queues.page(None, self.config.limits.batch);
        let mut before = page.into_iter().take_while(|queue| self.queues.get(*queue).name <= *to);
        before.any(|queue| self.stats_of(queue, log).is_ok())
    }

    pub(super) fn stats_of(&self, queue: u32, log: &mut impl Log<B>) -> Result<QueueStats> {
        Ok(self.stats_with(queue, self.cold_counts(queue, log)?))
    }

    pub(super) fn stats_with(&self, queue: u32, cold: ColdCounts) -> QueueStats {
        let found = self.queues.get(queue);
        let next_due = found.scheduled.next_due_after(found.ripe);
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
