//! The store behaves as the model of the contract does, call by call.

mod support;

use support::PostgresHarness;

#[test]
fn behaves_as_the_model_does() {
    let commands = std::env::var("DWELL_COMMANDS").map_or(200, |n| n.parse().expect("a number"));
    dwell_store::conformance::model::run(PostgresHarness::open, 100, commands, 1);
}
