//! What a server can be told, and by whom: a file, the environment, the command line.
//!
//! - `server`: where to listen, whom to listen to, how long to wait: what [`Server`](crate::Server) is given
//! - `keys`: every key with its names in file, environment and command line; the one list
//! - `document`: reads a `dwell.toml`; `tables`: its queues and tokens; `sinks`, `schedules`: its tables of these; `values`: what a
//!   value may be
//! - `layers`: lays file, environment and command line over the defaults, and remembers where each value is from
//! - `log`: what is logged, and in which form
//! - `check`: what keys say together: halves, contradictions, open doors
//! - `apply`: brings the queues' settings into a store
//! - `error`: why a configuration is refused; `suggest`: what was meant
//!
//! The keys are explained in `docs/configuration.md`; a test compares it with `keys`.

mod apply;
mod check;
mod document;
mod error;
mod keys;
mod layers;
mod log;
mod schedules;
mod server;
mod sinks;
mod suggest;
mod tables;
mod values;

pub(crate) use apply::Configured;
pub use apply::{ApplyError, apply_queues};
pub use error::{ConfigError, ConfigErrorKind, Origin};
pub use keys::{Value as ConfigValue, check_value, config_keys};
#[cfg(feature = "fuzzing")]
pub(crate) use layers::read_text;
pub use layers::{
    Configuration, Durability, Layers, Loaded, QueueConfig, RedissonConfig, Shown, StoreConfig, StoreKind,
    Warning,
};
pub use log::{LogConfig, LogFormat, LogLevel};
pub use server::{BeanstalkdConfig, HttpConfig, ServerConfig};
