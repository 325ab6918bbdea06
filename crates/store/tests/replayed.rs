//! The core, rebuilt from its log at every restart, keeps the contract.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

#[path = "harness/replayed.rs"]
mod replayed;

use replayed::ReplayedHarness;

dwell_store::conformance_suite!(ReplayedHarness::open);

#[test]
fn behaves_as_the_model_does() {
    dwell_store::conformance::model::run(ReplayedHarness::open, 1_000, 200, 1);
}
