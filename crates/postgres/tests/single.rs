//! The store on one PostgreSQL keeps the contract.

mod support;

use support::PostgresHarness;

dwell_store::conformance_suite!(PostgresHarness::open);

#[test]
fn behaves_as_the_model_does() {
    dwell_store::conformance::model::run(PostgresHarness::open, 100, 200, 1);
}
