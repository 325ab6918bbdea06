//! Reading messages, by id or key or as the first of their state, and finding them by number.

use dwell_model::{Message, MessageId, Now, Number, QueueName, StateKind, as_of};

use super::cold::{Died, HandedOver, Reader};
use super::{Core, Log, StoredBody};
use crate::{Error, Result, Target};

/// A peek at the oldest dead message that goes on.
#[derive(Debug)]
pub struct Peek {
    queue: QueueName,
    /// Nothing is dead up to here.
    after: Option<Died>,
    /// Whether it has not looked for anything yet.
    is_new: bool,
}

/// How far a peek is.
#[derive(Debug)]
pub enum Peeking<B> {
    /// It is over.
    Done(Option<Message<B>>),
    /// [`Core::go_on_peeking`] looks further.
    Unfinished(Peek),
}

impl Peek {
    /// The queue that it looks into.
    pub fn queue(&self) -> &QueueName {
        &self.queue
    }
}

impl<B: StoredBody> Core<B> {
    /// See [`Store::get`](crate::Store::get).
    pub fn get(
        &mut self,
        queue: &QueueName,
        targets: Vec<Target>,
        dead: bool,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Vec<Result<Message<B>>> {
        self.begin(now, log);
        self.each(targets, |core, target| {
            let found = core.known(queue, now, log)?;
            let slot = match (core.find_target(found, &target, now, log)?, &target) {
                (None, Target::Key(key)) if dead => core.find_dead_key(found, key, now, log)?,
                (found, _) => found,
            };
            let slot = slot.ok_or_else(|| Error::MessageNotFound { queue: queue.clone() })?;
            Ok(core.message(slot))
        })
    }

    /// See [`Store::peek`](crate::Store::peek). Where many dead messages are cold it reads some of them;
    /// [`Core::go_on_peeking`] reads the rest.
    ///
    /// # Errors
    /// [`Error::UnknownQueue`], [`Error::Unavailable`].
    pub fn peek(
        &mut self,
        queue: &QueueName,
        state: StateKind,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Peeking<B>> {
        match state {
            StateKind::Scheduled | StateKind::Leased => {
                Ok(Peeking::Done(self.list(queue, state, None, 1, now, log)?.messages.pop()))
            }
            StateKind::Ready => {
                self.begin(now, log);
                let found = self.known(queue, now, log)?;
                let first = self.first_ready(found, now, log)?;
                Ok(Peeking::Done(first.map(|(_, _, slot)| self.message(slot))))
            }
            StateKind::Dead => {
                let peek = Peek { queue: queue.clone(), after: None, is_new: true };
                self.go_on_peeking(peek, now, log)
            }
        }
    }

    /// Looks further for the oldest dead message. What dies between two calls may be missed: it died after the peek began.
    ///
    /// # Errors
    /// [`Error::UnknownQueue`], [`Error::Unavailable`].
    pub fn go_on_peeking(&mut self, mut peek: Peek, now: Now, log: &mut impl Log<B>) -> Result<Peeking<B>> {
        self.begin(now, log);
        let found = self.known(&peek.queue, now, log)?;
        let is_new = std::mem::take(&mut peek.is_new);
        if is_new {
            peek.after = self.last_past_retention(found, now);
        }
        let handed_over = self.page_in_dead(found, Reader::Peek, peek.after, is_new, 1, log)?;
        let first = self.oldest(found, &mut peek.after, handed_over, 1).first().map(|(_, slot)| *slot);
        Ok(match (first, handed_over) {
            (None, HandedOver::To(_)) => Peeking::Unfinished(peek),
            (first, _) => Peeking::Done(first.map(|slot| self.message(slot))),
        })
    }

    /// Whether time has removed a message: it has been dead for too long, or has expired and its queue drops what does.
    fn is_gone_by(&self, slot: u32, now: Now) -> bool {
        let has_expired = self.entries.get(slot).expires().is_some_and(|at| at <= now.wall);
        let is_dropped = || as_of(&self.standing(slot), now, self.rules(slot)).is_none();
        self.is_past_retention(slot, now) || has_expired && is_dropped()
    }

    /// Does all the rest of a peek, for who has nothing to do in between.
    ///
    /// # Errors
    /// As for [`Core::go_on_peeking`].
    pub fn finish_peek(
        &mut self,
        mut peeking: Peeking<B>,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Option<Message<B>>> {
        loop {
            match peeking {
                Peeking::Done(found) => return Ok(found),
                Peeking::Unfinished(peek) => peeking = self.go_on_peeking(peek, now, log)?,
            }
        }
    }

    /// Whether whoever goes through the dead messages of a queue, the oldest first, may have to read files for them.
    pub fn has_cold_dead(&self, queue: &QueueName) -> bool {
        self.queues.find(queue).is_some_and(|queue| self.queues.get(queue).cold.dead > 0)
    }

    /// See [`Store::locate`](crate::Store::locate). It touches no queue: what time has removed is not there, whether anybody has noticed
    /// that or not.
    pub fn locate(
        &mut self,
        numbers: Vec<Number>,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Vec<Result<Option<(QueueName, MessageId)>>> {
        self.each(numbers, |core, number| {
            let slot = core.find_number(number, log)?.filter(|slot| !core.is_gone_by(*slot, now));
            Ok(slot.map(|slot| {
                let entry = core.entries.get(slot);
                (core.queues.get(entry.queue).name.clone(), entry.id)
            }))
        })
    }
}
