//! The scenarios: one function per bullet of the contract, with the bullet's name.
//!
//! A scenario opens its own store, is independent of the others, and asserts what a caller would see. Each
//! file is about one subject. To add one: write the bullet in `contract/mod.rs`, the function here with the
//! bullet's name, and its name in the list of `conformance_suite!`; a test compares the three.

#![allow(missing_docs, reason = "the bullet that a scenario is called after says what it shows")]

pub mod bulk;
pub mod cap;
pub mod change;
pub mod clock;
pub mod configure;
pub mod dead;
pub mod deaths;
pub mod expire;
pub mod idempotency;
pub mod inspect;
pub mod key;
pub mod lapse;
pub mod lease;
pub mod put;
pub mod restart;
pub mod retention;
pub mod settle;
pub mod store;
pub mod take;
pub mod take_id;
pub mod wait;
