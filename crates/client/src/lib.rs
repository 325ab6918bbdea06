//! A small blocking client for dwell's HTTP interface.
//!
//! It speaks the vocabulary of [`dwell_store`] (puts, takes, actions) and shows what the server answers as
//! plain data that serialises to the very JSON of the interface.
//!
//! ```no_run
//! use dwell_client::Client;
//! use dwell_store::{Action, Put, Take};
//!
//! # fn main() -> Result<(), dwell_client::Error> {
//! let client = Client::new("http://127.0.0.1:7411")?;
//! client.put_one(Put::new("orders".parse()?, "close order 7").after_ms(1_000))?;
//! for delivery in client.take(&Take::from("orders".parse()?).wait_ms(10_000))? {
//!     println!("{}", String::from_utf8_lossy(delivery.message.body()));
//!     client.settle_one(delivery.receipt, Action::Ack)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What is repeated
//! When a connection breaks before the answer is there, a call that is harmless to repeat is repeated for a
//! bounded time ([`Builder::patience_ms`]): reads, settings, and puts, each of which carries a token (one
//! is made where the caller gave none). All other calls say [`Error::OutcomeUnknown`]. A server that cannot be
//! reached in the first place is [`Error::Unreachable`] at once.
//!
//! # Layout
//! - [`Client`], [`Builder`]: the connection; `retry`, `transport`, `path` behind it
//! - [`Error`], [`Problem`]: why a call failed
//! - `put`, `take`, `settle`, `change`, `dead`, `look`, `queue`, `server`: the calls, one kind a file
//! - `answers`: one answer an item
//! - `text`: values that JSON carries as text

mod answers;
mod change;
mod client;
mod dead;
mod error;
mod look;
mod message;
mod path;
mod put;
mod queue;
mod retry;
mod server;
mod settle;
mod take;
mod text;
mod transport;

pub use change::{Cancelled, Moved};
pub use client::{Builder, Client, DEFAULT_SERVER};
pub use dead::{RefusedOne, Swept};
pub use error::{Error, Problem};
pub use look::Page;
pub use message::{Counts, Message};
pub use put::{PutAnswer, PutOutcome};
pub use queue::{BackoffSettings, QueuePage, QueueSettings, QueueStats, Removed, StateCounts, UnreadQueue};
pub use retry::Pauses;
pub use server::{Limits, ServerInfo};
pub use settle::Settled;
pub use take::Delivery;

/// The answer of a call, or to one item of it.
pub type Result<T> = std::result::Result<T, Error>;
