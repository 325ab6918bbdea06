//! Where a take begins, so that it does not read again what earlier ones have passed.
//!
//! Rows that were taken stay in the index for as long as somebody holds a snapshot. A take is therefore given a *floor*: an instant
//! before which no message that was put and not touched since is left. It answers with the next candidate. But a transaction
//! that is open may still add messages before that, with an instant that it read from the clock earlier. So a candidate counts
//! only up to the [`Seal`]: all that is due before it was visible before the take began, or will never be.

use std::collections::BTreeSet;

/// One look at the transactions that may still add messages: what `writers_1` answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writers {
    /// The server's clock before the look, in milliseconds since the epoch.
    pub now_ms: i64,
    /// The transactions that have put and are not over, by their virtual ids, which are not given twice.
    pub open: BTreeSet<String>,
}

/// The instant before which all messages are visible to whoever looks from now on, or will never be.
///
/// Puts lock a table before they read the clock. Of those that did so before a look, the look has seen the lock; those that
/// come after it read a later clock. So when all that the look saw are over, the seal is where it was made.
#[derive(Clone, Debug, Default)]
pub struct Seal {
    at_ms: i64,
    waits_for: Option<Writers>,
}

impl Seal {
    /// The instant, in milliseconds since the epoch; 0 before anything is known.
    pub fn at_ms(&self) -> i64 {
        self.at_ms
    }

    /// Takes note of one more look. Looks are given in the order in which they were made.
    pub fn look(&mut self, writers: Writers) {
        if let Some(before) = &self.waits_for {
            if !before.open.is_disjoint(&writers.open) {
                return;
            }
            // A clock that was stepped back takes nothing back: what was sealed is visible.
            self.at_ms = self.at_ms.max(before.now_ms);
        }
        self.waits_for = Some(writers);
    }
}

/// The floor of one queue in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    at_ms: i64,
}

/// A take that is under way: what its answer may be believed up to.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Taking {
    sealed_ms: i64,
}

impl Floor {
    /// Where the next take begins, in milliseconds since the epoch; 0 is the beginning of all.
    pub fn at_ms(&self) -> i64 {
        self.at_ms
    }

    /// A take begins. What is sealed while it runs it may not have seen.
    pub fn begin(seal: &Seal) -> Taking {
        Taking { sealed_ms: seal.at_ms }
    }

    /// It ended, was committed, and answered with this candidate.
    pub fn end(&mut self, taking: Taking, candidate_ms: i64) {
        self.at_ms = self.at_ms.max(candidate_ms.min(taking.sealed_ms));
    }

    /// Nothing is known any more: the clock was stepped back, or another server answers.
    pub fn forget(&mut self) {
        self.at_ms = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(now_ms: i64, open: &[&str]) -> Writers {
        Writers { now_ms, open: open.iter().map(|id| (*id).to_owned()).collect() }
    }

    #[test]
    fn the_seal_follows_the_clock_while_nobody_puts() {
        let mut seal = Seal::default();
        for now_ms in [10, 20, 30] {
            seal.look(look(now_ms, &[]));
        }
        assert_eq!(seal.at_ms(), 20, "the last look is not proven yet");
    }

    #[test]
    fn the_seal_waits_for_all_that_a_look_saw_and_for_no_others() {
        let mut seal = Seal::default();
        seal.look(look(10, &["3/7", "4/1"]));
        seal.look(look(20, &["4/1", "5/5"]));
        assert_eq!(seal.at_ms(), 0);
        seal.look(look(30, &["5/5", "3/8"]));
        assert_eq!(seal.at_ms(), 10, "5/5 began after it");
        seal.look(look(40, &[]));
        assert_eq!(seal.at_ms(), 30);
    }

    #[test]
    fn what_is_sealed_during_a_take_does_not_count_for_it() {
        let mut seal = Seal::default();
        let mut floor = Floor::default();
        seal.look(look(10, &["3/7"]));
        // It sees all but what 3/7 has put, due at 15, and is at 20 when nothing is left.
        let taking = Floor::begin(&seal);
        seal.look(look(30, &[]));
        seal.look(look(40, &[]));
        floor.end(taking, 20);
        assert!(floor.at_ms() <= 15, "the message of 3/7 is still to come");
        let taking = Floor::begin(&seal);
        floor.end(taking, 35);
        assert_eq!(floor.at_ms(), 30);
    }

    #[test]
    fn a_floor_does_not_sink_but_when_it_is_forgotten() {
        let mut seal = Seal::default();
        seal.look(look(50, &[]));
        seal.look(look(20, &[]));
        assert_eq!(seal.at_ms(), 50);
        let mut floor = Floor::default();
        floor.end(Floor::begin(&seal), 60);
        floor.end(Floor::begin(&seal), 7);
        assert_eq!(floor.at_ms(), 50);
        floor.forget();
        assert_eq!(floor, Floor::default());
    }
}
