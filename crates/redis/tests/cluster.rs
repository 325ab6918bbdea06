//! The store on a cluster of three keeps the contract.

mod support;

use support::RedisHarness;

dwell_store::conformance_suite!(RedisHarness::on_a_cluster);

#[test]
fn behaves_as_the_model_does() {
    dwell_store::conformance::model::run(RedisHarness::on_a_cluster, 20, 200, 1);
}
