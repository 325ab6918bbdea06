//! A delay queue in your program: give it a message and an instant, and it hands the message over at that
//! instant, at least once, and never before.
//!
//! # A few lines
//!
//! ```
//! # #[cfg(feature = "engine")] {
//! use dwell::{Action, Engine, Options, Put, Settle, Take};
//!
//! # let data = tempfile::tempdir()?;
//! # let dir = data.path();
//! let engine = Engine::open(dir, Options::default())?;
//! let queue = engine.blocking();
//!
//! // Durable once it is answered; due 20 ms later.
//! queue.put_one(Put::new("orders".parse()?, "close order 7").after_ms(20))?;
//!
//! // Waits for the instant, without polling.
//! for delivery in queue.take(Take::from("orders".parse()?).wait_ms(10_000))? {
//!     assert_eq!(&delivery.message.body[..], b"close order 7");
//!     queue.settle_one(Settle { receipt: delivery.receipt, action: Action::Ack })?;
//! }
//! engine.close()?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The same from async code
//!
//! Every store is a [`Store`], whose calls are async and need no particular runtime.
//!
//! ```
//! # #[cfg(feature = "engine")] {
//! use dwell::{Action, Engine, Options, Put, Settle, Store as _, Take};
//!
//! # let data = tempfile::tempdir()?;
//! # let dir = data.path();
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let engine = Engine::open(dir, Options::default())?;
//! let orders: dwell::QueueName = "orders".parse()?;
//!
//! for answer in engine.put(vec![Put::new(orders.clone(), "close order 7").after_ms(20)]).await {
//!     println!("due {}", answer?.due);
//! }
//! for delivery in engine.take(Take::from(orders).wait_ms(10_000)).await? {
//!     let done = Settle { receipt: delivery.receipt, action: Action::Ack };
//!     engine.settle(vec![done]).await.remove(0)?;
//! }
//! engine.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # For tests
//!
//! [`MemoryStore`] keeps nothing and answers alike; on a [`ManualClock`] a test moves time by hand.
//!
//! ```
//! use std::sync::Arc;
//!
//! use dwell::{Blocking, Limits, ManualClock, MemoryStore, Put, Take, Timestamp};
//!
//! let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000)?);
//! let queue = Blocking::new(Arc::new(MemoryStore::new(Limits::default(), Arc::new(clock.clone()))));
//! queue.put_one(Put::new("orders".parse()?, "close order 7").after_ms(30 * 60 * 1000))?;
//!
//! assert!(queue.take(Take::from("orders".parse()?))?.is_empty());
//! clock.advance(30 * 60 * 1000);
//! assert_eq!(queue.take(Take::from("orders".parse()?))?.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is promised
//!
//! A put that was answered is delivered until it is acked, cancelled or dead. It may be delivered twice only if
//! it was handed out and its ack not yet answered, so handlers must bear that: [`Message::id`] tells a repeat.
//! A message whose attempts are spent is dead, with its last error, and can be revived.
//!
//! # Features
//!
//! - `engine` (default): [`Engine`], the store in files. Without it, the store in memory is left.

#[cfg(feature = "engine")]
pub use dwell_engine::{Cut, Durability, Engine, OpenError, OpenReport, Options};
pub use dwell_model::{
    AttemptLimit, Backoff, Counts, Cursor, DEFAULT_PRIORITY, Death, DeathReason, Headers, Invalid, Key,
    Limits, Message, MessageId, Number, Pause, PutToken, QueueName, Receipt, Setting, SettingChange,
    SettingName, Settings, Standing, State, StateKind, Timestamp, format_duration_ms, parse_duration_ms,
};
pub use dwell_store::{
    Action, Blocking, Cancelled, Delivery, Error, MemoryStore, OnConflict, Page, Put, PutAnswer, PutOutcome,
    QueueStats, Rescheduled, Result, Selection, Settle, Settled, StateCounts, Store, Swept, Take, Target,
    When,
};
pub use dwell_time::{Clock, ManualClock, SystemClock};

/// The README's Rust compiles and runs.
#[cfg(all(doctest, feature = "engine"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
