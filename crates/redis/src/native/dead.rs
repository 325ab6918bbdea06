//! Dead messages: reviving them, oldest first, and discarding them.

use dwell_model::{MessageId, QueueName, Timestamp};
use dwell_store::{BulkOutcome, Error, Result, Selection, When};

use super::Inner;
use super::inspect::is_bare;
use super::layout::{Partition, id_bytes};
use super::message::{id, instant};
use super::pack::{Fields, PackReply};
use super::partition::{NoAnswer, foreign_item, refused_instant, unreadable, when, with_partitions};
use super::script_call::unknown_after;
use super::scripts::Script;

/// The maximum number of messages that one script revives or discards.
const CHUNK: usize = 48;

/// What happens to dead messages.
#[derive(Clone, Copy)]
enum DeadAction {
    Revived(Timestamp),
    Discarded,
}

/// Who has named the messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChosenBy {
    ByCaller,
    /// This process has listed them: they were dead a moment ago.
    ByUs,
}

impl Inner {
    /// See [`Store::revive`](dwell_store::Store::revive).
    ///
    /// In chunks: it ends after those that were dead when it began, and readers see it in progress.
    pub(super) async fn revive(
        &self,
        queue: &QueueName,
        which: Selection,
        asked: When,
    ) -> Result<BulkOutcome> {
        if let Selection::Ids(ids) = &which {
            self.limits.check_batch(ids.len())?;
        }
        let due = with_partitions!(self, queue, |partitions| {
            let arguments = when(Fields::new().with("list", 1_u32), asked);
            let answered = self.on(&Partition::new(queue, 0), partitions, Script::Dead, arguments).await?;
            let refusal = answered.reply.get("refused");
            if refusal.is_set() {
                let error = refused_instant(refusal, asked, answered.now);
                return Err(error.unwrap_or_else(|| unreadable(queue)).into());
            }
            instant(answered.reply.get("due")).ok_or_else(|| unreadable(queue).into())
        })?;
        self.sweep_dead(queue, which, DeadAction::Revived(due)).await
    }

    /// See [`Store::discard`](dwell_store::Store::discard).
    pub(super) async fn discard(&self, queue: &QueueName, which: Selection) -> Result<BulkOutcome> {
        match which {
            Selection::All => {
                let done = self.drop_all(queue, Fields::new().flag("dead", true)).await?.done;
                Ok(BulkOutcome { done, ..BulkOutcome::default() })
            }
            Selection::Ids(ids) => {
                self.limits.check_batch(ids.len())?;
                self.sweep_dead(queue, Selection::Ids(ids), DeadAction::Discarded).await
            }
            Selection::Oldest(_) => self.sweep_dead(queue, which, DeadAction::Discarded).await,
        }
    }

    async fn sweep_dead(&self, queue: &QueueName, which: Selection, fate: DeadAction) -> Result<BulkOutcome> {
        let mut swept = BulkOutcome::default();
        let count = match which {
            Selection::Ids(ids) => {
                self.sweep_ids(queue, &ids, fate, ChosenBy::ByCaller, &mut swept).await?;
                return Ok(swept);
            }
            Selection::Oldest(count) => count,
            Selection::All => u64::MAX,
        };
        let partitions = with_partitions!(self, queue, |partitions| Ok::<_, NoAnswer>((
            partitions,
            self.tell(queue, partitions).await?
        )));
        let (partitions, told) = partitions?;
        let mut left = count.min(told.counts.dead);
        // Refused messages stay where they are: the position in each partition from which to continue.
        let mut last: Vec<Option<(i64, MessageId)>> = vec![None; usize::from(partitions)];
        while left > 0 {
            let mut oldest = Vec::new();
            for at in Partition::all(queue, partitions) {
                let wanted = left.min(CHUNK as u64);
                let after = last[usize::from(at.index)];
                let arguments = Fields::new()
                    .with("list", wanted)
                    .maybe("death", after.map(|(death, _)| death))
                    .maybe("after", after.map(|(_, id)| id_bytes(id).to_vec()).as_deref());
                let answered = self.ask(&at, Script::Dead, arguments).await.map_err(failed);
                let answered = answered.map_err(|error| broken_off(error, swept.done > 0))?;
                for reply in answered.reply.get("refs").items() {
                    let read = || Some((reply.at(0).int()?, id(reply.at(1))?));
                    let place = read().ok_or_else(|| broken_off(unreadable(queue), swept.done > 0))?;
                    oldest.push((place, at.index));
                }
            }
            oldest.sort();
            oldest.truncate(left.min(CHUNK as u64) as usize);
            if oldest.is_empty() {
                break;
            }
            oldest.iter().for_each(|(place, index)| last[usize::from(*index)] = Some(*place));
            let ids: Vec<_> = oldest.iter().map(|((_, id), _)| *id).collect();
            left -= self.sweep_ids(queue, &ids, fate, ChosenBy::ByUs, &mut swept).await?;
        }
        Ok(swept)
    }

    /// Returns how many were done or refused. If it is interrupted, what was done before is in `swept` and unknown to
    /// the caller.
    async fn sweep_ids(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        fate: DeadAction,
        named: ChosenBy,
        swept: &mut BulkOutcome,
    ) -> Result<u64> {
        let mut answered = 0;
        let mut bare = false;
        for chunk in ids.chunks(CHUNK) {
            let mut answers = vec![None; chunk.len()];
            let whole = with_partitions!(self, queue, |partitions| self
                .sweep_chunk(queue, partitions, chunk, fate, &mut answers)
                .await);
            for (id, answer) in chunk.iter().zip(answers) {
                match answer {
                    None => {}
                    Some(Ok(())) => {
                        answered += 1;
                        swept.done += 1;
                    }
                    // Another call has changed it before.
                    Some(Err(Error::NotDead { .. } | Error::MessageNotFound { .. }))
                        if named == ChosenBy::ByUs => {}
                    Some(Err(error)) => {
                        answered += 1;
                        swept.refused_in_all += 1;
                        if swept.refused.len() < BulkOutcome::MAX_REFUSED {
                            swept.refused.push((*id, error));
                        }
                    }
                }
            }
            bare = whole.map_err(|error| broken_off(error, swept.done > 0))?;
        }
        if bare {
            self.note_bare(queue).await;
        }
        Ok(answered)
    }

    async fn sweep_chunk(
        &self,
        queue: &QueueName,
        partitions: u16,
        ids: &[MessageId],
        fate: DeadAction,
        answers: &mut [Option<Result<()>>],
    ) -> std::result::Result<bool, NoAnswer> {
        let mut bare = false;
        for at in Partition::all(queue, partitions) {
            let lies_here = |id: &MessageId| Partition::of_id(queue, id.shard(), partitions) == at;
            let here = (0..ids.len()).filter(|index| answers[*index].is_none() && lies_here(&ids[*index]));
            let here: Vec<_> = here.collect();
            if here.is_empty() {
                continue;
            }
            let packed: Vec<_> = here.iter().map(|index| id_bytes(ids[*index]).to_vec()).collect();
            let packed: Vec<_> = packed.iter().map(|id| super::pack::Pack::from(&id[..])).collect();
            let mut arguments = Fields::new().with("ids", packed);
            if let DeadAction::Revived(due) = fate {
                arguments = when(arguments, When::At(due));
            }
            let answered = self.on(&at, partitions, Script::Dead, arguments).await?;
            bare = is_bare(&answered.reply);
            for (index, reply) in here.into_iter().zip(answered.reply.get("items").items()) {
                answers[index] = Some(answer(queue, reply));
            }
        }
        Ok(bare)
    }
}

fn answer(queue: &QueueName, reply: &PackReply) -> Result<()> {
    match (reply.at(0).text(), id(reply.at(1))) {
        (Some("ok"), _) => Ok(()),
        (Some("missing"), _) => Err(Error::MessageNotFound { queue: queue.clone() }),
        (Some("alive"), Some(id)) => Err(Error::NotDead { id }),
        (Some("key"), Some(id)) => Err(Error::KeyTaken { id }),
        _ => Err(foreign_item(reply).unwrap_or_else(|| unreadable(queue))),
    }
}

/// The error of a call of several scripts that was interrupted. Where some of them have done something, the original
/// error alone would say that nothing was done.
pub(super) fn broken_off(error: Error, some_done: bool) -> Error {
    match some_done {
        true => unknown_after(error),
        false => error,
    }
}

pub(super) fn failed(fault: NoAnswer) -> Error {
    match fault {
        NoAnswer::Failed(error) => error,
        NoAnswer::Partitions => {
            Error::Unavailable { reason: "the queue's number of partitions changes".into() }
        }
    }
}
