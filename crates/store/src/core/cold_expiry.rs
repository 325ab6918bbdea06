//! Cold messages that expire: they die in place, or are removed, in slices.

use dwell_model::{Message, Now, OnExpiry, QueueName};

use super::cold::{ColdMessage, Expired, Expiring};
use super::deaths::Discarded;
use super::{Core, Durability, Log, Record, StoredBody};
use crate::Result;

impl<B: StoredBody> Core<B> {
    /// Processes a slice of the cold messages whose expiry has passed; returns whether there are no more. The
    /// owner of a core with cold messages calls it before each batch of calls, and again while the core [is
    /// behind](Core::is_behind): this keeps the calls after it short.
    pub fn catch_up(&mut self, now: Now, log: &mut impl Log<B>) -> bool {
        self.begin(now, log);
        self.expire_slice(now, log)
    }

    /// Whether cold messages have expired that no slice has processed yet.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Whether cold messages of this queue may have expired that no slice has processed yet: calls that
    /// depend on all pending or dead messages would have to process the rest at once. Other queues are not
    /// considered.
    pub fn is_behind_in(&self, queue: &QueueName, now: Now, log: &mut impl Log<B>) -> bool {
        self.is_behind && self.queues.find(queue).is_some_and(|queue| self.is_behind_of(queue, now, log))
    }

    /// Whether `count` puts into a queue might be refused because expired cold messages still count.
    pub fn is_full_behind(&self, queue: &QueueName, count: usize, now: Now, log: &mut impl Log<B>) -> bool {
        let is_full = |queue: u32| {
            let limit = self.settings(queue).max_pending;
            limit.is_some_and(|limit| self.queues.get(queue).pending() + count as u64 > limit)
        };
        self.queues.find(queue).is_some_and(is_full) && self.is_behind_in(queue, now, log)
    }

    pub(super) fn is_behind_of(&self, queue: u32, now: Now, log: &mut impl Log<B>) -> bool {
        let found = self.queues.get(queue);
        found.cold.pending > 0 && log.cold().is_some_and(|cold| cold.is_behind_in(&found.name, now))
    }

    /// Whether the last call found too many expired messages to reach those behind them, and returned nothing
    /// of their queue: repeat it when the core is no longer [behind](Core::is_behind_in) in that queue. Also
    /// true if it depends on more lapsed leases than its slice had room for, on more expired messages that
    /// could not be read in time, or on earlier takes that are not served yet: repeat it after the next
    /// [`serve`](Core::serve).
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    fn expire_slice(&mut self, now: Now, log: &mut impl Log<B>) -> bool {
        if self.cold == 0 {
            self.is_behind = false;
            self.keep_dead(now, log);
            return true;
        }
        let is_replay = log.is_replay();
        let Some(cold) = log.cold() else { return true };
        let mut expired = Expired::default();
        let expiring = |name: &QueueName| self.expiring(name, is_replay);
        let is_done = cold.expire(now, self.config.expired_a_call, &expiring, &mut expired);
        if !is_done && !self.is_behind {
            self.fell_behind += 1;
        }
        self.is_behind = !is_done;
        self.count_expired(expired, log);
        self.keep_dead(now, log);
        self.look_where_given_up(now, log);
        is_done
    }

    /// Looks for the first message again in queues where all expired messages have been processed by now.
    fn look_where_given_up(&mut self, now: Now, log: &mut impl Log<B>) {
        for queue in std::mem::take(&mut self.given_up) {
            if self.queues.find_mut(queue).is_none() {
                continue;
            }
            if self.is_behind && self.is_behind_of(queue, now, log) {
                self.given_up.push(queue);
            } else {
                self.queues.get_mut(queue).cold.gave_up = 0;
            }
        }
    }

    /// Processes all cold messages of a queue whose expiry has passed.
    pub(super) fn expire_cold_of(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) {
        while self.is_behind_of(queue, now, log) {
            self.expire_slice(now, log);
        }
    }

    /// Processes all cold messages whose expiry has passed.
    pub(super) fn expire_cold(&mut self, now: Now, log: &mut impl Log<B>) {
        while !self.expire_slice(now, log) {}
    }

    /// Whether a queue drops what expires.
    pub fn drops_expired(&self, queue: &QueueName) -> bool {
        let queue = self.queues.find(queue);
        queue.is_some_and(|queue| self.settings(queue).on_expiry == OnExpiry::Drop)
    }

    /// How the cold messages of a queue that expire are handled.
    fn expiring(&self, queue: &QueueName, is_replay: bool) -> Expiring {
        let Some(queue) = self.queues.find(queue) else { return Expiring::Die };
        match self.settings(queue).on_expiry {
            OnExpiry::Dead => Expiring::Die,
            OnExpiry::Drop if is_replay => Expiring::Stay,
            OnExpiry::Drop => Expiring::Go,
        }
    }

    fn count_expired(&mut self, expired: Expired<B>, log: &mut impl Log<B>) {
        let Expired { died, gone, died_unread } = expired;
        self.died_unread |= died_unread;
        if !died.is_empty() {
            // Answers depend on the time from now on.
            log.keep_time();
        }
        for (queue, count) in died {
            self.died_cold(&queue, count);
        }
        for ColdMessage { message: Message { queue: name, number, .. }, .. } in gone {
            log.record(&Record::Gone { number }, Durability::Written);
            self.deaths.discarded(&name, Discarded::OnExpiry, 1);
            let queue = self.queues.find(&name).expect("what has cold messages is a queue");
            self.count_out(queue, false, 1);
            self.note_bare(queue);
        }
    }

    /// Records that messages have died which were to be dropped and could not be read: after a restart they may
    /// be readable, and would be dropped. Their numbers are not known. So all is promoted: to a replay,
    /// whatever has expired by then and was not dropped is dead. Waits until everything else that is to be
    /// dropped by now was handed over.
    fn keep_dead(&mut self, now: Now, log: &mut impl Log<B>) {
        if !self.died_unread || self.is_behind {
            return;
        }
        let all: Vec<u32> = self.queues.all().collect();
        let drops = |queue: &u32| self.settings(*queue).on_expiry == OnExpiry::Drop;
        let dropping: Vec<u32> = all.iter().copied().filter(drops).collect();
        if dropping.iter().any(|queue| self.is_behind_of(*queue, now, log)) {
            return;
        }
        self.died_unread = false;
        // To a replay these are cold too.
        dropping.into_iter().for_each(|queue| self.expire(queue, now, log));
        self.promote_cold(now, log);
        log.record(&Record::Ripe { wall: now.wall }, Durability::Written);
    }

    /// Promotes all cold messages. Due ones in memory stay in place: if the clock steps back later, that call
    /// moves them.
    pub(super) fn promote_cold(&mut self, now: Now, log: &mut impl Log<B>) {
        let Some(cold) = log.cold() else { return };
        cold.promote(now.wall);
        let queues: Vec<u32> = self.queues.all().collect();
        for queue in queues {
            self.promote(queue, now.wall);
            self.queues.get_mut(queue).cold.look_again();
        }
    }

    /// Moves `count` cold messages of a queue from pending to dead, since they expired in place.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn died_cold(&mut self, queue: &QueueName, count: u64) {
        self.deaths.expired(queue, count);
        let queue = self.queues.find(queue).expect("what has cold messages is a queue");
        let view = &mut self.queues.get_mut(queue).cold;
        view.pending = view.pending.checked_sub(count).expect("what was cold was counted");
        view.dead += count;
        self.expect_end_of_expired(queue);
    }

    /// Processes all expired messages of a queue, before all messages of a state are swept. Fails while some
    /// cannot be read, since it is then unknown which are pending and which are dead.
    pub(super) fn expire_queue(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) -> Result<()> {
        if self.queues.get(queue).cold.pending == 0 {
            return Ok(());
        }
        if log.is_replay() {
            self.expire_cold(now, log);
        } else {
            self.expire_cold_of(queue, now, log);
        }
        self.expire_unread(queue, now, log)
    }

    /// Expires messages that could not be read when their time came. Fails if some still cannot.
    pub(super) fn expire_unread(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) -> Result<()> {
        let found = self.queues.get(queue);
        let is_replay = log.is_replay();
        let Some(cold) = log.cold().filter(|_| found.cold.pending > 0) else { return Ok(()) };
        let mut expired = Expired::default();
        let expiring = |name: &QueueName| self.expiring(name, is_replay);
        let read = cold.expire_unread(&found.name, now, &expiring, &mut expired);
        self.count_expired(expired, log);
        self.keep_dead(now, log);
        read
    }

    /// Whether to stop looking for the first message of a queue: either all that was found last time had
    /// expired and the rest will be dead soon, or the slice is used up.
    pub(super) fn is_given_up(&mut self, queue: u32) -> bool {
        let is_behind = self.is_behind && self.queues.get(queue).cold.gave_up == self.fell_behind;
        let given_up = is_behind || self.has_more_over(queue);
        self.gave_up |= given_up;
        given_up
    }

    /// Stops looking for the first message of a queue until the core is no longer behind in it.
    pub(super) fn give_up(&mut self, queue: u32) {
        self.given_up.push(queue);
        let view = &mut self.queues.get_mut(queue).cold;
        view.gave_up = self.fell_behind;
        view.look_again();
        self.gave_up = true;
    }
}
