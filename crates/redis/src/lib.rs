//! dwell over Redis: a store that many machines share, and its connections.
//!
//! # Layout
//! - [`RedisStore`]: the store; `native/lua` has its scripts
//! - [`Address`]: where Redis is and how to connect to it, as a URL
//! - [`Link`]: connections to it, made again when they are lost; one server, Sentinel or a cluster
//! - [`OpenError`]: why a Redis cannot be used
//! - [`Ear`]: is notified that something has changed; [`Said`]: the code and text of a server's error

mod address;
mod error;
mod link;
mod native;
mod server_error;

pub use address::{Address, AddressKind};
pub use error::OpenError;
pub use link::{Ear, Link};
pub use native::RedisStore;
pub use server_error::Said;
