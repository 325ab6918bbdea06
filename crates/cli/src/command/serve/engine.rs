//! The store in files: its opening, and the report of that.

use std::fmt;

use dwell_engine::{Engine, OpenError, Options};
use dwell_model::Limits;
use dwell_server::{Durability, StoreConfig};
use serde::Serialize;

use crate::exit::{Exit, Failure};

/// The report of an opening, with the settings in use.
#[derive(Debug, Serialize)]
pub(crate) struct Recovered {
    messages: u64,
    segments: u64,
    batches: u64,
    records: u64,
    /// The number of openings of the directory, including this one.
    opened: u32,
    /// When the backup was taken, at the first opening of a backup.
    #[serde(skip_serializing_if = "Option::is_none")]
    restored: Option<String>,
    /// Whether the last run was closed cleanly.
    was_closed: bool,
    pub(crate) memory: Memory,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) cuts: Vec<Cut>,
    /// Damage that has lost idempotency keys, and nothing else.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) forgotten: Vec<Cut>,
}

/// The memory that the store will use, in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct Memory {
    /// `None` if there is no limit.
    limit: Option<u64>,
    messages: Option<u64>,
    flush: Option<u64>,
    files: u64,
}

impl From<dwell_engine::MemoryUse> for Memory {
    fn from(memory: dwell_engine::MemoryUse) -> Memory {
        let limited = |bytes: u64| (memory.limit != u64::MAX).then_some(bytes);
        Memory {
            limit: limited(memory.limit),
            messages: limited(memory.messages),
            flush: limited(memory.flush),
            files: memory.files,
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let (Some(limit), Some(messages), Some(flush)) = (self.limit, self.messages, self.flush) else {
            return f.write_str("no limit: all messages are in memory, without their bodies");
        };
        write!(
            f,
            "{} MiB: {} for messages, {} for writing them to files, {} to find those in files; besides, bodies under way, and \
             72 bytes for each idempotency key in force",
            mib(limit),
            mib(messages),
            mib(flush),
            mib(self.files)
        )
    }
}

/// A torn tail that was cut, or a part that is damaged and not needed.
#[derive(Debug, Serialize)]
pub(crate) struct Cut {
    file: String,
    offset: u64,
    bytes: u64,
    reason: String,
}

impl From<&dwell_engine::Cut> for Cut {
    fn from(cut: &dwell_engine::Cut) -> Cut {
        Cut {
            file: cut.file.display().to_string(),
            offset: cut.offset,
            bytes: cut.bytes,
            reason: cut.reason.to_owned(),
        }
    }
}

impl fmt::Display for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.opened <= 1 {
            return f.write_str("nothing; the directory is new");
        }
        write!(f, "{} messages from {} segments", self.messages, self.segments)?;
        if let Some(taken) = &self.restored {
            return write!(f, "; this is a backup of {taken}: what was settled since then comes again");
        }
        if self.was_closed { Ok(()) } else { f.write_str("; the last run did not end in good order") }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cut { file, offset, bytes, reason } = self;
        write!(f, "{bytes} bytes of {file} behind byte {offset}: {reason}; it had not been synced")
    }
}

/// Opens the data directory.
pub(super) fn open(config: &StoreConfig, limits: Limits) -> Result<(Engine, Recovered), Failure> {
    let durability = match config.durability {
        Durability::Always => dwell_engine::Durability::Always,
        Durability::IntervalMs(ms) => dwell_engine::Durability::IntervalMs(ms),
        Durability::Os => dwell_engine::Durability::Os,
    };
    let mut options = Options { limits, durability, ..Options::default() };
    options.segment_bytes = config.segment_bytes.unwrap_or(options.segment_bytes);
    options.memory_limit = config.memory_limit.unwrap_or(u64::MAX);
    let engine = Engine::open(&config.data, options).map_err(|error| refused(&error))?;
    let report = engine.report();
    let recovered = Recovered {
        messages: report.messages,
        segments: report.segments,
        batches: report.batches,
        records: report.records,
        opened: report.incarnation,
        restored: report.restored.map(|taken| taken.to_string()),
        was_closed: report.was_closed,
        memory: report.memory.into(),
        cuts: report.cuts.iter().map(Cut::from).collect(),
        forgotten: report.forgotten.iter().map(Cut::from).collect(),
    };
    Ok((engine, recovered))
}

fn refused(error: &OpenError) -> Failure {
    Failure { retryable: error.is_retryable(), ..Failure::new(Exit::CannotStart, error.code(), error) }
}
