//! A delay queue in your program: give it a message and an instant, and it hands the message over at that
//! instant, at least once, and never before.
//!
//! # A few lines
//!
//! ```
//! # #[cfg(feature = "engine")] {
//! use std::time::Duration;
//!
//! use dwell::Dwell;
//!
//! # let data = tempfile::tempdir()?;
//! # let dir = data.path();
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let orders = Dwell::open(dir)?.queue("orders")?;
//!
//! // Durable once it is answered; due 20 ms later.
//! orders.put("close order 7").delay(Duration::from_millis(20)).key("order-7").await?;
//!
//! // Waits for the instant, without polling.
//! while let Some(job) = orders.take().wait(Duration::from_millis(100)).await? {
//!     println!("{}", job.text()?);
//!     job.ack().await?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The same without async
//!
//! [`blocking`] has the same names. What is awaited above is `call`ed here.
//!
//! ```
//! # #[cfg(feature = "engine")] {
//! use std::time::Duration;
//!
//! use dwell::blocking::Dwell;
//!
//! # let data = tempfile::tempdir()?;
//! # let dir = data.path();
//! let orders = Dwell::open(dir)?.queue("orders")?;
//! orders.put("close order 7").delay(Duration::from_millis(20)).key("order-7").call()?;
//! for job in orders.take().until_idle(Duration::from_millis(100)).iter() {
//!     let job = job?;
//!     println!("{}", job.text()?);
//!     job.ack()?;
//! }
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where the messages are
//!
//! | | opened with | feature |
//! |---|---|---|
//! | in files of this machine | [`Dwell::open`] | `engine` (default) |
//! | on a server, `dwell serve` | `Dwell::connect` | `http` |
//! | on Redis, Sentinel or Redis Cluster | `Dwell::redis` | `redis` |
//! | on PostgreSQL | `Dwell::postgres` | `postgres` |
//! | in this process alone | [`Dwell::memory`] | |
//!
//! All else is one contract ([`Store`]), tested by one suite. What only one store has,
//! such as its options and its errors at opening, is in the module named like its
//! feature; so are the differences over HTTP. Stores differ in three more points:
//!
//! - the cost of closing the store, and of the end of the process: [`Dwell::close`], [`session`](TakeJobs::session)
//! - the order of a take over several queues: exact, except on Redis ([`also_from`](TakeJobs::also_from))
//! - [numbers](Number): they rise over all messages; on Redis only over those that one process puts
//!
//! Further features: `json` (default) for JSON bodies (`Json`), `jiff` for jiff's instants, `delivery` for workers with
//! handlers and for schedules (`dwell::delivery`), over any of these stores.
//! schedules (`dwell::delivery`), over any of these stores.
//!
//! # For tests
//!
//! A store in memory behaves as the others do. With a [`ManualClock`] a test moves time by hand.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use dwell::{Limits, ManualClock, Timestamp, blocking::Dwell};
//!
//! let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000)?);
//! let orders = Dwell::memory_with(Limits::default(), Arc::new(clock.clone())).queue("orders")?;
//! orders.put("close order 7").delay(Duration::from_secs(30 * 60)).call()?;
//!
//! assert!(orders.take().call()?.is_none());
//! clock.advance(30 * 60 * 1000);
//! assert!(orders.take().call()?.is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is promised
//!
//! A put that was answered is delivered until it is acked, cancelled or dead. It is delivered twice only if it was handed
//! out and its ack was not answered, so handlers must tolerate that: [`Delivery::id`] identifies a repeat. A message
//! whose attempts are spent is dead, keeps its last error, and can be revived.
//!
//! # Errors
//!
//! [`Error`] has a stable [`code`](Error::code) for each kind. [`is_retryable`](Error::is_retryable)
//! says whether the same call may succeed later, [`needs_reopen`](Error::needs_reopen) whether the store
//! has to be opened again first; never both.
//!
//! # In one process without durability
//!
//! [`DelayQueue`] holds values of any type, like `java.util.concurrent.DelayQueue` in Java.

pub mod blocking;
#[cfg(any(feature = "engine", feature = "http", feature = "postgres", feature = "redis"))]
mod error;
mod open;

#[cfg(feature = "http")]
pub use dwell_client as http;
#[cfg(feature = "delivery")]
pub use dwell_delivery as delivery;
#[cfg(feature = "engine")]
pub use dwell_engine as engine;
pub use dwell_model::{
    AttemptLimit, Backoff, Counts, Cursor, DEFAULT_PRIORITY, Death, DeathReason, Headers, Holder,
    IdempotencyKey, Invalid, Key, LapseBackoff, Lease, LeaseToken, Limits, Message, MessageId, Now, Number,
    OnExpiry, OwnSettings, Pause, QueueName, Receipt, Setting, SettingChange, SettingName, Settings,
    Standing, State, StateKind, Timestamp, Wake, format_duration_ms, parse_duration_ms,
};
#[cfg(feature = "postgres")]
pub use dwell_postgres as postgres;
#[cfg(feature = "redis")]
pub use dwell_redis as redis;
#[cfg(feature = "json")]
pub use dwell_store::Json;
pub use dwell_store::{
    Action, Answers, Blocking, Body, BoxFuture, BulkOutcome, Bury, Bytes, Cancelled, DeathCounts, Delivery,
    DiscardCounts, Error, Forecast, GiveBack, IntoBody, IntoPut, Job, Jobs, LeaseRef, LeaseTerms, Many,
    MemoryStore, OnConflict, One, Page, Put, PutAnswer, PutDigest, PutMany, PutOne, PutOutcome, Queue,
    QueueDeaths, QueueStats, Rescheduled, Result, Selection, Settle, SettleAll, Settled, StateCounts, Store,
    Stream, Take, TakeId, TakeJobs, Target, When, async_trait, delegate_store,
};
pub use dwell_time::{Clock, DelayQueue, Handle, ManualClock, Notifier, Sleeper, SystemClock, delay_queue};
#[cfg(any(feature = "engine", feature = "http", feature = "postgres", feature = "redis"))]
pub use error::OpenError;
pub use open::Dwell;

/// Compiles and runs the Rust code of the README.
#[cfg(all(doctest, feature = "engine"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles and runs the Rust code of the stores' pages.
#[cfg(all(doctest, feature = "engine"))]
#[doc = include_str!("../../../docs/engine.md")]
struct EnginePage;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/memory.md")]
struct MemoryPage;
