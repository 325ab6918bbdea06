//! The store of a dwell server: its HTTP interface as a [`Store`](dwell_store::Store).
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
//! The contract's tests run over HTTP too (`crates/server/tests/conformance`). What they cannot see there is this:
//! - A take whose caller has gone half-closes its connection. The server stops waiting as soon as it sees that, and what it had
//!   answered before is given back by a release, which the message's counts show. If the connection is cut at that very time,
//!   the leases run out.
//! - A lease belongs to no session: it runs out, and does not end with a connection.
//! - Of a leased message, [`get`](dwell_store::Store::get) and [`list`](dwell_store::Store::list) show when the lease ends. They
//!   show neither its token, which is its holder's alone, nor its length, nor whether the message has lost its key to another one.
//! - A take has at most 8 MiB of bodies, unless it names a limit; the server may have a lower one, and a limit of queues that one
//!   take names.
//! - A store that has to be opened again is the server's: no error [needs that](dwell_store::Error::needs_reopen).
//!
//! # What is repeated
//! When a connection breaks before the answer is there, a call that is harmless to repeat is repeated for a
//! bounded time ([`Builder::patience_ms`]): reads, settings, and puts, each of which carries a token (one
//! is made where the caller gave none). All other calls fail with
//! [`Error::OutcomeUnknown`](dwell_store::Error::OutcomeUnknown). A server that cannot be reached in the first place is
//! [`Error::Unreachable`](dwell_store::Error::Unreachable) at once.
//!
//! # Layout
//! - [`Client`], [`Builder`], [`OpenError`]: which server, and as whom
//! - `store`: the calls of the contract, of which `put`, `take`, `change`, `look`, `queue` and `forecast` do a kind each
//! - `delivery`: sinks and schedules that the server runs itself
//! - `takes`: what happens to a take whose caller goes
//! - `call`, `retry`: what a call sends, what an answer means, and what is sent twice
//! - `transport`, `socket`, `tls`: connections
//! - `reactor`: the thread that watches them

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
