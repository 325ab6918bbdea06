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
    /// What it will use of memory.
    pub memory: MemoryUse,
    /// What was cut off: nothing, the torn tail, or that and a segment that was just being made.
    pub cuts: Vec<Cut>,
    /// Damage in segments that stay for the tokens of their puts alone: those of these places are forgotten, so that such a
    /// put, repeated, would put its message again. Nothing else is lost.
    pub forgotten: Vec<Cut>,
}

/// What an engine uses of memory at most, in bytes; `u64::MAX` where there is no limit.
///
/// The limit counts messages, keys, headers, error texts, leases, a retirement under way, and all that finds messages in
/// files. It does not count bodies of calls under way, about 72 bytes for each put token in force (`Limits::put_tokens` at the most), about 600 bytes for
/// each queue that has messages or settings, takes that wait, and what the allocator keeps for itself. Where what
/// finds messages in files takes more than five eighths of the limit, the limit does not hold: about 3 bytes a message
/// with a key, half a byte without, and up to 2 more where messages were moved; all filters together have up to a third of
/// the limit, and as much again while they are merged.
///
/// The allocator's share is large with glibc, which gives what one thread has let go of to no other. At a limit of 32 MiB
/// (33.6 MB), `tests/memory.rs` has 25 MB allocated at most, and the process has 50 MB more than at its start; 28 to 32 MB if
/// it is started with `MALLOC_ARENA_MAX=1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MemoryUse {
    /// `Options::memory_limit`.
    pub limit: u64,
    /// Messages that are in memory.
    pub messages: u64,
    /// A retirement while it is under way.
    pub retirement: u64,
    /// What finds messages in the files that there are now.
    pub files: u64,
    /// Buffers.
    pub buffers: u64,
}

/// A part of a segment that is not read: what was being written when the machine stopped, and was never answered, unless the
/// directory was opened with a durability other than `always`; or one that is damaged, and of little worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment.
    pub file: PathBuf,
    /// Where it begins: behind the last whole batch.
    pub offset: u64,
    /// How many bytes it has.
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
    /// Bytes that the messages in memory take, with all that finds them there.
    pub resident_bytes: u64,
    /// Bytes in memory that find messages in due files.
    pub file_bytes: u64,
    /// Put tokens that are remembered: memory beyond the limit, see [`MemoryUse`].
    pub tokens: u64,
    /// Bytes written to due files.
    pub due_bytes: u64,
    /// How often a body has been written at most since the opening, to the journal and to due files, while its message did
    /// not change; 0 if none was written to a file. It is more than 3 only where files would else have more than twice what
    /// is in use, or be too many.
    pub body_writes: u64,
    /// Runs that find messages in due files by number or key.
    pub runs: u64,
    /// Puts, revives and reschedules that had to wait for a retirement.
    pub held: u64,
    /// Bodies that have failed their checksums, or could not be read three times, when their messages were to be retired.
    /// They are taken along as they are, or without their bytes.
    pub damaged: u64,
    /// Runs that can not be read at some place, as far as was tried. They are made anew from due files; while that fails they
    /// stay, and calls that need what they hide are refused: [`Engine::troubles`](crate::Engine::troubles) says why.
    pub runs_damaged: u64,
    /// Runs that could not be read, and were made anew.
    pub runs_healed: u64,
    /// How often the next message of a queue stayed in its due file since memory was full: [`Error::Overloaded`] to a call
    /// about this queue, while a take over several queues passes it over.
    ///
    /// [`Error::Overloaded`]: dwell_store::Error::Overloaded
    pub no_room: u64,
    /// Messages that takes have handed to nobody, since their bodies could not be read.
    pub unread: u64,
}
