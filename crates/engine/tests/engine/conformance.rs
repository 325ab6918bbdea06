//! The engine keeps the contract: on a disk in memory, on real files, and with almost no memory, so that most messages
//! are in tables most of the time.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dwell_engine::disk::{Crash, Disk, MemoryDisk, RealDisk};
use dwell_engine::{Engine, Options};
use dwell_model::{Limits, Timestamp};
use dwell_store::Store;
use dwell_store::conformance::Harness;
use dwell_time::{Clock, ManualClock};

use crate::dying_disk::MortalDisk;
use crate::support::start;

/// The place of an engine, and the way its process dies.
trait Home: Send {
    fn dir(&self) -> PathBuf;

    /// The disk of the next process.
    fn disk(&mut self) -> Arc<dyn Disk>;

    /// From now on nothing of this process reaches the disk.
    fn kill(&mut self);
}

struct EngineHarness<H> {
    home: H,
    memory_limit: u64,
    clock: ManualClock,
    limits: Limits,
    engine: Option<Engine>,
}

impl<H: Home> EngineHarness<H> {
    fn open(home: H, limits: Limits) -> EngineHarness<H> {
        EngineHarness::with_memory(home, limits, Options::DEFAULT_MEMORY_LIMIT)
    }

    fn with_memory(mut home: H, limits: Limits, memory_limit: u64) -> EngineHarness<H> {
        let clock = ManualClock::new(start());
        let engine = Some(open(&mut home, &clock, limits.clone(), memory_limit));
        EngineHarness { home, memory_limit, clock, limits, engine }
    }
}

fn open(home: &mut impl Home, clock: &ManualClock, limits: Limits, memory_limit: u64) -> Engine {
    let options = Options {
        limits,
        // Short, so that segments are begun and removed within a test.
        segment_bytes: 8 * 1024,
        low_water_bytes: Some(0),
        memory_limit,
        open_files: Options::MIN_OPEN_FILES,
        clock: Arc::new(clock.clone()),
        disk: home.disk(),
        seed: Some(7),
        ..Options::default()
    };
    Engine::open(home.dir(), options).unwrap()
}

impl<H: Home> Harness for EngineHarness<H> {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.engine.clone().unwrap())
    }

    fn now(&self) -> Timestamp {
        self.clock.now().wall
    }

    fn advance(&mut self, ms: u64) {
        self.clock.advance(ms);
    }

    fn step_wall(&mut self, by_ms: i64) -> bool {
        self.clock.step_wall(Timestamp::from_ms(self.now().as_ms() + by_ms).unwrap());
        true
    }

    /// False with little memory: messages that died in tables are then read for it, a few per turn.
    fn shows_retention_at_once(&self) -> bool {
        self.memory_limit > Options::MIN_MEMORY_LIMIT
    }

    fn durable(&self) -> bool {
        true
    }

    fn close(&mut self) {
        self.engine.take().unwrap().close().unwrap();
        self.engine = Some(open(&mut self.home, &self.clock, self.limits.clone(), self.memory_limit));
    }

    fn restart(&mut self) {
        self.home.kill();
        self.engine = None;
        self.engine = Some(open(&mut self.home, &self.clock, self.limits.clone(), self.memory_limit));
    }
}

struct InMemory(MemoryDisk);

impl InMemory {
    fn new() -> InMemory {
        InMemory(MemoryDisk::new())
    }
}

impl Home for InMemory {
    fn dir(&self) -> PathBuf {
        "/data".into()
    }

    fn disk(&mut self) -> Arc<dyn Disk> {
        if self.0.is_off() {
            self.0.power_on(Crash::Keep);
        }
        Arc::new(self.0.clone())
    }

    fn kill(&mut self) {
        self.0.power_off();
    }
}

struct OnFiles {
    dir: PathBuf,
    disk: MortalDisk,
}

impl OnFiles {
    fn new() -> OnFiles {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("dwell-conformance-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        OnFiles { dir: std::env::temp_dir().join(name), disk: MortalDisk::new(RealDisk) }
    }
}

impl Home for OnFiles {
    fn dir(&self) -> PathBuf {
        self.dir.clone()
    }

    fn disk(&mut self) -> Arc<dyn Disk> {
        self.disk = MortalDisk::new(RealDisk);
        Arc::new(self.disk.clone())
    }

    fn kill(&mut self) {
        self.disk.kill();
    }
}

impl Drop for OnFiles {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

mod in_memory {
    use super::*;

    fn harness(limits: Limits) -> EngineHarness<InMemory> {
        EngineHarness::open(InMemory::new(), limits)
    }

    dwell_store::conformance_suite!(harness);

    #[test]
    fn behaves_as_the_model_does() {
        dwell_store::conformance::model::run(harness, 2_000, 200, 1);
    }
}

mod on_files {
    use super::*;

    fn harness(limits: Limits) -> EngineHarness<OnFiles> {
        EngineHarness::open(OnFiles::new(), limits)
    }

    dwell_store::conformance_suite!(harness);

    #[test]
    fn behaves_as_the_model_does() {
        dwell_store::conformance::model::run(harness, 50, 200, 1);
    }
}

/// Eight messages in memory, and a flush after each four that change.
mod tiny {
    use super::*;

    fn harness(limits: Limits) -> EngineHarness<InMemory> {
        EngineHarness::with_memory(InMemory::new(), limits, Options::MIN_MEMORY_LIMIT)
    }

    dwell_store::conformance_suite!(harness);

    #[test]
    fn behaves_as_the_model_does() {
        dwell_store::conformance::model::run(harness, 1_000, 200, 1);
    }
}

mod tiny_on_files {
    use super::*;

    fn harness(limits: Limits) -> EngineHarness<OnFiles> {
        EngineHarness::with_memory(OnFiles::new(), limits, Options::MIN_MEMORY_LIMIT)
    }

    dwell_store::conformance_suite!(harness);
}
