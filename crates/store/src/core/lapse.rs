//! Leases that run out and messages that expire, many at a time.
//!
//! Every call lets the lapsed leases of the queue that it touches run out, and its messages expire. A
//! consumer that disappears may leave as many leases as the cap allows, a producer as many messages with one
//! expiry, each with an error text to be recorded again. So before a call the owner of the core asks whether
//! there are many, has a slice of them processed, and makes the call when the rest has been processed. Other
//! calls are served in between, and a batch is no longer than what a slice records. Cold messages that could
//! not be read when they expired die in these slices too, where a call reaches them. Messages beside the
//! lanes become due in the same slices; [`super::schedule`] says why they are moved.
//!
//! # Ground rules
//! 1. There is one slice for all queues: [`serve`](Core::serve) has one, and the calls until the next serve
//!    share another. So calls do not use up the slice that waiting takes depend on.
//! 2. Where a take waits on several queues, leases of all of them run out within the slice before the take
//!    receives anything.
//! 3. Leases that end with the process are freed in slices too, each in a batch of its own: no call is served
//!    before the last one.

use dwell_model::{Command, Now, QueueName, Refusal, Timestamp};

use super::idempotency::EXPIRED_AT_CAP;
use super::queue::mono;
use super::{Core, CoreConfig, Durability, Log, StoredBody};

/// The approximate size of a record of one message without its error text, in bytes.
const STANDING: usize = 64;

/// The number of messages moved to the ready ones in the time in which one lease runs out.
const MOVES_PER_LEASE: usize = 4;

/// The number of messages looked at per slice in a search by key: each lies in a block of its own.
const LOOKED_AT: usize = 64;

/// What may still be done before others are served.
#[derive(Debug)]
pub(super) struct LapseSlice {
    leases: usize,
    bytes: usize,
    /// The number of messages that may be moved to the ready ones, which records nothing.
    moves: usize,
    /// The number of expired idempotency keys that puts of queues at their cap may look at.
    pub(super) idempotency_keys: usize,
    /// The number of dead messages past their retention that may still be discarded.
    pub(super) retained: usize,
    /// The number of cold messages that searches for the youngest dead message of a key may still look at.
    pub(super) looked_at: usize,
}

impl LapseSlice {
    pub(super) fn of(config: &CoreConfig) -> LapseSlice {
        let leases = config.lapsed_a_call;
        let (bytes, moves) = (config.lapsed_bytes_a_call, leases.saturating_mul(MOVES_PER_LEASE));
        LapseSlice {
            leases,
            bytes,
            moves,
            idempotency_keys: EXPIRED_AT_CAP,
            retained: config.bulk_per_call,
            looked_at: LOOKED_AT,
        }
    }

    /// For who searches on with nothing in between.
    pub(super) fn renew_looked_at(&mut self) {
        self.looked_at = LOOKED_AT;
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.leases == 0 || self.bytes == 0
    }

    /// Counts one lapsed lease, and `bytes` recorded for it.
    fn spend(&mut self, bytes: usize) {
        self.leases = self.leases.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl<B: StoredBody> Core<B> {
    /// Whether leases of a queue have to run out now, messages of it to expire, or others to be moved to the
    /// ready ones.
    pub fn has_lapsed(&self, name: &QueueName, now: Now) -> bool {
        self.queues.find(name).is_some_and(|queue| self.has_lapsed_in(queue, now))
    }

    /// Whether leases of any queue may have to run out now; false if none do.
    pub(super) fn may_have_lapsed(&self, now: Now) -> bool {
        self.queues.next_lapse().is_some_and(|head| head <= mono(now.mono_ms))
    }

    pub(super) fn has_lapsed_in_any(&self, queues: &[u32], now: Now) -> bool {
        queues.iter().any(|queue| self.has_lapsed_in(*queue, now))
    }

    fn has_lapsed_in(&self, queue: u32, now: Now) -> bool {
        let expiry = self.queues.get(queue).expiries.next_due();
        let is_due = self.has_lapsed_lease(queue, now) || self.is_due_timed(queue, now);
        is_due || expiry.is_some_and(|head| head <= now.wall.as_ms())
    }

    /// Whether messages are due that have to be moved to the ready ones.
    fn is_due_timed(&self, queue: u32, now: Now) -> bool {
        self.queues.get(queue).scheduled.is_due_timed(now.wall)
    }

    fn has_lapsed_lease(&self, queue: u32, now: Now) -> bool {
        self.queues.get(queue).leased.next_due().is_some_and(|head| head <= mono(now.mono_ms))
    }

    /// Begins a new slice.
    pub(super) fn renew_slice(&mut self) {
        self.slice = LapseSlice::of(&self.config);
        self.slices += 1;
    }

    /// Whether the slice is used up, which may be by expired messages of this queue that were made resident:
    /// the messages behind them are looked for in another slice.
    pub(super) fn has_more_over(&self, queue: u32) -> bool {
        self.slice.is_used_up() && self.queues.get(queue).cold.had_over_in == self.slices
    }

    /// Lets lapsed leases of a queue run out and its messages expire: as many as are left of the slice that
    /// all calls share until the next [`serve`](Core::serve). True if there are more; a call that touches
    /// this queue at `now` then processes the rest at once, however many they are.
    pub fn lapse_some(&mut self, name: &QueueName, now: Now, log: &mut impl Log<B>) -> bool {
        if !self.slice.is_used_up() {
            self.begin(now, log);
        }
        self.queues.find(name).is_some_and(|queue| self.lapse_slice(queue, now, log))
    }

    /// Lets lapsed leases of a queue run out and its messages expire, as many as are left of the slice; true
    /// if there are more.
    pub(super) fn lapse_slice(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) -> bool {
        #[cfg(test)]
        {
            self.looks_for_lapsed += 1;
        }
        if !self.has_lapsed_in(queue, now) {
            return false;
        }
        self.slice.moves -= self.promote_some(queue, now.wall, self.slice.moves);
        while !self.slice.is_used_up() && !self.is_due_timed(queue, now) {
            let lapsed = self.lapse_next(queue, now, log);
            let Some(bytes) = lapsed.or_else(|| self.expire_next(queue, now, log)) else { break };
            self.slice.spend(bytes);
        }
        self.has_lapsed_in(queue, now)
    }

    /// The same for all queues, before a call that lets time act on all of them.
    pub fn lapse_some_everywhere(&mut self, now: Now, log: &mut impl Log<B>) -> bool {
        if !self.slice.is_used_up() {
            self.begin(now, log);
        }
        let queues: Vec<u32> = self.queues.all().collect();
        self.lapse_slice_of(&queues, now, log)
    }

    /// The same for each of these queues in turn.
    pub(super) fn lapse_slice_of(&mut self, queues: &[u32], now: Now, log: &mut impl Log<B>) -> bool {
        queues.iter().any(|queue| self.lapse_slice(*queue, now, log))
    }

    /// Lets lapsed leases of all queues run out, until the slice is used up: they count towards the cap,
    /// whatever their queue.
    pub(super) fn lapse_all(&mut self, now: Now, log: &mut impl Log<B>) {
        let mut slice = LapseSlice::of(&self.config);
        while !slice.is_used_up()
            && let Some(queue) = self.queues.pop_lapsed(mono(now.mono_ms))
        {
            // Messages that are due there are moved when a call asks for them.
            while !slice.is_used_up()
                && let Some(bytes) = self.lapse_next(queue, now, log)
            {
                slice.spend(bytes);
            }
            if let Some(next) = self.queues.get(queue).leased.next_due() {
                self.queues.expect_lapse(queue, next);
            }
        }
    }

    /// Lets all lapsed leases of a queue run out.
    pub(super) fn lapse(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) {
        while self.lapse_next(queue, now, log).is_some() {}
    }

    /// Lets the first of a queue's leases run out, if it has lapsed. Returns the approximate number of bytes
    /// recorded.
    fn lapse_next(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) -> Option<usize> {
        let (deadline, slot) = self.queues.get_mut(queue).leased.pop_due(mono(now.mono_ms))?;
        // The time for which it has been ready, by the monotonic clock, which no step has moved.
        let ago_ms = now.mono_ms.saturating_sub(deadline.unsigned_abs());
        let since = now.wall.as_ms().saturating_sub_unsigned(ago_ms);
        let bytes = self.recorded(slot);
        self.let_time_act(slot, now, Timestamp::from_ms(since).unwrap_or(Timestamp::MIN), log);
        Some(bytes)
    }

    /// Expires the messages whose expiry has passed.
    pub(super) fn expire(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) {
        while self.expire_next(queue, now, log).is_some() {}
    }

    /// The same after an expired cold message was made resident, which could not be read when its time came.
    /// There may be many such messages, which then die in slices.
    pub(super) fn expire_drawn(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) {
        self.queues.get_mut(queue).cold.had_over_in = self.slices;
        while let Some(bytes) = self.expire_next(queue, now, log) {
            self.slice.spend(bytes);
        }
    }

    /// Counts towards the slice a message that turned out to be dead when it was made resident.
    pub(super) fn count_drawn_dead(&mut self, queue: u32) {
        self.queues.get_mut(queue).cold.had_over_in = self.slices;
        self.slice.spend(STANDING);
    }

    /// Expires the first of them. Returns the approximate number of bytes recorded.
    pub(super) fn expire_next(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) -> Option<usize> {
        let (_, slot) = self.queues.get_mut(queue).expiries.pop_due(now.wall.as_ms())?;
        let bytes = self.recorded(slot);
        self.let_time_act(slot, now, now.wall, log);
        Some(bytes)
    }

    /// The approximate size of a record of a message's standing, in bytes.
    fn recorded(&self, slot: u32) -> usize {
        let rare = self.entries.get(slot).rare.as_deref();
        STANDING + rare.and_then(|rare| rare.last_error.as_deref()).map_or(0, str::len)
    }

    /// Notes which leases end with the process, for [`release_session_leases`](Core::release_session_leases) to free
    /// them.
    pub(super) fn note_session_leases(&mut self) {
        let slots = self.entries.iter().map(|(slot, _)| slot);
        self.session = slots.filter(|slot| self.is_session_lease(*slot)).collect();
    }

    fn is_session_lease(&self, slot: u32) -> bool {
        let is_leased = self.entries.find(slot).is_some_and(|entry| entry.place.is_leased());
        is_leased && self.lease_of(slot).is_some_and(|lease| lease.session)
    }

    /// Frees one slice of the leases that end with the process; true if there are more. All of them have to
    /// be freed before any other call, each slice in a batch of its own.
    pub fn release_session_leases(&mut self, now: Now, log: &mut impl Log<B>) -> bool {
        self.begin(now, log);
        let mut slice = LapseSlice::of(&self.config);
        while !slice.is_used_up()
            && let Some(slot) = self.session.pop()
        {
            slice.spend(self.recorded(slot));
            let queue = self.entries.get(slot).queue;
            match self.change(slot, &Command::EndSession, now, Durability::Written, log) {
                Ok(Some(state)) => {
                    self.note_ready(slot, now.wall);
                    self.trim_changed(slot, Some(state), now, log);
                }
                Ok(None) => {}
                // The lease has run out by the clock too, and the message has expired: time has removed it.
                Err(Refusal::Gone) => self.let_time_act(slot, now, now.wall, log),
                Err(other) => unreachable!("nothing refuses the end of a process: {other:?}"),
            }
            self.queues.remove_if_bare(queue);
        }
        self.has_session_leases()
    }

    /// Releases messages whose leases end with the process, in slices with everything else that is pending in
    /// their queues: the store closes. No attempt is spent, and the takes count, since the messages were
    /// held. True if there are more. A lease that has run out by then lapses as usual.
    pub fn give_back_session_leases(&mut self, now: Now, log: &mut impl Log<B>) -> bool {
        self.begin(now, log);
        self.renew_slice();
        if self.closing.is_none() {
            // All queues: the next opening uses the wall clock, by which a lease that has lapsed now may not
            // have.
            self.closing = Some(self.queues.all().collect());
            self.note_session_leases();
        }
        while let Some(queue) = self.closing.as_ref().and_then(|queues| queues.last().copied()) {
            // The queue may have existed only because of its pause, which may have ended.
            if self.queues.find_mut(queue).is_some() && self.lapse_slice(queue, now, log) {
                return true;
            }
            self.closing.as_mut().and_then(Vec::pop);
        }
        while let Some(slot) = self.session.last().copied() {
            // More leases may have run out between two slices.
            if self.is_session_lease(slot) && self.lapse_slice(self.entries.get(slot).queue, now, log) {
                return true;
            }
            if !self.is_session_lease(slot) {
                self.session.pop();
                continue;
            }
            if self.slice.is_used_up() {
                return true;
            }
            self.session.pop();
            if let Some(lease) = self.lease_of(slot) {
                self.slice.spend(self.recorded(slot));
                let release = Command::Release { token: lease.token, after_ms: None, priority: None };
                let queue = self.entries.get(slot).queue;
                let state = self.change(slot, &release, now, Durability::Written, log);
                self.trim_changed(slot, state.expect("the lease is in force"), now, log);
                self.queues.remove_if_bare(queue);
            }
        }
        self.closing = None;
        self.has_session_leases()
    }

    fn has_session_leases(&mut self) -> bool {
        let is_done = self.session.is_empty();
        if is_done {
            self.session = Vec::new();
        }
        !is_done
    }
}
