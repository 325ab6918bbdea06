//! The embedded engine of dwell: messages in a journal of their own, durable before a put is answered.
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
//! - `shard`: commands, turns, the thread and the callers that take them; `sync`: what these meet at
//! - `journal`: what is written, byte by byte; `manifest`: what is known of a directory
//! - `open`, `recovery`, `replay`: opening a directory, reading it back, telling a torn tail from damage, and making
//!   sense of records; `unproven`: what of the journal's end may not be on the disk
//! - `sealed`: files that are written once; `due`: messages in them; `run`: where to find a message
//! - `cold`: the messages that are in due files alone; `retire`: how they get there, and `checkpoint`: what the
//!   manifest knows of it; `troubles`: what fails there
//! - `executor`: who runs flush, merges, prefetch and deletion; `file_deleter`: files that nothing needs any more
//! - `check`: sealed files against each other; [`offline`]: what can be done with a directory that nobody has open
//! - `backup`: a copy that can be opened, taken while the directory is in use
//! - [`disk`]: the only door to files

mod backup;
mod check;
mod checkpoint;
mod cold;
pub mod disk;
#[cfg_attr(
    not(feature = "fuzzing"),
    allow(dead_code, reason = "fuzzers and tests read files in more ways than calls do")
)]
mod due;
mod engine;
mod error;
mod executor;
mod file_deleter;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod journal;
mod manifest;
pub mod offline;
mod open;
mod options;
mod recovery;
mod replay;
mod report;
mod retire;
mod run;
mod sealed;
mod shard;
mod sync;
mod troubles;
mod unproven;
mod usage;

pub use backup::{BackupError, BackupReport};
pub use engine::Engine;
pub use error::OpenError;
#[doc(hidden)]
pub use executor::{Class, Spawner, SystemThreads};
pub use journal::FORMAT_VERSION;
pub use options::{Durability, Options};
pub use report::{Counters, Cut, MemoryUse, OpenReport};
pub use shard::thread::Driver;
pub use troubles::{Trouble, Work};
pub use usage::FileBytes;
