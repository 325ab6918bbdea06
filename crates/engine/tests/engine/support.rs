//! An engine on a disk in memory, with a clock that stands still, and turns that are taken by the test.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dwell_engine::disk::MemoryDisk;
use dwell_engine::{Driver, Engine, OpenError, Options};
use dwell_model::{Message, Number, QueueName, StateKind, Timestamp};
use dwell_store::{Delivery, Put, PutAnswer, Result, Settle, Settled, Store, Take};
use dwell_time::{Clock, ManualClock};

pub(crate) const DIR: &str = "/data";

/// The maximum number of turns in a row without progress that is counted: capturing messages, and setting the places of
/// their copies, a few at a time, is not.
const IDLE_TURNS: usize = 10_000;

pub(crate) fn dir() -> &'static Path {
    Path::new(DIR)
}

pub(crate) fn segment(number: u64) -> PathBuf {
    dir().join(format!("journal-000-{number:012}"))
}

pub(crate) fn start() -> Timestamp {
    Timestamp::from_ms(1_795_000_000_000).unwrap()
}

pub(crate) fn queue(name: &str) -> QueueName {
    name.parse().unwrap()
}

/// Options for a small store on `disk`.
pub(crate) fn options(disk: &MemoryDisk, clock: &ManualClock) -> Options {
    Options {
        segment_bytes: 32 * 1024,
        low_water_bytes: Some(0),
        clock: Arc::new(clock.clone()),
        disk: Arc::new(disk.clone()),
        seed: Some(7),
        // So that a revive of a few has several slices.
        bulk_per_call: 2,
        ..Options::default()
    }
}

/// An engine that runs when it is called, and at no other time.
pub(crate) struct Driven {
    pub(crate) disk: MemoryDisk,
    pub(crate) clock: ManualClock,
    pub(crate) engine: Engine,
    pub(crate) driver: Driver,
}

impl Driven {
    pub(crate) fn new() -> Driven {
        Driven::on(MemoryDisk::new(), ManualClock::new(start()))
    }

    pub(crate) fn on(disk: MemoryDisk, clock: ManualClock) -> Driven {
        let options = options(&disk, &clock);
        Driven::open(disk, clock, options).unwrap()
    }

    pub(crate) fn open(
        disk: MemoryDisk,
        clock: ManualClock,
        options: Options,
    ) -> std::result::Result<Driven, OpenError> {
        let (engine, driver) = Engine::open_driven(DIR, options)?;
        Ok(Driven { disk, clock, engine, driver })
    }

    /// Runs a call to its answer.
    ///
    /// # Panics
    /// If the call waits for something that only time or another call can bring.
    pub(crate) fn run<T>(&mut self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        let mut context = Context::from_waker(Waker::noop());
        // A put may wait for a flush, which writes a file a turn.
        for _ in 0..1_000 {
            if let Poll::Ready(answer) = call.as_mut().poll(&mut context) {
                return answer;
            }
            self.driver.turn();
        }
        panic!("the call waits");
    }

    /// Runs a call to its answer, and lets 100 ms pass whenever there is nothing else to do.
    pub(crate) fn run_patiently<T>(&mut self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        let mut context = Context::from_waker(Waker::noop());
        let mut waits = 0;
        for _ in 0..IDLE_TURNS {
            for _ in 0..2 {
                if let Poll::Ready(answer) = call.as_mut().poll(&mut context) {
                    return answer;
                }
                self.driver.turn();
            }
            if let Poll::Ready(answer) = call.as_mut().poll(&mut context) {
                return answer;
            }
            if !self.has_work() {
                assert!(waits < 64, "the call waits");
                self.clock.advance(100);
                waits += 1;
            }
        }
        panic!("the call waits");
    }

    /// Whether there is work now.
    fn has_work(&self) -> bool {
        self.driver.next_wake().is_reached(self.clock.now())
    }

    /// Runs all background work to its end, and processes its results.
    pub(crate) fn rest(&mut self) {
        let mut idle = 0;
        for _ in 0..IDLE_TURNS {
            self.driver.turn();
            idle = if self.has_work() { 0 } else { idle + 1 };
            // In the first of them it may get a result, and begin the next work in the second.
            if idle == 2 {
                return;
            }
        }
        panic!("the engine spins: {:?} is always over", self.driver.next_wake());
    }

    pub(crate) fn put(&mut self, put: Put) -> Result<PutAnswer> {
        let store = self.engine.clone();
        self.run(store.put(vec![put])).pop().unwrap()
    }

    pub(crate) fn take(&mut self, take: Take) -> Result<Vec<Delivery>> {
        let store = self.engine.clone();
        self.run(store.take(take))
    }

    pub(crate) fn settle(&mut self, settle: Settle) -> Result<Settled> {
        let store = self.engine.clone();
        self.run(store.settle(vec![settle])).pop().unwrap()
    }

    /// All messages of all queues, by number.
    pub(crate) fn dump(&mut self) -> Vec<Message> {
        let store = self.engine.clone();
        let mut messages = Vec::new();
        for stats in self.run(store.queues(None, 10_000)).unwrap() {
            for state in StateKind::ALL {
                let page = self.run(store.list(stats.name.clone(), state, None, 10_000)).unwrap();
                assert_eq!(page.next, None);
                messages.extend(page.messages);
            }
        }
        messages.sort_by_key(|message| message.number);
        messages
    }

    pub(crate) fn numbers(&mut self) -> Vec<Number> {
        self.dump().into_iter().map(|message| message.number).collect()
    }

    /// Reads everything; errors of the disk are ignored.
    pub(crate) fn look(&mut self) {
        let store = self.engine.clone();
        let Ok(queues) = self.run(store.queues(None, 10_000)) else { return };
        for stats in queues {
            for state in StateKind::ALL {
                let _ = self.run(store.list(stats.name.clone(), state, None, 10_000));
            }
        }
        let _ = self.run(store.queues(None, 10_000));
    }

    /// Lets time pass, and checks that the engine would sleep again then, or has work.
    pub(crate) fn advance(&mut self, ms: u64) {
        self.clock.advance(ms);
        self.driver.turn();
        self.expect_no_spin();
    }

    /// # Panics
    /// If the engine reports turn after turn that the next one is due at once, and does nothing in any.
    fn expect_no_spin(&mut self) {
        for _ in 0..IDLE_TURNS {
            let before = self.engine.counters();
            if !self.has_work() {
                return;
            }
            self.driver.turn();
            if self.engine.counters() != before {
                return;
            }
        }
        panic!("the engine spins: {:?} is always over", self.driver.next_wake());
    }

    /// Closes it as a graceful shutdown does, and opens it again.
    pub(crate) fn reopen(self) -> Driven {
        let (disk, clock) = self.close();
        Driven::on(disk, clock)
    }

    pub(crate) fn close(mut self) -> (MemoryDisk, ManualClock) {
        self.engine.close().unwrap();
        assert!(!self.driver.turn(), "closed");
        (self.disk, self.clock)
    }

    /// Ends the process without a close; the disk goes through `power_on` afterwards.
    pub(crate) fn kill(self) -> (MemoryDisk, ManualClock) {
        self.disk.power_off();
        (self.disk, self.clock)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now().wall
    }
}

/// A directory of the machine that is removed with the test.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new(name: &str) -> TempDir {
        let dir = std::env::temp_dir().join(format!("dwell-engine-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&dir));
        TempDir(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
