//! Tokens of puts, and the answers that they get again.
//!
//! A token belongs to a name, not to a queue: it is remembered though the queue has gone. What has run out
//! is dropped a few at a time by later puts, so that forgetting costs each put the same little.
//!
//! At tens of thousands of puts a second tens of millions are in force, so one takes as little as can be: about
//! 64 bytes, its share of the indexes included. Of name and token 128 bits are kept, under secrets of the process: nobody can choose two that are taken for one,
//! and among 2^24 the odds that any two are by chance are one in 2^81.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU64;

use dwell_model::{MessageId, Number, PutToken, QueueName, Timestamp};

use super::index::SlotTable;
use super::slab::Slab;
use crate::{PutAnswer, PutOutcome};

/// How many tokens that have run out each put may drop: more than it adds.
const SWEEP: usize = 3;
/// In [`Remembered::number`]: the answer is among [`Tokens::others`].
const IS_OTHER: u64 = 1 << 63;

/// Of a queue's name and a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Digest([u64; 2]);

/// Two keys of SipHash, chosen at random.
#[derive(Debug, Default)]
struct Secrets([RandomState; 2]);

impl Secrets {
    fn digest(&self, queue: &QueueName, token: &PutToken) -> Digest {
        Digest(self.0.each_ref().map(|secret| secret.hash_one((queue, token))))
    }
}

#[derive(Debug)]
struct Remembered {
    digest: Digest,
    /// Bytes, since an id as a number is aligned to 16.
    id: [u8; 16],
    number: NonZeroU64,
    until: Timestamp,
}

/// The tokens of all queues.
#[derive(Debug)]
pub(super) struct Tokens {
    secrets: Secrets,
    slots: Slab<Remembered>,
    by_token: SlotTable,
    /// By the second at whose start they have run out.
    by_end: BTreeMap<i64, Vec<u32>>,
    /// Answers that do not tell of a new message, due when its id says.
    others: BTreeMap<u32, PutAnswer>,
}

impl Tokens {
    pub(super) fn new() -> Tokens {
        Tokens {
            secrets: Secrets::default(),
            slots: Slab::new(),
            by_token: SlotTable::new(),
            by_end: BTreeMap::new(),
            others: BTreeMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The answer that a put under `token` got, if it is remembered at `wall`.
    pub(super) fn recall(&self, queue: &QueueName, token: &PutToken, wall: Timestamp) -> Option<PutAnswer> {
        if self.slots.len() == 0 {
            return None;
        }
        let slot = self.find(self.secrets.digest(queue, token))?;
        (wall < self.slots.get(slot).until).then(|| self.answer(slot))
    }

    /// Remembers `answer` until `until`; what the token stood for before is forgotten.
    pub(super) fn remember(
        &mut self,
        queue: &QueueName,
        token: &PutToken,
        answer: PutAnswer,
        until: Timestamp,
    ) {
        let digest = self.secrets.digest(queue, token);
        let id = answer.id.as_bits().to_le_bytes();
        let is_other = answer.outcome != PutOutcome::Created || answer.due != answer.id.due_at_put();
        let number = answer.number.get() | if is_other { IS_OTHER } else { 0 };
        let number = NonZeroU64::new(number).expect("numbers begin with 1");
        let remembered = Remembered { digest, id, number, until };
        let slot = match self.find(digest) {
            // Its old end finds it later, and sees that it has moved.
            Some(slot) => {
                *self.slots.get_mut(slot) = remembered;
                self.others.remove(&slot);
                slot
            }
            None => {
                let slot = self.slots.insert(remembered);
                self.by_token.insert(digest.0[0], slot, |slot| self.slots.get(slot).digest.0[0]);
                self.by_end.entry(end(until)).or_default().push(slot);
                slot
            }
        };
        if is_other {
            self.others.insert(slot, answer);
        }
    }

    /// Drops a few of those that have run out.
    pub(super) fn sweep(&mut self, wall: Timestamp) {
        for _ in 0..SWEEP {
            let Some(mut first) = self.by_end.first_entry() else { return };
            if wall.as_ms().div_euclid(1_000) < *first.key() {
                return;
            }
            let slot = first.get_mut().pop().expect("a second has tokens");
            if first.get().is_empty() {
                first.remove();
            }
            let known = self.slots.get(slot);
            if wall < known.until {
                self.by_end.entry(end(known.until)).or_default().push(slot);
                continue;
            }
            self.by_token.remove(known.digest.0[0], slot);
            self.slots.remove(slot);
            self.others.remove(&slot);
        }
    }

    fn find(&self, digest: Digest) -> Option<u32> {
        self.by_token.find(digest.0[0], |slot| self.slots.get(slot).digest == digest)
    }

    fn answer(&self, slot: u32) -> PutAnswer {
        let known = self.slots.get(slot);
        if known.number.get() & IS_OTHER != 0 {
            return self.others[&slot];
        }
        let id = MessageId::from_bits(u128::from_le_bytes(known.id)).expect("it was one");
        let number = Number::new(known.number.get()).expect("it was one");
        PutAnswer { id, number, due: id.due_at_put(), outcome: PutOutcome::Created }
    }
}

/// The second at whose start `until` is over.
fn end(until: Timestamp) -> i64 {
    until.as_ms().div_euclid(1_000) + 1
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
        let mut tokens = Tokens::new();
        let (here, there): (QueueName, QueueName) = ("here".parse().unwrap(), "there".parse().unwrap());
        let token = |n: u64| PutToken::new(&format!("token-{n}")).unwrap();
        let replaced = PutOutcome::Replaced(MessageId::new(at(3), 0, 1, 77));
        let earlier = PutAnswer { due: at(1), ..answer(9, 50, PutOutcome::Created) };
        let answers = [
            answer(0, 0, PutOutcome::Created),
            answer(1, 7, PutOutcome::Kept),
            answer(2, 9, replaced),
            earlier,
        ];
        for (n, answer) in answers.iter().enumerate() {
            tokens.remember(&here, &token(n as u64), *answer, at(1_000 * (n as i64 + 1)));
        }
        for (n, answer) in answers.iter().enumerate() {
            let end = 1_000 * (n as i64 + 1);
            assert_eq!(tokens.recall(&here, &token(n as u64), at(end - 1)), Some(*answer));
            assert_eq!(tokens.recall(&here, &token(n as u64), at(end)), None);
            assert_eq!(tokens.recall(&there, &token(n as u64), at(0)), None);
        }
        // Another one is remembered under the same token, and its old end does not count.
        tokens.remember(&here, &token(1), answers[0], at(9_000));
        tokens.remember(&here, &token(0), answers[2], at(9_500));
        for _ in 0..4 {
            tokens.sweep(at(8_000));
        }
        assert_eq!((tokens.len(), tokens.others.len()), (2, 1));
        assert_eq!(tokens.recall(&here, &token(1), at(8_000)), Some(answers[0]));
        assert_eq!(tokens.recall(&here, &token(0), at(8_000)), Some(answers[2]));
        tokens.sweep(at(11_000));
        assert_eq!((tokens.len(), tokens.others.len(), tokens.by_end.len()), (0, 0, 0));
    }

    #[test]
    fn one_takes_no_more_than_is_said() {
        assert_eq!(size_of::<Remembered>(), 48);
        let taken = size_of::<super::super::slab::Place<Remembered>>();
        // Four bytes each in the table, a byte beside, up to half of it empty, and four by the end.
        assert!(taken + 8 + 4 <= 64, "{taken}");
    }
}
