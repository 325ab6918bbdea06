//! The store on a single Redis keeps the contract.

mod support;

use support::RedisHarness;

dwell_store::conformance_suite!(RedisHarness::on_one_server);

#[test]
fn behaves_as_the_model_does() {
    dwell_store::conformance::model::run(RedisHarness::on_one_server, 100, 200, 1);
}
