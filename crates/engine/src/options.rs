//! How a data directory is opened.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use dwell_model::Limits;
use dwell_time::{Clock, SystemClock};

use crate::OpenError;
use crate::disk::{Disk, RealDisk};
use crate::executor::{Spawner, SystemThreads};
use crate::index_run;

/// When written data is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// Before a put, ack, retry, release, bury, cancel, reschedule or setting is answered. All waiting commands share
    /// one sync.
    #[default]
    Always,
    /// At most this many milliseconds after the answer. A power failure loses what is younger.
    IntervalMs(u64),
    /// When the operating system writes it back. The death of the process loses nothing, a power failure loses what
    /// was not written back yet.
    Os,
}

/// How a data directory is opened. [`Options::default`] is meant for production.
#[derive(Clone, Debug)]
pub struct Options {
    /// The store's limits.
    pub limits: Limits,
    /// When written data is made durable.
    pub durability: Durability,
    /// The size of a journal segment in bytes: 4 KiB to 1 GiB, 64 MiB by default. Space is preallocated, and freed a
    /// segment at a time.
    pub segment_bytes: u64,
    /// The low-water mark: with fewer free bytes than this, puts are refused while all other calls go on. `None`
    /// means a quarter of `segment_bytes`, plus the size of the journal since the last flush and of a segment's
    /// settings, so that the next flush has room; where less than twice that is left, a flush begins early.
    pub low_water_bytes: Option<u64>,
    /// The memory for messages and everything that locates them, in bytes; at least 4 KiB, in practice 16 MiB. Bodies
    /// are not held in memory. What does not fit is flushed to tables and read back when its time comes; where
    /// flushes cannot keep up, puts wait for them, at most three seconds. [`MemoryUse`](crate::MemoryUse) lists what
    /// is counted. `u64::MAX` keeps everything in memory. 256 MiB by default.
    pub memory_limit: u64,
    /// The maximum number of open files, at least 4, 256 by default. Not counted are files that a call is using,
    /// files written but not synced yet, the directory, and the lock.
    pub open_files: usize,
    /// The maximum number of waiting takes.
    pub waiting: usize,
    /// How many dead messages a bulk revive or discard handles in one slice; other calls are served in between. At
    /// least 1, 500 by default.
    pub bulk_per_call: usize,
    /// The highest offset of a body in a segment, and the maximum size of a batch: what fits in 32 bits, except in
    /// tests, which cannot reach that. Puts beyond it are refused; a segment grows that long only where no other can
    /// be begun.
    #[doc(hidden)]
    pub body_reach: u32,
    /// How many expiries of messages in tables the shard handles in one turn. Tests and the simulation make it small;
    /// at least 1.
    #[doc(hidden)]
    pub expired_per_turn: usize,
    /// How many leases expire in one slice. Tests and the simulation make it small; at least 1.
    #[doc(hidden)]
    pub lapsed_per_slice: usize,
    /// The clock for all time.
    pub clock: Arc<dyn Clock>,
    /// The disk for all files.
    pub disk: Arc<dyn Disk>,
    /// The maximum size of an index run in bytes: 256 to 3 GiB, 1 GiB by default. A small value lets tests see what
    /// otherwise happens to large stores alone.
    #[doc(hidden)]
    pub run_bytes: u64,
    /// Starts the executor's threads.
    #[doc(hidden)]
    pub spawner: Arc<dyn Spawner>,
    /// The random seed: for the jitter of retries and the number of a new directory. `None` draws it.
    pub seed: Option<u64>,
}

impl Options {
    /// The minimum of [`Options::segment_bytes`].
    pub const MIN_SEGMENT_BYTES: u64 = 4 * 1024;
    /// The maximum of [`Options::segment_bytes`].
    pub const MAX_SEGMENT_BYTES: u64 = 1024 * 1024 * 1024;

    /// The minimum of [`Options::open_files`].
    pub const MIN_OPEN_FILES: usize = 4;

    /// The minimum of [`Options::memory_limit`].
    pub const MIN_MEMORY_LIMIT: u64 = 4 * 1024;
    /// The default of [`Options::memory_limit`].
    pub const DEFAULT_MEMORY_LIMIT: u64 = 256 * 1024 * 1024;

    /// The maximum number of items per call ([`Limits::batch`]): with it a batch of the journal stays below the 4 GiB
    /// that a batch can have, whatever texts the items carry.
    pub const MAX_CALL_ITEMS: usize = 200_000;

    /// The minimum of [`Options::run_bytes`].
    #[doc(hidden)]
    pub const MIN_RUN_BYTES: u64 = 256;

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let bounds = Options::MIN_SEGMENT_BYTES..=Options::MAX_SEGMENT_BYTES;
        if !bounds.contains(&self.segment_bytes) {
            let reason = format!("a segment has 4 KiB to 1 GiB, not {} bytes", self.segment_bytes);
            return Err(OpenError::InvalidOption { option: "segment_bytes", reason });
        }
        if self.memory_limit < Options::MIN_MEMORY_LIMIT {
            let reason = format!("messages have 4 KiB of memory at least, not {} bytes", self.memory_limit);
            return Err(OpenError::InvalidOption { option: "memory_limit", reason });
        }
        if !(Options::MIN_RUN_BYTES..=index_run::RunWriter::<index_run::TableRef>::MOST)
            .contains(&self.run_bytes)
        {
            let reason = format!("a run has 256 bytes to 3 GiB, not {} bytes", self.run_bytes);
            return Err(OpenError::InvalidOption { option: "run_bytes", reason });
        }
        if self.open_files < Options::MIN_OPEN_FILES {
            let reason = format!("4 files may be open at least, not {}", self.open_files);
            return Err(OpenError::InvalidOption { option: "open_files", reason });
        }
        if self.bulk_per_call == 0 {
            let reason = "a revive of many looks at one message at least".to_owned();
            return Err(OpenError::InvalidOption { option: "swept_a_call", reason });
        }
        if self.expired_per_turn == 0 {
            let reason = "a turn looks at one expiry at least".to_owned();
            return Err(OpenError::InvalidOption { option: "expired_a_turn", reason });
        }
        if self.lapsed_per_slice == 0 {
            let reason = "a slice lets one lease run out at least".to_owned();
            return Err(OpenError::InvalidOption { option: "lapsed_a_slice", reason });
        }
        if self.limits.body_len > Limits::MAX_BODY_LEN {
            let reason = format!("a body has at most 64 MiB, not {} bytes", self.limits.body_len);
            return Err(OpenError::InvalidOption { option: "limits.body_len", reason });
        }
        if self.limits.batch > Options::MAX_CALL_ITEMS {
            let reason = format!("a call has at most 200,000 items, not {}", self.limits.batch);
            return Err(OpenError::InvalidOption { option: "limits.batch", reason });
        }
        if self.durability == Durability::IntervalMs(0) {
            let reason = "an interval has at least 1 ms; `always` syncs before it answers".to_owned();
            return Err(OpenError::InvalidOption { option: "durability", reason });
        }
        Ok(())
    }

    pub(crate) fn low_water(&self) -> LowWater {
        LowWater {
            bytes: self.low_water_bytes.unwrap_or(self.segment_bytes / 4),
            // Without a limit nothing is ever flushed.
            and_journal: self.low_water_bytes.is_none() && self.memory_limit < u64::MAX,
        }
    }

    pub(crate) fn seed(&self) -> u64 {
        // The keys of a new hasher are the only source of randomness in std.
        self.seed.unwrap_or_else(|| RandomState::new().hash_one("dwell"))
    }
}

// A batch may hold, beyond what fills it, the items of one more call, and of waiting takes those of two; each with
// the longest error text.
const _: () = {
    let an_item = Limits::MAX_ERROR_TEXT_LEN as u64 + 512;
    assert!(3 * Options::MAX_CALL_ITEMS as u64 * an_item < u32::MAX as u64 - 1024 * 1024 * 1024);
};

/// The free bytes below which puts are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LowWater {
    pub(crate) bytes: u64,
    /// Whether room for the unflushed part of the journal is added.
    pub(crate) and_journal: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limits: Limits::default(),
            durability: Durability::default(),
            segment_bytes: 64 * 1024 * 1024,
            low_water_bytes: None,
            memory_limit: Options::DEFAULT_MEMORY_LIMIT,
            open_files: 256,
            waiting: 1_000_000,
            bulk_per_call: 500,
            run_bytes: 1024 * 1024 * 1024,
            spawner: Arc::new(SystemThreads),
            body_reach: u32::MAX,
            expired_per_turn: 16 * 1024,
            lapsed_per_slice: 1_000,
            clock: Arc::new(SystemClock::new()),
            disk: Arc::new(RealDisk),
            seed: None,
        }
    }
}
