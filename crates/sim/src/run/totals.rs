//! Many runs, and their totals.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::RunOutcome;

/// The totals of all runs.
#[derive(Debug, Default)]
struct Totals {
    runs: u64,
    acknowledged: u64,
    reopened: u64,
    violations: u64,
    told: u32,
}

/// Runs all, as many at a time as there are cores, and prints the totals; `again` is the command that repeats one.
/// Returns true if nothing was violated.
pub(super) fn of<R: Copy + Sync>(
    runs: Vec<R>,
    run: impl Fn(&R) -> RunOutcome + Sync,
    again: impl Fn(R) -> String + Sync,
) -> bool {
    let next = AtomicUsize::new(0);
    let totals = Mutex::new(Totals::default());
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(one) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = catch_unwind(AssertUnwindSafe(|| run(one)));
                    let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
                    totals.add(&again(*one), outcome.ok());
                }
            });
        }
    });
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!(
        "seeds {}, acknowledged {}, reopened {}, violations {}",
        totals.runs, totals.acknowledged, totals.reopened, totals.violations
    );
    totals.violations == 0
}

impl Totals {
    /// Adds the outcome of a run; `None` if it panicked, which is a violation too.
    fn add(&mut self, again: &str, outcome: Option<RunOutcome>) {
        self.runs += 1;
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
            println!("VIOLATION; again, in full: {again}\n{first}");
        }
    }
}
