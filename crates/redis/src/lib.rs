//! dwell over Redis: a store that many machines share, and a peer of Redisson's delayed queues.
//!
//! # Layout
//! - [`RedisStore`]: the store; `native/lua` has its scripts
//! - [`Address`]: where Redis is and how to reach it, as a URL
//! - [`Link`]: connections to it, made again when they are lost; one server, Sentinel or a cluster
//! - [`OpenError`]: why a Redis can not be used
//! - [`redisson`]: the layout of Redisson's `RDelayedQueue`, shared with live Java clients
//! - `testing` (feature of that name): real servers on free loopback ports

mod address;
mod error;
mod link;
mod native;
pub mod redisson;
mod said;
#[cfg(feature = "testing")]
pub mod testing;

pub use address::{Address, Kind};
pub use error::OpenError;
pub use link::Link;
pub use native::RedisStore;
