//! The capacity of one lane: its slots, its rate, its bytes in flight, and the message that a strict lane waits for.

use dwell_model::MessageId;

/// A rate of messages.
///
/// A burst has at most a tenth of them, and at least one: a lane that has been idle does not send a whole period's
/// messages at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The number of messages; at least 1.
    pub messages: u32,
    /// The period in milliseconds; at least 1.
    pub per_ms: u64,
}

impl Rate {
    /// This many messages per second.
    pub fn per_second(messages: u32) -> Rate {
        Rate { messages, per_ms: 1_000 }
    }
}

/// The limits of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The maximum number of concurrent messages; at least 1.
    pub(crate) slots: usize,
    /// The maximum rate.
    pub(crate) rate: Option<Rate>,
    /// The maximum body bytes in flight. One message may exceed it.
    pub(crate) bytes: Option<usize>,
    /// One batch at a time, each settled before the next take.
    pub(crate) is_strict: bool,
}

/// What a lane may take now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// At most this many messages and bytes.
    Take { max: usize, max_bytes: Option<usize> },
    /// This message and no other.
    TakeId(MessageId),
    /// Nothing before this time, in monotonic milliseconds.
    Until(u64),
    /// Nothing until a message is settled.
    Full,
}

/// The accounting of a lane. It reads no clock: `now_ms` is monotonic.
#[derive(Debug)]
pub(crate) struct Capacity {
    bounds: Bounds,
    messages: usize,
    bytes: usize,
    bucket: Option<Bucket>,
    held: Option<AwaitedMessage>,
}

/// The message that a strict lane waits for.
#[derive(Clone, Copy, Debug)]
struct AwaitedMessage {
    id: MessageId,
    until_ms: u64,
}

impl Capacity {
    pub(crate) fn new(bounds: Bounds, now_ms: u64) -> Capacity {
        let bucket = bounds.rate.map(|rate| Bucket::full(rate, now_ms));
        Capacity { bounds, messages: 0, bytes: 0, bucket, held: None }
    }

    /// What may be taken now.
    pub(crate) fn room(&mut self, now_ms: u64) -> Room {
        let in_hand = self.messages > 0;
        if self.messages >= self.bounds.slots || (self.bounds.is_strict && in_hand) {
            return Room::Full;
        }
        let max_bytes = self.bounds.bytes.map(|bytes| bytes.saturating_sub(self.bytes));
        if max_bytes == Some(0) && in_hand {
            return Room::Full;
        }
        if let Some(held) = self.held.filter(|held| held.until_ms > now_ms) {
            return Room::Until(held.until_ms);
        }
        let mut max = self.bounds.slots - self.messages;
        if let Some(bucket) = &mut self.bucket {
            match bucket.available(now_ms) {
                0 => return Room::Until(bucket.next_at_ms(now_ms)),
                available => max = max.min(available),
            }
        }
        match self.held {
            Some(held) => Room::TakeId(held.id),
            None => Room::Take { max, max_bytes },
        }
    }

    /// Records a taken message. It counts until it [is settled](Capacity::settled), or given back unbegun.
    pub(crate) fn taken(&mut self, bytes: usize, now_ms: u64) {
        self.messages += 1;
        self.bytes += bytes;
        if let Some(bucket) = &mut self.bucket {
            bucket.spend(now_ms);
        }
    }

    /// Records that a taken message is settled.
    pub(crate) fn settled(&mut self, bytes: usize) {
        debug_assert!(self.messages > 0 && self.bytes >= bytes, "more is settled than was taken");
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Makes a strict lane wait for this message until this time, and take no other.
    pub(crate) fn hold(&mut self, id: MessageId, until_ms: u64) {
        debug_assert!(self.bounds.is_strict, "only a strict lane waits for a message");
        self.held = Some(AwaitedMessage { id, until_ms });
    }

    /// Ends the wait for the held message.
    pub(crate) fn let_go(&mut self) {
        self.held = None;
    }

    /// The number of messages in flight.
    pub(crate) fn messages(&self) -> usize {
        self.messages
    }
}

/// A token bucket in integers. A message costs `per_ms` units, and each millisecond adds `messages` of them.
#[derive(Debug)]
struct Bucket {
    rate: Rate,
    units: u64,
    /// When `units` was last updated.
    at_ms: u64,
}

impl Bucket {
    fn full(rate: Rate, now_ms: u64) -> Bucket {
        let rate = Rate { messages: rate.messages.max(1), per_ms: rate.per_ms.max(1) };
        let mut bucket = Bucket { rate, units: 0, at_ms: now_ms };
        bucket.units = bucket.capacity();
        bucket
    }

    fn capacity(&self) -> u64 {
        u64::from((self.rate.messages / 10).max(1)).saturating_mul(self.rate.per_ms)
    }

    fn fill(&mut self, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.at_ms);
        let more = passed_ms.saturating_mul(u64::from(self.rate.messages));
        self.units = self.units.saturating_add(more).min(self.capacity());
        self.at_ms = self.at_ms.max(now_ms);
    }

    fn available(&mut self, now_ms: u64) -> usize {
        self.fill(now_ms);
        usize::try_from(self.units / self.rate.per_ms).unwrap_or(usize::MAX)
    }

    /// When the next message is allowed, computed when none is.
    fn next_at_ms(&self, now_ms: u64) -> u64 {
        let missing = self.rate.per_ms.saturating_sub(self.units);
        now_ms.saturating_add(missing.div_ceil(u64::from(self.rate.messages)))
    }

    fn spend(&mut self, now_ms: u64) {
        self.fill(now_ms);
        self.units = self.units.saturating_sub(self.rate.per_ms);
    }
}

#[cfg(test)]
mod tests {
    use dwell_model::Timestamp;
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: Bounds = Bounds { slots: 4, rate: None, bytes: None, is_strict: false };

    fn id(counter: u64) -> MessageId {
        MessageId::new(Timestamp::MIN, 0, 0, counter)
    }

    #[test]
    fn it_takes_only_what_it_has_free_slots_for() {
        let mut lane = Capacity::new(BOUNDS, 0);
        assert_eq!(lane.room(0), Room::Take { max: 4, max_bytes: None });
        (0..3).for_each(|_| lane.taken(10, 0));
        assert_eq!(lane.room(0), Room::Take { max: 1, max_bytes: None });
        lane.taken(10, 0);
        assert_eq!(lane.room(0), Room::Full);
        lane.settled(10);
        assert_eq!(lane.room(0), Room::Take { max: 1, max_bytes: None });
    }

    #[test]
    fn bytes_in_flight_leave_room_for_the_rest_and_for_one_message_at_least() {
        let mut lane = Capacity::new(Bounds { bytes: Some(100), ..BOUNDS }, 0);
        lane.taken(60, 0);
        assert_eq!(lane.room(0), Room::Take { max: 3, max_bytes: Some(40) });
        lane.taken(70, 0);
        assert_eq!(lane.room(0), Room::Full);
        lane.settled(60);
        assert_eq!(lane.room(0), Room::Take { max: 3, max_bytes: Some(30) });
        // A limit of 0 would stop the lane for ever.
        let mut lane = Capacity::new(Bounds { bytes: Some(0), ..BOUNDS }, 0);
        assert_eq!(lane.room(0), Room::Take { max: 4, max_bytes: Some(0) });
    }

    #[test]
    fn a_rate_is_kept_over_time_and_a_burst_is_a_tenth_of_it() {
        let mut lane = Capacity::new(Bounds { slots: 1_000, rate: Some(Rate::per_second(100)), ..BOUNDS }, 0);
        assert_eq!(lane.room(0), Room::Take { max: 10, max_bytes: None });
        (0..10).for_each(|_| lane.taken(0, 0));
        assert_eq!(lane.room(0), Room::Until(10));
        assert_eq!(lane.room(9), Room::Until(10));
        assert_eq!(lane.room(10), Room::Take { max: 1, max_bytes: None });
        // Ten idle minutes allow no more than a burst.
        assert_eq!(lane.room(600_000), Room::Take { max: 10, max_bytes: None });
    }

    #[test]
    fn a_slow_rate_hands_out_one_at_a_time() {
        let rate = Rate { messages: 1, per_ms: 60_000 };
        let mut lane = Capacity::new(Bounds { rate: Some(rate), ..BOUNDS }, 5);
        assert_eq!(lane.room(5), Room::Take { max: 1, max_bytes: None });
        lane.taken(0, 5);
        assert_eq!(lane.room(6), Room::Until(60_005));
        assert_eq!(lane.room(60_005), Room::Take { max: 1, max_bytes: None });
    }

    #[test]
    fn a_strict_lane_settles_a_batch_before_the_next_take_and_waits_for_what_failed() {
        let mut lane = Capacity::new(Bounds { is_strict: true, ..BOUNDS }, 0);
        lane.taken(1, 0);
        assert_eq!(lane.room(0), Room::Full);
        lane.hold(id(7), 500);
        lane.settled(1);
        assert_eq!(lane.room(0), Room::Until(500));
        assert_eq!(lane.room(500), Room::TakeId(id(7)));
        lane.let_go();
        assert_eq!(lane.room(500), Room::Take { max: 4, max_bytes: None });
    }

    proptest! {
        /// No period has more messages than the rate allows, and one burst.
        #[test]
        fn no_stretch_of_time_exceeds_the_rate(
            messages in 1..500_u32,
            per_ms in 1..100_000_u64,
            steps in prop::collection::vec((0..5_000_u64, 0..50_usize), 1..100),
        ) {
            let rate = Rate { messages, per_ms };
            let mut lane = Capacity::new(Bounds { slots: usize::MAX, rate: Some(rate), ..BOUNDS }, 0);
            let (mut now, mut taken) = (0, 0_u64);
            for (passed_ms, wanted) in steps {
                now += passed_ms;
                for _ in 0..wanted {
                    match lane.room(now) {
                        Room::Take { .. } => { lane.taken(0, now); taken += 1; }
                        Room::Until(at) => {
                            prop_assert!(at > now);
                            break;
                        }
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
                let burst = u64::from((messages / 10).max(1));
                prop_assert!(taken <= now * u64::from(messages) / per_ms + burst);
            }
        }
    }
}
