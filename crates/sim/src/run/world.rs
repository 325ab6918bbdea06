//! The world of one seed: engine, disk, clock, oracle, and the commands under way. One thread, one order.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dwell_engine::disk::MemoryDisk;
use dwell_engine::{Driver, Durability, Engine, Options};
use dwell_model::{Limits, MessageId, Timestamp};
use dwell_store::Store;
use dwell_testkit::Random;
use dwell_time::{Clock as _, ManualClock};

use super::RunOutcome;
use super::again::Again;
use super::answers::CommandFate;
use super::client::{Flight, HeldLease};
use super::deaths::Deaths;
use super::disaster::{Climate, Weather};
use super::schedule::Schedule;
use super::time;
use super::trace::Trace;
use crate::mutants::{Memory, Mutant, MutantDisk, StoreFault};
use crate::oracle::{Address, Op, Oracle, Reading, Rules, ViolationKind};
use crate::workload::{self, Pool, Uses};

/// The number of ticks after which the store has to run out of work. In between it is observed with flushes half done.
const TICKS_TO_REST: u64 = 16;
/// The number of turns within which it has to run out of work.
const TURNS_TO_REST: usize = 20_000;
/// The number of puts that have to be decided after that, with unreadable sectors.
const PUTS_EXPECTED: u64 = 16;

/// An open store.
pub(super) struct Running {
    // Dropped first: nothing is written once the driver is gone.
    pub(super) driver: Driver,
    pub(super) engine: Engine,
    /// The engine, or the mutant in front of it.
    pub(super) store: Arc<dyn Store>,
}

/// The state of a run; see the [module](self).
pub(super) struct World {
    pub(super) rng: Random,
    pub(super) clock: ManualClock,
    pub(super) disk: MemoryDisk,
    pub(super) mutant_disk: Option<MutantDisk>,
    pub(super) fault: Option<StoreFault>,
    /// What the fault remembers while the store is not open.
    pub(super) memory: Memory,
    pub(super) options: Options,
    pub(super) running: Option<Running>,
    pub(super) oracle: Oracle,
    pub(super) trace: Trace,
    pub(super) pool: Pool,
    pub(super) flights: Vec<Flight>,
    /// Commands with an unknown outcome, until the store is opened again.
    pub(super) lost: Vec<Op>,
    /// Takes whose caller was dropped, until the store has noticed.
    pub(super) abandoned: Vec<Op>,
    /// Takes that could not read all that they leased, until the store has processed the rest.
    pub(super) unread: Vec<Op>,
    pub(super) held: Vec<HeldLease>,
    pub(super) spent: Vec<HeldLease>,
    pub(super) again: Option<Again>,
    /// Whether the store has reported that it cannot continue.
    pub(super) has_failed: bool,
    pub(super) weather: Weather,
    pub(super) climate: Climate,
    schedule: Schedule,
    pub(super) uses: Uses,
    /// The minimum counts of deaths and discards since the store was opened.
    pub(super) deaths: Deaths,
    /// Whether the disk has been full once, in a run in which it is full only once.
    pub(super) is_filled: bool,
    /// Whether flipped bits were copied, and so remain: some messages can no longer be read.
    pub(super) is_scarred: bool,
    /// The number of sectors that are unreadable for good.
    pub(super) sectors_lost: u64,
    /// The number of further seconds during which they may delay puts.
    pub(super) held_up_s: u64,
    /// Messages that are believed to be readable; kept if lost sectors are the only fault.
    pub(super) addresses: BTreeMap<MessageId, Address>,
    /// Puts that were accepted, or refused for their own arguments, not for a lack of resources.
    pub(super) puts_decided: u64,
    pub(super) reopened: u64,
}

impl World {
    /// The world of `seed`, with a planted fault if there is a mutant. Its
    /// disasters are derived from the seed too, unless a climate is given.
    pub(super) fn new(seed: u64, is_told: bool, mutant: Option<Mutant>, climate: Option<Climate>) -> World {
        let mut rng = Random::new(seed);
        let own = Climate::of(rng.below(100));
        let climate = climate.unwrap_or(own);
        let clock = ManualClock::new(Timestamp::from_ms(time::START_MS).expect("it lies in this century"));
        let disk = MemoryDisk::new();
        let (mutant_disk, fault) = match mutant {
            Some(Mutant::Disk(fault)) => (Some(MutantDisk::new(disk.clone(), fault)), None),
            Some(Mutant::Store(fault)) => (None, Some(fault)),
            None => (None, None),
        };
        let limits =
            Limits { leased: *rng.pick(&[5, 40, 10_000]), batch: 1_000, queues: 1_000, ..Limits::default() };
        let mut options = Options {
            limits,
            segment_bytes: *rng.pick(&[4 * 1024, 16 * 1024, 64 * 1024]),
            // From almost nothing, so that most messages are in tables, to everything.
            memory_limit: *rng.pick(&[Options::MIN_MEMORY_LIMIT, 16 * 1024, 64 * 1024, u64::MAX]),
            clock: Arc::new(clock.clone()),
            disk: match &mutant_disk {
                Some(mutant) => Arc::new(mutant.clone()),
                None => Arc::new(disk.clone()),
            },
            seed: Some(rng.next()),
            // Few enough that files are closed and reopened all the time.
            open_files: if seed.is_multiple_of(2) { Options::MIN_OPEN_FILES } else { 256 },
            // Small enough that a journal that cannot begin a new segment reaches its limit.
            body_reach: if seed.is_multiple_of(3) { 96 * 1024 } else { u32::MAX },
            // Few enough that other commands, time and crashes come between two slices of a revive of all.
            bulk_per_call: *rng.pick(&[1, 1, 2, 3, 1_000]),
            // Short enough that runs are split like those of very large stores.
            run_bytes: [Options::MIN_RUN_BYTES, 1_024, Options::default().run_bytes][(seed % 3) as usize],
            // The disk loses what was answered within the interval; see `disaster`.
            durability: match seed % 5 {
                4 => Durability::IntervalMs([1, 50, 2_000][(seed % 3) as usize]),
                _ => Durability::Always,
            },
            // Few enough that more messages expire at one instant than one turn
            // processes, and any command may come before the rest.
            expired_per_turn: *rng.pick(&[1, 2, 5, 16 * 1024]),
            // Few enough that more leases run out at one instant than one slice processes, and takes wait for the rest.
            lapsed_per_slice: [1, 1_000, 2, 3][(seed / 3 % 4) as usize],
            ..Options::default()
        };
        match climate {
            // Small enough that a journal reaches its limit before files can be created again.
            Climate::NoInodes => (options.segment_bytes, options.body_reach) = (4 * 1024, 8 * 1024),
            // Small enough that puts wait for flushes, or large enough that all messages stay in the journal.
            Climate::BadSectors if seed.is_multiple_of(2) => {
                options.memory_limit = Options::MIN_MEMORY_LIMIT;
            }
            Climate::BadSectors => options.memory_limit = u64::MAX,
            _ => {}
        }
        let schedule = Schedule::draw(&mut rng);
        World {
            rng,
            clock,
            disk,
            mutant_disk,
            fault,
            memory: Memory::default(),
            options,
            running: None,
            oracle: Oracle::new(Rules { power_loss: true, ..Rules::default() }),
            trace: Trace::new(is_told),
            pool: Pool::default(),
            flights: Vec::new(),
            lost: Vec::new(),
            abandoned: Vec::new(),
            unread: Vec::new(),
            held: Vec::new(),
            spent: Vec::new(),
            again: None,
            has_failed: false,
            weather: Weather::default(),
            climate,
            schedule,
            uses: Uses::of(seed),
            deaths: Deaths::default(),
            is_filled: false,
            is_scarred: false,
            sectors_lost: 0,
            held_up_s: 0,
            addresses: BTreeMap::new(),
            puts_decided: 0,
            reopened: 0,
        }
    }

    /// Runs all ticks, or up to the first violation.
    pub(super) fn run(mut self) -> RunOutcome {
        self.open();
        let ticks = self.rng.between(60, 300);
        for tick in 0..ticks {
            if !self.oracle.violations().is_empty() {
                break;
            }
            self.tick(tick);
        }
        let counters = self.running.as_ref().map(|running| running.engine.counters());
        let writes = counters.as_ref().map_or(0, |counters| counters.disk.writes);
        let flushed = counters.is_some_and(|counters| counters.flushes > 0);
        if self.oracle.violations().is_empty() {
            self.last_look();
        }
        if !self.oracle.violations().is_empty() && self.trace.is_told() {
            self.show_all();
        }
        // In this order: without the driver nothing is written, and no answer arrives.
        self.running = None;
        self.flights.clear();
        RunOutcome {
            trace: self.trace.hash(),
            acknowledged: self.oracle.counts().acknowledged,
            reopened: self.reopened,
            writes,
            flushed,
            violations: self.oracle.violations().to_vec(),
        }
    }

    fn tick(&mut self, tick: u64) {
        self.pass_time();
        let now = self.reading();
        self.trace.add(format_args!("tick {tick} wall {} mono {}", now.wall, now.mono));
        self.brew();
        let strikes = self.rng.below(1_000) < 12 && self.climate == Climate::Storms;
        if self.has_failed && self.climate != Climate::Storms {
            let text = format!("the store gave up, and all that it met is {:?}", self.climate);
            return self.oracle.accuse(ViolationKind::Contradiction, text);
        }
        if self.has_failed || strikes {
            self.strike();
            return;
        }
        if self.rng.percent(12) && self.is_quiet() {
            self.probe();
        }
        for _ in 0..self.rng.below(5) {
            self.send();
        }
        if self.rng.percent(3) {
            self.abandon();
        }
        self.turn();
        if tick.is_multiple_of(TICKS_TO_REST) {
            self.expect_rest();
            if self.climate == Climate::BadSectors {
                self.expect_puts();
                let queue = workload::queue(&mut self.rng);
                self.list_all(queue);
            }
        }
        if self.disk.is_off() {
            self.strike();
        }
    }

    /// Runs turns until the store reports no more work at this instant, which it has to within a bound.
    pub(super) fn expect_rest(&mut self) {
        for _ in 0..TURNS_TO_REST {
            let now = self.clock.now();
            let driver = self.running.as_ref().map(|running| &running.driver);
            if self.disk.is_off() || driver.is_none_or(|driver| !driver.next_wake().is_reached(now)) {
                return;
            }
            self.turn();
            if let Some(running) = &self.running {
                running.driver.step(0);
            }
        }
        let wake = self.running.as_ref().map(|running| running.driver.next_wake());
        let text = format!("after {TURNS_TO_REST} turns at one instant the next is due still: {wake:?}");
        self.oracle.accuse(ViolationKind::Spin, text);
    }

    /// Checks that puts continue despite unreadable sectors: one in the journal
    /// delays them while a flush retries it, and one in an index run does not.
    fn expect_puts(&mut self) {
        let to = self.puts_decided + PUTS_EXPECTED;
        while self.puts_decided < to && self.oracle.violations().is_empty() {
            let before = self.puts_decided;
            self.put();
            self.turn();
            self.expect_rest();
            if self.puts_decided > before {
                continue;
            }
            let Some(left) = self.held_up_s.checked_sub(1) else {
                let text = "puts are held up, and all that the store met is bad sectors".to_owned();
                return self.oracle.accuse(ViolationKind::Withheld, text);
            };
            self.held_up_s = left;
            self.clock.advance(1_000);
        }
    }

    /// Lets the store run one turn, and processes its answers.
    pub(super) fn turn(&mut self) {
        let now = self.reading();
        self.oracle.shown(now.wall);
        if !self.weather.lets_read() {
            self.oracle.could_not_read(now.wall);
        }
        // While the disk is full, the store may not have processed them.
        let is_noticed = self.weather.lets_write(now);
        let noticed = |ops: &mut Vec<Op>| if is_noticed { std::mem::take(ops) } else { Vec::new() };
        let (abandoned, unread) = (noticed(&mut self.abandoned), noticed(&mut self.unread));
        if let Some(running) = &mut self.running {
            let is_open = running.driver.turn_alone();
            if is_open {
                self.schedule.go_on(&running.driver, &mut self.rng, &mut self.trace);
            }
        }
        self.note_scars();
        for op in abandoned {
            self.oracle.abandon(op, now);
        }
        for op in unread {
            self.oracle.sent_back(op, now);
        }
        for flight in std::mem::take(&mut self.flights) {
            self.listen(flight, true);
        }
    }

    /// Notes whether damaged bodies were copied, so that they remain damaged when the rot has gone.
    pub(super) fn note_scars(&mut self) {
        let running = self.running.as_ref();
        self.is_scarred |= running.is_some_and(|running| running.engine.counters().damaged > 0);
    }

    /// Starts a call: its commands are in the store's inbox when this returns.
    pub(super) fn launch(&mut self, flight: Flight) {
        self.listen(flight, false);
    }

    /// Processes a call's answer, if it has arrived.
    fn listen(&mut self, mut flight: Flight, had_turn: bool) {
        let before = self.unread_so_far();
        match flight.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(said) => {
                // Bodies are read by the caller that polls, which happens here.
                let bad_reads = self.unread_so_far() > before;
                self.trace
                    .add(format_args!("  said {said:?}{}", if bad_reads { ", read badly" } else { "" }));
                self.land(flight.ops, flight.about, said, bad_reads);
            }
            Poll::Pending => {
                // The store answers a change of a message in the same turn, unless the disk is full.
                let now = self.reading();
                if had_turn && !flight.is_sweep && self.weather.lets_write(now) && !self.disk.is_off() {
                    flight.ops.iter().for_each(|op| self.oracle.still_waits(*op, now));
                }
                self.flights.push(flight);
            }
        }
    }

    /// The number of messages that the store has leased but not delivered, since it could not read them.
    pub(super) fn unread_so_far(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.engine.counters().unread)
    }

    /// How often the next message of a queue was not read because memory was full.
    pub(super) fn memory_full_so_far(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.engine.counters().memory_full)
    }

    /// Reports the outcome of a command to the oracle.
    pub(super) fn conclude(&mut self, op: Op, fate: CommandFate) {
        let now = self.reading();
        match fate {
            CommandFate::Heard(answer) => self.oracle.end(op, answer, now),
            CommandFate::Part => self.oracle.lose(op, now),
            CommandFate::Unknown => self.lost.push(op),
            CommandFate::Odd(text) => {
                self.oracle.accuse(ViolationKind::Contradiction, text);
                self.lost.push(op);
            }
        }
    }

    /// Drops a take that waits.
    fn abandon(&mut self) {
        let Some(at) = self.flights.iter().position(|flight| flight.is_take) else { return };
        let flight = self.flights.remove(at);
        self.trace.add(format_args!("  abandoned {:?}", flight.ops));
        self.abandoned.extend(flight.ops);
    }

    /// Whether nothing is under way and there is no fault.
    pub(super) fn is_quiet(&self) -> bool {
        self.flights.is_empty()
            && self.lost.is_empty()
            && self.abandoned.is_empty()
            && self.unread.is_empty()
            && self.weather.is_clear(self.reading())
    }

    /// The reading of both clocks.
    pub(super) fn reading(&self) -> Reading {
        let now = self.clock.now();
        Reading { wall: now.wall.as_ms(), mono: now.mono_ms as i64 }
    }

    pub(super) fn wall(&self) -> Timestamp {
        self.clock.now().wall
    }

    /// The directory of the store.
    pub(super) fn directory(&self) -> PathBuf {
        PathBuf::from("/data")
    }

    /// Runs a call that has to be answered at once; returns `None` if it was not.
    pub(super) fn ask<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> Option<T> {
        let mut future = Box::pin(future);
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(answer) = future.as_mut().poll(&mut context) {
            return Some(answer);
        }
        self.turn();
        match future.as_mut().poll(&mut context) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }
}
