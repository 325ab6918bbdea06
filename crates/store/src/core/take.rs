//! Handing out messages: due ones in their order, or one by its id.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use dwell_model::{
    Command, Grant, Holder, LeaseToken, MessageId, Now, Number, QueueName, Receipt, Standing, State,
    apply_take,
};

use super::entry::Position;
use super::placement::check_lease;
use super::queue::ReadyKey;
use super::{Core, Durability, Log, StoredBody};
use crate::{Delivery, Error, LeaseTerms, Result, Take};

/// The number of messages fetched at a time: twice the number of loads that a processor has in flight.
pub(super) const PREFETCHED: usize = 64;
/// The initial capacity for deliveries.
const USUAL: usize = 1024;

impl<B: StoredBody> Core<B> {
    /// Hands out messages that are due now, without waiting. See [`Store::take`](crate::Store::take).
    ///
    /// Returns at most as many messages as one call may have items, whatever `take.max` says. Takes that wait
    /// on the same queues came earlier and are served first. Where messages are due and no lease may be
    /// granted, a take that would wait gets nothing: it has to [wait](Core::wait) for room.
    ///
    /// # Errors
    /// [`Error::TooManyLeased`], [`Error::Invalid`].
    pub fn take(&mut self, take: &Take, now: Now, log: &mut impl Log<B>) -> Result<Vec<Delivery<B>>> {
        self.begin(now, log);
        check_lease(take.lease_ms)?;
        self.config.limits.check_batch(take.queues.len())?;
        if self.has_waiters() && !self.serve_earlier(&take.queues, now, log) {
            // It is not known yet what these will get.
            self.gave_up = true;
            return Ok(Vec::new());
        }
        let queues: Vec<u32> = take.queues.iter().filter_map(|name| self.queues.find(name)).collect();
        if self.is_behind() && (self.gives_up_on_any(&queues, now, log) || self.gives_up_on_earlier(&queues))
        {
            return Ok(Vec::new());
        }
        self.hand_out(&queues, take, now, log)
    }

    /// Whether the first message of one of these queues cannot be determined yet: the messages of the others
    /// may come after it.
    pub(super) fn gives_up_on_any(&mut self, queues: &[u32], now: Now, log: &mut impl Log<B>) -> bool {
        // Not on behalf of the takes served before.
        self.gave_up = false;
        for queue in queues {
            self.touch(*queue, now, log);
            // If it cannot be read, the error is returned when it is handed out.
            let _ = self.head(*queue, now, log);
            if self.gave_up {
                return true;
            }
        }
        false
    }

    /// Hands out due messages of `queues`, by (priority, due, id) across them.
    pub(super) fn hand_out(
        &mut self,
        queues: &[u32],
        take: &Take,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Vec<Delivery<B>>> {
        let max = take.max.min(self.config.limits.batch);
        for queue in queues {
            self.touch(*queue, now, log);
        }
        if max == 0 {
            return Ok(Vec::new());
        }
        let (mut first, mut refusal) = (Vec::with_capacity(queues.len()), None);
        // Not on behalf of the takes served before.
        self.gave_up = false;
        for queue in queues {
            match self.head(*queue, now, log) {
                // A queue at its cap does not block the others.
                Ok(Some(_)) if let Err(error) = self.check_leased_of(*queue) => refusal = Some(error),
                Ok(head) => first.extend(head),
                // A queue whose next message cannot be read does not block the others.
                Err(error) => refusal = Some(error),
            }
            if self.gave_up {
                // The messages of the others may come after one that cannot be determined yet.
                return Ok(Vec::new());
            }
        }
        let mut heads = Heads::new(first);
        let mut deliveries = Vec::with_capacity(if heads.first().is_some() { max.min(USUAL) } else { 0 });
        let (mut bytes, mut fetched): (usize, usize) = (0, 0);
        while deliveries.len() < max
            && let Some((queue, slot)) = heads.first()
        {
            if fetched == 0 {
                fetched = match self.fetch(queue, PREFETCHED.min(max - deliveries.len())) {
                    // Looked at again when as many have come from elsewhere: each look costs as much as a
                    // message.
                    0 => PREFETCHED,
                    some => some,
                };
            }
            fetched -= 1;
            let (entry, lease_ms) = (self.entries.get(slot), self.lease_ms(slot, take.lease_ms));
            bytes = bytes.saturating_add(entry.body.body_len());
            if !deliveries.is_empty() && take.max_bytes.is_some_and(|most| bytes > most) {
                break;
            }
            if let Err(error) = self.check_leased(now, log) {
                refusal = Some(error);
                break;
            }
            let grant = self.grant(lease_ms, take.session, take.holder.clone());
            let mut next = self.standing(slot);
            apply_take(&mut next, &grant, now, self.rules(slot)).expect("a ready message can be handed out");
            deliveries.push(self.deliver(slot, next, now, log));
            if self.check_leased_of(queue).is_err() {
                heads.replace_first(None);
                continue;
            }
            match self.head(queue, now, log) {
                // The messages of the other queues may come after one that cannot be determined yet.
                Ok(None) if self.is_given_up(queue) => break,
                Ok(head) => heads.replace_first(head),
                // The messages handed out so far are delivered; the next take returns the error.
                Err(_) => break,
            }
        }
        match refusal {
            Some(Error::TooManyLeased { .. }) if take.wait_ms > 0 => Ok(deliveries),
            Some(refusal) if deliveries.is_empty() => Err(refusal),
            _ => Ok(deliveries),
        }
    }

    /// The messages that a take of this queue alone would get next, at most `max`, with the locations of
    /// their bodies: the first ones, as far as their order is known already. A hint, for prefetching bodies.
    pub fn upcoming(&self, queue: &QueueName, max: usize) -> impl Iterator<Item = (Number, &B)> {
        let found = self.queues.find(queue).map(|queue| self.queues.get(queue));
        let next = found
            .into_iter()
            .flat_map(|found| found.ready.slots().chain(found.scheduled.upcoming(found.ready_until)))
            .take(max);
        // Not collected: nested iterators are faster with internal iteration.
        let mut slots: Vec<u32> = Vec::with_capacity(max.min(USUAL));
        next.for_each(|slot| slots.push(slot));
        // The caller uses the body's location, which would make each message wait for the one before.
        self.fetch_entries(&slots);
        slots.into_iter().map(|slot| {
            let entry = self.entries.get(slot);
            (entry.number, &entry.body)
        })
    }

    /// Prefetches the messages that the take is about to read: messages are stored in the order of their
    /// puts, so each is far from the processor's cache, and the take would wait for one after another.
    /// Returns how many were fetched.
    fn fetch(&self, queue: u32, max: usize) -> usize {
        let found = self.queues.get(queue);
        let (mut slots, mut count) = ([0; PREFETCHED], 0);
        found.scheduled.upcoming(found.ready_until).take(max.min(PREFETCHED)).for_each(|slot| {
            slots[count] = slot;
            count += 1;
        });
        let slots = &slots[..count];
        self.fetch_entries(slots);
        let numbers = slots.iter().map(|slot| self.entries.get(*slot).number);
        std::hint::black_box(numbers.fold(false, |met, number| met ^ self.by_number.is_on_page(number)));
        count
    }

    /// Reads these messages and nothing else meanwhile, so that a processor has many loads in flight at a
    /// time.
    pub(super) fn fetch_entries(&self, slots: &[u32]) {
        let met = slots.iter().fold(0, |met, slot| {
            let entry = self.entries.get(*slot);
            // An entry's first field and one of its last: it lies in two cache lines.
            met ^ entry.id.as_bits() as u32 ^ entry.takes
        });
        std::hint::black_box(met);
    }

    /// Whether a queue on which time has acted has as many leases as its own setting allows: it behaves as if
    /// paused.
    pub(super) fn is_at_max_leased(&self, queue: u32) -> bool {
        let found = self.queues.get(queue);
        let most = found.settings(&self.config.limits.defaults).max_leased;
        most.is_some_and(|most| found.leased.len() as u64 >= most)
    }

    /// The message that a queue hands out next, if there is one.
    pub(super) fn head(
        &mut self,
        queue: u32,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Option<(ReadyKey, u32, u32)>> {
        if self.settings(queue).pause.is_paused_at(now.wall) || self.is_at_max_leased(queue) {
            return Ok(None);
        }
        self.first_ready(queue, now, log)
    }

    /// The first of a queue's ready messages, paused or not.
    pub(super) fn first_ready(
        &mut self,
        queue: u32,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Option<(ReadyKey, u32, u32)>> {
        loop {
            let found = self.queues.get_mut(queue);
            let first = found.first_ready(&self.entries);
            let cold = found.cold.due(found.ready_until);
            if cold.is_none_or(|cold| first.is_some_and(|(key, _)| key < cold)) {
                return Ok(first.map(|(key, slot)| (key, queue, slot)));
            }
            if self.is_given_up(queue) {
                return Ok(None);
            }
            let all_over = self.feed(queue, now, log)?;
            if all_over && self.is_behind && self.is_behind_of(queue, now, log) {
                self.give_up(queue);
                return Ok(None);
            }
        }
    }

    /// Hands out this message. See [`Store::take_id`](crate::Store::take_id).
    ///
    /// # Errors
    /// [`Error::MessageNotFound`], [`Error::Leased`], [`Error::KeyTaken`], [`Error::TooManyLeased`],
    /// [`Error::Invalid`].
    pub fn take_id(
        &mut self,
        queue: &QueueName,
        id: MessageId,
        terms: LeaseTerms,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Delivery<B>> {
        self.begin(now, log);
        let LeaseTerms { lease_ms, session, holder } = terms;
        check_lease(lease_ms)?;
        let found = match self.touched(queue, now, log) {
            Some(queue) => self.find_id(queue, id, now, log)?,
            None => None,
        };
        let slot = found.ok_or_else(|| Error::MessageNotFound { queue: queue.clone() })?;
        let entry = self.entries.get(slot);
        if entry.place.is_leased() {
            return Err(Error::Leased { id });
        }
        let found = entry.queue;
        if entry.place == Position::Dead
            && let Some(key) = entry.key().cloned()
        {
            if let Some(owner) = self.find_key(found, &key, now, log)? {
                return Err(Error::KeyTaken { id: self.entries.get(owner).id });
            }
            // The key's owner may have expired and died by that, and its queue was trimmed by removing this
            // message.
            if self.resident_id(found, id) != Some(slot) {
                return Err(Error::MessageNotFound { queue: queue.clone() });
            }
        }
        let queue = found;
        if let Some(most) = self.settings(queue).max_leased.filter(|_| self.is_at_max_leased(queue)) {
            return Err(Error::TooManyLeased { limit: usize::try_from(most).unwrap_or(usize::MAX) });
        }
        self.check_leased(now, log)?;
        self.check_leased_of(queue)?;
        let lease_ms = self.lease_ms(slot, lease_ms);
        let command = Command::TakeById(self.grant(lease_ms, session, holder));
        match self.apply(slot, &command, now) {
            Ok(taken) => {
                let next = taken.next.expect("what is handed out is still there");
                Ok(self.deliver(slot, next, now, log))
            }
            Err(refusal) => Err(self.refused_instant(slot, now.wall, refusal)),
        }
    }

    /// Checks that one lease more may be granted in the store.
    pub(super) fn check_leased(&mut self, now: Now, log: &mut impl Log<B>) -> Result<()> {
        let limit = self.config.limits.leased;
        // Otherwise leases of queues that no call touches any more would count towards the cap for ever.
        if self.leases.len() >= limit && self.may_have_lapsed(now) {
            self.lapse_all(now, log);
        }
        if self.leases.len() < limit { Ok(()) } else { Err(Error::TooManyLeased { limit }) }
    }

    /// Checks that one lease more may be granted in a queue on which time has acted.
    pub(super) fn check_leased_of(&self, queue: u32) -> Result<()> {
        let limit = self.config.limits.leased_per_queue;
        let leased = self.queues.get(queue).leased.len();
        if leased < limit { Ok(()) } else { Err(Error::TooManyLeased { limit }) }
    }

    /// The take's lease, else the message's, else the queue's.
    fn lease_ms(&self, slot: u32, asked: Option<u64>) -> u64 {
        let entry = self.entries.get(slot);
        let own = asked.or_else(|| entry.rare.as_deref()?.lease_ms);
        own.unwrap_or_else(|| self.settings(entry.queue).lease_ms)
    }

    /// A token never issued before: no other core has this shard and incarnation.
    fn grant(&mut self, lease_ms: u64, session: bool, holder: Option<Holder>) -> Grant {
        let incarnation = u128::from(self.config.incarnation) << 80;
        let shard = u128::from(self.config.shard) << 64;
        let token = LeaseToken(incarnation | shard | u128::from(self.next_lease));
        self.next_lease += 1;
        Grant { token, lease_ms, session, holder }
    }

    /// Delivers a message that is leased from now on, as `next` says.
    fn deliver(&mut self, slot: u32, next: Standing, now: Now, log: &mut impl Log<B>) -> Delivery<B> {
        let State::Leased(lease) = next.state else { unreachable!("what is handed out is leased") };
        let standing = self.record_standing(slot, next, Durability::Written, log);
        let message = self.message_that(slot, standing);
        Delivery {
            receipt: Receipt { queue: message.queue.clone(), id: message.id, token: lease.token },
            lease_until: lease.deadline,
            taken_at: now.wall,
            lateness_ms: now.wall.ms_since(self.entries.get(slot).ready_since()),
            message,
        }
    }
}

/// The heads of the queues that a take goes over, least first.
struct Heads(BinaryHeap<Reverse<(ReadyKey, u32, u32)>>);

impl Heads {
    fn new(mut heads: Vec<(ReadyKey, u32, u32)>) -> Heads {
        // A queue named twice counts once; its heads are adjacent.
        heads.sort_unstable();
        heads.dedup();
        Heads(heads.into_iter().map(Reverse).collect())
    }

    fn first(&self) -> Option<(u32, u32)> {
        self.0.peek().map(|Reverse((_, queue, slot))| (*queue, *slot))
    }

    fn replace_first(&mut self, next: Option<(ReadyKey, u32, u32)>) {
        let Some(mut first) = self.0.peek_mut() else { return };
        match next {
            Some(next) => *first = Reverse(next),
            None => drop(PeekMut::pop(first)),
        }
    }
}
