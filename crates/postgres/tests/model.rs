//! The store behaves as the model of the contract does, call by call.

mod support;

use support::PostgresHarness;

/// The number of calls in a life; `DWELL_COMMANDS` sets a smaller one, which finds most differences sooner.
const COMMANDS: usize = 200;

#[test]
fn behaves_as_the_model_does() {
    let asked = std::env::var("DWELL_COMMANDS").ok();
    let commands = asked.map_or(COMMANDS, |commands| commands.parse().expect("a whole number is expected"));
    dwell_store::conformance::model::run(PostgresHarness::open, 10, commands, 1);
}
