//! What a message is, and what may happen to it: the vocabulary of dwell as pure data.
//!
//! Nothing here reads a clock, a file or a socket; `now` is always an argument.
//!
//! # Layout
//! - [`Timestamp`], [`Now`], [`Wake`]: instants, a clock's reading, the deadline of a sleep
//! - [`MessageId`], [`Number`], [`QueueName`], [`Key`], [`IdempotencyKey`], [`Holder`], [`Headers`], [`Receipt`]: names
//!   and proofs
//! - [`Message`], [`Standing`], [`State`]: a message and the part of it that changes
//! - [`apply`], [`as_of`], [`Rules`]: the state machine
//! - [`Settings`], [`Limits`]: the settings of a queue and the limits of a store
//! - [`Invalid`]: why a value is refused
//!
//! # Features
//! - `messages` (default): all of this. Without it there are only instants, durations and [`Invalid`], without the
//!   crates that messages alone need; `dwell-time` builds on that. An instant can then be printed, but not parsed
//! - `jiff`: conversions from and to the instants of jiff 0.2
//! - `serde`: the JSON form of these; `schemars`: its JSON schemas

mod conversion;
mod delay;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod invalid;
#[cfg(feature = "serde")]
mod json;
#[cfg(feature = "messages")]
mod messages;
mod text;
mod timestamp;

pub use delay::{format_duration_ms, parse_duration_ms};
pub use invalid::Invalid;
#[cfg(feature = "messages")]
pub use messages::*;
pub use timestamp::{Now, Timestamp, Wake};
