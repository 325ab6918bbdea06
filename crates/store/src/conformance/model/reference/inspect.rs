//! Get, locate, list, stats, queues.

use dwell_model::{
    Cursor, DEFAULT_PRIORITY, Key, Message, MessageId, Number, QueueName, State, StateKind, Timestamp,
};

use super::Reference;
use crate::{Error, Page, QueueStats, Result, StateCounts, Target};

impl Reference {
    pub(in super::super) fn get(&self, queue: &QueueName, target: &Target, dead: bool) -> Result<Message> {
        self.known(queue)?;
        let found = match (self.find(queue, target), target) {
            (None, Target::Key(key)) if dead => self.find_dead_key(queue, key),
            (found, _) => found,
        };
        found.map(|index| self.shown(index)).ok_or_else(|| Error::MessageNotFound { queue: queue.clone() })
    }

    /// The youngest dead message that had the key.
    fn find_dead_key(&self, queue: &QueueName, key: &Key) -> Option<usize> {
        let had_it = |index: &usize| {
            let message = &self.kept[*index].message;
            message.queue == *queue && message.key.as_ref() == Some(key)
        };
        let death = |index: &usize| match self.kept[*index].message.standing.state {
            State::Dead(death) => Some((death.at, self.kept[*index].message.id)),
            _ => None,
        };
        (0..self.kept.len()).filter(had_it).max_by_key(death)
    }

    pub(in super::super) fn locate(&self, number: Number) -> Option<(QueueName, MessageId)> {
        let found = self.kept.iter().find(|kept| kept.message.number == number)?;
        Some((found.message.queue.clone(), found.message.id))
    }

    pub(in super::super) fn list(
        &self,
        queue: &QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Page> {
        self.known(queue)?;
        let cursor = |message: &Message| Cursor { due: message.standing.due, id: message.id };
        let mut messages: Vec<_> = (0..self.kept.len())
            .filter(|&index| self.kept[index].kind() == state)
            .map(|index| self.shown(index))
            .filter(|message| message.queue == *queue && Some(cursor(message)) > after)
            .collect();
        messages.sort_by_key(cursor);
        let more = messages.len() > max;
        messages.truncate(max);
        let next = messages.last().map(cursor).filter(|_| more);
        Ok(Page { messages, unread: Vec::new(), next })
    }

    pub(in super::super) fn stats(&self, queue: &QueueName) -> Result<QueueStats> {
        self.known(queue)?;
        Ok(self.stats_of(queue))
    }

    /// The due instants of the scheduled messages of a queue, or of all, in order.
    pub(in super::super) fn dues(&self, queue: Option<&QueueName>) -> Vec<Timestamp> {
        let scheduled = self.kept.iter().filter(|kept| {
            kept.kind() == StateKind::Scheduled && queue.is_none_or(|queue| kept.message.queue == *queue)
        });
        let mut dues: Vec<_> = scheduled.map(|kept| kept.message.standing.due).collect();
        dues.sort_unstable();
        dues
    }

    pub(in super::super) fn queues(&self, after: Option<&QueueName>, max: usize) -> Vec<QueueStats> {
        let names = self.queue_names().into_iter().filter(|name| Some(name) > after);
        names.take(max).map(|name| self.stats_of(&name)).collect()
    }

    pub(super) fn stats_of(&self, queue: &QueueName) -> QueueStats {
        let mut counts = StateCounts::default();
        let mut next_due: Option<Timestamp> = None;
        for kept in self.kept.iter().filter(|kept| kept.message.queue == *queue) {
            let standing = &kept.message.standing;
            match kept.kind() {
                StateKind::Scheduled => {
                    counts.scheduled += 1;
                    next_due = Some(next_due.map_or(standing.due, |next| next.min(standing.due)));
                }
                StateKind::Ready => {
                    counts.ready += 1;
                    counts.ready_urgent += u64::from(standing.priority < DEFAULT_PRIORITY);
                }
                StateKind::Leased => counts.leased += 1,
                StateKind::Dead => counts.dead += 1,
            }
        }
        QueueStats {
            name: queue.clone(),
            counts,
            waiting: self.waited_on.iter().filter(|name| *name == queue).count() as u64,
            next_due,
            settings: self.settings(queue),
            own: self.own.get(queue).cloned().unwrap_or_default(),
            unread: None,
        }
    }

    fn known(&self, queue: &QueueName) -> Result<()> {
        if self.is_known(queue) { Ok(()) } else { Err(Error::UnknownQueue { queue: queue.clone() }) }
    }

    /// Whether any message has expired, or was dropped by its expiry within the last minute.
    pub(in super::super) fn has_expired(&self) -> bool {
        let expired =
            |state| matches!(state, State::Dead(death) if death.reason == dwell_model::DeathReason::Expired);
        self.has_lately_discarded() || self.kept.iter().any(|kept| expired(kept.message.standing.state))
    }

    /// Whether a message has expired so recently that lists and counts need not show it yet.
    pub(in super::super) fn has_lately_expired(&self) -> bool {
        self.kept.iter().any(|kept| match kept.message.standing.state {
            State::Dead(death) => {
                death.reason == dwell_model::DeathReason::Expired && self.now.wall.ms_since(death.at) < 60_000
            }
            _ => false,
        })
    }

    /// The same for a message that was discarded by its queue's retention or expiry.
    pub(in super::super) fn has_lately_discarded(&self) -> bool {
        self.discarded.is_some_and(|at_ms| self.now.mono_ms.saturating_sub(at_ms) < 60_000)
    }

    /// The message as a reader sees it.
    pub(super) fn shown(&self, index: usize) -> Message {
        shown(self.kept[index].message.clone())
    }
}

/// A message without monotonic time, which differs between processes.
pub(in super::super) fn shown(mut message: Message) -> Message {
    if let State::Leased(lease) = &mut message.standing.state {
        lease.deadline_mono_ms = 0;
    }
    message
}
