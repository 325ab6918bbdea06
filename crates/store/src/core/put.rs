//! Putting messages. The checks are: the idempotency key, validity, room for an idempotency key, the key, room, in this
//! order; a refusal changes nothing.

use dwell_model::{Command, Invalid, MessageId, Now, Number, QueueName, Standing, Timestamp};

use super::entry::{Entry, Position, RareFields};
use super::placement::check_lease;
use super::{Core, Durability, IdempotencyRecord, Log, PutRecord, Record, StoredBody};
use crate::{Error, OnConflict, Put, PutAnswer, PutOutcome, Result};

impl<B: StoredBody> Core<B> {
    /// See [`Store::put`](crate::Store::put).
    pub fn put(&mut self, puts: Vec<Put>, now: Now, log: &mut impl Log<B>) -> Vec<Result<PutAnswer>> {
        self.begin(now, log);
        self.each(puts, |core, put| core.put_one(put, now, log))
    }

    fn put_one(&mut self, put: Put, now: Now, log: &mut impl Log<B>) -> Result<PutAnswer> {
        if let Some(idempotency_key) = &put.idempotency_key {
            self.idempotency_keys.sweep(now.wall);
            if let Some((answer, stands_for)) =
                self.idempotency_keys.recall(&put.queue, idempotency_key, now.wall)
            {
                return if stands_for.may_be(put.digest()) {
                    Ok(answer)
                } else {
                    Err(Error::IdempotencyMismatch { id: answer.id })
                };
            }
        }
        self.config.limits.check_body(put.body.len())?;
        check_lease(put.lease_ms)?;
        let queue = self.touched(&put.queue, now, log);
        let settings = queue.map_or(&self.config.limits.defaults, |queue| self.settings(queue));
        let (max_pending, idempotency_ms) = (settings.max_pending, settings.idempotency_ms);
        let due = self.instant(put.when, settings, now)?;
        // A past instant is due now.
        let from = due.max(now.wall);
        if let Some(expires) = put.expires.filter(|expires| *expires <= from) {
            return Err(Invalid::ExpiresBeforeDue { expires, due: from }.into());
        }
        let until = now.wall.saturating_after(idempotency_ms);
        let idempotency_key = put.idempotency_key.clone().filter(|_| idempotency_ms > 0);
        let idempotency_key = idempotency_key.map(|idempotency_key| IdempotencyRecord {
            idempotency_key,
            until,
            digest: put.digest(),
        });
        if idempotency_key.is_some() {
            self.check_idempotency_keys(&put.queue, now.wall)?;
        }

        let owner = match (queue, &put.key) {
            (Some(queue), Some(key)) => self.find_key(queue, key, now, log)?,
            _ => None,
        };
        if let Some(owner) = owner {
            match put.on_conflict {
                OnConflict::Reject => return Err(Error::KeyTaken { id: self.entries.get(owner).id }),
                OnConflict::Keep => {
                    let answer = self.keep(owner, due, now, log)?;
                    if let Some(idempotency_key) = idempotency_key {
                        self.idempotency_keys.remember(&put.queue, &idempotency_key, answer);
                        let record = Record::Answered { queue: put.queue, idempotency_key, answer };
                        log.record(&record, Durability::Synced);
                    }
                    return Ok(answer);
                }
                OnConflict::Replace => {}
            }
        }
        if let Err(full) = self.check_room(queue, &put.queue, owner, max_pending) {
            // Expired messages take no room, whether they have been processed or not.
            let Some(found) = queue.filter(|_| self.is_behind) else { return Err(full) };
            if !self.is_behind_of(found, now, log) {
                return Err(full);
            }
            self.expire_cold_of(found, now, log);
            self.check_room(queue, &put.queue, owner, max_pending)?;
        }
        let (id, number) = self.next_identity(due)?;

        let replaces = owner.map(|owner| self.replace(owner, now, log));
        let record = PutRecord {
            id,
            number,
            queue: put.queue,
            due,
            priority: put.priority,
            created: now.wall,
            key: put.key,
            headers: put.headers,
            lease_ms: put.lease_ms,
            max_attempts: put.max_attempts,
            expires: put.expires,
            idempotency_key,
            replaces,
        };
        let body = log.put(&record, &put.body);
        let answer = record.answer();
        self.take_in(record, body);
        Ok(answer)
    }

    /// Keeps the message that has the key; the earlier instant wins.
    fn keep(&mut self, owner: u32, due: Timestamp, now: Now, log: &mut impl Log<B>) -> Result<PutAnswer> {
        let entry = self.entries.get(owner);
        let (id, number, stands) = (entry.id, entry.number, entry.due);
        if entry.place.is_leased() {
            return Err(Error::Leased { id });
        }
        if due < stands {
            self.change(owner, &Command::BringForward(due), now, Durability::Synced, log)
                .map_err(|refusal| self.refused_instant(owner, due, refusal))?;
            self.note_ready(owner, now.wall);
        }
        Ok(PutAnswer { id, number, due: due.min(stands), outcome: PutOutcome::Kept })
    }

    /// Checks that one more idempotency key may be remembered.
    fn check_idempotency_keys(&mut self, queue: &QueueName, wall: Timestamp) -> Result<()> {
        let (limit, of_queue) =
            (self.config.limits.idempotency_keys, self.config.limits.idempotency_keys_per_queue);
        let refuse = |reason: String| Err(Error::Overloaded { reason: reason.into() });
        if self.idempotency_keys.len() >= limit {
            return refuse(format!(
                "as many idempotency keys are remembered as may be, {limit}, each for its queue's idempotency_ms"
            ));
        }
        if self.idempotency_keys.len_of(queue) >= of_queue {
            // Idempotency keys of other queues may have run out before its own, and are dropped first.
            self.slice.idempotency_keys -=
                self.idempotency_keys.sweep_some(self.slice.idempotency_keys, wall);
        }
        if self.idempotency_keys.len_of(queue) >= of_queue {
            return refuse(format!(
                "as many idempotency keys of queue '{queue}' are remembered as may be, {of_queue}, each for its idempotency_ms"
            ));
        }
        Ok(())
    }

    /// Checks that there is room for one message more, if it takes the place of `owner`.
    fn check_room(
        &self,
        queue: Option<u32>,
        name: &QueueName,
        owner: Option<u32>,
        max_pending: Option<u64>,
    ) -> Result<()> {
        if queue.is_none() && self.queues.len() >= self.config.limits.queues {
            return Err(Error::TooManyQueues { limit: self.config.limits.queues });
        }
        let leaves = owner.is_some_and(|owner| self.entries.get(owner).place.is_pending());
        let pending = queue.map_or(0, |queue| self.queues.get(queue).pending());
        match max_pending {
            Some(limit) if pending >= limit && !leaves => {
                Err(Error::QueueFull { queue: name.clone(), limit })
            }
            _ => Ok(()),
        }
    }

    fn next_identity(&mut self, due: Timestamp) -> Result<(MessageId, Number)> {
        if self.next_counter > MessageId::MAX_COUNTER {
            return Err(Error::Exhausted { what: "message ids", needs_reopen: true });
        }
        let number = Number::new(self.next_number)
            .map_err(|_| Error::Exhausted { what: "message numbers", needs_reopen: false })?;
        let id = MessageId::new(due, self.config.shard, self.config.incarnation, self.next_counter);
        let in_step = self.numbering.note(id, number);
        assert!(in_step, "ids and numbers rise together");
        self.next_counter += 1;
        self.next_number += self.config.number_step;
        Ok((id, number))
    }

    /// Takes the key from the message that has it: a leased message stays, without a key; any other is
    /// removed.
    fn replace(&mut self, owner: u32, now: Now, log: &mut impl Log<B>) -> MessageId {
        let id = self.entries.get(owner).id;
        if self.entries.get(owner).place.is_leased() {
            self.change(owner, &Command::GiveUpKey, now, Durability::Synced, log)
                .expect("a leased message gives its key up");
        } else {
            self.drop_message(owner, log);
        }
        id
    }

    /// Creates the message and its idempotency key as a record says.
    pub(super) fn take_in(&mut self, record: PutRecord, body: B) {
        let answer = record.answer();
        if let Some(idempotency_key) = &record.idempotency_key {
            self.idempotency_keys.remember(&record.queue, idempotency_key, answer);
        }
        let queue = self.queues.find_or_insert(&record.queue);
        let wall = record.created;
        let standing = Standing::put(record.due, record.priority, record.expires, Now { wall, mono_ms: 0 });
        let plain = record.key.is_none()
            && record.headers.is_empty()
            && record.lease_ms.is_none()
            && record.max_attempts.is_none()
            && record.expires.is_none();
        let rare = (!plain).then(|| {
            Box::new(RareFields {
                key: record.key,
                headers: record.headers,
                lease_ms: record.lease_ms,
                max_attempts: record.max_attempts,
                expires: record.expires,
                ..RareFields::default()
            })
        });
        let entry = Entry {
            id: record.id,
            number: record.number,
            due: record.due,
            created: record.created,
            body,
            rare,
            copy: None,
            queue,
            priority: record.priority,
            attempts: 0,
            takes: 0,
            mark: self.span,
            place: Position::Ready,
            epoch: 0,
        };
        self.insert(entry, standing.state);
    }
}

impl PutRecord {
    /// The answer of the put, which its idempotency key repeats.
    pub fn answer(&self) -> PutAnswer {
        let outcome = self.replaces.map_or(PutOutcome::Created, PutOutcome::Replaced);
        PutAnswer { id: self.id, number: self.number, due: self.due, outcome }
    }
}
