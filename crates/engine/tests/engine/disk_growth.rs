//! Two years of a steady mix: the space on the disk, and the number of files, stay in proportion to what is pending.
//!
//! Delays from milliseconds to a year, with every order of magnitude equally likely; one message in twenty is
//! cancelled, one in twenty rescheduled, one in a hundred dies, every third has a key.

use dwell_engine::disk::MemoryDisk;
use dwell_engine::{Counters, Options};
use dwell_model::{Key, MessageId};
use dwell_store::{Action, Put, Settle, Store, Take, Target, When};
use dwell_testkit::Random;
use dwell_time::ManualClock;

use crate::support::{Driven, options, queue, start};

const HOUR_MS: u64 = 3_600_000;
const YEAR_MS: u64 = 365 * 24 * HOUR_MS;
const STEP_MS: u64 = 6 * HOUR_MS;
const STEPS: u64 = 2 * YEAR_MS / STEP_MS;
const BODY: usize = 256;
/// The size of a message on the disk, with all its attributes.
const MESSAGE: u64 = BODY as u64 + 64;
const SEGMENT: u64 = 16 * 1024;
struct Years {
    limit: u64,
    store: Driven,
    chance: Random,
    pending: Vec<MessageId>,
    put: u64,
    most_files: u64,
    most_runs: u64,
    most_expired: u64,
}

impl Years {
    fn new(seed: u64, limit: u64) -> Years {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
        let options = Options { segment_bytes: SEGMENT, memory_limit: limit, ..options(&disk, &clock) };
        let store = Driven::open(disk, clock, options).unwrap();
        let (chance, pending) = (Random::new(seed), Vec::new());
        Years { limit, store, chance, pending, put: 0, most_files: 0, most_runs: 0, most_expired: 0 }
    }

    fn delay_ms(&mut self) -> u64 {
        let orders = (YEAR_MS as f64).ln();
        let part = self.chance.below(1 << 32) as f64 / f64::from(u32::MAX);
        ((orders * part).exp() as u64).min(YEAR_MS)
    }

    fn put(&mut self, count: u64) {
        let mut puts = Vec::new();
        for _ in 0..count {
            let name = ["a", "b", "c"][self.chance.below(3) as usize];
            let mut put = Put::new(queue(name), vec![b'x'; BODY]).after_ms(self.delay_ms());
            if self.chance.below(3) == 0 {
                put = put.key(Key::new(&format!("key-{}", self.chance.below(1 << 40))).unwrap());
            }
            puts.push(put);
        }
        let engine = self.store.engine.clone();
        let answers = self.store.run(engine.put(puts));
        self.put += count;
        self.pending.extend(answers.into_iter().map(|answer| answer.unwrap().id));
    }

    fn change(&mut self, count: u64) {
        for _ in 0..count {
            if self.pending.is_empty() {
                return;
            }
            let at = self.chance.below(self.pending.len() as u64) as usize;
            let is_cancelled = self.chance.coin();
            let id = self.pending[at];
            let engine = self.store.engine.clone();
            let delay_ms = self.delay_ms();
            for name in ["a", "b", "c"] {
                let target = Target::Id(id);
                if is_cancelled {
                    self.store.run(engine.cancel(queue(name), vec![target])).pop().unwrap().unwrap();
                } else {
                    let moves = vec![(target, When::AfterMs(delay_ms))];
                    self.store.run(engine.reschedule(queue(name), moves)).pop().unwrap().unwrap();
                }
            }
            if is_cancelled {
                self.pending.swap_remove(at);
            }
        }
    }

    /// Takes and settles all that is due.
    fn drain(&mut self) {
        for name in ["a", "b", "c"] {
            loop {
                let taken = self.store.take(Take::from(queue(name)).max(64)).unwrap();
                if taken.is_empty() {
                    break;
                }
                let settles = taken.into_iter().map(|delivery| {
                    let action = match self.chance.below(100) {
                        0 => Action::Bury { reason: None, priority: None },
                        _ => Action::Ack,
                    };
                    Settle { receipt: delivery.receipt, action }
                });
                let settles: Vec<Settle> = settles.collect();
                let engine = self.store.engine.clone();
                let settled = self.store.run(engine.settle(settles));
                assert!(settled.into_iter().all(|settled| settled.is_ok()));
            }
        }
    }

    fn measure(&mut self) {
        let counters = self.store.engine.counters();
        let Counters { resident, cold, tables, runs, .. } = counters;
        let (live, used) = ((resident + cold) * MESSAGE, self.store.disk.used());
        let over = used.saturating_sub(2 * live);
        // In addition there is the journal up to a flush, and its next segment; what is written and not in use yet;
        // indexes, runs and the manifest.
        assert!(over <= 2 * self.limit + 4 * SEGMENT, "{used} bytes for {live}: {counters:?}");
        self.most_expired = self.most_expired.max(over);
        self.most_files = self.most_files.max(tables);
        self.most_runs = self.most_runs.max(runs);
        // Small ones, and one for each eighth of a generation, when indexes leave the least for one. There are at most
        // twice the entries that are in use.
        let generation = self.limit / 4 / 5 / 224;
        let files = 32 + 8 + (2 * (resident + cold) + 2 * generation) / (generation / 8);
        assert!(tables <= files, "{tables} files: {counters:?}");
        // For as many pairs, of numbers and of keys.
        let sizes = (2 * (resident + cold) + 2 * generation).ilog2();
        assert!(runs <= 2 * (4 + u64::from(sizes)), "{runs} runs: {counters:?}");
    }

    fn run(mut self, puts_a_step: u64) {
        for _ in 0..STEPS {
            self.put(puts_a_step);
            self.measure();
            self.change(puts_a_step / 10);
            self.measure();
            self.store.clock.advance(STEP_MS);
            self.drain();
            self.measure();
            let keep = self.pending.len().saturating_sub(20_000);
            self.pending.drain(..keep);
        }
        let counters = self.store.engine.counters();
        println!(
            "{} put, {} left, at most {} tables and {} runs, {} bytes over twice what is live; {} bytes of \
             {} put went to tables, a body at most {} times to journal and files; {} checkpoints",
            self.put,
            counters.resident + counters.cold,
            self.most_files,
            self.most_runs,
            self.most_expired,
            counters.table_bytes,
            self.put * MESSAGE,
            counters.body_writes,
            counters.flushes
        );
        assert!(counters.body_writes <= 3, "{counters:?}");
        // Once in the journal; what is rescheduled or dies is written to a file again.
        assert!(counters.table_bytes <= 2 * self.put * MESSAGE, "{counters:?}");
    }
}

#[test]
fn two_years_of_a_steady_mix() {
    Years::new(1, 256 * 1024).run(25);
}

#[test]
#[ignore = "takes minutes; ./scripts/test --long runs it"]
fn two_years_of_a_larger_mix() {
    Years::new(2, 2 * 1024 * 1024).run(500);
}
