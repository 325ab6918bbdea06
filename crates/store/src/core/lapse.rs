//! Leases that run out, many at a time.
//!
//! Every call lets all leases of the queue that it touches run out whose time has come. A consumer that goes may leave as many
//! as there may be, each with an error text to be recorded anew: so whoever owns the core asks before a call whether there
//! are many, lets some run out, and makes the call when the rest has followed. Others are served in between, and a batch
//! is no longer than what a slice records.
//!
//! # Ground rules
//! 1. There is one slice for all queues: [`serve`](Core::serve) has one, and the calls until the next serve share another. Who
//!    waits is not kept from what runs out by those who ask.
//! 2. Where a take waits on several queues, leases of all of them run out by the slice before it is handed anything.

use dwell_model::{Now, QueueName, Timestamp};

use super::queue::mono;
use super::{Core, CoreConfig, Log, StoredBody};

/// What is recorded of one message beside its error text, in bytes, about.
const STANDING: usize = 64;

/// How much may still run out before it is somebody else's turn.
#[derive(Debug)]
pub(super) struct Slice {
    leases: usize,
    bytes: usize,
}

impl Slice {
    pub(super) fn of(config: &CoreConfig) -> Slice {
        Slice { leases: config.lapsed_a_call, bytes: config.lapsed_bytes_a_call }
    }

    fn is_used_up(&self) -> bool {
        self.leases == 0 || self.bytes == 0
    }

    /// One lease has run out, and so many bytes were recorded.
    fn spend(&mut self, bytes: usize) {
        self.leases = self.leases.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl<B: StoredBody> Core<B> {
    /// Whether leases of a queue are to run out now.
    pub fn has_lapsed(&self, name: &QueueName, now: Now) -> bool {
        self.may_have_lapsed(now)
            && self.queues.find(name).is_some_and(|queue| self.has_lapsed_in(queue, now))
    }

    /// Whether leases of any queue may be to run out now; false if none are.
    pub(super) fn may_have_lapsed(&self, now: Now) -> bool {
        self.queues.next_lapse().is_some_and(|head| head <= mono(now.mono_ms))
    }

    pub(super) fn has_lapsed_in_any(&self, queues: &[u32], now: Now) -> bool {
        self.may_have_lapsed(now) && queues.iter().any(|queue| self.has_lapsed_in(*queue, now))
    }

    fn has_lapsed_in(&self, queue: u32, now: Now) -> bool {
        self.queues.get(queue).leased.next_due().is_some_and(|head| head <= mono(now.mono_ms))
    }

    /// Lets leases of a queue run out whose time has come: as many as are left of the slice that all calls share until the next
    /// [`serve`](Core::serve). True if there are more; then whatever touches this queue at `now` does the rest at once,
    /// however many they are.
    pub fn lapse_some(&mut self, name: &QueueName, now: Now, log: &mut impl Log<B>) -> bool {
        let Some(queue) = self.queues.find(name) else { return false };
        if !self.slice.is_used_up() {
            self.begin(now, log);
        }
        self.lapse_slice(queue, now, log)
    }

    /// Lets leases of a queue run out that are to, as many as are left of the slice; true if there are more.
    pub(super) fn lapse_slice(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) -> bool {
        if !self.has_lapsed_in(queue, now) {
            return false;
        }
        self.promote(queue, now.wall);
        while !self.slice.is_used_up()
            && let Some(bytes) = self.lapse_next(queue, now, log)
        {
            self.slice.spend(bytes);
        }
        self.has_lapsed_in(queue, now)
    }

    /// The same for each of these queues in turn.
    pub(super) fn lapse_slice_of(&mut self, queues: &[u32], now: Now, log: &mut impl Log<B>) -> bool {
        queues.iter().any(|queue| self.lapse_slice(*queue, now, log))
    }

    /// Lets leases run out whose time has come, in all queues, until a slice is done: they count to the cap, wherever they
    /// are.
    pub(super) fn lapse_all(&mut self, now: Now, log: &mut impl Log<B>) {
        let mut slice = Slice::of(&self.config);
        while !slice.is_used_up()
            && let Some(queue) = self.queues.pop_lapsed(mono(now.mono_ms))
        {
            if self.has_lapsed_in(queue, now) {
                self.promote(queue, now.wall);
            }
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

    /// Lets all leases of a queue run out whose time has come.
    pub(super) fn lapse(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) {
        while self.lapse_next(queue, now, log).is_some() {}
    }

    /// Lets the first of a queue's leases run out, if its time has come. About how many bytes it records.
    fn lapse_next(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) -> Option<usize> {
        let (deadline, slot) = self.queues.get_mut(queue).leased.pop_due(mono(now.mono_ms))?;
        // By the monotonic clock, which no step has moved, it has been ready for so long.
        let ago_ms = now.mono_ms.saturating_sub(deadline.unsigned_abs());
        let since = now.wall.as_ms().saturating_sub_unsigned(ago_ms);
        let rare = self.entries.get(slot).rare.as_deref();
        let error = rare.and_then(|rare| rare.last_error.as_deref()).map_or(0, str::len);
        self.let_time_act(slot, now, Timestamp::from_ms(since).unwrap_or(Timestamp::MIN), log);
        Some(STANDING + error)
    }
}
