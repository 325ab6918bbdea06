//! Put.

use dwell_model::{
    Command, IdempotencyKey, Invalid, Message, MessageId, Number, QueueName, Standing, StateKind,
};

use super::{ModelMessage, Reference, check_lease};
use crate::{Error, OnConflict, Put, PutAnswer, PutOutcome, Result};

impl Reference {
    /// Puts a message; id and number of a new one are those of the store's answer.
    pub(in super::super) fn put(&mut self, put: &Put, answer: Option<&PutAnswer>) -> Result<PutAnswer> {
        if let Some(known) =
            put.idempotency_key.as_ref().and_then(|idempotency_key| self.recall(&put.queue, idempotency_key))
        {
            let (answer, stands_for) = (known.answer, &known.stands_for);
            return if *stands_for == (put.key.clone(), put.body.clone()) {
                Ok(answer)
            } else {
                Err(Error::IdempotencyMismatch { id: answer.id })
            };
        }
        self.limits.check_body(put.body.len())?;
        check_lease(put.lease_ms)?;
        let settings = self.settings(&put.queue);
        let due = self.instant(&put.queue, put.when)?;
        let from = due.max(self.now.wall);
        if let Some(expires) = put.expires.filter(|expires| *expires <= from) {
            return Err(Invalid::ExpiresBeforeDue { expires, due: from }.into());
        }
        let owner = put.key.as_ref().and_then(|key| self.find_key(&put.queue, key));
        let owner_id = owner.map(|owner| self.kept[owner].message.id);
        let is_leased = owner.is_some_and(|owner| self.kept[owner].kind() == StateKind::Leased);
        match (owner, owner_id, put.on_conflict) {
            (Some(_), Some(id), OnConflict::Reject) => return Err(Error::KeyTaken { id }),
            (Some(_), Some(id), OnConflict::Keep) if is_leased => return Err(Error::Leased { id }),
            (Some(owner), _, OnConflict::Keep) => {
                if due < self.kept[owner].message.standing.due {
                    self.change(owner, &Command::BringForward(due)).expect("nobody holds it");
                    self.note_ready(owner);
                }
                let Message { id, number, ref standing, .. } = self.kept[owner].message;
                let answer = PutAnswer { id, number, due: standing.due, outcome: PutOutcome::Kept };
                self.remember(put, answer);
                return Ok(answer);
            }
            _ => {}
        }
        let limit = self.limits.queues;
        if !self.is_known(&put.queue) && self.queue_names().len() >= limit {
            return Err(Error::TooManyQueues { limit });
        }
        let makes_room = owner.is_some() && !is_leased;
        let pending = self.pending(&put.queue);
        if let Some(limit) = settings.max_pending.filter(|limit| pending >= *limit && !makes_room) {
            return Err(Error::QueueFull { queue: put.queue.clone(), limit });
        }
        if let Some(owner) = owner {
            let gives_way = if is_leased { Command::GiveUpKey } else { Command::Cancel };
            self.change(owner, &gives_way).expect("a live message gives way");
        }
        let placeholder = (MessageId::new(due, 0, 0, 0), Number::MAX);
        let (id, number) = answer.map_or(placeholder, |answer| (answer.id, answer.number));
        let outcome = owner_id.map_or(PutOutcome::Created, PutOutcome::Replaced);
        let answer = PutAnswer { id, number, due, outcome };
        self.check_identity(answer);
        self.keep(put, answer);
        self.remember(put, answer);
        Ok(answer)
    }

    fn keep(&mut self, put: &Put, answer: PutAnswer) {
        let message = Message {
            id: answer.id,
            number: answer.number,
            queue: put.queue.clone(),
            body: put.body.clone(),
            key: put.key.clone(),
            headers: put.headers.clone(),
            created: self.now.wall,
            lease_ms: put.lease_ms,
            max_attempts: put.max_attempts,
            standing: Standing::put(answer.due, put.priority, put.expires, self.now),
        };
        self.kept.push(ModelMessage { message, made_ready: self.now.wall, exact: true });
        self.let_time_act(self.kept.len() - 1);
    }

    fn check_identity(&mut self, answer: PutAnswer) {
        if !self.ids.insert(answer.id) {
            self.complaints.push(format!("id {} was used before", answer.id));
        }
        if answer.id.due_at_put() != answer.due {
            self.complaints.push(format!("id {} does not carry its due {}", answer.id, answer.due));
        }
        if self.highest >= Some(answer.number) {
            self.complaints.push(format!("number {} after {:?}", answer.number, self.highest));
        }
        self.highest = Some(answer.number);
    }

    /// Whether a store may have forgotten an idempotency key for good that it should know by a clock that has since
    /// stepped back.
    pub(in super::super) fn is_doubtful(&self, queue: &QueueName, idempotency_key: &IdempotencyKey) -> bool {
        let latest = self.latest;
        let now = self.now.wall;
        let mut known = self.idempotency_keys.iter().rev();
        known
            .find(|known| known.queue == *queue && known.idempotency_key == *idempotency_key)
            .is_some_and(|known| known.until <= latest && now < known.until)
    }

    fn recall(&self, queue: &QueueName, idempotency_key: &IdempotencyKey) -> Option<&super::Remembered> {
        let mut known = self.idempotency_keys.iter().rev();
        let known = known.find(|known| known.queue == *queue && known.idempotency_key == *idempotency_key)?;
        (self.now.wall < known.until).then_some(known)
    }

    fn remember(&mut self, put: &Put, answer: PutAnswer) {
        let Some(idempotency_key) = put.idempotency_key.clone() else { return };
        let until = self.now.wall.saturating_after(self.settings(&put.queue).idempotency_ms);
        let stands_for = (put.key.clone(), put.body.clone());
        self.idempotency_keys.push(super::Remembered {
            queue: put.queue.clone(),
            idempotency_key,
            stands_for,
            answer,
            until,
        });
    }

    fn pending(&self, queue: &QueueName) -> u64 {
        let here = |kept: &&ModelMessage| kept.message.queue == *queue && kept.is_pending();
        self.kept.iter().filter(here).count() as u64
    }
}
