//! The memory store keeps the contract.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

mod harness;

use harness::MemoryHarness;

dwell_store::conformance_suite!(MemoryHarness::open);

#[test]
fn behaves_as_the_model_does() {
    dwell_store::conformance::model::run(MemoryHarness::open, 2_000, 200, 1);
}
