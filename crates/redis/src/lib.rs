//! dwell over Redis: a store that many machines share, and the connections that it is reached by.
//!
//! # Layout
//! - [`RedisStore`]: the store; `native/lua` has its scripts
//! - [`Address`]: where Redis is and how to reach it, as a URL
//! - [`Link`]: connections to it, made again when they are lost; one server, Sentinel or a cluster
//! - [`OpenError`]: why a Redis can not be used
//! - [`Ear`]: hears that something has changed; [`Said`]: what an error of the server is about

mod address;
mod error;
mod link;
mod native;
mod said;

pub use address::{Address, Kind};
pub use error::OpenError;
pub use link::{Ear, Link};
pub use native::RedisStore;
pub use said::Said;
