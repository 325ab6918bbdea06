//! Which work in the background goes on between two turns: flush, merges, prefetch and deletion of files, as the seed has it.
//!
//! Threads may be faster than the event loop or slower, and one of them may not come to its work for long. Each seed has
//! speeds of its own, so that some order in which threads could do the work is that of some seed.

use dwell_engine::{Class, Driver};
use dwell_testkit::Random;

use super::trace::Trace;

/// So many slices at the most between two turns.
const SLICES: u64 = 12;

/// How fast each kind of work is, in hundredths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    speeds: [u64; Class::ALL.len()],
}

impl Schedule {
    /// From next to nothing to all at once, each kind for itself.
    pub(super) fn draw(rng: &mut Random) -> Schedule {
        Schedule { speeds: std::array::from_fn(|_| *rng.pick(&[3, 20, 50, 90, 100])) }
    }

    fn speed(&self, class: Class) -> u64 {
        let at = Class::ALL.iter().position(|one| *one == class);
        self.speeds[at.expect("it is one of all")]
    }

    /// Lets tasks go on, one slice after the other, in an order that is drawn.
    pub(super) fn go_on(&self, driver: &Driver, rng: &mut Random, trace: &mut Trace) {
        for _ in 0..rng.below(SLICES + 1) {
            let pending = driver.pending();
            if pending.is_empty() {
                return;
            }
            let nth = rng.below(pending.len() as u64) as usize;
            if rng.percent(self.speed(pending[nth])) {
                trace.add(format_args!("  {:?} goes on", pending[nth]));
                driver.step(nth);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_seeds_starve_each_kind_of_work_and_others_do_it_at_once() {
        let schedules: Vec<_> = (0..200).map(|seed| Schedule::draw(&mut Random::new(seed))).collect();
        for class in Class::ALL {
            for speed in [3, 100] {
                let others = |one: &&Schedule| Class::ALL.iter().any(|other| one.speed(*other) != speed);
                let found = schedules.iter().filter(|one| one.speed(class) == speed).any(|one| others(&one));
                assert!(found, "{class:?} at {speed}");
            }
        }
    }
}
