//! A store in memory whose caller dies at a call: before the call was made, or after it and before its answer.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use dwell_model::QueueName;
use dwell_store::{
    Delivery, LeaseTerms, MemoryStore, Put, PutAnswer, Result, Settle, Settled, Store, Take, async_trait,
    delegate_store,
};

/// The store; see the [module](self).
pub(super) struct Mortal {
    inner: Arc<MemoryStore>,
    calls: AtomicUsize,
    /// The number of the call, and whether it is made.
    death: Mutex<Option<(usize, bool)>>,
}

impl Mortal {
    pub(super) fn new(inner: Arc<MemoryStore>) -> Mortal {
        Mortal { inner, calls: AtomicUsize::new(0), death: Mutex::new(None) }
    }

    /// Sets the call at which the next caller dies, counted from 0, and whether that call is made.
    pub(super) fn arm(&self, death: Option<(usize, bool)>) {
        self.calls.store(0, Ordering::Relaxed);
        *self.death.lock().unwrap_or_else(PoisonError::into_inner) = death;
    }

    async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let death = *self.death.lock().unwrap_or_else(PoisonError::into_inner);
        match death {
            Some((at, is_made)) if at <= number => {
                if is_made {
                    call.await;
                }
                std::future::pending().await
            }
            _ => call.await,
        }
    }
}

/// The output of a future that waits for nothing; `None` if its caller has died in it.
pub(super) fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[async_trait]
impl Store for Mortal {
    async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        self.call(self.inner.put(puts)).await
    }

    async fn take(&self, take: Take) -> Result<Vec<Delivery>> {
        self.call(self.inner.take(take)).await
    }

    async fn take_id(
        &self,
        queue: QueueName,
        id: dwell_model::MessageId,
        terms: LeaseTerms,
    ) -> Result<Delivery> {
        self.call(self.inner.take_id(queue, id, terms)).await
    }

    async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        self.call(self.inner.settle(settles)).await
    }

    delegate_store! {
        self.inner;
        own: put take take_id settle;
        forward: expire_lease cancel reschedule get locate list peek stats forecast queues ready;
        forward: configure revive deaths discard purge delete_queue;
    }
}
