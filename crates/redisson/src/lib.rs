//! A queue shared with Redisson: Java's `RDelayedQueue` and `RBlockingQueue`, on the same keys, bytes and channel.
//!
//! Redisson stores a pending message twice, packed with a random id: in a list in the order of offers, and in a sorted
//! set by its due instant. When it is due, one of the clients moves its payload to the destination, a plain list.
//! `docs/redisson.md` compares the two sides method by method.
//!
//! Connections are those of [`dwell_redis::Link`]. This crate does not implement dwell's store.
//!
//! # Layout
//! - [`Keys`]: the names of all keys of a queue
//! - [`Element`], [`Layout`]: the packed bytes, old and new
//! - [`codec`]: conversion between values and payloads
//! - [`DelayedQueue`]: offer, remove, read, take
//! - [`Mover`]: moves due elements to the destination
//! - [`Consumer`]: takes with a lease
//! - [`Doctor`]: finds and fixes the problems of a queue
//! - [`Error`]: why a call fails

mod blocking;
pub mod codec;
mod consumer;
mod doctor;
mod element;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod keys;
mod mover;
mod queue;
mod script;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;

pub use consumer::{Claimed, Consumer, DEFAULT_MAX_ATTEMPTS, DeadLetter, INBOX_MS, Settled};
pub use doctor::{Doctor, DoctorOptions, Finding, FindingKind, Fix, Report};
pub use element::{Element, Layout, Undecodable, decode as decode_element, encode as encode_element};
pub use error::Error;
pub use keys::Keys;
pub use mover::{Event, Mended, MoveResult, Mover, MoverOptions};
pub use queue::{Debounced, DelayedQueue, Offered, REMEMBER_MS, SetAside, When};
