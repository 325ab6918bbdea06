//! Takes run as tasks of the reactor, so that messages can be given back after the caller is dropped.
//!
//! Ground rules:
//! 1. The answer belongs to the task until it is in the channel to the caller, and then to the caller's end of the
//!    channel. Whichever end finds that the answer will not be read gives its messages back.
//! 2. A task whose caller has gone half-closes its connection, and reads what still arrives until the end.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dwell_store::{Action, Delivery, Error, Result, Settle};
use tokio::sync::oneshot;

use crate::client::Inner;

/// The answer to a take.
pub(crate) type TakeResult = Result<Vec<Delivery>>;

/// Counters of takes, for tests.
#[derive(Default)]
pub(crate) struct Takes {
    waits: Arc<AtomicU64>,
    strays: Arc<AtomicU64>,
}

impl Takes {
    /// The number of queues that callers wait on, counted once per take.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::SeqCst)
    }

    /// Whether nothing is under way for callers that have been dropped.
    pub(crate) fn are_quiet(&self) -> bool {
        self.strays.load(Ordering::SeqCst) == 0
    }
}

/// Increments a counter while it lives.
struct CountGuard {
    count: Arc<AtomicU64>,
    by: u64,
}

impl CountGuard {
    fn new(count: &Arc<AtomicU64>, by: u64) -> CountGuard {
        count.fetch_add(by, Ordering::SeqCst);
        CountGuard { count: Arc::clone(count), by }
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.count.fetch_sub(self.by, Ordering::SeqCst);
    }
}

/// A take whose caller was dropped; counted until nothing of it is under way.
struct Stray {
    count: Arc<AtomicU64>,
    has_gone: AtomicBool,
}

impl Stray {
    fn goes(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.has_gone.store(true, Ordering::SeqCst);
    }
}

impl Drop for Stray {
    fn drop(&mut self) {
        if *self.has_gone.get_mut() {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The caller's end of a take.
struct WaitingTake {
    inner: Arc<Inner>,
    /// `None` once it was read.
    answer: Option<oneshot::Receiver<TakeResult>>,
    stray: Arc<Stray>,
    _waits: CountGuard,
}

impl Drop for WaitingTake {
    fn drop(&mut self) {
        let Some(mut answer) = self.answer.take() else { return };
        self.stray.goes();
        // From here on the task sees that the caller has gone. An answer that it sent before is in the channel.
        answer.close();
        if let Ok(taken) = answer.try_recv() {
            let (inner, stray) = (Arc::clone(&self.inner), Arc::clone(&self.stray));
            self.inner.reactor.spawn(async move {
                inner.give_back(taken).await;
                drop(stray);
            });
        }
    }
}

impl Inner {
    /// Runs `take` as a task, for a caller that waits on `queues` queues. The task holds the sender of the answer, which
    /// shows whether the caller has been dropped.
    pub(crate) async fn run_take<F>(
        self: Arc<Inner>,
        queues: u64,
        take: impl FnOnce(Arc<Inner>, oneshot::Sender<TakeResult>) -> F,
    ) -> TakeResult
    where
        F: Future<Output = (TakeResult, oneshot::Sender<TakeResult>)> + Send + 'static,
    {
        let (sender, answer) = oneshot::channel();
        let stray =
            Arc::new(Stray { count: Arc::clone(&self.takes.strays), has_gone: AtomicBool::new(false) });
        let task = take(Arc::clone(&self), sender);
        let (inner, with_task) = (Arc::clone(&self), Arc::clone(&stray));
        self.reactor.spawn(async move {
            let (taken, sender) = task.await;
            if let Err(unread) = sender.send(taken) {
                inner.give_back(unread).await;
            }
            drop(with_task);
        });
        let waits = CountGuard::new(&self.takes.waits, queues);
        let mut waiting = WaitingTake { inner: self, answer: Some(answer), stray, _waits: waits };
        let taken = match &mut waiting.answer {
            Some(answer) => answer.await,
            None => unreachable!("it was put there just now"),
        };
        waiting.answer = None;
        // A task ends without an answer only if it panics.
        taken.unwrap_or(Err(Error::Closed))
    }

    /// Gives back messages that were not received, without spending an attempt.
    async fn give_back(&self, taken: TakeResult) {
        let release = |delivery: Delivery| Settle {
            receipt: delivery.receipt,
            action: Action::Release { after_ms: None, priority: None },
        };
        let settles: Vec<Settle> = taken.into_iter().flatten().map(release).collect();
        if !settles.is_empty() {
            // If the release fails, the leases run out.
            let _ = self.settle(settles).await;
        }
    }
}

/// The number of distinct queues among these names.
pub(crate) fn distinct<T: Ord>(names: &[T]) -> u64 {
    names.iter().collect::<BTreeSet<_>>().len() as u64
}
