//! Cancelling and rescheduling messages that are not leased.

use std::collections::BTreeMap;

use dwell_model::{Invalid, QueueName, Timestamp};
use dwell_store::{Cancelled, Error, Rescheduled, Result, Target, When};

use super::Inner;
use super::layout::{Partition, id_bytes, of_key};
use super::message::{id, instant};
use super::pack::{Fields, PackReply};
use super::partition::{NoAnswer, foreign_item, refused_instant, unreadable, when, with_partitions};
use super::scripts::Script;

const CHUNK: usize = 40;

pub(super) fn place(target: &Target, partitions: u16) -> u16 {
    match target {
        Target::Id(id) => id.shard(),
        Target::Key(key) => of_key(key, partitions),
    }
}

pub(super) fn named(target: &Target) -> Fields {
    match target {
        Target::Id(id) => Fields::new().with("i", &id_bytes(*id)[..]),
        Target::Key(key) => Fields::new().with("k", key.as_str()),
    }
}

impl Inner {
    /// See [`Store::cancel`](dwell_store::Store::cancel).
    pub(super) async fn cancel(&self, queue: &QueueName, targets: Vec<Target>) -> Vec<Result<Cancelled>> {
        let items: Vec<_> = targets.into_iter().map(|target| (target, None)).collect();
        let answers = self.change(queue, &items).await;
        let read = |(reply, _): (PackReply, Timestamp)| match (reply.at(0).text(), id(reply.at(1))) {
            (Some("ok"), Some(id)) => Ok(Cancelled::Cancelled(id)),
            (Some("leased"), Some(id)) => Ok(Cancelled::Leased(id)),
            (Some("dead"), Some(id)) => Ok(Cancelled::Dead(id)),
            (Some("missing"), _) => Ok(Cancelled::NotFound),
            _ => Err(foreign_item(&reply).unwrap_or_else(|| unreadable(queue))),
        };
        answers.into_iter().map(|answer| answer.and_then(read)).collect()
    }

    /// See [`Store::reschedule`](dwell_store::Store::reschedule).
    pub(super) async fn reschedule(
        &self,
        queue: &QueueName,
        moves: Vec<(Target, When)>,
    ) -> Vec<Result<Rescheduled>> {
        let items: Vec<_> = moves.into_iter().map(|(target, when)| (target, Some(when))).collect();
        let answers = self.change(queue, &items).await;
        let read =
            |(reply, now): (PackReply, Timestamp), asked: When| match (reply.at(0).text(), id(reply.at(1))) {
                (Some("ok"), Some(id)) => instant(reply.at(2))
                    .map(|due| Rescheduled::Moved(id, due))
                    .ok_or_else(|| unreadable(queue)),
                (Some("leased"), Some(id)) => Ok(Rescheduled::Leased(id)),
                (Some("dead"), Some(id)) => Ok(Rescheduled::Dead(id)),
                (Some("missing"), _) => Ok(Rescheduled::NotFound),
                (Some("expires"), _) => match (instant(reply.at(1)), instant(reply.at(2))) {
                    (Some(expires), Some(due)) => Err(Invalid::ExpiresBeforeDue { expires, due }.into()),
                    _ => Err(unreadable(queue)),
                },
                _ => {
                    let refused = foreign_item(&reply).or_else(|| refused_instant(&reply, asked, now));
                    Err(refused.unwrap_or_else(|| unreadable(queue)))
                }
            };
        let asked = items.iter().map(|(_, when)| when.unwrap_or_default());
        answers
            .into_iter()
            .zip(asked)
            .map(|(answer, asked)| answer.and_then(|answer| read(answer, asked)))
            .collect()
    }

    /// Sends each item to its partition. An id of a partition that the queue does not have is looked up in the first
    /// one.
    async fn change(
        &self,
        queue: &QueueName,
        items: &[(Target, Option<When>)],
    ) -> Vec<Result<(PackReply, Timestamp)>> {
        let mut answers: Vec<Option<Result<(PackReply, Timestamp)>>> = vec![None; items.len()];
        let done = std::sync::Mutex::new(&mut answers);
        let whole = with_partitions!(self, queue, |partitions| {
            let mut groups: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
            for (index, (target, _)) in items.iter().enumerate() {
                if super::script_call::locked(&done)[index].is_none() {
                    let part = Some(place(target, partitions)).filter(|part| *part < partitions).unwrap_or(0);
                    groups.entry(part).or_default().push(index);
                }
            }
            let mut bare = false;
            for (part, indexes) in groups {
                for chunk in indexes.chunks(CHUNK) {
                    let packed = chunk.iter().map(|index| {
                        let (target, moved) = &items[*index];
                        moved.map_or_else(|| named(target), |moved| when(named(target), moved))
                    });
                    let arguments = Fields::new().with("items", packed.collect::<Vec<_>>());
                    let at = Partition::new(queue, part);
                    let answered = self.on(&at, partitions, Script::Change, arguments).await?;
                    bare = answered.reply.get("bare").is_set();
                    let replies = answered.reply.get("items");
                    for (place, index) in chunk.iter().enumerate() {
                        let reply = replies.at(place).clone();
                        super::script_call::locked(&done)[*index] = Some(Ok((reply, answered.now)));
                    }
                }
            }
            Ok::<_, NoAnswer>(bare)
        });
        let left = match whole {
            Ok(bare) => {
                if bare {
                    self.note_bare(queue).await;
                }
                unreadable(queue)
            }
            Err(error) => error,
        };
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err::<_, Error>(left.clone()))).collect()
    }
}
