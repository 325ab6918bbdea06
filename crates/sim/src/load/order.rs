//! Checks the order of the messages of one queue that are put and taken concurrently.
//!
//! A message is out of order if an earlier take, begun after the message's put was answered and made when it was due,
//! returned a message that sorts after it. All takes of a queue are made by one consumer, one after another, so both
//! conditions hold from some take on; the highest message of those takes is found in a stack of maxima.

/// A message's position in its queue: due, then id.
pub(super) type OrderKey = (i64, u128);

/// A take, as far as later ones are checked against it.
#[derive(Clone, Copy, Debug)]
struct ConcurrentTake {
    /// When it was sent, in milliseconds of the monotonic clock.
    begun_ms: u64,
    /// The server's wall time of the take.
    taken_at: i64,
}

/// The order of one queue; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct DeliveryOrder {
    takes: Vec<ConcurrentTake>,
    /// Takes that returned a higher position than all takes after them, with that position: the suffix maxima.
    highest: Vec<(usize, OrderKey)>,
}

impl DeliveryOrder {
    /// The position of a message that was delivered too early: before `place`, which was answered at `answered_ms`. Only
    /// for the first delivery of `place`.
    pub(super) fn overtaken(&self, place: OrderKey, answered_ms: u64) -> Option<OrderKey> {
        let answered = self.takes.partition_point(|take| take.begun_ms <= answered_ms);
        let due = self.takes.partition_point(|take| take.taken_at < place.0);
        let first = answered.max(due);
        let at = self.highest.partition_point(|(take, _)| *take < first);
        self.highest.get(at).map(|(_, highest)| *highest).filter(|highest| *highest > place)
    }

    /// Records a take that returned these.
    pub(super) fn took(&mut self, begun_ms: u64, taken_at: i64, places: impl IntoIterator<Item = OrderKey>) {
        let Some(highest) = places.into_iter().max() else { return };
        // The server's clock readings may be in a slightly different order than
        // the takes. Monotone bounds only make the check more cautious.
        let taken_at = self.takes.last().map_or(taken_at, |last| last.taken_at.max(taken_at));
        while self.highest.last().is_some_and(|(_, earlier)| *earlier <= highest) {
            self.highest.pop();
        }
        self.highest.push((self.takes.len(), highest));
        self.takes.push(ConcurrentTake { begun_ms, taken_at });
    }
}

#[cfg(test)]
mod tests {
    use dwell_testkit::Random;

    use super::*;

    #[test]
    fn a_message_that_waited_while_a_later_one_went_was_overtaken() {
        let mut order = DeliveryOrder::default();
        order.took(100, 1_000, [(900, 1), (950, 2)]);
        order.took(200, 1_100, [(1_020, 3)]);
        assert_eq!(order.overtaken((940, 9), 50), Some((1_020, 3)));
        assert_eq!(
            order.overtaken((940, 9), 150),
            Some((1_020, 3)),
            "the second take began after the answer"
        );
        assert_eq!(order.overtaken((940, 9), 200), None, "no take began after the answer");
        assert_eq!(order.overtaken((1_030, 9), 50), None, "nothing that sorts after it went");
    }

    #[test]
    fn a_take_from_before_it_was_due_says_nothing() {
        let mut order = DeliveryOrder::default();
        order.took(100, 1_000, [(1_000, 5)]);
        assert_eq!(order.overtaken((1_001, 1), 0), None);
        assert_eq!(order.overtaken((1_000, 4), 0), Some((1_000, 5)));
    }

    #[test]
    fn agrees_with_looking_at_every_take() {
        let mut rng = Random::new(5);
        for _ in 0..200 {
            let mut order = DeliveryOrder::default();
            let mut takes = Vec::new();
            for number in 0..20_u64 {
                let places: Vec<OrderKey> =
                    (0..rng.below(4)).map(|_| (rng.below(60) as i64, u128::from(rng.below(50)))).collect();
                let taken_at = (number * 3) as i64;
                order.took(number * 10, taken_at, places.clone());
                takes.push((number * 10, taken_at, places));
            }
            let place = (rng.below(60) as i64, u128::from(rng.below(50)));
            let answered_ms = rng.below(220);
            let later = takes.iter().filter(|(begun, at, _)| *begun > answered_ms && *at >= place.0);
            let highest = later.flat_map(|(_, _, places)| places.iter().copied()).max();
            assert_eq!(order.overtaken(place, answered_ms), highest.filter(|highest| *highest > place));
        }
    }
}
