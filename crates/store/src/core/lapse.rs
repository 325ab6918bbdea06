//! Leases that run out, many at a time.
//!
//! Every call lets all leases of the queue that it touches run out whose time has come. A consumer that goes may leave as many
//! as there may be, each with an error text to be recorded anew: so whoever owns the core asks before a call whether there
//! are many, lets some run out, and makes the call when the rest has followed. Others are served in between, and a batch
//! is no longer than what a slice records.

use dwell_model::{Now, QueueName, Timestamp};

use super::queue::mono;
use super::{Core, Log, StoredBody};

/// What is recorded of one message beside its error text, in bytes, about.
const STANDING: usize = 64;

/// How much one slice may do.
struct Slice {
    leases: usize,
    bytes: usize,
}

impl Slice {
    fn is_used_up(&self) -> bool {
        self.leases == 0 || self.bytes == 0
    }
}

impl<B: StoredBody> Core<B> {
    /// Whether leases of a queue are to run out now.
    pub fn has_lapsed(&self, name: &QueueName, now: Now) -> bool {
        self.lapse_from_ms <= now.mono_ms
            && self.queues.find(name).is_some_and(|queue| self.has_lapsed_in(queue, now))
    }

    /// The first of a page of all queues of which leases are to run out now.
    pub fn first_lapsed(&self, after: Option<&QueueName>, max: usize, now: Now) -> Option<QueueName> {
        if self.lapse_from_ms > now.mono_ms {
            return None;
        }
        let mut page = self.queues.page(after, max).into_iter();
        let first = page.find(|queue| self.has_lapsed_in(*queue, now))?;
        Some(self.queues.get(first).name.clone())
    }

    fn has_lapsed_in(&self, queue: u32, now: Now) -> bool {
        self.queues.get(queue).leased.next_due().is_some_and(|head| head <= mono(now.mono_ms))
    }

    /// Lets leases of a queue run out whose time has come: a slice of them. True if there are more; then whatever touches this
    /// queue at `now` does the rest at once, however many they are.
    pub fn lapse_some(&mut self, name: &QueueName, now: Now, log: &mut impl Log<B>) -> bool {
        let Some(queue) = self.queues.find(name) else { return false };
        self.begin(now, log);
        self.lapse_slice(queue, now, log)
    }

    /// A slice of the leases of a queue that are to run out; true if there are more.
    pub(super) fn lapse_slice(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) -> bool {
        if !self.has_lapsed_in(queue, now) {
            return false;
        }
        let mut slice = Slice { leases: self.config.lapsed_a_call, bytes: self.config.lapsed_bytes_a_call };
        self.promote(queue, now.wall);
        while !slice.is_used_up() && self.lapse_next(queue, now, &mut slice, log) {}
        self.has_lapsed_in(queue, now)
    }

    /// Lets leases run out whose time has come, in all queues, until there is room for another and a slice is done: they count
    /// to the cap, wherever they are.
    pub(super) fn lapse_all(&mut self, now: Now, log: &mut impl Log<B>) {
        let queues: Vec<u32> = self.queues.all().collect();
        let mut slice = Slice { leases: self.config.lapsed_a_call, bytes: self.config.lapsed_bytes_a_call };
        let mut next = None;
        for queue in queues {
            if self.has_lapsed_in(queue, now) {
                self.promote(queue, now.wall);
                while !slice.is_used_up() && self.lapse_next(queue, now, &mut slice, log) {}
            }
            next = next.into_iter().chain(self.queues.get(queue).leased.next_due()).min();
        }
        self.lapse_from_ms = next.map_or(u64::MAX, i64::unsigned_abs);
    }

    /// Lets all leases of a queue run out whose time has come.
    pub(super) fn lapse(&mut self, queue: u32, now: Now, log: &mut impl Log<B>) {
        let mut all = Slice { leases: usize::MAX, bytes: usize::MAX };
        while self.lapse_next(queue, now, &mut all, log) {}
    }

    /// Lets the first of a queue's leases run out, if its time has come.
    fn lapse_next(&mut self, queue: u32, now: Now, slice: &mut Slice, log: &mut impl Log<B>) -> bool {
        let due = self.queues.get_mut(queue).leased.pop_due(mono(now.mono_ms));
        let Some((deadline, slot)) = due else { return false };
        // By the monotonic clock, which no step has moved, it has been ready for so long.
        let ago_ms = now.mono_ms.saturating_sub(deadline.unsigned_abs());
        let since = now.wall.as_ms().saturating_sub_unsigned(ago_ms);
        let rare = self.entries.get(slot).rare.as_deref();
        let error = rare.and_then(|rare| rare.last_error.as_deref()).map_or(0, str::len);
        slice.leases -= 1;
        slice.bytes = slice.bytes.saturating_sub(STANDING + error);
        self.let_time_act(slot, now, Timestamp::from_ms(since).unwrap_or(Timestamp::MIN), log);
        true
    }
}
