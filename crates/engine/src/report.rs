//! What an opening found, and what an engine has done since.

use std::path::PathBuf;

use dwell_model::Timestamp;

use crate::disk::DiskCounts;

/// What an opening found.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OpenReport {
    /// How often the directory has been opened, this time included.
    pub incarnation: u32,
    /// How many segments the journal had.
    pub segments: u64,
    /// How many batches were read.
    pub batches: u64,
    /// How many records they held.
    pub records: u64,
    /// How many messages there are.
    pub messages: u64,
    /// When the backup was taken that this is, if it was opened for the first time: what was settled since comes again.
    pub restored: Option<Timestamp>,
    /// Whether the store was closed properly the last time.
    pub was_closed: bool,
    /// What was cut off: nothing, the torn tail, or that and a segment that was just being made.
    pub cuts: Vec<Cut>,
}

/// What was being written when the machine stopped. Nothing in it was ever answered, unless the directory was
/// opened with a durability other than `always`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment.
    pub file: PathBuf,
    /// Where it was cut: behind the last whole batch.
    pub offset: u64,
    /// How many bytes were written behind it.
    pub bytes: u64,
    /// Why they are no batch.
    pub reason: &'static str,
}

/// What an engine has done since it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counters {
    /// Calls and bytes at the disk, opening included.
    pub disk: DiskCounts,
    /// How often the shard's thread was put back on a processor after it had slept.
    pub wakeups: u64,
    /// Commands taken in.
    pub commands: u64,
    /// Batches written.
    pub batches: u64,
    /// Syncs of batches.
    pub syncs: u64,
    /// Segments that the journal has.
    pub segments: u64,
    /// Retirements that were completed.
    pub checkpoints: u64,
    /// Due files that there are.
    pub due_files: u64,
    /// Messages in memory.
    pub resident: u64,
    /// Messages in due files alone.
    pub cold: u64,
}
