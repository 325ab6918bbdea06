//! Where a take begins to read the index, so that it skips the rows that earlier takes have passed.
//!
//! Rows that were taken stay in the index as long as any transaction holds an older snapshot. So a take
//! gets a *floor*: an instant before which no message is left that was put and not touched since. It
//! returns the next candidate for the floor. But an open transaction may still add messages before that,
//! whose instants it computed from an earlier reading of the clock. So a candidate counts only up to the
//! [`Seal`]: every message due before it was visible before the take began, or never will be.

use std::collections::BTreeSet;

/// A snapshot of the transactions that may still add messages: the result of `writers_1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writers {
    /// The server's clock before the snapshot, in ms since the epoch.
    pub now_ms: i64,
    /// The open transactions that have put, by their virtual ids, which are never reused.
    pub open: BTreeSet<String>,
}

/// The instant before which all messages are visible to every later reader, or never will be.
///
/// A put locks a table before it reads the clock. If it did so before a snapshot, the snapshot
/// contains its lock; if it did so afterwards, it read a later clock. So once all transactions
/// of a snapshot have ended, the seal advances to the snapshot's instant.
#[derive(Clone, Debug, Default)]
pub struct Seal {
    at_ms: i64,
    waits_for: Option<Writers>,
}

impl Seal {
    /// The instant, in ms since the epoch; 0 before anything is known.
    pub fn at_ms(&self) -> i64 {
        self.at_ms
    }

    /// Adds a snapshot. They must be added in the order in which they were made.
    pub fn look(&mut self, writers: Writers) {
        if let Some(before) = &self.waits_for {
            if !before.open.is_disjoint(&writers.open) {
                return;
            }
            // A clock that steps back does not lower the seal: what was sealed is visible.
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

/// A take under way, with the seal up to which its candidate is valid.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct TakeInProgress {
    sealed_ms: i64,
}

impl Floor {
    /// Where the next take begins, in ms since the epoch; 0 is the start of the index.
    pub fn at_ms(&self) -> i64 {
        self.at_ms
    }

    /// Begins a take. It may miss what is sealed while it runs, so the seal is read first.
    pub fn begin(seal: &Seal) -> TakeInProgress {
        TakeInProgress { sealed_ms: seal.at_ms }
    }

    /// Ends a take that was committed and returned this candidate.
    pub fn end(&mut self, taking: TakeInProgress, candidate_ms: i64) {
        self.at_ms = self.at_ms.max(candidate_ms.min(taking.sealed_ms));
    }

    /// Resets the floor: the clock was stepped back, or another server answers.
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
        // The take sees all but the message of 3/7, due at 15; at 20 nothing is left.
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
