//! `schedules`: years of schedules on a store in memory and a clock that is moved, with runners that come late and die at
//! any of their calls. Under every policy each instant is run once, or not at all for a reason that the policy names.
//!
//! # Layout
//! - `mortal`: a store whose caller dies at a call
//! - `record`: what happened, and the verdict on it

mod mortal;
mod record;

use std::io;
use std::sync::Arc;

use dwell_delivery::schedule::{Every, INSTANT_HEADER, Missed, NAME_HEADER, Overlap, QUEUE, Runner};
use dwell_delivery::schedule::{Schedule, Schedules, Times};
use dwell_model::{Limits, QueueName, Timestamp};
use dwell_store::{Action, MemoryStore, Settle, Store, Take};
use dwell_testkit::Random;
use dwell_time::{Clock as _, ManualClock};

use self::mortal::{Mortal, now};
use self::record::{Record, Run, Subject};

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// The number of years of each policy.
    pub(crate) years: u64,
    /// The seed of all random choices.
    pub(crate) seed: u64,
}

/// When all of it begins, which is in no zone a change of the clock.
const START: &str = "2026-01-01T00:00:00Z";
const YEAR_MS: u64 = 366 * 86_400_000;
/// The lease of a runner that has died: nothing that it held is found before.
const LEASE_MS: u64 = 30_000;
/// The most deaths in a row, so that the puts of a run are repeated within `idempotency_ttl`.
const DEATHS_IN_A_ROW: u32 = 3;
/// The queue of the runs.
const RUNS: &str = "runs";

/// Runs the years of each policy. Returns true if nothing was violated.
///
/// # Errors
/// If something other than a promise of dwell fails.
pub(crate) fn run(wish: Wish) -> io::Result<bool> {
    println!("seed {}; again: dwell-sim schedules --years {} --seed {}", wish.seed, wish.years, wish.seed);
    let (mut instants, mut runs, mut deaths, mut violations) = (0, 0, 0, 0);
    let policies = Missed::ALL.into_iter().flat_map(|missed| Overlap::ALL.map(|overlap| (missed, overlap)));
    for (number, (missed, overlap)) in policies.enumerate() {
        let mut world = World::new(missed, overlap, Random::of(wish.seed, number as u64))?;
        world.live(wish.years * YEAR_MS)?;
        let verdict = world.record.verdict();
        for violation in verdict.violations.iter().take(5) {
            println!("VIOLATION missed {}, overlap {}: {violation}", missed.as_str(), overlap.as_str());
        }
        println!(
            "missed {}, overlap {}: instants {}, runs {}, deaths {}, violations {}",
            missed.as_str(),
            overlap.as_str(),
            verdict.instants,
            verdict.runs,
            world.record.deaths.len(),
            verdict.violations.len()
        );
        instants += verdict.instants;
        runs += verdict.runs;
        deaths += world.record.deaths.len();
        violations += verdict.violations.len();
    }
    println!(
        "years {}, policies 9, instants {instants}, runs {runs}, deaths {deaths}, violations {violations}",
        wish.years
    );
    Ok(violations == 0)
}

/// The years of one policy.
struct World {
    clock: ManualClock,
    store: Arc<MemoryStore>,
    mortal: Arc<Mortal>,
    rng: Random,
    record: Record,
}

/// A failure that is not the promise's.
fn failed(what: impl std::fmt::Display) -> io::Error {
    io::Error::other(what.to_string())
}

fn queue(name: &str) -> QueueName {
    name.parse().expect("it is a name, and a constant")
}

/// The schedules: even intervals, and civil times in zones with changes of the clock of every kind.
fn schedules() -> dwell_delivery::Result<Vec<Schedule>> {
    let cron = |expression, zone| Times::cron(expression, None, zone);
    let of = |name: &str, times| Schedule::new(name, RUNS, times);
    Ok(vec![
        of("hourly", Times::Every(Every::new(3_600_000)?))?,
        of("hours-jitter", Times::Every(Every::new(7_200_000)?))?.jitter_ms(50_000),
        of("berlin", cron("30 2 * * *", "Europe/Berlin")?)?,
        of("berlin-hours", cron("15 * * * *", "Europe/Berlin")?)?,
        of("lord-howe", cron("*/20 0-3 * * *", "Australia/Lord_Howe")?)?,
        of("new-york", cron("0 0 9 L * ?", "America/New_York")?)?,
        of("havana", cron("0 0 * * MON-FRI", "America/Havana")?)?.jitter_ms(600_000),
        of("quarter", cron("0 12 1 1,4,7,10 *", "Pacific/Apia")?)?,
    ])
}

impl World {
    fn new(missed: Missed, overlap: Overlap, rng: Random) -> io::Result<World> {
        let start: Timestamp = START.parse().map_err(failed)?;
        let clock = ManualClock::new(start);
        let store = Arc::new(MemoryStore::with_seed(Limits::default(), Arc::new(clock.clone()), 7));
        let defined = Schedules::new(Arc::clone(&store) as Arc<dyn Store>);
        let mut subjects = Vec::new();
        for schedule in schedules().map_err(failed)? {
            let schedule = schedule.missed(missed).overlap(overlap).body("run");
            let done = now(defined.define(schedule.clone(), start)).ok_or_else(|| failed("it waits"))?;
            done.map_err(failed)?;
            subjects.push(Subject::new(schedule));
        }
        let mortal = Arc::new(Mortal::new(Arc::clone(&store)));
        Ok(World { clock, store, mortal, rng, record: Record::new(missed, overlap, start, subjects) })
    }

    /// Lives for this long.
    fn live(&mut self, ms: u64) -> io::Result<()> {
        let end = self.now().after(ms).map_err(failed)?;
        let mut deaths = 0;
        while self.now() < end {
            if self.rng.percent(60) {
                self.consume()?;
            }
            let dies = deaths < DEATHS_IN_A_ROW && self.rng.percent(12);
            if self.pass(dies)? {
                deaths = 0;
                self.await_next()?;
            } else {
                deaths += 1;
                // The next runner comes when the lease is over, or later.
                self.clock.advance(LEASE_MS + self.rng.below(60_000));
            }
        }
        // The last word belongs to a runner that lives.
        self.pass(false)?;
        self.clock.advance(1);
        self.consume()?;
        self.record.ended = Some(self.now());
        let left = now(Schedules::new(Arc::clone(&self.store) as Arc<dyn Store>).list());
        let left = left.ok_or_else(|| failed("it waits"))?.map_err(failed)?;
        self.record.left = left.iter().filter(|listed| listed.is_ok()).count();
        Ok(())
    }

    fn now(&self) -> Timestamp {
        self.clock.now().wall
    }

    /// A runner runs what is due, or dies while it does. Returns whether it has lived.
    fn pass(&mut self, dies: bool) -> io::Result<bool> {
        let death = dies.then(|| (self.rng.below(5) as usize, self.rng.coin()));
        self.mortal.arm(death);
        let store = Arc::clone(&self.mortal) as Arc<dyn Store>;
        let runner = Runner::new(store, Arc::new(self.clock.clone()));
        match now(runner.run_due()) {
            Some(ran) => {
                ran.map_err(failed)?;
                self.record.passes.push(self.now());
                Ok(true)
            }
            None if dies => {
                self.record.deaths.push(self.now());
                Ok(false)
            }
            None => Err(failed("a runner does not end")),
        }
    }

    /// Moves on to the next instant, or past it: by milliseconds, by seconds, or by an outage of all servers.
    fn await_next(&mut self) -> io::Result<()> {
        let stats = now(self.store.stats(queue(QUEUE))).ok_or_else(|| failed("it waits"))?.map_err(failed)?;
        let next = stats.next_due.ok_or_else(|| failed("no schedule is armed"))?;
        let late_ms = match self.rng.below(200) {
            0..160 => self.rng.below(20),
            160..190 => self.rng.below(90_000),
            190..199 => self.rng.below(3 * 3_600_000),
            _ => self.rng.below(3 * 86_400_000),
        };
        self.clock.advance(next.ms_since(self.now()) + late_ms);
        Ok(())
    }

    /// Takes all runs and acks them.
    fn consume(&mut self) -> io::Result<()> {
        loop {
            let take = Take::from(queue(RUNS)).max(1_000);
            let taken = now(self.store.take(take)).ok_or_else(|| failed("it waits"))?.map_err(failed)?;
            let at = self.now();
            self.record.drains.push(at);
            if taken.is_empty() {
                return Ok(());
            }
            let mut acks = Vec::new();
            for run in taken {
                acks.push(Settle { receipt: run.receipt.clone(), action: Action::Ack });
                let header = |name| run.header(name).unwrap_or_default().to_owned();
                let instant = header(INSTANT_HEADER).parse().map_err(failed)?;
                let run = Run { instant, created: run.message.created, acked: at };
                self.record.ran(&header(NAME_HEADER), run);
            }
            let acked = now(self.store.settle(acks)).ok_or_else(|| failed("it waits"))?;
            acked.into_iter().try_for_each(|acked| acked.map(drop)).map_err(failed)?;
        }
    }
}
