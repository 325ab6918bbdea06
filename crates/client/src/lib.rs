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
//!     client.settle_one(delivery.receipt.into_owned(), Action::Ack)?;
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
//! - [`Client`], [`Builder`]: the connection; `retry`, `transport` behind it
//! - [`Error`]: why a call failed
//! - `put`, `take`, `settle`, `change`, `dead`, `look`, `queue`, `server`: the calls, one kind a file
//! - `answers`: one answer an item
//!
//! What is answered is `dwell_wire`'s, which a server writes by the same types.

mod answers;
mod change;
mod client;
mod dead;
mod error;
mod look;
mod put;
mod queue;
mod retry;
mod server;
mod settle;
mod take;
mod transport;

pub use client::{Builder, Client, DEFAULT_SERVER};
pub use dwell_wire::{
    BackoffSettings, Cancelled, Counts, Limits, Moved, PutAnswer, PutOutcome, QueuePage, QueueSettings,
    QueueStats, RefusedOne, Removed, ServerInfo, Settled, StateCounts, Swept, UnreadQueue,
};
pub use error::Error;
pub use retry::Pauses;

/// A message, as it was read.
pub type Message = dwell_wire::Message<'static>;

/// A page of messages, as it was read.
pub type Page = dwell_wire::Page<'static>;

/// A message handed over, as it was read.
pub type Delivery = dwell_wire::Delivery<'static>;

/// A refusal, as it was read.
pub type Problem = dwell_wire::Problem<'static>;

/// The answer of a call, or to one item of it.
pub type Result<T> = std::result::Result<T, Error>;
