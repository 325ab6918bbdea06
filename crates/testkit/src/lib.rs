//! Test support that several crates share: processes, servers, a real Redis or PostgreSQL, fuzzing corpora, seeded
//! numbers.
//!
//! It is for tests, the simulation and benches; no published crate depends on it. Functions that return no error panic
//! if something does not start or does not end in time.
//!
//! # Layout
//! - `wait`: bounded polling, where there is no event to wait for
//! - `process`: commands that run to completion, and child processes that end with their test
//! - `server`: `dwell serve` as a child process
//! - `postgres` (feature of that name): a PostgreSQL server
//! - `redis/` (feature of that name): a Redis server, a cluster, Sentinels, and a faulty link to them
//! - `corpus`: replays fuzzing corpora
//! - `random`: seeded random numbers

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
