//! What a message is, and what may happen to it: the vocabulary of dwell as pure data.
//!
//! Nothing here reads a clock, a file or a socket; `now` is always an argument.
//!
//! # Layout
//! - [`Timestamp`], [`Now`], [`Wake`]: instants, a clock's reading, the moment to wake at
//! - [`MessageId`], [`Number`], [`QueueName`], [`Key`], [`PutToken`], [`Headers`], [`Receipt`]: names and proofs
//! - [`Message`], [`Standing`], [`State`]: a message and the part of it that changes
//! - [`apply`], [`as_of`]: the state machine
//! - [`Settings`], [`Limits`]: what a queue and a store may be told
//! - [`Invalid`]: why a value is refused

mod base64;
mod conversion;
mod cursor;
mod delay;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod headers;
mod id;
mod invalid;
mod limits;
mod message;
mod name;
mod receipt;
mod settings;
mod standing;
mod text;
mod timestamp;
mod transition;

pub use cursor::Cursor;
pub use delay::{format_duration_ms, parse_duration_ms};
pub use headers::Headers;
pub use id::{MessageId, Number};
pub use invalid::Invalid;
pub use limits::Limits;
pub use message::{DEFAULT_PRIORITY, Message};
pub use name::{Key, PutToken, QueueName};
pub use receipt::{LeaseToken, Receipt};
pub use settings::{
    AttemptLimit, Backoff, OwnSettings, Pause, Setting, SettingChange, SettingName, Settings,
};
pub use standing::{Counts, Death, DeathReason, Lease, Standing, State, StateKind};
pub use timestamp::{Now, Timestamp, Wake};
pub use transition::{Command, Effects, Grant, Refusal, Transition, apply, as_of, is_acked, taken};
