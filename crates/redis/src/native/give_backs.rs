//! Messages that were handed out to callers who had gone: they are given back before any further call.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dwell_model::{QueueName, Receipt};
use futures_util::future::join_all;
use tokio::sync::Notify;

use super::Inner;
use super::inspect::Retries;
use super::layout::Partition;
use super::pack::Fields;
use super::script_call::locked;
use super::scripts::Script;

/// The longest time that a call waits for messages to be given back.
const AWHILE: Duration = Duration::from_secs(1);

/// What is to be given back.
#[derive(Default)]
pub(super) struct GiveBacks {
    state: Mutex<OwedReceipts>,
    /// Notified when some of it has been given back, or is known.
    paid: Notify,
}

#[derive(Default)]
struct OwedReceipts {
    receipts: Vec<Receipt>,
    /// Queues on which no take of this process waits any more, though Redis may have such a note.
    left: BTreeSet<QueueName>,
    /// The number of takes under way whose callers have gone: what they bring is not known yet.
    under_way: usize,
    /// The number of tasks that are giving receipts back.
    paying: usize,
}

impl GiveBacks {
    pub(super) fn add(&self, receipts: impl IntoIterator<Item = Receipt>) {
        locked(&self.state).receipts.extend(receipts);
    }

    /// No take of this process waits on these queues any more.
    pub(super) fn leave(&self, queues: Vec<QueueName>) {
        locked(&self.state).left.extend(queues);
    }

    /// A take under way has lost its caller.
    pub(super) fn owe(&self) {
        locked(&self.state).under_way += 1;
    }

    /// Such a take has ended; what it brought was added.
    pub(super) fn arrived(&self) {
        locked(&self.state).under_way -= 1;
        self.paid.notify_waiters();
    }

    fn is_clear(&self) -> bool {
        let state = locked(&self.state);
        state.receipts.is_empty() && state.left.is_empty() && state.under_way == 0 && state.paying == 0
    }

    /// Removes and returns what is to be done now. The task that takes receipts reports when they are given back.
    fn take(&self) -> (Vec<Receipt>, BTreeSet<QueueName>) {
        let mut state = locked(&self.state);
        let receipts = std::mem::take(&mut state.receipts);
        // A take that still asks for a queue would note itself again.
        let left = if state.under_way == 0 { std::mem::take(&mut state.left) } else { BTreeSet::new() };
        state.paying += usize::from(!receipts.is_empty());
        drop(state);
        if !left.is_empty() {
            self.paid.notify_waiters();
        }
        (receipts, left)
    }

    fn given_back(&self) {
        locked(&self.state).paying -= 1;
        self.paid.notify_waiters();
    }
}

impl Inner {
    /// Waits until everything that is to be given back has been, so that the next call sees it there: each addition
    /// starts a task for it. A call to or from a node that is away does not block others for longer than [`AWHILE`].
    pub(super) async fn await_returns(&self) {
        if self.returns.is_clear() {
            return;
        }
        let cleared = async {
            loop {
                let paid = self.returns.paid.notified();
                if self.returns.is_clear() {
                    return;
                }
                paid.await;
            }
        };
        let _ = tokio::time::timeout(AWHILE, cleared).await;
    }

    /// Gives back what is to be given back by now.
    ///
    /// Several tasks do so concurrently: one that waits for a node that is away does not hold back the messages of
    /// others. What is still under way is given back by the task that brings it: nothing waits here for that, or each
    /// call would leave a task behind for as long as a node is away.
    pub(super) async fn pay_returns(&self) {
        let returns = &self.returns;
        loop {
            let (receipts, left) = returns.take();
            if receipts.is_empty() && left.is_empty() {
                return;
            }
            if !receipts.is_empty() {
                self.give_back(receipts).await;
                self.released.fetch_add(1, Ordering::Relaxed);
                returns.given_back();
            }
            join_all(left.iter().map(|queue| self.unwait(queue))).await;
        }
    }

    /// The same, until nothing is under way any more.
    pub(super) async fn pay_all_returns(&self) {
        loop {
            let paid = self.returns.paid.notified();
            tokio::pin!(paid);
            paid.as_mut().enable();
            self.pay_returns().await;
            if self.returns.is_clear() {
                return;
            }
            paid.await;
        }
    }

    async fn unwait(&self, queue: &QueueName) {
        if self.waiters.count(queue) == 0 {
            self.forget_waiting(queue).await;
        }
    }

    /// Removes the note that takes of this process wait on a queue. A take that begins to wait meanwhile may be noted
    /// before that and lose its note: its asker notes it once more.
    async fn forget_waiting(&self, queue: &QueueName) {
        let told = Partition::all(queue, self.partitions(queue)).into_iter().map(|at| async move {
            let process = Fields::new().with("process", &self.wire.process[..]);
            // A note that cannot be removed now expires after a minute.
            let _ = self.ask_within(&at, Script::Unwait, process, Retries::Once).await;
        });
        join_all(told).await;
        self.waiters.hint(queue);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dwell_model::{Limits, Timestamp};
    use dwell_store::{Store as _, Take};
    use dwell_testkit::redis::Server;
    use dwell_testkit::until_async;
    use dwell_time::ManualClock;

    use super::*;
    use crate::RedisStore;

    /// The last take has gone, and the removal of its note is on its way to Redis when the next one is noted.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_take_that_comes_as_the_last_one_goes_is_noted_again() {
        let server = Server::start();
        // The sweeps, which would note it as well, wait for this clock.
        let clock = Arc::new(ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap()));
        let store = RedisStore::open_for_test(server.address(), Limits::default(), clock).await.unwrap();
        let (store, jobs) = (Arc::new(store), QueueName::new("jobs").unwrap());
        let is_noted = async || -> bool {
            let notes: Vec<String> =
                redis::from_redis_value(server.command(&["KEYS", "dwell:{*}:waiters"])).unwrap();
            !notes.is_empty()
        };
        let waiting = {
            let (store, take) = (Arc::clone(&store), Take::from(jobs.clone()).wait_ms(3_600_000));
            tokio::spawn(async move { store.take(take).await })
        };
        until_async("the note", is_noted).await;
        store.inner.forget_waiting(&jobs).await;
        until_async("the note, once more", is_noted).await;
        waiting.abort();
    }
}
