//! The messages that scenarios put: a seeded stream, the same for both sides and in every run.

use dwell_testkit::Random;

/// The size of a body in bytes.
pub(crate) const BODY_BYTES: usize = 128;
/// The number of messages per batch.
pub(crate) const BATCH: usize = 1_024;
/// A day, in milliseconds.
pub(crate) const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// Milliseconds after the run's first instant.
    pub(crate) due_ms: u64,
    /// Its index in the stream.
    pub(crate) number: u64,
    /// Random bytes, so that compression does not affect the results.
    pub(crate) body: [u8; BODY_BYTES],
}

impl Item {
    /// The key by which a peer orders it: due, then number, big-endian.
    pub(crate) fn key(&self) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.due_ms.to_be_bytes());
        key[8..].copy_from_slice(&self.number.to_be_bytes());
        key
    }
}

/// An order-independent sum: equal sums on both ends show that every body has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) count: u64,
    pub(crate) bodies: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, body: &[u8]) {
        self.count += 1;
        let mut words = body.chunks_exact(8);
        for word in words.by_ref() {
            self.bodies = self.bodies.wrapping_add(u64::from_le_bytes(word.try_into().expect("8 bytes")));
        }
        self.bodies =
            words.remainder().iter().fold(self.bodies, |sum, byte| sum.wrapping_add((*byte).into()));
    }
}

/// `count` items, due at random within a day.
#[derive(Clone, Debug)]
pub(crate) struct Items {
    random: Random,
    next: u64,
    count: u64,
}

impl Items {
    pub(crate) fn new(count: u64) -> Items {
        Items { random: Random::new(0x6477_656C_6C21), next: 0, count }
    }

    /// Fills `batch` with the next items, at most [`BATCH`]; false when none are left.
    pub(crate) fn batch(&mut self, batch: &mut Vec<Item>) -> bool {
        batch.clear();
        batch.extend(self.by_ref().take(BATCH));
        !batch.is_empty()
    }

    /// The sum of all items.
    pub(crate) fn tally(self) -> Tally {
        let mut tally = Tally::default();
        self.for_each(|item| tally.add(&item.body));
        tally
    }
}

impl Iterator for Items {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        if self.next == self.count {
            return None;
        }
        let mut body = [0; BODY_BYTES];
        for word in body.chunks_exact_mut(8) {
            word.copy_from_slice(&self.random.next().to_le_bytes());
        }
        let item = Item { due_ms: self.random.next() % DAY_MS, number: self.next, body };
        self.next += 1;
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_same_each_time_and_ends() {
        let (mut items, mut batch, mut sizes) = (Items::new(2_500), Vec::new(), Vec::new());
        let mut tally = Tally::default();
        while items.batch(&mut batch) {
            sizes.push(batch.len());
            batch.iter().for_each(|item| tally.add(&item.body));
        }
        assert_eq!(sizes, [1_024, 1_024, 452]);
        assert_eq!(tally, Items::new(2_500).tally());
        assert_eq!(tally.count, 2_500);
    }

    #[test]
    fn a_lost_body_shows_in_the_tally() {
        let mut some = Tally::default();
        Items::new(10).skip(1).for_each(|item| some.add(&item.body));
        assert_ne!(some.bodies, Items::new(10).tally().bodies);
    }
}
