//! The store on one PostgreSQL keeps the contract.

mod support;

use support::PostgresHarness;

dwell_store::conformance_suite!(PostgresHarness::open);
