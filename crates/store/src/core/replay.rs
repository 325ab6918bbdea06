//! Rebuilding the same core from the records of its log.
//!
//! Time needs little care here: changes by the clock are recorded, except that messages became ready, and
//! between two steps of the clock back it does not matter whether a message became ready at once or at the
//! end.

use dwell_model::{Command, Key, Message, Now, Number, QueueName, Standing, State, Timestamp};
use thiserror::Error;

use super::deaths::Deaths;
use super::entry::Position;
use super::queue::mono;
use super::{
    Cold, ColdMessage, Core, DeadProgress, DeadReader, Durability, Log, PutRecord, Record, StoredBody,
};

/// A record that cannot follow those before it: the log belongs to another core, or is incomplete.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("message {number} {reason}")]
pub struct ReplayError {
    /// The message of the record.
    pub number: Number,
    /// What is wrong.
    pub reason: &'static str,
}

impl<B: StoredBody> Core<B> {
    /// Replays a put. `body` is the location of its body.
    ///
    /// # Errors
    /// [`ReplayError`]; nothing has changed then.
    pub fn replay_put(&mut self, record: PutRecord, body: B) -> Result<(), ReplayError> {
        let number = record.number;
        let refuse = |reason| Err(ReplayError { number, reason });
        if record.id.incarnation() >= self.config.incarnation {
            return refuse("was put by this incarnation or a later one");
        }
        if self.resident_number(number).is_some() {
            return refuse("was put twice");
        }
        if let Some(queue) = self.queues.find(&record.queue)
            && record.key.as_ref().is_some_and(|key| self.resident_key(queue, key).is_some())
        {
            return refuse("has the key of another live message");
        }
        if record.id.shard() != self.config.shard {
            return refuse("is of another shard");
        }
        if !self.numbering.note(record.id, number) {
            return refuse("has a number that is out of step with its id");
        }
        self.next_number = self.next_number.max(number.get() + self.config.number_step);
        self.take_in(record, body);
        Ok(())
    }

    /// Replays any other record.
    ///
    /// # Errors
    /// [`ReplayError`]; nothing has changed then.
    pub fn replay(&mut self, record: Record) -> Result<(), ReplayError> {
        self.replay_with(record, None)
    }

    /// The same where messages may be cold.
    ///
    /// # Errors
    /// [`ReplayError`]; also if a cold message cannot be read.
    pub fn replay_with(&mut self, record: Record, cold: Option<&mut dyn Cold<B>>) -> Result<(), ReplayError> {
        let log = &mut Replaying(cold);
        match record {
            Record::Stands { number, standing } => {
                let slot = self.replayed(number, log)?;
                let entry = self.entries.get(slot);
                let (dead, queue) = (matches!(standing.state, State::Dead(_)), entry.queue);
                let key = entry.key().filter(|_| !dead && !standing.keyless);
                let owner = key.and_then(|key| self.resident_key(entry.queue, key));
                if owner.is_some_and(|owner| owner != slot) {
                    return Err(ReplayError { number, reason: "has the key of another live message" });
                }
                self.move_to(slot, &standing);
                self.note_ready(slot, self.seen);
                if dead {
                    // A default may keep fewer messages than when that was recorded.
                    self.look_at_retention(queue);
                }
            }
            Record::Gone { number } => {
                let slot = self.replayed(number, log)?;
                let entry = self.remove(slot);
                self.queues.remove_if_bare(entry.queue);
            }
            Record::Answered { queue, idempotency_key, answer } => {
                self.idempotency_keys.remember(&queue, &idempotency_key, answer);
            }
            Record::Ripe { wall } => {
                self.expire_cold(Now { wall, mono_ms: 0 }, log);
                self.promote_all(wall);
                if let Some(cold) = log.cold() {
                    cold.promote(wall);
                }
                self.look_at_all_retention(wall);
            }
            Record::Configured { queue, change } => {
                let queue = self.queues.find_or_insert(&queue);
                let mut own = self.own(queue);
                own.change(change);
                self.set_own(queue, own);
                self.queues.remove_if_bare(queue);
            }
            Record::Purged { queue } => {
                if let Some(queue) = self.queues.find(&queue) {
                    self.replay_expired(queue, log)?;
                    self.purge_all(queue, log);
                    self.free_purged(usize::MAX);
                    self.queues.remove_if_bare(queue);
                }
            }
            Record::Discarded { queue } => {
                if let Some(queue) = self.queues.find(&queue) {
                    self.replay_expired(queue, log)?;
                    self.discard_all(queue, log);
                    self.free_purged(usize::MAX);
                    self.queues.remove_if_bare(queue);
                }
            }
            Record::Revived { queue, due, wall } => {
                if let Some(queue) = self.queues.find(&queue) {
                    self.replay_revived(queue, due, Now { wall, mono_ms: 0 }, log)
                        .map_err(|_| unreadable(None))?;
                }
            }
            Record::Deleted { queue } => {
                if let Some(queue) = self.queues.find(&queue) {
                    self.delete_all(queue, log);
                    self.free_purged(usize::MAX);
                }
            }
        }
        Ok(())
    }

    /// Whether a message exists; it is resident then.
    ///
    /// # Errors
    /// [`ReplayError`] if a cold message cannot be read.
    pub fn replay_has(
        &mut self,
        number: Number,
        cold: Option<&mut dyn Cold<B>>,
    ) -> Result<bool, ReplayError> {
        let found = self.find_number(number, &mut Replaying(cold));
        found.map(|found| found.is_some()).map_err(|_| unreadable(Some(number)))
    }

    /// Whether a message is resident.
    pub fn is_resident(&self, number: Number) -> bool {
        self.resident_number(number).is_some()
    }

    /// Adds a message that was cold, with a new standing.
    ///
    /// # Errors
    /// [`ReplayError`]; nothing has changed then.
    ///
    /// # Panics
    /// If it is resident, or was not counted among the cold.
    pub fn replay_drawn(&mut self, mut cold: ColdMessage<B>, standing: Standing) -> Result<(), ReplayError> {
        let (was_dead, dead) = (cold.counts_as_dead(), matches!(standing.state, State::Dead(_)));
        let keyed = !dead && !standing.keyless;
        if let (Some(key), Some(queue), true) =
            (&cold.message.key, self.queues.find(&cold.message.queue), keyed)
            && self.resident_key(queue, key).is_some()
        {
            let number = cold.message.number;
            return Err(ReplayError { number, reason: "has the key of another live message" });
        }
        cold.message.standing = standing;
        let slot = self.make_resident(cold);
        let queue = self.entries.get(slot).queue;
        self.count_out(queue, was_dead, 1);
        self.mark_changed(slot);
        self.note_ready(slot, self.seen);
        if dead {
            self.look_at_retention(queue);
        }
        Ok(())
    }

    /// Subtracts `count` removed messages, dead ones or others, from a queue's cold ones.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn replay_cold_gone(&mut self, queue: &QueueName, dead: bool, count: u64) {
        if count > 0 {
            let queue = self.queues.find(queue).expect("what has cold messages is a queue");
            self.count_out(queue, dead, count);
            self.queues.remove_if_bare(queue);
        }
    }

    /// The live message of a queue that has this key; it is resident then.
    ///
    /// # Errors
    /// [`ReplayError`] if a cold message cannot be read.
    pub fn replay_owner(
        &mut self,
        queue: &QueueName,
        key: &Key,
        cold: Option<&mut dyn Cold<B>>,
    ) -> Result<Option<Message<B>>, ReplayError> {
        let Some(found) = self.queues.find(queue) else { return Ok(None) };
        if self.resident_key(found, key).is_none()
            && self.cold > 0
            && let Some(cold) = cold
            && let Some(cold) = cold.by_key(queue, key).map_err(|_| unreadable(None))?
        {
            self.page_in(cold);
        }
        // What was cold may have died, which could not be read before.
        let slot = self.resident_key(found, key);
        Ok(slot.map(|slot| self.message(slot)))
    }

    /// Queue and key of a resident message that was put with one.
    pub fn replay_key(&self, number: Number) -> Option<(QueueName, Key)> {
        let entry = self.entries.get(self.resident_number(number)?);
        Some((self.queues.get(entry.queue).name.clone(), entry.key()?.clone()))
    }

    /// Sets the wall time of the batch whose records are replayed next: messages that had expired by then
    /// were dead to everything recorded in it.
    pub fn replay_begins(&mut self, wall: Timestamp) {
        self.replaying = wall;
    }

    /// Lets all cold messages expire by that time, for a caller that looks for messages before the next
    /// record.
    pub fn replay_expiry(&mut self, cold: Option<&mut dyn Cold<B>>) {
        let now = Now { wall: self.replaying, mono_ms: 0 };
        self.expire_cold(now, &mut Replaying(cold));
    }

    /// Lets the cold messages of a queue die that had expired when a record of a sweep of it was made.
    fn replay_expired(&mut self, queue: u32, log: &mut impl Log<B>) -> Result<(), ReplayError> {
        let now = Now { wall: self.replaying, mono_ms: 0 };
        self.expire_queue(queue, now, log).map_err(|_| unreadable(None))
    }

    /// Sets the wall time of the batch whose records were replayed last.
    pub fn replay_time(&mut self, wall: Timestamp) {
        self.seen = wall;
    }

    /// Continues with `next` or a higher number: lower ones may have been given to messages that were
    /// removed.
    ///
    /// # Panics
    /// After the first put: the numbers of an incarnation are consecutive.
    pub fn skip_numbers(&mut self, next: u64) {
        assert!(self.next_counter == 0, "numbers are skipped before the first put");
        self.next_number = self.next_number.max(next);
    }

    /// Begins service after replay, or of a new core: leases continue by this process's clock. Those bound to
    /// the previous process are ended by [`release_session_leases`](Core::release_session_leases), before anything else
    /// is called.
    pub fn opened(&mut self, now: Now, log: &mut impl Log<B>) {
        // The previous process has counted the deaths of the replay.
        self.deaths = Deaths::default();
        self.begin(now, log);
        let held: Vec<(u32, u32)> = self
            .entries
            .iter()
            .filter_map(|(slot, entry)| match entry.place {
                Position::Leased(held) => Some((slot, held)),
                _ => None,
            })
            .collect();
        for (slot, held) in held {
            let queue = self.entries.get(slot).queue;
            let held = self.leases.get_mut(held);
            held.lease = held.lease.rebased(now);
            let (timer, deadline) = (held.timer, held.lease.deadline_mono_ms);
            self.queues.expect_lapse(queue, mono(deadline));
            let is_there = self.queues.get_mut(queue).leased.reschedule(timer, mono(deadline));
            assert!(is_there, "the timer of a lease in force is there");
        }
        self.note_session_leases();
    }

    /// Revives all dead messages of a queue whose keys are free, oldest first, as a record of an old log
    /// says.
    fn replay_revived(
        &mut self,
        queue: u32,
        due: Timestamp,
        now: Now,
        log: &mut impl Log<B>,
    ) -> crate::Result<()> {
        // Time has acted before the record, and must not act after it.
        let before_time = Now { wall: Timestamp::MIN, mono_ms: 0 };
        let (mut after, mut anew, most) = (None, true, self.config.bulk_per_call);
        loop {
            let handed_over =
                self.page_in_dead(queue, DeadReader::Sweep, after, std::mem::take(&mut anew), most, log)?;
            let slice = self.oldest(queue, &mut after, handed_over, most);
            let is_last = slice.len() < most && handed_over == DeadProgress::All;
            for (_, slot) in slice {
                if let Some(key) = self.entries.get(slot).key().cloned()
                    && self.find_key(queue, &key, before_time, log)?.is_some()
                {
                    continue;
                }
                let revived = self.apply(slot, &Command::Revive(due), now);
                let next = revived.expect("a dead message can be revived").next;
                self.move_to(slot, &next.expect("a revived message is there"));
                self.note_ready(slot, now.wall);
            }
            if is_last {
                return Ok(());
            }
        }
    }

    fn replayed(&mut self, number: Number, log: &mut impl Log<B>) -> Result<u32, ReplayError> {
        let found = self.find_number(number, log).map_err(|_| unreadable(Some(number)))?;
        found.ok_or(ReplayError { number, reason: "is changed by a record, and was never put or is gone" })
    }
}

fn unreadable(number: Option<Number>) -> ReplayError {
    ReplayError { number: number.unwrap_or(Number::MAX), reason: "is cold, and cannot be read" }
}

/// A log that records nothing, since everything has been recorded.
struct Replaying<'a, B>(Option<&'a mut dyn Cold<B>>);

impl<B: StoredBody> Log<B> for Replaying<'_, B> {
    fn put(&mut self, _: &PutRecord, _: &bytes::Bytes) -> B {
        unreachable!("replaying puts nothing anew")
    }

    fn record(&mut self, record: &Record, _: Durability) {
        unreachable!("{record:?} is a consequence of time, and time does not act in a replay")
    }

    fn is_replay(&self) -> bool {
        true
    }

    fn cold(&mut self) -> Option<&mut dyn Cold<B>> {
        match &mut self.0 {
            Some(cold) => Some(&mut **cold),
            None => None,
        }
    }
}
