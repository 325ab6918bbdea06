//! Serves any store over the network, with HTTP and beanstalkd's protocol.
//!
//! ```no_run
//! # async fn run(store: std::sync::Arc<dyn dwell_store::Store>) -> Result<(), dwell_server::BindError> {
//! use dwell_server::{Server, ServerConfig};
//!
//! let server = Server::bind(store, ServerConfig::default()).await?;
//! println!("http://{}", server.http_addr());
//! server.run(async { tokio::signal::ctrl_c().await.unwrap_or(()) }).await;
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//! - [`Server`]: binds, serves, drains
//! - [`ServerConfig`]: listeners, authentication and timeouts; `config/`: how it is read from a file, the environment
//!   and the command line ([`Loaded::load`])
//! - `listener/`: sockets, and their limits on connections; `security/`: tokens, scopes, certificates
//! - `http/`: one file for each group of operations; `http/routes.rs` maps routes to handlers
//! - `beanstalkd/`: one file for each command; `beanstalkd/command/mod.rs` is the index of verbs
//! - `json`: JSON on the wire; `query`: the query of a URL
//! - `delivery/`: sinks and schedules that the server runs itself
//! - `metrics`: counts, and `/metrics`
//! - `page/`: the web page's files, and how they are served
//! - `openapi`: the document at `/openapi.json`
//! - `admission`: the limit on bytes that requests and answers hold
//! - `reserved`: the store as callers have it, whose reserved queues can only be read
//! - `returns`: gives back messages whose taker has disconnected
//!
//! The protocols are documented in `docs/http.md` and `docs/beanstalkd.md`.

mod admission;
mod arrival_rate;
mod beanstalkd;
mod config;
mod delivery;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod json;
mod listener;
mod metrics;
mod openapi;
mod opening;
mod page;
mod present;
mod query;
mod reserved;
mod returns;
mod security;
mod server;

/// The maximum number of queues per take, and of tubes that one connection may watch. A store waits on each of them; a
/// consumer of more is better served by several takes.
const MOST_NAMES: usize = 1_024;

pub use config::{
    ApplyError, BeanstalkdConfig, ConfigError, ConfigErrorKind, ConfigValue, Configuration, Durability,
    HttpConfig, LayeredValue, Layers, Loaded, LogConfig, LogFormat, LogLevel, Origin, QueueConfig,
    RedissonConfig, ServerConfig, StoreConfig, StoreKind, Warning, apply_queues, check_value, config_keys,
};
pub use delivery::{
    Delivery, DeliveryError, LaneConfig, SchedulesError, SinkConfig, SinkKind, WebhookConfig, WebhookGoal,
};
pub use dwell_wire::Verb;
pub use listener::{BindError, Listeners};
pub use metrics::{Sample, SampleValue, Samples};
pub use security::{
    Caller, MalformedDigest, MalformedScope, Scope, Tls, TlsError, TlsFiles, Token, TokenDigest, Tokens,
};
pub use server::{Control, Drained, Server};
