//! The suite that shows that a store keeps the contract: for every store of ours, and for one of yours.
//!
//! - **Scenarios**: one per bullet of the contract, under the bullet's words.
//!   [`conformance_suite!`](crate::conformance_suite) makes a `#[test]` of each.
//! - **The model test**: [`model::run`] drives a store and the simplest possible model of the contract with the same
//!   random calls, and compares every answer.
//!
//! A store brings a [`Harness`]: itself, its clock, its restart. `tests/memory.rs` of this crate is all that the
//! memory store needs:
//!
//! ```ignore
//! dwell_store::conformance_suite!(|limits| MyHarness::open(limits));
//!
//! #[test]
//! fn behaves_as_the_model_does() {
//!     dwell_store::conformance::model::run(MyHarness::open, 2_000, 200, 1);
//! }
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
