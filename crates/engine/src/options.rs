//! How a data directory is opened.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use dwell_model::Limits;
use dwell_time::{Clock, SystemClock};

use crate::OpenError;
use crate::disk::{Disk, RealDisk};
use crate::executor::{Spawner, SystemThreads};
use crate::run;

/// When what was written is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// Before it is answered: put, ack, retry, release, bury, cancel, reschedule, settings. All commands that
    /// wait share one sync.
    #[default]
    Always,
    /// At most so many milliseconds after it was answered. A power failure loses what is younger.
    IntervalMs(u64),
    /// When the operating system likes. The death of the process loses nothing, a power failure what the
    /// system had not written yet.
    Os,
}

/// How a data directory is opened. [`Options::default`] is meant for production.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the store accepts at most.
    pub limits: Limits,
    /// When what was written is made durable.
    pub durability: Durability,
    /// How long a segment of the journal gets, in bytes: 4 KiB to 1 GiB. Space comes back a segment at a
    /// time; it is set aside before it is used. 64 MiB by default.
    pub segment_bytes: u64,
    /// With fewer bytes than this left to write, puts are refused while all else goes on. `None` stands for a quarter of
    /// `segment_bytes`, and as much again as the journal holds since the last retirement and a segment begins with,
    /// so that the next one has room; where twice that is not left, it begins early.
    pub low_water_bytes: Option<u64>,
    /// What messages may take in memory, in bytes, with all that finds them; 4 KiB at least, 16 MiB to be of use.
    /// Bodies are not held in memory. What does not fit is retired to due files and read from there when its time
    /// comes; where that can not follow, puts wait for it, three seconds at most. What is counted, and what is not, is
    /// said at [`MemoryUse`](crate::MemoryUse). `u64::MAX` keeps everything in memory. 256 MiB by default.
    pub memory_limit: u64,
    /// So many files may be open at a time, 4 at least. Besides there are those that a call is under way on, those
    /// that were written and are not synced yet, the directory, and the lock. 256 by default.
    pub open_files: usize,
    /// How many takes may wait at a time.
    pub waiting: usize,
    /// At how many dead messages a revive or a discard of many looks at a time: others are served in between. 1 at least,
    /// 500 by default.
    pub swept_a_call: usize,
    /// How far from its start a segment holds bodies, and how long a batch may be: what 32-bit numbers can say, but in
    /// tests, which never come there. Puts that do not fit below are refused; a segment is only ever as long where no
    /// other can be begun.
    #[doc(hidden)]
    pub body_reach: u32,
    /// At how many expiries of messages in tables the shard looks in one turn. For tests and the simulation, which make it
    /// small; 1 at least.
    #[doc(hidden)]
    pub expired_a_turn: usize,
    /// How many leases run out in a slice. For tests and the simulation, which make it small; 1 at least.
    #[doc(hidden)]
    pub lapsed_a_slice: usize,
    /// All time goes through this.
    pub clock: Arc<dyn Clock>,
    /// All files go through this.
    pub disk: Arc<dyn Disk>,
    /// A run, which finds messages in due files, takes no more when it has so many bytes: 256 to 3 GiB, 1 GiB by default.
    /// A small number makes what only happens to large stores happen to small ones.
    #[doc(hidden)]
    pub run_bytes: u64,
    /// Who starts the executor's threads.
    #[doc(hidden)]
    pub spawner: Arc<dyn Spawner>,
    /// Where chance begins: the jitter of retries, the number of a new directory. `None` draws it.
    pub seed: Option<u64>,
}

impl Options {
    /// The shortest segments.
    pub const MIN_SEGMENT_BYTES: u64 = 4 * 1024;
    /// The longest segments.
    pub const MAX_SEGMENT_BYTES: u64 = 1024 * 1024 * 1024;

    /// The fewest files that may be open.
    pub const MIN_OPEN_FILES: usize = 4;

    /// The least memory.
    pub const MIN_MEMORY_LIMIT: u64 = 4 * 1024;
    /// The memory limit unless another is asked for.
    pub const DEFAULT_MEMORY_LIMIT: u64 = 256 * 1024 * 1024;

    /// The most items that one call may be allowed to have ([`Limits::batch`]): the batch of the journal that it is
    /// written in stays below the 4 GiB that a batch can have, whatever texts come with them.
    pub const MAX_CALL_ITEMS: usize = 200_000;

    /// The shortest runs that may be asked for.
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
        if !(Options::MIN_RUN_BYTES..=run::Writer::<run::Home>::MOST).contains(&self.run_bytes) {
            let reason = format!("a run has 256 bytes to 3 GiB, not {} bytes", self.run_bytes);
            return Err(OpenError::InvalidOption { option: "run_bytes", reason });
        }
        if self.open_files < Options::MIN_OPEN_FILES {
            let reason = format!("4 files may be open at least, not {}", self.open_files);
            return Err(OpenError::InvalidOption { option: "open_files", reason });
        }
        if self.swept_a_call == 0 {
            let reason = "a revive of many looks at one message at least".to_owned();
            return Err(OpenError::InvalidOption { option: "swept_a_call", reason });
        }
        if self.expired_a_turn == 0 {
            let reason = "a turn looks at one expiry at least".to_owned();
            return Err(OpenError::InvalidOption { option: "expired_a_turn", reason });
        }
        if self.lapsed_a_slice == 0 {
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
            // Without a limit nothing is ever retired.
            and_journal: self.low_water_bytes.is_none() && self.memory_limit < u64::MAX,
        }
    }

    pub(crate) fn seed(&self) -> u64 {
        // The keys of a new hasher are the one source of chance that std has.
        self.seed.unwrap_or_else(|| RandomState::new().hash_one("dwell"))
    }
}

// Beside what fills a batch, there are in one the items of one more call, and of takes that waited those of two; each with
// the longest error text.
const _: () = {
    let an_item = Limits::MAX_ERROR_TEXT_LEN as u64 + 512;
    assert!(3 * Options::MAX_CALL_ITEMS as u64 * an_item < u32::MAX as u64 - 1024 * 1024 * 1024);
};

/// What is to be left to write where messages are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LowWater {
    pub(crate) bytes: u64,
    /// Besides, room for what the journal holds and was not retired.
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
            swept_a_call: 500,
            run_bytes: 1024 * 1024 * 1024,
            spawner: Arc::new(SystemThreads),
            body_reach: u32::MAX,
            expired_a_turn: 16 * 1024,
            lapsed_a_slice: 1_000,
            clock: Arc::new(SystemClock::new()),
            disk: Arc::new(RealDisk),
            seed: None,
        }
    }
}
