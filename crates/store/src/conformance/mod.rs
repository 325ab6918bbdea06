//! The conformance suite, for every store in this project and for stores of other crates.
//!
//! - **Scenarios**: one per bullet of the contract, named like the bullet.
//!   [`conformance_suite!`](crate::conformance_suite) makes a `#[test]` of each.
//! - **The model test**: [`model::run`] drives a store and the simplest possible model of the contract with the same
//!   random calls, and compares every answer.
//!
//! A store provides a [`Harness`]: itself, its clock, its restart. `tests/memory.rs` of this crate is all
//! that the memory store needs:
//!
//! ```
//! use std::sync::Arc;
//! use dwell_model::{Limits, Timestamp};
//! use dwell_store::conformance::{Harness, model};
//! use dwell_store::{MemoryStore, Store};
//! use dwell_time::{Clock, ManualClock};
//!
//! struct MyHarness(Arc<MemoryStore>, ManualClock);
//!
//! fn open(limits: Limits) -> MyHarness {
//!     let clock = ManualClock::new(Timestamp::MIN.after(86_400_000_000).unwrap());
//!     MyHarness(Arc::new(MemoryStore::new(limits, Arc::new(clock.clone()))), clock)
//! }
//!
//! impl Harness for MyHarness {
//!     fn store(&self) -> Arc<dyn Store> {
//!         self.0.clone()
//!     }
//!     fn now(&self) -> Timestamp {
//!         self.1.now().wall
//!     }
//!     fn advance(&mut self, ms: u64) {
//!         self.1.advance(ms);
//!     }
//!     fn step_wall(&mut self, by_ms: i64) -> bool {
//!         self.1.step_wall(Timestamp::from_ms(self.now().as_ms() + by_ms).unwrap());
//!         true
//!     }
//!     fn durable(&self) -> bool {
//!         false
//!     }
//!     fn close(&mut self) {
//!         unreachable!("it is not durable")
//!     }
//!     fn restart(&mut self) {
//!         unreachable!("it is not durable")
//!     }
//! }
//!
//! dwell_store::conformance_suite!(open);
//!
//! // In a #[test]:
//! model::run(open, 5, 50, 1);
//! ```

#![expect(clippy::unwrap_used, reason = "a suite of tests: a panic is its answer")]

mod harness;
#[macro_use]
mod list;
pub mod model;
pub mod scenario;
mod stage;
mod waiting;

#[cfg(test)]
mod bullets;

pub use harness::{Factory, Harness};
pub use stage::run;
pub use waiting::await_true;
