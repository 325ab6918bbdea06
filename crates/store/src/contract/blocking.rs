//! The contract for threads that have no async runtime: each call blocks until it is answered.

use std::sync::Arc;

use dwell_model::{Cursor, Message, MessageId, Number, QueueName, SettingChange, StateKind, Timestamp};
use pollster::block_on;

use crate::{
    BulkOutcome, Cancelled, Delivery, Forecast, LeaseRef, LeaseTerms, Page, Put, PutAnswer, QueueDeaths,
    QueueStats, Rescheduled, Result, Selection, Settle, Settled, Store, Take, Target, When,
};

/// A store whose calls block. See [`Store`] for what each does.
///
/// Not for use on the threads of an async runtime, which it would block.
#[derive(Clone)]
pub struct Blocking<S: ?Sized = dyn Store> {
    store: Arc<S>,
}

impl<S: Store + ?Sized> Blocking<S> {
    /// A blocking wrapper of `store`.
    pub fn new(store: Arc<S>) -> Blocking<S> {
        Blocking { store }
    }

    /// See [`Store::put`].
    pub fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        block_on(self.store.put(puts))
    }

    /// Puts one message. See [`Store::put`].
    ///
    /// # Errors
    /// The item's.
    pub fn put_one(&self, put: Put) -> Result<PutAnswer> {
        one(self.put(vec![put]))
    }

    /// See [`Store::take`].
    ///
    /// # Errors
    /// As there.
    pub fn take(&self, take: Take) -> Result<Vec<Delivery>> {
        block_on(self.store.take(take))
    }

    /// See [`Store::take_id`].
    ///
    /// # Errors
    /// As there.
    pub fn take_id(&self, queue: QueueName, id: MessageId, terms: LeaseTerms) -> Result<Delivery> {
        block_on(self.store.take_id(queue, id, terms))
    }

    /// See [`Store::settle`].
    pub fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        block_on(self.store.settle(settles))
    }

    /// Settles one message. See [`Store::settle`].
    ///
    /// # Errors
    /// The item's.
    pub fn settle_one(&self, settle: Settle) -> Result<Settled> {
        one(self.settle(vec![settle]))
    }

    /// See [`Store::expire_lease`].
    pub fn expire_lease(&self, queue: QueueName, leases: Vec<LeaseRef>) -> Vec<Result<Settled>> {
        block_on(self.store.expire_lease(queue, leases))
    }

    /// See [`Store::cancel`].
    pub fn cancel(&self, queue: QueueName, targets: Vec<Target>) -> Vec<Result<Cancelled>> {
        block_on(self.store.cancel(queue, targets))
    }

    /// See [`Store::reschedule`].
    pub fn reschedule(&self, queue: QueueName, moves: Vec<(Target, When)>) -> Vec<Result<Rescheduled>> {
        block_on(self.store.reschedule(queue, moves))
    }

    /// See [`Store::get`].
    pub fn get(&self, queue: QueueName, targets: Vec<Target>, dead: bool) -> Vec<Result<Message>> {
        block_on(self.store.get(queue, targets, dead))
    }

    /// See [`Store::locate`].
    pub fn locate(&self, numbers: Vec<Number>) -> Vec<Result<Option<(QueueName, MessageId)>>> {
        block_on(self.store.locate(numbers))
    }

    /// See [`Store::list`].
    ///
    /// # Errors
    /// As there.
    pub fn list(
        &self,
        queue: QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Page> {
        block_on(self.store.list(queue, state, after, max))
    }

    /// See [`Store::peek`].
    ///
    /// # Errors
    /// As there.
    pub fn peek(&self, queue: QueueName, state: StateKind) -> Result<Option<Message>> {
        block_on(self.store.peek(queue, state))
    }

    /// See [`Store::stats`].
    ///
    /// # Errors
    /// As there.
    pub fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        block_on(self.store.stats(queue))
    }

    /// See [`Store::forecast`].
    ///
    /// # Errors
    /// As there.
    pub fn forecast(&self, queues: Option<Vec<QueueName>>, edges: Vec<Timestamp>) -> Result<Forecast> {
        block_on(self.store.forecast(queues, edges))
    }

    /// See [`Store::queues`].
    ///
    /// # Errors
    /// As there.
    pub fn queues(&self, after: Option<QueueName>, max: usize) -> Result<Vec<QueueStats>> {
        block_on(self.store.queues(after, max))
    }

    /// See [`Store::ready`].
    ///
    /// # Errors
    /// As there.
    pub fn ready(&self) -> Result<()> {
        block_on(self.store.ready())
    }

    /// See [`Store::configure`].
    ///
    /// # Errors
    /// As there.
    pub fn configure(&self, queue: QueueName, changes: Vec<SettingChange>) -> Result<QueueStats> {
        block_on(self.store.configure(queue, changes))
    }

    /// See [`Store::revive`].
    ///
    /// # Errors
    /// As there.
    pub fn revive(&self, queue: QueueName, which: Selection, when: When) -> Result<BulkOutcome> {
        block_on(self.store.revive(queue, which, when))
    }

    /// See [`Store::deaths`].
    ///
    /// # Errors
    /// As there.
    pub fn deaths(&self) -> Result<Vec<QueueDeaths>> {
        block_on(self.store.deaths())
    }

    /// See [`Store::discard`].
    ///
    /// # Errors
    /// As there.
    pub fn discard(&self, queue: QueueName, which: Selection) -> Result<BulkOutcome> {
        block_on(self.store.discard(queue, which))
    }

    /// See [`Store::purge`].
    ///
    /// # Errors
    /// As there.
    pub fn purge(&self, queue: QueueName) -> Result<u64> {
        block_on(self.store.purge(queue))
    }

    /// See [`Store::delete_queue`].
    ///
    /// # Errors
    /// As there.
    pub fn delete_queue(&self, queue: QueueName) -> Result<u64> {
        block_on(self.store.delete_queue(queue))
    }

    /// The store itself.
    pub fn store(&self) -> &Arc<S> {
        &self.store
    }
}

impl<S: ?Sized> std::fmt::Debug for Blocking<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blocking").finish_non_exhaustive()
    }
}

fn one<T>(mut answers: Vec<Result<T>>) -> Result<T> {
    answers.pop().expect("a store answers each item")
}
