//! What a server can be told.
//!
//! - `server`: where to listen, whom to listen to, how long to wait

mod server;

pub use server::{BeanstalkdConfig, HttpConfig, ServerConfig};
