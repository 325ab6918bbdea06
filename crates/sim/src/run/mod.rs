//! `run`: the engine under a simulated disk and clock, from seeds. The same seed is the same run, byte for byte.
//!
//! # Layout
//! - `world`: engine, disk, clock, oracle, and the commands under way; one tick after the other
//! - `client`: which commands are sent
//! - `again`: puts that may be sent again under their token
//! - `answers`: what the engine's answers mean, in the oracle's words
//! - `time`: how the clocks move
//! - `disaster`: power failures, kills, disks that break or run full, and opening again after them
//! - `deaths`: what the store counts as dead and discarded
//! - `schedule`: which work in the background goes on between two turns
//! - `invariants`: what must be so where nothing is uncertain
//! - `totals`: many runs, and what they came to
//! - `trace`: all that happened, as a hash or in full

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

/// What a run of one seed came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The hash of all that happened.
    pub(crate) trace: u64,
    /// Commands that were acknowledged.
    pub(crate) acknowledged: u64,
    /// How often the store was opened again after a disaster.
    pub(crate) reopened: u64,
    /// How many writes there were since the store was last opened before the end.
    pub(crate) writes: u64,
    /// Whether messages were retired to due files meanwhile.
    pub(crate) retired: bool,
    /// What was violated.
    pub(crate) violations: Vec<Violation>,
}

/// Runs one seed; prints all that happens if it is to be `told`.
pub(crate) fn run_seed(seed: u64, told: bool) -> Outcome {
    World::new(seed, told, None, None).run()
}

/// Runs one seed with a fault planted.
pub(crate) fn run_mutant(seed: u64, mutant: Mutant) -> Outcome {
    World::new(seed, false, Some(mutant), None).run()
}

/// Runs one seed, and tells of it. True if nothing was violated.
pub(crate) fn one(seed: u64, told: bool) -> bool {
    tell(seed, &run_seed(seed, told))
}

fn tell(seed: u64, outcome: &Outcome) -> bool {
    for violation in outcome.violations.iter().take(3) {
        println!("VIOLATION {violation}");
    }
    println!(
        "seed {seed}, acknowledged {}, reopened {}, retired {}, trace {:016x}, violations {}",
        outcome.acknowledged,
        outcome.reopened,
        outcome.retired,
        outcome.trace,
        outcome.violations.len()
    );
    outcome.violations.is_empty()
}

/// Runs seeds from `first` on. True if nothing was violated.
pub(crate) fn many(first: u64, seeds: u64) -> bool {
    let again = |seed| format!("dwell-sim run --seed {seed} --verbose");
    totals::of((first..first + seeds).collect(), |seed| run_seed(*seed, false), again)
}

/// For each seed, lets the disk be full at each of its writes in turn. True if nothing was violated.
pub(crate) fn squeeze_all(first: u64, seeds: u64) -> bool {
    let runs = (first..first + seeds).flat_map(|seed| (0..squeezable(seed)).map(move |write| (seed, write)));
    let again = |(seed, write)| format!("dwell-sim squeeze --seed {seed} --write {write}");
    totals::of(runs.collect(), |(seed, write)| squeezed(*seed, *write, false), again)
}

/// One of these runs, told. True if nothing was violated.
pub(crate) fn squeeze_one(seed: u64, write: u64) -> bool {
    tell(seed, &squeezed(seed, write, true))
}

/// How many writes a seed has that may find no room.
fn squeezable(seed: u64) -> u64 {
    squeezed(seed, u64::MAX, false).writes
}

/// Runs a seed in which nothing happens but that one to three writes find no room, after so many others.
fn squeezed(seed: u64, writes: u64, told: bool) -> Outcome {
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
        let (mut runs, mut retired) = (0, false);
        for seed in 1..=3 {
            for write in (0..squeezable(seed)).step_by(7) {
                let outcome = squeezed(seed, write, false);
                let first = outcome.violations.first();
                assert!(first.is_none(), "dwell-sim squeeze --seed {seed} --write {write}\n{first:?}");
                (runs, retired) = (runs + 1, retired || outcome.retired);
            }
        }
        assert!(runs > 30 && retired, "{runs} runs");
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
