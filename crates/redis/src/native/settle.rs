//! Ending leases: settlements by consumers, and messages given back for callers who had gone.

use std::collections::BTreeMap;

use dwell_model::{Invalid, Limits, QueueName, Receipt, Setting, Timestamp};
use dwell_store::{Action, Error, Result, Settle, Settled};
use futures_util::future::join_all;

use super::Inner;
use super::layout::{Partition, id_bytes};
use super::message::{instant, reason};
use super::pack::{Fields, Pack, PackReply};
use super::partition::{foreign_item, out_of_range, unreadable, with_partitions};
use super::script_call::random;
use super::scripts::Script;

/// The maximum number of leases that one script ends; acks alone may be more.
const CHUNK: usize = 40;
const CHUNK_ACKS: usize = 128;

impl Inner {
    /// See [`Store::settle`](dwell_store::Store::settle).
    pub(super) async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        let mut groups: BTreeMap<(&QueueName, u16), Vec<usize>> = BTreeMap::new();
        for (index, settle) in settles.iter().enumerate() {
            let receipt = &settle.receipt;
            groups.entry((&receipt.queue, receipt.id.shard())).or_default().push(index);
        }
        let mut answers = vec![Err(Error::LeaseLost); settles.len()];
        let calls = groups.into_iter().map(|((queue, shard), indexes)| {
            let items: Vec<_> = indexes.iter().map(|index| &settles[*index]).collect();
            async move { (indexes, self.settle_in(queue, shard, &items).await) }
        });
        for (indexes, group) in join_all(calls.collect::<Vec<_>>()).await {
            indexes.into_iter().zip(group).for_each(|(index, answer)| answers[index] = answer);
        }
        answers
    }

    async fn settle_in(&self, queue: &QueueName, shard: u16, settles: &[&Settle]) -> Vec<Result<Settled>> {
        let mut answers = Vec::with_capacity(settles.len());
        let counts = self.lease_counts();
        let mut bare = false;
        let acks = settles.iter().all(|settle| settle.action == Action::Ack);
        for chunk in settles.chunks(if acks { CHUNK_ACKS } else { CHUNK }) {
            let settled = with_partitions!(self, queue, |partitions| {
                let asked = if acks { packed_acks(chunk) } else { packed_all(chunk) };
                let at = Partition::of_id(queue, shard, partitions);
                self.on(&at, partitions, Script::Settle, asked).await
            });
            match settled {
                Ok(answered) => {
                    bare = answered.reply.get("bare").is_set();
                    if answered.reply.get("all").uint() == Some(chunk.len() as u64) {
                        answers.extend(chunk.iter().map(|_| Ok(Settled::Gone)));
                        continue;
                    }
                    let replies = answered.reply.get("items");
                    let read = chunk.iter().enumerate().map(|(index, settle)| {
                        let answer = answer(settle, replies.at(index), answered.now);
                        answer.unwrap_or_else(|| Err(unreadable(queue)))
                    });
                    answers.extend(read);
                }
                Err(error) => answers.extend(chunk.iter().map(|_| Err(error.clone()))),
            }
        }
        let ended =
            answers.iter().filter(|answer| matches!(answer, Ok(settled) if !is_held(settled))).count();
        if ended > 0 {
            self.leases_ended(queue, ended as u64, counts);
        }
        if bare {
            self.note_bare(queue).await;
        }
        answers
    }

    /// Puts messages back without spending an attempt. Stale receipts are skipped; no caller waits for an answer.
    pub(super) async fn give_back(&self, receipts: Vec<Receipt>) {
        let mut groups: BTreeMap<(QueueName, u16), Vec<Pack>> = BTreeMap::new();
        for receipt in receipts {
            let item = proof(&receipt).with("a", 5_u32).into();
            groups.entry((receipt.queue, receipt.id.shard())).or_default().push(item);
        }
        // Concurrently: a partition that does not answer does not delay the others.
        let given = groups.into_iter().map(|((queue, shard), items)| async move {
            let at = Partition::new(&queue, shard);
            for chunk in items.chunks(CHUNK) {
                let arguments = Fields::new().with("items", chunk.to_vec());
                let counts = self.lease_counts();
                // A message that cannot be given back comes back when its lease runs out.
                if let Ok(answered) = self.ask(&at, Script::Settle, arguments).await {
                    let lost = answered.reply.get("items").items().iter();
                    let ended =
                        lost.filter(|reply| !matches!(reply.at(0).text(), Some("lost" | "foreign"))).count();
                    self.leases_ended(&queue, ended as u64, counts);
                }
            }
        });
        join_all(given.collect::<Vec<_>>()).await;
    }
}

fn is_held(settled: &Settled) -> bool {
    matches!(settled, Settled::Leased(_))
}

fn check(action: &Action) -> std::result::Result<(), Invalid> {
    match action {
        Action::Retry { error: Some(text), .. } | Action::Bury { reason: Some(text), .. } => {
            Limits::check_error_text(text)
        }
        Action::Extend { lease_ms: Some(ms) } => Setting::LeaseMs(*ms).check(),
        _ => Ok(()),
    }
}

fn proof(receipt: &Receipt) -> Fields {
    Fields::new().with("i", &id_bytes(receipt.id)[..]).with("T", &receipt.token.0.to_be_bytes()[..])
}

/// The script's arguments for acks: the id and token of each, and the field of its record.
fn packed_acks(settles: &[&Settle]) -> Fields {
    let mut proofs = Vec::with_capacity(settles.len() * 32);
    let mut fields = Vec::with_capacity(settles.len() * 8);
    for settle in settles {
        let id = id_bytes(settle.receipt.id);
        proofs.extend_from_slice(&id);
        proofs.extend_from_slice(&settle.receipt.token.0.to_be_bytes());
        fields.extend_from_slice(&id[8..]);
    }
    let fields = Pack::Column(fields.into(), 8);
    Fields::new().with("acks", Pack::Column(proofs.into(), 32)).with("fields", fields)
}

fn packed_all(settles: &[&Settle]) -> Fields {
    Fields::new().with("items", settles.iter().map(|settle| packed(settle)).collect::<Vec<_>>())
}

fn packed(settle: &Settle) -> Pack {
    if check(&settle.action).is_err() {
        return Fields::new().flag("bad", true).into();
    }
    let fields = proof(&settle.receipt);
    match &settle.action {
        Action::Ack => fields.with("a", 0_u32),
        Action::Retry { after_ms, error, priority } => {
            let fields = fields.with("a", 1_u32).maybe("v", *after_ms).maybe("p", *priority);
            fields.maybe("e", error.as_deref()).with("z", (random() >> 32) as u32)
        }
        Action::Release { after_ms, priority } => {
            fields.with("a", 2_u32).maybe("v", *after_ms).maybe("p", *priority)
        }
        Action::Bury { reason, priority } => {
            fields.with("a", 3_u32).maybe("e", reason.as_deref()).maybe("p", *priority)
        }
        Action::Extend { lease_ms } => fields.with("a", 4_u32).maybe("v", *lease_ms),
    }
    .into()
}

fn answer(settle: &Settle, reply: &PackReply, now: Timestamp) -> Option<Result<Settled>> {
    if *reply == PackReply::Bool(true) {
        return Some(Ok(Settled::Gone));
    }
    Some(match reply.at(0).text()? {
        "lost" => Err(Error::LeaseLost),
        "foreign" => Err(foreign_item(reply)?),
        "bad" => Err(check(&settle.action).err()?.into()),
        "range" => {
            let asked = match settle.action {
                Action::Retry { after_ms, .. } | Action::Release { after_ms, .. } => after_ms,
                _ => None,
            };
            Err(out_of_range(now, asked.or(reply.at(1).uint())?))
        }
        _ => Ok(settled(reply)?),
    })
}

/// The state of a message whose lease was settled, or ended.
pub(super) fn settled(reply: &PackReply) -> Option<Settled> {
    Some(match reply.at(0).text()? {
        "gone" => Settled::Gone,
        "ready" => Settled::Ready,
        "scheduled" => Settled::Scheduled(instant(reply.at(1))?),
        "leased" => Settled::Leased(instant(reply.at(1))?),
        "dead" => Settled::Dead(reason(reply.at(1).int()?)?),
        _ => return None,
    })
}
