//! `stress`: the engine with its own threads and very little memory, callers
//! that run concurrently or alone, and an oracle that checks every answer.
//!
//! Flush, compaction, prefetch and deletion of files run all the time, next to callers that run the shard inline. The
//! interleaving of the threads is up to the machine; the commands are derived from the seed.
//!
//! # Layout
//! - this file: rounds, each with a store and options of its own
//! - `client`: one caller and its commands
//! - `look`: checks while nothing is under way
//! - `wait`: waiting for an answer, with a timeout

mod client;
mod look;
mod wait;

use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use dwell_engine::disk::MemoryDisk;
use dwell_engine::{Durability, Engine, Options};
use dwell_model::{Limits, Timestamp};
use dwell_testkit::Random;
use dwell_time::{Clock, ManualClock, SystemClock};

use self::client::{Burst, Client, Hands};
use crate::oracle::{Op, Oracle, Reading, Rules, Violation, ViolationKind};
use crate::run::answers::CommandFate;
use crate::workload::{Pool, Uses};

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StressOptions {
    /// The duration in seconds.
    pub(crate) seconds: Option<u64>,
    /// The number of rounds, unless a duration is given.
    pub(crate) rounds: u64,
    /// The seed of the first round; each later round uses the next seed.
    pub(crate) seed: u64,
}

/// The most concurrent callers.
const CLIENTS: u64 = 8;
/// The initial reading of a manual clock: 2026-01-01.
const START_MS: i64 = 1_767_225_600_000;

/// The state shared by all threads of a round.
struct StressShared {
    oracle: Mutex<Oracle>,
    pool: Mutex<Pool>,
    clock: Arc<dyn Clock>,
    /// The same clock, if it is a manual one.
    manual: Option<ManualClock>,
    /// The queue that most commands use, to have many of them interact.
    focus: Option<u32>,
    uses: Uses,
    /// Whether a call was not answered in time: then no thread waits any more.
    is_stuck: AtomicBool,
}

impl StressShared {
    fn oracle(&self) -> MutexGuard<'_, Oracle> {
        // A thread that panicked fails the round anyway.
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The wall clock is never stepped, so it serves as both clocks.
    fn now(&self) -> Reading {
        let wall = self.clock.now().wall.as_ms();
        Reading { wall, mono: wall }
    }

    fn wall(&self) -> Timestamp {
        self.clock.now().wall
    }

    /// Lets time pass, if the clock is a manual one.
    fn advance(&self, ms: u64) {
        if let Some(clock) = &self.manual {
            clock.advance(ms);
        }
    }

    /// Reports the outcome of a command to the oracle.
    fn conclude(&self, op: Op, fate: CommandFate) {
        let now = self.now();
        match fate {
            CommandFate::Heard(answer) => self.oracle().end(op, answer, now),
            CommandFate::Part | CommandFate::Unknown => self.oracle().lose(op, now),
            CommandFate::Odd(text) => {
                let mut oracle = self.oracle();
                oracle.accuse(ViolationKind::Contradiction, text);
                oracle.lose(op, now);
            }
        }
    }

    fn accuse(&self, kind: ViolationKind, text: String) {
        self.oracle().accuse(kind, text);
    }

    fn is_honest(&self) -> bool {
        self.oracle().violations().is_empty()
    }
}

/// Runs rounds until the limit, or until one fails. Returns true if nothing was violated.
///
/// # Errors
/// If a directory cannot be created.
pub(crate) fn run(wish: StressOptions) -> io::Result<bool> {
    let clock = SystemClock::new();
    let (mut acknowledged, mut given_up, mut violations, mut number) = (0, 0, 0, 0);
    let is_over = |number: u64| match wish.seconds {
        Some(seconds) => clock.now().mono_ms >= seconds * 1_000,
        None => number >= wish.rounds,
    };
    while violations == 0 && !is_over(number) {
        let seed = wish.seed.wrapping_add(number);
        number += 1;
        let mut round = Round::new(seed)?;
        let run = catch_unwind(AssertUnwindSafe(|| round.run()));
        let oracle = round.shared.oracle();
        acknowledged += oracle.counts().acknowledged;
        given_up += oracle.counts().given_up;
        let found = oracle.violations();
        violations += found.len() + usize::from(run.is_err());
        found.iter().take(3).for_each(|violation: &Violation| println!("VIOLATION {violation}"));
        if run.is_err() {
            println!("VIOLATION it panicked; see above");
        }
        if violations > 0 {
            println!(
                "the same choices again, though threads never meet twice in the same way: dwell-sim stress --rounds 1 --seed {seed}"
            );
            println!("a round of {round:?}");
        }
    }
    println!("rounds {number}, acknowledged {acknowledged}, given up {given_up}, violations {violations}");
    Ok(violations == 0)
}

/// A store with its own options, and the callers that use it.
struct Round {
    rng: Random,
    shared: StressShared,
    options: Options,
    directory: PathBuf,
    hands: Vec<Hands>,
    // Removed when the round is over.
    _files: Option<tempfile::TempDir>,
}

impl Round {
    fn new(seed: u64) -> io::Result<Round> {
        let mut rng = Random::new(seed);
        let manual = rng
            .percent(75)
            .then(|| ManualClock::new(Timestamp::from_ms(START_MS).expect("it lies in this century")));
        let clock: Arc<dyn Clock> = match &manual {
            Some(clock) => Arc::new(clock.clone()),
            None => Arc::new(SystemClock::new()),
        };
        let files = if rng.percent(35) {
            Some(tempfile::Builder::new().prefix("dwell-stress-").tempdir()?)
        } else {
            None
        };
        let directory =
            files.as_ref().map_or_else(|| PathBuf::from("/data"), |files| files.path().join("data"));
        let mut options = Options {
            limits: Limits { leased: *rng.pick(&[200, 10_000, 10_000]), ..Limits::default() },
            segment_bytes: *rng.pick(&[4 * 1024, 16 * 1024, 64 * 1024]),
            memory_limit: *rng.pick(&[16 * 1024, 64 * 1024, 64 * 1024, 256 * 1024, 1024 * 1024]),
            clock: Arc::clone(&clock),
            seed: Some(rng.next()),
            open_files: *rng.pick(&[Options::MIN_OPEN_FILES, 256]),
            bulk_per_call: *rng.pick(&[1, 3, 500]),
            run_bytes: *rng.pick(&[Options::MIN_RUN_BYTES, 1_024, Options::default().run_bytes]),
            durability: *rng.pick(&[Durability::Always, Durability::IntervalMs(50), Durability::Os]),
            ..Options::default()
        };
        if files.is_none() {
            options.disk = Arc::new(MemoryDisk::new());
        }
        // Leases run on the monotonic clock, but their ends are reported by the wall clock, which NTP slews.
        let lease_tolerance_ms = if manual.is_some() { 0 } else { 25 };
        let rules = Rules { lease_tolerance_ms, one_clock: true, ..Rules::default() };
        let focus = rng.percent(50).then(|| crate::workload::queue(&mut rng));
        let shared = StressShared {
            oracle: Mutex::new(Oracle::new(rules)),
            pool: Mutex::new(Pool::default()),
            clock,
            manual,
            focus,
            uses: Uses::of(seed),
            is_stuck: AtomicBool::new(false),
        };
        let hands = (0..CLIENTS).map(|number| Hands::new(Random::of(seed, number))).collect();
        Ok(Round { rng, shared, options, directory, hands, _files: files })
    }

    fn run(&mut self) {
        let Some(mut engine) = self.open() else { return };
        let bursts = self.rng.between(3, 7);
        for number in 0..bursts {
            let closes = self.burst(&engine);
            if !self.shared.is_honest() {
                break;
            }
            let is_last = number + 1 == bursts;
            if closes || is_last || self.rng.percent(25) {
                self.close(engine);
                let Some(opened) = self.open() else { return };
                engine = opened;
            }
            self.look(&engine);
            if !self.shared.is_honest() {
                break;
            }
        }
        if self.shared.is_honest() {
            self.last_look(&engine);
        }
        if self.shared.is_stuck.load(Ordering::SeqCst) {
            // Closing it might block for just as long.
            mem::forget(engine);
        }
    }

    fn open(&self) -> Option<Engine> {
        let now = self.shared.now();
        match Engine::open(&self.directory, self.options.clone()) {
            Ok(engine) => {
                self.shared.oracle().reopened(now);
                Some(engine)
            }
            Err(error) => {
                self.shared.accuse(ViolationKind::Lost, format!("the store cannot be opened: {error}"));
                None
            }
        }
    }

    /// Closes the store explicitly, or drops it, which differs only for the caller.
    fn close(&mut self, engine: Engine) {
        if self.rng.percent(50) {
            match engine.close() {
                Ok(()) | Err(dwell_store::Error::Closed) => {}
                Err(error) => {
                    self.shared.accuse(ViolationKind::Contradiction, format!("a close said {error}"))
                }
            }
        }
        drop(engine);
        let now = self.shared.now();
        self.shared.oracle().closed(now);
        self.shared.advance(self.rng.below(200));
    }

    /// Runs callers, concurrently or one alone. Returns true if one of them has closed the store.
    fn burst(&mut self, engine: &Engine) -> bool {
        let rng = &mut self.rng;
        let callers = *rng.pick(&[1, 1, 2, 3, 8, 8]);
        let pace = *rng.pick(&[0, 0, 1, 5, 60]);
        let has_clock = self.shared.manual.is_some();
        // The instant of the close is known exactly only if time stands still.
        let closes = pace == 0 && has_clock && callers > 1 && rng.percent(20);
        let commands = if callers == 1 { rng.between(40, 160) } else { rng.between(20, 100) };
        let may_wait = AtomicUsize::new(if callers == 1 { 12 } else { 4 });
        let burst = Burst { pace, closes, binds: has_clock, commands, may_wait };
        let (shared, burst) = (&self.shared, &burst);
        let clients = self.hands.iter_mut().take(callers).enumerate().map(|(number, hands)| {
            // The calls of some callers run inline.
            let engine = if number % 3 == 1 { engine.clone() } else { engine.with_inline_calls() };
            Client::new(shared, burst, engine, hands, closes && number == 0)
        });
        thread::scope(|scope| {
            for client in clients {
                scope.spawn(|| client.run());
            }
        });
        closes
    }
}

impl std::fmt::Debug for Round {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Options { limits, segment_bytes, memory_limit, durability, open_files, run_bytes, .. } =
            &self.options;
        let leased = limits.leased;
        let (on_files, by_hand) = (self._files.is_some(), self.shared.manual.is_some());
        write!(
            f,
            "memory_limit {memory_limit}, segment_bytes {segment_bytes}, run_bytes {run_bytes}, open_files {open_files}, \
             {durability:?}, leased {leased}, on files {on_files}, time moved by hand {by_hand}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_accuse_nobody() {
        assert!(run(StressOptions { seconds: None, rounds: 3, seed: 1 }).unwrap(), "see its output");
    }

    #[test]
    fn a_store_that_comes_back_empty_is_accused() {
        let mut rounds = (1..).map(|seed| Round::new(seed).unwrap());
        let mut round = rounds.find(|round| round._files.is_none()).unwrap();
        let engine = round.open().unwrap();
        round.burst(&engine);
        round.close(engine);
        assert!(round.shared.is_honest());
        round.options.disk = Arc::new(MemoryDisk::new());
        let engine = round.open().unwrap();
        round.look(&engine);
        assert!(
            !round.shared.is_honest(),
            "all is gone that was acknowledged: {:?}",
            round.shared.oracle().counts()
        );
    }
}
