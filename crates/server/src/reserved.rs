//! A store whose reserved queues can only be read, for callers over the network.
//!
//! Every call that changes a message or a queue is checked here, so that no route or command has to do it, and a new
//! one cannot forget it. What the server does itself, such as running schedules, uses the store beneath.

use std::sync::Arc;

use async_trait::async_trait;
use dwell_model::{MessageId, QueueName, SettingChange};
use dwell_store::{
    BulkOutcome, Cancelled, Delivery, Error, LeaseRef, LeaseTerms, Put, PutAnswer, QueueStats, Rescheduled,
    Result, Selection, Settle, Settled, Store, Take, Target, When, delegate_store,
};

/// A store with this check.
pub(crate) struct Guarded(Arc<dyn Store>);

impl Guarded {
    pub(crate) fn new(store: Arc<dyn Store>) -> Guarded {
        Guarded(store)
    }
}

/// Refuses a change to a reserved queue.
fn check(queue: &QueueName) -> Result<()> {
    if queue.is_reserved() { Err(Error::QueueReserved { queue: queue.clone() }) } else { Ok(()) }
}

/// The same answer for each of `items` items.
fn each<T>(items: usize, refusal: &Error) -> Vec<Result<T>> {
    (0..items).map(|_| Err(refusal.clone())).collect()
}

/// Passes on the items that are not refused in one call, and answers each at its index.
async fn others<I, A, C>(
    items: Vec<I>,
    queue: fn(&I) -> &QueueName,
    call: impl FnOnce(Vec<I>) -> C,
) -> Vec<Result<A>>
where
    C: Future<Output = Vec<Result<A>>>,
{
    // The common case.
    if items.iter().all(|item| !queue(item).is_reserved()) {
        return call(items).await;
    }
    let refusals: Vec<Option<Error>> = items.iter().map(|item| check(queue(item)).err()).collect();
    let allowed: Vec<I> = items.into_iter().filter(|item| !queue(item).is_reserved()).collect();
    let done = if allowed.is_empty() { Vec::new() } else { call(allowed).await };
    let mut done = done.into_iter();
    let answer = |refusal: Option<Error>| match refusal {
        Some(refusal) => Err(refusal),
        None => done.next().expect("a store answers each item"),
    };
    refusals.into_iter().map(answer).collect()
}

#[async_trait]
impl Store for Guarded {
    async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        others(puts, |put| &put.queue, |puts| self.0.put(puts)).await
    }

    async fn take(&self, take: Take) -> Result<Vec<Delivery>> {
        take.queues.iter().try_for_each(check)?;
        self.0.take(take).await
    }

    async fn take_id(&self, queue: QueueName, id: MessageId, terms: LeaseTerms) -> Result<Delivery> {
        check(&queue)?;
        self.0.take_id(queue, id, terms).await
    }

    async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        others(settles, |settle| &settle.receipt.queue, |settles| self.0.settle(settles)).await
    }

    async fn expire_lease(&self, queue: QueueName, leases: Vec<LeaseRef>) -> Vec<Result<Settled>> {
        match check(&queue) {
            Ok(()) => self.0.expire_lease(queue, leases).await,
            Err(refusal) => each(leases.len(), &refusal),
        }
    }

    async fn cancel(&self, queue: QueueName, targets: Vec<Target>) -> Vec<Result<Cancelled>> {
        match check(&queue) {
            Ok(()) => self.0.cancel(queue, targets).await,
            Err(refusal) => each(targets.len(), &refusal),
        }
    }

    async fn reschedule(&self, queue: QueueName, moves: Vec<(Target, When)>) -> Vec<Result<Rescheduled>> {
        match check(&queue) {
            Ok(()) => self.0.reschedule(queue, moves).await,
            Err(refusal) => each(moves.len(), &refusal),
        }
    }

    async fn configure(&self, queue: QueueName, changes: Vec<SettingChange>) -> Result<QueueStats> {
        check(&queue)?;
        self.0.configure(queue, changes).await
    }

    async fn revive(&self, queue: QueueName, which: Selection, when: When) -> Result<BulkOutcome> {
        check(&queue)?;
        self.0.revive(queue, which, when).await
    }

    async fn discard(&self, queue: QueueName, which: Selection) -> Result<BulkOutcome> {
        check(&queue)?;
        self.0.discard(queue, which).await
    }

    async fn purge(&self, queue: QueueName) -> Result<u64> {
        check(&queue)?;
        self.0.purge(queue).await
    }

    async fn delete_queue(&self, queue: QueueName) -> Result<u64> {
        check(&queue)?;
        self.0.delete_queue(queue).await
    }

    delegate_store! {
        self.0;
        own: put take take_id settle expire_lease cancel reschedule configure revive discard purge delete_queue;
        forward: get locate list peek stats forecast queues ready deaths;
    }
}

#[cfg(test)]
mod tests {
    use dwell_model::Limits;
    use dwell_store::MemoryStore;
    use dwell_time::SystemClock;

    use super::*;

    #[tokio::test]
    async fn of_a_batch_the_reserved_items_alone_are_refused_and_each_answer_is_in_its_place() {
        let memory: Arc<dyn Store> =
            Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
        let guarded = Guarded::new(Arc::clone(&memory));
        let put = |queue: &str| Put::new(queue.parse().unwrap(), queue.to_owned());
        let answers = guarded.put(vec![put("dwell:a"), put("b"), put("dwell:c"), put("d")]).await;
        let code = |answer: &Result<PutAnswer>| answer.as_ref().err().map(Error::code);
        let codes: Vec<_> = answers.iter().map(code).collect();
        assert_eq!(codes, [Some("queue_reserved"), None, Some("queue_reserved"), None]);
        let ids: Vec<MessageId> = answers.iter().flatten().map(|answer| answer.id).collect();
        for (queue, id) in [("b", ids[0]), ("d", ids[1])] {
            let found =
                memory.get(queue.parse().unwrap(), vec![Target::Id(id)], false).await.remove(0).unwrap();
            assert_eq!(found.body, queue);
        }
        assert_eq!(memory.queues(None, 9).await.unwrap().len(), 2);
    }
}
