//! What a message is, and what may happen to it: the vocabulary of dwell as pure data.
//!
//! Nothing here reads a clock, a file or a socket; `now` is always an argument.
//!
//! # Layout
//! - [`Timestamp`], [`Now`], [`Wake`]: instants, a clock's reading, the moment to wake at
//! - [`MessageId`], [`Number`], [`QueueName`], [`Key`], [`PutToken`], [`Holder`], [`Headers`], [`Receipt`]: names and proofs
//! - [`Message`], [`Standing`], [`State`]: a message and the part of it that changes
//! - [`apply`], [`as_of`], [`Rules`]: the state machine
//! - [`Settings`], [`Limits`]: what a queue and a store may be told
//! - [`Invalid`]: why a value is refused
//!
//! # Features
//! - `messages` (default): all of this. Without it there are instants, durations and [`Invalid`], and no crate for what
//!   messages alone need; `dwell-time` builds on that. An instant is then printed, and not read from text
//! - `jiff`: instants from and into those of jiff 0.2
//! - `serde`: how these stand in JSON; `schemars`: what that looks like

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
