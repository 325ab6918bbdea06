//! `run`: the engine under a simulated disk and clock, driven by seeds. The same seed gives the same run, byte for byte.
//!
//! # Layout
//! - `world`: engine, disk, clock, oracle, and the commands under way; one tick after another
//! - `client`: the commands that are sent
//! - `again`: puts that may be retried under their idempotency key
//! - `answers`: the engine's answers in the oracle's terms
//! - `time`: movements of the clocks
//! - `disaster`: power failures, kills, disks that fail or are full, and opening the store afterwards
//! - `deaths`: the store's counts of deaths and discards
//! - `schedule`: which background work runs between two turns
//! - `invariants`: checks where nothing is uncertain
//! - `totals`: many runs, and their totals
//! - `trace`: all events of a run, as a hash or in full

mod again;
pub(crate) mod answers;
mod client;
mod deaths;
mod disaster;
mod invariants;
mod schedule;
mod time;
mod totals;
mod trace;
mod world;

use self::disaster::Climate;
use self::world::World;
use crate::mutants::Mutant;
use crate::oracle::Violation;

/// The outcome of the run of one seed.
#[derive(Debug)]
pub(crate) struct RunOutcome {
    /// The hash of all events.
    pub(crate) trace: u64,
    /// Commands that were acknowledged.
    pub(crate) acknowledged: u64,
    /// The number of times that the store was opened after a disaster.
    pub(crate) reopened: u64,
    /// The number of writes since the store was last opened before the end.
    pub(crate) writes: u64,
    /// Whether messages were flushed to tables meanwhile.
    pub(crate) flushed: bool,
    /// The violations.
    pub(crate) violations: Vec<Violation>,
}

/// Runs one seed; prints all events if `told`.
pub(crate) fn run_seed(seed: u64, told: bool) -> RunOutcome {
    World::new(seed, told, None, None).run()
}

/// Runs one seed with a fault planted.
pub(crate) fn run_mutant(seed: u64, mutant: Mutant) -> RunOutcome {
    World::new(seed, false, Some(mutant), None).run()
}

/// Runs one seed and reports the outcome. Returns true if nothing was violated.
pub(crate) fn one(seed: u64, told: bool) -> bool {
    tell(seed, &run_seed(seed, told))
}

fn tell(seed: u64, outcome: &RunOutcome) -> bool {
    for violation in outcome.violations.iter().take(3) {
        println!("VIOLATION {violation}");
    }
    println!(
        "seed {seed}, acknowledged {}, reopened {}, flushed {}, trace {:016x}, violations {}",
        outcome.acknowledged,
        outcome.reopened,
        outcome.flushed,
        outcome.trace,
        outcome.violations.len()
    );
    outcome.violations.is_empty()
}

/// Runs seeds from `first` on. Returns true if nothing was violated.
pub(crate) fn many(first: u64, seeds: u64) -> bool {
    let again = |seed| format!("dwell-sim run --seed {seed} --verbose");
    totals::of((first..first + seeds).collect(), |seed| run_seed(*seed, false), again)
}

/// For each seed, fills the disk at each of its writes in turn. Returns true if nothing was violated.
pub(crate) fn squeeze_all(first: u64, seeds: u64) -> bool {
    let runs = (first..first + seeds).flat_map(|seed| (0..squeezable(seed)).map(move |write| (seed, write)));
    let again = |(seed, write)| format!("dwell-sim squeeze --seed {seed} --write {write}");
    totals::of(runs.collect(), |(seed, write)| squeezed(*seed, *write, false), again)
}

/// One of these runs, with all events printed. Returns true if nothing was violated.
pub(crate) fn squeeze_one(seed: u64, write: u64) -> bool {
    tell(seed, &squeezed(seed, write, true))
}

/// The number of writes of a seed that may fail for lack of room.
fn squeezable(seed: u64) -> u64 {
    squeezed(seed, u64::MAX, false).writes
}

/// Runs a seed whose only fault is that one to three writes fail for lack of room, after `writes` others.
fn squeezed(seed: u64, writes: u64, told: bool) -> RunOutcome {
    World::new(seed, told, None, Some(Climate::FullAt { writes, times: 1 + writes % 3 })).run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_is_the_same_run() {
        for seed in 1..=6 {
            let (first, second) = (run_seed(seed, false), run_seed(seed, false));
            assert_eq!(first.trace, second.trace, "dwell-sim run --seed {seed} --verbose");
            assert_ne!(first.trace, run_seed(seed + 1_000, false).trace);
        }
    }

    #[test]
    fn a_disk_that_is_full_at_any_write_loses_nothing_and_needs_no_opening() {
        let (mut runs, mut flushed) = (0, false);
        for seed in 1..=3 {
            for write in (0..squeezable(seed)).step_by(7) {
                let outcome = squeezed(seed, write, false);
                let first = outcome.violations.first();
                assert!(first.is_none(), "dwell-sim squeeze --seed {seed} --write {write}\n{first:?}");
                (runs, flushed) = (runs + 1, flushed || outcome.flushed);
            }
        }
        assert!(runs > 30 && flushed, "{runs} runs");
    }

    #[test]
    fn a_hundred_seeds_meet_every_climate() {
        let met: Vec<Climate> = (1..=100).map(|seed| World::new(seed, false, None, None).climate).collect();
        for climate in
            [Climate::Storms, Climate::Full, Climate::FewFiles, Climate::BadSectors, Climate::NoInodes]
        {
            assert!(met.contains(&climate), "{climate:?}");
        }
    }

    #[test]
    fn some_seeds_hold() {
        for seed in 1..=40 {
            let outcome = run_seed(seed, false);
            let first = outcome.violations.first();
            assert!(first.is_none(), "dwell-sim run --seed {seed} --verbose\n{}", first.expect("it is some"));
        }
    }
}
