//! Messages that were handed out to callers who had gone: they go back, before anything else is asked.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dwell_model::{QueueName, Receipt};
use tokio::sync::Notify;

use super::Inner;
use super::layout::Partition;
use super::pack::Fields;
use super::scripts::Script;
use super::wire::locked;

/// So long a call waits for what goes back.
const AWHILE: Duration = Duration::from_secs(1);

/// What is to be given back.
#[derive(Default)]
pub(super) struct Returns {
    state: Mutex<Owed>,
    /// Held by whoever gives back.
    gate: tokio::sync::Mutex<()>,
    paid: Notify,
}

#[derive(Default)]
struct Owed {
    receipts: Vec<Receipt>,
    /// Queues on which nobody of this process waits any more, though Redis may have noted so.
    left: BTreeSet<QueueName>,
    /// Takes under way whose callers have gone: what they bring is not known yet.
    under_way: usize,
    paying: bool,
}

impl Returns {
    pub(super) fn add(&self, receipts: impl IntoIterator<Item = Receipt>) {
        locked(&self.state).receipts.extend(receipts);
    }

    /// Nobody of this process waits on these queues any more.
    pub(super) fn leave(&self, queues: Vec<QueueName>) {
        locked(&self.state).left.extend(queues);
    }

    /// A take under way has no caller any more.
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
        state.receipts.is_empty() && state.left.is_empty() && state.under_way == 0 && !state.paying
    }
}

impl Inner {
    /// Gives back what is to be given back, so that the next call sees it there. What is long on its way, from a node that is away or
    /// to it, keeps nobody.
    pub(super) async fn await_returns(self: &Arc<Inner>) {
        if !self.returns.is_clear() {
            let inner = Arc::clone(self);
            // Once begun it goes to its end: what it has taken in hand is nowhere else.
            let paying = tokio::spawn(async move { inner.pay_returns().await });
            let _ = tokio::time::timeout(AWHILE, paying).await;
        }
    }

    /// Gives back what is to be given back, so that the next call sees it there.
    pub(super) async fn pay_returns(&self) {
        let returns = &self.returns;
        while !returns.is_clear() {
            let arrived = returns.paid.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            let _gate = returns.gate.lock().await;
            let (receipts, left) = {
                let mut state = locked(&returns.state);
                let receipts = std::mem::take(&mut state.receipts);
                // One that asks for a queue yet would note itself again.
                let left =
                    if state.under_way == 0 { std::mem::take(&mut state.left) } else { BTreeSet::new() };
                state.paying = !receipts.is_empty() || !left.is_empty();
                (receipts, left)
            };
            if !receipts.is_empty() || !left.is_empty() {
                self.give_back(receipts).await;
                for queue in left {
                    self.unwait(&queue).await;
                }
                locked(&returns.state).paying = false;
                continue;
            }
            drop(_gate);
            if locked(&returns.state).under_way > 0 {
                arrived.await;
            }
        }
    }

    async fn unwait(&self, queue: &QueueName) {
        if self.waiters.count(queue) > 0 {
            return;
        }
        for at in Partition::all(queue, self.spread(queue)) {
            // What can not be told now is forgotten after a minute.
            let _ =
                self.ask(&at, Script::Unwait, Fields::new().with("process", &self.wire.process[..])).await;
        }
    }
}
