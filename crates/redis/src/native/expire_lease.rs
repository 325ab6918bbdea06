//! Leases that an operator ends.

use std::collections::BTreeMap;

use dwell_model::QueueName;
use dwell_store::{Error, LeaseRef, Result, Settled};
use futures_util::future::join_all;

use super::Inner;
use super::layout::{Partition, id_bytes};
use super::pack::{Fields, PackReply};
use super::partition::{foreign_item, unreadable, with_partitions};
use super::scripts::Script;
use super::settle::settled;

/// The maximum number of leases that one script ends.
const CHUNK: usize = 40;

impl Inner {
    /// See [`Store::expire_lease`](dwell_store::Store::expire_lease). They end partition by partition, as if their
    /// deadlines were at that moment.
    pub(super) async fn expire_lease(
        &self,
        queue: &QueueName,
        leases: Vec<LeaseRef>,
    ) -> Vec<Result<Settled>> {
        let mut groups: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (index, lease) in leases.iter().enumerate() {
            groups.entry(lease.id.shard()).or_default().push(index);
        }
        let mut answers = vec![Err(Error::MessageNotFound { queue: queue.clone() }); leases.len()];
        // Concurrently: a partition that does not answer does not delay the others.
        let ended = groups.into_iter().map(|(shard, indexes)| {
            let leases: Vec<_> = indexes.iter().map(|index| leases[*index]).collect();
            async move { (indexes, self.expire_lease_in(queue, shard, &leases).await) }
        });
        for (indexes, group) in join_all(ended.collect::<Vec<_>>()).await {
            indexes.into_iter().zip(group).for_each(|(index, answer)| answers[index] = answer);
        }
        answers
    }

    async fn expire_lease_in(
        &self,
        queue: &QueueName,
        shard: u16,
        leases: &[LeaseRef],
    ) -> Vec<Result<Settled>> {
        let mut answers = Vec::with_capacity(leases.len());
        let mut bare = false;
        for chunk in leases.chunks(CHUNK) {
            let counts = self.lease_counts();
            let ended = with_partitions!(self, queue, |partitions| {
                let items = chunk.iter().map(packed).collect::<Vec<_>>();
                let at = Partition::of_id(queue, shard, partitions);
                self.on(&at, partitions, Script::Settle, Fields::new().with("items", items)).await
            });
            let before = answers.len();
            match ended {
                Ok(answered) => {
                    bare = answered.reply.get("bare").is_set();
                    let replies = answered.reply.get("items");
                    let read = chunk.iter().enumerate().map(|(place, lease)| {
                        let answer = answer(queue, lease, replies.at(place));
                        answer.unwrap_or_else(|| Err(unreadable(queue)))
                    });
                    answers.extend(read);
                }
                Err(error) => answers.extend(chunk.iter().map(|_| Err(error.clone()))),
            }
            let ended = answers[before..].iter().filter(|answer| answer.is_ok()).count();
            if ended > 0 {
                self.leases_ended(queue, ended as u64, counts);
            }
        }
        if bare {
            self.note_bare(queue).await;
        }
        answers
    }
}

fn packed(lease: &LeaseRef) -> Fields {
    Fields::new().with("i", &id_bytes(lease.id)[..]).with("n", lease.takes)
}

fn answer(queue: &QueueName, lease: &LeaseRef, reply: &PackReply) -> Option<Result<Settled>> {
    let id = lease.id;
    Some(match reply.at(0).text()? {
        "missing" => Err(Error::MessageNotFound { queue: queue.clone() }),
        "unheld" => Err(Error::NotLeased { id }),
        "changed" => {
            Err(Error::LeaseChanged { id, takes: reply.at(1).uint()?.try_into().unwrap_or(u32::MAX) })
        }
        "foreign" => Err(foreign_item(reply)?),
        _ => Ok(settled(reply)?),
    })
}
