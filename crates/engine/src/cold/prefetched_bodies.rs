//! Bodies that were read with their messages, ahead of the takes that want them.
//!
//! The bodies of each queue are kept in the order in which its messages were handed over, which is nearly the order in
//! which they are wanted. A take of several queues wants bodies of these queues in turn.

use std::collections::VecDeque;

use bytes::Bytes;
use dwell_model::{Number, QueueName};

use crate::flush::memory_budget::MAX_HANDED_OVER;

/// The maximum number of unwanted bodies between two wanted ones.
pub(crate) const MAX_GAP: usize = 8;
/// The maximum number of queues whose bodies are kept.
const MAX_QUEUES: usize = super::MAX_PREFETCHES;
/// The maximum number of bodies per queue: one hand-over, and what is left of the previous one.
const MAX_BODIES: usize = 2 * MAX_HANDED_OVER;
/// The maximum number of bytes per queue.
const MAX_BYTES: usize = 2 * 1024 * 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct PrefetchedBodies {
    queues: VecDeque<QueueBodies>,
    /// The maximum number of bytes per queue.
    most_bytes: usize,
}

/// The bodies of one queue.
#[derive(Debug)]
pub(super) struct QueueBodies {
    queue: QueueName,
    kept: VecDeque<(Number, Bytes)>,
    bytes: usize,
    most_bytes: usize,
}

impl PrefetchedBodies {
    /// At most `bytes` bytes over all queues.
    pub(super) fn keeping(bytes: usize) -> PrefetchedBodies {
        PrefetchedBodies { queues: VecDeque::new(), most_bytes: (bytes / MAX_QUEUES).min(MAX_BYTES) }
    }

    /// The bodies of this queue, for more to be added.
    pub(super) fn of(&mut self, queue: &QueueName) -> &mut QueueBodies {
        let PrefetchedBodies { queues, most_bytes } = self;
        let at = queues.iter().position(|of| of.queue == *queue).unwrap_or_else(|| {
            if queues.len() == MAX_QUEUES {
                queues.pop_front();
            }
            let (queue, kept, most_bytes) = (queue.clone(), VecDeque::new(), *most_bytes);
            queues.push_back(QueueBodies { queue, kept, bytes: 0, most_bytes });
            queues.len() - 1
        });
        &mut queues[at]
    }

    /// The bodies of these messages in their order, as far as they are kept.
    ///
    /// Bodies that will never be taken, such as those of cancelled messages, may be more than [`MAX_GAP`] in a row. The
    /// first wanted one of each queue is therefore searched for among all, so that they do not block the others
    /// forever.
    pub(super) fn take<'a>(
        &mut self,
        wanted: impl Iterator<Item = (&'a QueueName, Number)>,
    ) -> Vec<(Number, Bytes)> {
        let mut found = Vec::new();
        if self.queues.iter().all(|of| of.kept.is_empty()) {
            return found;
        }
        let mut has_looked_far = [false; MAX_QUEUES];
        for (queue, number) in wanted {
            let Some(at) = self.queues.iter().position(|of| of.queue == *queue) else { continue };
            let reach = if std::mem::replace(&mut has_looked_far[at], true) { MAX_GAP } else { MAX_BODIES };
            found.extend(self.queues[at].take(number, reach));
        }
        found
    }

    /// No body of this queue is wanted any more.
    pub(super) fn forget(&mut self, queue: &QueueName) {
        self.queues.retain(|of| of.queue != *queue);
    }
}

impl QueueBodies {
    /// Appends a body, and drops the oldest ones beyond the bounds.
    pub(super) fn add(&mut self, number: Number, body: Bytes) {
        self.bytes += body.len();
        self.kept.push_back((number, body));
        while self.kept.len() > MAX_BODIES || self.bytes > self.most_bytes {
            self.drop_first(1);
        }
    }

    fn drop_first(&mut self, count: usize) {
        self.bytes -= self.kept.drain(..count).map(|(_, body)| body.len()).sum::<usize>();
    }

    /// Takes out a body that is among the first `reach`, and drops those before it.
    fn take(&mut self, number: Number, reach: usize) -> Option<(Number, Bytes)> {
        let at = self.kept.iter().take(reach).position(|(other, _)| *other == number)?;
        self.drop_first(at);
        let taken = self.kept.pop_front()?;
        self.bytes -= taken.1.len();
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> QueueName {
        name.parse().unwrap()
    }

    fn number(number: u64) -> Number {
        Number::new(number).unwrap()
    }

    fn body(number: u64) -> Bytes {
        format!("body {number}").into()
    }

    fn filled(queues: &[&str], count: u64) -> PrefetchedBodies {
        let mut bodies = PrefetchedBodies::keeping(usize::MAX);
        for name in queues {
            for one in 1..=count {
                bodies.of(&queue(name)).add(number(one), body(one));
            }
        }
        bodies
    }

    #[test]
    fn several_queues_in_turn_find_theirs() {
        let names = ["a", "b", "c"].map(queue);
        let mut bodies = filled(&["a", "b", "c"], 100);
        // Every third is wanted: those between were handed to another caller.
        let wanted: Vec<_> =
            (1..=100).step_by(3).flat_map(|one| names.iter().map(move |name| (name, one))).collect();
        let found = bodies.take(wanted.iter().map(|(name, one)| (*name, number(*one))));
        let expected: Vec<_> = wanted.iter().map(|(_, one)| (number(*one), body(*one))).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_far_behind_another_or_of_another_queue_is_not_looked_for() {
        let mut bodies = filled(&["a"], 100);
        let (a, b) = (queue("a"), queue("b"));
        let far = MAX_GAP as u64 + 2;
        assert_eq!(bodies.take([(&a, number(1)), (&a, number(far)), (&b, number(1))].into_iter()).len(), 1);
        assert_eq!(bodies.take([(&a, number(2)), (&a, number(far))].into_iter()).len(), 2);
    }

    #[test]
    fn those_that_nobody_comes_for_do_not_stand_in_the_way_for_good() {
        let mut bodies = filled(&["a"], 100);
        let a = queue("a");
        let wanted: Vec<_> = (60..=70).map(|one| (&a, number(one))).collect();
        assert_eq!(bodies.take(wanted.into_iter()).len(), 11);
        bodies.forget(&a);
        assert_eq!(bodies.take([(&a, number(71))].into_iter()), []);
    }

    #[test]
    fn what_comes_on_top_of_what_is_left_pushes_nothing_out() {
        let left = MAX_HANDED_OVER as u64 / 2;
        let mut bodies = filled(&["a"], left + MAX_HANDED_OVER as u64);
        let a = queue("a");
        let wanted: Vec<_> = (1..=left).map(|one| (&a, number(one))).collect();
        assert_eq!(bodies.take(wanted.into_iter()).len() as u64, left);
    }

    #[test]
    fn those_that_nobody_comes_for_are_bounded() {
        let mut bodies = filled(&["a"], MAX_BODIES as u64 + 10);
        assert_eq!(bodies.of(&queue("a")).kept.front(), Some(&(number(11), body(11))));
        let large = Bytes::from(vec![0; MAX_BYTES / 2]);
        for one in 1..=3 {
            bodies.of(&queue("a")).add(number(one), large.clone());
        }
        assert_eq!(bodies.of(&queue("a")).kept.iter().map(|(one, _)| one.get()).collect::<Vec<_>>(), [2, 3]);
        for name in ["b", "c", "d", "e"] {
            bodies.of(&queue(name)).add(number(1), body(1));
        }
        assert!(bodies.queues.len() == MAX_QUEUES && bodies.queues.iter().all(|of| of.queue != queue("a")));
    }
}
