//! Limits the names of queues that all connections together watch or wait on.
//!
//! A waiting take holds the queue's name and an entry in the queue's list of waiters. Each connection may have a few of
//! them in any case. Those beyond count [`NAME_BYTES`] each towards a limit of an eighth of the bytes that bodies may
//! hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Memory;

/// The number of names that a connection may always have.
pub(crate) const FREE_NAMES: usize = 16;

/// The memory that a name holds, measured with names of 200 bytes and waiting takes, and rounded up.
const NAME_BYTES: usize = 1024;

/// The number of names for which there is always room.
const FEWEST: usize = 256;

/// The number of names that connections have, beyond those that each may always have.
#[derive(Debug, Default)]
pub(super) struct Beyond(AtomicUsize);

/// The names of one connection; they are released when this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionNames {
    memory: Arc<Memory>,
    beyond: usize,
}

impl Memory {
    /// Reserves `count` names, if there is room for them.
    pub(crate) fn names(self: &Arc<Memory>, count: usize) -> Option<ConnectionNames> {
        let mut names = ConnectionNames { memory: Arc::clone(self), beyond: 0 };
        names.set(count).then_some(names)
    }

    /// The maximum number of names beyond those that each connection may always have.
    fn most_names(&self) -> usize {
        (self.answer_bytes() / NAME_BYTES).max(FEWEST)
    }
}

impl ConnectionNames {
    /// Sets the number of names; false if there is no room for more, and the number stays.
    pub(crate) fn set(&mut self, count: usize) -> bool {
        let (before, beyond) = (self.beyond, count.saturating_sub(FREE_NAMES));
        let all = &self.memory.names.0;
        if beyond > before {
            let most = self.memory.most_names();
            let sum = |all: usize| all.checked_add(beyond - before).filter(|sum| *sum <= most);
            if all.fetch_update(Ordering::AcqRel, Ordering::Acquire, sum).is_err() {
                return false;
            }
        } else {
            all.fetch_sub(before - beyond, Ordering::AcqRel);
        }
        self.beyond = beyond;
        true
    }
}

impl Drop for ConnectionNames {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_those_that_each_may_have_there_is_a_limit_for_all_together() {
        let memory = Memory::new(8 * 1024 * 300);
        let one = memory.names(FREE_NAMES + 298).unwrap();
        let mut others: Vec<_> = (0..1_000).map(|_| memory.names(FREE_NAMES).unwrap()).collect();
        assert!(memory.names(FREE_NAMES + 3).is_none());
        let mut other = others.pop().unwrap();
        assert!(other.set(FREE_NAMES + 1) && other.set(FREE_NAMES + 2) && !other.set(FREE_NAMES + 3));
        // One less; then the connection with the other names ends.
        assert!(other.set(FREE_NAMES + 1) && others[0].set(FREE_NAMES + 1) && !others[1].set(FREE_NAMES + 1));
        drop(one);
        assert!(others[1].set(FREE_NAMES + 298) && !others[2].set(FREE_NAMES + 1));
        drop((other, others));
        assert_eq!(memory.names.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn for_some_there_is_always_room() {
        assert!(Memory::new(1).names(FREE_NAMES + FEWEST).is_some());
    }
}
