//! The embedded engine of dwell: messages in a write-ahead journal, durable before a put is answered.
//!
//! ```
//! use dwell_engine::{Engine, Options};
//! use dwell_store::{Put, Take};
//!
//! # let dir = std::env::temp_dir().join(format!("dwell-doc-{}", std::process::id()));
//! let engine = Engine::open(&dir, Options::default())?;
//! let store = engine.blocking();
//! store.put_one(Put::new("orders".parse()?, "close order 7").after_ms(50))?;
//! let taken = store.take(Take::from("orders".parse()?).wait_ms(30_000))?;
//! assert_eq!(&taken[0].message.body[..], b"close order 7");
//! engine.close()?;
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layout
//! - `engine`: [`Engine`], the store; [`Options`]; [`OpenError`]; [`OpenReport`] and [`Counters`]
//! - `shard`: commands, turns, and the thread and callers that run them; `sync`: the primitives they share
//! - `journal`: the write-ahead log, byte by byte; `manifest`: which files are the state
//! - `open`, `recovery`, `replay`: opening a directory, reading it back, distinguishing a torn tail from damage, and
//!   applying records; `unsynced_tail`: the end of the journal that may not be on the disk
//! - `sealed`: immutable files; `table`: tables of messages; `index_run`: the index runs that locate messages
//! - `cold`: the messages that are in tables alone; `flush`: flushes and compaction; `checkpoint`: the state in
//!   the manifest; `background_failures`: background work that fails
//! - `executor`: runs flush, merges, prefetch and deletion; `file_deleter`: removes files that are no longer needed
//! - `check`: cross-checks of sealed files; [`offline`]: tools for a directory that is not open
//! - `backup`: a copy that can be opened, taken while the directory is in use
//! - [`disk`]: all file access

mod background_failures;
mod backup;
mod check;
mod checkpoint;
mod cold;
pub mod disk;
mod engine;
mod error;
mod executor;
mod file_bytes;
mod file_deleter;
mod flush;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod index_run;
mod journal;
mod manifest;
pub mod offline;
mod open;
mod options;
mod recovery;
mod replay;
mod report;
mod sealed;
mod shard;
mod sync;
#[cfg_attr(
    not(feature = "fuzzing"),
    allow(dead_code, reason = "fuzzers and tests read files in more ways than calls do")
)]
mod table;
mod unsynced_tail;

pub use background_failures::{BackgroundFailure, BackgroundWork};
pub use backup::{BackupError, BackupReport};
pub use engine::Engine;
pub use error::OpenError;
#[doc(hidden)]
pub use executor::{Class, Spawner, SystemThreads};
pub use file_bytes::FileBytes;
pub use journal::FORMAT_VERSION;
pub use options::{Durability, Options};
pub use report::{Counters, Cut, MemoryUse, OpenReport};
pub use shard::driver::Driver;
