//! The core of a store that keeps its index in memory: every message of one shard, as a synchronous,
//! deterministic state machine. It reads no clock and touches no file: `now` and the log are arguments.

mod record;

pub use record::{Durability, Log, NoLog, PutRecord, Record};
