//! dwell over the network, on any store: HTTP today, other protocols beside it.
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
//! - [`ServerConfig`]: where to listen, whom to listen to, how long to wait
//! - `http/`: one file for each group of operations; `http/mod.rs` is the index of routes
//! - `json`: what goes over the wire as JSON; `query`: what comes in a query
//! - `returns`: gives back messages whose taker has gone
//!
//! The interface for callers is written down in `docs/http.md`.

mod config;
mod http;
mod json;
mod query;
mod returns;
mod server;

pub use config::{HttpConfig, ServerConfig};
pub use server::{BindError, Drained, Server};
