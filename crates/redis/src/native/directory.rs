//! What the queues share: their names and the numbers of their messages.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use dwell_model::{Number, QueueName};
use dwell_store::{Error, Result};

use super::Inner;
use super::inspect::{NAMES, Retries};
use super::layout::{BLOCK, Partition, block_of, field_of};
use super::pack::{Fields, Pack, PackReply};
use super::partition::{NoAnswer, with_partitions};
use super::script_call::locked;
use super::scripts::Script;

/// Numbers that are reserved for this process.
#[derive(Debug, Default)]
pub(super) struct ReservedNumbers {
    next: u64,
    end: u64,
    /// The lower bound of blocks that this process has not seen.
    floor: u64,
    /// When they were reserved, on the monotonic clock.
    since_ms: u64,
    /// The number of blocks that were reserved then.
    blocks: u64,
}

/// The partitions in which the directory has entered this process as a user of its numbers.
#[derive(Debug, Default)]
pub(super) struct KnownBlocks {
    places: HashSet<(u64, Partition)>,
    runs: HashMap<Partition, BlockRange>,
}

/// Blocks that were entered together for a partition.
#[derive(Debug)]
struct BlockRange {
    blocks: u64,
    /// How many numbers the partition has used since.
    used: u64,
}

/// The maximum number of blocks per reservation. A process that uses up its reservation within a second reserves
/// twice as much next time, up to this.
const AHEAD_BLOCKS: u64 = 32;
const USED_UP_MS: u64 = 1_000;

/// How long reserved numbers may be used, in ms: the clearing of old blocks relies on it.
const FRESH_MS: u64 = 10 * 60 * 1_000;

/// How long after its first use a block may get new messages, in ms: reserved numbers expire, and a call is not
/// retried for longer than ten minutes.
const CLOSED_MS: u64 = 60 * 60 * 1_000;

/// The longest time between the registration of a queue and the first put into it, in ms.
const FIRST_PUT_MS: u64 = 60_000;

/// The number of blocks that one pass checks, and the maximum number of consecutive passes while some of the blocks
/// are in use.
const OLD_BLOCKS: usize = 16;
const GOES: u32 = 64;

/// The pace at which blocks that were used long ago are checked: at least one pass each time, and two blocks for each
/// one that is reserved. Each block is checked once an hour, so those in use do not delay the others for long.
#[derive(Debug, Default)]
pub(super) struct BlockPace {
    owed: u64,
    goes: u32,
}

impl BlockPace {
    fn note_reserved(&mut self, blocks: u64) {
        self.owed = self.owed.saturating_add(2 * blocks);
    }

    /// Whether to continue at once, after `looked` blocks were checked, some of which are in use or not.
    fn goes_on(&mut self, looked: usize, some_used: bool) -> bool {
        self.owed = self.owed.saturating_sub(looked as u64);
        self.goes += 1;
        let is_due = self.owed > 0 && self.goes < GOES;
        let goes_on = looked == OLD_BLOCKS && (is_due || !some_used);
        if !goes_on {
            self.goes = 0;
        }
        goes_on
    }
}

/// A registration that was just made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registered {
    pub(super) reg: Option<u64>,
    /// The number of queues has reached its limit, and this one has nothing.
    pub(super) full: bool,
}

impl Inner {
    /// Returns `count` numbers, rising.
    pub(super) async fn numbers(&self, count: usize) -> Result<Vec<u64>> {
        let address = self.wire.link.address();
        let end_ms = self.wire.mono_ms() + address.retry_ms.max(address.timeout_ms);
        let mut numbers = self.numbers.lock().await;
        let mut reserved = Vec::with_capacity(count);
        let now_ms = self.clock.now().mono_ms;
        if now_ms.saturating_sub(numbers.since_ms) > FRESH_MS {
            numbers.next = numbers.end;
        }
        while reserved.len() < count {
            if numbers.next >= numbers.end {
                if self.wire.mono_ms() > end_ms {
                    // Others have tried in vain meanwhile: the callers that wait do not try one after the other.
                    let reason = "no numbers could be reserved in time".into();
                    return Err(Error::Unavailable { reason });
                }
                let left = (count - reserved.len()) as u64;
                let quick = now_ms.saturating_sub(numbers.since_ms) < USED_UP_MS;
                let ahead = if quick { (numbers.blocks * 2).min(AHEAD_BLOCKS) } else { 1 };
                let blocks = left.div_ceil(BLOCK).max(ahead);
                let arguments = Fields::new().with("blocks", blocks).with("floor", numbers.floor);
                let reply = self.wire.directory(Script::Numbers, arguments).await?;
                let first = reply.get("first").uint().ok_or_else(unreadable)?;
                let (next, end) = (first * BLOCK + 1, (first + blocks) * BLOCK + 1);
                // Checked before they are kept: otherwise the next call would use what is left of them.
                if end > Number::MAX.get() {
                    return Err(Error::Exhausted { what: "message numbers", needs_reopen: false });
                }
                numbers.floor = first + blocks;
                (numbers.next, numbers.end) = (next, end);
                (numbers.since_ms, numbers.blocks) = (now_ms, blocks);
                self.reserved.store(first + blocks, Ordering::Relaxed);
                locked(&self.pace).note_reserved(blocks);
            }
            reserved.push(numbers.next);
            numbers.next += 1;
        }
        Ok(reserved)
    }

    /// Drops the reserved numbers: one of them was used before, in a partition that has seen numbers up to `highest`,
    /// where it reports that. The next reservation lies beyond it.
    pub(super) async fn drop_numbers(&self, highest: u64) {
        let mut numbers = self.numbers.lock().await;
        numbers.next = numbers.end;
        if highest > 0 {
            numbers.floor = numbers.floor.max(block_of(highest) + 1);
        }
    }

    /// The lower bound of the blocks of numbers that this process has not seen.
    pub(super) fn reserved_to(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// The blocks that are entered for each partition here, in order.
    pub(super) fn entered_blocks(&self) -> HashMap<Partition, Vec<u64>> {
        let mut blocks: HashMap<Partition, Vec<u64>> = HashMap::new();
        for (block, at) in &locked(&self.entered).places {
            blocks.entry(at.clone()).or_default().push(*block);
        }
        blocks.values_mut().for_each(|blocks| blocks.sort_unstable());
        blocks
    }

    /// Makes sure that the directory has entered the partition for these numbers.
    pub(super) async fn enter_blocks(&self, at: &Partition, numbers: &[u64]) -> Result<()> {
        let mut blocks: Vec<_> = numbers.iter().map(|number| block_of(*number)).collect();
        blocks.dedup();
        if let Some(run) = locked(&self.entered).runs.get_mut(at) {
            run.used += numbers.len() as u64;
        }
        for block in blocks {
            let place = (block, at.clone());
            // A partition that uses most of the numbers gets several blocks at a time, but only reserved ones.
            let count = {
                let entered = locked(&self.entered);
                if entered.places.contains(&place) {
                    continue;
                }
                let more =
                    |run: &BlockRange| if run.used * 2 >= run.blocks * BLOCK { run.blocks * 2 } else { 1 };
                let wanted = entered.runs.get(at).map_or(1, more).min(AHEAD_BLOCKS);
                wanted.min(self.reserved.load(Ordering::Relaxed).saturating_sub(block)).max(1)
            };
            let arguments = Fields::new().with("block", block).with("count", count);
            self.wire.directory(Script::Enter, arguments.with("part", at.entry().as_str())).await?;
            let mut entered = locked(&self.entered);
            // Blocks are used up in turn: the old ones are not looked up again.
            if entered.places.len() >= 65_536 {
                *entered = KnownBlocks::default();
            }
            entered.places.extend((block..block + count).map(|block| (block, at.clone())));
            entered.runs.insert(at.clone(), BlockRange { blocks: count, used: 0 });
        }
        Ok(())
    }

    /// Checks some blocks that were used long ago, and removes the entries where none of their numbers is in use.
    /// Returns whether to continue at once.
    pub(super) async fn clear_old_blocks(&self) -> Result<bool> {
        let arguments = Fields::new().with("older", CLOSED_MS).with("max", OLD_BLOCKS);
        let reply = self.wire.directory(Script::OldBlocks, arguments).await?;
        let old = reply.get("blocks").items();
        let mut some_left = false;
        for entry in old {
            let block = entry.at(0).uint().ok_or_else(unreadable)?;
            let fields: Vec<Pack> = (block * BLOCK + 1..=(block + 1) * BLOCK)
                .map(|number| Pack::from(&field_of(number)[..]))
                .collect();
            let mut unused = Vec::new();
            let parts = entry.at(1).items();
            for part in parts {
                let Some(at) = part.text().and_then(Partition::of_entry) else { continue };
                let asked =
                    Fields::new().with("fields", fields.clone()).with("block", block.to_string().as_str());
                let asked = asked.with("shard", u32::from(at.index));
                let asked = self.ask_within(&at, Script::Unused, asked, Retries::Once).await;
                // A partition that cannot be asked may still use it.
                if asked.is_ok_and(|asked| asked.reply.get("unused").is_set()) {
                    unused.push(Pack::from(at.entry().as_str()));
                }
            }
            some_left |= unused.len() < parts.len();
            if !unused.is_empty() || parts.is_empty() {
                let arguments = Fields::new().with("block", block).with("parts", unused);
                self.wire.directory(Script::LeaveBlock, arguments).await?;
            }
        }
        Ok(locked(&self.pace).goes_on(old.len(), some_left))
    }

    /// Registers a queue that is empty, as far as its partition knows.
    ///
    /// Queues that takes of this process wait on count as well, registered or not. The number of unregistered ones is
    /// looked up only near the limit.
    pub(super) async fn enter(&self, queue: &QueueName) -> Result<Registered> {
        let limit = if self.waiters.count(queue) > 0 { usize::MAX } else { self.limits.queues };
        let entered = async |waited: usize, force: bool| -> Result<PackReply> {
            let arguments = Fields::new().with("name", queue.as_str()).with("limit", limit);
            let above = self.given_up.load(Ordering::Relaxed);
            let arguments = arguments.with("waited", waited).with("above", above).flag("force", force);
            let reply = self.wire.directory(Script::Enter, arguments).await?;
            self.note_count(&reply);
            Ok(reply)
        };
        let most = self.waiters.names_at_most();
        let mut reply = entered(most, false).await?;
        let mut waited = most;
        if reply.get("full").is_set() && most > 0 {
            waited = self.waited_beside(queue).await?;
            reply = entered(waited, false).await?;
        }
        if !reply.get("full").is_set() {
            return Ok(Registered { reg: reply.get("reg").uint(), full: false });
        }
        // Some registered queues may be empty by now.
        let (mut others, mut known, mut after) = (0, false, None);
        while others < limit {
            let page = self.survey(after.as_ref(), NAMES, Retries::Usual).await?;
            // A queue that cannot be asked counts as present.
            let is_known = page.queues.iter().any(|(name, _)| name == queue);
            others += page.queues.len() - usize::from(is_known);
            known |= is_known;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        self.retire_bare().await;
        let full = !known && others >= limit;
        let reply = entered(waited, true).await?;
        Ok(Registered { reg: reply.get("reg").uint(), full })
    }

    /// The number of other queues that takes of this process wait on and that are not registered.
    async fn waited_beside(&self, queue: &QueueName) -> Result<usize> {
        let others: Vec<_> = self.waiters.names(|name| name != queue).into_iter().collect();
        Ok(self.unknown(&others, false, Retries::Usual).await?.unknown.len())
    }

    /// Checks whether the take of this turn, which has begun to wait on these queues, may do so: an empty queue
    /// counts as a queue as long as a take waits on it.
    ///
    /// They are counted only near the limit. Takes that came later do not count: they are refused themselves.
    pub(super) async fn check_queues_waited_on(&self, turn: u64, queues: &[QueueName]) -> Result<()> {
        let limit = self.limits.queues;
        let known = usize::try_from(self.queue_count.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let is_new = |queue: &&QueueName| self.waiters.first_turn(queue).is_none_or(|first| first >= turn);
        let new: Vec<QueueName> = match known.saturating_add(self.waiters.names_at_most()) > limit {
            true => queues.iter().filter(is_new).cloned().collect(),
            false => Vec::new(),
        };
        let (mut count, mut after) = (0, None);
        while !new.is_empty() && count <= limit {
            let page = self.survey(after.as_ref(), NAMES, Retries::Usual).await?;
            for (queue, _) in &page.queues {
                let came_later = self.waiters.first_turn(queue).is_some_and(|first| first > turn);
                count += usize::from(!came_later || !self.is_bare(queue).await?);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        for queue in new.iter().filter(|_| count > limit) {
            if self.is_bare(queue).await? {
                return Err(Error::TooManyQueues { limit });
            }
        }
        Ok(())
    }

    /// Whether a queue is empty, regardless of takes that wait on it.
    async fn is_bare(&self, queue: &QueueName) -> Result<bool> {
        with_partitions!(self, queue, |partitions| {
            for at in Partition::all(queue, partitions) {
                let stats = self.on(&at, partitions, Script::Stats, Fields::new()).await?.reply;
                if !stats.get("bare").is_set() {
                    return Ok::<_, NoAnswer>(false);
                }
            }
            Ok(true)
        })
    }

    pub(super) fn note_count(&self, reply: &PackReply) {
        if let Some(count) = reply.get("count").uint() {
            self.queue_count.store(count, Ordering::Relaxed);
        }
    }

    /// Unregisters the queues that were empty. A queue for which this fails stays registered: the next listing of
    /// queues checks it again.
    pub(super) async fn retire_bare(&self) {
        let bare = std::mem::take(&mut *locked(&self.bare));
        for queue in bare {
            let _ = self.retire(&queue).await;
        }
    }

    /// Unregisters a queue, if it is empty.
    ///
    /// 1. The directory returns the current registration. 2. All partitions are seen to be empty; each then gives up
    ///    this registration and all before it. 3. The directory removes it, if it is still the current one.
    ///
    /// A process that has registered the queue before 1 and puts after 2 is asked to register it again; then 3
    /// removes nothing.
    pub(super) async fn retire(&self, queue: &QueueName) -> Result<()> {
        let named = || Fields::new().with("name", queue.as_str());
        let there = self.wire.directory(Script::Leave, named()).await?;
        let reg = there.get("reg").uint();
        let is_young = there.get("age").uint().is_some_and(|age_ms| age_ms < FIRST_PUT_MS);
        let is_gone = with_partitions!(self, queue, |partitions| {
            let mut is_used = false;
            for at in Partition::all(queue, partitions) {
                let stats =
                    self.on_within(&at, partitions, Script::Stats, Fields::new(), Retries::Once).await?;
                let stats = stats.reply;
                if !stats.get("bare").is_set() {
                    return Ok(false);
                }
                is_used |= stats.get("reg").is_set();
            }
            if is_young && !is_used {
                // The process that has registered it is about to put.
                return Ok(false);
            }
            for at in Partition::all(queue, partitions) {
                let arguments = Fields::new().maybe("reg", reg);
                let retired =
                    self.on_within(&at, partitions, Script::Retire, arguments, Retries::Once).await?;
                if !retired.reply.get("gone").is_set() {
                    return Ok::<_, NoAnswer>(false);
                }
            }
            Ok(true)
        })?;
        if let (true, Some(reg)) = (is_gone, reg) {
            let reply = self.wire.directory(Script::Leave, named().with("reg", reg)).await?;
            self.note_count(&reply);
        }
        Ok(())
    }
}

pub(super) fn unreadable() -> Error {
    Error::Unavailable { reason: "the directory's answer is in no form of this version".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_looked_at_faster_than_they_are_reserved() {
        // One in ten of each beat's blocks stays in use for long.
        for rate in [1, 10, 100, 500] {
            let mut pace = BlockPace::default();
            let (mut old, mut most) = (0_u64, 0);
            for beat in 0..2_000 {
                pace.note_reserved(rate);
                if beat >= 720 {
                    old += rate;
                }
                loop {
                    let looked = old.min(OLD_BLOCKS as u64);
                    old -= looked;
                    if !pace.goes_on(looked as usize, true) {
                        break;
                    }
                }
                most = most.max(old);
            }
            assert!(most <= rate + OLD_BLOCKS as u64, "{rate} a beat: {most} wait to be looked at");
        }
    }

    #[test]
    fn blocks_that_are_in_use_are_not_looked_at_without_end() {
        let mut pace = BlockPace::default();
        assert!(!pace.goes_on(OLD_BLOCKS, true), "nothing was reserved, and nothing can be forgotten");
        pace.note_reserved(1_000_000);
        let mut goes = 1;
        while pace.goes_on(OLD_BLOCKS, true) {
            goes += 1;
        }
        assert_eq!(goes, GOES);
        assert!(pace.goes_on(OLD_BLOCKS, false), "where all can be forgotten there may be more");
    }
}
