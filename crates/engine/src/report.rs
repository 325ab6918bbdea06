//! The report of an opening, and the counters of an engine.

use std::path::PathBuf;

use dwell_model::Timestamp;

use crate::disk::DiskCounts;

/// The report of an opening.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OpenReport {
    /// How often the directory has been opened, including this time.
    pub incarnation: u32,
    /// The number of journal segments.
    pub segments: u64,
    /// The number of batches read.
    pub batches: u64,
    /// The number of records in them.
    pub records: u64,
    /// The number of messages.
    pub messages: u64,
    /// When the backup was taken, if this is the first opening of one: messages settled since then come again.
    pub restored: Option<Timestamp>,
    /// Whether the store was closed cleanly the last time.
    pub was_closed: bool,
    /// The maximum memory use.
    pub memory: MemoryUse,
    /// What was cut off: nothing, the torn tail, or that and a segment that was being created.
    pub cuts: Vec<Cut>,
    /// Damage in segments that are kept for the idempotency keys of their puts alone. The keys in these places are
    /// lost, so that a repeated put with one of them puts its message again. Nothing else is lost.
    pub forgotten: Vec<Cut>,
}

/// The maximum memory that an engine uses, in bytes; `u64::MAX` where there is no limit.
///
/// The limit counts messages, keys, headers, error texts, leases, a flush under way, and the indexes of messages in
/// files. It does not count the bodies of calls under way, about 72 bytes for each idempotency key in force (at most
/// `Limits::idempotency_keys`), about 600 bytes for each queue that has messages or settings, waiting takes, and the
/// overhead of the allocator. Where the indexes of files take more than five eighths of the limit, the limit does not
/// hold: about 3 bytes for a message with a key, half a byte for one without, and up to 2 more where messages were
/// moved; all filters together have up to a third of the limit, and as much again while they are merged.
///
/// The overhead of the allocator is large with glibc, which does not give memory freed by one thread to another. At a
/// limit of 32 MiB (33.6 MB), `tests/memory.rs` has at most 25 MB allocated, and the process grows by 50 MB; by 28 to
/// 32 MB if it is started with `MALLOC_ARENA_MAX=1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MemoryUse {
    /// `Options::memory_limit`.
    pub limit: u64,
    /// Messages in memory.
    pub messages: u64,
    /// A flush under way.
    pub flush: u64,
    /// The indexes of the current files.
    pub files: u64,
    /// Buffers.
    pub buffers: u64,
}

/// A part of a segment that is not read. It is either a batch that was being written when the machine stopped, and
/// was never answered unless the durability is not `always`; or a damaged part of little value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment.
    pub file: PathBuf,
    /// Where it begins: after the last whole batch.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Why it is not a batch.
    pub reason: &'static str,
}

/// Counters of an engine since it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counters {
    /// Disk calls and bytes, including the opening.
    pub disk: DiskCounts,
    /// How often the shard's thread was scheduled again after a sleep.
    pub wakeups: u64,
    /// Commands received.
    pub commands: u64,
    /// Batches written.
    pub batches: u64,
    /// Syncs of batches.
    pub syncs: u64,
    /// Segments of the journal.
    pub segments: u64,
    /// Flushes completed.
    pub flushes: u64,
    /// Current tables.
    pub tables: u64,
    /// Messages in memory.
    pub resident: u64,
    /// Messages in tables alone.
    pub cold: u64,
    /// Bytes of memory for resident messages and their indexes.
    pub resident_bytes: u64,
    /// Bytes of memory for the indexes of tables.
    pub file_bytes: u64,
    /// Idempotency keys in force: memory beyond the limit, see [`MemoryUse`].
    pub idempotency_keys: u64,
    /// Bytes written to tables.
    pub table_bytes: u64,
    /// The maximum number of times that a body has been written since the opening, to the journal and to tables,
    /// while its message did not change; 0 if no body was written to a file. It exceeds 3 only where files would
    /// otherwise have more than twice what is in use, or be too many.
    pub body_writes: u64,
    /// Index runs that locate messages in tables by number or key.
    pub runs: u64,
    /// Puts, revives and reschedules that had to wait for a flush.
    pub held: u64,
    /// Bodies that failed their checksums, or could not be read three times, when their messages were to be flushed.
    /// They are copied as they are, or without their bytes.
    pub damaged: u64,
    /// Runs with a part that cannot be read, as far as known. They are rebuilt from tables; while that fails they
    /// stay, and calls that need the unreadable part are refused:
    /// [`Engine::background_failures`](crate::Engine::background_failures) has the reason.
    pub runs_damaged: u64,
    /// Runs that could not be read and were rebuilt.
    pub runs_rebuilt: u64,
    /// How often the next message of a queue stayed in its table because memory was full: a call about this queue
    /// gets [`Error::Overloaded`], while a take over several queues skips it.
    ///
    /// [`Error::Overloaded`]: dwell_store::Error::Overloaded
    pub memory_full: u64,
    /// Messages that were taken but not delivered, because their bodies could not be read.
    pub unread: u64,
}
