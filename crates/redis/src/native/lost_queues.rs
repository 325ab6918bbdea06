//! Queues that the directory has lost: the processes that use them notice it, and register them again.
//!
//! 1. A directory can lose its last writes in a failover, or be lost as a whole. The queues lie elsewhere, and
//!    continue: their partitions do not ask for a registration as long as they are not empty.
//! 2. A process remembers which queues it has put into and found messages in. At each beat it asks the directory
//!    whether it knows those of the last minute, in one short script for many of them. No call on a queue costs more
//!    for it.
//! 3. All partitions of an unknown queue are asked. Where they are empty, other processes have unregistered the queue
//!    since. Where they are not, the registration was lost: the queue is registered, and the counters are raised
//!    above what the partitions have seen.
//! 4. Where a registration was lost, or another server answers than before, all that this process remembers is
//!    checked: queues that it used earlier, blocks of numbers, and where it binds leases.
//!
//! The directory also records over how many partitions a queue is spread, as processes report at their beats. A
//! process that learns of more partitions than it knows checks the others, for the first partition may have lost its
//! settings: `partitions` restores them.
//!
//! A registration made here is as good as any: a process that unregisters the queue at the same time has seen all
//! partitions empty, and gives up only registrations before this one; or it sees this one, and partitions that are
//! not empty.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use dwell_model::QueueName;
use dwell_store::Result;

use super::Inner;
use super::directory::unreadable;
use super::inspect::Retries;
use super::layout::{Partition, block_of};
use super::pack::{Fields, Pack, PackReply};
use super::partition::{NoAnswer, with_partitions};
use super::script_call::locked;
use super::scripts::Script;

/// How many beats after its last use a queue is checked: a minute, which is longer than replicas lag behind.
const BEATS: u64 = 12;

/// The maximum number of queues that are remembered beyond that.
const REMEMBERED: usize = 65_536;

/// The maximum number of names that one script looks up.
const NAMES: usize = 512;

/// The queues that this process has used, each with the beat of its last use.
#[derive(Debug, Default)]
pub(super) struct UsedQueues {
    beat: u64,
    queues: HashMap<QueueName, u64>,
    /// The beat at which queues that were not used lately were last dropped.
    cleared: u64,
    /// The server that had the directory when everything was last in order.
    run: Option<Bytes>,
    /// Something was lost, and not all that this process remembers has been checked since.
    some_were_lost: bool,
}

impl UsedQueues {
    fn note(&mut self, queue: &QueueName) {
        let beat = self.beat;
        if let Some(last) = self.queues.get_mut(queue) {
            *last = beat;
            return;
        }
        // At most one pass over all of them per beat, however many more there are.
        if self.queues.len() >= REMEMBERED && self.cleared < beat {
            self.cleared = beat;
            self.queues.retain(|_, last| beat - *last <= BEATS);
        }
        // A process that uses more than that in a minute uses them again.
        if self.queues.len() < REMEMBERED {
            self.queues.insert(queue.clone(), beat);
        }
    }

    /// Begins another beat, and returns the queues that were used within the last minute.
    fn recent(&mut self) -> Vec<QueueName> {
        let beat = self.beat;
        self.beat += 1;
        let recent = self.queues.iter().filter(|(_, last)| beat - **last <= BEATS);
        recent.map(|(queue, _)| queue.clone()).collect()
    }
}

/// What the directory does not know of some queues, or knows differently.
#[derive(Debug, Default)]
pub(super) struct UnknownQueues {
    /// The queues that it does not know.
    pub(super) unknown: Vec<QueueName>,
    /// The queues that are spread over more partitions, by what was reported to it, than is known here; with that
    /// number.
    wider: Vec<(QueueName, u16)>,
    /// The server that answered.
    run: Option<Bytes>,
}

/// What the partitions report of a queue that the directory does not know.
#[derive(Debug, Default)]
struct FoundQueue {
    has_something: bool,
    /// The highest registration and number that they have seen.
    reg: u64,
    number: u64,
}

impl Inner {
    /// Notes that a queue was put into, or has messages.
    pub(super) fn note_used(&self, queue: &QueueName) {
        locked(&self.used).note(queue);
    }

    /// Checks whether the directory knows the queues that this process uses, and registers those that it has lost.
    pub(super) async fn find_lost(&self) -> Result<()> {
        let recent = locked(&self.used).recent();
        let UnknownQueues { unknown, wider, run } = self.unknown(&recent, true, Retries::Once).await?;
        // A user without the right to ask for the server's name receives none.
        let is_another =
            matches!((&locked(&self.used).run, &run), (Some(before), Some(now)) if before != now);
        let some_were_lost = self.bring_back(unknown).await || is_another;
        for (queue, told) in wider {
            // If this fails, it is retried at the next beat.
            if self.look_as_wide(&queue, told).await.is_err() {
                self.note_used(&queue);
            }
        }
        let is_owed = {
            let mut used = locked(&self.used);
            used.some_were_lost |= some_were_lost;
            used.some_were_lost
        };
        if is_owed {
            let known: HashSet<_> = recent.into_iter().collect();
            let all: Vec<_> = locked(&self.used).queues.keys().cloned().collect();
            let others: Vec<_> = all.into_iter().filter(|queue| !known.contains(queue)).collect();
            let unknown = self.unknown(&others, false, Retries::Once).await?.unknown;
            self.bring_back(unknown).await;
            self.enter_blocks_again().await?;
            self.enter_session_leases_again();
        }
        let mut used = locked(&self.used);
        used.some_were_lost = false;
        used.run = run.or(used.run.take());
        Ok(())
    }

    /// What the directory does not know of some queues, and what it knows differently of those that this process has
    /// used lately.
    pub(super) async fn unknown(
        &self,
        queues: &[QueueName],
        are_used: bool,
        patience: Retries,
    ) -> Result<UnknownQueues> {
        let (mut found, mut left) = (UnknownQueues::default(), queues);
        // At least once: the counters are checked even if no queue was used.
        loop {
            let (some, behind) = left.split_at(left.len().min(NAMES));
            let names: Vec<_> = some.iter().map(|queue| Pack::from(queue.as_str())).collect();
            let arguments = Fields::new().with("names", names).with("floor", self.reserved_to());
            let arguments = if are_used { self.with_assumed(arguments, some) } else { arguments };
            let reply = self.wire.directory_within(Script::Known, arguments, patience).await?;
            // Indexes count from 1.
            let named = |place: &PackReply| {
                let place = place.uint().and_then(|place| usize::try_from(place).ok()?.checked_sub(1));
                place.and_then(|place| some.get(place)).cloned().ok_or_else(unreadable)
            };
            for place in reply.get("unknown").items() {
                found.unknown.push(named(place)?);
            }
            for told in reply.get("wider").items() {
                let partitions = told.at(1).uint().and_then(|partitions| u16::try_from(partitions).ok());
                found.wider.push((named(told.at(0))?, partitions.ok_or_else(unreadable)?));
            }
            found.run = reply.get("run").bytes().cloned().or(found.run);
            left = behind;
            if left.is_empty() {
                return Ok(found);
            }
        }
    }

    /// Adds over how many partitions some queues are spread, as far as is known here.
    fn with_assumed(&self, arguments: Fields, queues: &[QueueName]) -> Fields {
        let known_partitions: Vec<_> = queues.iter().map(|queue| u32::from(self.partitions(queue))).collect();
        arguments
            .with("assumed", known_partitions)
            .with("partitions", u32::from(self.limits.defaults.partitions))
    }

    /// The directory says that a queue has more partitions than this process knows of: its first partition may have lost its
    /// settings, which are restored then. If the queue was narrowed instead, the directory's entry is corrected.
    async fn look_as_wide(&self, queue: &QueueName, told: u16) -> Result<()> {
        if self.finish_change_from(queue, told).await? < told {
            let names = vec![Pack::from(queue.as_str())];
            let arguments = Fields::new().with("names", names).with("floor", 0_u32).flag("sure", true);
            let arguments = self.with_assumed(arguments, std::slice::from_ref(queue));
            self.wire.directory_within(Script::Known, arguments, Retries::Once).await?;
        }
        Ok(())
    }

    /// Registers those that are not empty, and returns whether there were any. A queue that cannot be asked is
    /// checked at the next beat.
    async fn bring_back(&self, queues: Vec<QueueName>) -> bool {
        let mut some_were_lost = false;
        for queue in queues {
            match self.bring_one_back(&queue).await {
                Ok(was_lost) => some_were_lost |= was_lost,
                Err(_) => self.note_used(&queue),
            }
        }
        some_were_lost
    }

    async fn bring_one_back(&self, queue: &QueueName) -> Result<bool> {
        let found = self.found(queue).await?;
        if !found.has_something {
            // Other processes have unregistered it. A process that puts into it registers it first.
            locked(&self.used).queues.remove(queue);
            return Ok(false);
        }
        let seen = if found.number > 0 { block_of(found.number) + 1 } else { 0 };
        let arguments = Fields::new()
            .with("name", queue.as_str())
            .flag("lost", true)
            .with("limit", 0_u32)
            .flag("force", true)
            .with("above", found.reg)
            .with("floor", seen.max(self.reserved_to()))
            .with("partitions", u32::from(self.limits.defaults.partitions));
        let reply = self.wire.directory_within(Script::Enter, arguments, Retries::Once).await?;
        self.note_count(&reply);
        if !self.found(queue).await?.has_something {
            // It was emptied meanwhile, and the process that emptied it saw no registration to remove.
            locked(&self.bare).insert(queue.clone());
        }
        Ok(true)
    }

    async fn found(&self, queue: &QueueName) -> Result<FoundQueue> {
        with_partitions!(self, queue, |partitions| {
            let mut found = FoundQueue::default();
            for at in Partition::all(queue, partitions) {
                let stats = self.on_within(&at, partitions, Script::Stats, Fields::new(), Retries::Once);
                let stats = stats.await?.reply;
                found.has_something |= !stats.get("bare").is_set();
                found.reg = found.reg.max(stats.get("reg").uint().unwrap_or(0));
                found.number = found.number.max(stats.get("highest").uint().unwrap_or(0));
            }
            Ok::<_, NoAnswer>(found)
        })
    }

    /// Enters again in which partitions this process has used which blocks of numbers, as far as it remembers.
    async fn enter_blocks_again(&self) -> Result<()> {
        for (at, blocks) in self.entered_blocks() {
            let mut runs: Vec<(u64, u64)> = Vec::new();
            for block in blocks {
                match runs.last_mut() {
                    Some((first, count)) if *first + *count == block && *count < RUN => *count += 1,
                    _ => runs.push((block, 1)),
                }
            }
            for (block, count) in runs {
                let arguments = Fields::new().with("block", block).with("count", count);
                let arguments = arguments.with("part", at.entry().as_str());
                self.wire.directory_within(Script::Enter, arguments, Retries::Once).await?;
            }
        }
        Ok(())
    }
}

/// The maximum number of blocks that one script enters: as many as a process reserves at a time.
const RUN: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_asked_for_within_a_minute_of_their_use_and_what_is_remembered_has_a_bound() {
        let name = |n: usize| QueueName::new(&format!("q{n}")).unwrap();
        let mut used = UsedQueues::default();
        used.note(&name(0));
        for _ in 0..=BEATS {
            assert_eq!(used.recent(), [name(0)]);
        }
        assert!(used.recent().is_empty(), "it was used more than a minute ago");
        assert_eq!(used.queues.len(), 1, "it is remembered for when something is lost");
        for n in 1..REMEMBERED + 10 {
            used.note(&name(n));
        }
        assert_eq!(used.queues.len(), REMEMBERED);
        assert!(!used.queues.contains_key(&name(0)), "the one that was not used lately has gone");
        assert!(used.recent().len() <= REMEMBERED);
    }
}
