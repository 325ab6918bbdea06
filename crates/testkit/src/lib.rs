//! Test support that several crates share: processes, servers, a real Redis or PostgreSQL, corpora of fuzzers, seeded numbers.
//!
//! It is for tests, the simulation and benches; nothing that is published depends on it. Where no error is returned,
//! whatever does not start or does not end in time is a panic.
//!
//! # Layout
//! - `wait`: bounded waits for what sends no event
//! - `process`: commands that are run to their end, and child processes that end with their test
//! - `server`: `dwell serve` as a child process
//! - `postgres` (feature of that name): a PostgreSQL server
//! - `redis/` (feature of that name): a Redis server, a cluster, Sentinels, and a link to them that breaks
//! - `corpus`: runs the corpora of fuzzers
//! - `random`: numbers from a seed

pub mod corpus;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod process;
mod random;
#[cfg(feature = "redis")]
pub mod redis;
mod server;
mod wait;

pub use random::Random;
pub use server::{Server, dwell};
pub use wait::{PATIENCE, free_port, until};
#[cfg(any(feature = "redis", feature = "postgres"))]
pub use wait::{until_async, within};
