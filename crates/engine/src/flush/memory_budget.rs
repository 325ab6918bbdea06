//! The memory budget of a shard, and its division.
//!
//! | share | for |
//! |---|---|
//! | an eighth, 32 MiB at most | buffers: the batch being written, blocks being read, files being written, a quarter of it for bodies being copied; and what the allocator keeps beyond the requested memory |
//! | as much as they need | the structures that find messages in files: sparse indexes, bits of settled entries, blocks and bodies read ahead; and filters of index runs: those of keys a sixth of the limit or somewhat more, those of numbers as much if messages were moved, with fewer bits a message the more there are, and as much again while runs are merged |
//! | half of the rest | resident messages, with keys, headers, error texts, and their leases |
//! | half of the rest | a flush in progress: what was captured, and half as much that is moved, in the order of files |
//!
//! A flush begins when two fifths of the memory for resident messages has changed. While it is in progress as much may
//! change again as fits; puts are then held, and continue as it progresses.
//!
//! It also begins when the journal since the last flush has as many segments as the limit has room for, or a record for
//! each 512 bytes of the limit: half a million at 256 MiB. A record of a message in a file takes 20 bytes, so that with
//! a bound on bytes alone an opening would replay more than twenty times as many.
//!
//! If the indexes leave less than a quarter of the limit for the rest, the rest has that quarter, and the limit is
//! exceeded: see [`MemoryUse`](crate::MemoryUse).

use dwell_store::core::Core;

use crate::journal::segment::BodyRef;
use crate::journal::writer::Unflushed;
use crate::report::MemoryUse;

/// The maximum size of the buffers in bytes.
const BUFFERS: u64 = 32 * 1024 * 1024;
/// The weight of a message in bytes while there is no message to measure.
const PLAIN: u64 = 224;
/// The size of a block of a table in bytes.
const BLOCK: usize = 32 * 1024;
/// The memory of a dead message that is remembered to be handed over, in bytes.
const DEAD_SPOT_BYTES: u64 = 48;
/// The journal may have one record per this number of bytes of the limit.
const A_RECORD: u64 = 512;
/// The maximum number of due messages that are handed over at a time.
pub(crate) const MAX_HANDED_OVER: usize = 4096;
/// The minimum number of resident messages.
const FEWEST: u64 = 8;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryBudget {
    /// The limit in bytes; `u64::MAX` for no limit.
    limit: u64,
    /// The memory of the structures that find messages in files.
    files: u64,
    /// The maximum part of the journal that an opening may have to replay.
    pub(crate) journal: Unflushed,
}

/// The memory for filters of index runs in bytes, by kind. While runs are merged, the new filter comes on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilterBudget {
    pub(crate) numbers: u64,
    pub(crate) keys: u64,
}

impl MemoryBudget {
    pub(crate) fn of(limit: u64, segment_bytes: u64) -> MemoryBudget {
        let segments = usize::try_from(limit / segment_bytes).unwrap_or(usize::MAX).max(4);
        let journal = if limit == u64::MAX {
            Unflushed { segments: usize::MAX, records: u64::MAX, bytes: u64::MAX }
        } else {
            Unflushed { segments, records: (limit / A_RECORD).max(1), bytes: u64::MAX }
        };
        MemoryBudget { limit, files: 0, journal }
    }

    /// Sets the current memory of the structures that find messages in files.
    pub(crate) fn set_files(&mut self, bytes: u64) {
        self.files = bytes;
    }

    fn buffers(&self) -> u64 {
        (self.limit / 8).min(BUFFERS)
    }

    /// The maximum bytes of bodies that a flush has in memory at a time.
    pub(crate) fn bodies(&self) -> usize {
        usize::try_from(self.buffers() / 4).unwrap_or(usize::MAX)
    }

    /// The maximum bytes of files that settled messages may occupy, beyond as many as are in use.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.limit
    }

    /// The memory for filters of index runs.
    pub(crate) fn filters(&self) -> FilterBudget {
        FilterBudget { numbers: self.limit / 6, keys: self.limit / 6 }
    }

    /// The memory that is left for messages and a flush.
    fn rest(&self) -> u64 {
        let taken = self.buffers().saturating_add(self.files);
        self.limit.saturating_sub(taken).max(self.limit / 4)
    }

    /// The memory for resident messages in bytes.
    pub(crate) fn messages(&self) -> u64 {
        if self.limit == u64::MAX { u64::MAX } else { self.rest() / 2 }
    }

    /// The maximum number of resident messages, if they have the average weight of the current ones.
    pub(crate) fn resident(&self, core: &Core<BodyRef>) -> usize {
        self.count(self.messages(), core, FEWEST)
    }

    /// The maximum number of changed messages before they are captured.
    pub(crate) fn changed(&self, core: &Core<BodyRef>) -> usize {
        self.count(self.messages() / 5 * 2, core, FEWEST / 2)
    }

    fn count(&self, bytes: u64, core: &Core<BodyRef>, least: u64) -> usize {
        if self.limit == u64::MAX {
            return usize::MAX;
        }
        let each = (core.weight() as u64).checked_div(core.len() as u64).unwrap_or(PLAIN).max(1);
        usize::try_from((bytes / each).max(least)).unwrap_or(usize::MAX)
    }

    /// The number of messages that are captured at a time if they are plain.
    pub(crate) fn generation(&self) -> usize {
        usize::try_from((self.messages() / 5 * 2 / PLAIN).max(FEWEST / 2)).unwrap_or(usize::MAX)
    }

    /// The maximum number of due messages that are handed over at a time.
    pub(crate) fn window(&self) -> usize {
        usize::try_from(self.messages() / PLAIN / 8).unwrap_or(usize::MAX).clamp(1, MAX_HANDED_OVER)
    }

    /// The number of dead messages that are remembered for a sweep: a twelfth of the memory for messages.
    pub(crate) fn dead_entries(&self) -> usize {
        usize::try_from(self.messages() / DEAD_SPOT_BYTES / 12).unwrap_or(usize::MAX).clamp(2, 256 * 1024)
    }

    /// The maximum number and bytes of cached blocks of tables: an eighth of the limit at most, or a few blocks.
    pub(crate) fn blocks(&self) -> (usize, usize) {
        let bytes = usize::try_from(self.limit / 8).unwrap_or(usize::MAX);
        ((bytes / BLOCK).clamp(48, 1024), bytes)
    }

    /// The budget as it is reported.
    pub(crate) fn told(&self) -> MemoryUse {
        if self.limit == u64::MAX {
            return MemoryUse {
                limit: u64::MAX,
                messages: u64::MAX,
                files: self.files,
                ..MemoryUse::default()
            };
        }
        MemoryUse {
            limit: self.limit,
            messages: self.messages(),
            flush: self.rest() - self.messages(),
            files: self.files,
            buffers: self.buffers(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_the_whole() {
        for limit in [4096, 1 << 20, 256 << 20, 64 << 30] {
            for files in [0, limit / 10, limit / 2] {
                let mut budget = MemoryBudget::of(limit, 64 << 20);
                budget.set_files(files);
                let MemoryUse { messages, flush, files, buffers, .. } = budget.told();
                let whole = messages + flush + files + buffers;
                assert!(whole <= limit && whole >= limit / 20 * 19, "{whole} of {limit}");
            }
        }
    }

    #[test]
    fn indexes_that_take_all_leave_a_quarter() {
        let mut budget = MemoryBudget::of(256 << 20, 64 << 20);
        let before = budget.messages();
        budget.set_files(1 << 30);
        assert!(budget.messages() < before && budget.messages() >= (256 << 20) / 8);
    }

    #[test]
    fn what_is_counted_in_messages_takes_its_part_of_theirs() {
        for limit in [4096, 1 << 20, 256 << 20, 64 << 30] {
            let budget = MemoryBudget::of(limit, 64 << 20);
            let messages = budget.messages();
            let parts = [
                (budget.generation() as u64, messages / 5 * 2, PLAIN, FEWEST / 2, u64::MAX),
                (budget.window() as u64, messages / 8, PLAIN, 1, MAX_HANDED_OVER as u64),
                (budget.dead_entries() as u64, messages / 12, DEAD_SPOT_BYTES, 2, 256 * 1024),
            ];
            for (count, bytes, each, least, most) in parts {
                assert!((least..=most).contains(&count), "{limit}: {count}");
                assert!(count == least || count * each <= bytes, "{limit}: {count} in {bytes}");
                assert!(count == most || (count + 1) * each + each > bytes, "{limit}: {count} in {bytes}");
            }
        }
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let budget = MemoryBudget::of(u64::MAX, 4096);
        assert_eq!((budget.messages(), budget.journal.segments), (u64::MAX, usize::MAX));
        assert_eq!((budget.generation(), budget.window()), (budget.generation(), 4096));
    }

    #[test]
    fn people_are_told_of_no_limit_and_of_what_files_take_without_one() {
        let mut budget = MemoryBudget::of(u64::MAX, 4096);
        budget.set_files(1_000);
        let unlimited = (u64::MAX, u64::MAX, 1_000);
        let told = |told: MemoryUse| (told.limit, told.messages, told.files);
        assert_eq!(told(budget.told()), unlimited);
        let mut budget = MemoryBudget::of(8 << 20, 4096);
        budget.set_files(1_000);
        // Less an eighth and the files, and half of the rest.
        let messages = ((8 << 20) / 8 * 7 - 1_000) / 2;
        assert_eq!(told(budget.told()), (8 << 20, messages, 1_000));
    }

    #[test]
    fn blocks_and_bodies_have_their_part_and_no_more() {
        for limit in [4096, 1 << 20, 16 << 20, 100 << 20, 64 << 30] {
            let budget = MemoryBudget::of(limit, 64 << 20);
            let (blocks, bytes) = budget.blocks();
            assert!(bytes as u64 <= limit / 8 && (48..=1024).contains(&blocks), "{limit}: {blocks}, {bytes}");
            assert!(blocks == 48 || blocks * BLOCK <= bytes, "{limit}: {blocks}, {bytes}");
            assert!(blocks == 1024 || (blocks + 1) * BLOCK > bytes, "{limit}: as many as there is room for");
            let (bodies, buffers) = (budget.bodies() as u64, budget.told().buffers);
            assert!((buffers / 5..=buffers / 4).contains(&bodies), "{limit}: {bodies} of {buffers}");
        }
    }
}
