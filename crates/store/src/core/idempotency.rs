//! Idempotency keys, and the answers that are repeated for them.
//!
//! An idempotency key belongs to a name, not to a queue: it is remembered even if the queue was removed. Idempotency
//! keys that have run out are dropped a few at a time by later puts, so that each put pays the same small cost.
//!
//! At tens of thousands of puts a second tens of millions of idempotency keys are in force, so each takes as little
//! memory as possible: about 72 bytes, its share of the indexes included. Of name and idempotency key 128 bits are
//! kept, hashed under secrets of the process: nobody can choose two that collide, and among 2^24 the odds
//! that any two collide by chance are one in 2^81. Each idempotency key is counted under its name, of which 64 bits are
//! kept.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU64;

use dwell_model::{IdempotencyKey, MessageId, Number, QueueName, Timestamp};

use super::IdempotencyRecord;
use super::index::SlotTable;
use super::slab::Slab;
use crate::{PutAnswer, PutDigest, PutOutcome};

/// The maximum number of idempotency keys that have run out that each put drops: more than it adds.
const EXPIRED_PER_PUT: usize = 3;
/// The same for puts whose name has as many idempotency keys as allowed, all together until the next serve: compared
/// with the sync that they would wait for, it takes no time.
pub(super) const EXPIRED_AT_CAP: usize = 4_096;
/// In [`RememberedPut::number`]: the answer is among [`IdempotencyKeys::others`].
const IS_OTHER: u64 = 1 << 63;
/// The bits used of a number and of an end; the bits left in the two hold the name.
const NUMBER_BITS: u32 = 53;
const END_BITS: u32 = 48;
const LOW_BITS: u32 = 63 - NUMBER_BITS;
const HIGH_BITS: u32 = 64 - END_BITS;
/// Stands for all names beyond the number that can be distinguished; their idempotency keys are not counted.
const UNNAMED: u32 = (1 << (LOW_BITS + HIGH_BITS)) - 1;

/// A hash of a queue's name and an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PutKeyHash([u64; 2]);

/// Two keys of SipHash, chosen at random.
#[derive(Debug, Default)]
struct Secrets([RandomState; 2]);

/// A queue's name, as its hash, and the number of its idempotency keys.
#[derive(Debug)]
struct HashedQueue {
    hash: u64,
    count: u32,
}

impl Secrets {
    fn name(&self, queue: &QueueName) -> u64 {
        self.0[0].hash_one(queue)
    }

    fn digest(&self, queue: &QueueName, idempotency_key: &IdempotencyKey) -> PutKeyHash {
        PutKeyHash(self.0.each_ref().map(|secret| secret.hash_one((queue, idempotency_key))))
    }
}

#[derive(Debug)]
struct RememberedPut {
    digest: PutKeyHash,
    /// Bytes, since a `u128` id would be aligned to 16.
    id: [u8; 16],
    number: NonZeroU64,
    until: u64,
    /// What it stands for.
    stands_for: PutDigest,
}

impl RememberedPut {
    fn new(
        digest: PutKeyHash,
        answer: &PutAnswer,
        is_other: bool,
        (until, stands_for): (Timestamp, PutDigest),
        name: u32,
    ) -> RememberedPut {
        let (low, high) = (u64::from(name) & ((1 << LOW_BITS) - 1), u64::from(name) >> LOW_BITS);
        let number = answer.number.get() | low << NUMBER_BITS | if is_other { IS_OTHER } else { 0 };
        RememberedPut {
            digest,
            id: answer.id.as_bits().to_le_bytes(),
            number: NonZeroU64::new(number).expect("numbers begin with 1"),
            until: until.as_ms().unsigned_abs() | high << END_BITS,
            stands_for,
        }
    }

    fn is_other(&self) -> bool {
        self.number.get() & IS_OTHER != 0
    }

    fn number(&self) -> u64 {
        self.number.get() & ((1 << NUMBER_BITS) - 1)
    }

    fn until_ms(&self) -> i64 {
        (self.until & ((1 << END_BITS) - 1)) as i64
    }

    fn name(&self) -> u32 {
        let low = self.number.get() >> NUMBER_BITS & ((1 << LOW_BITS) - 1);
        (self.until >> END_BITS << LOW_BITS | low) as u32
    }
}

/// The idempotency keys of all queues.
#[derive(Debug)]
pub(super) struct IdempotencyKeys {
    secrets: Secrets,
    slots: Slab<RememberedPut>,
    by_idempotency_key: SlotTable,
    /// By the second at whose start they have run out.
    by_end: BTreeMap<i64, Vec<u32>>,
    /// Answers that do not report a new message, due at the instant in its id.
    others: BTreeMap<u32, PutAnswer>,
    /// Names that have idempotency keys.
    names: Slab<HashedQueue>,
    by_name: SlotTable,
}

impl IdempotencyKeys {
    pub(super) fn new() -> IdempotencyKeys {
        IdempotencyKeys {
            secrets: Secrets::default(),
            slots: Slab::new(),
            by_idempotency_key: SlotTable::new(),
            by_end: BTreeMap::new(),
            others: BTreeMap::new(),
            names: Slab::new(),
            by_name: SlotTable::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The number of idempotency keys of a queue's name.
    pub(super) fn len_of(&self, queue: &QueueName) -> usize {
        if self.slots.len() == 0 {
            return 0;
        }
        self.find_name(self.secrets.name(queue)).map_or(0, |name| self.names.get(name).count as usize)
    }

    /// The answer of the put under `idempotency_key`, and what the put was for, if that is remembered at `wall`.
    pub(super) fn recall(
        &self,
        queue: &QueueName,
        idempotency_key: &IdempotencyKey,
        wall: Timestamp,
    ) -> Option<(PutAnswer, PutDigest)> {
        if self.slots.len() == 0 {
            return None;
        }
        let slot = self.find(self.secrets.digest(queue, idempotency_key))?;
        let known = self.slots.get(slot);
        (wall.as_ms() < known.until_ms()).then(|| (self.answer(slot), known.stands_for))
    }

    /// Remembers `answer`, and forgets what the idempotency key stood for before.
    pub(super) fn remember(
        &mut self,
        queue: &QueueName,
        idempotency_key: &IdempotencyRecord,
        answer: PutAnswer,
    ) {
        let IdempotencyRecord { idempotency_key, until, digest: stands_for } = idempotency_key;
        let (until, ends) = (*until, (*until, *stands_for));
        let digest = self.secrets.digest(queue, idempotency_key);
        let is_other = answer.outcome != PutOutcome::Created || answer.due != answer.id.due_at_put();
        let slot = match self.find(digest) {
            // The entry of its old end finds it later, and skips it since it has moved.
            Some(slot) => {
                let name = self.slots.get(slot).name();
                *self.slots.get_mut(slot) = RememberedPut::new(digest, &answer, is_other, ends, name);
                self.others.remove(&slot);
                slot
            }
            None => {
                let name = self.count_in(queue);
                let slot = self.slots.insert(RememberedPut::new(digest, &answer, is_other, ends, name));
                self.by_idempotency_key.insert(digest.0[0], slot, |slot| self.slots.get(slot).digest.0[0]);
                self.by_end.entry(end(until.as_ms())).or_default().push(slot);
                slot
            }
        };
        if is_other {
            self.others.insert(slot, answer);
        }
    }

    /// Drops a few idempotency keys that have run out.
    pub(super) fn sweep(&mut self, wall: Timestamp) {
        self.sweep_some(EXPIRED_PER_PUT, wall);
    }

    /// Looks at up to `most` idempotency keys that have run out, and drops them. Returns how many it looked at.
    pub(super) fn sweep_some(&mut self, most: usize, wall: Timestamp) -> usize {
        for looked in 0..most {
            let Some(mut first) = self.by_end.first_entry() else { return looked };
            if wall.as_ms().div_euclid(1_000) < *first.key() {
                return looked;
            }
            let slot = first.get_mut().pop().expect("a second has tokens");
            if first.get().is_empty() {
                first.remove();
            }
            let known = self.slots.get(slot);
            if wall.as_ms() < known.until_ms() {
                self.by_end.entry(end(known.until_ms())).or_default().push(slot);
                continue;
            }
            let name = known.name();
            self.by_idempotency_key.remove(known.digest.0[0], slot);
            self.slots.remove(slot);
            self.others.remove(&slot);
            self.count_out(name);
        }
        most
    }

    fn find_name(&self, hash: u64) -> Option<u32> {
        self.by_name.find(hash, |name| self.names.get(name).hash == hash)
    }

    /// Counts one more idempotency key under a queue's name; returns the number of the name.
    fn count_in(&mut self, queue: &QueueName) -> u32 {
        let hash = self.secrets.name(queue);
        let name = match self.find_name(hash) {
            Some(name) => name,
            None if self.names.len() >= UNNAMED as usize => return UNNAMED,
            None => {
                let name = self.names.insert(HashedQueue { hash, count: 0 });
                self.by_name.insert(hash, name, |name| self.names.get(name).hash);
                name
            }
        };
        self.names.get_mut(name).count += 1;
        name
    }

    fn count_out(&mut self, name: u32) {
        if name == UNNAMED {
            return;
        }
        let counted = self.names.get_mut(name);
        counted.count -= 1;
        if counted.count == 0 {
            let hash = counted.hash;
            self.by_name.remove(hash, name);
            self.names.remove(name);
        }
    }

    fn find(&self, digest: PutKeyHash) -> Option<u32> {
        self.by_idempotency_key.find(digest.0[0], |slot| self.slots.get(slot).digest == digest)
    }

    fn answer(&self, slot: u32) -> PutAnswer {
        let known = self.slots.get(slot);
        if known.is_other() {
            return self.others[&slot];
        }
        let id = MessageId::from_bits(u128::from_le_bytes(known.id)).expect("it was one");
        let number = Number::new(known.number()).expect("it was one");
        PutAnswer { id, number, due: id.due_at_put(), outcome: PutOutcome::Created }
    }
}

/// The second at whose start `until_ms` has passed.
fn end(until_ms: i64) -> i64 {
    until_ms.div_euclid(1_000) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms).unwrap()
    }

    fn answer(counter: u64, due: i64, outcome: PutOutcome) -> PutAnswer {
        let id = MessageId::new(at(due), 0, 1, counter);
        PutAnswer { id, number: Number::new(counter + 1).unwrap(), due: at(due), outcome }
    }

    #[test]
    fn each_answer_comes_back_as_it_was_given_until_its_end() {
        let mut idempotency_keys = IdempotencyKeys::new();
        let (here, there): (QueueName, QueueName) = ("here".parse().unwrap(), "there".parse().unwrap());
        let idempotency_key = |n: u64| IdempotencyKey::new(&format!("token-{n}")).unwrap();
        let stands_for = |n: u64| PutDigest(u64::MAX - n);
        let record = |n: u64, until| IdempotencyRecord {
            idempotency_key: idempotency_key(n),
            until: at(until),
            digest: stands_for(n),
        };
        let replaced = PutOutcome::Replaced(MessageId::new(at(3), 0, 1, 77));
        let earlier = PutAnswer { due: at(1), ..answer(9, 50, PutOutcome::Created) };
        let answers = [
            answer(0, 0, PutOutcome::Created),
            answer(1, 7, PutOutcome::Kept),
            answer(2, 9, replaced),
            earlier,
        ];
        for (n, answer) in answers.iter().enumerate() {
            idempotency_keys.remember(&here, &record(n as u64, 1_000 * (n as i64 + 1)), *answer);
        }
        for (n, answer) in answers.iter().enumerate() {
            let end = 1_000 * (n as i64 + 1);
            assert_eq!(
                idempotency_keys.recall(&here, &idempotency_key(n as u64), at(end - 1)),
                Some((*answer, stands_for(n as u64)))
            );
            assert_eq!(idempotency_keys.recall(&here, &idempotency_key(n as u64), at(end)), None);
            assert_eq!(idempotency_keys.recall(&there, &idempotency_key(n as u64), at(0)), None);
        }
        // A new answer is remembered under the same idempotency key, and its old end does not count.
        idempotency_keys.remember(&here, &record(1, 9_000), answers[0]);
        let other = IdempotencyRecord { digest: stands_for(8), ..record(0, 9_500) };
        idempotency_keys.remember(&here, &other, answers[2]);
        for _ in 0..4 {
            idempotency_keys.sweep(at(8_000));
        }
        assert_eq!((idempotency_keys.len(), idempotency_keys.others.len()), (2, 1));
        assert_eq!(
            idempotency_keys.recall(&here, &idempotency_key(1), at(8_000)),
            Some((answers[0], stands_for(1)))
        );
        assert_eq!(
            idempotency_keys.recall(&here, &idempotency_key(0), at(8_000)),
            Some((answers[2], stands_for(8)))
        );
        idempotency_keys.sweep(at(11_000));
        assert_eq!(
            (idempotency_keys.len(), idempotency_keys.others.len(), idempotency_keys.by_end.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn each_name_has_its_own_count_however_many_there_are() {
        let mut idempotency_keys = IdempotencyKeys::new();
        let queue = |n: u64| QueueName::new(&format!("queue-{n}")).unwrap();
        let idempotency_key = |n: u64| IdempotencyKey::new(&format!("token-{n}")).unwrap();
        let record = |n, until| IdempotencyRecord {
            idempotency_key: idempotency_key(n),
            until: at(until),
            digest: PutDigest(n),
        };
        // More names than the bits beside a number can distinguish, and the latest instant.
        let latest = Timestamp::MAX.as_ms();
        for n in 0..5_000 {
            idempotency_keys.remember(
                &queue(n),
                &record(0, latest - (n % 2) as i64),
                answer(n, 7, PutOutcome::Kept),
            );
        }
        for n in 0..10 {
            idempotency_keys.remember(&queue(4_999), &record(n, 1_000), answer(n, 0, PutOutcome::Created));
        }
        assert_eq!(
            (
                idempotency_keys.len_of(&queue(0)),
                idempotency_keys.len_of(&queue(4_999)),
                idempotency_keys.len_of(&queue(5_000))
            ),
            (1, 10, 0)
        );
        for n in 0..5_000 {
            let until = latest - (n % 2) as i64;
            let known = (n < 4_999).then(|| (answer(n, 7, PutOutcome::Kept), PutDigest(0)));
            assert_eq!(idempotency_keys.recall(&queue(n), &idempotency_key(0), at(until - 1)), known, "{n}");
            assert_eq!(idempotency_keys.recall(&queue(n), &idempotency_key(0), at(until)), None);
        }
        idempotency_keys.sweep_some(EXPIRED_AT_CAP, at(3_000));
        // The first of its idempotency keys had another end before, and is looked at again then.
        assert_eq!(
            (idempotency_keys.len_of(&queue(4_999)), idempotency_keys.len(), idempotency_keys.names.len()),
            (1, 5_000, 5_000)
        );
    }

    #[test]
    fn one_takes_no_more_than_is_said() {
        assert_eq!(size_of::<RememberedPut>(), 56);
        let taken = size_of::<super::super::slab::SlabSlot<RememberedPut>>();
        // Four bytes each in the table, one byte of control, up to half of it empty, and four bytes in the
        // list by end.
        assert!(taken + 8 + 4 <= 72, "{taken}");
    }
}
