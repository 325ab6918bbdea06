//! Whatever a script does, it does once: the store keeps the contract though each of its scripts runs twice, with the same
//! arguments, and only the second answer is heard. That is what a lost answer comes to.
//!
//! - `proxy`: sends each script twice

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

mod proxy;
#[path = "../support/mod.rs"]
mod support;

use dwell_model::Limits;
use support::RedisHarness;

fn harness(limits: Limits) -> RedisHarness {
    RedisHarness::on_one_server_behind(limits, proxy::to)
}

dwell_store::conformance_suite!(harness);

#[test]
fn behaves_as_the_model_does() {
    dwell_store::conformance::model::run(harness, 30, 200, 1);
}
