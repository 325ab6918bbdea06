//! The stores behind the server: in memory, the engine on its files, and one on Redis.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use dwell_engine::{Engine, Options};
use dwell_model::{Limits, Timestamp};
use dwell_redis::{Address, RedisStore};
use dwell_store::conformance::Harness;
use dwell_store::{MemoryStore, Store};
use dwell_testkit::redis::Server;
use dwell_time::{Clock, ManualClock};
use tempfile::TempDir;

use crate::over::{OnClock, RUNTIME};

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap())
}

fn step(clock: &ManualClock, by_ms: i64) {
    clock.step_wall(Timestamp::from_ms(clock.now().wall.as_ms() + by_ms).unwrap());
}

pub(crate) struct Memory {
    store: Arc<MemoryStore>,
    clock: ManualClock,
}

impl Memory {
    pub(crate) fn open(limits: Limits) -> Memory {
        let clock = clock();
        Memory { store: Arc::new(MemoryStore::with_seed(limits, Arc::new(clock.clone()), 7)), clock }
    }
}

impl OnClock for Memory {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock.clone())
    }
}

impl Harness for Memory {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn now(&self) -> Timestamp {
        self.clock.now().wall
    }

    fn advance(&mut self, ms: u64) {
        self.clock.advance(ms);
    }

    fn step_wall(&mut self, by_ms: i64) -> bool {
        step(&self.clock, by_ms);
        true
    }

    fn durable(&self) -> bool {
        false
    }

    fn restart(&mut self) {
        unreachable!("a memory store is not durable");
    }

    fn close(&mut self) {
        unreachable!("a memory store is not durable");
    }
}

pub(crate) struct Files {
    engine: Option<Engine>,
    clock: ManualClock,
    limits: Limits,
    folder: TempDir,
}

impl Files {
    pub(crate) fn open(limits: Limits) -> Files {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files { engine: None, clock: clock(), limits, folder };
        files.restart();
        files
    }
}

impl OnClock for Files {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock.clone())
    }
}

impl Harness for Files {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.engine.clone().expect("it is open"))
    }

    fn now(&self) -> Timestamp {
        self.clock.now().wall
    }

    fn advance(&mut self, ms: u64) {
        self.clock.advance(ms);
    }

    fn step_wall(&mut self, by_ms: i64) -> bool {
        step(&self.clock, by_ms);
        true
    }

    fn durable(&self) -> bool {
        true
    }

    /// A clean end. It differs from a crash only in session leases, which HTTP does not have.
    fn restart(&mut self) {
        self.close();
    }

    fn close(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.close().unwrap();
        }
        let options = Options {
            limits: self.limits.clone(),
            clock: Arc::new(self.clock.clone()),
            segment_bytes: 1024 * 1024,
            seed: Some(7),
            ..Options::default()
        };
        self.engine = Some(Engine::open(self.folder.path(), options).unwrap());
    }
}

/// One Redis server for all tests, each of which has its own prefix. It stops with the last of them.
static REDIS: Mutex<Weak<Server>> = Mutex::new(Weak::new());
static PREFIXES: AtomicU64 = AtomicU64::new(0);

fn redis() -> Arc<Server> {
    let mut shared = REDIS.lock().unwrap();
    shared.upgrade().unwrap_or_else(|| {
        let started = Arc::new(Server::start());
        *shared = Arc::downgrade(&started);
        started
    })
}

pub(crate) struct Redis {
    store: Option<Arc<RedisStore>>,
    address: Address,
    limits: Limits,
    clock: ManualClock,
    _server: Arc<Server>,
}

impl Redis {
    pub(crate) fn open(limits: Limits) -> Redis {
        let server = redis();
        let address: Address = format!("redis://127.0.0.1:{}", server.port()).parse().unwrap();
        let prefix = format!("http{}", PREFIXES.fetch_add(1, Ordering::Relaxed));
        let address = address.with_prefix(&prefix).with_client("under test");
        let mut redis = Redis { store: None, address, limits, clock: clock(), _server: server };
        redis.restart();
        redis
    }
}

impl OnClock for Redis {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock.clone())
    }
}

impl Harness for Redis {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(self.store.as_ref().expect("it is open")) as Arc<dyn Store>
    }

    fn now(&self) -> Timestamp {
        self.clock.now().wall
    }

    fn advance(&mut self, ms: u64) {
        self.clock.advance(ms);
    }

    /// Redis has one clock, which leases use too.
    fn step_wall(&mut self, _: i64) -> bool {
        false
    }

    fn durable(&self) -> bool {
        true
    }

    fn partitions(&self, partitions: u16) -> u16 {
        partitions
    }

    /// Each partition has an even share, rounded up, and is exact; the suite spreads a queue over four at most.
    fn cap_slack(&self, _: u64, _: u64) -> u64 {
        3
    }

    /// As for [`Files`].
    fn restart(&mut self) {
        self.close();
    }

    fn close(&mut self) {
        self.store = None;
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let opened = RedisStore::open_for_test(self.address.clone(), self.limits.clone(), clock);
        self.store = Some(Arc::new(RUNTIME.block_on(opened).unwrap()));
    }
}
