//! The `Store` contract of dwell: what it means to hold a message until its moment.
//!
//! # Layout
//! - [`Queue`], [`Job`]: a queue as a program uses it, over any store; [`blocking`]: the same for threads without a runtime
//! - [`Store`]: the contract, one object-safe async trait, with its requests and answers
//! - [`delegate_store!`]: for stores that wrap another one
//! - [`Error`]: why a store refuses
//! - [`Blocking`]: the contract's calls for threads without a runtime
//! - [`MemoryStore`]: a store inside one process
//! - [`core`]: all messages of a shard and their indexes, for stores that keep them in this process
//! - `conformance` (feature of that name): the suite that shows that a store keeps the contract

#[cfg(feature = "conformance")]
pub mod conformance;
mod contained;
mod contract;
pub mod core;
mod error;
mod memory;
mod queue;

/// For implementations of [`Store`].
pub use async_trait::async_trait;
/// The type of a message's body.
pub use bytes::Bytes;
pub use contained::contained;
#[doc(hidden)]
pub use contract::delegated;
pub use contract::{
    Action, Blocking, BulkOutcome, Cancelled, DeathCounts, Delivery, DiscardCounts, Forecast, LeaseRef,
    LeaseTerms, OnConflict, Page, Put, PutAnswer, PutDigest, PutOutcome, QueueDeaths, QueueStats,
    Rescheduled, Result, Selection, Settle, Settled, StateCounts, Store, Take, Target, When,
};
pub use error::Error;
/// Implemented by [`Jobs`].
pub use futures_core::Stream;
/// The future of every builder.
pub use futures_core::future::BoxFuture;
pub use memory::MemoryStore;
#[cfg(feature = "json")]
pub use queue::Json;
pub use queue::{
    Answers, Body, Bury, GiveBack, IntoBody, IntoPut, Job, Jobs, Many, One, PutMany, PutOne, Queue,
    SettleAll, TakeId, TakeJobs, blocking,
};
