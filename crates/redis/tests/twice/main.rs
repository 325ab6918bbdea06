//! Every script has its effect once: the store keeps the contract though each of its scripts runs twice, with the
//! same arguments, and only the second answer is returned. That is what a lost answer comes to.

#[path = "../support/mod.rs"]
mod support;

use dwell_model::Limits;
use dwell_testkit::redis::proxy::{Options, Proxy};
use support::{RUNTIME, RedisHarness};

fn harness(limits: Limits) -> RedisHarness {
    let twice = Options { watches: |_| false, by_value: true, repeats: is_script };
    RedisHarness::on_one_server_behind(limits, |port| RUNTIME.block_on(Proxy::with(port, twice)).port())
}

/// `EVALSHA` and `EVAL`.
fn is_script(command: &[u8]) -> bool {
    String::from_utf8_lossy(&command[..command.len().min(40)]).to_uppercase().contains("\r\nEVAL")
}

dwell_store::conformance_suite!(harness);

#[test]
fn behaves_as_the_model_does() {
    dwell_store::conformance::model::run(harness, 30, 200, 1);
}
