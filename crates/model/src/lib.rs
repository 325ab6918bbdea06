//! What a message is, and what may happen to it: the vocabulary of dwell as pure data.
//!
//! Nothing here reads a clock, a file or a socket; `now` is always an argument.
mod invalid;
mod text;
mod timestamp;

pub use invalid::Invalid;
pub use timestamp::{Now, Timestamp, Wake};
