//! The `Store` contract.
