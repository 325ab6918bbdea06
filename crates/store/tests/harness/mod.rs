//! The memory store under a clock that stands still until a test moves it.

use std::sync::Arc;

use dwell_model::{Limits, Timestamp};
use dwell_store::conformance::Harness;
use dwell_store::{MemoryStore, Store};
use dwell_time::{Clock, ManualClock};

pub(crate) struct MemoryHarness {
    store: Arc<MemoryStore>,
    clock: ManualClock,
}

impl MemoryHarness {
    pub(crate) fn open(limits: Limits) -> MemoryHarness {
        let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
        let store = MemoryStore::with_seed(limits, Arc::new(clock.clone()), 7);
        MemoryHarness { store: Arc::new(store), clock }
    }

    #[allow(dead_code, reason = "each test file is a program of its own, and not all need it")]
    pub(crate) fn clock(&self) -> ManualClock {
        self.clock.clone()
    }
}

impl Harness for MemoryHarness {
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
        self.clock.step_wall(Timestamp::from_ms(self.now().as_ms() + by_ms).unwrap());
        true
    }

    fn durable(&self) -> bool {
        false
    }

    fn close(&mut self) {
        unreachable!("a memory store is not durable");
    }

    fn restart(&mut self) {
        unreachable!("a memory store is not durable");
    }
}
