//! A server's configuration, from a file, the environment and the command line.
//!
//! - `server`: listeners, authentication and timeouts: the configuration of [`Server`](crate::Server)
//! - `keys`: every key with its names in file, environment and command line; the one list
//! - `document`: reads a `dwell.toml`; `tables`: its queues and tokens; `sinks`, `schedules`: its tables of these;
//!   `values`: parsers of values
//! - `layers`: merges file, environment and command line over the defaults, and records each value's origin
//! - `log`: what is logged, and in which form
//! - `check`: checks across keys: incomplete pairs, contradictions, exposed listeners
//! - `apply`: applies the queues' settings to a store
//! - `error`: why a configuration is refused; `suggest`: suggestions for mistyped names
//!
//! The keys are documented in `docs/configuration.md`; a test compares it with `keys`.

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
pub use keys::{ShownValue as ConfigValue, check_value, config_keys};
#[cfg(feature = "fuzzing")]
pub(crate) use layers::read_text;
pub use layers::{
    Configuration, Durability, LayeredValue, Layers, Loaded, QueueConfig, RedissonConfig, StoreConfig,
    StoreKind, Warning,
};
pub use log::{LogConfig, LogFormat, LogLevel};
pub use server::{BeanstalkdConfig, HttpConfig, ServerConfig};
