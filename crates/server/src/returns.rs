//! Gives back messages that were taken for somebody who has gone before the answer was written.
//!
//! Dropping is not async and settling is, so receipts are handed to one task that settles them.

use std::sync::Arc;

use dwell_model::Receipt;
use dwell_store::{Action, Settle, Store};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// Where receipts of undelivered messages are handed in. Not bounded by itself: every receipt is of a
/// leased message, and these are capped by the store.
#[derive(Clone, Debug)]
pub(crate) struct Returns(UnboundedSender<Vec<Receipt>>);

impl Returns {
    /// Starts the task; it ends once every clone of the `Returns` is gone and all is settled.
    pub(crate) fn start(store: Arc<dyn Store>) -> (Returns, JoinHandle<()>) {
        let (sender, receiver) = unbounded_channel();
        (Returns(sender), tokio::spawn(settle_all(store, receiver)))
    }

    /// Makes these messages ready again, without spending an attempt.
    pub(crate) fn give_back(&self, receipts: Vec<Receipt>) {
        if receipts.is_empty() {
            return;
        }
        // The task ends only after the last sender, so that the other end is there unless the runtime itself
        // is being torn down; then the leases run out.
        let _ = self.0.send(receipts);
    }
}

/// So many that were handed in are taken together at most.
const TOGETHER: usize = 1_024;

/// All that were handed in while a call was under way go back in one: each costs a sync, where the store has a disk.
async fn settle_all(store: Arc<dyn Store>, mut receiver: UnboundedReceiver<Vec<Receipt>>) {
    let batch = store.limits().batch.max(1);
    let mut handed_in = Vec::new();
    while receiver.recv_many(&mut handed_in, TOGETHER).await > 0 {
        let receipts: Vec<Receipt> = handed_in.drain(..).flatten().collect();
        for chunk in receipts.chunks(batch) {
            let settles = chunk
                .iter()
                .map(|receipt| Settle {
                    receipt: receipt.clone(),
                    action: Action::Release { after_ms: None, priority: None },
                })
                .collect();
            // A refusal means that the lease is over already, or that the store is closed and will say so
            // to everybody; either way there is nobody left to tell.
            let _ = store.settle(settles).await;
        }
    }
}
