//! Reading messages, by id or key or as the first of their state, and finding them by number.

use std::collections::VecDeque;

use dwell_model::{Message, MessageId, Now, Number, QueueName, StateKind, as_of};

use super::cold::{DeadProgress, DeadReader, DeadSearch, Died};
use super::placement::Searched;
use super::{Core, Log, StoredBody};
use crate::{Error, Result, Target};

/// A peek at the oldest dead message, in progress.
#[derive(Debug)]
pub struct Peek {
    queue: QueueName,
    /// There are no dead messages up to here.
    after: Option<Died>,
    /// Whether the search has not begun yet.
    is_new: bool,
}

/// The progress of a peek.
#[derive(Debug)]
pub enum Peeking<B> {
    /// It is complete.
    Done(Option<Message<B>>),
    /// [`Core::go_on_peeking`] continues it.
    Unfinished(Peek),
}

/// A get in progress: it searches for the youngest of many dead messages that had a key.
#[derive(Debug)]
pub struct Get<B> {
    queue: QueueName,
    /// The targets still to be read, in order.
    targets: VecDeque<Target>,
    dead: bool,
    /// The progress of the search for the first target.
    search: DeadSearch,
    answered: Vec<Result<Message<B>>>,
}

/// The progress of a get.
#[derive(Debug)]
pub enum Getting<B> {
    /// It is complete.
    Done(Vec<Result<Message<B>>>),
    /// [`Core::go_on_getting`] continues it.
    Unfinished(Box<Get<B>>),
}

impl<B> Get<B> {
    /// The queue that it reads.
    pub fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// The answer if the rest of it is refused.
    pub fn refused(self, error: &Error) -> Vec<Result<Message<B>>> {
        let rest = self.targets.iter().map(|_| Err(error.clone()));
        self.answered.into_iter().chain(rest).collect()
    }
}

impl Peek {
    /// The queue that it reads.
    pub fn queue(&self) -> &QueueName {
        &self.queue
    }
}

impl<B: StoredBody> Core<B> {
    /// See [`Store::get`](crate::Store::get). It completes what [`begin_get`](Core::begin_get) begins, for
    /// callers with nothing to do in between.
    pub fn get(
        &mut self,
        queue: &QueueName,
        targets: Vec<Target>,
        dead: bool,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Vec<Result<Message<B>>> {
        let mut getting = self.begin_get(queue, targets, dead, now, log);
        loop {
            match getting {
                Getting::Done(answers) => return answers,
                Getting::Unfinished(get) => {
                    self.slice.renew_looked_at();
                    getting = self.go_on_getting(get, now, log);
                }
            }
        }
    }

    /// See [`Store::get`](crate::Store::get). Where many cold dead messages had a key, it looks at some of
    /// them; [`Core::go_on_getting`] looks at the rest.
    pub fn begin_get(
        &mut self,
        queue: &QueueName,
        targets: Vec<Target>,
        dead: bool,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Getting<B> {
        if let Err(refusal) = self.config.limits.check_batch(targets.len()) {
            self.begin(now, log);
            return Getting::Done(targets.iter().map(|_| Err(refusal.clone().into())).collect());
        }
        let answered = Vec::with_capacity(targets.len());
        let (queue, targets) = (queue.clone(), targets.into());
        let get = Get { queue, targets, dead, search: DeadSearch::default(), answered };
        self.go_on_getting(Box::new(get), now, log)
    }

    /// Continues the search for the youngest dead message that had a key. A message that dies between two
    /// calls may be missed: it died after the get began.
    pub fn go_on_getting(&mut self, mut get: Box<Get<B>>, now: Now, log: &mut impl Log<B>) -> Getting<B> {
        self.begin(now, log);
        let before = get.answered.len();
        while let Some(target) = get.targets.front() {
            // The first look-ups of a key are made whatever is left of the slice, and a batch has thousands of keys.
            if get.dead && self.slice.looked_at == 0 && get.answered.len() > before {
                return Getting::Unfinished(get);
            }
            let answer = match self.get_one(&get.queue, target, get.dead, &mut get.search, now, log) {
                Ok(Searched::Unfinished) => return Getting::Unfinished(get),
                Ok(Searched::Found(Some(slot))) => Ok(self.message(slot)),
                Ok(Searched::Found(None)) => Err(Error::MessageNotFound { queue: get.queue.clone() }),
                Err(refusal) => Err(refusal),
            };
            get.targets.pop_front();
            get.search = DeadSearch::default();
            get.answered.push(answer);
        }
        Getting::Done(get.answered)
    }

    fn get_one(
        &mut self,
        queue: &QueueName,
        target: &Target,
        dead: bool,
        search: &mut DeadSearch,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Searched> {
        let found = self.known(queue, now, log)?;
        let live = match target {
            // It was looked for among the cold ones when the search began.
            Target::Key(key) if search.to.is_some() => self.resident_key(found, key),
            _ => self.find_target(found, target, now, log)?,
        };
        match (live, target) {
            (None, Target::Key(key)) if dead => self.find_dead_key(found, key, search, now, log),
            (found, _) => Ok(Searched::Found(found)),
        }
    }

    /// See [`Store::peek`](crate::Store::peek). Where many dead messages are cold, it reads some of them;
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

    /// Continues the search for the oldest dead message. One that dies between two calls may be missed: it
    /// died after the peek began.
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
        let handed_over = self.page_in_dead(found, DeadReader::Peek, peek.after, is_new, 1, log)?;
        let first = self.oldest(found, &mut peek.after, handed_over, 1).first().map(|(_, slot)| *slot);
        Ok(match (first, handed_over) {
            (None, DeadProgress::To(_)) => Peeking::Unfinished(peek),
            (first, _) => Peeking::Done(first.map(|slot| self.message(slot))),
        })
    }

    /// Whether time has removed a message: its retention is over, or it has expired and its queue drops what
    /// expires.
    fn is_gone_by(&self, slot: u32, now: Now) -> bool {
        let has_expired = self.entries.get(slot).expires().is_some_and(|at| at <= now.wall);
        let is_dropped = || as_of(&self.standing(slot), now, self.rules(slot)).is_none();
        self.is_past_retention(slot, now) || has_expired && is_dropped()
    }

    /// Completes a peek, for callers with nothing to do in between.
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

    /// Whether reading the dead messages of a queue, the oldest first, may require reading files.
    pub fn has_cold_dead(&self, queue: &QueueName) -> bool {
        self.queues.find(queue).is_some_and(|queue| self.queues.get(queue).cold.dead > 0)
    }

    /// See [`Store::locate`](crate::Store::locate). It touches no queue: a message that time has removed is
    /// not found, whether the removal has been processed or not.
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
