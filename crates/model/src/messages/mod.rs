//! What a message is, and what may happen to it: all of the model except instants and durations.

pub(crate) mod base64;
mod cursor;
mod headers;
mod id;
mod instant;
mod limits;
mod message;
mod name;
mod receipt;
mod settings;
mod standing;
mod transition;

pub use cursor::Cursor;
pub use headers::Headers;
pub use id::{MessageId, Number};
pub use limits::Limits;
pub use message::{DEFAULT_PRIORITY, Message};
pub use name::{Holder, IdempotencyKey, Key, QueueName};
pub use receipt::{LeaseToken, Receipt};
pub use settings::{
    AttemptLimit, Backoff, LapseBackoff, OnExpiry, OwnSettings, Pause, Setting, SettingChange, SettingName,
    Settings,
};
pub use standing::{Counts, Death, DeathReason, Lease, Standing, State, StateKind};
pub use transition::{
    Command, Effects, Grant, Refusal, Rules, Transition, apply, apply_take, as_of, is_acked,
};
