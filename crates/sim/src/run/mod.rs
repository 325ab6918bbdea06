//! `run`: the engine under a simulated disk and clock, from seeds. The same seed is the same run, byte for byte.
//!
//! # Layout
//! - `world`: engine, disk, clock, oracle, and the commands under way; one tick after the other
//! - `client`: which commands are sent
//! - `answers`: what the engine's answers mean, in the oracle's words
//! - `time`: how the clocks move
//! - `disaster`: power failures, kills, disks that break or run full, and opening again after them
//! - `invariants`: what must be so where nothing is uncertain
//! - `trace`: all that happened, as a hash or in full

mod answers;
mod client;
mod disaster;
mod invariants;
mod time;
mod trace;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

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
    /// What was violated.
    pub(crate) violations: Vec<Violation>,
}

/// Runs one seed; prints all that happens if it is to be `told`.
pub(crate) fn run_seed(seed: u64, told: bool) -> Outcome {
    World::new(seed, told, None).run()
}

/// Runs one seed with a fault planted.
pub(crate) fn run_mutant(seed: u64, mutant: Mutant) -> Outcome {
    World::new(seed, false, Some(mutant)).run()
}

/// Runs one seed, and tells of it. True if nothing was violated.
pub(crate) fn one(seed: u64, told: bool) -> bool {
    let outcome = run_seed(seed, told);
    for violation in outcome.violations.iter().take(3) {
        println!("VIOLATION {violation}");
    }
    println!(
        "seed {seed}, acknowledged {}, reopened {}, trace {:016x}, violations {}",
        outcome.acknowledged,
        outcome.reopened,
        outcome.trace,
        outcome.violations.len()
    );
    outcome.violations.is_empty()
}

/// What all seeds came to.
#[derive(Debug, Default)]
struct Totals {
    seeds: u64,
    acknowledged: u64,
    reopened: u64,
    violations: u64,
    told: u32,
}

/// Runs seeds from `first` on. True if nothing was violated.
pub(crate) fn many(first: u64, seeds: u64) -> bool {
    let next = AtomicU64::new(first);
    let totals = Mutex::new(Totals::default());
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed - first >= seeds {
                        break;
                    }
                    let outcome = catch_unwind(AssertUnwindSafe(|| run_seed(seed, false)));
                    let mut totals = totals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    totals.add(seed, outcome.ok());
                }
            });
        }
    });
    let totals = totals.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    println!(
        "seeds {}, acknowledged {}, reopened {}, violations {}",
        totals.seeds, totals.acknowledged, totals.reopened, totals.violations
    );
    totals.violations == 0
}

impl Totals {
    /// Adds a seed's outcome; none if it panicked, which is a violation as well.
    fn add(&mut self, seed: u64, outcome: Option<Outcome>) {
        self.seeds += 1;
        let first = match &outcome {
            Some(outcome) => {
                self.acknowledged += outcome.acknowledged;
                self.reopened += outcome.reopened;
                self.violations += outcome.violations.len() as u64;
                outcome.violations.first().map(ToString::to_string)
            }
            None => {
                self.violations += 1;
                Some("it panicked; see above".to_owned())
            }
        };
        if let Some(first) = first
            && self.told < 5
        {
            self.told += 1;
            println!(
                "VIOLATION in seed {seed}; again, in full: dwell-sim run --seed {seed} --verbose\n{first}"
            );
        }
    }
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
    fn some_seeds_hold() {
        for seed in 1..=40 {
            let outcome = run_seed(seed, false);
            let first = outcome.violations.first();
            assert!(first.is_none(), "dwell-sim run --seed {seed} --verbose\n{}", first.expect("it is some"));
        }
    }
}
