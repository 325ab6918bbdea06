//! Changing over how many partitions a queue is spread. It can be interrupted anywhere: the next call on the queue
//! completes it, and several processes may do so concurrently.
//!
//! The steps, each in one partition at a time. A step has the change's version, and a partition that has a later one
//! skips it; so a step that arrives late changes nothing.
//!
//! 1. The first partition is closed, if it has no messages. The intended change is noted there (`j` of `meta`). A
//!    partition that is closed answers calls with nothing else.
//! 2. All other partitions of the queue, present and future, are closed, each if it has no messages.
//! 3. The first partition notes what was decided: forward if all were closed, back if one had messages. The version
//!    is one higher from here on.
//! 4. All others get the settings that were decided on, and are open again; then the first one. Partitions that the
//!    queue no longer has keep only its number of partitions, so that a process that has not learnt of the change puts
//!    nothing there.
//!
//! A failover that loses writes of the first partition alone leaves the others with a later version than its own,
//! which no change does: a process that has learnt of more partitions than the first one reports reads the others,
//! and restores the first one from them.
//!
//! Idempotency keys stay where the earlier number of partitions has put them. The partitions note until when they
//! matter:
//! `lua/idempotency.lua`.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use dwell_model::QueueName;
use dwell_store::{Error, Result};

use super::Inner;
use super::dead::failed;
use super::inspect::Retries;
use super::layout::Partition;
use super::pack::{Fields, Pack, PackReply};
use super::partition::unreadable;
use super::scripts::Script;

/// A change that is in progress.
#[derive(Clone, Debug)]
pub(super) struct Repartition {
    pub(super) from: u16,
    pub(super) to: u16,
    /// The queue's own settings before and after the change, packed.
    pub(super) before: Option<Vec<u8>>,
    pub(super) after: Option<Vec<u8>>,
    decided: Option<bool>,
    past: PastPartitions,
}

/// Earlier numbers of partitions of the queue, each with the instant until which idempotency keys that were remembered
/// under it may be valid.
type PastPartitions = Vec<(u16, i64)>;

impl Repartition {
    pub(super) fn new(from: u16, to: u16, before: Option<Vec<u8>>, after: Option<Vec<u8>>) -> Repartition {
        Repartition { from, to, before, after, decided: None, past: PastPartitions::new() }
    }

    pub(super) fn packed(&self) -> Pack {
        let fields = Fields::new()
            .with("from", u32::from(self.from))
            .with("to", u32::from(self.to))
            .maybe("before", self.before.as_deref())
            .maybe("after", self.after.as_deref())
            .maybe("decided", self.decided.map(u32::from))
            .with("past", packed_past(&self.past));
        Bytes::from(Pack::from(fields).encoded()).into()
    }

    fn read(packed: &Bytes) -> Option<Repartition> {
        let table = PackReply::decode(packed)?;
        let number = |name| u16::try_from(table.get(name).uint()?).ok();
        let bytes = |name| table.get(name).bytes().map(|bytes| bytes.to_vec());
        Some(Repartition {
            from: number("from")?,
            to: number("to")?,
            before: bytes("before"),
            after: bytes("after"),
            decided: table.get("decided").uint().map(|decided| decided > 0),
            past: read_past(table.get("past"))?,
        })
    }

    /// All partitions but the first that the queue has or is to have.
    fn others(&self, queue: &QueueName) -> Vec<Partition> {
        (1..self.from.max(self.to)).map(|index| Partition::new(queue, index)).collect()
    }
}

fn packed_past(past: &PastPartitions) -> Pack {
    let entry =
        |(partitions, until): &(u16, i64)| Pack::Array(vec![u32::from(*partitions).into(), (*until).into()]);
    Pack::Array(past.iter().map(entry).collect())
}

fn read_past(reply: &PackReply) -> Option<PastPartitions> {
    let entry = |entry: &PackReply| Some((entry.at(0).uint()?.try_into().ok()?, entry.at(1).int()?));
    reply.items().iter().map(entry).collect()
}

impl Inner {
    /// Finds out how a queue is spread, after a partition has reported another number of partitions than assumed. If
    /// its partitions do not agree, they are made to.
    ///
    /// A boxed future, since the calls that it makes may come back to it.
    pub(super) fn learn_partitions<'a>(
        &'a self,
        at: &'a Partition,
        believed: Option<u16>,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>> {
        Box::pin(async move {
            let partitions = self.finish_change(&at.queue).await?;
            if at.index > 0 && believed == Some(partitions) {
                self.mend_settings(&at.queue).await?;
            }
            Ok(())
        })
    }

    /// Completes a change of a queue's number of partitions, if one is in progress, and returns the number of
    /// partitions.
    pub(super) async fn finish_change(&self, queue: &QueueName) -> Result<u16> {
        self.finish_change_from(queue, self.partitions(queue)).await
    }

    /// The same, for a process that has learnt of `believed` partitions.
    pub(super) async fn finish_change_from(&self, queue: &QueueName, believed: u16) -> Result<u16> {
        let first = Partition::new(queue, 0);
        for _ in 0..64 {
            let reply = self.ask(&first, Script::Stats, Fields::new()).await.map_err(failed)?.reply;
            let version = reply.get("version").uint().unwrap_or(0);
            let Some(packed) = reply.get("change").bytes() else {
                let partitions = partitions_of(&reply).ok_or_else(|| unreadable(queue))?;
                if partitions < believed && self.restore_first(queue, believed, version).await? {
                    continue;
                }
                self.note_partitions(queue, partitions);
                return Ok(partitions);
            };
            let moving = Repartition::read(packed).ok_or_else(|| unreadable(queue))?;
            match moving.decided {
                None => self.close(queue, version, moving, &reply).await?,
                Some(forward) => self.open_again(queue, version, &moving, forward).await?,
            }
        }
        let reason = format!("the number of partitions of queue '{queue}' changes all the time");
        Err(Error::Unavailable { reason: reason.into() })
    }

    /// Checks whether the first partition, whose settings have the given version, has lost a change that the others
    /// have; and restores it. Each change reaches all of them, so any one that answers is enough.
    async fn restore_first(&self, queue: &QueueName, believed: u16, version: u64) -> Result<bool> {
        let mut failed_last = None;
        for at in (1..believed).map(|index| Partition::new(queue, index)) {
            let asked = self.ask_within(&at, Script::Stats, Fields::new(), Retries::Once).await;
            let reply = match asked {
                Ok(answered) => answered.reply,
                // Its node may be away; another partition has the change as well.
                Err(fault) => {
                    failed_last = Some(failed(fault));
                    continue;
                }
            };
            let known = reply.get("version").uint().unwrap_or(0);
            let own = reply.get("own").bytes();
            let has_partitions =
                own.and_then(PackReply::decode).is_some_and(|own| own.get("partitions").is_set());
            let Some(own) = own.filter(|_| has_partitions && known > version) else { return Ok(false) };
            // A closed partition is in a change that the first one has lost: the queue continues as if that had not
            // begun.
            let step = Fields::new().with("version", version).with("next", known + 1).with("own", &own[..]);
            self.ask(&Partition::new(queue, 0), Script::Configure, step).await.map_err(failed)?;
            return Ok(true);
        }
        failed_last.map_or(Ok(false), Err)
    }

    /// Steps 2 and 3. `first` is what the first partition has replied about its idempotency keys.
    async fn close(
        &self,
        queue: &QueueName,
        number: u64,
        moving: Repartition,
        first: &PackReply,
    ) -> Result<()> {
        let (mut past, mut until) = (PastPartitions::new(), None);
        let mut note = |reply: &PackReply| {
            past.extend(read_past(reply.get("past"))?);
            until = until.max(reply.get("until").int());
            Some(())
        };
        note(first).ok_or_else(|| unreadable(queue))?;
        let mut forward = true;
        for at in moving.others(queue) {
            let step = Fields::new().with("next", number).flag("keep", true).with("change", moving.packed());
            let reply = self.ask(&at, Script::Configure, step.flag("fixed", true)).await;
            let reply = reply.map_err(failed)?.reply;
            if reply.get("changed").is_set() {
                // Another process has completed it.
                return Ok(());
            }
            if reply.get("fixed").is_set() {
                forward = false;
                break;
            }
            note(&reply).ok_or_else(|| unreadable(queue))?;
        }
        past.extend(until.map(|until| (moving.from, until)));
        // The latest instant of each number of partitions; idempotency keys under the new number of partitions are
        // found without an entry.
        past.sort_unstable_by_key(|(partitions, until)| (*partitions, std::cmp::Reverse(*until)));
        past.dedup_by_key(|(partitions, _)| *partitions);
        past.retain(|(partitions, _)| forward && *partitions != moving.to);
        let decided = Repartition { decided: Some(forward), past, ..moving };
        let step = Fields::new().with("version", number).with("next", number + 1).flag("keep", true);
        let step = step.with("change", decided.packed());
        self.ask(&Partition::new(queue, 0), Script::Configure, step).await.map_err(failed)?;
        Ok(())
    }

    /// Step 4.
    async fn open_again(
        &self,
        queue: &QueueName,
        number: u64,
        moving: &Repartition,
        forward: bool,
    ) -> Result<()> {
        let (partitions, own) = match forward {
            true => (moving.to, &moving.after),
            false => (moving.from, &moving.before),
        };
        let has_partitions = |own: &Vec<u8>| {
            let own = PackReply::decode(&Bytes::copy_from_slice(own));
            own.is_some_and(|own| own.get("partitions").is_set())
        };
        let beyond = own.as_ref().is_some_and(has_partitions).then(|| {
            let partitions_alone = Fields::new().with("partitions", u32::from(partitions));
            Pack::from(partitions_alone).encoded()
        });
        let past = Some(packed_past(&moving.past)).filter(|_| !moving.past.is_empty());
        let step = |own: &Option<Vec<u8>>| {
            let step = Fields::new().with("next", number).maybe("own", own.as_deref());
            step.maybe("past", past.clone())
        };
        for at in moving.others(queue) {
            let own = if at.index < partitions { own } else { &beyond };
            let reply = self.ask(&at, Script::Configure, step(own)).await.map_err(failed)?.reply;
            if reply.get("changed").is_set() {
                return Ok(());
            }
        }
        let last = step(own).with("version", number);
        self.ask(&Partition::new(queue, 0), Script::Configure, last).await.map_err(failed)?;
        // A partition that the queue no longer has keeps nothing, unless something needs to be remembered there.
        for at in moving.others(queue) {
            if at.index >= partitions {
                let _ = self.ask(&at, Script::Retire, Fields::new()).await;
            }
        }
        Ok(())
    }

    /// Copies the settings of the first partition to all others, where a change was interrupted, or data was written
    /// that belongs to no change.
    pub(super) async fn mend_settings(&self, queue: &QueueName) -> Result<()> {
        let partitions = self.finish_change(queue).await?;
        let mut copies = Vec::new();
        for at in Partition::all(queue, partitions) {
            let reply = self.ask(&at, Script::Stats, Fields::new()).await.map_err(failed)?.reply;
            let version = reply.get("version").uint().unwrap_or(0);
            let own = reply.get("own").bytes().map(|own| own.to_vec());
            copies.push((at, version, own, partitions_of(&reply)));
        }
        let Some((first, version, own, decides)) = copies.first().cloned() else { return Ok(()) };
        let is_past = |copy: &(_, u64, _, Option<u16>)| copy.1 >= version && copy.3 != decides;
        let mut number = version;
        if copies.iter().any(is_past) {
            number = copies.iter().map(|copy| copy.1).max().unwrap_or(version) + 1;
            let step = Fields::new().with("version", version).with("next", number).flag("keep", true);
            if !self.ask(&first, Script::Configure, step).await.map_err(failed)?.reply.get("done").is_set() {
                return Ok(());
            }
        }
        for (at, version, ..) in &copies[1..] {
            if *version < number {
                let step = Fields::new().with("next", number).maybe("own", own.as_deref());
                self.ask(at, Script::Configure, step).await.map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// The number of partitions of the queue, as a partition reports it.
fn partitions_of(stats: &PackReply) -> Option<u16> {
    stats.get("partitions_here").uint()?.try_into().ok()
}
