//! A client of a dwell server: its HTTP interface as a [`Store`](dwell_store::Store).
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use dwell_client::Client;
//! use dwell_store::blocking::Queue;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let orders = Queue::new(Arc::new(Client::new("http://127.0.0.1:7411")?), "orders")?;
//! orders.put("close order 7").delay(Duration::from_secs(1)).call()?;
//! while let Some(job) = orders.take().wait(Duration::from_secs(10)).call()? {
//!     println!("{}", job.text()?);
//!     job.ack()?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What is different over HTTP
//! The contract's tests run over HTTP too (`crates/server/tests/conformance`). They do not show these differences:
//! - A take whose caller has gone half-closes its connection. The server stops waiting as
//!   soon as it sees that. Messages that it had already sent are released, which their
//!   counts show. If the connection is cut at that moment, their leases run out.
//! - A lease belongs to no session: it runs out by its deadline, and does not end with a connection.
//! - Of a leased message, [`get`](dwell_store::Store::get) and [`list`](dwell_store::Store::list)
//!   show when the lease ends. They show neither its token, which only the holder has, nor its
//!   length, nor whether the message has lost its key to another one.
//! - A take returns at most 8 MiB of bodies unless it sets a limit. The server may
//!   have a lower limit, and a limit on the number of queues in one take.
//! - The server opens its own store: no error [needs a reopen](dwell_store::Error::needs_reopen).
//!
//! # What is retried
//! When a connection breaks before the answer arrives, a call that is harmless to repeat is retried for a bounded time
//! ([`Builder::patience_ms`]): reads, settings, and puts, each of which carries an idempotency key (one is made where
//! the caller gave none). All other calls fail with [`Error::OutcomeUnknown`](dwell_store::Error::OutcomeUnknown). If
//! the server could not be reached at all, the call fails at once with
//! [`Error::Unreachable`](dwell_store::Error::Unreachable).
//!
//! # Layout
//! - [`Client`], [`Builder`], [`OpenError`]: which server, and as whom
//! - `store`: the calls of the contract; `put`, `take`, `change`, `look`, `queue` and `forecast` hold one kind of call each
//! - `delivery`: sinks and schedules that the server runs itself
//! - `takes`: takes whose caller is dropped
//! - `call`, `retry`: what a call sends, how its answer is read, and what may be retried
//! - `transport`, `socket`, `tls`: connections
//! - `reactor`: the thread that drives their sockets and timers

mod call;
mod change;
mod client;
mod delivery;
mod error;
mod forecast;
mod look;
mod put;
mod queue;
mod reactor;
mod retry;
mod socket;
mod store;
mod take;
mod takes;
mod tls;
mod transport;

pub use client::{Builder, Client, DEFAULT_SERVER};
pub use error::OpenError;
pub use retry::Pauses;
