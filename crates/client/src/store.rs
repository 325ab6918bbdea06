//! The calls of the contract.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use dwell_model::{
    Cursor, Limits, Message, MessageId, Number, QueueName, Setting, SettingChange, StateKind, Timestamp,
};
use dwell_store::{
    Blocking, BulkOutcome, Cancelled, Delivery, Forecast, LeaseRef, LeaseTerms, Page, Put, PutAnswer,
    QueueDeaths, QueueStats, Rescheduled, Result, Selection, Settle, Settled, Store, Take, Target, When,
};
use dwell_wire::Operation;
use tokio::sync::oneshot;

use crate::Client;
use crate::client::Inner;
use crate::takes::{TakeResult, distinct};

impl Client {
    /// The same store for threads that may block.
    pub fn blocking(&self) -> Blocking<Client> {
        Blocking::new(Arc::new(self.clone()))
    }

    async fn enter<F: Future>(&self, call: F) -> F::Output {
        self.inner.reactor.enter(call).await
    }
}

#[async_trait]
impl Store for Client {
    async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        self.enter(self.inner.put(puts)).await
    }

    async fn take(&self, take: Take) -> Result<Vec<Delivery>> {
        // The server refuses an empty take. Of such a take only the lease can be invalid.
        if take.max == 0 || take.queues.is_empty() {
            take.lease_ms.map(|lease_ms| Setting::LeaseMs(lease_ms).check()).transpose()?;
            return Ok(Vec::new());
        }
        let queues = if take.wait_ms > 0 { distinct(&take.queues) } else { 0 };
        let run = |inner: Arc<Inner>, mut sender: oneshot::Sender<TakeResult>| async move {
            let taken = inner.take(&take, &mut sender).await;
            (taken, sender)
        };
        Arc::clone(&self.inner).run_take(queues, run).await
    }

    async fn take_id(&self, queue: QueueName, id: MessageId, terms: LeaseTerms) -> Result<Delivery> {
        let run = |inner: Arc<Inner>, mut sender: oneshot::Sender<TakeResult>| async move {
            let taken = inner.take_id(&queue, id, &terms, &mut sender).await;
            (taken, sender)
        };
        let taken = Arc::clone(&self.inner).run_take(0, run).await?;
        Ok(taken.into_iter().next().expect("a take by id brings its message, or a refusal"))
    }

    async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        self.enter(self.inner.settle(settles)).await
    }

    async fn expire_lease(&self, queue: QueueName, leases: Vec<LeaseRef>) -> Vec<Result<Settled>> {
        self.enter(self.inner.expire_lease(queue, leases)).await
    }

    async fn cancel(&self, queue: QueueName, targets: Vec<Target>) -> Vec<Result<Cancelled>> {
        self.enter(self.inner.cancel(queue, targets)).await
    }

    async fn reschedule(&self, queue: QueueName, moves: Vec<(Target, When)>) -> Vec<Result<Rescheduled>> {
        self.enter(self.inner.reschedule(queue, moves)).await
    }

    async fn get(&self, queue: QueueName, targets: Vec<Target>, dead: bool) -> Vec<Result<Message>> {
        self.enter(self.inner.get(queue, targets, dead)).await
    }

    async fn locate(&self, numbers: Vec<Number>) -> Vec<Result<Option<(QueueName, MessageId)>>> {
        self.enter(self.inner.locate(numbers)).await
    }

    async fn list(
        &self,
        queue: QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Page> {
        self.enter(self.inner.list(queue, state, after, max)).await
    }

    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        self.enter(self.inner.stats(queue)).await
    }

    async fn forecast(&self, queues: Option<Vec<QueueName>>, edges: Vec<Timestamp>) -> Result<Forecast> {
        self.enter(self.inner.forecast(queues, &edges)).await
    }

    async fn queues(&self, after: Option<QueueName>, max: usize) -> Result<Vec<QueueStats>> {
        self.enter(self.inner.queues(after, max)).await
    }

    async fn ready(&self) -> Result<()> {
        self.enter(self.inner.ready()).await
    }

    async fn configure(&self, queue: QueueName, changes: Vec<SettingChange>) -> Result<QueueStats> {
        self.enter(self.inner.configure(queue, changes)).await
    }

    async fn revive(&self, queue: QueueName, which: Selection, when: When) -> Result<BulkOutcome> {
        self.enter(self.inner.revive(queue, which, when)).await
    }

    /// What the server has counted since it opened its store.
    async fn deaths(&self) -> Result<Vec<QueueDeaths>> {
        self.enter(self.inner.deaths()).await
    }

    async fn discard(&self, queue: QueueName, which: Selection) -> Result<BulkOutcome> {
        self.enter(self.inner.discard(queue, which)).await
    }

    async fn purge(&self, queue: QueueName) -> Result<u64> {
        self.enter(self.inner.remove(Operation::Purge, queue)).await
    }

    async fn delete_queue(&self, queue: QueueName) -> Result<u64> {
        self.enter(self.inner.remove(Operation::DeleteQueue, queue)).await
    }

    /// The limits of the server's store, once a call has needed them or
    /// [`info`](Client::info) was called; the defaults before that.
    fn limits(&self) -> &Limits {
        self.inner.limits()
    }
}
